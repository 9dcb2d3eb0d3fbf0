#include "stream_group.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"
#include "stream_difference.h"

namespace quarry {

Status StreamNotOpen(uint64_t stream) { return MakeStatus(Code::kUsage, "stream {} is not open", stream); }

StreamGroup::StreamGroup(Environment& environment, SessionId session, std::shared_ptr<MemoryBudget> budget,
                         Claims claims, const wire::OpenStream& request,
                         std::shared_ptr<const Snapshot> snapshot, uint64_t number,
                         std::vector<std::shared_ptr<StreamGroup>> before)
    : environment_(environment),
      session_(session),
      request_(request),
      members_max_(request.mode == wire::StreamMode::kExclusive ? 1 : request.members),
      name_(fmt::format("stream-{}", number)),
      budget_key_(budget.get()),
      budget_(std::move(budget)),
      claims_(std::move(claims)),
      before_(std::move(before)),
      snapshot_(std::move(snapshot)) {}

StreamGroup::~StreamGroup() { assert(!thread_.joinable() && "a group is joined by its hub"); }

Status StreamGroup::Start() {
  QUARRY_TRY(thread_, Thread::Start(
                          "produce", [this] { Run(); }, [this](const Status& why) { GiveUp(why); }));
  return Status::Ok();
}

void StreamGroup::JoinThread() { thread_.Join(); }

bool StreamGroup::closing() const {
  MutexLock lock(mutex_);
  return closing_;
}

bool StreamGroup::gone() const {
  MutexLock lock(mutex_);
  return gone_;
}

void StreamGroup::WaitGone() {
  MutexLock lock(mutex_);
  while (!gone_) changed_.Wait(mutex_);
}

StreamGroup::Member* StreamGroup::Find(uint64_t stream) {
  for (const auto& member : members_) {
    if (member->stream == stream) return member.get();
  }
  return nullptr;
}

uint32_t StreamGroup::active_count() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(members_, [](const auto& member) { return member->active(); }));
}

bool StreamGroup::passing() const {
  return !pass_over_ && std::ranges::any_of(members_, [](const auto& member) { return member->in_pass; });
}

// Those who left are not waited for, those who have never been here are.
bool StreamGroup::AllHaveStarted() const {
  const uint32_t active = active_count();
  return region_ != nullptr && active > 0 && active + left_ == members_max_ &&
         std::ranges::all_of(
             members_, [](const auto& member) { return !member->active() || member->start.has_value(); });
}

// Wakes the producer, and takes it out of its pass when that is to end.
void StreamGroup::Changed() {
  if (closing_) opening_.request_stop();
  if (closing_ || AllHaveStarted()) stop_.request_stop();
  changed_.NotifyAll();
}

Status StreamGroup::CheckSame(const wire::OpenStream& request,
                              const std::shared_ptr<const Snapshot>& snapshot) const {
  std::string difference = Difference(request, request_);
  if (difference.empty() && snapshot != nullptr && snapshot_ != nullptr &&
      snapshot->timestamp != snapshot_->timestamp) {
    difference =
        fmt::format("snapshot of timestamp {}, the group has {}", snapshot->timestamp, snapshot_->timestamp);
  }
  if (difference.empty()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "group '{}' is of another stream: {}", request.group, difference);
}

Status StreamGroup::CheckFree() const {
  if (active_count() >= members_max_) {
    return MakeStatus(Code::kBusy, "group '{}' has its {} members", request_.group, members_max_);
  }
  if (passing()) {
    return MakeStatus(Code::kBusy, "group '{}' is in the middle of a pass: join when it has ended",
                      request_.group);
  }
  return Status::Ok();
}

// Null when it has none, or several: which of them comes back would not be known.
StreamGroup::Member* StreamGroup::OnlyMemberOf(const ClientId& client) {
  Member* only = nullptr;
  for (const auto& member : members_) {
    if (client == ClientId{} || member->owner.client != client) continue;
    if (only != nullptr) return nullptr;
    only = member.get();
  }
  return only;
}

bool StreamGroup::MayComeBack(const Member& member) {
  return request_.mode == wire::StreamMode::kShared && region_ != nullptr && member.active() &&
         OnlyMemberOf(member.owner.client) == &member &&
         std::ranges::any_of(members_,
                             [&](const auto& other) { return other.get() != &member && other->present(); });
}

// The place that the client had in another session: that one may not be known to be lost yet.
StreamGroup::Member* StreamGroup::PlaceOf(const Owner& owner) {
  Member* const member = OnlyMemberOf(owner.client);
  if (member == nullptr || member->owner.session == owner.session || !MayComeBack(*member)) return nullptr;
  return member->lost_until || !CheckFree().ok() ? member : nullptr;
}

// Between passes nobody who comes back would miss a batch: somebody else may have the place at once.
void StreamGroup::GiveAwayLostPlace() {
  if (passing() || active_count() < members_max_) return;
  const auto lost = [](const auto& member) { return member->lost_until.has_value(); };
  const auto found = std::ranges::find_if(members_, lost);
  if (found != members_.end()) LeaveLocked(**found, Status(Code::kCancelled, "another has its place"));
}

// What it had of the pass and has not released is given to it again.
void StreamGroup::ComeBack(Member& member, const Owner& owner, uint64_t stream) {
  AnswerPending(member, Status(Code::kCancelled, "the client goes on in another session"));
  member.owner = owner;
  member.stream = stream;
  member.lost_until.reset();
  member.came_back = member.in_pass;
  for (auto held = member.held.rbegin(); held != member.held.rend(); ++held) {
    if (member.in_pass && held->second->pass == pass_) member.ready.push_front(held->second);
  }
  member.held.clear();
}

// Whether a member that came back wants the rest of the pass that it was in.
bool StreamGroup::GoesOn(Member& member, const wire::StartPass& request) const {
  return std::exchange(member.came_back, false) && pass_request_ != nullptr &&
         Difference(request, *pass_request_).empty();
}

uint32_t StreamGroup::FreeOrder() const {
  uint32_t order = 0;
  const auto taken = [&order](const auto& member) { return member->active() && member->order == order; };
  while (std::ranges::any_of(members_, taken)) ++order;
  return order;
}

Result<bool> StreamGroup::Join(const Owner& owner, uint64_t stream, const wire::OpenStream& request,
                               const std::shared_ptr<const Snapshot>& snapshot, Answer<OpenedStream> answer) {
  MutexLock lock(mutex_);
  if (closing_) return false;
  QUARRY_RETURN_IF_ERROR(CheckSame(request, snapshot));
  if (Member* const own = PlaceOf(owner)) {
    ComeBack(*own, owner, stream);
    Tell(answer, DescribeStream(*own));
    Changed();
    return true;
  }
  GiveAwayLostPlace();
  QUARRY_RETURN_IF_ERROR(CheckFree());
  if (active_count() + left_ == members_max_) --left_;  // takes the place of one that left
  auto member = std::make_unique<Member>();
  member->owner = owner;
  member->stream = stream;
  member->order = FreeOrder();
  if (region_ != nullptr) {
    Tell(answer, DescribeStream(*member));
  } else {
    member->opening = std::move(answer);
  }
  members_.push_back(std::move(member));
  Changed();
  return true;
}

OpenedStream StreamGroup::DescribeStream(const Member& member) const {
  OpenedStream opened = described_;
  opened.stream = member.stream;
  return opened;
}

Status StreamGroup::CheckStart(const Member& member, const wire::StartPass& request) const {
  for (const auto& other : members_) {
    if (other.get() == &member || !other->start) continue;
    const std::string difference = Difference(request, other->start->request);
    if (difference.empty()) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "group '{}' starts another pass: {}", request_.group,
                      difference);
  }
  return Status::Ok();
}

void StreamGroup::StartPass(uint64_t stream, const wire::StartPass& request, Answer<uint64_t> answer) {
  MutexLock lock(mutex_);
  Member* const member = Find(stream);
  if (member == nullptr) return Tell(answer, StreamNotOpen(stream));
  if (!member->active()) return Tell(answer, member->dropped);
  if (GoesOn(*member, request)) {
    if (pass_batches_) return Tell(answer, *pass_batches_);
    if (pass_over_) return Tell(answer, pass_status_);
    member->starting = std::move(answer);
    return;
  }
  const Status status = CheckStart(*member, request);
  if (!status.ok()) return Tell(answer, status);
  AnswerPending(*member, MakeStatus(Code::kCancelled, "pass {} was started instead", request.pass));
  QuitPass(*member);
  member->start = PendingStart{request, std::move(answer)};
  Changed();
}

// All that it waits for but the opening of the stream.
void StreamGroup::AnswerPending(Member& member, const Status& why) {
  if (member.starting) Tell(std::exchange(member.starting, nullptr), why);
  if (member.start) Tell(member.start->answer, why);
  member.start.reset();
  for (const Wanted& wanted : member.wanted) Tell(wanted.answer, why);
  member.wanted.clear();
}

// What it has not asked for goes to the others, where each batch has one reader. What it holds is its own.
void StreamGroup::QuitPass(Member& member) {
  const bool was_in_pass = std::exchange(member.in_pass, false);
  const std::deque<BatchRoom::Ref> ready = std::exchange(member.ready, {});
  if (!was_in_pass) return;
  for (const BatchRoom::Ref& batch : ready) GiveToOthers(member, batch);
}

void StreamGroup::GiveToOthers(const Member& member, const BatchRoom::Ref& batch) {
  if (request_.mode != wire::StreamMode::kSplit || batch->pass != pass_) return;
  Member* const other = SplitMember(batch->index);
  if (other == nullptr || other == &member) return;
  const auto later = std::ranges::find_if(
      other->ready, [&](const BatchRoom::Ref& ready) { return ready->number > batch->number; });
  other->ready.insert(later, batch);
  ++other->given;
  Serve(*other);
}

// Null when nobody takes any more.
StreamGroup::Member* StreamGroup::SplitMember(uint64_t index) {
  Member* fewest = nullptr;
  for (const auto& member : members_) {
    if (!member->in_pass || member->told_end) continue;
    if (member->order == index % members_max_) return member.get();
    if (fewest == nullptr || member->given < fewest->given) fewest = member.get();
  }
  return fewest;
}

void StreamGroup::Next(uint64_t stream, uint64_t tag, Answer<std::optional<StreamBatch>> answer) {
  MutexLock lock(mutex_);
  Member* const member = Find(stream);
  if (member == nullptr) return Tell(answer, StreamNotOpen(stream));
  if (!member->active()) return Tell(answer, member->dropped);
  if (!member->in_pass && !member->start) {
    return Tell(answer, MakeStatus(Code::kUsage, "stream {} has no pass: start one first", stream));
  }
  member->wanted.push_back({tag, std::move(answer)});
  if (member->in_pass) Serve(*member);
  changed_.NotifyAll();  // somebody waits: others may lag behind
}

// Answers what the member waits for as far as there is something to say.
void StreamGroup::Serve(Member& member) {
  while (!member.wanted.empty() && !member.ready.empty()) Deliver(member);
  if (!pass_over_ || !member.in_pass) return;
  for (const Wanted& wanted : member.wanted) {
    member.told_end = true;
    if (pass_status_.ok()) {
      Tell(wanted.answer, std::optional<StreamBatch>());
    } else {
      Tell(wanted.answer, pass_status_);
    }
  }
  member.wanted.clear();
}

void StreamGroup::Deliver(Member& member) {
  const BatchRoom::Ref place = std::move(member.ready.front());
  member.ready.pop_front();
  const StreamBatch batch{
      .hold = next_hold_++, .index = place->index, .offset = place->offset, .bytes = place->bytes};
  member.held.emplace(batch.hold, place);
  ++member.batches;
  member.bytes += batch.bytes;
  if (environment_.metrics != nullptr) environment_.metrics->AddBatch(request_.road.index(), batch.bytes);
  Tell(member.wanted.front().answer, std::optional<StreamBatch>(batch));
  member.wanted.pop_front();
}

void StreamGroup::CancelNext(uint64_t stream, uint64_t tag) {
  MutexLock lock(mutex_);
  Member* const member = Find(stream);
  if (member == nullptr) return;
  const auto wanted = std::ranges::find(member->wanted, tag, &Wanted::tag);
  if (wanted == member->wanted.end()) return;
  Tell(wanted->answer, Status(Code::kCancelled, "the client does not want the batch any more"));
  member->wanted.erase(wanted);
}

void StreamGroup::Release(uint64_t stream, uint64_t hold) {
  MutexLock lock(mutex_);
  Member* const member = Find(stream);
  if (member == nullptr || member->held.erase(hold) == 0) return;
  changed_.NotifyAll();
}

void StreamGroup::Drop(Member& member) {
  member.dropped = MakeStatus(
      Code::kCancelled,
      "stream {} fell behind: the others of group '{}' waited {} s for it to release batches; close it",
      member.stream, request_.group, std::chrono::duration<double>(environment_.options.lag_max).count());
  AnswerPending(member, member.dropped);
  QuitPass(member);
  ++left_;
  Changed();
}

void StreamGroup::Leave(uint64_t stream, const Status& why) {
  MutexLock lock(mutex_);
  if (Member* const member = Find(stream)) LeaveLocked(*member, why);
}

void StreamGroup::Lose(uint64_t stream, const Status& why) {
  MutexLock lock(mutex_);
  Member* const member = Find(stream);
  if (member == nullptr) return;
  if (!MayComeBack(*member)) return LeaveLocked(*member, why);
  AnswerPending(*member, why);
  member->lost_until = Clock::now() + environment_.options.return_max;
  Changed();
}

void StreamGroup::LeaveAll(const Status& why) {
  MutexLock lock(mutex_);
  while (!members_.empty()) LeaveLocked(*members_.back(), why);
}

void StreamGroup::LeaveLocked(Member& member, const Status& why) {
  if (member.opening) Tell(std::exchange(member.opening, nullptr), why);
  AnswerPending(member, why);
  const bool in_pass = member.in_pass;
  QuitPass(member);
  if (in_pass) {
    for (const auto& [hold, batch] : member.held) GiveToOthers(member, batch);
  }
  if (member.active()) ++left_;
  std::erase_if(members_, [&member](const auto& own) { return own.get() == &member; });
  const auto present = [](const auto& own) { return own->present(); };
  if (std::ranges::none_of(members_, present)) {
    closing_ = true;
    std::erase_if(members_, [](const auto& own) { return own->lost_until.has_value(); });
  }
  Changed();
}

StreamStats StreamGroup::Stats() const {
  MutexLock lock(mutex_);
  return stream_ == nullptr ? last_stats_ : stream_->stats();
}

void StreamGroup::AddStates(std::vector<StreamHub::StreamState>& states) const {
  const StreamStats stats = Stats();
  MutexLock lock(mutex_);
  for (const auto& member : members_) {
    if (member->lost_until) continue;
    states.push_back({.session = member->owner.session,
                      .stream = member->stream,
                      .road = std::string(RoadMetrics::RoadName(request_.road.index())),
                      .group = request_.mode == wire::StreamMode::kExclusive ? "" : request_.group,
                      .batches = member->batches,
                      .bytes = member->bytes,
                      .held = static_cast<uint32_t>(member->held.size()),
                      .waiting = static_cast<uint32_t>(member->wanted.size()),
                      .slots = described_.slots,
                      .stats = stats});
  }
}

}  // namespace quarry
