#include "quarry/partition/cut.h"

#include <algorithm>
#include <cmath>

namespace quarry {
namespace {

// Probabilities of the hypergeometric distribution, by logarithms of factorials up to `largest`.
class Hypergeometric {
 public:
  explicit Hypergeometric(uint64_t largest) : log_factorials_(largest + 1) {
    for (uint64_t i = 2; i <= largest; ++i) {
      log_factorials_[i] = log_factorials_[i - 1] + std::log(static_cast<double>(i));
    }
  }
  // That fewer than half of `draws` out of `all` are among `good` of them.
  double FewerThanHalf(uint64_t all, uint64_t good, uint64_t draws) const {
    const uint64_t least = draws > all - good ? draws - (all - good) : 0;
    double sum = 0;
    for (uint64_t hits = least; 2 * hits < draws && hits <= good; ++hits) {
      sum += std::exp(LogChoose(good, hits) + LogChoose(all - good, draws - hits) - LogChoose(all, draws));
    }
    return std::min(sum, 1.0);
  }

 private:
  double LogChoose(uint64_t n, uint64_t k) const {
    return log_factorials_[n] - log_factorials_[k] - log_factorials_[n - k];
  }
  std::vector<double> log_factorials_;
};

}  // namespace

Result<CutEdges> CountCut(EdgeSource& edges, const Assignment& assignment) {
  CutEdges count;
  QUARRY_RETURN_IF_ERROR(ForEachEdge(edges, [&](const NodePair& edge) {
    ++count.edges;
    count.cut += assignment.part_of[edge.source] != assignment.part_of[edge.destination] ? 1 : 0;
  }));
  return count;
}

Result<std::vector<NeighborCount>> CountNeighbors(EdgeSource& edges, const Assignment& assignment) {
  if (assignment.parts > 2) {
    return MakeStatus(Code::kInvalidArgument,
                      "neighbors are counted for two parts, as Eq. 4.1 has them, and these are {}",
                      assignment.parts);
  }
  std::vector<NeighborCount> nodes(assignment.part_of.size());
  QUARRY_RETURN_IF_ERROR(ForEachEdge(edges, [&](const NodePair& edge) {
    if (edge.source == edge.destination) return;
    const bool inside = assignment.part_of[edge.source] == assignment.part_of[edge.destination];
    for (const NodeId v : {edge.source, edge.destination}) {
      ++nodes[v].all;
      nodes[v].best += inside ? 1 : 0;
    }
  }));
  for (NeighborCount& node : nodes) node.best = std::max(node.best, node.all - node.best);
  return nodes;
}

double ExpectedCutShare(std::span<const NeighborCount> nodes, double chunk_share) {
  // Nodes alike are worked out once.
  std::vector<uint64_t> alike;
  uint64_t largest = 0;
  for (const NeighborCount& node : nodes) {
    if (node.all == 0) continue;
    alike.push_back(uint64_t{node.all} << 32 | node.best);
    largest = std::max<uint64_t>(largest, node.all);
  }
  if (alike.empty()) return 0;
  std::sort(alike.begin(), alike.end());
  const Hypergeometric distribution(largest);
  double cut = 0, ends = 0;
  for (size_t i = 0; i < alike.size();) {
    const size_t begin = i;
    while (i < alike.size() && alike[i] == alike[begin]) ++i;
    const uint64_t all = alike[begin] >> 32;
    const uint64_t best = alike[begin] & 0xffffffff;
    const auto draws = static_cast<uint64_t>(std::nearbyint(static_cast<double>(all) * chunk_share));
    const double wrong = distribution.FewerThanHalf(all, best, std::min(draws, all));
    const auto count = static_cast<double>(i - begin);
    cut += count * (static_cast<double>(all - best) * (1 - wrong) + static_cast<double>(best) * wrong);
    ends += count * static_cast<double>(all);
  }
  return cut / ends;
}

}  // namespace quarry
