// The pipeline on a device that runs late whatever no event orders: under optimistic asynchrony control it ends, bit for
// bit, where a serial run of its computation order on the processor ends; without, it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "pipeline/distmult_training.h"
#include "quarry/pipeline/device_task.h"
#include "support/fake_device.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::DistMultTraining;
using testing_util::DistMultTrainingOptions;
using testing_util::FakeDevice;

// Whether a run of this mode ended as the serial run of its computation order.
bool DeviceEndsAsTheSerialRun(uint64_t seed, AsyncMode mode) {
  FakeDevice device({.seed = seed});
  const auto end = TrainDistMult(device, seed, mode);
  EXPECT_OK(end.status());
  if (!end.ok()) return false;
  EXPECT_EQ(device.counts().host_waits, 1 + end->batches)
      << "before the first; and one a batch, for its rows to be back";
  EXPECT_EQ(device.misuses(), "");
  EXPECT_EQ(device.held(), 0u);
  return end->same;
}

TEST(DevicePipelineTest, OacEndsBitForBitAsTheSerialRunOfItsComputationOrder) {
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(1000, 5); ++seed) {
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
  FakeDevice device;
  DistMultTraining training(device, {});
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
  FakeDevice device({.seed = fail_at, .fail_at = fail_at, .fails_on = fails_on});
  DistMultTrainingOptions options;
  options.pipeline.batches_in_flight = 3;
  options.pipeline.transfer_workers = 2;
  DistMultTraining training(device, options);
  Status status = training.made;
  if (training.made.ok()) {
    status = training.pipeline->Run(0, 6);
    if (!status.ok()) {
      EXPECT_THAT(training.pipeline->Run(6, 1), IsStatus(Code::kCancelled, HasSubstr("fails at call")));
    }
  }
  failed = !status.ok();
  if (failed) {
    EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("the fake device fails at call")));
  }
  training.pipeline.reset();
  EXPECT_EQ(device.misuses(), "");
  EXPECT_EQ(device.held(), 0u);
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
  DistMultTrainingOptions options;
  options.pipeline.batches_in_flight = 4;
  FakeDevice device;
  const DistMultTraining roomy(device, options);
  ASSERT_OK(roomy.made);
  const uint64_t needed = DevicePipelineMemory(roomy.tables(), roomy.task.sizes(), options.pipeline).device;

  options.memory_bytes = needed;
  EXPECT_OK(DistMultTraining(device, options).made) << "as much as it said";
  options.memory_bytes = needed - 1;
  FakeDevice unasked;
  EXPECT_THAT(DistMultTraining(unasked, options).made,
              IsStatus(Code::kOutOfBudget, HasSubstr("the least that would do is")));
  EXPECT_EQ(unasked.calls(), 0u) << "refused before anything was asked of the device";

  // At any of its allocations: the device has less than was said.
  options.memory_bytes = 0;
  for (uint64_t bytes = 0; bytes < needed; bytes += needed / 20) {
    SCOPED_TRACE(testing::Message() << bytes << " of " << needed << " bytes");
    FakeDevice narrow({.memory_bytes = bytes});
    EXPECT_THAT(DistMultTraining(narrow, options).made,
                IsStatus(Code::kOutOfBudget, HasSubstr("the least that would do is")));
    EXPECT_EQ(narrow.held(), 0u);
    EXPECT_EQ(narrow.misuses(), "");
  }
  FakeDevice wide({.memory_bytes = needed});
  EXPECT_OK(DistMultTraining(wide, options).made);
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
