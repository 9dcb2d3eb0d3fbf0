// UseProfile: how often mini-batches use which nodes, fitted to a few that were sampled, and what caches would find of
// a run of any length. Batches are taken for independent: node v is in each with a probability of its own, p_v. What a
// few batches tell of p is how many nodes were in none of them, in one, in two; a mixture over a grid of
// probabilities is fitted to that by expectation maximization.
//
// A cache of C rows then follows from p alone:
//   lru      holds what the last w batches used, where w batches use C nodes (Denning's working set); a batch misses
//            what those did not use
//   belady   keeps a row from one use to the next where the gap is short enough: the shortest gaps that fill C rows at
//            all times. Of all gaps in a cycle of B batches, B p² (1 - p)^(l - 1) are l long
//   static-frequency  the C nodes that the cycle uses most
//
// A value; const use is thread-safe. Proximity orders, whose batches are alike, are beyond it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/cache/cache_policy.h"

namespace quarry {

class UseProfile {
 public:
  UseProfile() = default;
  // nodes_by_uses[c]: nodes that c of the batches used, for c from 0 to all of them.
  // REQUIRES: at least one batch.
  static UseProfile Fit(std::span<const uint64_t> nodes_by_uses);

  double BatchNodes() const { return MissesAfter(0); }  // in a batch, the mean
  double DistinctNodes(double batches) const;
  // Nodes of a batch that none of so many batches before it used.
  double MissesAfter(double batches) const;
  // Batches that use `rows` nodes together; infinity where no number of them does.
  double BatchesOf(double rows) const;

  // Misses of all batches of a cycle that repeats for ever; or of one pass from an empty cache.
  // Other policies than those above are priced as lru; none as every use.
  double CycleMisses(PolicyKind policy, double cache_rows, uint64_t batches, bool cyclic) const;

 private:
  double BeladyHits(double cache_rows, uint64_t batches, bool cyclic) const;
  double StaticHits(double cache_rows, uint64_t batches) const;

  struct Share {
    double probability = 0;
    double nodes = 0;
  };
  std::vector<Share> shares_;
};

}  // namespace quarry
