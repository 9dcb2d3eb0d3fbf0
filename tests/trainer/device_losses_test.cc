// Training on batches that come from a device: with none, a twentieth and half of the cache there the losses are those of
// training from memory, to the last bit.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/gpu/handles.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/device_feed.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/trainer/train.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::FakeDevice;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

// A road to a device, read back for a trainer that computes in memory.
class ReadBack final : public Road {
 public:
  ReadBack(Road& road, FakeDevice& device)
      : road_(road), device_(device), feed_({.device = &device, .bytes = kGiB}, kGiB) {}

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions options) override {
    QUARRY_TRY(std::unique_ptr<BatchStream> stream, road_.StartPass(std::move(options)));
    return std::unique_ptr<BatchStream>(std::make_unique<Reader>(feed_.Feed(std::move(stream)), device_));
  }
  std::span<const int64_t> labels() const override { return road_.labels(); }
  std::vector<NodeId> SplitNodes(Split split) const override { return road_.SplitNodes(split); }
  uint32_t feature_dim() const override { return road_.feature_dim(); }

 private:
  class Reader final : public BatchStream {
   public:
    Reader(std::unique_ptr<BatchStream> stream, FakeDevice& device)
        : stream_(std::move(stream)), device_(device), taken_(gpu::MakeStream(device).value()) {}
    uint64_t batch_count() const override { return stream_->batch_count(); }
    StreamStats stats() const override { return stream_->stats(); }
    Result<std::unique_ptr<Batch>> Next() override {
      QUARRY_TRY(std::unique_ptr<Batch> batch, stream_->Next());
      if (batch == nullptr) return batch;
      struct Held {
        std::unique_ptr<Batch> batch;
        gpu::Memory x;
      };
      BatchView view = batch->view();
      const uint64_t stride = view.features.dim * sizeof(float);
      auto held = std::make_shared<Held>();
      QUARRY_TRY(held->x, gpu::AllocateMemory(device_, view.nodes.size() * stride));
      QUARRY_RETURN_IF_ERROR(batch->on_device()->WriteTo({.x = held->x.get().data()}, taken_.get().raw));
      QUARRY_RETURN_IF_ERROR(device_.Synchronize(taken_.get()));
      view.features = {.rows = held->x.get(), .stride_bytes = stride, .dim = view.features.dim};
      held->batch = std::move(batch);
      return std::make_unique<Batch>(view, std::move(held));
    }

   private:
    const std::unique_ptr<BatchStream> stream_;
    FakeDevice& device_;
    const gpu::Stream taken_;
  };

  Road& road_;
  FakeDevice& device_;
  DeviceFeed feed_;
};

TEST(DeviceLossesTest, AreThoseOfTrainingFromMemory) {
  const TinyDatabase database(TinyGraph{.nodes = 3000, .dim = 32});
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend, database.path()));
  MemoryBudget budget(kGiB);
  LiveRoadOptions live;
  live.spec = {.fanouts = {4, 3}, .batch_size = 64, .seed = 5};
  live.tells_plan = false;
  LayoutSpec spec = {.road = live.spec.ForOtherPasses(), .threads = 2};
  spec.road.cache_bytes = 3000 * 32 * sizeof(float) / 4;
  ASSERT_OK(BuildLayout(*store, budget, spec, false, {}));
  const auto losses_of = [&](Road& road) {
    std::vector<double> losses;
    TrainOptions options;
    options.layers = 2;
    options.hidden = 16;
    options.epochs = 3;
    options.ordered = true;
    options.seed = 7;
    TrainCallbacks callbacks;
    callbacks.epoch = [&](const EpochReport& report) {
      losses.push_back(report.loss);
      losses.push_back(report.valid->accuracy);
      return Status::Ok();
    };
    EXPECT_OK(Train(road, options, callbacks));
    return losses;
  };
  std::vector<double> expected;
  uint64_t cache_slots = 0;
  {
    ASSERT_OK_AND_ASSIGN(const auto road,
                         PlannedRoad::Open(*store, budget, {.tells_plan = false, .live = live}));
    cache_slots = road->layout().directory().cache_slots;
    expected = losses_of(*road);
  }
  ASSERT_EQ(expected.size(), 6u);
  for (const uint64_t percent : {0, 5, 50, 100}) {
    SCOPED_TRACE(testing::Message() << percent << " % of the cache on the device");
    FakeDevice device({.seed = 11 + percent});
    ASSERT_OK_AND_ASSIGN(
        const auto road,
        PlannedRoad::Open(*store, budget,
                          {.tells_plan = false,
                           .live = live,
                           .device = {.device = &device,
                                      .bytes = kGiB,
                                      .cache_bytes = cache_slots * 32 * sizeof(float) * percent / 100}}));
    EXPECT_EQ(road->plan().device_slots > 0, percent > 0);
    ReadBack read_back(*road, device);
    EXPECT_EQ(losses_of(read_back), expected);
    EXPECT_EQ(device.misuses(), "");
  }
}

}  // namespace
}  // namespace quarry
