// Replacement policies: in which order the parts of a partitioned graph swap through a buffer that holds some
// of them, and which edges or training nodes are used while which parts are there (Waleffe ch. 5; departures
// are marked). Pure functions of a spec: one seed gives one plan on every machine (invariant 6), and an epoch
// is one plan. Values without owner; any thread may call them.
//
//   beta    Algorithm 6 over the parts themselves; an edge is used the first time that both ends are there
//   comet   parts are grouped at random into logical ones, Algorithm 6 runs over these, and every bucket of
//           edges goes to a random one of the buffers that hold both of its parts (§5.3)
//   euler   comet, but over an Euler trail of logical parts of which two are held: as many swaps as beta, and
//           all parts are visited evenly. Not in the paper: Walecki's decomposition of a complete graph into
//           Hamiltonian cycles, one after the other
//   node    node classification: the parts of the training nodes stay for the epoch (§5.5), or, where they are
//           too many, Algorithm 7, which reads every part once
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"

namespace quarry {

enum class PartitionOrder : uint8_t { kBeta, kComet, kEuler, kNode };

std::string_view PartitionOrderName(PartitionOrder order);
Result<PartitionOrder> ParsePartitionOrder(std::string_view name);  // kUsage lists the names

struct SwapSpec {
  PartitionOrder order = PartitionOrder::kComet;
  uint32_t parts = 0;    // p, physical: as stored
  uint32_t buffer = 0;   // c, physical parts that are held at once
  uint32_t logical = 0;  // l, a divisor of p; unused by kBeta
  // k, kNode alone: the training nodes lie in the parts [0, k). Below c they stay for the epoch.
  uint32_t training_parts = 0;
  uint64_t seed = 0;  // of the epoch

  uint32_t group() const { return parts / logical; }            // physical parts in a logical one
  uint32_t logical_buffer() const { return buffer / group(); }  // c_l
};

// The edges from one part to another.
struct PartPair {
  uint32_t source = 0;
  uint32_t destination = 0;
  auto operator<=>(const PartPair&) const = default;
};

// One filling of the buffer.
struct SwapStep {
  std::vector<uint32_t> parts;    // S_i, ascending
  std::vector<PartPair> buckets;  // X_i of link prediction, in random order (kBeta: by part); kNode: empty
};

// An epoch. The steps are used in order, each after all batches of the one before.
class SwapPlan {
 public:
  SwapPlan(SwapSpec spec, std::vector<SwapStep> steps);

  const SwapSpec& spec() const { return spec_; }
  const std::vector<SwapStep>& steps() const { return steps_; }

  // The step in which a training node is used: a random one of those that hold its part, by the seed and the
  // node alone, so that nothing per node is kept. REQUIRES: a step holds the part.
  uint32_t StepOfNode(uint32_t part, uint64_t node) const;
  // The steps that hold a part, ascending.
  std::span<const uint32_t> StepsOf(uint32_t part) const { return steps_of_[part]; }

 private:
  SwapSpec spec_;
  std::vector<SwapStep> steps_;
  std::vector<std::vector<uint32_t>> steps_of_;  // by part
};

// kUsage names the number that cannot be.
Status CheckSwapSpec(const SwapSpec& spec);
Result<SwapPlan> PlanSwaps(const SwapSpec& spec);

// Sequences of buffers over parts [0, parts), without their use. BetaSequence is Algorithm 6; with a seed it
// permutes parts where the paper permits it. EulerSequence holds two parts at a time. REQUIRES: 2 <= buffer
// <= parts; parts odd and at least 3.
using BufferSequence = std::vector<std::vector<uint32_t>>;
BufferSequence BetaSequence(uint32_t parts, uint32_t buffer);
BufferSequence BetaSequence(uint32_t parts, uint32_t buffer, uint64_t seed);
BufferSequence EulerSequence(uint32_t parts);

// Swaps of one part that Algorithm 6 makes (Eq. 5.2), and the least that any sequence needs (Eq. 5.1). The
// first fill is none. REQUIRES: 2 <= buffer <= parts.
uint64_t BetaSwaps(uint64_t parts, uint64_t buffer);
uint64_t SwapsMin(uint64_t parts, uint64_t buffer);

// What an epoch reads. `part_bytes` are by part, `bucket_bytes` by source part * p + destination part.
struct SwapCost {
  uint64_t steps = 0;
  uint64_t swaps = 0;       // parts read after the first fill
  uint64_t parts_read = 0;  // with the first fill
  uint64_t buckets_read = 0;
  uint64_t bytes_read = 0;
  // The largest set of buckets over the mean one: where it is large, prefetching has nothing to hide behind.
  double largest_step = 0;
};
SwapCost CostOf(const SwapPlan& plan, std::span<const uint64_t> part_bytes,
                std::span<const uint64_t> bucket_bytes);

// Calls visit(source, destination) for the buckets of `step` that the step before it has not loaded: all of
// them where one of the two parts is new. `before` is null for the first step.
template <typename Visit>
void ForEachNewBucket(const SwapStep* before, const SwapStep& step, const Visit& visit);

// B, the Edge Permutation Bias (§5.4), by parts: the most that the shares of their edges which were used after
// a step differ between two parts. `bucket_edges` as above; empty: all buckets alike. 0 for kNode.
double EdgePermutationBias(const SwapPlan& plan, std::span<const uint64_t> bucket_edges = {});

template <typename Visit>
void ForEachNewBucket(const SwapStep* before, const SwapStep& step, const Visit& visit) {
  const auto held = [before](uint32_t part) {
    if (before == nullptr) return false;
    for (const uint32_t other : before->parts) {
      if (other >= part) return other == part;
    }
    return false;
  };
  std::vector<bool> old;
  for (const uint32_t part : step.parts) old.push_back(held(part));
  for (size_t i = 0; i < step.parts.size(); ++i) {
    for (size_t j = 0; j < step.parts.size(); ++j) {
      if (!old[i] || !old[j]) visit(step.parts[i], step.parts[j]);
    }
  }
}

}  // namespace quarry
