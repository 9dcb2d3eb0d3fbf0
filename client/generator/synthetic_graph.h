// What quarry generate writes, value by value: each a pure function of (options, position).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "generator/distribution.h"
#include "generator/generate.h"
#include "quarry/format/types.h"

namespace quarry {

// A pseudo-random bijection of [0, count) in constant memory: scatters ids so that neither class nor degree
// can be read off them. A value; thread-safe.
class IdPermutation {
 public:
  // REQUIRES: 0 < count <= 2^62.
  IdPermutation(uint64_t count, uint64_t seed);
  uint64_t Forward(uint64_t x) const;
  uint64_t Backward(uint64_t x) const;

 private:
  static constexpr int kRounds = 3;
  uint64_t count_;
  uint64_t mask_;               // of the least power of two >= count
  unsigned shift_;              // at least half of its bits, so that x ^= x >> shift_ is its own inverse
  uint64_t factors_[kRounds];   // odd
  uint64_t inverses_[kRounds];  // modulo 2^64
  uint64_t offsets_[kRounds];
};

// Nodes are permuted *places*: place p has class p mod class_count and rank p / class_count within it, and a
// low rank means many in-edges. Immutable, thread-safe. REQUIRES: options that Generate has checked.
class SyntheticGraph {
 public:
  explicit SyntheticGraph(const GenerateOptions& options);

  uint64_t edge_count() const { return edge_count_; }
  int64_t Label(uint64_t node) const { return static_cast<int64_t>(places_.Backward(node) % class_count_); }
  Split SplitOf(uint64_t node) const;
  uint64_t Destination(uint64_t edge) const;
  uint64_t Source(uint64_t edge) const;
  // The features of `node`. REQUIRES: out.size() == dim.
  void Features(uint64_t node, std::span<float> out) const;

 private:
  struct Place {
    uint64_t node_class;
    uint64_t rank;
  };
  Place DestinationPlace(uint64_t edge) const;
  uint64_t ClassSize(uint64_t node_class) const {
    return (node_count_ - node_class + class_count_ - 1) / class_count_;
  }
  uint64_t Node(Place place) const { return places_.Forward(place.rank * class_count_ + place.node_class); }

  const uint64_t node_count_;
  const uint64_t class_count_;
  const uint64_t edge_count_;
  const uint64_t
      split_seed_;  // each names a stream; Mix64(it ^ Mix64(position)) is MixSeed, half of it precomputed
  const uint64_t destination_seed_;
  const uint64_t source_seed_;
  const uint64_t feature_seed_;
  const uint64_t homophily_;    // these in units of 2^-32
  const uint64_t train_below_;  // cumulative
  const uint64_t valid_below_;
  const uint64_t test_below_;
  const IdPermutation places_;
  const PowerLaw in_ranks_;
  const PowerLaw out_ranks_;
  const GaussianTable noise_;
  std::vector<float> centroids_;  // class_count x dim
};

}  // namespace quarry
