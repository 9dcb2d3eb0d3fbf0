#include "embedded_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "held_batches.h"
#include "quarry/format/wire.h"
#include "quarry/pipeline/device_feed.h"
#include "quarry/service/wire_forms.h"
#include "request_errors.h"

namespace quarry::client {
namespace {

class RoadStream final : public Stream {
 public:
  // Pinned pieces take what a server's stream has for shared memory, of which batches in memory need nothing: they are read
  // where the road has them.
  RoadStream(OpenedRoad opened, OpenedDevice device)
      : device_(std::move(device)), opened_(std::move(opened)) {
    if (device_.device == nullptr || opened_.all_on_device) {
      opened_.region.Release();
    } else {
      DeviceTarget left = device_.target;
      left.bytes -= std::min(left.bytes, opened_.device_bytes);
      feed_.emplace(left, opened_.region.bytes() / 2);
    }
  }

  uint32_t feature_dim() const override { return opened_.road->feature_dim(); }
  uint32_t slots() const override { return 1; }
  uint64_t timestamp() const override { return opened_.timestamp; }
  std::optional<wire::OpenedParts> parts() const override { return opened_.parts; }

  Result<uint64_t> StartPass(wire::StartPass request) override {
    request.stream = 1;
    const auto* const seeds = std::get_if<wire::NodeIds>(&request.seeds);
    if (seeds != nullptr && std::holds_alternative<wire::Range>(*seeds)) return NotInMemory("seeds");
    if (held_->count() > 0) return BatchesHeldAtStart(held_->count());
    QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request));
    stream_.reset();
    QUARRY_TRY(stream_, quarry::StartPass(opened_, request));
    if (feed_) stream_ = feed_->Feed(std::move(stream_));
    return stream_->batch_count();
  }

  Result<std::unique_ptr<Batch>> Next() override {
    if (stream_ == nullptr) return NoPass();
    if (held_->count() >= slots()) return BatchesHeld(held_->count(), slots());
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream_->Next());
    if (batch == nullptr) return batch;
    const BatchView view = batch->view();
    DeviceBatch* const on_device = batch->on_device();
    return std::make_unique<Batch>(view, held_->Hold(std::move(batch)), on_device);
  }

  Result<wire::Counters> Stats() override {
    return CountersOf(stream_ == nullptr ? StreamStats() : stream_->stats());
  }

 private:
  const OpenedDevice device_;
  OpenedRoad opened_;
  std::optional<DeviceFeed> feed_;
  const std::shared_ptr<HeldBatches> held_ = std::make_shared<HeldBatches>();
  std::unique_ptr<BatchStream> stream_;
};

}  // namespace

Result<OpenedDevice> OpenDeviceOf(const StreamDevice& device) {
  OpenedDevice opened;
  QUARRY_TRY(opened.device, gpu::OpenDevice(device.ordinal));
  uint64_t bytes = device.bytes;
  if (bytes == 0) {
    QUARRY_TRY(const uint64_t free_bytes, opened.device->FreeBytes());
    bytes = free_bytes / 2;
  }
  opened.target = {.device = opened.device.get(),
                   .bytes = bytes,
                   .cache_bytes = device.cache_bytes,
                   .samples = device.samples};
  return opened;
}

std::unique_ptr<Stream> MakeRoadStream(OpenedRoad opened, OpenedDevice device) {
  return std::make_unique<RoadStream>(std::move(opened), std::move(device));
}

}  // namespace quarry::client
