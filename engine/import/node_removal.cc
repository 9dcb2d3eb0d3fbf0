#include "node_removal.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "quarry/format/node_types.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/node_properties.h"
#include "side_change.h"

namespace quarry {
namespace {

constexpr std::string_view kLabels = "label", kSplits = "split";  // tables

// Edges on their way to whoever takes them.
class EdgesToGo {
 public:
  explicit EdgesToGo(const TakeEdges& take) : take_(take) {}
  Status Add(const Edge& edge, std::optional<uint32_t> relation) {
    edges_.push_back(edge);
    if (relation) relations_.push_back(*relation);
    return edges_.size() < kChangeBatch ? Status::Ok() : Flush();
  }
  Status Flush() {
    const Status taken = edges_.empty() ? Status::Ok() : take_(edges_, relations_);
    edges_.clear();
    relations_.clear();
    return taken;
  }

 private:
  const TakeEdges& take_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> relations_;
};

// The relation of the i-th edge of a list or a piece, where they are read.
std::optional<uint32_t> RelationAt(std::span<const uint32_t> relations, size_t i) {
  return relations.empty() ? std::nullopt : std::optional(relations[i]);
}

Status EdgesOfLists(IoBackend& backend, const Topology& topology, Adjacency side, const RowBitmap& nodes,
                    const ProgressFunction& progress, EdgesToGo& batch) {
  QUARRY_TRY(const auto neighbors, EdgeColumnReader::Make(backend, topology, side, EdgeColumn::kNeighbors));
  std::unique_ptr<EdgeColumnReader> relations;
  if (topology.relation_count() > 1) {
    QUARRY_TRY(relations, EdgeColumnReader::Make(backend, topology, side, EdgeColumn::kRelations));
  }
  const std::span<const uint64_t> indptr = topology.indptr(side);
  for (const uint32_t node : nodes) {
    if (progress) {
      QUARRY_RETURN_IF_ERROR(progress("finding edges of nodes", node, topology.node_count()));
    }
    QUARRY_TRY(const auto list, neighbors->Read(indptr[node], indptr[node + 1]));
    std::span<const uint32_t> kinds;
    if (relations != nullptr) {
      QUARRY_TRY(kinds, relations->Read(indptr[node], indptr[node + 1]));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const Edge edge = side == Adjacency::kCsc ? Edge{list[i], node} : Edge{node, list[i]};
      QUARRY_RETURN_IF_ERROR(batch.Add(edge, RelationAt(kinds, i)));
    }
  }
  return batch.Flush();
}

// The edges out of the nodes, in a pass over all edges. Columns come in equal pieces.
Status EdgesInOtherLists(IoBackend& backend, const Topology& topology, const RowBitmap& nodes,
                         const ProgressFunction& progress, EdgesToGo& batch) {
  QUARRY_TRY(const auto scanner,
             EdgeColumnScanner::Make(backend, topology, Adjacency::kCsc, EdgeColumn::kNeighbors));
  std::unique_ptr<EdgeColumnScanner> relations;
  if (topology.relation_count() > 1) {
    QUARRY_TRY(relations,
               EdgeColumnScanner::Make(backend, topology, Adjacency::kCsc, EdgeColumn::kRelations));
  }
  const std::span<const uint64_t> indptr = topology.indptr(Adjacency::kCsc);
  uint64_t position = 0, owner = 0;
  while (true) {
    QUARRY_TRY(const auto sources, scanner->Next());
    if (sources.empty()) return batch.Flush();
    std::span<const uint32_t> kinds;
    if (relations != nullptr) {
      QUARRY_TRY(kinds, relations->Next());
    }
    for (size_t i = 0; i < sources.size(); ++i, ++position) {
      while (indptr[owner + 1] <= position) ++owner;
      if (!nodes.contains(sources[i])) continue;
      QUARRY_RETURN_IF_ERROR(batch.Add({sources[i], owner}, RelationAt(kinds, i)));
    }
    if (progress) {
      QUARRY_RETURN_IF_ERROR(progress("finding edges of nodes", owner, topology.node_count()));
    }
  }
}

}  // namespace

Status EdgesOf(IoBackend& backend, MemoryBudget& budget, const Topology& topology,
               const TopologyRecord& record, const RowBitmap& nodes, const ProgressFunction& progress,
               const TakeEdges& take) {
  EdgesToGo batch(take);
  QUARRY_RETURN_IF_ERROR(EdgesOfLists(backend, topology, Adjacency::kCsc, nodes, progress, batch));
  if (record.undirected) return Status::Ok();  // the reverse of each is there, and goes with it
  if (record.has_csr) return EdgesOfLists(backend, topology, Adjacency::kCsr, nodes, progress, batch);
  const uint64_t columns = topology.relation_count() > 1 ? 2 : 1;
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(columns * EdgeColumnScanner::MemoryBytes() +
                                (columns - 1) * BaseColumn::ChecksumBytes(topology, EdgeColumn::kRelations),
                            "a pass over all edges"));
  return EdgesInOtherLists(backend, topology, nodes, progress, batch);
}

Status ClearRowsOf(const Manifest& manifest, const RowBitmap& nodes,
                   const std::function<Status(const WriteBatch&)>& put) {
  WriteBatch batch;
  const NodeTypes types(manifest.node_types);
  for (const uint32_t node : nodes) {
    for (const TableRecord& table : manifest.tables) {
      if (table.name == kLabels) {
        batch.SetLabel(node, -1);
      } else if (table.name == kSplits) {
        batch.SetSplit(node, Split::kNone);
      } else if (const auto type = FindTypeOfTable(manifest.node_types, table.name)) {
        if (types.TypeOf(node) == *type) batch.Delete(table.name, types.RowOf(node));
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
