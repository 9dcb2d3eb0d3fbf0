#include "node_removal.h"

#include <memory>
#include <string_view>
#include <vector>

#include "quarry/storage/edge_columns.h"
#include "quarry/storage/node_properties.h"
#include "side_change.h"

namespace quarry {
namespace {

constexpr std::string_view kLabels = "label", kSplits = "split";  // tables

// Edges on their way to whoever takes them.
class EdgesToGo {
 public:
  explicit EdgesToGo(const std::function<Status(std::span<const Edge>)>& take) : take_(take) {}
  Status Add(const Edge& edge) {
    edges_.push_back(edge);
    return edges_.size() < kChangeBatch ? Status::Ok() : Flush();
  }
  Status Flush() {
    const Status taken = edges_.empty() ? Status::Ok() : take_(edges_);
    edges_.clear();
    return taken;
  }

 private:
  const std::function<Status(std::span<const Edge>)>& take_;
  std::vector<Edge> edges_;
};

Status EdgesOfLists(IoBackend& backend, const Topology& topology, Adjacency side, const RowBitmap& nodes,
                    const ProgressFunction& progress, EdgesToGo& batch) {
  QUARRY_TRY(const auto neighbors, EdgeColumnReader::Make(backend, topology, side, EdgeColumn::kNeighbors));
  const std::span<const uint64_t> indptr = topology.indptr(side);
  for (const uint32_t node : nodes) {
    if (progress) {
      QUARRY_RETURN_IF_ERROR(progress("finding edges of nodes", node, topology.node_count()));
    }
    QUARRY_TRY(const auto list, neighbors->Read(indptr[node], indptr[node + 1]));
    for (const uint32_t neighbor : list) {
      const Edge edge = side == Adjacency::kCsc ? Edge{neighbor, node} : Edge{node, neighbor};
      QUARRY_RETURN_IF_ERROR(batch.Add(edge));
    }
  }
  return batch.Flush();
}

// The edges out of the nodes, in a pass over all edges.
Status EdgesInOtherLists(IoBackend& backend, const Topology& topology, const RowBitmap& nodes,
                         const ProgressFunction& progress, EdgesToGo& batch) {
  QUARRY_TRY(const auto scanner,
             EdgeColumnScanner::Make(backend, topology, Adjacency::kCsc, EdgeColumn::kNeighbors));
  const std::span<const uint64_t> indptr = topology.indptr(Adjacency::kCsc);
  uint64_t position = 0, owner = 0;
  while (true) {
    QUARRY_TRY(const auto sources, scanner->Next());
    if (sources.empty()) return batch.Flush();
    for (const uint32_t source : sources) {
      while (indptr[owner + 1] <= position) ++owner;
      if (nodes.contains(source)) QUARRY_RETURN_IF_ERROR(batch.Add({source, owner}));
      ++position;
    }
    if (progress) {
      QUARRY_RETURN_IF_ERROR(progress("finding edges of nodes", owner, topology.node_count()));
    }
  }
}

}  // namespace

Status EdgesOf(IoBackend& backend, MemoryBudget& budget, const Topology& topology,
               const TopologyRecord& record, const RowBitmap& nodes, const ProgressFunction& progress,
               const std::function<Status(std::span<const Edge>)>& take) {
  EdgesToGo batch(take);
  QUARRY_RETURN_IF_ERROR(EdgesOfLists(backend, topology, Adjacency::kCsc, nodes, progress, batch));
  if (record.undirected) return Status::Ok();  // the reverse of each is there, and goes with it
  if (record.has_csr) return EdgesOfLists(backend, topology, Adjacency::kCsr, nodes, progress, batch);
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(EdgeColumnScanner::MemoryBytes(), "a pass over all edges"));
  return EdgesInOtherLists(backend, topology, nodes, progress, batch);
}

Status ClearRowsOf(const Manifest& manifest, const RowBitmap& nodes,
                   const std::function<Status(const WriteBatch&)>& put) {
  WriteBatch batch;
  for (const uint32_t node : nodes) {
    for (const TableRecord& table : manifest.tables) {
      if (table.name == kLabels) {
        batch.SetLabel(node, -1);
      } else if (table.name == kSplits) {
        batch.SetSplit(node, Split::kNone);
      } else if (IsByNode(table)) {
        batch.Delete(table.name, node);
      }
    }
    if (batch.entries().size() < kChangeBatch) continue;
    QUARRY_RETURN_IF_ERROR(put(batch));
    batch.Clear();
  }
  return put(batch);
}

}  // namespace quarry
