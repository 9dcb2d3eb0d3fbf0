#include "quarry/service/stream_hub.h"

#include <algorithm>
#include <map>
#include <utility>

#include "deficit_round_robin.h"
#include "quarry/base/mutex.h"
#include "stream_group.h"

namespace quarry {
namespace {

using GroupPtr = std::shared_ptr<StreamGroup>;

class StreamHubImpl final : public StreamHub {
 public:
  StreamHubImpl(Store& store, const StreamHubOptions& options, RoadMetrics* metrics)
      : turns_(options.producing_max), environment_{store, turns_, options, metrics} {}

  ~StreamHubImpl() override {
    const std::vector<GroupPtr> groups = Groups();
    for (const GroupPtr& group : groups) group->LeaveAll(Status(Code::kCancelled, "the server shuts down"));
    for (const GroupPtr& group : groups) group->RunAnswers();
    for (const GroupPtr& group : groups) group->JoinThread();
  }

  void Open(SessionId session, const ClientId& client, std::shared_ptr<MemoryBudget> budget,
            const wire::OpenStream& request, std::shared_ptr<const Snapshot> snapshot,
            Answer<OpenedStream> answer) override {
    Reap();
    const Result<GroupPtr> group =
        Place({session, client}, std::move(budget), request, std::move(snapshot), answer);
    if (!group.ok()) return answer(group.status());
    (*group)->RunAnswers();
  }

  void StartPass(SessionId session, const wire::StartPass& request, Answer<uint64_t> answer) override {
    const GroupPtr group = Find(session, request.stream);
    if (group == nullptr) return answer(StreamNotOpen(request.stream));
    group->StartPass(request.stream, request, std::move(answer));
    group->RunAnswers();
  }

  void Next(SessionId session, uint64_t stream, uint64_t tag,
            Answer<std::optional<StreamBatch>> answer) override {
    const GroupPtr group = Find(session, stream);
    if (group == nullptr) return answer(StreamNotOpen(stream));
    group->Next(stream, tag, std::move(answer));
    group->RunAnswers();
  }

  void CancelNext(SessionId session, uint64_t stream, uint64_t tag) override {
    const GroupPtr group = Find(session, stream);
    if (group == nullptr) return;
    group->CancelNext(stream, tag);
    group->RunAnswers();
  }

  void Release(SessionId session, uint64_t stream, uint64_t hold) override {
    if (const GroupPtr group = Find(session, stream)) group->Release(stream, hold);
  }

  Status Close(SessionId session, uint64_t stream) override {
    const GroupPtr group = Find(session, stream);
    if (group == nullptr) return StreamNotOpen(stream);
    Forget(stream);
    Leave(*group, stream);
    Reap();
    return Status::Ok();
  }

  void WaitClosed(const MemoryBudget& budget) override {
    std::vector<GroupPtr> closing;
    {
      MutexLock lock(mutex_);
      closing = ClosingOn(budget);
    }
    for (const GroupPtr& group : closing) group->WaitGone();
  }

  void CloseSession(SessionId session) override {
    for (const auto& [stream, group] : TakeSession(session)) {
      group->Lose(stream, MakeStatus(Code::kCancelled, "the session of stream {} has ended", stream));
      group->RunAnswers();
    }
    Reap();
  }

  Result<StreamStats> Stats(SessionId session, uint64_t stream) override {
    const GroupPtr group = Find(session, stream);
    if (group == nullptr) return StreamNotOpen(stream);
    return group->Stats();
  }

  std::vector<wire::StreamStatus> Streams() const override {
    std::vector<wire::StreamStatus> streams;
    for (const GroupPtr& group : Groups()) group->AddStatus(streams);
    return streams;
  }

 private:
  struct OpenStream {
    SessionId session = 0;
    GroupPtr group;
  };

  std::vector<GroupPtr> Groups() const {
    MutexLock lock(mutex_);
    return groups_;
  }

  GroupPtr Find(SessionId session, uint64_t stream) const {
    MutexLock lock(mutex_);
    const auto found = streams_.find(stream);
    return found == streams_.end() || found->second.session != session ? nullptr : found->second.group;
  }

  void Forget(uint64_t stream) {
    MutexLock lock(mutex_);
    streams_.erase(stream);
  }

  static void Leave(StreamGroup& group, uint64_t stream) {
    group.Leave(stream, MakeStatus(Code::kCancelled, "stream {} was closed", stream));
    group.RunAnswers();
  }

  std::vector<std::pair<uint64_t, GroupPtr>> TakeSession(SessionId session) {
    std::vector<std::pair<uint64_t, GroupPtr>> taken;
    MutexLock lock(mutex_);
    for (const auto& [stream, open] : streams_) {
      if (open.session == session) taken.emplace_back(stream, open.group);
    }
    for (const auto& [stream, group] : taken) streams_.erase(stream);
    return taken;
  }

  // Puts the stream into the group of its name, or into one of its own.
  Result<GroupPtr> Place(const StreamGroup::Owner& owner, std::shared_ptr<MemoryBudget> budget,
                         const wire::OpenStream& request, std::shared_ptr<const Snapshot> snapshot,
                         const Answer<OpenedStream>& answer) {
    MutexLock lock(mutex_);
    QUARRY_RETURN_IF_ERROR(CheckOpen(owner.session, request));
    const uint64_t stream = next_stream_++;
    const auto told = [this, stream, answer](const Result<OpenedStream>& opened) {
      if (!opened.ok()) Forget(stream);
      answer(opened);
    };
    const bool named = request.mode != wire::StreamMode::kExclusive;
    if (const auto found = groups_by_name_.find(request.group); named && found != groups_by_name_.end()) {
      QUARRY_TRY(const bool joined, found->second->Join(owner, stream, request, snapshot, told));
      if (joined) {
        streams_[stream] = {owner.session, found->second};
        return found->second;
      }
    }
    QUARRY_TRY(StreamGroup::Claims claims, TakeClaims(CostOf(request)));
    std::vector<GroupPtr> before = ClosingOn(*budget);
    auto group =
        std::make_shared<StreamGroup>(environment_, owner.session, std::move(budget), std::move(claims),
                                      request, std::move(snapshot), stream, std::move(before));
    QUARRY_TRY([[maybe_unused]] const bool joined, group->Join(owner, stream, request, nullptr, told));
    // Known before it runs: what finds no memory here must not leave a thread that nobody joins.
    groups_.push_back(group);
    streams_[stream] = {owner.session, group};
    if (named) groups_by_name_[request.group] = group;
    if (const Status started = group->Start(); !started.ok()) {
      groups_.pop_back();
      streams_.erase(stream);
      if (named) groups_by_name_.erase(request.group);
      return started;
    }
    return group;
  }

  Result<StreamGroup::Claims> TakeClaims(const StreamCost& cost) const {
    constexpr std::string_view kWho = "a stream of this road";
    const StreamHubOptions& options = environment_.options;
    StreamGroup::Claims claims;
    if (options.threads != nullptr) {
      QUARRY_TRY(claims.threads, options.threads->Take(cost.threads, kWho));
    }
    if (options.descriptors != nullptr) {
      QUARRY_TRY(claims.descriptors, options.descriptors->Take(cost.descriptors, kWho));
    }
    return claims;
  }

  Status CheckOpen(SessionId session, const wire::OpenStream& request) const QUARRY_REQUIRES(mutex_) {
    if (request.mode != wire::StreamMode::kExclusive && (request.members == 0 || request.group.empty())) {
      return MakeStatus(Code::kInvalidArgument, "group '{}' of {} members: it needs a name and a member",
                        request.group, request.members);
    }
    const auto open = std::ranges::count_if(
        streams_, [session](const auto& stream) { return stream.second.session == session; });
    if (static_cast<size_t>(open) < kStreamsMax) return Status::Ok();
    return MakeStatus(Code::kBusy, "the session has {} streams open: close one first", kStreamsMax);
  }

  // What they hold of the budget is the next one's.
  std::vector<GroupPtr> ClosingOn(const MemoryBudget& budget) const QUARRY_REQUIRES(mutex_) {
    std::vector<GroupPtr> closing;
    for (const GroupPtr& group : groups_) {
      if (group->budget() == &budget && group->closing()) closing.push_back(group);
    }
    return closing;
  }

  // Forgets the groups that are gone.
  void Reap() {
    std::vector<GroupPtr> gone;
    MutexLock lock(mutex_);
    for (const GroupPtr& group : groups_) {
      if (group->gone()) gone.push_back(group);
    }
    for (const GroupPtr& group : gone) {
      group->JoinThread();  // which has nothing left to do
      std::erase(groups_, group);
      std::erase_if(groups_by_name_, [&group](const auto& named) { return named.second == group; });
    }
  }

  DeficitRoundRobin turns_;
  StreamGroup::Environment environment_;
  mutable Mutex mutex_;
  uint64_t next_stream_ QUARRY_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, OpenStream> streams_ QUARRY_GUARDED_BY(mutex_);
  std::map<std::string, GroupPtr> groups_by_name_ QUARRY_GUARDED_BY(mutex_);
  std::vector<GroupPtr> groups_ QUARRY_GUARDED_BY(mutex_);  // not joined yet
};

}  // namespace

std::unique_ptr<StreamHub> StreamHub::Make(Store& store, const StreamHubOptions& options,
                                           RoadMetrics* metrics) {
  return std::make_unique<StreamHubImpl>(store, options, metrics);
}

}  // namespace quarry
