// Labels and splits of all nodes, in memory: which nodes are trained on, and what they are to be classified
// as.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/storage/store.h"

namespace quarry {

struct NodeProperties {
  std::vector<int64_t> labels;  // by node; -1 = none; empty without a label table
  std::vector<uint8_t> splits;  // Split by node; empty = none

  std::vector<NodeId> SplitNodes(Split split) const;  // ascending
  // The nodes of the training split, which an epoch of training uses; where nodes have labels, those that have one.
  std::vector<NodeId> TrainNodes() const;
};

// Classes that a model of these labels tells apart: 1 + the largest label, 0 where there is none.
uint32_t CountClasses(std::span<const int64_t> labels);

// The table of what labels stand for, where an import has numbered them: row i is label i's.
inline constexpr std::string_view kLabelCodeTable = "label_code";

// Tables of what places have at all times, and times at all places (quarry/storage/times.h).
inline constexpr std::string_view kPlaceColumns = "place_feature", kTimeColumns = "time_feature";

// Whether the table has a row for each node.
inline bool IsByNode(const TableRecord& table) {
  return table.name != kLabelCodeTable && table.name != kPlaceColumns && table.name != kTimeColumns;
}

// Bytes that the properties will take, computed from the manifest alone.
uint64_t NodePropertiesBytes(const Manifest& manifest);
// Loads them as `snapshot` has them, of the first `node_count` nodes: a layout may be of a graph with fewer. kCorruption
// when a table is not what its name says.
Result<NodeProperties> LoadNodeProperties(Store& store, uint64_t node_count,
                                          const std::shared_ptr<const Snapshot>& snapshot);

}  // namespace quarry
