#include "quarry/partition/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "partition/edge_list_util.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

TEST(CutTest, EdgesBetweenPartsAreCounted) {
  const std::vector<NodePair> pairs = {{0, 1}, {1, 2}, {2, 3}, {3, 3}, {3, 0}, {0, 1}};
  ArrayEdges edges(4, pairs);
  const Assignment assignment{.parts = 2, .part_of = {0, 0, 1, 1}};
  ASSERT_OK_AND_ASSIGN(const CutEdges cut, CountCut(edges, assignment));
  EXPECT_EQ(cut.edges, 6);
  EXPECT_EQ(cut.cut, 2);
  ASSERT_OK_AND_ASSIGN(const auto nodes, CountNeighbors(edges, assignment));
  ASSERT_EQ(nodes.size(), 4);
  EXPECT_EQ(nodes[0].all, 3);
  EXPECT_EQ(nodes[0].best, 2);
  EXPECT_EQ(nodes[3].all, 2);
  EXPECT_EQ(nodes[3].best, 1);
  EXPECT_THAT(CountNeighbors(edges, Assignment{.parts = 3, .part_of = {0, 1, 2, 0}}),
              IsStatus(Code::kInvalidArgument, HasSubstr("two parts")));
}

// Every set of neighbors that a node may see, listed.
double ExpectedByEnumeration(const NeighborCount& node, double share) {
  const auto draws = static_cast<int>(std::nearbyint(node.all * share));
  double wrong = 0, sets = 0;
  for (uint32_t set = 0; set < (1u << node.all); ++set) {
    if (std::popcount(set) != draws) continue;
    const int good = std::popcount(set & ((1u << node.best) - 1));
    wrong += 2 * good < draws ? 1 : 0;
    ++sets;
  }
  wrong /= sets;
  return (node.all - node.best) * (1 - wrong) + node.best * wrong;
}

TEST(CutTest, TheExpectedCutIsThatOfAllDraws) {
  for (const double share : {0.0, 0.1, 0.34, 0.5, 0.9, 1.0}) {
    std::vector<NeighborCount> nodes;
    double cut = 0, ends = 0;
    for (uint32_t all = 0; all <= 12; ++all) {
      for (uint32_t best = (all + 1) / 2; best <= all; ++best) {
        nodes.push_back({.all = all, .best = best});
        nodes.push_back(nodes.back());
        cut += 2 * ExpectedByEnumeration(nodes.back(), share);
        ends += 2 * all;
      }
    }
    EXPECT_NEAR(ExpectedCutShare(nodes, share), cut / ends, 1e-12) << share;
  }
  EXPECT_EQ(ExpectedCutShare({}, 0.5), 0);
}

TEST(CutTest, AHubOfMillionsIsSummedToo) {
  const std::vector<NeighborCount> nodes = {{.all = 3'000'000, .best = 1'510'000}};
  // A hundredth of the neighbors: 15,100 of 30,000 expected, a deviation of 86.
  EXPECT_NEAR(ExpectedCutShare(nodes, 0.01), 0.4967 + 0.0067 * 0.121, 0.0005);
}

}  // namespace
}  // namespace quarry
