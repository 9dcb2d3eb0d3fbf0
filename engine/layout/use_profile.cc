#include "quarry/layout/use_profile.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace quarry {
namespace {

constexpr int kGridPoints = 64;
constexpr double kMost = 0.9999;
constexpr int kFitRounds = 400;
// The longest cycle that is looked at whole: of longer ones, so many batches are taken for all.
constexpr uint64_t kCycleMax = 4096;

// The logarithm of the chance to see `uses` in `batches`.
double LogBinomial(double batches, double uses, double probability) {
  return std::lgamma(batches + 1) - std::lgamma(uses + 1) - std::lgamma(batches - uses + 1) +
         uses * std::log(probability) + (batches - uses) * std::log1p(-probability);
}

// Those that a few batches can tell apart, and those that they have hardly seen. The least is a small part of `mean`, the
// chance of a mean node: where nearly all nodes are in no batch, whatever they are taken for must not add up to more.
std::vector<double> Grid(double batches, double mean) {
  std::vector<double> grid;
  constexpr double kLeast = 0.02;
  const double least = std::log(kLeast * (mean > 0 ? std::min(1 / batches, mean) : 1 / batches));
  const double most = std::log(kMost);
  for (int i = 0; i < kGridPoints; ++i) {
    grid.push_back(std::exp(least + (most - least) * i / (kGridPoints - 1)));
  }
  return grid;
}

}  // namespace

UseProfile UseProfile::Fit(std::span<const uint64_t> nodes_by_uses) {
  assert(nodes_by_uses.size() >= 2);
  const size_t counts = nodes_by_uses.size();
  const double batches = static_cast<double>(counts - 1);
  double node_count = 0, uses_of_all = 0;
  for (size_t uses = 0; uses < counts; ++uses) {
    node_count += static_cast<double>(nodes_by_uses[uses]);
    uses_of_all += static_cast<double>(uses) * static_cast<double>(nodes_by_uses[uses]);
  }
  const std::vector<double> grid = Grid(batches, uses_of_all / batches / std::max(1.0, node_count));
  std::vector<double> chances(counts * grid.size());  // by uses, then by grid point
  for (size_t uses = 0; uses < counts; ++uses) {
    for (size_t g = 0; g < grid.size(); ++g) {
      chances[uses * grid.size() + g] = std::exp(LogBinomial(batches, static_cast<double>(uses), grid[g]));
    }
  }
  // Each chance has as many uses at first: where next to all nodes are in no batch, rounds hardly move those that start
  // too high.
  std::vector<double> nodes, next;
  double inverse_sum = 0;
  for (const double chance : grid) inverse_sum += 1 / chance;
  for (const double chance : grid) nodes.push_back(node_count / inverse_sum / chance);
  for (int round = 0; round < kFitRounds; ++round) {
    next.assign(grid.size(), 0);
    for (size_t uses = 0; uses < counts; ++uses) {
      if (nodes_by_uses[uses] == 0) continue;
      const double* const chance = &chances[uses * grid.size()];
      double sum = 0;
      for (size_t g = 0; g < grid.size(); ++g) sum += nodes[g] * chance[g];
      if (!(sum > 0)) continue;
      const double scale = static_cast<double>(nodes_by_uses[uses]) / sum;
      for (size_t g = 0; g < grid.size(); ++g) next[g] += nodes[g] * chance[g] * scale;
    }
    nodes.swap(next);
  }
  UseProfile profile;
  for (size_t g = 0; g < grid.size(); ++g) {
    if (nodes[g] > 0) profile.shares_.push_back({grid[g], nodes[g]});
  }
  // What is known for sure: the nodes of a mean batch.
  if (const double fitted = profile.BatchNodes(); fitted > 0) {
    const double scale = uses_of_all / batches / fitted;
    for (Share& share : profile.shares_) share.probability = std::min(kMost, share.probability * scale);
  }
  return profile;
}

double UseProfile::DistinctNodes(double batches) const {
  double sum = 0;
  for (const Share& share : shares_) {
    sum -= share.nodes * std::expm1(batches * std::log1p(-share.probability));
  }
  return sum;
}

double UseProfile::MissesAfter(double batches) const {
  double sum = 0;
  for (const Share& share : shares_) {
    sum += share.nodes * share.probability * std::exp(batches * std::log1p(-share.probability));
  }
  return sum;
}

double UseProfile::BatchesOf(double rows) const {
  double low = 0, high = 1;
  constexpr double kBatchesMax = 1e9;
  while (DistinctNodes(high) < rows) {
    low = high;
    high *= 2;
    if (high > kBatchesMax) return std::numeric_limits<double>::infinity();
  }
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (DistinctNodes(middle) < rows ? low : high) = middle;
  }
  return low;
}

// Gaps in ascending length, until they fill the cache at all times.
double UseProfile::BeladyHits(double cache_rows, uint64_t batches, bool cyclic) const {
  const auto length = static_cast<double>(batches);
  double room = cache_rows * length, hits = 0;
  std::vector<double> gap_chances;  // p² (1 - p)^(l - 1), by share
  for (const Share& share : shares_) gap_chances.push_back(share.probability * share.probability);
  for (uint64_t gap = 1; gap < batches; ++gap) {
    const double places = cyclic ? length : length - static_cast<double>(gap);
    double gaps = 0;
    for (size_t i = 0; i < shares_.size(); ++i) {
      gaps += shares_[i].nodes * gap_chances[i] * places;
      gap_chances[i] *= 1 - shares_[i].probability;
    }
    const double taken = std::min(gaps, room / static_cast<double>(gap));
    hits += taken;
    room -= taken * static_cast<double>(gap);
    if (taken < gaps) return hits;
  }
  if (!cyclic) return hits;
  // Rows that the cycle uses once, kept all of it.
  double once = 0;
  for (const Share& share : shares_) {
    once +=
        share.nodes * length * share.probability * std::exp((length - 1) * std::log1p(-share.probability));
  }
  return hits + std::min(once, room / length);
}

double UseProfile::StaticHits(double cache_rows, uint64_t batches) const {
  std::vector<double> nodes_by_uses(batches + 1);
  const auto length = static_cast<double>(batches);
  for (const Share& share : shares_) {
    const double mean = share.probability * length;
    const double reach = 8 * std::sqrt(mean) + 10;  // beyond it there are next to none
    const auto first = static_cast<uint64_t>(std::max(0.0, mean - reach));
    const auto last = static_cast<uint64_t>(std::min(length, mean + reach));
    for (uint64_t uses = first; uses <= last; ++uses) {
      nodes_by_uses[uses] +=
          share.nodes * std::exp(LogBinomial(length, static_cast<double>(uses), share.probability));
    }
  }
  double room = cache_rows, hits = 0;
  for (uint64_t uses = batches; uses > 0 && room > 0; --uses) {
    const double taken = std::min(room, nodes_by_uses[uses]);
    hits += taken * static_cast<double>(uses);
    room -= taken;
  }
  return hits;
}

double UseProfile::CycleMisses(PolicyKind policy, double cache_rows, uint64_t batches, bool cyclic) const {
  const auto length = static_cast<double>(batches);
  const double uses = BatchNodes() * length;
  if (policy == PolicyKind::kNone || cache_rows <= 0) return uses;
  const uint64_t looked_at = std::min(batches, kCycleMax);
  const double scale = length / static_cast<double>(looked_at);
  switch (policy) {
    case PolicyKind::kBelady:
      return std::max(0.0, uses - scale * BeladyHits(cache_rows, looked_at, cyclic));
    case PolicyKind::kStaticFrequency:
      return std::max(0.0, uses - scale * StaticHits(cache_rows, looked_at));
    default:
      break;
  }
  const double window = BatchesOf(cache_rows);
  if (cyclic) return window >= length ? 0 : MissesAfter(window) * length;
  const double warm_up = std::min(window, length);
  return DistinctNodes(warm_up) + (window < length ? MissesAfter(window) * (length - warm_up) : 0);
}

}  // namespace quarry
