// GroupMembers: who is in a group of streams (stream_group.h), how far each is in the group's pass, and whose each
// batch is. Pure: it knows no thread, no lock and no clock, so every rule of a group can be tested call by call.
//
// A member's *phase*:
//
//   idle     -> asked      it has asked for a pass [StartPass]
//   asked    -> starting   so have all others: its batches are made once for all of them [BeginPass]
//   starting -> passing    it was told how many batches there are [Begun], or that the road refuses the pass [EndPass]
//   passing  -> told       it has had its batches, and was told that the pass is over [Next, EndPass]
//   passing  -> starting   it has come back before the road has begun, and asks for the pass that it is in [StartPass]
//   asked    -> idle, starting -> passing   its connection was lost, or its client goes on in another session: nobody is told
//   any      -> asked      it starts another pass, and what it was in goes on without it
//   any      -> dropped    it kept others waiting for `lag_max` [TakePlace]: it has nothing any more but what it holds
//
// A member's *connection*, beside its phase: present; lost (its place, what is ready for it and what it held are kept for
// `return_max` [Lose]); returned (in another session, in the middle of a pass that it has not asked for again [Join]).
//
// Whose is a batch? In a split, of the member whose turn it is by the batch's number; if that one is not in the pass any
// more, of the one that was given the fewest. Otherwise of all. What a member has not asked for when it quits a pass goes
// to others where each batch has one reader; so does, when it leaves, what it holds.
//
// In a shared group a member that does not release would stop the others. One that has done so for `lag_max`, while
// another waits for a batch and has nothing to release, is dropped. What it holds stays as it is until it closes the
// stream, since it may be reading it. One whose connection is lost would miss batches that are made once, so its place is
// kept, while others are there.
//
// What calls are told goes to the queue of answers. Not thread-safe: all of it is under the group's lock, references to
// places of the room included.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer_queue.h"
#include "batch_room.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/service/stream_hub.h"

namespace quarry {

// What a call about a stream that does not exist, or not any more, is told.
Status StreamNotOpen(uint64_t stream);

class GroupMembers {
 public:
  template <typename T>
  using Answer = StreamHub::Answer<T>;
  using Clock = std::chrono::steady_clock;

  struct Rules {
    wire::StreamMode mode = wire::StreamMode::kExclusive;
    uint32_t members_max = 1;
    std::string group;  // its name, for messages
    std::chrono::milliseconds lag_max, return_max;
    std::function<void(uint64_t bytes)> delivered;  // a batch to a member; may be empty
  };

  // Whose a member is.
  struct Owner {
    SessionId session = 0;
    ClientId client{};
  };

  // What the producer remembers while it waits for one place.
  struct Wait {
    std::vector<uint64_t> laggards;  // the streams that have kept the others waiting
    Clock::time_point since;         // since when these, and no others, have
    // Until when a place that is large enough is waited for.
    Clock::time_point stuck_until = Clock::time_point::max();
    // When to ask again, if nothing changes before.
    Clock::time_point until = Clock::time_point::max();
  };

  // `answers` outlive it.
  GroupMembers(Rules rules, AnswerQueue& answers) : rules_(std::move(rules)), answers_(answers) {}

  // What members do. REQUIRES for Join: not closing. kBusy: the group is full, or in the middle of a pass.
  Status Join(const Owner& owner, uint64_t stream, Answer<OpenedStream> answer);
  void StartPass(uint64_t stream, const wire::StartPass& request, Answer<uint64_t> answer);
  void Next(uint64_t stream, uint64_t tag, Answer<std::optional<StreamBatch>> answer);
  void CancelNext(uint64_t stream, uint64_t tag);
  void Release(uint64_t stream, uint64_t hold);
  void Leave(uint64_t stream, const Status& why);  // `why` answers what is pending
  void Lose(uint64_t stream, const Status& why,
            Clock::time_point now);  // as Leave, but the client may come back
  void LeaveAll(const Status& why);

  // What the producer does, in this order: Opened once; then for each pass BeginPass, Begun unless the road refuses,
  // TakePlace and Give for each batch, EndPass; LetGo at last.
  void Opened(const OpenedStream& described, BatchRoom room, uint64_t slot_bytes);
  // All that are to be members have asked for the same pass. Those who left are not waited for, those who have never been
  // here are.
  bool AllHaveStarted() const;
  // Takes what they asked for. REQUIRES: AllHaveStarted()
  std::shared_ptr<const wire::StartPass> BeginPass();
  void Begun(uint64_t batches);
  // A place for a batch, once whoever is to get it may hold one more and there is room. Null: not now, ask again when
  // something has changed, or at `wait.until`. kOutOfBudget: there is no room for such a batch, or there has been none for
  // `lag_max`. kBusy: members that were dropped hold all places.
  Result<std::shared_ptr<BatchRoom::Place>> TakePlace(uint64_t index, uint64_t bytes, Wait& wait,
                                                      Clock::time_point now);
  void Give(std::shared_ptr<BatchRoom::Place> place);
  void EndPass(const Status& status);
  // Places and region, whoever still has some of them.
  void LetGo();

  // Members that have not come back in time leave.
  void Expire(Clock::time_point now);
  // When the next of them is due.
  Clock::time_point NextExpiry() const;

  // The last member has left.
  bool closing() const { return closing_; }
  void AddStatus(const wire::StreamStatus& group, std::vector<wire::StreamStatus>& streams) const;

 private:
  enum class Phase { kIdle, kAsked, kStarting, kPassing, kTold, kDropped };
  enum class Connection { kPresent, kLost, kReturned };
  struct Wanted {
    uint64_t tag = 0;
    Answer<std::optional<StreamBatch>> answer;
  };
  struct Member {
    Owner owner;
    uint64_t stream = 0;
    uint32_t order = 0;  // place among the group's `members`
    Phase phase = Phase::kIdle;
    Connection connection = Connection::kPresent;
    Clock::time_point lost_until = Clock::time_point::max();
    Answer<OpenedStream> opening;            // until the group is open
    std::optional<wire::StartPass> request;  // kAsked
    Answer<uint64_t> starting;               // kAsked, kStarting
    std::deque<Wanted> wanted;
    Status dropped;                           // kDropped: answers everything
    std::deque<BatchRoom::Ref> ready;         // produced, not asked for; in the order of production
    std::map<uint64_t, BatchRoom::Ref> held;  // by hold
    uint64_t given = 0;                       // batches of this pass
    uint64_t batches = 0, bytes = 0;          // delivered

    bool active() const { return phase != Phase::kDropped; }
    bool lost() const { return connection == Connection::kLost; }
    bool present() const { return active() && !lost(); }
    bool in_pass() const {
      return phase == Phase::kStarting || phase == Phase::kPassing || phase == Phase::kTold;
    }
    bool waits() const { return in_pass() && !wanted.empty(); }
    size_t outstanding() const { return ready.size() + held.size(); }
    bool Has(uint64_t number) const;
  };

  template <typename T, typename Value>
  void Tell(const Answer<T>& answer, Value value) {
    answers_.Add([answer, value = Result<T>(std::move(value))] { answer(value); });
  }

  // Joining and coming back.
  Member* Find(uint64_t stream);
  uint32_t active_count() const;
  bool passing() const;
  Status CheckFree() const;
  Member* OnlyMemberOf(const ClientId& client);
  bool MayComeBack(const Member& member);
  Member* PlaceOf(const Owner& owner);
  void GiveAwayLostPlace();
  void ComeBack(Member& member, const Owner& owner, uint64_t stream);
  bool GoesOn(Member& member, const wire::StartPass& request) const;
  uint32_t FreeOrder() const;
  OpenedStream Describe(const Member& member) const;

  // Passes.
  Status CheckStart(const Member& member, const wire::StartPass& request) const;
  void AnswerPending(Member& member, const Status& why);
  void QuitPass(Member& member, Phase next);
  void GiveTo(Member& member, const BatchRoom::Ref& batch);
  void GiveToOthers(const Member& member, const BatchRoom::Ref& batch);
  Member* SplitMember(uint64_t index);
  void Serve(Member& member);
  void Deliver(Member& member);
  void Remove(Member& member, const Status& why);

  // Room, and who is in the way.
  bool HasSlots(uint64_t index);
  bool IsStuckTooLong(Wait& wait, Clock::time_point now) const;
  Clock::time_point WaitOrDrop(Wait& wait, Clock::time_point now);
  std::vector<uint64_t> Laggards() const;
  bool SomebodyWaits(const std::vector<uint64_t>& laggards) const;
  bool OnlyDroppedHold() const;
  Status NoRoomFor(uint64_t index, uint64_t bytes) const;
  void Drop(Member& member);

  const Rules rules_;
  AnswerQueue& answers_;
  std::optional<BatchRoom> room_;  // nothing until the group is open; outlives the references to its places
  uint64_t slot_bytes_ = 0;        // what a batch is expected to take at most
  OpenedStream described_;
  std::vector<std::unique_ptr<Member>> members_;
  uint32_t left_ = 0;  // active members that have gone, and were not replaced
  bool closing_ = false;
  uint64_t pass_ = 0;  // counts them
  std::shared_ptr<const wire::StartPass> pass_request_;
  std::optional<uint64_t> pass_batches_;  // nothing until the road has begun it
  bool pass_over_ = true;
  Status pass_status_;  // how it ended
  uint64_t next_hold_ = 1;
};

}  // namespace quarry
