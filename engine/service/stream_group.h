// StreamGroup: one road, the thread that produces its batches, and the region that they lie in. Who the batches are for, and
// whose each is, is its members' matter (group_members.h), which it keeps under its lock.
//
//   opening -> idle       [OpenAll]
//   idle -> passing       all members that there are have started a pass [WaitForPass]
//   passing -> idle       the last batch is in the region, an error, or all members have started another pass
//   any -> closing        the last member has left, or opening failed; what is being prepared is given up
//   closing -> gone       [Run] road, region and budget have been let go
//
// What happens to members is answered in order (AnswerQueue): callers call RunAnswers() once they hold no lock.
//
// Thread-safe. The last reference must not be dropped by the group's own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "answer_queue.h"
#include "batch_room.h"
#include "deficit_round_robin.h"
#include "group_members.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/service/road_opener.h"
#include "quarry/service/stream_hub.h"

namespace quarry {

class StreamGroup {
 public:
  template <typename T>
  using Answer = StreamHub::Answer<T>;
  using Owner = GroupMembers::Owner;

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
  using Clock = GroupMembers::Clock;

  void Changed() QUARRY_REQUIRES(mutex_);
  Status CheckSame(const wire::OpenStream& request, const std::shared_ptr<const Snapshot>& snapshot) const
      QUARRY_REQUIRES(mutex_);

  // stream_producer.cc: the group's thread.
  void Run();
  void GiveUp(const Status& why);
  void OpenAll();
  Status OpenRegion(OpenedRoad opened);
  std::shared_ptr<const wire::StartPass> WaitForPass();
  void RunPass(const wire::StartPass& request);
  Status BeginPass(const wire::StartPass& request, const std::stop_token& stop);
  Status Produce(const std::stop_token& stop);
  Status ProduceOne(std::unique_ptr<Batch> batch, std::optional<DeficitRoundRobin::Producer>& producer,
                    const std::stop_token& stop);
  Result<std::shared_ptr<BatchRoom::Place>> TakePlace(uint64_t index, uint64_t bytes,
                                                      std::optional<DeficitRoundRobin::Producer>& producer,
                                                      const std::stop_token& stop);
  void WaitForChange(Clock::time_point deadline = Clock::time_point::max()) QUARRY_REQUIRES(mutex_);
  void CountRead(const BatchStream& stream);
  void EndPass(const Status& status);
  void LetGo();

  Environment& environment_;
  const SessionId session_;  // whose turns it uses: that of the first member
  const wire::OpenStream request_;
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
  GroupMembers members_ QUARRY_GUARDED_BY(mutex_);
  std::shared_ptr<const Snapshot> snapshot_ QUARRY_GUARDED_BY(mutex_);  // null: the road's is not taken yet
  std::stop_source opening_ QUARRY_GUARDED_BY(mutex_);                  // stopped when the group closes
  bool gone_ QUARRY_GUARDED_BY(mutex_) = false;
  std::stop_source stop_ QUARRY_GUARDED_BY(mutex_);  // of the pass
  std::unique_ptr<BatchStream> stream_ QUARRY_GUARDED_BY(mutex_);
  StreamStats last_stats_ QUARRY_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace quarry
