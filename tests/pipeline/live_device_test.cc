// The live road to a device: what the taker finds in its memory is what the road to memory gives, bit by bit, under schedules
// that reorder whatever no event orders, with caches from none to all rows, and with every call failing.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "pipeline/device_pass.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/pipeline/live_road.h"
#include "support/fake_device.h"
#include "support/instrumented.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::DeviceCopy;
using testing_util::DeviceTaker;
using testing_util::FakeDevice;
using testing_util::IsInstrumented;
using testing_util::OpenRoad;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

// A batch of a road to memory, as a taker would have it.
DeviceCopy CopyOf(const BatchView& view) {
  const FeatureView& features = view.features;
  return testing_util::CopyOf(view, features.dim, [&](size_t i, std::span<float> row) {
    DecodeRow(features.element_type, {features.Row(i), RowBytes(features.element_type, features.dim)}, row);
  });
}

using Batches = std::map<uint64_t, DeviceCopy>;  // by number

// A database, its road to memory, and what passes of that give.
struct World {
  explicit World(const TinyGraph& graph) : database(graph), open(database.path(), SmallOptions()) {
    EXPECT_OK(open.status);
  }
  Batches Expected(const PassOptions& pass) {
    Batches batches;
    const auto stream = open.road->StartPass(pass);
    EXPECT_OK(stream);
    while (true) {
      const auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) return batches;
      batches[(*batch)->index()] = CopyOf((*batch)->view());
    }
  }
  // With `rows` that stay on the device.
  LiveRoadOptions Options(FakeDevice& device, uint64_t rows, unsigned threads = 2) const {
    LiveRoadOptions options = SmallOptions();
    options.tells_plan = false;
    options.sampler_threads = options.extractor_threads = threads;
    options.gpu = {.device = &device,
                   .bytes = kGiB,
                   .cache_bytes = rows * RoundUp(RowBytes(database.graph().type, database.graph().dim), 16)};
    return options;
  }
  Result<std::unique_ptr<LiveRoad>> Road(const LiveRoadOptions& options) {
    return LiveRoad::Open(*open.store, *open.budget, options);
  }
  PassOptions Pass(uint64_t number, bool ordered = true) const {
    return {.seeds = database.graph().SplitNodes(Split::kTrain), .pass = number, .ordered = ordered};
  }

  TinyDatabase database;
  OpenRoad open;
};

// One pass, each batch taken but every `skip`-th (0: all).
Status TakePass(Road& road, const PassOptions& pass, const Batches& expected, DeviceTaker& taker,
                uint64_t skip = 0, uint64_t batches_max = ~uint64_t{0}) {
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream, road.StartPass(pass));
  for (uint64_t count = 0; count < batches_max; ++count) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (batch == nullptr) {
      EXPECT_EQ(count, expected.size());
      return Status::Ok();
    }
    EXPECT_TRUE(batch->view().features.rows.empty());
    if (pass.ordered) {
      EXPECT_EQ(batch->index(), count);
    }
    if (skip > 0 && count % skip == skip - 1) continue;
    QUARRY_RETURN_IF_ERROR(taker.Take(*batch, expected.at(batch->index())));
  }
  return Status::Ok();
}

TEST(LiveDeviceTest, DeliversWhatTheRoadToMemoryGivesWhateverStays) {
  testing_util::SomeOf some(0, 5);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kInt8}) {
    for (const uint64_t dim : {128, 13}) {
      World world({.nodes = 1000, .dim = dim, .type = type});
      const Batches expected[] = {world.Expected(world.Pass(0)), world.Expected(world.Pass(1))};
      for (const uint64_t rows : {0, 100, 500, 1000}) {
        for (const unsigned threads : {1U, 3U}) {
          for (const bool ordered : {true, false}) {
            if (!some.TakesNext()) continue;
            SCOPED_TRACE(testing::Message() << ElementTypeName(type) << " x " << dim << ", " << rows
                                            << " rows stay, " << threads << " threads, ordered " << ordered);
            FakeDevice device({.seed = rows + threads});
            {
              ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, rows, threads)));
              EXPECT_EQ(road->plan().retained_max, rows);
              ASSERT_OK_AND_ASSIGN(const uint64_t free_bytes, device.FreeBytes());
              EXPECT_EQ(road->plan().device_bytes, kGiB - free_bytes) << "what the plan says is taken";
              DeviceTaker taker(device);
              for (uint64_t pass = 0; pass < 2; ++pass) {
                const uint64_t waits = device.counts().host_waits;
                ASSERT_OK(TakePass(*road, world.Pass(pass, ordered), expected[pass], taker));
                EXPECT_EQ(device.counts().host_waits, waits);
                taker.Check();
              }
            }
            EXPECT_EQ(device.misuses(), "");
            EXPECT_EQ(device.held(), 0u);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

TEST(LiveDeviceTest, SamplesThereAsTheProcessorDoes) {
  World world({.nodes = 1000});
  const Batches expected[] = {world.Expected(world.Pass(0)), world.Expected(world.Pass(1))};
  for (const bool rows_too : {true, false}) {
    for (const unsigned threads : {1U, 3U}) {
      SCOPED_TRACE(testing::Message() << threads << " threads" << (rows_too ? ", and rows" : ""));
      FakeDevice device({.seed = threads});
      {
        LiveRoadOptions options = world.Options(device, 300, threads);
        options.sampling = options.gpu;
        options.sampling.samples = true;
        if (!rows_too) options.gpu = {};
        LiveRoadOptions small = options;
        small.sampling.bytes = 10 * kKiB;
        const Status refused = world.Road(small).status();
        EXPECT_EQ(refused.code(), Code::kOutOfBudget);
        EXPECT_THAT(refused.message(), HasSubstr("sampling on the device takes"));
        EXPECT_EQ(device.held(), 0u);
        LiveRoadOptions on_disk = options;
        on_disk.topology_placement = LiveRoadOptions::TopologyPlacement::kDisk;
        EXPECT_EQ(world.Road(on_disk).status().code(), Code::kUsage);
        ASSERT_OK_AND_ASSIGN(const auto road, world.Road(options));
        const LiveRoadPlan& plan = road->plan();
        EXPECT_EQ(plan.device_bytes + plan.sampling_device_bytes, kGiB - device.FreeBytes().value());
        EXPECT_GT(plan.sampling_device_bytes, 0u);
        DeviceTaker taker(device);
        const uint64_t launches = device.counts().launches, waits = device.counts().host_waits;
        for (uint64_t pass = 0; pass < 2; ++pass) {
          if (rows_too) {
            ASSERT_OK(TakePass(*road, world.Pass(pass), expected[pass], taker));
            taker.Check();
            continue;
          }
          ASSERT_OK_AND_ASSIGN(const auto stream, road->StartPass(world.Pass(pass)));
          for (const auto& [number, batch] : expected[pass]) {
            ASSERT_OK_AND_ASSIGN(const auto given, stream->Next());
            ASSERT_EQ(CopyOf(given->view()), batch) << number;
          }
        }
        EXPECT_GT(device.counts().launches, launches);
        EXPECT_EQ(device.counts().host_waits, waits);
      }
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(device.held(), 0u);
    }
  }
}

TEST(LiveDeviceTest, IsOrderedByEventsUnderEverySchedule) {
  World world({.nodes = 400});
  const Batches expected[] = {world.Expected(world.Pass(0)), world.Expected(world.Pass(1))};
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(1000, 5); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeDevice device({.seed = seed});
    {
      ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, seed % 5 * 60)));
      DeviceTaker taker(device);
      ASSERT_OK(TakePass(*road, world.Pass(0, seed % 2 == 0), expected[0], taker, seed % 4));
      ASSERT_OK(TakePass(*road, world.Pass(1, seed % 3 == 0), expected[1], taker));
      taker.Check();
    }
    ASSERT_EQ(device.misuses(), "");
    ASSERT_EQ(device.held(), 0u);
    if (testing::Test::HasFailure()) return;
  }
}

// Whether a schedule is wrong where nobody waits for the event that was made as that one: the first that is found.
bool IsWrongWithout(World& world, const Batches& expected, uint64_t event) {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= 1000 && wrong == 0; ++seed) {
    FakeDevice device({.seed = seed, .forgets_event = event});
    const auto road = world.Road(world.Options(device, 0));
    EXPECT_OK(road);
    DeviceTaker taker(device);
    testing::TestPartResultArray failures;
    {
      const testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      static_cast<void>(TakePass(**road, world.Pass(0), expected, taker));
      taker.Check();
    }
    wrong += failures.size() > 0 ? 1 : 0;
  }
  return wrong > 0;
}

// The test above can fail: a piece is filled anew behind its copy, and slots are behind the gather that reads them.
TEST(LiveDeviceTest, IsWrongWithoutItsEvents) {
  World world({.nodes = 400});
  const Batches expected = world.Expected(world.Pass(0));
  FakeDevice device;
  ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, 0)));
  // Made before them: one for the cache of the frames, two for each frame, one for each of the other pieces.
  const uint64_t frames = road->plan().frame_count - 2, pieces = 2 + 2;
  if (!IsInstrumented()) {  // it is a race, which a sanitizer finds
    EXPECT_TRUE(IsWrongWithout(world, expected, 1 + 2 * frames + pieces)) << "the last piece's copy";
  }
  EXPECT_TRUE(IsWrongWithout(world, expected, 1 + 2 * frames + pieces + 1)) << "the gather";
}

TEST(LiveDeviceTest, APassThatIsGivenUpLeavesTheRoadWhole) {
  World world({.nodes = 1000});
  const Batches expected = world.Expected(world.Pass(0));
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(20, 2); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    FakeDevice device({.seed = seed});
    {
      ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, 200)));
      DeviceTaker taker(device);
      for (const uint64_t batches : {0, 1, 2, 5, 9}) {
        ASSERT_OK(TakePass(*road, world.Pass(0, seed % 2 == 0), expected, taker, 0, batches));
        ASSERT_OK(TakePass(*road, world.Pass(0, batches % 2 == 0), expected, taker));
        taker.Check();
      }
    }
    ASSERT_EQ(device.misuses(), "");
    ASSERT_EQ(device.held(), 0u);
  }
}

TEST(LiveDeviceTest, RowsThatWerePutAreTheNewestOfTheRoadsSnapshot) {
  World world({.nodes = 1000});
  FakeDevice device;
  {
    ASSERT_OK_AND_ASSIGN(const auto old, world.Road(world.Options(device, 200)));
    const Batches before = world.Expected(world.Pass(0));
    DeviceTaker taker(device);
    for (uint64_t round = 0; round < 3; ++round) {
      WriteBatch writes;
      for (uint64_t node = round; node < 1000; node += 2 + round) {
        const std::vector<float> values(128, static_cast<float>(node * 10 + round));
        writes.Put("feature", node, std::as_bytes(std::span(values)));
      }
      ASSERT_OK(world.open.store->Write(writes));
      world.open.Reopen(SmallOptions());
      ASSERT_OK(world.open.status);
      const Batches after = world.Expected(world.Pass(0));
      EXPECT_NE(before, after);
      ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, 200)));
      ASSERT_OK(TakePass(*road, world.Pass(0), after, taker));
      ASSERT_OK(TakePass(*old, world.Pass(0), before, taker));
      ASSERT_OK(TakePass(*road, world.Pass(0), after, taker));
      taker.Check();
    }
  }
  EXPECT_EQ(device.misuses(), "");
  EXPECT_EQ(device.held(), 0u);
}

TEST(LiveDeviceTest, ACacheOfAllRowsIsFilledByOneScan) {
  World world({.nodes = 1000});
  const Batches expected = world.Expected(world.Pass(0));
  FakeDevice device;
  LiveRoadOptions options = world.Options(device, 1000);
  options.device = DeviceProfile{.random_reads_per_second = 1, .sequential_bytes_per_second = 1e9};
  ASSERT_OK_AND_ASSIGN(const auto road, world.Road(options));
  DeviceTaker taker(device);
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_OK_AND_ASSIGN(auto stream, road->StartPass(world.Pass(0)));
    while (true) {
      ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
      if (batch == nullptr) break;
      ASSERT_OK(taker.Take(*batch, expected.at(batch->index())));
    }
    EXPECT_EQ(stream->stats().bytes_useful, pass == 0 ? 1000 * 512u : 0u);
    EXPECT_EQ(stream->stats().cache_hits, stream->stats().cache_lookups);
    EXPECT_EQ(stream->stats().device_hits, stream->stats().cache_hits);
    EXPECT_EQ(stream->stats().device_bytes > 1000 * 512, pass == 0) << "rows go there once, blocks each time";
    EXPECT_GT(stream->stats().device_bytes, 0u);
    stream.reset();
    taker.Check();
  }
  EXPECT_EQ(device.misuses(), "");
}

TEST(LiveDeviceTest, EveryFailureOfTheDeviceIsToldAndNothingLeaks) {
  World world({.nodes = 300});
  const Batches expected = world.Expected(world.Pass(0));
  uint64_t calls = 0;
  {
    FakeDevice device;
    DeviceTaker taker(device);
    ASSERT_OK_AND_ASSIGN(const auto road, world.Road(world.Options(device, 60)));
    ASSERT_OK(TakePass(*road, world.Pass(0), expected, taker));
    calls = device.calls();
    taker.Forget();
  }
  for (const bool fails_on : {false, true}) {
    uint64_t failed = 0;
    for (uint64_t at = 1; at <= calls; at += testing_util::OneIn()) {
      SCOPED_TRACE(testing::Message() << "call " << at << (fails_on ? " and all later ones" : ""));
      FakeDevice device({.seed = at, .fail_at = at, .fails_on = fails_on});
      {
        DeviceTaker taker(device);
        auto road = world.Road(world.Options(device, 60));
        Status status = road.status();
        if (road.ok()) status = TakePass(**road, world.Pass(0, at % 2 == 0), expected, taker);
        if (status.ok()) taker.Check();
        if (!status.ok()) {
          ++failed;
          EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("fake device"))) << "the first error";
        }
        taker.Forget();
        // The road can be used again.
        if (road.ok() && !status.ok() && !fails_on) {
          ASSERT_OK(TakePass(**road, world.Pass(0), expected, taker));
          taker.Check();
        }
      }
      device.Drain();
      EXPECT_EQ(device.held(), 0u);
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(world.open.budget->used_bytes(), world.open.road->plan().total_bytes());
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(failed, calls * 3 / (4 * testing_util::OneIn())) << "of " << calls;
  }
}

TEST(LiveDeviceTest, TooLittleOfTheDeviceNamesTheLeastAndTheLeastWorks) {
  World world({.nodes = 20000});
  FakeDevice device;
  LiveRoadOptions options = world.Options(device, 0);
  options.spec.batch_size = 1024;
  options.gpu.bytes = 100 * kKiB;
  const Status status = world.Road(options).status();
  ASSERT_THAT(status, IsStatus(Code::kOutOfBudget, HasSubstr("of the device's memory")));
  std::smatch least;
  const std::string message(status.message());
  ASSERT_TRUE(std::regex_search(message, least, std::regex("at least ([0-9]+)MiB"))) << message;
  options.gpu.bytes = std::stoull(least[1]) * kMiB;
  options.gpu.cache_bytes = ~uint64_t{0};
  PassOptions pass = world.Pass(0);
  world.open.Reopen([&] {
    LiveRoadOptions host = SmallOptions();
    host.spec.batch_size = 1024;
    return host;
  }());
  const Batches expected = world.Expected(pass);
  {
    ASSERT_OK_AND_ASSIGN(const auto road, world.Road(options));
    EXPECT_LE(road->plan().device_bytes, options.gpu.bytes);
    EXPECT_GT(road->plan().device_bytes + kMiB, options.gpu.bytes) << "the rest is cache";
    DeviceTaker taker(device);
    ASSERT_OK(TakePass(*road, pass, expected, taker));
    taker.Check();
  }
  // The device has less than it was said to have.
  FakeDevice small({.memory_bytes = 1 << 12});
  options.gpu.device = &small;
  EXPECT_THAT(world.Road(options).status(), IsStatus(Code::kOutOfBudget));
  EXPECT_EQ(small.held(), 0u);
}

}  // namespace
}  // namespace quarry
