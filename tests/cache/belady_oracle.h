// Belady row by row, by its definition, for ever: what belady.h decides on counts is held against it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "quarry/cache/cache_policy.h"

namespace quarry {

// A cache that keeps, of its rows and those of the batch, the ones whose next uses come first; of equal ones,
// those with the smaller ids. It begins empty, and the trace is repeated.
class EndlessBelady {
 public:
  EndlessBelady(const std::vector<std::vector<NodeId>>& nodes, uint64_t node_count, uint64_t capacity)
      : nodes_(nodes), capacity_(capacity), next_uses_(nodes.size()) {
    std::vector<uint64_t> upcoming(node_count);
    for (uint64_t batch = 2 * nodes.size(); batch-- > 0;) {
      for (const NodeId node : nodes[batch % nodes.size()]) {
        const uint64_t next_use = std::exchange(upcoming[node], batch);
        if (batch < nodes.size()) next_uses_[batch].push_back(next_use);
      }
    }
  }

  // The misses of the next round.
  uint64_t Round() {
    uint64_t misses = 0;
    for (uint64_t batch = 0; batch < nodes_.size(); ++batch) {
      const uint64_t hits =
          std::erase_if(rows_, [&](const auto& row) { return row.first == first_ + batch; });
      misses += nodes_[batch].size() - hits;
      for (size_t i = 0; i < nodes_[batch].size(); ++i) {
        rows_.emplace_back(first_ + next_uses_[batch][i], nodes_[batch][i]);
      }
      if (rows_.size() <= capacity_) continue;
      std::ranges::nth_element(rows_, rows_.begin() + static_cast<std::ptrdiff_t>(capacity_));
      rows_.resize(capacity_);
    }
    first_ += nodes_.size();
    return misses;
  }

  // The misses of a round, on average over `rounds` of them, after as many that come before. No cache misses
  // less for ever; a cycle may have to miss a row more, since it has no fractions of rows.
  double LongRunMisses(uint64_t rounds) {
    for (uint64_t round = 0; round < rounds; ++round) Round();
    uint64_t misses = 0;
    for (uint64_t round = 0; round < rounds; ++round) misses += Round();
    return static_cast<double>(misses) / static_cast<double>(rounds);
  }

 private:
  const std::vector<std::vector<NodeId>>& nodes_;
  const uint64_t capacity_;
  std::vector<std::vector<uint64_t>> next_uses_;   // by batch and position, in the round itself or the next
  std::vector<std::pair<uint64_t, NodeId>> rows_;  // next use, rounds counted on
  uint64_t first_ = 0;
};

}  // namespace quarry
