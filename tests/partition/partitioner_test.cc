#include "quarry/partition/partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "bgl.h"
#include "metis_partition.h"
#include "partition/edge_list_util.h"
#include "quarry/partition/cut.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Le;

constexpr PartitionMethod kMethods[] = {PartitionMethod::kGrem, PartitionMethod::kMetis,
                                        PartitionMethod::kBgl, PartitionMethod::kRandom};

// What holds of every partitioner.
void ExpectSound(uint64_t node_count, const std::vector<NodePair>& pairs, const PartitionOptions& options) {
  SCOPED_TRACE(fmt::format("{}: {} nodes, {} edges, {} parts, seed {}", NameOf(options.method), node_count,
                           pairs.size(), options.parts, options.seed));
  PartitionRig rig;
  ArrayEdges edges(node_count, pairs);
  ASSERT_OK_AND_ASSIGN(const Assignment assignment, Partition(edges, options, rig.context()));
  EXPECT_EQ(assignment.parts, options.parts);
  ASSERT_EQ(assignment.part_of.size(), node_count);
  ASSERT_THAT(assignment.part_of, Each(testing::Lt(options.parts)));
  EXPECT_THAT(assignment.Sizes(), Each(Le(CeilDiv(node_count, options.parts))));
  ASSERT_OK_AND_ASSIGN(const Assignment again, Partition(edges, options, rig.context()));
  EXPECT_EQ(again, assignment);
  EXPECT_EQ(rig.budget().used_bytes(), 0);
}

TEST(PartitionerTest, OddGraphsAreCutIntoEvenParts) {
  const std::vector<NodePair> loops = {{0, 0}, {1, 1}, {2, 2}, {1, 1}};
  const std::vector<NodePair> parallel(50, NodePair{0, 1});
  std::vector<NodePair> star;
  for (NodeId v = 1; v < 100; ++v) star.push_back({0, v});
  for (const PartitionMethod method : kMethods) {
    for (const uint32_t parts : {1, 2, 3, 7, 64}) {
      const PartitionOptions options{.method = method, .parts = parts, .seed = 3};
      ExpectSound(0, {}, options);
      ExpectSound(1, {}, options);
      ExpectSound(1, {{0, 0}}, options);
      ExpectSound(2, {{0, 1}}, options);
      ExpectSound(1000, {}, options);
      ExpectSound(3, loops, options);
      ExpectSound(10, parallel, options);
      ExpectSound(100, star, options);
    }
  }
}

TEST(PartitionerTest, RandomGraphsAreCutIntoEvenParts) {
  for (const PartitionMethod method : kMethods) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      Rng rng(seed);
      const uint64_t node_count = 1 + rng.Below(2000);
      std::vector<NodePair> pairs = RandomPairs(node_count, rng.Below(8000), seed);
      std::vector<NodeId> train;
      for (NodeId v = 0; v < node_count; v += 7) train.push_back(v);
      ExpectSound(node_count, pairs,
                  {.method = method,
                   .parts = static_cast<uint32_t>(1 + rng.Below(20)),
                   .chunk_share = std::array{0.01, 0.1, 1.0}[seed % 3],
                   .seed = seed,
                   .train_nodes = train});
    }
  }
}

// Which part each node goes to by the rule, looked up anew for each.
std::vector<uint32_t> GrownByRule(uint64_t node_count, const std::vector<NodePair>& pairs,
                                  std::vector<uint32_t> part_of, uint32_t parts) {
  const uint64_t capacity = (node_count + parts - 1) / parts;
  for (NodeId node = static_cast<NodeId>(part_of.size()); node < node_count; ++node) {
    std::vector<int64_t> seen(parts), sizes(parts);
    for (const uint32_t part : part_of) ++sizes[part];
    for (const NodePair& edge : pairs) {
      if (edge.source == edge.destination) continue;
      const NodeId other = edge.source == node ? edge.destination : edge.source;
      if ((edge.source == node || edge.destination == node) && other < part_of.size()) ++seen[part_of[other]];
    }
    std::vector<uint32_t> with_room;
    for (uint32_t part = 0; part < parts; ++part) {
      if (static_cast<uint64_t>(sizes[part]) < capacity) with_room.push_back(part);
    }
    part_of.push_back(*std::ranges::min_element(
        with_room, {}, [&](uint32_t part) { return std::tuple(-seen[part], sizes[part], part); }));
  }
  return part_of;
}

TEST(PartitionerTest, NewNodesGoByGremsRuleAndOthersKeepTheirParts) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Rng rng(seed);
    const uint64_t before = rng.Below(200), node_count = before + rng.Below(100);
    const auto parts = static_cast<uint32_t>(1 + rng.Below(9));
    const std::vector<NodePair> pairs =
        node_count == 0 ? std::vector<NodePair>() : RandomPairs(node_count, rng.Below(900), seed);
    std::vector<uint32_t> kept;
    for (uint64_t node = 0; node < before; ++node) kept.push_back(static_cast<uint32_t>(node % parts));
    PartitionRig rig;
    ArrayEdges edges(node_count, pairs);
    ASSERT_OK_AND_ASSIGN(
        const Assignment grown,
        Partition(edges, {.method = PartitionMethod::kKept, .parts = parts, .kept = kept}, rig.context()));
    EXPECT_EQ(grown.part_of, GrownByRule(node_count, pairs, kept, parts));
    EXPECT_THAT(grown.Sizes(), Each(Le(CeilDiv(node_count, uint64_t{parts}))));
    EXPECT_EQ(rig.budget().used_bytes(), 0);
  }
  PartitionRig rig;
  ArrayEdges edges(2, {});
  const std::vector<uint32_t> three(3), outside = {0, 4};
  EXPECT_THAT(Partition(edges, {.method = PartitionMethod::kKept, .kept = three}, rig.context()),
              IsStatus(Code::kInvalidArgument, HasSubstr("3 nodes keep their parts")));
  EXPECT_THAT(Partition(edges, {.method = PartitionMethod::kKept, .kept = outside}, rig.context()),
              IsStatus(Code::kInvalidArgument, HasSubstr("node 1 keeps part 4 of 2")));
}

TEST(PartitionerTest, CommunitiesAreKeptTogether) {
  const std::vector<NodePair> pairs = CommunityPairs(8000, 80'000, 8, 0.1, 2);
  std::vector<double> cut(4);
  for (const PartitionMethod method : kMethods) {
    PartitionRig rig;
    ArrayEdges edges(8000, pairs);
    ASSERT_OK_AND_ASSIGN(const Assignment assignment,
                         Partition(edges, {.method = method, .parts = 4, .seed = 1}, rig.context()));
    ASSERT_OK_AND_ASSIGN(const CutEdges count, CountCut(edges, assignment));
    cut[static_cast<size_t>(method)] = count.share();
  }
  const auto of = [&](PartitionMethod method) { return cut[static_cast<size_t>(method)]; };
  EXPECT_NEAR(of(PartitionMethod::kRandom), 0.75, 0.02);
  EXPECT_LT(of(PartitionMethod::kMetis), 0.12);
  EXPECT_LT(of(PartitionMethod::kGrem), 0.3);
  EXPECT_LT(of(PartitionMethod::kBgl), 0.6);
}

TEST(PartitionerTest, BglSpreadsTrainingNodesEvenly) {
  const std::vector<NodePair> pairs = CommunityPairs(20'000, 200'000, 10, 0.1, 2);
  // In two communities only, and nowhere else.
  std::vector<NodeId> train;
  for (NodeId v = 0; v < 20'000; ++v) {
    if (v % 10 < 2 && v % 3 == 0) train.push_back(v);
  }
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    PartitionRig rig;
    ArrayEdges edges(20'000, pairs);
    ASSERT_OK_AND_ASSIGN(
        const Assignment assignment,
        Partition(edges, {.method = PartitionMethod::kBgl, .parts = 4, .seed = seed, .train_nodes = train},
                  rig.context()));
    std::vector<uint64_t> in_part(4);
    for (const NodeId v : train) ++in_part[assignment.part_of[v]];
    EXPECT_LE(static_cast<double>(std::ranges::max(in_part)) * 4 / static_cast<double>(train.size()), 1.05)
        << testing::PrintToString(in_part) << " seed " << seed;
  }
}

TEST(PartitionerTest, MetisOverMoreThanTheBudgetIsRefusedWithWhatItWouldTake) {
  PartitionRig rig(kMiB);
  const std::vector<NodePair> pairs = RandomPairs(1000, 20'000, 1);
  ArrayEdges edges(1000, pairs);
  for (const PartitionMethod method : {PartitionMethod::kMetis, PartitionMethod::kBgl}) {
    PartitionRig small(100 * kKiB);
    EXPECT_THAT(Partition(edges, {.method = method}, small.context()),
                IsStatus(Code::kOutOfBudget, testing::AllOf(HasSubstr("1000 nodes and 20000 edges"),
                                                            HasSubstr("give at least"))));
  }
}

TEST(PartitionerTest, MetisRefusesWhatItsIntegersCannotNumber) {
  // A source that only claims to have so many edges: none is read.
  class ManyEdges final : public EdgeSource {
   public:
    uint64_t node_count() const override { return 1000; }
    uint64_t edge_count() const override { return uint64_t{1} << 31; }
    Status Rewind() override { return Status(Code::kInternal, "read"); }
    Result<size_t> Read(std::span<NodePair>) override { return Status(Code::kInternal, "read"); }
  };
  PartitionRig rig(uint64_t{1} << 50);
  ManyEdges edges;
  EXPECT_THAT(Partition(edges, {.method = PartitionMethod::kMetis}, rig.context()),
              IsStatus(Code::kUnsupported, HasSubstr("use grem")));
}

TEST(PartitionerTest, PartsThatTheBudgetCannotHoldAreRefused) {
  PartitionRig rig;
  const std::vector<NodePair> pairs = {{0, 1}};
  ArrayEdges edges(2, pairs);
  for (const PartitionMethod method : kMethods) {
    EXPECT_THAT(Partition(edges, {.method = method, .parts = 4'000'000'000}, rig.context()),
                IsStatus(Code::kOutOfBudget, HasSubstr("4000000000 parts")));
  }
}

TEST(PartitionerTest, OptionsOutOfRangeAreNamed) {
  PartitionRig rig;
  const std::vector<NodePair> pairs = {{0, 1}};
  ArrayEdges edges(2, pairs);
  EXPECT_THAT(Partition(edges, {.parts = 0}, rig.context()), IsStatus(Code::kUsage, HasSubstr("0 parts")));
  for (const double share : {0.0, -1.0, 1.5, std::nan("")}) {
    EXPECT_THAT(Partition(edges, {.chunk_share = share}, rig.context()),
                IsStatus(Code::kUsage, HasSubstr("chunk")));
  }
  const std::vector<NodeId> train = {1, 2};
  EXPECT_THAT(Partition(edges, {.method = PartitionMethod::kBgl, .train_nodes = train}, rig.context()),
              IsStatus(Code::kInvalidArgument, HasSubstr("training node 2")));
  EXPECT_THAT(ParseName<PartitionMethod>("graem"), IsStatus(Code::kUsage, HasSubstr("grem")));
  for (const PartitionMethod method : kMethods) {
    EXPECT_EQ(*ParseName<PartitionMethod>(NameOf(method)), method);
  }
}

TEST(MoveExcessTest, NodesThatLoseTheLeastLeaveFirst) {
  // A triangle 0-1-2 and a pendant 3 in part 0, which holds 3; 4 and 5 in part 1, 5 beside 3.
  const std::vector<NodePair> pairs = {{0, 1}, {1, 2}, {0, 2}, {2, 3}, {3, 5}, {4, 5}, {3, 4}};
  ArrayEdges edges(6, pairs);
  ASSERT_OK_AND_ASSIGN(const UndirectedGraph graph, MakeUndirectedGraph(edges, true));
  std::vector<uint32_t> part_of = {0, 0, 0, 0, 1, 1};
  MoveExcess(graph, std::vector<uint64_t>{3, 3}, part_of);
  EXPECT_THAT(part_of, testing::ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(UndirectedGraphTest, ParallelEdgesAreMergedAndLoopsLeftOut) {
  const std::vector<NodePair> pairs = {{0, 1}, {1, 0}, {2, 2}, {2, 0}, {0, 1}};
  ArrayEdges edges(3, pairs);
  ASSERT_OK_AND_ASSIGN(const UndirectedGraph graph, MakeUndirectedGraph(edges, true));
  EXPECT_THAT(graph.indptr, testing::ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(graph.neighbors, testing::ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(graph.weights, testing::ElementsAre(3, 1, 3, 1));
}

}  // namespace
}  // namespace quarry
