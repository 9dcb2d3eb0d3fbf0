// StreamGroup: one road, the thread that produces its batches, the region that they lie in, and the members
// that they are for.
//
//   opening -> idle       [OpenAll]
//   idle -> passing       all members that there are have started a pass [WaitForPass]
//   passing -> idle       the last batch is in the region, an error, or all members have started another pass
//   any -> closing        the last member has left, or opening failed; what is being prepared is given up
//   closing -> gone       [Run] road, region and budget have been let go
//
// A member goes through a pass by itself: it is in the pass from its begin until it starts the next one or
// leaves, and is told of the end once it has had its batches. What happens to it is answered in order
// (AnswerQueue): callers call Answer() once they hold no lock.
//
// Whose is a batch? In a split, of the member whose turn it is by the batch's number; if that one is not in
// the pass any more, of the one that was given the fewest. Otherwise of all.
//
// In a shared group a member that does not release would stop the others. One that has done so for `lag_max`,
// while another waits for a batch and has nothing to release, is dropped. What it has not asked for is given
// up; what it holds stays as it is until it closes the stream, since it may be reading it.
//
// A member of a shared group whose connection is lost would miss batches that are made once. Its place, what
// is ready for it and what it held are kept for `return_max`, while others are there: a client that comes
// back goes on in the pass where it was [ComeBack].
//
// Thread-safe. The last reference must not be dropped by the group's own thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "answer_queue.h"
#include "batch_room.h"
#include "deficit_round_robin.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/service/road_opener.h"
#include "quarry/service/stream_hub.h"

namespace quarry {

// What a call about a stream that does not exist, or not any more, is told.
Status StreamNotOpen(uint64_t stream);

class StreamGroup {
 public:
  template <typename T>
  using Answer = StreamHub::Answer<T>;

  // What all groups of a hub share; outlives them.
  struct Environment {
    Store& store;
    DeficitRoundRobin& turns;
    const StreamHubOptions options;
    RoadMetrics* const metrics;  // may be null
  };

  // What it takes of the server's threads and descriptors while it exists.
  struct Claims {
    Allowance::Claim threads, descriptors;
  };

  // Whose a member is.
  struct Owner {
    SessionId session = 0;
    ClientId client{};
  };

  // `request` is that of the first member, which is to Join before Start. `before`: groups that are closing
  // and pay from the same budget; the road is opened once they are gone.
  StreamGroup(Environment& environment, SessionId session, std::shared_ptr<MemoryBudget> budget,
              Claims claims, const wire::OpenStream& request, std::shared_ptr<const Snapshot> snapshot,
              uint64_t number, std::vector<std::shared_ptr<StreamGroup>> before);
  ~StreamGroup();

  // kOutOfBudget when the system has no thread for it.
  Status Start();
  // False when the group is closing: it is to be replaced.
  Result<bool> Join(const Owner& owner, uint64_t stream, const wire::OpenStream& request,
                    const std::shared_ptr<const Snapshot>& snapshot, Answer<OpenedStream> answer);
  void StartPass(uint64_t stream, const wire::StartPass& request, Answer<uint64_t> answer);
  void Next(uint64_t stream, uint64_t tag, Answer<std::optional<StreamBatch>> answer);
  void CancelNext(uint64_t stream, uint64_t tag);
  void Release(uint64_t stream, uint64_t hold);
  void Leave(uint64_t stream, const Status& why);  // `why` answers what is pending
  void Lose(uint64_t stream, const Status& why);   // as Leave, but the client may come back
  void LeaveAll(const Status& why);
  StreamStats Stats() const;
  void AddStatus(std::vector<wire::StreamStatus>& streams) const;

  void RunAnswers() { answers_.Run(); }
  bool closing() const;
  bool gone() const;
  void WaitGone();
  void JoinThread();
  const MemoryBudget* budget() const { return budget_key_; }  // to be compared, not used

 private:
  struct Wanted {
    uint64_t tag = 0;
    Answer<std::optional<StreamBatch>> answer;
  };
  struct PendingStart {
    wire::StartPass request;
    Answer<uint64_t> answer;
  };
  using Clock = std::chrono::steady_clock;
  struct Member {
    Owner owner;
    uint64_t stream = 0;
    std::optional<Clock::time_point> lost_until;  // its connection is lost: it may come back by then
    bool came_back = false;                       // in the middle of a pass, which it has not started again
    uint32_t order = 0;                           // place among the group's `members`
    Answer<OpenedStream> opening;                 // until it is answered, as the following two
    std::optional<PendingStart> start;
    Answer<uint64_t> starting;  // the road is starting the pass
    std::deque<Wanted> wanted;
    bool in_pass = false;
    bool told_end = false;
    Status dropped;                           // not OK: answers everything
    std::deque<BatchRoom::Ref> ready;         // produced, not asked for; in the order of production
    std::map<uint64_t, BatchRoom::Ref> held;  // by hold
    uint64_t given = 0;                       // batches of this pass
    uint64_t batches = 0, bytes = 0;          // delivered

    bool active() const { return dropped.ok(); }
    bool present() const { return active() && !lost_until; }
    size_t outstanding() const { return ready.size() + held.size(); }
    bool Has(uint64_t number) const {
      const auto is_it = [number](const BatchRoom::Ref& batch) { return batch->number == number; };
      return std::ranges::any_of(ready, is_it) ||
             std::ranges::any_of(held, is_it, &std::map<uint64_t, BatchRoom::Ref>::value_type::second);
    }
  };
  // Since when the same members have stopped the others; until when a place that is large enough is waited
  // for.
  struct Lag {
    std::vector<uint64_t> streams;
    Clock::time_point since;
    Clock::time_point stuck_until = Clock::time_point::max();
  };

  template <typename T, typename Value>
  void Tell(const Answer<T>& answer, Value value) {
    answers_.Add([answer, value = Result<T>(std::move(value))] { answer(value); });
  }

  // stream_group.cc: what members do.
  Member* Find(uint64_t stream) QUARRY_REQUIRES(mutex_);
  uint32_t active_count() const QUARRY_REQUIRES(mutex_);
  bool passing() const QUARRY_REQUIRES(mutex_);
  bool AllHaveStarted() const QUARRY_REQUIRES(mutex_);
  void Changed() QUARRY_REQUIRES(mutex_);
  Status CheckSame(const wire::OpenStream& request, const std::shared_ptr<const Snapshot>& snapshot) const
      QUARRY_REQUIRES(mutex_);
  Status CheckFree() const QUARRY_REQUIRES(mutex_);
  Member* OnlyMemberOf(const ClientId& client) QUARRY_REQUIRES(mutex_);
  Member* PlaceOf(const Owner& owner) QUARRY_REQUIRES(mutex_);
  void GiveAwayLostPlace() QUARRY_REQUIRES(mutex_);
  void ComeBack(Member& member, const Owner& owner, uint64_t stream) QUARRY_REQUIRES(mutex_);
  bool GoesOn(Member& member, const wire::StartPass& request) const QUARRY_REQUIRES(mutex_);
  bool MayComeBack(const Member& member) QUARRY_REQUIRES(mutex_);
  uint32_t FreeOrder() const QUARRY_REQUIRES(mutex_);
  Status CheckStart(const Member& member, const wire::StartPass& request) const QUARRY_REQUIRES(mutex_);
  OpenedStream DescribeStream(const Member& member) const QUARRY_REQUIRES(mutex_);
  void AnswerPending(Member& member, const Status& why) QUARRY_REQUIRES(mutex_);
  void QuitPass(Member& member) QUARRY_REQUIRES(mutex_);
  void GiveToOthers(const Member& member, const BatchRoom::Ref& batch) QUARRY_REQUIRES(mutex_);
  void Serve(Member& member) QUARRY_REQUIRES(mutex_);
  void Deliver(Member& member) QUARRY_REQUIRES(mutex_);
  void Drop(Member& member) QUARRY_REQUIRES(mutex_);
  void LeaveLocked(Member& member, const Status& why) QUARRY_REQUIRES(mutex_);
  Member* SplitMember(uint64_t index) QUARRY_REQUIRES(mutex_);

  // stream_producer.cc: the group's thread.
  void Run();
  void GiveUp(const Status& why);
  void OpenAll();
  Status OpenRegion(OpenedRoad opened);
  bool WaitForPass();
  void RunPass();
  Result<uint64_t> BeginPass(const std::stop_token& stop);
  void AnswerStarting(const Result<uint64_t>& begun);
  Status Produce(const std::stop_token& stop);
  Status ProduceOne(std::unique_ptr<Batch> batch, std::optional<DeficitRoundRobin::Producer>& producer,
                    const std::stop_token& stop);
  void CountRead(const BatchStream& stream);
  void EndPass(const Status& status);
  Result<std::shared_ptr<BatchRoom::Place>> TakePlace(uint64_t index, uint64_t bytes,
                                                      std::optional<DeficitRoundRobin::Producer>& producer,
                                                      const std::stop_token& stop);
  Status NoRoomFor(uint64_t index, uint64_t bytes) const;
  bool HasSlots(uint64_t index) QUARRY_REQUIRES(mutex_);
  void WaitForRoom(Lag& lag) QUARRY_REQUIRES(mutex_);
  bool IsStuckTooLong(Lag& lag) const QUARRY_REQUIRES(mutex_);
  void WaitForChange(Clock::time_point deadline = Clock::time_point::max()) QUARRY_REQUIRES(mutex_);
  std::vector<uint64_t> Laggards() const QUARRY_REQUIRES(mutex_);
  bool SomebodyWaits(const std::vector<uint64_t>& laggards) const QUARRY_REQUIRES(mutex_);
  bool OnlyDroppedHold() const QUARRY_REQUIRES(mutex_);
  void Give(std::shared_ptr<BatchRoom::Place> place) QUARRY_REQUIRES(mutex_);
  void LetGo();

  Environment& environment_;
  const SessionId session_;  // whose turns it uses: that of the first member
  const wire::OpenStream request_;
  const uint32_t members_max_;
  const std::string name_;
  const MemoryBudget* const budget_key_;

  // The thread's own.
  std::shared_ptr<MemoryBudget> budget_;
  Claims claims_;
  std::vector<std::shared_ptr<StreamGroup>> before_;
  std::optional<OpenedRoad> opened_;
  std::span<std::byte> memory_;  // the region's
  StreamStats counted_;          // figures of the pass that the metrics have been told

  AnswerQueue answers_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<const Snapshot> snapshot_ QUARRY_GUARDED_BY(mutex_);  // null: the road's is not taken yet
  std::shared_ptr<SharedRegion> region_ QUARRY_GUARDED_BY(mutex_);      // null until the group is open
  OpenedStream described_ QUARRY_GUARDED_BY(mutex_);
  std::unique_ptr<BatchRoom> room_ QUARRY_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Member>> members_ QUARRY_GUARDED_BY(mutex_);
  uint32_t left_ QUARRY_GUARDED_BY(mutex_) = 0;  // active members that have gone, and were not replaced
  bool closing_ QUARRY_GUARDED_BY(mutex_) = false;
  std::stop_source opening_ QUARRY_GUARDED_BY(mutex_);  // stopped with closing_
  bool gone_ QUARRY_GUARDED_BY(mutex_) = false;
  uint64_t pass_ QUARRY_GUARDED_BY(mutex_) = 0;  // counts them
  std::shared_ptr<const wire::StartPass> pass_request_ QUARRY_GUARDED_BY(mutex_);
  std::optional<uint64_t> pass_batches_ QUARRY_GUARDED_BY(mutex_);  // nothing until it has begun
  bool pass_over_ QUARRY_GUARDED_BY(mutex_) = true;
  Status pass_status_ QUARRY_GUARDED_BY(mutex_);  // how it ended
  std::stop_source stop_ QUARRY_GUARDED_BY(mutex_);
  std::unique_ptr<BatchStream> stream_ QUARRY_GUARDED_BY(mutex_);
  StreamStats last_stats_ QUARRY_GUARDED_BY(mutex_);
  uint64_t next_hold_ QUARRY_GUARDED_BY(mutex_) = 1;

  Thread thread_;
};

}  // namespace quarry
