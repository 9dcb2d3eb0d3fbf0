#include "quarry/partition/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "quarry/base/random.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using PartSet = std::set<uint32_t>;

PartSet SetOf(const std::vector<uint32_t>& parts) { return {parts.begin(), parts.end()}; }

uint64_t NewIn(const PartSet& before, const PartSet& after) {
  uint64_t count = 0;
  for (const uint32_t part : after) count += before.contains(part) ? 0 : 1;
  return count;
}

void ExpectEveryPairTogether(const BufferSequence& sequence, uint32_t parts) {
  std::vector<bool> together(size_t{parts} * parts);
  for (const std::vector<uint32_t>& held : sequence) {
    for (const uint32_t a : held) {
      for (const uint32_t b : held) together[size_t{a} * parts + b] = true;
    }
  }
  EXPECT_EQ(std::ranges::count(together, true), static_cast<ptrdiff_t>(together.size()));
}

// Successive buffers differ in one part, and each holds `buffer` different ones.
void ExpectSingleSwaps(const BufferSequence& sequence, uint32_t buffer) {
  for (size_t i = 0; i < sequence.size(); ++i) {
    ASSERT_EQ(SetOf(sequence[i]).size(), buffer);
    if (i > 0) {
      ASSERT_EQ(NewIn(SetOf(sequence[i - 1]), SetOf(sequence[i])), 1U);
    }
  }
}

SwapPlan PlanOf(const SwapSpec& spec) {
  Result<SwapPlan> plan = PlanSwaps(spec);
  EXPECT_OK(plan);
  return *std::move(plan);
}

// Every bucket once, in a step that holds both of its parts.
void ExpectEveryBucketOnce(const SwapPlan& plan) {
  const uint32_t parts = plan.spec().parts;
  std::set<PartPair> used;
  for (const SwapStep& step : plan.steps()) {
    ASSERT_TRUE(std::ranges::is_sorted(step.parts));
    ASSERT_EQ(SetOf(step.parts).size(), plan.spec().buffer);
    for (const PartPair& bucket : step.buckets) {
      ASSERT_TRUE(std::ranges::binary_search(step.parts, bucket.source));
      ASSERT_TRUE(std::ranges::binary_search(step.parts, bucket.destination));
      ASSERT_TRUE(used.insert(bucket).second);
    }
  }
  EXPECT_EQ(used.size(), size_t{parts} * parts);
}

SwapCost CountsOf(const SwapPlan& plan) {
  const size_t parts = plan.spec().parts;
  return CostOf(plan, std::vector<uint64_t>(parts, 1000), std::vector<uint64_t>(parts * parts, 1));
}

TEST(SwapPolicyTest, BetaIsTheSequenceOfThePaper) {
  EXPECT_EQ(BetaSequence(6, 3),
            (BufferSequence{
                {0, 1, 2}, {0, 1, 3}, {0, 1, 4}, {0, 1, 5}, {2, 1, 5}, {2, 3, 5}, {2, 3, 4}, {5, 3, 4}}));
  EXPECT_EQ(BetaSequence(4, 2), (BufferSequence{{0, 1}, {0, 2}, {0, 3}, {1, 3}, {1, 2}, {3, 2}}));
}

TEST(SwapPolicyTest, BetaMakesTheSwapsOfItsFormulaAndMeetsEveryPair) {
  for (uint32_t parts = 2; parts <= 64; ++parts) {
    for (uint32_t buffer = 2; buffer <= parts; ++buffer) {
      SCOPED_TRACE(testing::Message() << "p " << parts << ", c " << buffer);
      for (const BufferSequence& sequence :
           {BetaSequence(parts, buffer), BetaSequence(parts, buffer, MixSeed(5, parts, buffer))}) {
        ASSERT_EQ(sequence.size() - 1, BetaSwaps(parts, buffer));
        ASSERT_LE(SwapsMin(parts, buffer), BetaSwaps(parts, buffer));
        ASSERT_NO_FATAL_FAILURE(ExpectSingleSwaps(sequence, buffer));
        ASSERT_NO_FATAL_FAILURE(ExpectEveryPairTogether(sequence, parts));
      }
    }
  }
}

TEST(SwapPolicyTest, SwapsAndTheirBoundAreThoseOfTheTable) {
  struct Row {
    uint64_t parts, buffer, bound, beta;
  };
  for (const Row& row : {Row{4, 2, 5, 5}, Row{8, 2, 27, 27}, Row{8, 4, 8, 9}, Row{16, 4, 38, 42},
                         Row{32, 8, 67, 78}, Row{64, 16, 127, 150}, Row{128, 32, 247, 294}}) {
    EXPECT_EQ(SwapsMin(row.parts, row.buffer), row.bound) << row.parts;
    EXPECT_EQ(BetaSwaps(row.parts, row.buffer), row.beta) << row.parts;
  }
}

TEST(SwapPolicyTest, EulerTrailsMeetEveryPairOnceWithTheLeastSwaps) {
  EXPECT_EQ(EulerSequence(3), (BufferSequence{{2, 0}, {0, 1}, {1, 2}}));
  for (uint32_t parts = 3; parts <= 65; parts += 2) {
    SCOPED_TRACE(parts);
    const BufferSequence sequence = EulerSequence(parts);
    std::set<PartSet> pairs;
    for (const std::vector<uint32_t>& held : sequence) EXPECT_TRUE(pairs.insert(SetOf(held)).second);
    EXPECT_EQ(sequence.size(), parts * (parts - 1) / 2);
    EXPECT_EQ(sequence.size() - 1, SwapsMin(parts, 2));
    ASSERT_NO_FATAL_FAILURE(ExpectSingleSwaps(sequence, 2));
  }
}

TEST(SwapPolicyTest, EveryBucketIsUsedOnceAnEpoch) {
  Rng rng(17);
  for (int round = 0; round < 200; ++round) {
    const auto group = static_cast<uint32_t>(1 + rng.Below(4));
    const auto logical = static_cast<uint32_t>(2 + rng.Below(10));
    const auto held = static_cast<uint32_t>(2 + rng.Below(logical - 1));
    SwapSpec spec{.parts = group * logical, .buffer = group * held, .logical = logical, .seed = rng()};
    SCOPED_TRACE(testing::Message() << "p " << spec.parts << ", c " << spec.buffer << ", l " << logical
                                    << ", seed " << spec.seed);
    for (const PartitionOrder order : {PartitionOrder::kBeta, PartitionOrder::kComet}) {
      spec.order = order;
      const SwapPlan plan = PlanOf(spec);
      ASSERT_NO_FATAL_FAILURE(ExpectEveryBucketOnce(plan));
      const uint64_t swaps = order == PartitionOrder::kBeta ? BetaSwaps(spec.parts, spec.buffer)
                                                            : group * BetaSwaps(logical, held);
      EXPECT_EQ(CountsOf(plan).swaps, swaps);
    }
    spec = {.order = PartitionOrder::kEuler,
            .parts = group * (2 * held + 1),
            .buffer = 2 * group,
            .logical = 2 * held + 1,
            .seed = rng()};
    const SwapPlan plan = PlanOf(spec);
    ASSERT_NO_FATAL_FAILURE(ExpectEveryBucketOnce(plan));
    EXPECT_EQ(CountsOf(plan).swaps, group * BetaSwaps(spec.logical, 2));
  }
}

TEST(SwapPolicyTest, OneSeedGivesOnePlan) {
  SwapSpec spec{.parts = 16, .buffer = 4, .logical = 8, .seed = 3};
  const auto sets = [](const SwapPlan& plan) {
    std::vector<std::pair<std::vector<uint32_t>, std::vector<PartPair>>> steps;
    for (const SwapStep& step : plan.steps()) steps.emplace_back(step.parts, step.buckets);
    return steps;
  };
  const auto first = sets(PlanOf(spec));
  EXPECT_EQ(sets(PlanOf(spec)), first);
  spec.seed = 4;
  EXPECT_NE(sets(PlanOf(spec)), first);
}

TEST(SwapPolicyTest, AlgorithmSevenReadsEachPartOnceAndUsesEachNodeOnce) {
  Rng rng(23);
  for (int round = 0; round < 100; ++round) {
    const auto group = static_cast<uint32_t>(1 + rng.Below(4));
    const auto logical = static_cast<uint32_t>(2 + rng.Below(14));
    const uint32_t held =
        static_cast<uint32_t>((group == 1 ? 2 : 1) + rng.Below(logical - (group == 1 ? 1 : 0)));
    const SwapSpec spec{.order = PartitionOrder::kNode,
                        .parts = group * logical,
                        .buffer = group * held,
                        .logical = logical,
                        .training_parts = group * logical,
                        .seed = rng()};
    SCOPED_TRACE(testing::Message() << "p " << spec.parts << ", c " << spec.buffer << ", l " << logical
                                    << ", seed " << spec.seed);
    const SwapPlan plan = PlanOf(spec);
    const SwapCost cost = CountsOf(plan);
    EXPECT_EQ(plan.steps().size(), logical - held + 1);
    EXPECT_EQ(cost.parts_read, spec.parts);
    EXPECT_EQ(cost.swaps, spec.parts - spec.buffer);
    for (uint32_t part = 0; part < spec.parts; ++part) {
      for (uint64_t node = part * 100; node < part * 100 + 20; ++node) {
        const uint32_t step = plan.StepOfNode(part, node);
        ASSERT_LT(step, plan.steps().size());
        EXPECT_TRUE(std::ranges::binary_search(plan.steps()[step].parts, part));
        EXPECT_EQ(plan.StepOfNode(part, node), step);
      }
    }
  }
}

TEST(SwapPolicyTest, TrainingNodesOfAPartSpreadEvenlyOverItsSteps) {
  const SwapPlan plan = PlanOf({.order = PartitionOrder::kNode,
                                .parts = 16,
                                .buffer = 8,
                                .logical = 16,
                                .training_parts = 16,
                                .seed = 11});
  const uint32_t part = plan.steps()[0].parts[0];
  const auto steps = plan.StepsOf(part);
  std::vector<uint64_t> counts(plan.steps().size());
  constexpr uint64_t kNodes = 20000;
  for (uint64_t node = 0; node < kNodes; ++node) ++counts[plan.StepOfNode(part, node)];
  const double mean = static_cast<double>(kNodes) / static_cast<double>(steps.size());
  for (const uint32_t step : steps) EXPECT_NEAR(static_cast<double>(counts[step]), mean, 0.1 * mean);
}

TEST(SwapPolicyTest, TrainingPartsThatFitStayForTheEpoch) {
  SwapSpec spec{.order = PartitionOrder::kNode, .parts = 20, .buffer = 5, .training_parts = 2, .seed = 1};
  std::set<std::vector<uint32_t>> sets;
  for (spec.seed = 0; spec.seed < 10; ++spec.seed) {
    const SwapPlan plan = PlanOf(spec);
    ASSERT_EQ(plan.steps().size(), 1U);
    const std::vector<uint32_t>& held = plan.steps()[0].parts;
    EXPECT_EQ(SetOf(held).size(), 5U);
    EXPECT_EQ(held[0], 0U);
    EXPECT_EQ(held[1], 1U);
    sets.insert(held);
    EXPECT_EQ(plan.StepOfNode(1, 77), 0U);
  }
  EXPECT_GT(sets.size(), 1U);
}

// Section 7 of the paper's chapter 5: golden values of parts with uniform buckets.
TEST(SwapPolicyTest, BiasOfBeta) {
  const std::pair<uint32_t, double> rows[] = {{8, .875}, {16, .938}, {32, .969}, {64, .984}};
  for (const auto& [parts, bias] : rows) {
    const SwapPlan plan =
        PlanOf({.order = PartitionOrder::kBeta, .parts = parts, .buffer = parts / 4, .seed = 9});
    EXPECT_NEAR(EdgePermutationBias(plan), bias, .001) << parts;
  }
}

double MeanBias(SwapSpec spec, int seeds) {
  double sum = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    spec.seed = static_cast<uint64_t>(seed);
    sum += EdgePermutationBias(PlanOf(spec));
  }
  return sum / seeds;
}

TEST(SwapPolicyTest, BiasOfCometAndWhatItReads) {
  for (const uint32_t parts : {8U, 16U, 32U, 64U, 128U}) {
    EXPECT_NEAR(MeanBias({.parts = parts, .buffer = parts / 4, .logical = 8}, 20), .875, .005) << parts;
  }
  struct Row {
    uint32_t logical;
    double bias;
    uint64_t parts_read;
  };
  for (const Row& row : {Row{8, .875, 116}, Row{16, .932, 92}, Row{32, .962, 86}}) {
    const SwapSpec spec{.parts = 32, .buffer = 8, .logical = row.logical};
    EXPECT_NEAR(MeanBias(spec, 20), row.bias, .006) << row.logical;
    EXPECT_EQ(CountsOf(PlanOf(spec)).parts_read, row.parts_read);
  }
}

TEST(SwapPolicyTest, LargestStepOfCometShrinksWithTheParts) {
  const std::pair<uint32_t, double> rows[] = {{8, 1.47}, {16, 1.29}, {32, 1.11}, {64, 1.06}};
  for (const auto& [parts, largest] : rows) {
    double sum = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      sum += CountsOf(PlanOf({.parts = parts, .buffer = parts / 4, .logical = 8, .seed = seed})).largest_step;
    }
    EXPECT_NEAR(sum / 20, largest, .08) << parts;
  }
}

TEST(SwapPolicyTest, EulerTrailsHalveTheBias) {
  struct Row {
    uint32_t logical;
    double euler, beta;
  };
  for (const Row& row : {Row{5, .57, .79}, Row{7, .42, .86}, Row{9, .33, .89}, Row{11, .26, .91}}) {
    SwapSpec spec{
        .order = PartitionOrder::kEuler, .parts = 4 * row.logical, .buffer = 8, .logical = row.logical};
    EXPECT_NEAR(MeanBias(spec, 10), row.euler, .03) << row.logical;
    spec.order = PartitionOrder::kComet;
    EXPECT_NEAR(MeanBias(spec, 10), row.beta, .03) << row.logical;
  }
}

TEST(SwapPolicyTest, BiasWeighsBucketsByTheirEdges) {
  // All edges lie in one bucket: its parts have used all after that step, and the others have none.
  const SwapPlan plan = PlanOf({.order = PartitionOrder::kBeta, .parts = 4, .buffer = 2});
  std::vector<uint64_t> edges(16);
  edges[1 * 4 + 2] = 10;
  EXPECT_EQ(EdgePermutationBias(plan, edges), 0);
  edges[3 * 4 + 3] = 5;  // part 3 has edges of its own: used before those of 1 and 2, or after
  EXPECT_EQ(EdgePermutationBias(plan, edges), 1);
}

TEST(SwapPolicyTest, BytesAreThoseOfPartsAndBuckets) {
  const SwapPlan plan = PlanOf({.order = PartitionOrder::kBeta, .parts = 6, .buffer = 3});
  const SwapCost cost = CountsOf(plan);
  EXPECT_EQ(cost.steps, 8U);
  EXPECT_EQ(cost.swaps, 7U);
  EXPECT_EQ(cost.parts_read, 10U);
  EXPECT_EQ(cost.buckets_read, 9U + 7 * 5);  // a swap brings a part with 2 c - 1 buckets
  EXPECT_EQ(cost.bytes_read, 10 * 1000 + cost.buckets_read);
}

TEST(SwapPolicyTest, WhatCannotBeIsRefusedWithASentence) {
  const auto refusal = [](const SwapSpec& spec) {
    const Status status = PlanSwaps(spec).status();
    EXPECT_EQ(status.code(), Code::kUsage);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal({.parts = 1, .buffer = 1, .logical = 1}), HasSubstr("at least 2"));
  EXPECT_THAT(refusal({.parts = 8, .buffer = 1, .logical = 8}), HasSubstr("a buffer of 1 of 8 parts"));
  EXPECT_THAT(refusal({.parts = 8, .buffer = 9, .logical = 8}), HasSubstr("a buffer of 9 of 8 parts"));
  EXPECT_THAT(refusal({.parts = 8, .buffer = 4, .logical = 3}),
              HasSubstr("3 logical parts: their number divides"));
  EXPECT_THAT(refusal({.parts = 8, .buffer = 4}), HasSubstr("0 logical parts"));
  EXPECT_THAT(refusal({.parts = 12, .buffer = 5, .logical = 4}), HasSubstr("make it a multiple of 3"));
  EXPECT_THAT(refusal({.parts = 8, .buffer = 4, .logical = 2}), HasSubstr("ask for 4 logical parts or more"));
  EXPECT_THAT(refusal({.order = PartitionOrder::kEuler, .parts = 8, .buffer = 4, .logical = 4}),
              HasSubstr("2 of an odd number"));
  EXPECT_THAT(refusal({.order = PartitionOrder::kEuler, .parts = 9, .buffer = 3, .logical = 9}),
              HasSubstr("the buffer holds 3"));
  EXPECT_THAT(refusal({.order = PartitionOrder::kNode, .parts = 8, .buffer = 4, .training_parts = 9}),
              HasSubstr("training nodes in 9 parts"));
  EXPECT_OK(PlanSwaps({.order = PartitionOrder::kBeta, .parts = 8, .buffer = 8}));
  EXPECT_THAT(ParsePartitionOrder("hilbert").status().message(), HasSubstr("beta, comet, euler, node"));
  EXPECT_EQ(*ParsePartitionOrder("euler"), PartitionOrder::kEuler);
  EXPECT_EQ(PartitionOrderName(PartitionOrder::kNode), "node");
}

}  // namespace
}  // namespace quarry
