#include "quarry/service/piece_put.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"

namespace quarry {
namespace {

constexpr uint64_t kEdgesAtATime = 16 << 10;
constexpr uint64_t kSortBytesMax = 256 * kMiB;

}  // namespace

PiecePut::PiecePut() = default;
PiecePut::~PiecePut() = default;

Result<std::unique_ptr<PiecePut>> PiecePut::Begin(Store& store, MemoryBudget& budget,
                                                  const std::optional<wire::PutGraph>& graph) {
  if (!graph) {
    QUARRY_TRY(std::unique_ptr<LargeWrite> rows, store.BeginLargeWrite());
    return OfRows(std::move(rows), store.manifest());
  }
  std::unique_ptr<PiecePut> put(new PiecePut());
  put->graph_ = graph->Nodes();
  const uint64_t sort_bytes =
      std::clamp(RoundDown(budget.available_bytes() / 4, kMiB), kGraphChangeBytesMin, kSortBytesMax);
  QUARRY_TRY(put->change_, GraphChange::Create(store, budget,
                                               {.topology = graph->topology,
                                                .nodes = graph->nodes,
                                                .node_type = graph->node_type,
                                                .first_node = graph->first_node,
                                                .memory_bytes = sort_bytes}));
  return put;
}

std::unique_ptr<PiecePut> PiecePut::OfRows(std::unique_ptr<LargeWrite> rows,
                                           std::shared_ptr<const Manifest> manifest) {
  std::unique_ptr<PiecePut> put(new PiecePut());
  put->rows_ = std::move(rows);
  put->manifest_ = std::move(manifest);
  return put;
}

const Manifest& PiecePut::manifest() const { return change_ != nullptr ? change_->manifest() : *manifest_; }

Status PiecePut::Add(const WriteBatch& rows) {
  return change_ != nullptr ? change_->Put(rows) : rows_->Add(rows);
}

Status PiecePut::Change(const wire::PutGraph& graph, std::span<const std::byte> block) {
  if (change_ == nullptr) {
    return Status(Code::kUsage, "a piece changes the graph, and the first one does not: begin with it");
  }
  if (graph.Nodes() != *graph_) {
    const auto what = [](const wire::PutGraph& of) {
      return fmt::format("topology \"{}\" and {} nodes{} from {} on", of.topology, of.nodes,
                         of.node_type.empty() ? "" : " of type \"" + of.node_type + "\"", of.first_node);
    };
    return MakeStatus(Code::kUsage, "a piece is of {}, the first one of {}", what(graph), what(*graph_));
  }
  if (!graph.names.empty()) QUARRY_RETURN_IF_ERROR(change_->Name(graph.names));
  if (graph.removed_nodes > 0) {
    std::vector<NodeId> nodes(graph.removed_nodes);
    std::memcpy(nodes.data(), block.data() + graph.edges * graph.edge_bytes(), nodes.size() * sizeof(NodeId));
    QUARRY_RETURN_IF_ERROR(change_->RemoveNodes(nodes));
  }
  std::vector<Edge> edges;
  std::vector<float> weights;
  const auto number = [&](uint64_t column, uint64_t edge) {
    uint32_t value = 0;
    std::memcpy(&value, block.data() + (column * graph.edges + edge) * sizeof(value), sizeof(value));
    return value;
  };
  for (uint64_t first = 0; first < graph.edges; first += kEdgesAtATime) {
    const uint64_t count = std::min(kEdgesAtATime, graph.edges - first);
    edges.clear();
    for (uint64_t i = first; i < first + count; ++i) edges.push_back({number(0, i), number(1, i)});
    weights.resize(graph.weighted ? count : 0);
    if (graph.weighted) {
      std::memcpy(weights.data(), block.data() + (2 * graph.edges + first) * sizeof(float),
                  count * sizeof(float));
    }
    QUARRY_RETURN_IF_ERROR(graph.remove ? change_->Remove(edges, graph.relation)
                                        : change_->Add(edges, weights, graph.relation));
  }
  return Status::Ok();
}

Result<wire::GraphChanged> PiecePut::Commit() {
  if (change_ != nullptr) return change_->Commit();
  wire::GraphChanged committed;
  QUARRY_TRY(committed.timestamp, rows_->Commit());
  return committed;
}

}  // namespace quarry
