#include "quarry/sampling/negative_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quarry {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSeed = 40;

std::vector<NodeId> Draw(const NegativeOptions& options, const NegativePool& pool, const NegativeDraw& draw,
                         size_t count) {
  std::vector<NodeId> nodes(count);
  SampleNegatives(options, pool, draw, nodes);
  return nodes;
}

// Pearson's statistic over its degrees of freedom, in standard deviations: above 5 is one case in millions.
double PearsonDeviations(std::span<const uint64_t> counts, std::span<const double> expected) {
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); i++) {
    const double difference = static_cast<double>(counts[i]) - expected[i];
    statistic += difference * difference / expected[i];
  }
  const double freedom = static_cast<double>(counts.size()) - 1;
  return (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(NegativeSamplerTest, UniformNegativesAreUniform) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  constexpr uint64_t kNodes = 100, kChunks = 200, kCount = 500;
  constexpr NodeId kFirst = 1000;
  std::vector<uint64_t> counts(kNodes);
  for (uint32_t chunk = 0; chunk < kChunks; chunk++) {
    for (const NodeId node : Draw({.seed = kSeed}, {kFirst, kNodes, {}}, {.chunk = chunk}, kCount)) {
      ASSERT_GE(node, kFirst);
      ASSERT_LT(node, kFirst + kNodes);
      counts[node - kFirst]++;
    }
  }
  const std::vector<double> expected(kNodes, double{kChunks * kCount} / kNodes);
  EXPECT_LT(std::abs(PearsonDeviations(counts, expected)), 5);
}

TEST(NegativeSamplerTest, DegreeShareFollowsDegrees) {
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  // Node i ends i + 1 edges.
  constexpr uint64_t kNodes = 50, kChunks = 200, kCount = 500;
  std::vector<NodeId> ends;
  for (NodeId node = 0; node < kNodes; node++) ends.insert(ends.end(), node + 1, node);
  std::vector<uint64_t> counts(kNodes);
  std::vector<double> expected;
  for (uint32_t chunk = 0; chunk < kChunks; chunk++) {
    const NegativeOptions options{.degree_share = 1, .seed = kSeed};
    for (const NodeId node : Draw(options, {0, kNodes, ends}, {.chunk = chunk}, kCount)) counts[node]++;
  }
  for (NodeId node = 0; node < kNodes; node++) {
    expected.push_back(double{kChunks * kCount} * (node + 1) / static_cast<double>(ends.size()));
  }
  EXPECT_LT(std::abs(PearsonDeviations(counts, expected)), 5);
}

TEST(NegativeSamplerTest, TheShareByDegreeIsExact) {
  // Edges end at nodes that cannot be drawn uniformly.
  const std::vector<NodeId> ends = {100, 101};
  for (const double share : {0.0, 0.25, 0.3, 1.0}) {
    const std::vector<NodeId> nodes = Draw({share, kSeed}, {0, 10, ends}, {}, 40);
    const auto by_degree = static_cast<size_t>(std::llround(share * 40));
    for (size_t i = 0; i < nodes.size(); i++) EXPECT_EQ(nodes[i] >= 100, i < by_degree) << share << " " << i;
  }
}

TEST(NegativeSamplerTest, ADrawIsNamedByAllOfItsParts) {
  const NegativePool pool{0, 1'000'000, {}};
  const NegativeDraw draw{1, 2, 3, 0};
  const std::vector<NodeId> nodes = Draw({.seed = kSeed}, pool, draw, 20);
  EXPECT_EQ(nodes, Draw({.seed = kSeed}, pool, draw, 20));
  EXPECT_NE(nodes, Draw({.seed = kSeed + 1}, pool, draw, 20));
  EXPECT_NE(nodes, Draw({.seed = kSeed}, pool, {2, 2, 3, 0}, 20));
  EXPECT_NE(nodes, Draw({.seed = kSeed}, pool, {1, 1, 3, 0}, 20));
  EXPECT_NE(nodes, Draw({.seed = kSeed}, pool, {1, 2, 4, 0}, 20));
  EXPECT_NE(nodes, Draw({.seed = kSeed}, pool, {1, 2, 3, 1}, 20));
}

// One seed gives one sequence, in every build.
TEST(NegativeSamplerTest, ASeedKeepsItsNegatives) {
  EXPECT_THAT(Draw({.seed = 7}, {0, 1'000'000, {}}, {1, 2, 3, 1}, 4),
              ElementsAre(396602, 963394, 514176, 838941));
}

}  // namespace
}  // namespace quarry
