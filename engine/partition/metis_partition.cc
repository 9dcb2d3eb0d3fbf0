#include "metis_partition.h"

#include <metis.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include "quarry/base/mutex.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Where parts have fewer nodes than this on average, recursion would come to graphs without a node, which
// METIS does not take.
constexpr uint64_t kNodesPerPartMin = 4;

static_assert(sizeof(idx_t) == sizeof(int32_t), "METIS is built with integers of 32 bits");
constexpr uint64_t kMetisMax = std::numeric_limits<idx_t>::max();

Mutex metis_mutex;

Status MetisFault(int code, const UndirectedGraph& graph) {
  const std::string what =
      fmt::format("METIS cannot cut {} nodes and {} edges", graph.node_count(), graph.neighbors.size() / 2);
  if (code == METIS_ERROR_MEMORY) {
    return MakeStatus(Code::kOutOfBudget, "{}: the system has no memory for it; grem takes less", what);
  }
  return MakeStatus(Code::kInternal, "{}: METIS returned {}", what, code);
}

}  // namespace

uint64_t MetisBytes(uint64_t node_count, uint64_t edge_count) { return 180 * node_count + 140 * edge_count; }

Result<std::vector<uint32_t>> CutByMetis(UndirectedGraph graph, std::span<const uint64_t> capacities,
                                         uint64_t seed) {
  const uint64_t node_count = graph.node_count();
  std::vector<uint32_t> part_of(node_count);
  if (capacities.size() == 1 || node_count == 0) return part_of;
  if (node_count < kNodesPerPartMin * capacities.size() || graph.neighbors.empty()) {
    FillByBreadthFirst(graph, capacities, part_of);
    return part_of;
  }
  if (std::max<uint64_t>(node_count, graph.neighbors.size()) > kMetisMax) {
    return MakeStatus(
        Code::kUnsupported,
        "METIS numbers at most {} nodes and ends of edges, and the graph has {} and {}: use grem", kMetisMax,
        node_count, graph.neighbors.size());
  }
  std::vector<idx_t> indptr(graph.indptr.begin(), graph.indptr.end());
  std::vector<real_t> shares(capacities.size());
  const auto all = static_cast<double>(std::accumulate(capacities.begin(), capacities.end(), uint64_t{0}));
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = static_cast<real_t>(static_cast<double>(capacities[i]) / all);
  }
  idx_t options[METIS_NOPTIONS];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = static_cast<idx_t>(Mix64(seed) >> 33);
  auto nodes = static_cast<idx_t>(node_count);
  idx_t constraints = 1, cut = 0;
  auto parts = static_cast<idx_t>(capacities.size());
  auto* const neighbors = reinterpret_cast<idx_t*>(graph.neighbors.data());
  auto* const result = reinterpret_cast<idx_t*>(part_of.data());
  int code = METIS_OK;
  {
    const MutexLock lock(metis_mutex);
    code =
        METIS_PartGraphRecursive(&nodes, &constraints, indptr.data(), neighbors, nullptr, nullptr,
                                 graph.weights.data(), &parts, shares.data(), nullptr, options, &cut, result);
  }
  if (code != METIS_OK) return MetisFault(code, graph);
  // METIS allows itself a thousandth more than a part's share at each bisection.
  MoveExcess(graph, capacities, part_of);
  return part_of;
}

Result<Assignment> PartitionByMetis(EdgeSource& edges, uint32_t parts, uint64_t seed,
                                    const PartitionContext& context) {
  const uint64_t bytes = MetisBytes(edges.node_count(), edges.edge_count());
  QUARRY_TRY(const auto reservation,
             context.budget.Reserve(bytes, fmt::format("METIS over {} nodes and {} edges (grem takes less)",
                                                       edges.node_count(), edges.edge_count())));
  if (2 * edges.edge_count() > kMetisMax || edges.node_count() > kMetisMax) {
    return MakeStatus(
        Code::kUnsupported,
        "METIS numbers at most {} nodes and ends of edges, and the graph has {} and {}: use grem", kMetisMax,
        edges.node_count(), 2 * edges.edge_count());
  }
  QUARRY_TRY(UndirectedGraph graph, MakeUndirectedGraph(edges, true));
  QUARRY_RETURN_IF_ERROR(context.Report("METIS", 0, 0));
  const std::vector<uint64_t> capacities(parts, CeilDiv(edges.node_count(), parts));
  QUARRY_TRY(std::vector<uint32_t> part_of, CutByMetis(std::move(graph), capacities, seed));
  return Assignment{.parts = parts, .part_of = std::move(part_of)};
}

}  // namespace quarry
