// What goes with nodes that are removed: their edges, and what their rows have. Private to this room.
#pragma once

#include <functional>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/topology_record.h"
#include "quarry/storage/row_bitmap.h"
#include "quarry/storage/store.h"
#include "quarry/storage/topology.h"

namespace quarry {

// Takes edges and the relation of each, or none where there is one.
using TakeEdges = std::function<Status(std::span<const Edge>, std::span<const uint32_t>)>;

// Calls `take` with the edges that lead to or from `nodes`, some at a time; one may come twice. The lists of the nodes have
// them, where there are lists of both directions; else all edges are read through. kCancelled, kCorruption, kIoError.
Status EdgesOf(IoBackend& backend, MemoryBudget& budget, const Topology& topology,
               const TopologyRecord& record, const RowBitmap& nodes, const ProgressFunction& progress,
               const TakeEdges& take);

// Calls `put` with writes after which the nodes have no label and no split, and rows of zeros, some at a time.
Status ClearRowsOf(const Manifest& manifest, const RowBitmap& nodes,
                   const std::function<Status(const WriteBatch&)>& put);

}  // namespace quarry
