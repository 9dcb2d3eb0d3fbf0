// What the producer asks of the members: their pass, whose a batch is, and what is in the way of the next one.
#include <algorithm>
#include <ranges>

#include "group_members.h"
#include "quarry/base/units.h"

namespace quarry {

void GroupMembers::Opened(const OpenedStream& described, BatchRoom room, uint64_t slot_bytes) {
  described_ = described;
  slot_bytes_ = slot_bytes;
  room_.emplace(std::move(room));
  for (const auto& member : members_) {
    Tell(member->opening, Describe(*member));
    member->opening = nullptr;
  }
}

std::shared_ptr<const wire::StartPass> GroupMembers::BeginPass() {
  for (const auto& member : members_) {
    if (!member->active()) continue;
    pass_request_ = std::make_shared<const wire::StartPass>(std::move(*member->request));
    member->request.reset();
    member->phase = Phase::kStarting;
    member->given = 0;
  }
  ++pass_;
  pass_over_ = false;
  pass_status_ = Status::Ok();
  pass_batches_.reset();
  return pass_request_;
}

void GroupMembers::Begun(uint64_t batches) {
  pass_batches_ = batches;
  for (const auto& member : members_) {
    if (member->phase != Phase::kStarting) continue;
    Tell(member->starting, batches);  // before it counts as told: memory may end
    member->starting = nullptr;
    member->phase = Phase::kPassing;
  }
}

void GroupMembers::EndPass(const Status& status) {
  pass_over_ = true;
  pass_status_ = status;
  for (const auto& member : members_) {
    if (member->phase == Phase::kStarting) {  // the road has refused the pass
      Tell(member->starting, status);
      member->starting = nullptr;
      member->phase = Phase::kPassing;
    }
    Serve(*member);
  }
}

void GroupMembers::LetGo() {
  for (const auto& member : members_) {  // those who were dropped
    member->ready.clear();
    member->held.clear();
  }
  room_.reset();
  described_.region.reset();
}

// In a split, the batch goes to one member; otherwise to every member that is in the pass. Each reference keeps the place
// taken until its member lets go.
void GroupMembers::Give(std::shared_ptr<BatchRoom::Place> place) {
  const BatchRoom::Ref batch = std::move(place);
  if (rules_.mode == wire::StreamMode::kSplit) {
    if (Member* const member = SplitMember(batch->index)) GiveTo(*member, batch);
    return;
  }
  for (const auto& member : members_) {
    if (member->in_pass()) GiveTo(*member, batch);
  }
}

Result<std::shared_ptr<BatchRoom::Place>> GroupMembers::TakePlace(uint64_t index, uint64_t bytes, Wait& wait,
                                                                  Clock::time_point now) {
  if (!room_->CanHold(bytes)) return NoRoomFor(index, bytes);
  if (HasSlots(index)) {
    if (std::shared_ptr<BatchRoom::Place> place = room_->Take(bytes)) {
      place->index = index;
      place->pass = pass_;
      return place;
    }
    if (OnlyDroppedHold()) {
      return MakeStatus(Code::kBusy,
                        "group '{}': members that fell behind hold all of its shared memory, until they "
                        "close their streams",
                        rules_.group);
    }
    if (IsStuckTooLong(wait, now)) return NoRoomFor(index, bytes);
  }
  wait.until = WaitOrDrop(wait, now);
  return std::shared_ptr<BatchRoom::Place>();
}

Status GroupMembers::NoRoomFor(uint64_t index, uint64_t bytes) const {
  return MakeStatus(Code::kOutOfBudget,
                    "batch {} takes {}, its stream expected {} at most and has no room for such a one beside "
                    "those that are "
                    "held: ask for smaller batches, or release each before the next",
                    index, FormatBytes(bytes), FormatBytes(slot_bytes_));
}

// Whoever is to get the batch may hold one more.
bool GroupMembers::HasSlots(uint64_t index) {
  if (rules_.mode == wire::StreamMode::kSplit) {
    const Member* const member = SplitMember(index);
    return member != nullptr && member->outstanding() < described_.slots;
  }
  return std::ranges::all_of(members_, [this](const auto& member) {
    return !member->in_pass() || member->outstanding() < described_.slots;
  });
}

// True when places are free but none is large enough, and has not been for lag_max. Those who wait for the batch may hold
// the only large place themselves, so without a limit this could last for ever.
bool GroupMembers::IsStuckTooLong(Wait& wait, Clock::time_point now) const {
  const bool waits = std::ranges::any_of(members_, [](const auto& member) { return member->waits(); });
  const bool others_wait = rules_.mode == wire::StreamMode::kShared && SomebodyWaits(Laggards());
  if (!waits || others_wait) {
    wait.stuck_until = Clock::time_point::max();
  } else if (wait.stuck_until == Clock::time_point::max()) {
    wait.stuck_until = now + rules_.lag_max;
  }
  return now >= wait.stuck_until;
}

// When to ask again. The same members that have stopped the others for lag_max are dropped instead: only in a shared
// group, and only while somebody else waits and has nothing to release.
GroupMembers::Clock::time_point GroupMembers::WaitOrDrop(Wait& wait, Clock::time_point now) {
  std::vector<uint64_t> laggards = Laggards();
  if (rules_.mode != wire::StreamMode::kShared || !SomebodyWaits(laggards)) {
    wait.laggards.clear();
    return wait.stuck_until;
  }
  if (laggards != wait.laggards) {
    wait.laggards = std::move(laggards);
    wait.since = now;
  }
  const Clock::time_point deadline = wait.since + rules_.lag_max;
  if (now < deadline) return deadline;
  for (const uint64_t stream : wait.laggards) Drop(*Find(stream));
  return now;
}

// The members that stop the group: those that hold all slots they may have; if there are none and the region is full,
// those that have not released the oldest batch.
std::vector<uint64_t> GroupMembers::Laggards() const {
  std::vector<uint64_t> laggards;
  for (const auto& member : members_) {
    if (member->in_pass() && member->outstanding() >= described_.slots) laggards.push_back(member->stream);
  }
  for (auto place = room_->places().begin(); laggards.empty() && place != room_->places().end(); ++place) {
    for (const auto& member : members_) {
      if (member->active() && member->Has(place->first)) laggards.push_back(member->stream);
    }
  }
  return laggards;
}

bool GroupMembers::SomebodyWaits(const std::vector<uint64_t>& laggards) const {
  return !laggards.empty() && std::ranges::any_of(members_, [&laggards](const auto& member) {
    return member->waits() && std::ranges::find(laggards, member->stream) == laggards.end();
  });
}

bool GroupMembers::OnlyDroppedHold() const {
  return std::ranges::none_of(
      members_, [](const auto& member) { return member->active() && member->outstanding() > 0; });
}

void GroupMembers::Drop(Member& member) {
  member.dropped = MakeStatus(
      Code::kCancelled,
      "stream {} fell behind: the others of group '{}' waited {} s for it to release batches; close it",
      member.stream, rules_.group, std::chrono::duration<double>(rules_.lag_max).count());
  AnswerPending(member, member.dropped);
  QuitPass(member, Phase::kDropped);
  ++left_;
}

}  // namespace quarry
