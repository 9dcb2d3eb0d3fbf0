// What ranks are made of, apart from the loops of EvaluateLinks.
#pragma once

#include <cstdint>
#include <span>

#include "quarry/trainer/link.h"

namespace quarry {

// Where a truth stands among its rivals.
struct RankCounts {
  uint64_t above = 0;  // rivals that score higher
  uint64_t equal = 0;
  // The mean over all orders of the equals.
  double rank() const { return 1 + static_cast<double>(above) + static_cast<double>(equal) / 2; }
};

// Sums are taken in order. All zero without ranks.
LinkMetrics MetricsOfRanks(std::span<const double> ranks);

// LinkVectors::read_nodes of an array. Never fails.
Status CopyRows(std::span<const float> rows, std::span<const RowId> ids, std::span<float> values);

// The most that EvaluateLinks holds beside its arguments, and what reading vectors takes.
uint64_t RankingBytes(const LinkSpec& spec, uint64_t node_count, uint64_t edges, unsigned threads);

}  // namespace quarry
