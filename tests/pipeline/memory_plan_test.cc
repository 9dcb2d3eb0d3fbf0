#include "memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using Placement = LiveRoadOptions::TopologyPlacement;

// 4 M nodes x 128 float32, 60 M edges, batches of 500 thousand input nodes.
MemoryDemand Typical(uint64_t available_bytes) {
  MemoryDemand demand;
  demand.available_bytes = available_bytes;
  demand.resident_bytes = 100 * kMiB;
  demand.indices_bytes = 240'000'000;
  demand.node_count = 4'000'000;
  demand.slot_bytes = 512;
  demand.cache_bytes = 205 * kMiB;
  demand.rows_of_batches = {500'000, 850'000, 1'130'000};
  demand.frame_bytes = 10 * kMiB;
  demand.memory_sampler_bytes = 16 * kMiB;
  demand.disk_sampler_bytes = 40 * kMiB;
  demand.extractor_bytes = 12 * kMiB;
  demand.staging_bytes = 16 * kMiB;
  demand.staging_bytes_min = 2 * kMiB;
  return demand;
}

LiveRoadPlan Plan(const MemoryDemand& demand) {
  auto plan = DivideMemory(demand);
  EXPECT_OK(plan);
  return plan.ok() ? *plan : LiveRoadPlan{};
}

TEST(MemoryPlanTest, KeepsTheTopologyInMemoryAndAsManyBatchesInFlightAsFit) {
  const LiveRoadPlan plan = Plan(Typical(8 * kGiB));
  EXPECT_TRUE(plan.topology_in_memory);
  EXPECT_EQ(plan.batches_in_flight, 3u);
  EXPECT_EQ(plan.topology_bytes, 240'000'000u);
  EXPECT_EQ(plan.neighbor_cache_bytes, 0u);
  EXPECT_EQ(plan.retained_max, 205 * kMiB / 512);
  EXPECT_EQ(plan.slot_count, 1'130'000u) << "retained rows make way for batches in flight";
}

TEST(MemoryPlanTest, ALargeCacheNeedsRoomBesideOneBatchOnly) {
  MemoryDemand demand = Typical(8 * kGiB);
  demand.cache_bytes = 2'000'000 * uint64_t{512};
  const LiveRoadPlan plan = Plan(demand);
  EXPECT_EQ(plan.batches_in_flight, 3u);
  EXPECT_EQ(plan.retained_max, 2'000'000u);
  EXPECT_EQ(plan.slot_count, 2'500'000u);
}

TEST(MemoryPlanTest, PutsTheTopologyOnDiskBeforeItGivesUpASecondBatchInFlight) {
  const LiveRoadPlan plan = Plan(Typical(850 * kMiB));
  EXPECT_FALSE(plan.topology_in_memory);
  EXPECT_EQ(plan.batches_in_flight, 2u);
  EXPECT_GT(plan.neighbor_cache_bytes, 0u);
  EXPECT_EQ(plan.total_bytes(), 850 * kMiB) << "the neighbor cache takes what is left";
}

TEST(MemoryPlanTest, HonoursAPlacementThatWasAskedFor) {
  MemoryDemand demand = Typical(8 * kGiB);
  demand.placement = Placement::kDisk;
  EXPECT_FALSE(Plan(demand).topology_in_memory);
  demand = Typical(900 * kMiB);
  demand.placement = Placement::kMemory;
  const LiveRoadPlan plan = Plan(demand);
  EXPECT_TRUE(plan.topology_in_memory);
  EXPECT_EQ(plan.batches_in_flight, 1u);
}

TEST(MemoryPlanTest, ACacheOfTheWholeTableHoldsEveryRowOnce) {
  MemoryDemand demand = Typical(8 * kGiB);
  demand.cache_bytes = 4'000'000 * uint64_t{512};
  const LiveRoadPlan plan = Plan(demand);
  EXPECT_EQ(plan.slot_count, demand.node_count);
  EXPECT_EQ(plan.retained_max, demand.node_count);
  EXPECT_EQ(plan.flight_bytes, 0u);
}

TEST(MemoryPlanTest, NeverPlansMoreThanThereIsAndTheLeastThatItNamesDoes) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    MemoryDemand demand = Typical(rng.Below(1200) * kMiB);
    demand.other_bytes = rng.Below(100) * kMiB + rng.Below(kMiB);
    demand.cache_bytes = rng.Below(500 * kMiB);
    demand.extractor_threads = 1 + static_cast<unsigned>(rng.Below(4));
    demand.sampler_threads = 1 + static_cast<unsigned>(rng.Below(4));
    demand.placement = static_cast<Placement>(rng.Below(3));
    auto plan = DivideMemory(demand);
    if (plan.ok()) {
      EXPECT_LE(plan->total_bytes(), demand.available_bytes);
      EXPECT_GE(plan->slot_count * demand.slot_bytes, plan->cache_bytes);
      EXPECT_GE(plan->slot_count, demand.rows_of_batches.front());
      continue;
    }
    ASSERT_THAT(plan, IsStatus(Code::kOutOfBudget));
    const std::string message(plan.status().message());
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, std::regex("memory budget of ([0-9]+)MiB"))) << message;
    const uint64_t least = std::stoull(match[1]) * kMiB;
    ASSERT_GT(least, demand.available_bytes + demand.other_bytes);
    demand.available_bytes = least - demand.other_bytes;
    EXPECT_OK(DivideMemory(demand)) << "named " << message;
    demand.available_bytes -= kMiB;
    EXPECT_FALSE(DivideMemory(demand).ok()) << "one MiB less would have done: " << message;
  }
}

TEST(MemoryPlanTest, ADeviceHasTheRowsAndAsManyStayAsItHasRoomFor) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    MemoryDemand demand = Typical(2 * kGiB);
    demand.extractor_threads = 1 + static_cast<unsigned>(rng.Below(4));
    demand.device = DeviceDemand{
        .options = {.frames = {.stride = demand.slot_bytes, .piece_bytes = 16 * kMiB}, .row_pieces = 4},
        .bytes = rng.Below(2500) * kMiB,
        .cache_bytes = rng.Below(2) == 0 ? ~uint64_t{0} : rng.Below(1000) * kMiB};
    const auto plan = DivideMemory(demand);
    if (plan.ok()) {
      const LiveDeviceOptions options = DeviceOptionsOf(demand, *plan);
      EXPECT_EQ(plan->device_bytes, LiveDevice::DeviceBytes(options));
      EXPECT_LE(plan->device_bytes, demand.device->bytes);
      EXPECT_LE(plan->total_bytes(), demand.available_bytes);
      EXPECT_LE(plan->cache_bytes, demand.device->cache_bytes);
      EXPECT_GE(plan->slot_count, demand.rows_of_batches[plan->batches_in_flight - 1]);
      const uint64_t wanted = std::min(demand.node_count, demand.device->cache_bytes / demand.slot_bytes);
      EXPECT_TRUE(plan->retained_max == wanted ||
                  plan->device_bytes + 2 * demand.slot_bytes > demand.device->bytes)
          << "one more would have fitted";
      continue;
    }
    const std::string message(plan.status().message());
    std::smatch match;
    ASSERT_TRUE(std::regex_search(message, match, std::regex("device's memory.*at least ([0-9]+)MiB")))
        << message;
    const uint64_t least = std::stoull(match[1]) * kMiB;
    ASSERT_GT(least, demand.device->bytes);
    demand.device->bytes = least;
    EXPECT_OK(DivideMemory(demand)) << "named " << message;
    demand.device->bytes -= kMiB;
    EXPECT_FALSE(DivideMemory(demand).ok()) << "one MiB less would have done: " << message;
  }
}

TEST(MemoryPlanTest, ACacheOfWhatIsLeftIsTheLargestThatFits) {
  const uint64_t seed = testing::UnitTest::GetInstance()->random_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    MemoryDemand demand = Typical((700 + rng.Below(4000)) * kMiB);
    demand.beside_bytes = rng.Below(2) * rng.Below(200) * kMiB;
    demand.cache_bytes = 0;
    const LiveRoadPlan without = Plan(demand);
    demand.cache_takes_what_is_left = true;
    const LiveRoadPlan plan = Plan(demand);
    // It takes nothing from batches in flight or from the topology.
    EXPECT_EQ(plan.batches_in_flight, without.batches_in_flight);
    EXPECT_EQ(plan.topology_in_memory, without.topology_in_memory);
    EXPECT_LE(plan.total_bytes() + demand.beside_bytes, demand.available_bytes);
    if (!plan.topology_in_memory) {
      const uint64_t rest = without.neighbor_cache_bytes;
      EXPECT_GE(plan.neighbor_cache_bytes, std::min(demand.indices_bytes, rest / 2));
      continue;
    }
    if (plan.retained_max == demand.node_count) continue;
    demand.cache_takes_what_is_left = false;
    demand.cache_bytes = (plan.retained_max + 1) * demand.slot_bytes;
    const auto larger = DivideMemory(demand);  // has fewer batches, or no room
    EXPECT_TRUE(!larger.ok() || larger->batches_in_flight < plan.batches_in_flight ||
                !larger->topology_in_memory);
  }
}

}  // namespace
}  // namespace quarry
