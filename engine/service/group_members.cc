// Members: how they join, go through passes, and leave. What the producer asks is in group_production.cc.
#include "group_members.h"

#include <algorithm>
#include <ranges>

#include "stream_difference.h"

namespace quarry {

Status StreamNotOpen(uint64_t stream) { return MakeStatus(Code::kUsage, "stream {} is not open", stream); }

bool GroupMembers::Member::Has(uint64_t number) const {
  const auto is_it = [number](const BatchRoom::Ref& batch) { return batch->number == number; };
  return std::ranges::any_of(ready, is_it) ||
         std::ranges::any_of(held, is_it, &std::map<uint64_t, BatchRoom::Ref>::value_type::second);
}

GroupMembers::Member* GroupMembers::Find(uint64_t stream) {
  const auto found = std::ranges::find(members_, stream, [](const auto& member) { return member->stream; });
  return found == members_.end() ? nullptr : found->get();
}

uint32_t GroupMembers::active_count() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(members_, [](const auto& member) { return member->active(); }));
}

bool GroupMembers::passing() const {
  return !pass_over_ && std::ranges::any_of(members_, [](const auto& member) { return member->in_pass(); });
}

bool GroupMembers::AllHaveStarted() const {
  const uint32_t active = active_count();
  return room_ && active > 0 && active + left_ == rules_.members_max &&
         std::ranges::all_of(members_, [](const auto& member) {
           return !member->active() || member->phase == Phase::kAsked;
         });
}

Status GroupMembers::CheckFree() const {
  if (active_count() >= rules_.members_max) {
    return MakeStatus(Code::kBusy, "group '{}' has its {} members", rules_.group, rules_.members_max);
  }
  if (passing()) {
    return MakeStatus(Code::kBusy, "group '{}' is in the middle of a pass: join when it has ended",
                      rules_.group);
  }
  return Status::Ok();
}

// Null when it has none, or several: which of them comes back would not be known.
GroupMembers::Member* GroupMembers::OnlyMemberOf(const ClientId& client) {
  Member* only = nullptr;
  for (const auto& member : members_) {
    if (client == ClientId{} || member->owner.client != client) continue;
    if (only != nullptr) return nullptr;
    only = member.get();
  }
  return only;
}

bool GroupMembers::MayComeBack(const Member& member) {
  return rules_.mode == wire::StreamMode::kShared && room_ && member.active() &&
         OnlyMemberOf(member.owner.client) == &member &&
         std::ranges::any_of(members_,
                             [&](const auto& other) { return other.get() != &member && other->present(); });
}

// The place that the client had in another session: that one may not be known to be lost yet.
GroupMembers::Member* GroupMembers::PlaceOf(const Owner& owner) {
  Member* const member = OnlyMemberOf(owner.client);
  if (member == nullptr || member->owner.session == owner.session || !MayComeBack(*member)) return nullptr;
  return member->lost() || !CheckFree().ok() ? member : nullptr;
}

// Between passes nobody who comes back would miss a batch: somebody else may have the place at once.
void GroupMembers::GiveAwayLostPlace() {
  if (passing() || active_count() < rules_.members_max) return;
  const auto found = std::ranges::find_if(members_, [](const auto& member) { return member->lost(); });
  if (found != members_.end()) Remove(**found, Status(Code::kCancelled, "another has its place"));
}

// What it had of the pass and has not released is given to it again.
void GroupMembers::ComeBack(Member& member, const Owner& owner, uint64_t stream) {
  AnswerPending(member, Status(Code::kCancelled, "the client goes on in another session"));
  member.owner = owner;
  member.stream = stream;
  member.lost_until = Clock::time_point::max();
  member.connection = member.in_pass() ? Connection::kReturned : Connection::kPresent;
  for (auto held = member.held.rbegin(); held != member.held.rend(); ++held) {
    if (member.in_pass() && held->second->pass == pass_) member.ready.push_front(held->second);
  }
  member.held.clear();
}

// Whether a member that came back wants the rest of the pass that it was in.
bool GroupMembers::GoesOn(Member& member, const wire::StartPass& request) const {
  if (member.connection != Connection::kReturned) return false;
  member.connection = Connection::kPresent;
  return pass_request_ != nullptr && Difference(request, *pass_request_).empty();
}

uint32_t GroupMembers::FreeOrder() const {
  uint32_t order = 0;
  const auto taken = [&order](const auto& member) { return member->active() && member->order == order; };
  while (std::ranges::any_of(members_, taken)) ++order;
  return order;
}

OpenedStream GroupMembers::Describe(const Member& member) const {
  OpenedStream opened = described_;
  opened.stream = member.stream;
  return opened;
}

Status GroupMembers::Join(const Owner& owner, uint64_t stream, Answer<OpenedStream> answer) {
  if (Member* const own = PlaceOf(owner)) {
    ComeBack(*own, owner, stream);
    Tell(answer, Describe(*own));
    return Status::Ok();
  }
  GiveAwayLostPlace();
  QUARRY_RETURN_IF_ERROR(CheckFree());
  if (active_count() + left_ == rules_.members_max) --left_;  // takes the place of one that left
  auto member = std::make_unique<Member>();
  member->owner = owner;
  member->stream = stream;
  member->order = FreeOrder();
  if (room_) {
    Tell(answer, Describe(*member));
  } else {
    member->opening = std::move(answer);
  }
  members_.push_back(std::move(member));
  return Status::Ok();
}

Status GroupMembers::CheckStart(const Member& member, const wire::StartPass& request) const {
  for (const auto& other : members_) {
    if (other.get() == &member || other->phase != Phase::kAsked) continue;
    const std::string difference = Difference(request, *other->request);
    if (difference.empty()) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "group '{}' starts another pass: {}", rules_.group, difference);
  }
  return Status::Ok();
}

void GroupMembers::StartPass(uint64_t stream, const wire::StartPass& request, Answer<uint64_t> answer) {
  Member* const member = Find(stream);
  if (member == nullptr) return Tell(answer, StreamNotOpen(stream));
  if (!member->active()) return Tell(answer, member->dropped);
  if (GoesOn(*member, request)) {
    if (pass_batches_) return Tell(answer, *pass_batches_);
    if (pass_over_) return Tell(answer, pass_status_);
    member->starting = std::move(answer);
    member->phase = Phase::kStarting;
    return;
  }
  const Status status = CheckStart(*member, request);
  if (!status.ok()) return Tell(answer, status);
  wire::StartPass asked = request;  // before anything changes: ids may be many, and memory may end
  AnswerPending(*member, MakeStatus(Code::kCancelled, "pass {} was started instead", request.pass));
  QuitPass(*member, Phase::kIdle);
  member->request = std::move(asked);
  member->starting = std::move(answer);
  member->phase = Phase::kAsked;
}

// All that it waits for but the opening of the stream.
void GroupMembers::AnswerPending(Member& member, const Status& why) {
  if (member.starting) Tell(std::exchange(member.starting, nullptr), why);
  if (member.phase == Phase::kAsked) member.phase = Phase::kIdle;
  if (member.phase == Phase::kStarting) member.phase = Phase::kPassing;
  member.request.reset();
  for (const Wanted& wanted : member.wanted) Tell(wanted.answer, why);
  member.wanted.clear();
}

void GroupMembers::QuitPass(Member& member, Phase next) {
  const bool was_in_pass = member.in_pass();
  member.phase = next;
  const std::deque<BatchRoom::Ref> ready = std::exchange(member.ready, {});
  if (!was_in_pass) return;
  for (const BatchRoom::Ref& batch : ready) GiveToOthers(member, batch);
}

void GroupMembers::GiveToOthers(const Member& member, const BatchRoom::Ref& batch) {
  if (rules_.mode != wire::StreamMode::kSplit || batch->pass != pass_) return;
  Member* const other = SplitMember(batch->index);
  if (other != nullptr && other != &member) GiveTo(*other, batch);
}

// In the order of production: what another gave up may be older than what the member has.
void GroupMembers::GiveTo(Member& member, const BatchRoom::Ref& batch) {
  const auto later = std::ranges::find_if(
      member.ready, [&](const BatchRoom::Ref& ready) { return ready->number > batch->number; });
  member.ready.insert(later, batch);
  ++member.given;
  Serve(member);
}

// Null when nobody takes any more.
GroupMembers::Member* GroupMembers::SplitMember(uint64_t index) {
  Member* fewest = nullptr;
  for (const auto& member : members_) {
    if (!member->in_pass() || member->phase == Phase::kTold) continue;
    if (member->order == index % rules_.members_max) return member.get();
    if (fewest == nullptr || member->given < fewest->given) fewest = member.get();
  }
  return fewest;
}

void GroupMembers::Next(uint64_t stream, uint64_t tag, Answer<std::optional<StreamBatch>> answer) {
  Member* const member = Find(stream);
  if (member == nullptr) return Tell(answer, StreamNotOpen(stream));
  if (!member->active()) return Tell(answer, member->dropped);
  if (member->phase == Phase::kIdle) {
    return Tell(answer, MakeStatus(Code::kUsage, "stream {} has no pass: start one first", stream));
  }
  member->wanted.push_back({tag, std::move(answer)});
  if (member->in_pass()) Serve(*member);
}

// Answers what the member waits for as far as there is something to say.
void GroupMembers::Serve(Member& member) {
  while (!member.wanted.empty() && !member.ready.empty()) Deliver(member);
  if (!pass_over_ || !member.waits()) return;
  member.phase = Phase::kTold;
  for (const Wanted& wanted : member.wanted) {
    if (pass_status_.ok()) {
      Tell(wanted.answer, std::optional<StreamBatch>());
    } else {
      Tell(wanted.answer, pass_status_);
    }
  }
  member.wanted.clear();
}

void GroupMembers::Deliver(Member& member) {
  const BatchRoom::Ref place = std::move(member.ready.front());
  member.ready.pop_front();
  const StreamBatch batch{
      .hold = next_hold_++, .index = place->index, .offset = place->offset, .bytes = place->bytes};
  member.held.emplace(batch.hold, place);
  ++member.batches;
  member.bytes += batch.bytes;
  if (rules_.delivered) rules_.delivered(batch.bytes);
  Tell(member.wanted.front().answer, std::optional<StreamBatch>(batch));
  member.wanted.pop_front();
}

void GroupMembers::CancelNext(uint64_t stream, uint64_t tag) {
  Member* const member = Find(stream);
  if (member == nullptr) return;
  const auto wanted = std::ranges::find(member->wanted, tag, &Wanted::tag);
  if (wanted == member->wanted.end()) return;
  Tell(wanted->answer, Status(Code::kCancelled, "the client does not want the batch any more"));
  member->wanted.erase(wanted);
}

void GroupMembers::Release(uint64_t stream, uint64_t hold) {
  if (Member* const member = Find(stream)) member->held.erase(hold);
}

void GroupMembers::Leave(uint64_t stream, const Status& why) {
  if (Member* const member = Find(stream)) Remove(*member, why);
}

void GroupMembers::Lose(uint64_t stream, const Status& why, Clock::time_point now) {
  Member* const member = Find(stream);
  if (member == nullptr) return;
  if (!MayComeBack(*member)) return Remove(*member, why);
  AnswerPending(*member, why);
  member->connection = Connection::kLost;
  member->lost_until = now + rules_.return_max;
}

void GroupMembers::LeaveAll(const Status& why) {
  while (!members_.empty()) Remove(*members_.back(), why);
}

void GroupMembers::Remove(Member& member, const Status& why) {
  if (member.opening) Tell(std::exchange(member.opening, nullptr), why);
  AnswerPending(member, why);
  const bool was_active = member.active(), in_pass = member.in_pass();
  QuitPass(member, Phase::kIdle);
  if (in_pass) {
    for (const auto& [hold, batch] : member.held) GiveToOthers(member, batch);
  }
  if (was_active) ++left_;
  std::erase_if(members_, [&member](const auto& own) { return own.get() == &member; });
  if (std::ranges::none_of(members_, [](const auto& own) { return own->present(); })) {
    closing_ = true;
    std::erase_if(members_, [](const auto& own) { return own->lost(); });
  }
}

void GroupMembers::Expire(Clock::time_point now) {
  const auto late = [now](const auto& member) { return member->lost() && member->lost_until <= now; };
  for (auto found = std::ranges::find_if(members_, late); found != members_.end();
       found = std::ranges::find_if(members_, late)) {
    Remove(**found, Status(Code::kCancelled, "its client has not come back"));
  }
}

GroupMembers::Clock::time_point GroupMembers::NextExpiry() const {
  auto next = Clock::time_point::max();
  for (const auto& member : members_) next = std::min(next, member->lost_until);
  return next;
}

void GroupMembers::AddStatus(const wire::StreamStatus& group,
                             std::vector<wire::StreamStatus>& streams) const {
  for (const auto& member : members_) {
    if (member->lost()) continue;
    wire::StreamStatus& status = streams.emplace_back(group);
    status.id = member->stream;
    status.session = member->owner.session;
    status.batches = member->batches;
    status.bytes = member->bytes;
    status.held = static_cast<uint32_t>(member->held.size());
    status.waiting = static_cast<uint32_t>(member->wanted.size());
    status.slots = described_.slots;
  }
}

}  // namespace quarry
