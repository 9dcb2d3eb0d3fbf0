// Folders of DGL's GraphBolt as datasets. Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// True when its metadata.yaml describes a graph.
bool IsGraphBoltFolder(const std::string& folder);

// Opens a graph of one type of nodes; several types of edges are relations, in the order of the file. Labels
// are those of the node feature "label", else those of the first task about nodes, whose labelled nodes take
// 16 bytes each. kUnsupported for several types of nodes; kInvalidArgument.
Result<Dataset> OpenGraphBolt(const std::string& folder, const SourceHints& hints);

}  // namespace quarry
