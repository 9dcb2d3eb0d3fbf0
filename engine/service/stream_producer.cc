// StreamGroup's thread: opens the road, waits for passes, and produces their batches.
#include <algorithm>
#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/service/batch_copier.h"
#include "stream_group.h"

namespace quarry {

void StreamGroup::Run() {
  for (const auto& group : before_) group->WaitGone();
  before_.clear();
  const Status opened = CatchExhaustion("a stream", [this] {
    OpenAll();
    return Status::Ok();
  });
  if (!opened.ok()) Insist([&] { LeaveAll(opened); });
  answers_.Run();
  while (const auto request = WaitForPass()) RunPass(*request);
  LetGo();
}

// What nobody else has seen to: the members are told, and what the group has is let go of.
void StreamGroup::GiveUp(const Status& why) {
  LeaveAll(why);
  answers_.Run();
  LetGo();
}

void StreamGroup::OpenAll() {
  std::shared_ptr<const Snapshot> snapshot;
  std::stop_token stop;
  {
    MutexLock lock(mutex_);
    if (members_.closing()) return;
    snapshot = snapshot_;
    stop = opening_.get_token();
  }
  auto opened = OpenRoad(environment_.store, *budget_, request_, std::move(snapshot), name_, stop);
  Status status = opened.status();
  if (status.ok()) status = OpenRegion(std::move(opened).value());
  if (!status.ok()) LeaveAll(status);
}

Status StreamGroup::OpenRegion(OpenedRoad opened) {
  QUARRY_TRY(std::shared_ptr<SharedRegion> region,
             SharedRegion::Make(BatchRoom::AddressBytes(opened.places, opened.slot_bytes),
                                wire::RegionAccess::kClientReads));
  memory_ = region->bytes();
  opened_ = std::move(opened);
  MutexLock lock(mutex_);
  snapshot_ = opened_->snapshot;
  members_.Opened({.feature_dim = opened_->road->feature_dim(),
                   .slots = opened_->slots,
                   .timestamp = opened_->timestamp,
                   .region = std::move(region),
                   .parts = opened_->parts},
                  BatchRoom(opened_->places, opened_->slot_bytes, opened_->spare_bytes), opened_->slot_bytes);
  return Status::Ok();
}

// Waits until all members have started a pass. Null when the group is closing.
std::shared_ptr<const wire::StartPass> StreamGroup::WaitForPass() {
  MutexLock lock(mutex_);
  while (!members_.closing() && !members_.AllHaveStarted()) WaitForChange();
  if (members_.closing()) return nullptr;
  last_stats_ = {};
  stop_ = std::stop_source();
  return members_.BeginPass();
}

void StreamGroup::RunPass(const wire::StartPass& request) {
  std::stop_token stop;
  {
    MutexLock lock(mutex_);
    stop = stop_.get_token();
  }
  const Status begun = CatchExhaustion("a pass", [&] { return BeginPass(request, stop); });
  answers_.Run();
  EndPass(begun.ok() ? CatchExhaustion("a pass", [&] { return Produce(stop); }) : begun);
}

Status StreamGroup::BeginPass(const wire::StartPass& request, const std::stop_token& stop) {
  QUARRY_TRY(std::unique_ptr<BatchStream> stream, quarry::StartPass(*opened_, request, stop));
  counted_ = {};
  MutexLock lock(mutex_);
  stream_ = std::move(stream);
  members_.Begun(stream_->batch_count());
  return Status::Ok();
}

Status StreamGroup::Produce(const std::stop_token& stop) {
  BatchStream* stream = nullptr;
  {
    MutexLock lock(mutex_);
    stream = stream_.get();
  }
  std::optional<DeficitRoundRobin::Producer> producer(std::in_place, environment_.turns, session_);
  while (!stop.stop_requested() && producer->WaitFloor(stop)) {
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream->Next());
    CountRead(*stream);
    if (batch == nullptr) break;
    QUARRY_RETURN_IF_ERROR(ProduceOne(std::move(batch), producer, stop));
    answers_.Run();
  }
  return Status::Ok();
}

// Copies one batch into the region and gives it to its members. The road reads ahead by its own threads while
// the copy is made, and the batch is dropped before it is given away, so a road never waits for a client.
Status StreamGroup::ProduceOne(std::unique_ptr<Batch> batch,
                               std::optional<DeficitRoundRobin::Producer>& producer,
                               const std::stop_token& stop) {
  QUARRY_TRY(const uint64_t bytes, wire::BatchBytes(WireShapeOf(batch->view())));
  QUARRY_TRY(std::shared_ptr<BatchRoom::Place> place, TakePlace(batch->index(), bytes, producer, stop));
  if (place == nullptr) return Status::Ok();  // and the pass is over
  const bool in_turn = producer->WaitTurn(bytes, stop);
  const Status status = in_turn ? CopyBatch(batch->view(), memory_.subspan(place->offset, bytes),
                                            environment_.options.copy_threads)
                                : Status::Ok();
  producer->EndTurn();
  batch.reset();
  MutexLock lock(mutex_);
  if (in_turn && status.ok()) members_.Give(std::move(place));
  place.reset();
  return status;
}

// Waits for a place. Null when the pass is given up. While it waits, the producer gives up its floor and its claim to turns
// (`producer` is reset): who waits for room does not produce, and its session's share goes to others meanwhile.
Result<std::shared_ptr<BatchRoom::Place>> StreamGroup::TakePlace(
    uint64_t index, uint64_t bytes, std::optional<DeficitRoundRobin::Producer>& producer,
    const std::stop_token& stop) {
  for (GroupMembers::Wait wait;;) {
    answers_.Run();  // members that were dropped wait for theirs
    MutexLock lock(mutex_);
    if (stop.stop_requested()) return std::shared_ptr<BatchRoom::Place>();
    QUARRY_TRY(std::shared_ptr<BatchRoom::Place> place, members_.TakePlace(index, bytes, wait, Clock::now()));
    if (place != nullptr) {
      if (!producer) producer.emplace(environment_.turns, session_);
      return place;
    }
    producer.reset();
    Changed();  // with those who were dropped, all may have started another pass
    WaitForChange(wait.until);
  }
}

// Waits until something has changed or the deadline passes. Members whose time to come back is over leave here.
void StreamGroup::WaitForChange(Clock::time_point deadline) {
  deadline = std::min(deadline, members_.NextExpiry());
  if (deadline == Clock::time_point::max()) return changed_.Wait(mutex_);
  changed_.WaitUntil(mutex_, deadline);
  members_.Expire(Clock::now());
  Changed();
}

// With every batch: a pass may take hours.
void StreamGroup::CountRead(const BatchStream& stream) {
  if (environment_.metrics == nullptr) return;
  const StreamStats stats = stream.stats();
  environment_.metrics->AddStats(request_.road.index(), stats, counted_);
  counted_ = stats;
}

void StreamGroup::EndPass(const Status& status) {
  std::unique_ptr<BatchStream> ended;
  {
    MutexLock lock(mutex_);
    if (stream_ != nullptr) last_stats_ = stream_->stats();
    ended = std::move(stream_);
    if (ended != nullptr) CountRead(*ended);
    members_.EndPass(status);
  }
  answers_.Run();
}

// What is let go of is gone before anybody sees that the group is.
void StreamGroup::LetGo() {
  {
    MutexLock lock(mutex_);
    members_.LetGo();
    snapshot_.reset();
  }
  opened_.reset();
  budget_.reset();
  claims_ = {};
  MutexLock lock(mutex_);
  gone_ = true;
  changed_.NotifyAll();
}

}  // namespace quarry
