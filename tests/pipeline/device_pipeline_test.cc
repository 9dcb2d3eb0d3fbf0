// The pipeline on a device that runs late whatever no event orders: under optimistic asynchrony control it ends, bit for
// bit, where a serial run of its computation order on the processor ends; without, it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "pipeline/distmult_task.h"
#include "quarry/pipeline/device_task.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::DistMultOptions;
using testing_util::DistMultTask;
using testing_util::FakeDevice;
using testing_util::FakeDeviceOptions;
using testing_util::SerialDistMult;

uint64_t DeviceSeeds(uint64_t normally) {
  const char* const text = std::getenv("QUARRY_TEST_SEEDS");
  return text == nullptr ? normally : std::strtoull(text, nullptr, 10);
}

struct DeviceTrainingOptions {
  EmbeddingSpec nodes = {.row_count = 40, .dim = 5};
  EmbeddingSpec relations = {.row_count = 6, .dim = 5, .seed = 1};
  DistMultOptions task;
  FakeDeviceOptions device;
  EmbeddingPipelineOptions pipeline = {.record_order = true};
  uint64_t memory_bytes = 0;
};

// A pipeline on a device of its own, over tables of its own. What came of making it is `made`.
struct DeviceTraining {
  explicit DeviceTraining(const DeviceTrainingOptions& options)
      : device(options.device),
        nodes(MakeMemoryEmbeddingTable(options.nodes)),
        relations(MakeMemoryEmbeddingTable(options.relations)),
        task(options.nodes, options.relations, options.task) {
    EmbeddingTable* const tables[] = {nodes.get(), relations.get()};
    auto result = MakeDeviceEmbeddingPipeline(tables, task, device, options.memory_bytes, options.pipeline);
    made = result.status();
    if (made.ok()) pipeline = std::move(result).value();
  }

  bool Equals(const SerialDistMult& serial) const {
    bool same = true;
    for (size_t t = 0; t < 2; ++t) {
      EmbeddingTable& table = t == 0 ? *nodes : *relations;
      RowBlock all;
      all.ids.resize(table.spec().row_count);
      std::iota(all.ids.begin(), all.ids.end(), RowId{0});
      EXPECT_OK(table.Read(all));
      same = same && serial.Has(t, all);
    }
    return same;
  }

  FakeDevice device;
  std::unique_ptr<EmbeddingTable> nodes, relations;
  DistMultTask task;
  Status made;
  std::unique_ptr<EmbeddingPipeline> pipeline;
};

DeviceTrainingOptions RandomDeviceTraining(uint64_t seed, AsyncMode mode) {
  Rng rng(seed);
  DeviceTrainingOptions options;
  const auto dim = static_cast<uint32_t>(1 + rng.Below(9));
  options.nodes = {.row_count = 10 + rng.Below(60), .dim = dim, .init_scale = 1, .seed = rng()};
  options.relations = {.row_count = 1 + rng.Below(8), .dim = dim, .init_scale = 1, .seed = rng()};
  for (EmbeddingSpec* spec : {&options.nodes, &options.relations}) {
    if (rng.Below(3) == 0) spec->element_type = ElementType::kBfloat16;
  }
  options.task = {.seed = seed,
                  .edges = static_cast<uint32_t>(1 + rng.Below(16)),
                  .chunk_edges = static_cast<uint32_t>(1 + rng.Below(6)),
                  .chunk_negatives = static_cast<uint32_t>(1 + rng.Below(4))};
  options.device.seed = seed;
  options.pipeline.mode = mode;
  options.pipeline.ordered = rng.Below(3) == 0;
  options.pipeline.batches_in_flight = static_cast<unsigned>(1 + rng.Below(8));
  for (unsigned* workers : {&options.pipeline.prepare_workers, &options.pipeline.transfer_workers,
                            &options.pipeline.update_workers}) {
    *workers = static_cast<unsigned>(1 + rng.Below(3));
  }
  return options;
}

// Whether a run of this mode ended as the serial run of its computation order, at each of two boundaries.
bool DeviceEndsAsTheSerialRun(uint64_t seed, AsyncMode mode) {
  DeviceTraining training(RandomDeviceTraining(seed, mode));
  EXPECT_OK(training.made);
  if (!training.made.ok()) return false;
  SerialDistMult serial(training.nodes->spec(), training.relations->spec(), training.task);
  Rng rng(seed);
  bool same = true;
  uint64_t done = 0;
  for (const uint64_t count : {rng.Below(20), 1 + rng.Below(30)}) {
    EXPECT_OK(training.pipeline->Run(done, count));
    EXPECT_EQ(training.pipeline->order().size(), done + count);
    serial.Train(training.pipeline->order().subspan(done));
    done += count;
    same = same && training.Equals(serial);
  }
  EXPECT_EQ(training.device.counts().host_waits, done) << "one a batch, for its rows to be back";
  training.pipeline.reset();
  EXPECT_EQ(training.device.misuses(), "");
  EXPECT_EQ(training.device.held(), 0u);
  return same;
}

TEST(DevicePipelineTest, OacEndsBitForBitAsTheSerialRunOfItsComputationOrder) {
  for (uint64_t seed = 1; seed <= DeviceSeeds(1000); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ASSERT_TRUE(DeviceEndsAsTheSerialRun(seed, AsyncMode::kOac));
  }
}

// Else the test above would say nothing.
TEST(DevicePipelineTest, UnprotectedAsynchronyLosesUpdatesInTheSameWorkloads) {
  uint64_t differing = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    differing += DeviceEndsAsTheSerialRun(seed, AsyncMode::kAsync) ? 0 : 1;
  }
  EXPECT_GT(differing, 10u);
}

TEST(DevicePipelineTest, OneBatchAtATimeIsSerialByItself) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    EXPECT_TRUE(DeviceEndsAsTheSerialRun(seed, AsyncMode::kSync));
  }
}

TEST(DevicePipelineTest, AccountsEveryStageAndTheDevicesOwnTime) {
  DeviceTraining training(DeviceTrainingOptions{});
  ASSERT_OK(training.made);
  ASSERT_OK(training.pipeline->Run(0, 50));
  const EmbeddingPipelineStats stats = training.pipeline->stats();
  for (const EmbeddingStageStats& stage : stats.stages) EXPECT_EQ(stage.batches, 50u);
  for (const auto stage :
       {EmbeddingStage::kTransfer, EmbeddingStage::kCompute, EmbeddingStage::kTransferBack}) {
    EXPECT_GT(stats.stage(stage).device_seconds, 0);
  }
  EXPECT_EQ(stats.stage(EmbeddingStage::kUpdate).device_seconds, 0);
  EXPECT_GT(stats.rows_replaced, 0u);
  EXPECT_LT(stats.rows_replaced, stats.rows_computed);
  EXPECT_GT(stats.cache_rows_peak, 0u);
  EXPECT_GT(stats.cache_bytes_peak, 0u);
}

// The error comes back, the next run is refused, nothing is left on the device and nothing is done to memory in use.
void ExpectCleanFailure(uint64_t fail_at, bool fails_on, bool& failed) {
  SCOPED_TRACE(testing::Message() << "call " << fail_at << (fails_on ? " and all later ones" : ""));
  DeviceTrainingOptions options;
  options.device = {.seed = fail_at, .fail_at = fail_at, .fails_on = fails_on};
  options.pipeline.batches_in_flight = 3;
  options.pipeline.transfer_workers = 2;
  DeviceTraining training(options);
  failed = !training.made.ok();
  if (training.made.ok()) {
    const Status status = training.pipeline->Run(0, 6);
    failed = !status.ok();
    if (failed) {
      EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("the fake device fails at call")));
      EXPECT_THAT(training.pipeline->Run(6, 1), IsStatus(Code::kCancelled, HasSubstr("fails at call")));
    }
  } else {
    EXPECT_THAT(training.made, IsStatus(Code::kIoError, HasSubstr("the fake device fails at call")));
  }
  training.pipeline.reset();
  EXPECT_EQ(training.device.misuses(), "");
  EXPECT_EQ(training.device.held(), 0u);
}

TEST(DevicePipelineTest, AFailureOfAnyCallEndsTheRunAndLeaksNothing) {
  for (const bool fails_on : {false, true}) {
    bool failed = true;
    uint64_t fail_at = 0;
    while (failed) ExpectCleanFailure(++fail_at, fails_on, failed);
    EXPECT_GT(fail_at, 100u) << "six batches";
  }
}

TEST(DevicePipelineTest, TooLittleMemoryIsRefusedByTheLeastThatWouldDo) {
  DeviceTrainingOptions options;
  options.pipeline.batches_in_flight = 4;
  DeviceTraining roomy(options);
  ASSERT_OK(roomy.made);
  EmbeddingTable* const tables[] = {roomy.nodes.get(), roomy.relations.get()};
  const uint64_t needed = DevicePipelineMemory(tables, roomy.task.sizes(), options.pipeline).device;

  options.memory_bytes = needed;
  EXPECT_OK(DeviceTraining(options).made) << "as much as it said";
  options.memory_bytes = needed - 1;
  DeviceTraining narrow(options);
  EXPECT_THAT(narrow.made, IsStatus(Code::kOutOfBudget, HasSubstr("the least that would do is")));
  EXPECT_EQ(narrow.device.held(), 0u);
  EXPECT_EQ(narrow.device.calls(), 0u) << "refused before anything was asked of the device";

  // At any of its allocations: the device has less than was said.
  options.memory_bytes = 0;
  uint64_t refused = 0;
  for (options.device.memory_bytes = 0; options.device.memory_bytes < needed;
       options.device.memory_bytes += needed / 20) {
    DeviceTraining training(options);
    EXPECT_THAT(training.made, IsStatus(Code::kOutOfBudget, HasSubstr("the least that would do is")));
    EXPECT_EQ(training.device.held(), 0u);
    EXPECT_EQ(training.device.misuses(), "");
    ++refused;
  }
  EXPECT_GE(refused, 20u);
  options.device.memory_bytes = needed;
  EXPECT_OK(DeviceTraining(options).made);
}

TEST(DevicePipelineTest, ABatchOfMoreThanItsTaskHasSaidIsRefused) {
  class Boaster final : public DeviceEmbeddingTask {
   public:
    DeviceTaskSizes sizes() const override { return {.rows = {2}}; }
    Status Prepare(EmbeddingItem& item) override {
      item.blocks[0].ids.resize(item.batch < 3 ? 2 : 3);
      std::iota(item.blocks[0].ids.begin(), item.blocks[0].ids.end(), RowId{0});
      return Status::Ok();
    }
    std::span<const std::byte> Payload(const EmbeddingItem&) const override { return {}; }
    Status Compute(const EmbeddingItem&, const DeviceEmbeddingBatch&, gpu::Device&,
                   gpu::StreamHandle) override {
      return Status::Ok();
    }
  } task;
  FakeDevice device;
  const auto table = MakeMemoryEmbeddingTable({.row_count = 10, .dim = 4});
  EmbeddingTable* const tables[] = {table.get()};
  ASSERT_OK_AND_ASSIGN(const auto pipeline, MakeDeviceEmbeddingPipeline(tables, task, device, 0, {}));
  EXPECT_OK(pipeline->Run(0, 3));
  EXPECT_THAT(pipeline->Run(3, 2),
              IsStatus(Code::kInvalidArgument, HasSubstr("batch 3 has 3 rows of table 0")));
}

}  // namespace
}  // namespace quarry
