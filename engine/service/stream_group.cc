#include "stream_group.h"

#include <cassert>
#include <utility>

#include "stream_difference.h"

namespace quarry {
namespace {

GroupMembers::Rules RulesOf(const StreamGroup::Environment& environment, const wire::OpenStream& request) {
  GroupMembers::Rules rules{
      .mode = request.mode,
      .members_max = request.mode == wire::StreamMode::kExclusive ? 1 : request.members,
      .group = request.group,
      .lag_max = environment.options.lag_max,
      .return_max = environment.options.return_max,
  };
  if (RoadMetrics* const metrics = environment.metrics) {
    rules.delivered = [metrics, road = request.road.index()](uint64_t bytes) {
      metrics->AddBatch(road, bytes);
    };
  }
  return rules;
}

}  // namespace

StreamGroup::StreamGroup(Environment& environment, SessionId session, std::shared_ptr<MemoryBudget> budget,
                         Claims claims, const wire::OpenStream& request,
                         std::shared_ptr<const Snapshot> snapshot, uint64_t number,
                         std::vector<std::shared_ptr<StreamGroup>> before)
    : environment_(environment),
      session_(session),
      request_(request),
      name_(fmt::format("stream-{}", number)),
      budget_key_(budget.get()),
      budget_(std::move(budget)),
      claims_(std::move(claims)),
      before_(std::move(before)),
      members_(RulesOf(environment, request), answers_),
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
  return members_.closing();
}

bool StreamGroup::gone() const {
  MutexLock lock(mutex_);
  return gone_;
}

void StreamGroup::WaitGone() {
  MutexLock lock(mutex_);
  while (!gone_) changed_.Wait(mutex_);
}

// Wakes the producer, and takes it out of its pass when that is to end.
void StreamGroup::Changed() {
  if (members_.closing()) opening_.request_stop();
  if (members_.closing() || members_.AllHaveStarted()) stop_.request_stop();
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

Result<bool> StreamGroup::Join(const Owner& owner, uint64_t stream, const wire::OpenStream& request,
                               const std::shared_ptr<const Snapshot>& snapshot, Answer<OpenedStream> answer) {
  MutexLock lock(mutex_);
  if (members_.closing()) return false;
  QUARRY_RETURN_IF_ERROR(CheckSnapshot(request, snapshot.get()));
  QUARRY_RETURN_IF_ERROR(CheckSame(request, snapshot));
  const Status joined = members_.Join(owner, stream, std::move(answer));
  Changed();
  QUARRY_RETURN_IF_ERROR(joined);
  return true;
}

void StreamGroup::StartPass(uint64_t stream, const wire::StartPass& request, Answer<uint64_t> answer) {
  MutexLock lock(mutex_);
  members_.StartPass(stream, request, std::move(answer));
  Changed();
}

void StreamGroup::Next(uint64_t stream, uint64_t tag, Answer<std::optional<StreamBatch>> answer) {
  MutexLock lock(mutex_);
  members_.Next(stream, tag, std::move(answer));
  Changed();  // somebody waits: others may lag behind
}

void StreamGroup::CancelNext(uint64_t stream, uint64_t tag) {
  MutexLock lock(mutex_);
  members_.CancelNext(stream, tag);
}

void StreamGroup::Release(uint64_t stream, uint64_t hold) {
  MutexLock lock(mutex_);
  members_.Release(stream, hold);
  Changed();
}

void StreamGroup::Leave(uint64_t stream, const Status& why) {
  MutexLock lock(mutex_);
  members_.Leave(stream, why);
  Changed();
}

void StreamGroup::Lose(uint64_t stream, const Status& why) {
  MutexLock lock(mutex_);
  members_.Lose(stream, why, Clock::now());
  Changed();
}

void StreamGroup::LeaveAll(const Status& why) {
  MutexLock lock(mutex_);
  members_.LeaveAll(why);
  Changed();
}

StreamStats StreamGroup::Stats() const {
  MutexLock lock(mutex_);
  return stream_ == nullptr ? last_stats_ : stream_->stats();
}

void StreamGroup::AddStatus(std::vector<wire::StreamStatus>& streams) const {
  const StreamStats stats = Stats();
  MutexLock lock(mutex_);
  members_.AddStatus({.road = std::string(RoadMetrics::RoadName(request_.road.index())),
                      .group = request_.mode == wire::StreamMode::kExclusive ? "" : request_.group,
                      .read_bytes = stats.feature_bytes_read + stats.topology_bytes_read,
                      .cache_lookups = stats.cache_lookups,
                      .cache_hits = stats.cache_hits,
                      .consumer_wait_seconds = stats.consumer_wait_seconds},
                     streams);
}

}  // namespace quarry
