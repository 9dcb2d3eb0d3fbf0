// Race: which edges of a list come first, and the lists that races are run over. Private to this room.
//
// Every edge has a key, and the `winners` smallest are drawn. With keys that are independent and uniform each subset is
// equally likely. With keys E / w, E exponential with mean 1, the draws are those of drawing one after another, each
// with probability proportional to the weights w of the edges that are left: exactly, whatever the weights (Efraimidis
// and Spirakis, IPL 97(5), 2006, whose keys u^(1/w) have the same order). An edge of weight 0 never comes in.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/sampling/sampler.h"
#include "resolver.h"

namespace quarry {

// 64 random bits as a number in (0, 1], of which there is a logarithm.
inline double UnitOf(uint64_t bits) { return static_cast<double>((bits >> 11) + 1) * 0x1p-53; }

// When an edge of this weight arrives. REQUIRES: weight > 0.
inline double ArrivalOf(double unit, float weight) { return -std::log(unit) / static_cast<double>(weight); }

class Race {
 public:
  struct Runner {
    double key = 0;
    uint64_t place = 0;  // in the list
    NodeId neighbor = 0;
    // Equal keys, as those of parallel edges in LABOR, are ranked by place.
    bool operator<(const Runner& other) const {
      return key != other.key ? key < other.key : place < other.place;
    }
  };

  explicit Race(uint32_t winners_max) { first_.reserve(winners_max); }

  // REQUIRES: 1 <= winners <= winners_max
  void Start(uint32_t winners) {
    winners_ = winners;
    last_ = INFINITY;
    first_.clear();
  }
  // An edge that arrives after ArrivalOf(unit, weight). Most come too late, which -log(u) >= 1 - u tells without the
  // logarithm. Nothing of weight 0 arrives.
  void EnterWeighted(double unit, float weight, uint64_t place, NodeId neighbor) {
    if (weight > 0 && 1 - unit < last_ * static_cast<double>(weight)) {
      Enter(ArrivalOf(unit, weight), place, neighbor);
    }
  }
  void Enter(double key, uint64_t place, NodeId neighbor) {
    const Runner runner{key, place, neighbor};
    if (first_.size() == winners_) {
      if (!(runner < first_.front())) return;
      std::pop_heap(first_.begin(), first_.end());
      first_.back() = runner;
    } else {
      first_.push_back(runner);
      if (first_.size() < winners_) return;
      std::make_heap(first_.begin(), first_.end());
      last_ = first_.front().key;
      return;
    }
    std::push_heap(first_.begin(), first_.end());
    last_ = first_.front().key;
  }
  // Those that came first, by their places.
  std::span<const Runner> Finish() {
    std::sort(first_.begin(), first_.end(),
              [](const Runner& a, const Runner& b) { return a.place < b.place; });
    return first_;
  }
  uint64_t memory_bytes() const { return first_.capacity() * sizeof(Runner); }

 private:
  uint32_t winners_ = 0;
  double last_ = INFINITY;     // key of the winners, once there are enough
  std::vector<Runner> first_;  // a heap with the last of them in front, once there are enough
};

// A node's lists of a topology, strung together side after side.
struct StrungList {
  uint64_t begin[2] = {0, 0};
  uint64_t degree[2] = {0, 0};

  uint64_t size() const { return degree[0] + degree[1]; }
  // As PositionTile has it.
  uint64_t PositionOf(uint64_t place) const {
    return place < degree[0] ? begin[0] + place : (begin[1] + place - degree[0]) | kSecondSide;
  }
};

class StrungLists {
 public:
  explicit StrungLists(const NeighborSource& source, bool weighted)
      : sides_(SidesOf(source.direction).size()), weighted_(weighted) {
    const std::span<const Adjacency> sides = SidesOf(source.direction);
    for (size_t i = 0; i < sides_; ++i) {
      indptr_[i] = source.topology->indptr(sides[i]).data();
      if (weighted) weights_[i] = source.topology->weights(sides[i]).data();
    }
  }

  StrungList Of(NodeId node) const {
    StrungList list;
    for (size_t i = 0; i < sides_; ++i) {
      list.begin[i] = indptr_[i][node];
      list.degree[i] = indptr_[i][node + 1] - list.begin[i];
    }
    return list;
  }
  bool weighted() const { return weighted_; }
  // REQUIRES: weighted()
  float WeightAt(const StrungList& list, uint64_t place) const {
    const int side = place < list.degree[0] ? 0 : 1;
    return weights_[side][list.begin[side] + place - (side == 0 ? 0 : list.degree[0])];
  }
  // Calls visit(place, weight) of every edge. REQUIRES: weighted()
  template <typename Visit>
  void ForEachWeight(const StrungList& list, Visit visit) const {
    uint64_t place = 0;
    for (size_t side = 0; side < sides_; ++side) {
      const float* const weights = weights_[side] + list.begin[side];
      for (uint64_t i = 0; i < list.degree[side]; ++i) visit(place++, weights[i]);
    }
  }
  void Prefetch(NodeId node) const {
    for (size_t i = 0; i < sides_; ++i) __builtin_prefetch(&indptr_[i][node]);
  }

 private:
  const size_t sides_;
  const bool weighted_;
  const uint64_t* indptr_[2] = {nullptr, nullptr};
  const float* weights_[2] = {nullptr, nullptr};
};

}  // namespace quarry
