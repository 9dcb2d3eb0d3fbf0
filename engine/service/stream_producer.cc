// StreamGroup's thread: opens the road, waits for passes, and produces their batches.
#include <algorithm>
#include <utility>

#include "quarry/base/exhaustion.h"
#include "quarry/base/units.h"
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
  while (WaitForPass()) RunPass();
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
    if (closing_) return;
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
  region_ = std::move(region);
  room_ = std::make_unique<BatchRoom>(opened_->places, opened_->slot_bytes, opened_->spare_bytes);
  described_ = {.feature_dim = opened_->road->feature_dim(),
                .slots = opened_->slots,
                .timestamp = snapshot_->timestamp,
                .region = region_};
  for (const auto& member : members_) Tell(std::exchange(member->opening, nullptr), DescribeStream(*member));
  return Status::Ok();
}

// Waits until all active members have started a pass, since its batches are made once for all of them, and
// takes their requests. False when the group is closing.
bool StreamGroup::WaitForPass() {
  MutexLock lock(mutex_);
  while (!closing_ && !AllHaveStarted()) WaitForChange();
  if (closing_) return false;
  for (const auto& member : members_) {
    if (!member->active()) continue;
    member->starting = std::move(member->start->answer);
    pass_request_ = std::make_shared<const wire::StartPass>(std::move(member->start->request));
    member->start.reset();
    member->in_pass = true;
    member->came_back = false;
    member->told_end = false;
    member->given = 0;
  }
  ++pass_;
  pass_over_ = false;
  pass_status_ = Status::Ok();
  last_stats_ = {};
  pass_batches_.reset();
  stop_ = std::stop_source();
  return true;
}

void StreamGroup::RunPass() {
  std::stop_token stop;
  {
    MutexLock lock(mutex_);
    stop = stop_.get_token();
  }
  const auto begun = CatchExhaustion("a pass", [&] { return BeginPass(stop); });
  AnswerStarting(begun);
  EndPass(begun.ok() ? CatchExhaustion("a pass", [&] { return Produce(stop); }) : begun.status());
}

// The number of its batches.
Result<uint64_t> StreamGroup::BeginPass(const std::stop_token& stop) {
  std::shared_ptr<const wire::StartPass> request;
  {
    MutexLock lock(mutex_);
    request = pass_request_;
  }
  QUARRY_TRY(PassOptions pass, PassOf(*opened_, *request, stop));
  QUARRY_TRY(std::unique_ptr<BatchStream> stream, opened_->road->StartPass(std::move(pass)));
  counted_ = {};
  MutexLock lock(mutex_);
  stream_ = std::move(stream);
  pass_batches_ = stream_->batch_count();
  return *pass_batches_;
}

void StreamGroup::AnswerStarting(const Result<uint64_t>& begun) {
  {
    MutexLock lock(mutex_);
    for (const auto& member : members_) {
      if (member->starting) Tell(std::exchange(member->starting, nullptr), begun);
    }
  }
  answers_.Run();
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
  if (in_turn && status.ok()) Give(std::move(place));
  place.reset();
  return status;
}

// Waits until the members that are to get the batch may hold one more and the region has a place for it. Null
// when the pass is given up. While it waits, the producer gives up its floor and its claim to turns
// (`producer` is reset): who waits for room does not produce, and its session's share goes to others
// meanwhile.
Result<std::shared_ptr<BatchRoom::Place>> StreamGroup::TakePlace(
    uint64_t index, uint64_t bytes, std::optional<DeficitRoundRobin::Producer>& producer,
    const std::stop_token& stop) {
  for (Lag lag;;) {
    answers_.Run();  // members that were dropped wait for theirs
    MutexLock lock(mutex_);
    if (stop.stop_requested()) return std::shared_ptr<BatchRoom::Place>();
    if (!room_->CanHold(bytes)) return NoRoomFor(index, bytes);
    if (HasSlots(index)) {
      if (std::shared_ptr<BatchRoom::Place> place = room_->Take(bytes)) {
        place->index = index;
        place->pass = pass_;
        if (!producer) producer.emplace(environment_.turns, session_);
        return place;
      }
      if (OnlyDroppedHold()) {
        return MakeStatus(
            Code::kBusy,
            "group '{}': members that fell behind hold all of its shared memory, until they close "
            "their streams",
            request_.group);
      }
      if (IsStuckTooLong(lag)) return NoRoomFor(index, bytes);
    }
    producer.reset();
    WaitForRoom(lag);
  }
}

Status StreamGroup::NoRoomFor(uint64_t index, uint64_t bytes) const {
  return MakeStatus(Code::kOutOfBudget,
                    "batch {} takes {}, its stream expected {} at most and has no room for such a one beside "
                    "those that are "
                    "held: ask for smaller batches, or release each before the next",
                    index, FormatBytes(bytes), FormatBytes(opened_->slot_bytes));
}

// Whoever is to get the batch may hold one more.
bool StreamGroup::HasSlots(uint64_t index) {
  if (request_.mode == wire::StreamMode::kSplit) {
    const Member* const member = SplitMember(index);
    return member != nullptr && member->outstanding() < described_.slots;
  }
  return std::ranges::all_of(members_, [this](const auto& member) {
    mutex_.AssertHeld();
    return !member->in_pass || member->outstanding() < described_.slots;
  });
}

// True when places are free but none is large enough, and has not been for lag_max. Those who wait for the
// batch may hold the only large place themselves, so without a limit this could last for ever.
bool StreamGroup::IsStuckTooLong(Lag& lag) const {
  const bool waits = std::ranges::any_of(
      members_, [](const auto& member) { return member->in_pass && !member->wanted.empty(); });
  const bool others_wait = request_.mode == wire::StreamMode::kShared && SomebodyWaits(Laggards());
  if (!waits || others_wait) {
    lag.stuck_until = Clock::time_point::max();
  } else if (lag.stuck_until == Clock::time_point::max()) {
    lag.stuck_until = Clock::now() + environment_.options.lag_max;
  }
  return Clock::now() >= lag.stuck_until;
}

// Waits until something has changed. When the same members have stopped the others for lag_max, they are
// dropped instead: only in a shared group, and only while somebody else waits and has nothing to release.
void StreamGroup::WaitForRoom(Lag& lag) {
  std::vector<uint64_t> laggards = Laggards();
  if (request_.mode != wire::StreamMode::kShared || !SomebodyWaits(laggards)) {
    lag.streams.clear();
    return WaitForChange(lag.stuck_until);
  }
  if (laggards != lag.streams) {
    lag.streams = std::move(laggards);
    lag.since = Clock::now();
  }
  const Clock::time_point deadline = lag.since + environment_.options.lag_max;
  if (Clock::now() < deadline) return WaitForChange(deadline);
  for (const uint64_t stream : lag.streams) Drop(*Find(stream));
}

// Waits until something has changed or the deadline passes. Members whose connection was lost and whose time
// to come back is over leave here.
void StreamGroup::WaitForChange(Clock::time_point deadline) {
  for (const auto& member : members_) deadline = std::min(deadline, member->lost_until.value_or(deadline));
  if (deadline == Clock::time_point::max()) return changed_.Wait(mutex_);
  changed_.WaitUntil(mutex_, deadline);
  const auto late = [now = Clock::now()](const auto& member) {
    return member->lost_until && *member->lost_until <= now;
  };
  for (auto found = std::ranges::find_if(members_, late); found != members_.end();
       found = std::ranges::find_if(members_, late)) {
    LeaveLocked(**found, Status(Code::kCancelled, "its client has not come back"));
  }
}

// The members that stop the group: those that hold all slots they may have; if there are none and the region
// is full, those that have not released the oldest batch.
std::vector<uint64_t> StreamGroup::Laggards() const {
  std::vector<uint64_t> laggards;
  for (const auto& member : members_) {
    if (member->in_pass && member->outstanding() >= described_.slots) laggards.push_back(member->stream);
  }
  for (auto place = room_->places().begin(); laggards.empty() && place != room_->places().end(); ++place) {
    for (const auto& member : members_) {
      if (member->active() && member->Has(place->first)) laggards.push_back(member->stream);
    }
  }
  return laggards;
}

bool StreamGroup::SomebodyWaits(const std::vector<uint64_t>& laggards) const {
  return !laggards.empty() && std::ranges::any_of(members_, [&laggards](const auto& member) {
    return member->in_pass && !member->wanted.empty() &&
           std::ranges::find(laggards, member->stream) == laggards.end();
  });
}

bool StreamGroup::OnlyDroppedHold() const {
  return std::ranges::none_of(
      members_, [](const auto& member) { return member->active() && member->outstanding() > 0; });
}

// In a split, the batch goes to one member; otherwise to every member that is in the pass. Each reference
// keeps the place taken until its member lets go.
void StreamGroup::Give(std::shared_ptr<BatchRoom::Place> place) {
  const BatchRoom::Ref batch = std::move(place);
  const auto give = [this, &batch](Member& member) {
    mutex_.AssertHeld();
    member.ready.push_back(batch);
    ++member.given;
    Serve(member);
  };
  if (request_.mode == wire::StreamMode::kSplit) {
    if (Member* const member = SplitMember(batch->index)) give(*member);
    return;
  }
  for (const auto& member : members_) {
    if (member->in_pass) give(*member);
  }
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
    pass_over_ = true;
    pass_status_ = status;
    if (ended != nullptr) CountRead(*ended);
    for (const auto& member : members_) {
      if (member->starting && !status.ok()) {  // it came back when the others had been told
        Tell(std::exchange(member->starting, nullptr), status);
      }
      Serve(*member);
    }
  }
  answers_.Run();
}

// What is let go of is gone before anybody sees that the group is.
void StreamGroup::LetGo() {
  {
    MutexLock lock(mutex_);
    for (const auto& member : members_) {  // those who were dropped
      member->ready.clear();
      member->held.clear();
    }
    room_.reset();
    region_.reset();
    described_.region.reset();
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
