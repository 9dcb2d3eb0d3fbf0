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

// Stacks of nodes by number, in blocks of one cache line from a common pool: pushes go to the few hundred
// open lines, and a stack costs no more than its nodes and the rest of a line.
class BlockStacks {
 public:
  // As many stacks as memory is planned for; more would work and take their lines beyond the plan.
  static constexpr uint64_t kStacksMax = 1 << 16;

  explicit BlockStacks(uint64_t nodes_max) {
    stacks_.reserve(kStacksMax);
    nodes_.reserve(BlocksMax(nodes_max) * kBlockNodes);
    below_.reserve(BlocksMax(nodes_max));
  }
  static uint64_t MemoryBytes(uint64_t nodes_max) {
    return BlocksMax(nodes_max) * (kBlockNodes * sizeof(NodeId) + sizeof(uint32_t)) +
           kStacksMax * sizeof(Stack);
  }

  uint64_t stack_count() const { return stacks_.size(); }
  uint32_t size(uint64_t stack) const { return stacks_[stack].size; }
  void Resize(uint64_t stack_count) { stacks_.resize(stack_count); }

  void Push(uint64_t number, NodeId node) {
    Stack& stack = stacks_[number];
    const uint32_t at = stack.size++ % kBlockNodes;
    if (at == 0) stack.top = TakeBlock(stack.top);
    nodes_[uint64_t{stack.top} * kBlockNodes + at] = node;
  }
  // REQUIRES: size(number) > 0.
  NodeId Pop(uint64_t number) {
    Stack& stack = stacks_[number];
    const uint32_t at = --stack.size % kBlockNodes;
    const NodeId node = nodes_[uint64_t{stack.top} * kBlockNodes + at];
    if (at == 0) stack.top = FreeBlock(stack.top);
    return node;
  }
  void Clear(uint64_t number) {
    Stack& stack = stacks_[number];
    for (uint64_t blocks = CeilDiv(stack.size, kBlockNodes); blocks > 0; --blocks) {
      stack.top = FreeBlock(stack.top);
    }
    stack.size = 0;
  }

 private:
  struct Stack {
    uint32_t top = 0;  // block
    uint32_t size = 0;
  };
  static constexpr uint32_t kBlockNodes = 16;
  static constexpr uint32_t kNoBlock = 0xffffffff;

  // Full blocks, and for each stack that is not empty one that is not full.
  static uint64_t BlocksMax(uint64_t nodes_max) {
    return CeilDiv(nodes_max, kBlockNodes) + std::min(nodes_max, kStacksMax);
  }
  uint32_t TakeBlock(uint32_t below) {
    if (free_ == kNoBlock) {
      free_ = static_cast<uint32_t>(below_.size());
      below_.push_back(kNoBlock);
      nodes_.resize(nodes_.size() + kBlockNodes);
    }
    const uint32_t block = free_;
    free_ = below_[block];
    below_[block] = below;
    return block;
  }
  uint32_t FreeBlock(uint32_t block) {
    const uint32_t below = below_[block];
    below_[block] = free_;
    free_ = block;
    return below;
  }

  std::vector<Stack> stacks_;
  std::vector<NodeId> nodes_;
  std::vector<uint32_t> below_;  // by block: the next lower one of its stack, or the next free one
  uint32_t free_ = kNoBlock;
};

// Residents stand in buckets by next use. The bucket of a batch is exactly its hits, so a row never moves
// within the structure: its bucket is dropped whole when it is used, or it is popped from the farthest one.
class BeladyPolicy final : public CachePolicy {
 public:
  BeladyPolicy(uint64_t capacity, std::span<const NodeId> start, std::span<const uint32_t> next_uses)
      : capacity_(capacity), resident_count_(start.size()), buckets_(capacity) {
    assert(start.size() == next_uses.size());
    wanted_.reserve(BlockStacks::kStacksMax);
    Reach(next_uses);
    for (size_t i = 0; i < start.size(); ++i) buckets_.Push(Bucket(next_uses[i]), start[i]);
  }

  static uint64_t MemoryBytes(uint64_t capacity, uint64_t batch_nodes_max) {
    return BlockStacks::MemoryBytes(capacity) +
           (BlockStacks::kStacksMax + batch_nodes_max) * sizeof(uint32_t);
  }

  void Step(const BatchAccess& access, CacheChange& change) override {
    assert(access.next_uses.size() == access.nodes.size());
    change.evicted.clear();
    Reach(access.next_uses);
    if (Bucket(access.batch) < buckets_.stack_count()) buckets_.Clear(Bucket(access.batch));
    const uint64_t wanted_count = Collect(access, change);
    Shrink(wanted_count, change);
    Admit(access, change);
  }

 private:
  // Bucket 0 holds what is never used again: kNeverUsed + 1 wraps.
  static uint32_t Bucket(uint32_t next_use) { return next_use + 1; }

  // Makes the buckets of `next_uses` exist.
  void Reach(std::span<const uint32_t> next_uses) {
    uint32_t farthest = 0;
    for (const uint32_t next_use : next_uses) farthest = std::max(farthest, Bucket(next_use));
    farthest_ = std::max(farthest_, farthest);
    if (farthest_ < buckets_.stack_count()) return;
    buckets_.Resize(farthest_ + uint64_t{1});
    wanted_.resize(farthest_ + uint64_t{1});
  }

  // Files the hits under their next uses. Leaves the misses in change.admitted and counts in wanted_ those
  // that could enter; returns how many.
  uint64_t Collect(const BatchAccess& access, CacheChange& change) {
    Split(access.resident, change.admitted);
    for (const uint32_t i : hits_) buckets_.Push(Bucket(access.next_uses[i]), access.nodes[i]);
    for (const uint32_t i : change.admitted) ++wanted_[Bucket(access.next_uses[i])];
    uint64_t count = 0;
    wanted_[0] = 0;
    for (uint32_t bucket = 1; bucket <= farthest_; ++bucket) count += wanted_[bucket];
    return count;
  }

  // Positions of hits and misses. No branch could be predicted here.
  void Split(std::span<const uint8_t> resident, std::vector<uint32_t>& misses) {
    hits_.resize(resident.size());
    misses.resize(resident.size());
    size_t hit_count = 0;
    for (uint32_t i = 0; i < resident.size(); ++i) {
      hits_[hit_count] = i;
      misses[i - hit_count] = i;
      hit_count += resident[i];
    }
    hits_.resize(hit_count);
    misses.resize(resident.size() - hit_count);
  }

  // Empties the bucket of what is never used again; then, from the farthest one backwards, gives up misses
  // before residents (as good, and a copy less) until the rest fits.
  void Shrink(uint64_t wanted_count, CacheChange& change) {
    uint64_t total = resident_count_ + wanted_count - buckets_.size(0);
    Evict(0, buckets_.size(0), change);
    while (total > capacity_) {
      const auto refused = static_cast<uint32_t>(std::min<uint64_t>(total - capacity_, wanted_[farthest_]));
      wanted_[farthest_] -= refused;
      total -= refused;
      const uint64_t evicted = std::min<uint64_t>(total - capacity_, buckets_.size(farthest_));
      Evict(farthest_, evicted, change);
      total -= evicted;
      if (total > capacity_) --farthest_;
    }
    resident_count_ = total;
  }
  void Evict(uint32_t bucket, uint64_t count, CacheChange& change) {
    for (; count > 0; --count) change.evicted.push_back(buckets_.Pop(bucket));
  }

  // Keeps in change.admitted the first misses of each bucket, as many as are wanted; leaves wanted_ all zero.
  void Admit(const BatchAccess& access, CacheChange& change) {
    std::vector<uint32_t>& admitted = change.admitted;
    size_t count = 0;
    for (const uint32_t i : admitted) {
      uint32_t& wanted = wanted_[Bucket(access.next_uses[i])];
      admitted[count] = i;
      count += wanted > 0;
      wanted -= wanted > 0;
    }
    admitted.resize(count);
    for (const uint32_t i : admitted) buckets_.Push(Bucket(access.next_uses[i]), access.nodes[i]);
  }

  const uint64_t capacity_;
  uint64_t resident_count_;
  BlockStacks buckets_;
  std::vector<uint32_t> wanted_;  // by bucket: how many of the batch's misses enter; zero between batches
  std::vector<uint32_t> hits_;    // positions, of one batch
  uint32_t farthest_ = 0;         // no bucket above is in use
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
                                               std::span<const uint32_t> start_next_uses) {
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
      return std::make_unique<BeladyPolicy>(capacity, start, start_next_uses);
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
      return BeladyPolicy::MemoryBytes(capacity, batch_nodes_max);
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
