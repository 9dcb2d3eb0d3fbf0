// The planned road to a device, and any other road by a feed: what the taker finds in its memory, under schedules that
// reorder whatever no event orders, with every split of the cache between device and host, and with every call failing.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/device_pass.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/gpu/handles.h"
#include "quarry/pipeline/device_feed.h"
#include "quarry/pipeline/planned_road.h"
#include "support/fake_device.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::DeviceTaker;
using testing_util::FakeDevice;
using testing_util::FakeDeviceOptions;
using testing_util::OpenRoad;
using testing_util::SmallOptions;
using testing_util::TakePass;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

std::vector<NodeId> TrainNodesOf(const TinyGraph& graph) {
  std::vector<NodeId> nodes = graph.SplitNodes(Split::kTrain);
  std::erase_if(nodes, [&](NodeId node) { return graph.Label(node) < 0; });
  return nodes;
}

// A database with a layout, open.
struct Planned {
  Planned(const TinyGraph& graph, uint64_t cache_percent, Packing packing = Packing::kAlways,
          uint32_t epochs = 1, uint64_t disk_bytes = 0)
      : database(graph), open(database.path(), SmallOptions()), seeds(TrainNodesOf(graph)) {
    open.road.reset();
    LayoutSpec spec = {.road = SmallOptions().spec.ForOtherPasses(), .threads = 2};
    spec.road.cache_bytes = graph.nodes * RowBytes(graph.type, graph.dim) * cache_percent / 100;
    spec.packing = packing;
    spec.epochs = epochs;
    spec.disk_bytes = disk_bytes;
    EXPECT_OK(BuildLayout(*open.store, *open.budget, spec, false, {}));
  }
  // With so many rows of the cache on the device, at most.
  Result<std::unique_ptr<PlannedRoad>> Road(FakeDevice& device, uint64_t rows_max = ~uint64_t{0},
                                            uint64_t device_bytes = kGiB) {
    const uint64_t row_bytes = RowStride(graph().type, graph().dim);
    return PlannedRoad::Open(
        *open.store, *open.budget,
        {.tells_plan = false,
         .device = {
             .device = &device, .bytes = device_bytes, .cache_bytes = std::min(rows_max, kGiB) * row_bytes}});
  }
  uint64_t CacheSlots() {
    FakeDevice device;
    const auto road = Road(device);
    EXPECT_OK(road);
    return (*road)->layout().directory().cache_slots;
  }
  PassOptions Pass() const { return {.seeds = seeds, .pass = 77, .ordered = true}; }
  const TinyGraph& graph() const { return database.graph(); }

  TinyDatabase database;
  OpenRoad open;
  std::vector<NodeId> seeds;
};

TEST(DeviceRoadTest, DeliversEveryRowHoweverTheCacheIsSplit) {
  testing_util::SomeOf some(0, 5);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kInt8}) {
    for (const uint64_t dim : {128, 13}) {
      for (const uint64_t cache_percent : {0, 20, 100}) {
        for (const Packing packing : {Packing::kAlways, Packing::kNever}) {
          if (!some.TakesNext()) continue;
          SCOPED_TRACE(testing::Message() << ElementTypeName(type) << " x " << dim << ", cache "
                                          << cache_percent << " %, " << NameOf(packing));
          Planned planned({.nodes = 1000, .dim = dim, .type = type}, cache_percent, packing, /*epochs=*/2);
          uint64_t splits = 0;
          const uint64_t slots = planned.CacheSlots();
          for (const uint64_t rows_max : {uint64_t{0}, slots / 20, slots / 2, slots}) {
            FakeDevice device;
            ASSERT_OK_AND_ASSIGN(const auto road, planned.Road(device, rows_max));
            const uint64_t on_device = road->plan().device_slots;
            EXPECT_LE(on_device, rows_max);
            if (rows_max == slots) {
              EXPECT_EQ(on_device, slots);
            }
            splits += on_device > 0 && on_device < slots ? 1 : 0;
            DeviceTaker taker(device);
            for (uint64_t pass = 0; pass < 5; ++pass) {  // the cycle, again, and its beginning
              SCOPED_TRACE(testing::Message()
                           << "pass " << pass << ", at most " << rows_max << " rows on the device");
              const uint64_t waits = device.counts().host_waits;
              ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker));
              EXPECT_EQ(taker.count(), CeilDiv(planned.seeds.size(), 32));
              if (pass > 0) {
                EXPECT_EQ(device.counts().host_waits - waits, 2u) << "those for the end of the pass";
              }
              taker.Check();
            }
            EXPECT_EQ(device.misuses(), "");
          }
          if (cache_percent == 20 && dim == 128 &&
              type != ElementType::kInt8) {  // whose rows fill a page with 1,024
            EXPECT_GT(splits, 0u) << "of all shares, none splits the cache";
          }
        }
      }
    }
  }
}

TEST(DeviceRoadTest, IsOrderedByEventsUnderEverySchedule) {
  Planned planned({.nodes = 400}, 20);
  const uint64_t half = planned.CacheSlots() / 2;
  const uint64_t seeds = testing_util::Repetitions(1000, 5);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeDevice device({.seed = seed});
    ASSERT_OK_AND_ASSIGN(const auto road, planned.Road(device, half));
    ASSERT_GT(road->plan().device_slots, 0u);
    {
      DeviceTaker taker(device);
      // Some are not taken, and the rows that they bring into the cache are.
      ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker, seed % 4));
      ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker));
      taker.Check();
    }
    ASSERT_EQ(device.misuses(), "");
    if (testing::Test::HasFailure()) return;
  }
}

// Without the waits for the batch before, the first event that a road makes, rows are wrong: the test above can fail.
TEST(DeviceRoadTest, IsWrongWithoutItsEvents) {
  Planned planned({.nodes = 400}, 20);
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 1000 && wrong == 0; ++seed) {
    FakeDevice device({.seed = seed, .forgets_event = 1});
    ASSERT_OK_AND_ASSIGN(const auto road, planned.Road(device));
    DeviceTaker taker(device);
    testing::TestPartResultArray failures;
    {
      const testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      static_cast<void>(TakePass(*road, planned.Pass(), planned.graph(), taker));
      taker.Check();
    }
    wrong += failures.size() > 0 ? 1 : 0;
  }
  EXPECT_GT(wrong, 0u);
}

TEST(DeviceRoadTest, APassThatIsGivenUpBeginsAnew) {
  Planned planned({.nodes = 1000}, 20);
  FakeDevice device;
  ASSERT_OK_AND_ASSIGN(const auto road, planned.Road(device));
  DeviceTaker taker(device);
  for (const uint64_t batches : {0, 1, 2, 5, 9}) {
    ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker, 0, batches));
    ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker));
    taker.Check();
  }
  EXPECT_EQ(device.misuses(), "");
}

// A taker that asks for what cannot be had misses that batch, and no other is wrong for it.
TEST(DeviceRoadTest, ARefusedWriteLeavesTheCacheRight) {
  Planned planned({.nodes = 1000}, 20);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    FakeDevice device({.seed = seed});
    ASSERT_OK_AND_ASSIGN(const auto road, planned.Road(device));
    DeviceTaker taker(device);
    {
      ASSERT_OK_AND_ASSIGN(const auto stream, road->StartPass(planned.Pass()));
      ASSERT_OK_AND_ASSIGN(const auto memory, gpu::AllocateMemory(device, 1 << 20));
      while (true) {
        ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
        if (batch == nullptr) break;
        EXPECT_THAT(batch->on_device()->WriteTo(
                        {.x = memory.get().data(), .decoded = false, .x_stride_bytes = 1}, nullptr),
                    IsStatus(Code::kInvalidArgument));
      }
      device.Drain();
    }
    ASSERT_OK(TakePass(*road, planned.Pass(), planned.graph(), taker));
    taker.Check();
    ASSERT_EQ(device.misuses(), "");
  }
}

TEST(DeviceRoadTest, EveryFailureOfTheDeviceIsToldAndNothingLeaks) {
  Planned planned({.nodes = 300}, 20);
  for (const bool fails_on : {false, true}) {
    uint64_t at = 1;
    for (bool struck = true; struck; at += testing_util::OneIn() * (at < 60 ? 1 : 7)) {
      SCOPED_TRACE(testing::Message() << "call " << at << (fails_on ? " and all later ones" : ""));
      FakeDevice device({.seed = at, .fail_at = at, .fails_on = fails_on});
      Status status;
      {
        DeviceTaker taker(device);
        auto road = planned.Road(device);
        status = road.status();
        if (road.ok()) status = TakePass(**road, planned.Pass(), planned.graph(), taker);
        if (status.ok()) taker.Check();
        if (road.ok()) taker.Forget();
      }
      struck = device.calls() >= at;
      if (!struck) {
        EXPECT_OK(status);
      } else if (!status.ok()) {
        EXPECT_EQ(status.code(), Code::kIoError) << status.ToString();
      }
      device.Drain();
      EXPECT_EQ(device.held(), 0u);
      EXPECT_EQ(device.misuses(), "");
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(at, 60u);
  }
}

TEST(DeviceRoadTest, TooLittleOfTheDeviceNamesTheLeast) {
  Planned planned({.nodes = 1000}, 20);
  FakeDevice device;
  const Status status = planned.Road(device, 0, 1).status();
  EXPECT_EQ(status.code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("give at least"));
  FakeDevice small({.memory_bytes = 1 << 12});
  EXPECT_THAT(planned.Road(small).status(), IsStatus(Code::kOutOfBudget));
  EXPECT_EQ(small.held(), 0u);
}

// ---- by a feed

TEST(DeviceRoadTest, AFeedDeliversWhatAnyRoadGives) {
  for (const uint64_t dim : {128, 13}) {
    const TinyDatabase database(TinyGraph{.nodes = 1000, .dim = dim});
    OpenRoad open(database.path(), SmallOptions());
    ASSERT_OK(open.status);
    for (uint64_t seed = 1; seed <= testing_util::Repetitions(100, 5); ++seed) {
      FakeDevice device({.seed = seed});
      {
        DeviceFeed feed({.device = &device, .bytes = kGiB}, kGiB);
        DeviceTaker taker(device);
        ASSERT_OK_AND_ASSIGN(auto live,
                             open.road->StartPass({.seeds = TrainNodesOf(database.graph()), .pass = seed}));
        const std::unique_ptr<BatchStream> stream = feed.Feed(std::move(live));
        while (true) {
          ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
          if (batch == nullptr) break;
          ASSERT_OK(taker.Take(*batch, database.graph()));
        }
        taker.Check();
      }
      ASSERT_EQ(device.misuses(), "");
      ASSERT_EQ(device.held(), 0u);
    }
  }
}

}  // namespace
}  // namespace quarry
