// Access traces for the tests of cache policies, with the next uses found the slow way, and Belady's plans.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/cache/cache_policy.h"
#include "support/status_matchers.h"

namespace quarry {

struct AccessTrace {
  std::vector<std::vector<NodeId>> nodes;        // by batch, unique
  std::vector<std::vector<uint32_t>> next_uses;  // by batch and position

  uint32_t batch_count() const { return static_cast<uint32_t>(nodes.size()); }

  // The first batch in [from, to) that uses `node`, the trace being repeated.
  uint32_t NextUse(NodeId node, uint32_t from, uint32_t to) const {
    for (uint32_t batch = from; batch < to; ++batch) {
      if (std::ranges::count(nodes[batch % batch_count()], node) > 0) return batch;
    }
    return kNeverUsed;
  }
  // In a trace that is repeated they reach into its next round.
  void FindNextUses(bool cyclic) {
    next_uses.assign(batch_count(), {});
    for (uint32_t batch = 0; batch < batch_count(); ++batch) {
      const uint32_t end = batch_count() + (cyclic ? batch + 1 : 0);
      for (const NodeId node : nodes[batch]) next_uses[batch].push_back(NextUse(node, batch + 1, end));
    }
  }
};

// What Belady keeps. Next uses are found already, cyclic or not.
inline BeladyPlan PlanOf(const AccessTrace& trace, uint64_t capacity, bool cyclic) {
  std::vector<std::vector<UseCount>> counts;  // by batch
  for (const std::vector<uint32_t>& next_uses : trace.next_uses) {
    std::map<uint32_t, uint32_t> rows;
    for (const uint32_t next_use : next_uses) {
      if (next_use != kNeverUsed) ++rows[next_use];
    }
    std::vector<UseCount>& batch = counts.emplace_back();
    for (const auto& [next_use, count] : rows) batch.push_back({next_use, count});
  }
  auto plan = PlanBelady([&](uint64_t batch) -> Result<std::span<const UseCount>> { return counts[batch]; },
                         {.batch_count = trace.batch_count(), .capacity = capacity, .cyclic = cyclic});
  EXPECT_OK(plan);
  return std::move(plan).value();
}

// `count` different nodes in random order.
inline std::vector<NodeId> RandomNodes(Rng& rng, uint64_t node_count, uint64_t count) {
  std::vector<NodeId> nodes(node_count);
  for (uint64_t i = 0; i < node_count; ++i) nodes[i] = static_cast<NodeId>(i);
  for (uint64_t i = 0; i < count; ++i) std::swap(nodes[i], nodes[i + rng.Below(node_count - i)]);
  nodes.resize(count);
  return nodes;
}

// Batches of `batch_nodes` nodes, ascending; a few nodes are in most of them.
inline AccessTrace PowerLawTrace(Rng& rng, uint64_t node_count, uint64_t batch_nodes, uint32_t batch_count,
                                 bool cyclic) {
  AccessTrace trace;
  for (uint32_t batch = 0; batch < batch_count; ++batch) {
    std::set<NodeId> nodes;
    while (nodes.size() < batch_nodes) {
      nodes.insert(static_cast<NodeId>(std::pow(rng.Unit(), 3) * static_cast<double>(node_count)));
    }
    trace.nodes.emplace_back(nodes.begin(), nodes.end());
  }
  trace.FindNextUses(cyclic);
  return trace;
}

}  // namespace quarry
