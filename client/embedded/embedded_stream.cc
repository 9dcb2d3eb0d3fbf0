#include "embedded_stream.h"

#include <future>
#include <utility>

#include "embedded_batch.h"
#include "held_batches.h"
#include "quarry/format/wire.h"
#include "quarry/service/wire_forms.h"
#include "request_errors.h"

namespace quarry::client {
namespace {

Status CheckPass(wire::StartPass& request, const HeldBatches& held, uint64_t stream) {
  request.stream = stream;
  if (const auto* seeds = std::get_if<wire::NodeIds>(&request.seeds)) {
    if (std::holds_alternative<wire::Range>(*seeds)) return NotInMemory("seeds");
  }
  if (held.count() > 0) return BatchesHeldAtStart(held.count());
  return wire::CheckRequest(request);
}

class RoadStream final : public Stream {
 public:
  explicit RoadStream(OpenedRoad opened) : opened_(std::move(opened)) {}

  uint32_t feature_dim() const override { return opened_.road->feature_dim(); }
  uint32_t slots() const override { return 1; }
  uint64_t timestamp() const override { return opened_.snapshot->timestamp; }

  Result<uint64_t> StartPass(wire::StartPass request) override {
    QUARRY_RETURN_IF_ERROR(CheckPass(request, *held_, 1));
    stream_.reset();
    QUARRY_TRY(PassOptions pass, PassOf(opened_, request));
    QUARRY_TRY(stream_, opened_.road->StartPass(std::move(pass)));
    return stream_->batch_count();
  }

  Result<std::unique_ptr<Batch>> Next() override {
    if (stream_ == nullptr) return NoPass();
    if (held_->count() >= slots()) return BatchesHeld(held_->count(), slots());
    QUARRY_TRY(std::unique_ptr<quarry::Batch> batch, stream_->Next());
    if (batch == nullptr) return std::unique_ptr<Batch>();
    return WrapBatch(std::move(batch), held_->Hold());
  }

  Result<wire::Counters> Stats() override {
    return CountersOf(stream_ == nullptr ? StreamStats() : stream_->stats());
  }

 private:
  const OpenedRoad opened_;
  const std::shared_ptr<HeldBatches> held_ = std::make_shared<HeldBatches>();
  std::unique_ptr<BatchStream> stream_;
};

// The hub answers from threads of its own.
template <typename T>
class Waiter {
 public:
  StreamHub::Answer<T> answer() {
    return [promise = promise_](Result<T> result) { promise->set_value(std::move(result)); };
  }
  Result<T> Wait() { return promise_->get_future().get(); }

 private:
  const std::shared_ptr<std::promise<Result<T>>> promise_ = std::make_shared<std::promise<Result<T>>>();
};

// Releases a range of the region.
class GroupHold {
 public:
  GroupHold(StreamHub& hub, SessionId session, uint64_t stream, uint64_t hold,
            std::shared_ptr<SharedRegion> region, std::shared_ptr<const void> held)
      : hub_(hub),
        session_(session),
        stream_(stream),
        hold_(hold),
        region_(std::move(region)),
        held_(std::move(held)) {}
  ~GroupHold() { hub_.Release(session_, stream_, hold_); }
  GroupHold(const GroupHold&) = delete;
  GroupHold& operator=(const GroupHold&) = delete;

 private:
  StreamHub& hub_;
  const SessionId session_;
  const uint64_t stream_;
  const uint64_t hold_;
  const std::shared_ptr<SharedRegion> region_;
  const std::shared_ptr<const void> held_;
};

class GroupBatch final : public Batch {
 public:
  GroupBatch(const wire::BatchView& view, std::unique_ptr<GroupHold> hold)
      : hold_(std::move(hold)), view_(view) {}
  uint64_t index() const override { return view_.shape.index; }
  const wire::BatchView& view() const override { return view_; }

 private:
  const std::unique_ptr<GroupHold> hold_;
  const wire::BatchView view_;
};

class GroupStream final : public Stream {
 public:
  GroupStream(StreamHub& hub, SessionId session, OpenedStream opened)
      : hub_(hub), session_(session), opened_(std::move(opened)) {}
  ~GroupStream() override { hub_.CloseSession(session_); }

  uint32_t feature_dim() const override { return opened_.feature_dim; }
  uint32_t slots() const override { return opened_.slots; }
  uint64_t timestamp() const override { return opened_.timestamp; }

  Result<uint64_t> StartPass(wire::StartPass request) override {
    QUARRY_RETURN_IF_ERROR(CheckPass(request, *held_, opened_.stream));
    Waiter<uint64_t> waiter;
    hub_.StartPass(session_, request, waiter.answer());
    Result<uint64_t> batches = waiter.Wait();
    started_ = started_ || batches.ok();
    return batches;
  }

  Result<std::unique_ptr<Batch>> Next() override {
    if (!started_) return NoPass();
    if (held_->count() >= slots()) return BatchesHeld(held_->count(), slots());
    Waiter<std::optional<StreamBatch>> waiter;
    hub_.Next(session_, opened_.stream, ++calls_, waiter.answer());
    QUARRY_TRY(const std::optional<StreamBatch> batch, waiter.Wait());
    if (!batch) return std::unique_ptr<Batch>();
    auto hold = std::make_unique<GroupHold>(hub_, session_, opened_.stream, batch->hold, opened_.region,
                                            held_->Hold());
    const std::span<const std::byte> slot = opened_.region->bytes().subspan(batch->offset, batch->bytes);
    QUARRY_TRY(const wire::BatchView view, wire::OpenBatch(slot));
    return std::make_unique<GroupBatch>(view, std::move(hold));
  }

  Result<wire::Counters> Stats() override {
    QUARRY_TRY(const StreamStats stats, hub_.Stats(session_, opened_.stream));
    return CountersOf(stats);
  }

 private:
  StreamHub& hub_;
  const SessionId session_;
  const OpenedStream opened_;
  const std::shared_ptr<HeldBatches> held_ = std::make_shared<HeldBatches>();
  bool started_ = false;
  uint64_t calls_ = 0;
};

}  // namespace

std::unique_ptr<Stream> MakeRoadStream(OpenedRoad opened) {
  return std::make_unique<RoadStream>(std::move(opened));
}

Result<std::unique_ptr<Stream>> JoinGroup(StreamHub& hub, SessionId session,
                                          std::shared_ptr<MemoryBudget> budget,
                                          const wire::OpenStream& request,
                                          std::shared_ptr<const quarry::Snapshot> snapshot) {
  Waiter<OpenedStream> waiter;
  hub.Open(session, ClientId{}, std::move(budget), request, std::move(snapshot), waiter.answer());
  QUARRY_TRY(OpenedStream opened, waiter.Wait());
  return std::make_unique<GroupStream>(hub, session, std::move(opened));
}

}  // namespace quarry::client
