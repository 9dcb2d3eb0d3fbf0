// The partitioned road: each edge of the graph is in one batch an epoch, while the parts of both of its ends
// are held.
#include "quarry/pipeline/partitioned_road.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "partition/partitioned_store.h"
#include "quarry/base/random.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::TypedEdge;

constexpr uint32_t kParts = 12;
constexpr uint32_t kBatch = 100;

class PartitionedRoadTest : public testing::Test {
 protected:
  PartitionedRoadTest() {
    EXPECT_OK(BuildPartitioning(*world_.store, world_.budget, {}, assignment_, {}));
    auto opened = StoredPartitioning::Open(*world_.store, world_.budget, "default");
    EXPECT_OK(opened);
    partitioning_ = *std::move(opened);
    edges_ = world_.EdgesIn(PartitionedStore::NewIds(assignment_));
  }
  const PartitionDirectory& directory() const { return partitioning_->directory(); }

  std::unique_ptr<PartitionedRoad> Make(const PartitionedRoadOptions& options, uint64_t seed) {
    auto road = PartitionedRoad::Make(*partitioning_, *disk_, world_.budget, nullptr, options, seed, kBatch);
    EXPECT_OK(road);
    return *std::move(road);
  }

  // All edges of the epoch in the order of batches, in new ids.
  std::vector<TypedEdge> Epoch(PartitionedRoad& road, uint32_t epoch) {
    std::vector<TypedEdge> edges;
    EXPECT_OK(road.StartEpoch(epoch));
    EXPECT_EQ(road.BatchesOf(epoch).value(), road.batch_count());
    for (uint64_t batch = 0; batch < road.batch_count();) {
      EXPECT_OK(road.Enter(batch));
      const EdgeStep& step = road.step();
      EXPECT_EQ(step.first_batch(), batch);
      EXPECT_EQ(road.EdgesBefore(batch), edges.size());
      EXPECT_EQ(step.batch_count(), CeilDiv(step.edges().size(), kBatch));
      EXPECT_LE(step.parts().size(), road.options().buffer);
      for (const Triple& edge : step.edges()) {
        edges.emplace_back(Held(step, edge.head), Held(step, edge.tail), edge.relation);
      }
      batch += step.batch_count();
    }
    EXPECT_EQ(road.EdgesBefore(road.batch_count()), edges.size());
    return edges;
  }
  NodeId Held(const EdgeStep& step, uint64_t place) {
    EXPECT_LT(place, step.node_count());
    const NodeId node = step.NodeAt(place);
    EXPECT_TRUE(std::ranges::count(step.parts(), directory().PartOf(node)) == 1);
    return node;
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  PartitionedStore world_{*disk_};
  const Assignment assignment_ = RandomAssignment(SmallStore::kNodes, kParts, 8);
  std::unique_ptr<StoredPartitioning> partitioning_;
  std::vector<TypedEdge> edges_;  // ascending
};

const PartitionedRoadOptions kOptions[] = {
    {.order = PartitionOrder::kBeta, .buffer = 3, .logical = kParts},
    {.order = PartitionOrder::kComet, .buffer = 4, .logical = 6},
    {.order = PartitionOrder::kComet, .buffer = kParts, .logical = 2},
    {.order = PartitionOrder::kComet, .buffer = 2, .logical = 12, .prefetch = false},
    {.order = PartitionOrder::kEuler, .buffer = 8, .logical = 3},
};

TEST_F(PartitionedRoadTest, EachEdgeIsUsedOnceAnEpochWhileItsPartsAreHeld) {
  for (const PartitionedRoadOptions& options : kOptions) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", PartitionOrderName(options.order), seed));
      const auto road = Make(options, seed);
      std::set<std::vector<TypedEdge>> orders;
      uint64_t before = 0;
      for (uint32_t epoch = 1; epoch <= 3; ++epoch) {
        EXPECT_EQ(road->BatchesBefore(epoch).value(), before);
        std::vector<TypedEdge> edges = Epoch(*road, epoch);
        before += road->batch_count();
        orders.insert(edges);
        std::ranges::sort(edges);
        ASSERT_EQ(edges, edges_);
      }
      EXPECT_EQ(orders.size(), 3u) << "each epoch has an order of its own";
    }
  }
}

TEST_F(PartitionedRoadTest, OneSeedGivesOneOrderFromAnyPlaceOn) {
  for (const PartitionedRoadOptions& options : kOptions) {
    const auto road = Make(options, 5);
    Epoch(*road, 1);
    const std::vector<TypedEdge> expected = Epoch(*road, 2);
    for (const uint64_t batch : {uint64_t{0}, road->batch_count() / 2, road->batch_count() - 1}) {
      const auto again = Make(options, 5);
      ASSERT_OK(again->StartEpoch(2));
      ASSERT_OK(again->Enter(batch));
      const EdgeStep& step = again->step();
      ASSERT_GE(batch, step.first_batch());
      ASSERT_LT(batch, step.first_batch() + step.batch_count());
      const uint64_t first = again->EdgesBefore(step.first_batch());
      for (size_t i = 0; i < step.edges().size(); ++i) {
        const Triple& edge = step.edges()[i];
        ASSERT_EQ(TypedEdge(step.NodeAt(edge.head), step.NodeAt(edge.tail), edge.relation),
                  expected[first + i]);
      }
    }
  }
}

TEST_F(PartitionedRoadTest, ListsAreOfTheEdgesBetweenHeldParts) {
  const auto road = Make(kOptions[1], 4);
  ASSERT_OK(road->StartEpoch(1));
  for (uint64_t batch = 0; batch < road->batch_count();) {
    ASSERT_OK(road->Enter(batch));
    const EdgeStep& step = road->step();
    const auto is_held = [&](NodeId node) {
      return std::ranges::count(step.parts(), directory().PartOf(node)) == 1;
    };
    using Ends = std::pair<NodeId, NodeId>;
    std::vector<Ends> expected, in, out;
    for (const auto& [source, destination, relation] : edges_) {
      if (is_held(source) && is_held(destination)) expected.emplace_back(source, destination);
    }
    HeldLists lists(Direction::kBoth);
    road->TakeLists(lists);
    ASSERT_EQ(lists.node_count(), step.node_count());
    for (NodeId place = 0; place < lists.node_count(); ++place) {
      const uint64_t first = lists.Degree(0, place), all = first + lists.Degree(1, place);
      std::vector<uint64_t> positions(all);
      for (uint64_t i = 0; i < all; ++i) positions[i] = all - 1 - i;  // in any order
      std::vector<NodeId> neighbors(all);
      lists.Take(place, positions, neighbors.data());
      for (uint64_t i = 0; i < all; ++i) {
        const Ends ends(step.NodeAt(neighbors[i]), step.NodeAt(place));
        if (positions[i] < first) {
          in.push_back(ends);
        } else {
          out.emplace_back(ends.second, ends.first);
        }
      }
    }
    for (auto* const edges : {&expected, &in, &out}) std::ranges::sort(*edges);
    ASSERT_EQ(in, expected);
    ASSERT_EQ(out, expected);
    batch += step.batch_count();
  }
}

TEST_F(PartitionedRoadTest, TheTunedBufferIsTheLargestThatFits) {
  constexpr uint64_t kFrame = 64 << 10;
  uint32_t last = 0;
  for (uint64_t memory = kMiB / 4; memory < 4 * kMiB; memory += memory / 8) {
    for (const PartitionOrder order :
         {PartitionOrder::kComet, PartitionOrder::kBeta, PartitionOrder::kEuler}) {
      const auto tuned = TuneRoad(directory(), {.order = order}, kFrame, memory);
      if (!tuned.ok()) {
        EXPECT_THAT(tuned, IsStatus(Code::kOutOfBudget));
        EXPECT_THAT(std::string(tuned.status().message()), HasSubstr("the least buffer of the 12 parts"));
        continue;
      }
      EXPECT_LE(PartitionedRoad::Bytes(directory(), *tuned) + RoadFrames(directory(), *tuned) * kFrame,
                memory);
      if (order != PartitionOrder::kComet) continue;
      EXPECT_GE(tuned->buffer, last);
      last = tuned->buffer;
    }
  }
  EXPECT_EQ(last, kParts);
}

TEST_F(PartitionedRoadTest, WhatCannotBeIsRefused) {
  const auto tune = [&](const PartitionedRoadOptions& options) {
    const auto tuned = TuneRoad(directory(), options, 4096, kGiB);
    EXPECT_THAT(tuned, IsStatus(Code::kUsage));
    return std::string(tuned.status().message());
  };
  EXPECT_THAT(tune({.order = PartitionOrder::kNode}), HasSubstr("node classification"));
  EXPECT_THAT(tune({.buffer = 40, .logical = 6}), HasSubstr("40"));
  EXPECT_THAT(tune({.logical = 5}), HasSubstr("12 parts"));
  const uint64_t bytes = PartitionedRoad::Bytes(directory(), kOptions[1]);
  MemoryBudget small(bytes - 1), enough(bytes);
  EXPECT_THAT(PartitionedRoad::Make(*partitioning_, *disk_, small, nullptr, kOptions[1], 1, kBatch),
              IsStatus(Code::kOutOfBudget));
  const auto road = PartitionedRoad::Make(*partitioning_, *disk_, enough, nullptr, kOptions[1], 1, kBatch);
  ASSERT_OK(road);
  for (uint32_t epoch = 1; epoch <= 5; ++epoch) Epoch(**road, epoch);
  EXPECT_EQ(enough.used_bytes(), bytes);
}

}  // namespace
}  // namespace quarry
