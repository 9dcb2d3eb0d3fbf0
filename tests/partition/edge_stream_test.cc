#include "quarry/partition/edge_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "partition/edge_list_util.h"
#include "sampling/topology_file.h"
#include "support/fault_backend.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

std::vector<NodePair> ReadAll(EdgeSource& edges, size_t at_once = 1000) {
  std::vector<NodePair> all;
  std::vector<NodePair> read(at_once);
  EXPECT_OK(edges.Rewind());
  while (true) {
    const auto count = edges.Read(read);
    EXPECT_OK(count.status());
    if (!count.ok() || *count == 0) return all;
    all.insert(all.end(), read.begin(), read.begin() + static_cast<std::ptrdiff_t>(*count));
  }
}

std::vector<NodePair> Sorted(std::vector<NodePair> edges) {
  std::ranges::sort(edges, {}, [](const NodePair& e) { return std::pair(e.source, e.destination); });
  return edges;
}

TEST(EdgeStreamTest, AShuffleKeepsEveryEdgeAndIsReadTheSameEachTime) {
  for (const uint64_t edge_count : {0, 1, 511, 512, 513, 70'000, 1'000'000}) {
    PartitionRig rig;
    const std::vector<NodePair> pairs = RandomPairs(5000, edge_count, edge_count + 1);
    ArrayEdges edges(5000, pairs);
    auto stream = ShuffleEdges(edges, 7, rig.context());
    ASSERT_OK(stream.status());
    EXPECT_EQ((*stream)->node_count(), 5000);
    ASSERT_EQ((*stream)->edge_count(), edge_count);
    const std::vector<NodePair> shuffled = ReadAll(**stream, 777);
    EXPECT_EQ(Sorted(shuffled), Sorted(pairs));
    if (edge_count > 500) {
      EXPECT_NE(shuffled, pairs);
    }
    EXPECT_EQ(ReadAll(**stream, 100'000), shuffled);
    (*stream)->Close();
    EXPECT_EQ(rig.budget().used_bytes(), 0);
    EXPECT_TRUE(std::filesystem::is_empty(rig.folder().path()));
  }
}

TEST(EdgeStreamTest, TheSeedAloneNamesTheOrderWhateverTheBudget) {
  const std::vector<NodePair> pairs = RandomPairs(1000, 600'000, 3);
  const auto shuffled = [&](uint64_t seed, uint64_t budget_bytes) {
    PartitionRig rig(budget_bytes);
    ArrayEdges edges(1000, pairs);
    auto stream = ShuffleEdges(edges, seed, rig.context());
    EXPECT_OK(stream.status());
    return ReadAll(**stream);
  };
  const std::vector<NodePair> once = shuffled(1, kGiB);
  EXPECT_EQ(shuffled(1, 16 * kMiB), once);
  EXPECT_NE(shuffled(2, kGiB), once);
}

// Each of the 6 orders of 3 edges, in 300 shuffles: 50 times each on average, with a deviation of 6.5.
TEST(EdgeStreamTest, OrdersAreEquallyLikely) {
  std::map<std::vector<NodeId>, int> orders;
  PartitionRig rig;
  const std::vector<NodePair> pairs = {{0, 1}, {1, 2}, {2, 3}};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    ArrayEdges edges(4, pairs);
    ASSERT_OK_AND_ASSIGN(const auto stream, ShuffleEdges(edges, seed, rig.context()));
    std::vector<NodeId> order;
    for (const NodePair& edge : ReadAll(*stream)) order.push_back(edge.source);
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 6);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 50, 30) << testing::PrintToString(order);
}

// A sorted list comes out so that its first tenth is a sample of all of it.
TEST(EdgeStreamTest, AChunkIsASampleOfTheWholeList) {
  PartitionRig rig;
  std::vector<NodePair> pairs(1'000'000);
  for (uint32_t i = 0; i < pairs.size(); ++i) pairs[i] = {i, i};
  ArrayEdges edges(pairs.size(), pairs);
  auto stream = ShuffleEdges(edges, 11, rig.context());
  ASSERT_OK(stream.status());
  const std::vector<NodePair> shuffled = ReadAll(**stream);
  for (size_t chunk = 0; chunk < 10; ++chunk) {
    std::vector<int> of_tenth(10);
    for (size_t i = 0; i < 100'000; ++i) ++of_tenth[shuffled[chunk * 100'000 + i].source / 100'000];
    for (const int count : of_tenth) EXPECT_NEAR(count, 10'000, 500);
  }
}

TEST(EdgeStreamTest, ABudgetThatIsTooSmallIsRefusedWithTheLeastThatWouldDo) {
  PartitionRig rig(600 * kKiB);
  const std::vector<NodePair> pairs = RandomPairs(1000, 600'000, 3);
  ArrayEdges edges(1000, pairs);
  const auto stream = ShuffleEdges(edges, 1, rig.context());
  ASSERT_EQ(stream.status().code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(stream.status().message()), HasSubstr("give at least"));
  EXPECT_EQ(rig.budget().used_bytes(), 0);
}

// Every open, read and write in turn: one error that names the file, and nothing is held or left by name.
TEST(EdgeStreamTest, AFaultOfTheDiskIsReportedAndLeavesNothing) {
  const std::vector<NodePair> pairs = RandomPairs(1000, 300'000, 3);
  PartitionRig rig;
  FaultBackend faulty(rig.backend());
  const PartitionContext context{faulty, rig.budget(), rig.folder().path()};
  const auto work = [&]() -> Result<std::vector<NodePair>> {
    ArrayEdges edges(1000, pairs);
    QUARRY_TRY(const auto stream, ShuffleEdges(edges, 5, context));
    QUARRY_RETURN_IF_ERROR(stream->Rewind());
    std::vector<NodePair> all(pairs.size());
    QUARRY_TRY(const size_t count, stream->Read(all));
    all.resize(count);
    return all;
  };
  ASSERT_OK_AND_ASSIGN(const std::vector<NodePair> expected, work());
  int strikes = 0;
  for (const FaultKind kind : {FaultKind::kCreate, FaultKind::kRead, FaultKind::kWrite}) {
    for (const int error : {EIO, 0}) {
      for (uint64_t at = 1;; ++at) {
        faulty.SetPlans({{.kind = kind, .at = at, .error = error}});
        const auto result = work();
        if (faulty.strikes() == 0) break;
        ++strikes;
        ASSERT_LT(at, 1000);
        EXPECT_EQ(rig.budget().used_bytes(), 0);
        EXPECT_TRUE(std::filesystem::is_empty(rig.folder().path()));
        if (error == 0 && result.ok()) {
          EXPECT_EQ(*result, expected);
        } else {
          EXPECT_THAT(result, IsStatus(Code::kIoError, HasSubstr("edges-")));
        }
      }
    }
  }
  EXPECT_GT(strikes, 10);
}

TEST(EdgeStreamTest, ATopologysEdgesAreThoseOfItsLists) {
  PartitionRig rig;
  const std::vector<NodeId> sources = {3, 0, 1, 3, 2};
  ASSERT_OK_AND_ASSIGN(const auto topology, Topology::FromMemory({0, 1, 1, 4, 5}, sources));
  ASSERT_OK_AND_ASSIGN(const auto edges, TopologyEdges::Make(rig.backend(), *topology, rig.budget()));
  for (const size_t at_once : {1, 2, 10}) {
    EXPECT_THAT(ReadAll(*edges, at_once),
                ElementsAreArray<NodePair>({{3, 0}, {0, 2}, {1, 2}, {3, 2}, {2, 3}}));
  }
}

TEST(EdgeStreamTest, ATopologyIsReadFromItsFile) {
  PartitionRig rig;
  Rng rng(4);
  NeighborLists lists;
  std::vector<NodePair> expected;
  for (NodeId v = 0; v < 3000; ++v) {
    for (uint64_t i = rng.Below(300); i > 0; --i) {
      lists.indices.push_back(static_cast<NodeId>(rng.Below(3000)));
      expected.push_back({lists.indices.back(), v});
    }
    lists.indptr.push_back(lists.indices.size());
  }
  ASSERT_OK_AND_ASSIGN(const auto topology,
                       WriteTopology(rig.backend(), rig.folder().path(), "graph.qtp", lists, nullptr));
  {
    ASSERT_OK_AND_ASSIGN(const auto edges, TopologyEdges::Make(rig.backend(), *topology, rig.budget()));
    EXPECT_EQ(ReadAll(*edges, 1001), expected);
    EXPECT_EQ(ReadAll(*edges, 100'000), expected);
  }
  EXPECT_EQ(rig.budget().used_bytes(), 0);
}

TEST(EdgeStreamTest, ADamagedPageOfATopologyIsReportedWithItsPlace) {
  PartitionRig rig;
  NeighborLists lists;
  lists.indices.assign(5000, 0);
  lists.indptr = {0, 5000};
  ASSERT_OK_AND_ASSIGN(const auto topology,
                       WriteTopology(rig.backend(), rig.folder().path(), "graph.qtp", lists, nullptr));
  testing_util::FlipByte(rig.folder() / "graph.qtp",
                         topology->indices_offset(Adjacency::kCsc) + 2 * kPageBytes);
  ASSERT_OK_AND_ASSIGN(const auto edges, TopologyEdges::Make(rig.backend(), *topology, rig.budget()));
  EXPECT_THAT(ShuffleEdges(*edges, 1, rig.context()), IsStatus(Code::kCorruption, HasSubstr("graph.qtp")));
}

}  // namespace
}  // namespace quarry
