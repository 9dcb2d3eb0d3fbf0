#include "quarry/cache/cache_policy.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "quarry/base/units.h"

namespace quarry {
namespace {

// none and the static ones: what is there stays there.
class StaticPolicy final : public CachePolicy {
 public:
  void Step(const BatchAccess&, CacheChange& change) override {
    change.admitted.clear();
    change.evicted.clear();
  }
};

class FifoPolicy final : public CachePolicy {
 public:
  FifoPolicy(uint64_t capacity, std::span<const NodeId> start)
      : queue_(capacity), count_(start.size()), next_(count_ == capacity ? 0 : count_) {
    std::ranges::copy(start, queue_.begin());
  }

  void Step(const BatchAccess& access, CacheChange& change) override {
    change.admitted.clear();
    change.evicted.clear();
    const uint64_t misses = static_cast<uint64_t>(std::ranges::count(access.resident, uint8_t{0}));
    // Where misses outnumber the cache's rows, the last would drive out the first: the first never enter.
    uint64_t refused = misses - std::min<uint64_t>(misses, queue_.size());
    for (uint32_t i = 0; i < access.nodes.size(); ++i) {
      if (access.resident[i]) continue;
      if (refused > 0) {
        --refused;
        continue;
      }
      change.admitted.push_back(i);
      Enter(access.nodes[i], change);
    }
  }

 private:
  void Enter(NodeId node, CacheChange& change) {
    if (count_ == queue_.size()) {
      change.evicted.push_back(queue_[next_]);
    } else {
      ++count_;
    }
    queue_[next_] = node;
    if (++next_ == queue_.size()) next_ = 0;
  }

  std::vector<NodeId> queue_;  // a ring
  uint64_t count_;
  uint64_t next_;  // the place that is written next: of the oldest row, once all are taken
};

// A queue of uses, oldest first, in which a row's earlier uses stay behind as dead entries until they reach
// the front or fill the queue: nothing is ever unlinked, so all writes are sequential.
class LruPolicy final : public CachePolicy {
 public:
  LruPolicy(uint64_t node_count, uint64_t capacity, std::span<const NodeId> start)
      : capacity_(capacity), place_(node_count, kNowhere) {
    assert(UsesMax(capacity) < kNowhere);
    uses_.reserve(UsesMax(capacity));
    for (const NodeId node : start) Use(node);
    live_ = start.size();
  }

  // Compaction leaves at most `capacity` entries, a batch adds as many: with three times as many places every
  // compaction is paid for by the uses since the one before.
  static uint64_t UsesMax(uint64_t capacity) { return 3 * capacity; }

  void Step(const BatchAccess& access, CacheChange& change) override {
    change.admitted.clear();
    change.evicted.clear();
    const uint64_t count = access.nodes.size();
    const uint64_t first_kept = count - std::min(count, capacity_);
    if (uses_.size() + count - first_kept > UsesMax(capacity_)) Compact();
    for (uint64_t i = 0; i < first_kept; ++i) {
      if (access.resident[i]) Evict(access.nodes[i], change);
    }
    for (uint64_t i = first_kept; i < count; ++i) {
      if (!access.resident[i]) change.admitted.push_back(static_cast<uint32_t>(i));
      Use(access.nodes[i]);
    }
    live_ += change.admitted.size();
    for (; live_ > capacity_; ++oldest_) {
      if (IsLive(oldest_)) Evict(uses_[oldest_], change);
    }
  }

 private:
  static constexpr uint32_t kNowhere = 0xffffffff;

  bool IsLive(uint64_t place) const { return place_[uses_[place]] == place; }
  void Use(NodeId node) {
    place_[node] = static_cast<uint32_t>(uses_.size());
    uses_.push_back(node);
  }
  void Evict(NodeId node, CacheChange& change) {
    place_[node] = kNowhere;
    change.evicted.push_back(node);
    --live_;
  }
  void Compact() {
    uint32_t to = 0;
    for (uint64_t from = oldest_; from < uses_.size(); ++from) {
      if (!IsLive(from)) continue;
      uses_[to] = uses_[from];
      place_[uses_[to]] = to;
      ++to;
    }
    uses_.resize(to);
    oldest_ = 0;
  }

  const uint64_t capacity_;
  std::vector<uint32_t> place_;  // by node: of its last use in uses_
  std::vector<NodeId> uses_;
  uint64_t oldest_ = 0;
  uint64_t live_ = 0;  // rows that are resident
};

// Every access is judged by the rule of the batch that uses the row next: no row that is kept is ever given up
// before that use.
class BeladyPolicy final : public CachePolicy {
 public:
  explicit BeladyPolicy(std::span<const KeepRule> rules) : rules_(rules.begin(), rules.end()) {}

  void Step(const BatchAccess& access, CacheChange& change) override {
    assert(access.next_uses.size() == access.nodes.size());
    change.admitted.clear();
    change.evicted.clear();
    late_.clear();
    late_.reserve(access.nodes.size());
    for (uint32_t i = 0; i < access.nodes.size(); ++i) {
      const uint32_t next_use = access.next_uses[i];
      const bool resident = access.resident[i] != 0;
      bool kept = false;
      if (next_use != kNeverUsed) {
        const KeepRule& rule = RuleOf(next_use);
        const uint32_t batches = next_use - access.batch;
        kept = batches < rule.batches;
        if (batches == rule.batches) {
          // Residents first (as good, and a copy less); but what is kept for the next round does not depend
          // on who is resident, so that it is the same in every round.
          if (!resident && next_use < rules_.size()) {
            late_.push_back(i);
            continue;
          }
          kept = TakeOne(next_use);
        }
      }
      if (kept && !resident) change.admitted.push_back(i);
      if (!kept && resident) change.evicted.push_back(access.nodes[i]);
    }
    std::erase_if(late_, [&](uint32_t i) { return !TakeOne(access.next_uses[i]); });
    AdmitLate(change.admitted);
  }

 private:
  KeepRule& RuleOf(uint32_t next_use) {
    return rules_[next_use < rules_.size() ? next_use : next_use - rules_.size()];
  }
  // One of the rows that are the last to be kept for a batch.
  bool TakeOne(uint32_t next_use) {
    uint32_t& rows = RuleOf(next_use).rows;
    if (rows == 0) return false;
    --rows;
    return true;
  }
  // Merges them into what is admitted, both ascending, from the back.
  void AdmitLate(std::vector<uint32_t>& admitted) {
    size_t from = admitted.size(), to = from + late_.size();
    admitted.resize(to);
    for (; !late_.empty(); --to) {
      if (from > 0 && admitted[from - 1] > late_.back()) {
        admitted[to - 1] = admitted[--from];
      } else {
        admitted[to - 1] = late_.back();
        late_.pop_back();
      }
    }
  }

  std::vector<KeepRule> rules_;  // by batch; rows that are yet to be taken
  std::vector<uint32_t> late_;   // positions, of one batch
};

// The bucket, counted from the top, in which the `rank`-th lies (from 1); `rank` becomes that within it.
uint32_t FindRank(std::span<const uint32_t> counts, uint64_t& rank) {
  auto bucket = static_cast<uint32_t>(counts.size() - 1);
  for (; counts[bucket] < rank; --bucket) rank -= counts[bucket];
  return bucket;
}

}  // namespace

std::unique_ptr<CachePolicy> CachePolicy::Make(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                                               std::span<const NodeId> start,
                                               std::span<const KeepRule> rules) {
  assert(start.size() <= capacity);
  switch (kind) {
    case PolicyKind::kNone:
      assert(start.empty());
      return std::make_unique<StaticPolicy>();
    case PolicyKind::kStaticDegree:
    case PolicyKind::kStaticFrequency:
      return std::make_unique<StaticPolicy>();
    case PolicyKind::kFifo:
      return std::make_unique<FifoPolicy>(capacity, start);
    case PolicyKind::kLru:
      return std::make_unique<LruPolicy>(node_count, capacity, start);
    case PolicyKind::kBelady:
      return std::make_unique<BeladyPolicy>(rules);
  }
  return nullptr;
}

uint64_t CachePolicy::MemoryBytes(PolicyKind kind, uint64_t node_count, uint64_t capacity,
                                  uint64_t batch_nodes_max) {
  switch (kind) {
    case PolicyKind::kNone:
    case PolicyKind::kStaticDegree:
    case PolicyKind::kStaticFrequency:
      return 0;
    case PolicyKind::kFifo:
      return capacity * sizeof(NodeId);
    case PolicyKind::kLru:
      return (node_count + LruPolicy::UsesMax(capacity)) * sizeof(uint32_t);
    case PolicyKind::kBelady:
      return batch_nodes_max * sizeof(uint32_t);
  }
  return 0;
}

// Two histograms find the least score that is taken, first of the upper halves of scores, then of the lower
// halves at that upper half.
std::vector<NodeId> TopNodes(std::span<const uint32_t> scores, uint64_t count) {
  const auto positive = scores.size() - static_cast<uint64_t>(std::ranges::count(scores, 0u));
  const uint64_t taken = std::min(count, positive);
  if (taken == 0) return {};
  uint64_t rank = taken;
  std::vector<uint32_t> counts(1 << 16);
  for (const uint32_t score : scores) ++counts[score >> 16];
  const uint32_t upper = FindRank(counts, rank);
  std::ranges::fill(counts, 0);
  for (const uint32_t score : scores) {
    if (score >> 16 == upper) ++counts[score & 0xffff];
  }
  const uint32_t least = upper << 16 | FindRank(counts, rank);

  std::vector<NodeId> nodes;
  nodes.reserve(taken);
  for (size_t node = 0; node < scores.size(); ++node) {
    if (scores[node] < least || (scores[node] == least && rank == 0)) continue;
    rank -= scores[node] == least;
    nodes.push_back(static_cast<NodeId>(node));
  }
  return nodes;
}

}  // namespace quarry
