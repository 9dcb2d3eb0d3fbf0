#include "embedded_stream.h"

#include <optional>
#include <utility>

#include "held_batches.h"
#include "quarry/format/wire.h"
#include "quarry/service/wire_forms.h"
#include "request_errors.h"

namespace quarry::client {
namespace {

class RoadStream final : public Stream {
 public:
  explicit RoadStream(OpenedRoad opened) : opened_(std::move(opened)) {}

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
    return stream_->batch_count();
  }

  Result<std::unique_ptr<Batch>> Next() override {
    if (stream_ == nullptr) return NoPass();
    if (held_->count() >= slots()) return BatchesHeld(held_->count(), slots());
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream_->Next());
    if (batch == nullptr) return batch;
    const BatchView view = batch->view();
    return std::make_unique<Batch>(view, held_->Hold(std::move(batch)));
  }

  Result<wire::Counters> Stats() override {
    return CountersOf(stream_ == nullptr ? StreamStats() : stream_->stats());
  }

 private:
  const OpenedRoad opened_;
  const std::shared_ptr<HeldBatches> held_ = std::make_shared<HeldBatches>();
  std::unique_ptr<BatchStream> stream_;
};

}  // namespace

std::unique_ptr<Stream> MakeRoadStream(OpenedRoad opened) {
  return std::make_unique<RoadStream>(std::move(opened));
}

}  // namespace quarry::client
