#include "quarry/partition/policy.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <numeric>
#include <utility>

#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr std::array<std::pair<PartitionOrder, std::string_view>, 4> kOrderNames = {{
    {PartitionOrder::kBeta, "beta"},
    {PartitionOrder::kComet, "comet"},
    {PartitionOrder::kEuler, "euler"},
    {PartitionOrder::kNode, "node"},
}};

// Streams of one seed.
enum SwapStream : uint64_t { kGroupStream = 1, kSequenceStream, kBucketStream, kOrderStream, kNodeStream };

template <typename T>
void ShuffleParts(std::span<T> values, Rng& rng) {
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.Below(i)]);
}

std::vector<uint32_t> Numbers(uint32_t first, uint32_t end) {
  std::vector<uint32_t> numbers(end - first);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// Algorithm 6. At the head of the loop all pairs within the buffer were together, so which of its parts goes
// first is free; so is the order of what lies on disk.
BufferSequence RunBeta(uint32_t parts, uint32_t buffer, Rng* rng) {
  assert(2 <= buffer && buffer <= parts);
  std::vector<uint32_t> all = Numbers(0, parts);
  const auto shuffle = [rng](std::vector<uint32_t>& values) {
    if (rng != nullptr) ShuffleParts(std::span(values), *rng);
  };
  shuffle(all);
  std::vector<uint32_t> held(all.begin(), all.begin() + buffer);
  std::vector<uint32_t> disk(all.begin() + buffer, all.end());
  BufferSequence sequence = {held};
  while (!disk.empty()) {
    shuffle(held);
    shuffle(disk);
    for (uint32_t& part : disk) {
      std::swap(held.back(), part);
      sequence.push_back(held);
    }
    shuffle(disk);
    const size_t refilled = std::min<size_t>(buffer - 1, disk.size());
    for (size_t i = 0; i < refilled; ++i) {
      held[i] = disk[i];
      sequence.push_back(held);
    }
    disk.erase(disk.begin(), disk.begin() + static_cast<ptrdiff_t>(refilled));
  }
  return sequence;
}

// Physical parts of each logical one.
std::vector<std::vector<uint32_t>> GroupParts(const SwapSpec& spec) {
  std::vector<uint32_t> physical = Numbers(0, spec.parts);
  Rng rng(MixSeed(spec.seed, kGroupStream));
  ShuffleParts(std::span(physical), rng);
  std::vector<std::vector<uint32_t>> groups(spec.logical);
  for (uint32_t i = 0; i < spec.parts; ++i) groups[i / spec.group()].push_back(physical[i]);
  return groups;
}

std::vector<SwapStep> StepsOfGroups(const BufferSequence& sequence,
                                    const std::vector<std::vector<uint32_t>>& groups) {
  std::vector<SwapStep> steps;
  for (const std::vector<uint32_t>& held : sequence) {
    SwapStep& step = steps.emplace_back();
    for (const uint32_t logical : held) {
      step.parts.insert(step.parts.end(), groups[logical].begin(), groups[logical].end());
    }
    std::ranges::sort(step.parts);
  }
  return steps;
}

std::vector<std::vector<uint32_t>> StepsByPart(uint32_t parts, const std::vector<SwapStep>& steps) {
  std::vector<std::vector<uint32_t>> by_part(parts);
  for (uint32_t i = 0; i < steps.size(); ++i) {
    for (const uint32_t part : steps[i].parts) by_part[part].push_back(i);
  }
  return by_part;
}

// BETA: a bucket is used as soon as it is there.
void AssignFirst(uint32_t parts, std::vector<SwapStep>& steps) {
  std::vector<bool> used(size_t{parts} * parts);
  for (SwapStep& step : steps) {
    for (const uint32_t source : step.parts) {
      for (const uint32_t destination : step.parts) {
        const size_t bucket = size_t{source} * parts + destination;
        if (!used[bucket]) step.buckets.push_back({source, destination});
        used[bucket] = true;
      }
    }
  }
}

// COMET: a bucket is used at random in one of the steps that have it.
void AssignAtRandom(const SwapSpec& spec, std::vector<SwapStep>& steps) {
  const std::vector<std::vector<uint32_t>> by_part = StepsByPart(spec.parts, steps);
  Rng rng(MixSeed(spec.seed, kBucketStream));
  std::vector<uint32_t> both;
  for (uint32_t source = 0; source < spec.parts; ++source) {
    for (uint32_t destination = 0; destination < spec.parts; ++destination) {
      both.clear();
      std::ranges::set_intersection(by_part[source], by_part[destination], std::back_inserter(both));
      assert(!both.empty());
      steps[both[rng.Below(both.size())]].buckets.push_back({source, destination});
    }
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    Rng order(MixSeed(spec.seed, kOrderStream, i));
    ShuffleParts(std::span(steps[i].buckets), order);
  }
}

// The training nodes' parts, and others at random beside them.
std::vector<SwapStep> ResidentStep(const SwapSpec& spec) {
  std::vector<uint32_t> others = Numbers(spec.training_parts, spec.parts);
  Rng rng(MixSeed(spec.seed, kSequenceStream));
  ShuffleParts(std::span(others), rng);
  std::vector<uint32_t> held = Numbers(0, spec.training_parts);
  held.insert(held.end(), others.begin(), others.begin() + (spec.buffer - spec.training_parts));
  std::ranges::sort(held);
  return {{.parts = std::move(held), .buckets = {}}};
}

// Algorithm 7 over logical parts.
BufferSequence ReadOnceSequence(uint32_t parts, uint32_t buffer, Rng& rng) {
  std::vector<uint32_t> all = Numbers(0, parts);
  ShuffleParts(std::span(all), rng);
  std::vector<uint32_t> held(all.begin(), all.begin() + buffer);
  BufferSequence sequence = {held};
  for (uint32_t i = buffer; i < parts; ++i) {
    held[rng.Below(buffer)] = all[i];
    sequence.push_back(held);
  }
  return sequence;
}

}  // namespace

std::string_view PartitionOrderName(PartitionOrder order) {
  for (const auto& [value, name] : kOrderNames) {
    if (value == order) return name;
  }
  return "unknown";
}

Result<PartitionOrder> ParsePartitionOrder(std::string_view name) {
  for (const auto& [value, known] : kOrderNames) {
    if (known == name) return value;
  }
  return MakeStatus(Code::kUsage, "partition order \"{}\": it is one of beta, comet, euler, node", name);
}

SwapPlan::SwapPlan(SwapSpec spec, std::vector<SwapStep> steps)
    : spec_(spec), steps_(std::move(steps)), steps_of_(StepsByPart(spec.parts, steps_)) {}

uint32_t SwapPlan::StepOfNode(uint32_t part, uint64_t node) const {
  const std::vector<uint32_t>& steps = steps_of_[part];
  return steps[Rng(MixSeed(spec_.seed, kNodeStream, node)).Below(steps.size())];
}

Status CheckSwapSpec(const SwapSpec& spec) {
  if (spec.parts < 2) {
    return MakeStatus(Code::kUsage, "{} parts: a buffer swaps at least 2", spec.parts);
  }
  if (spec.buffer < 2 || spec.buffer > spec.parts) {
    return MakeStatus(Code::kUsage,
                      "a buffer of {} of {} parts: it holds at least 2, and at most all of them", spec.buffer,
                      spec.parts);
  }
  if (spec.order == PartitionOrder::kNode && spec.training_parts > spec.parts) {
    return MakeStatus(Code::kUsage, "training nodes in {} parts: there are {}", spec.training_parts,
                      spec.parts);
  }
  const bool resident = spec.order == PartitionOrder::kNode && spec.training_parts < spec.buffer;
  if (spec.order == PartitionOrder::kBeta || resident) return Status::Ok();
  if (spec.logical == 0 || spec.parts % spec.logical != 0) {
    return MakeStatus(Code::kUsage, "{} logical parts: their number divides that of the parts, {}",
                      spec.logical, spec.parts);
  }
  if (spec.buffer % spec.group() != 0) {
    return MakeStatus(
        Code::kUsage,
        "a buffer of {} parts holds no whole number of logical parts, which are {} of {} parts each: "
        "make it a multiple of {}",
        spec.buffer, spec.logical, spec.group(), spec.group());
  }
  if (spec.order != PartitionOrder::kNode && spec.logical_buffer() < 2) {
    return MakeStatus(
        Code::kUsage,
        "a buffer of {} parts holds one logical part of {}: two must be there for the edges between "
        "them, so ask for {} logical parts or more",
        spec.buffer, spec.group(), 2 * CeilDiv(spec.parts, spec.buffer));
  }
  if (spec.order == PartitionOrder::kEuler && (spec.logical_buffer() != 2 || spec.logical % 2 == 0)) {
    return MakeStatus(
        Code::kUsage,
        "partition order euler: {} logical parts of which the buffer holds {}: it holds 2 of an odd "
        "number",
        spec.logical, spec.logical_buffer());
  }
  return Status::Ok();
}

Result<SwapPlan> PlanSwaps(const SwapSpec& spec) {
  QUARRY_RETURN_IF_ERROR(CheckSwapSpec(spec));
  const uint64_t sequence_seed = MixSeed(spec.seed, kSequenceStream);
  std::vector<SwapStep> steps;
  switch (spec.order) {
    case PartitionOrder::kBeta: {
      for (std::vector<uint32_t>& held : BetaSequence(spec.parts, spec.buffer, sequence_seed)) {
        std::ranges::sort(held);
        steps.push_back({.parts = std::move(held), .buckets = {}});
      }
      AssignFirst(spec.parts, steps);
      break;
    }
    case PartitionOrder::kComet:
      steps =
          StepsOfGroups(BetaSequence(spec.logical, spec.logical_buffer(), sequence_seed), GroupParts(spec));
      AssignAtRandom(spec, steps);
      break;
    case PartitionOrder::kEuler:
      steps = StepsOfGroups(EulerSequence(spec.logical), GroupParts(spec));
      AssignAtRandom(spec, steps);
      break;
    case PartitionOrder::kNode:
      if (spec.training_parts < spec.buffer) {
        steps = ResidentStep(spec);
      } else {
        Rng rng(sequence_seed);
        steps = StepsOfGroups(ReadOnceSequence(spec.logical, spec.logical_buffer(), rng), GroupParts(spec));
      }
      break;
  }
  return SwapPlan(spec, std::move(steps));
}

BufferSequence BetaSequence(uint32_t parts, uint32_t buffer) { return RunBeta(parts, buffer, nullptr); }

BufferSequence BetaSequence(uint32_t parts, uint32_t buffer, uint64_t seed) {
  Rng rng(seed);
  return RunBeta(parts, buffer, &rng);
}

// Walecki's cycles through all of an odd number of nodes: the last node, then a zigzag through the others,
// which lie on a circle; the next cycle is turned by one. Together they have every edge once, and each begins
// where the one before ended.
BufferSequence EulerSequence(uint32_t parts) {
  assert(parts >= 3 && parts % 2 == 1);
  const uint32_t circle = parts - 1;
  std::vector<uint32_t> trail;
  for (uint32_t turn = 0; turn < circle / 2; ++turn) {
    trail.push_back(circle);
    for (uint32_t i = 0; i < circle; ++i) {
      trail.push_back(i % 2 == 1 ? (turn + (i + 1) / 2) % circle : (turn + circle - i / 2) % circle);
    }
  }
  trail.push_back(circle);
  BufferSequence sequence;
  for (size_t i = 0; i + 1 < trail.size(); ++i) sequence.push_back({trail[i], trail[i + 1]});
  return sequence;
}

uint64_t BetaSwaps(uint64_t parts, uint64_t buffer) {
  const uint64_t rest = parts - buffer;
  const uint64_t rounds = rest / (buffer - 1);
  return rest + (rounds + 1) * rest - (rounds + 1) * rounds / 2 * (buffer - 1);
}

uint64_t SwapsMin(uint64_t parts, uint64_t buffer) {
  return CeilDiv(parts * (parts - 1) / 2 - buffer * (buffer - 1) / 2, buffer - 1);
}

SwapCost CostOf(const SwapPlan& plan, std::span<const uint64_t> part_bytes,
                std::span<const uint64_t> bucket_bytes) {
  const uint64_t parts = plan.spec().parts;
  assert(part_bytes.size() == parts && bucket_bytes.size() == parts * parts);
  SwapCost cost{.steps = plan.steps().size()};
  uint64_t buckets = 0;
  uint64_t largest = 0;
  const SwapStep* before = nullptr;
  for (const SwapStep& step : plan.steps()) {
    for (const uint32_t part : step.parts) {
      if (before != nullptr && std::ranges::binary_search(before->parts, part)) continue;
      ++cost.parts_read;
      cost.swaps += before != nullptr ? 1 : 0;
      cost.bytes_read += part_bytes[part];
    }
    ForEachNewBucket(before, step, [&](uint32_t source, uint32_t destination) {
      ++cost.buckets_read;
      cost.bytes_read += bucket_bytes[source * parts + destination];
    });
    buckets += step.buckets.size();
    largest = std::max<uint64_t>(largest, step.buckets.size());
    before = &step;
  }
  if (buckets > 0) {
    cost.largest_step = static_cast<double>(largest * cost.steps) / static_cast<double>(buckets);
  }
  return cost;
}

double EdgePermutationBias(const SwapPlan& plan, std::span<const uint64_t> bucket_edges) {
  const size_t parts = plan.spec().parts;
  const auto edges_of = [&](uint32_t source, uint32_t destination) {
    return bucket_edges.empty() ? 1 : static_cast<double>(bucket_edges[source * parts + destination]);
  };
  std::vector<double> total(parts);
  for (uint32_t source = 0; source < parts; ++source) {
    for (uint32_t destination = 0; destination < parts; ++destination) {
      total[source] += edges_of(source, destination);
      total[destination] += edges_of(source, destination);
    }
  }
  std::vector<double> used(parts);
  double bias = 0;
  for (const SwapStep& step : plan.steps()) {
    for (const PartPair& bucket : step.buckets) {
      used[bucket.source] += edges_of(bucket.source, bucket.destination);
      used[bucket.destination] += edges_of(bucket.source, bucket.destination);
    }
    double least = 1;
    double most = 0;
    for (size_t part = 0; part < parts; ++part) {
      if (total[part] == 0) continue;
      least = std::min(least, used[part] / total[part]);
      most = std::max(most, used[part] / total[part]);
    }
    bias = std::max(bias, most - least);
  }
  return bias;
}

}  // namespace quarry
