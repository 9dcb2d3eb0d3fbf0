#include "link.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "../request_errors.h"

namespace quarry::client {
namespace {

constexpr double kShutdownSeconds =
    1;  // from the last answers of a server that stops to the end of its sockets

// Faults that a later attempt need not meet: of a server that is not up yet, or full.
bool MayPass(Code code) {
  return code == Code::kIoError || code == Code::kNotFound || code == Code::kBusy ||
         code == Code::kCancelled || code == Code::kOutOfBudget;
}

Result<wire::SnapshotTaken> Take(Session& session, Deadline deadline) {
  QUARRY_TRY(Connection::Answer answer, session.Call(wire::TakeSnapshot{}, deadline));
  return Expect<wire::SnapshotTaken>(answer.response, session.path());
}

}  // namespace

// What was granted is in use: a session that takes the place of another waits for as much, which the server
// may still hold for that one.
Result<std::shared_ptr<Link>> Link::Open(const SessionOptions& options, double timeout_seconds) {
  const double patience = timeout_seconds + options.wait_seconds;
  QUARRY_TRY(std::shared_ptr<Session> session, Session::Open(options, DeadlineIn(patience)));
  SessionOptions next = options;
  next.budget_bytes_min = session->budget_bytes();
  next.wait_seconds = timeout_seconds;
  return std::shared_ptr<Link>(new Link(next, timeout_seconds, std::move(session)));
}

Result<std::shared_ptr<Session>> Link::Current(Deadline deadline) {
  std::shared_ptr<Session> old;
  {
    MutexLock lock(mutex_);
    while (connecting_) {
      if (connected_.WaitUntil(mutex_, deadline)) continue;
      return MakeStatus(Code::kIoError, "{}: the connection to the server is lost, and no other came in time",
                        path());
    }
    if (session_ != nullptr && !session_->lost()) return session_;
    connecting_ = true;
    old = std::exchange(session_, nullptr);
  }
  old.reset();  // the server counts its memory for as long as it is mapped here
  Result<std::shared_ptr<Session>> session = Reconnect(deadline);
  MutexLock lock(mutex_);
  connecting_ = false;
  if (session.ok()) session_ = *session;
  connected_.NotifyAll();
  return session;
}

Result<std::shared_ptr<Session>> Link::Reconnect(Deadline deadline) {
  Status fault = MakeStatus(Code::kIoError, "no attempt was made");
  while (true) {
    const int64_t pause_ms = pause_ms_.load(std::memory_order_relaxed);
    const Deadline next = Clock::now() + std::chrono::milliseconds(pause_ms);
    std::this_thread::sleep_until(std::min(next, deadline));
    if (next > deadline) {
      return MakeStatus(Code::kIoError,
                        "{}: the connection to the server is lost, and no other came in time: {}", path(),
                        fault.message());
    }
    pause_ms_.store(std::min(2 * pause_ms, kPauseMsMax), std::memory_order_relaxed);
    Result<std::shared_ptr<Session>> session = Session::Open(options_, deadline);
    if (session.ok() || !MayPass(session.status().code())) return session;
    fault = session.status();
  }
}

bool Link::WentAway(Session& session, const Status& status, Deadline deadline) {
  if (!session.lost()) {
    // Nobody here cancels what somebody waits for: the server does, when it shuts down.
    if (status.code() != Code::kCancelled) return false;
    if (!session.connection().WaitLost(std::min(deadline, DeadlineIn(kShutdownSeconds)))) return false;
  }
  return MayPass(session.connection().fault().code());
}

Result<Link::Taken> Link::TakeSnapshot(Deadline deadline) {
  return Run(deadline, [&](const std::shared_ptr<Session>& session) -> Result<Taken> {
    QUARRY_TRY(const wire::SnapshotTaken taken, Take(*session, deadline));
    MutexLock lock(snapshots_mutex_);
    const uint64_t id = ++snapshots_taken_;
    snapshots_.emplace(id, Held{.timestamp = taken.timestamp, .id = taken.snapshot, .session = session});
    return Taken{.id = id, .timestamp = taken.timestamp};
  });
}

void Link::ReleaseSnapshot(uint64_t id) {
  Held held;
  {
    MutexLock lock(snapshots_mutex_);
    held = std::move(snapshots_.extract(id).mapped());
  }
  const std::shared_ptr<Session> session = held.session.lock();
  if (session != nullptr) session->connection().Post(wire::ReleaseSnapshot{.snapshot = held.id});
}

Result<uint64_t> Link::SnapshotIn(const std::shared_ptr<Session>& session, uint64_t id, Deadline deadline) {
  if (id == 0) return id;
  MutexLock lock(snapshots_mutex_);
  const auto found = snapshots_.find(id);
  if (found == snapshots_.end()) return NoSnapshot(id);
  Held& held = found->second;
  if (held.session.lock() == session) return held.id;
  QUARRY_TRY(const wire::SnapshotTaken taken, Take(*session, deadline));
  if (taken.timestamp == held.timestamp) {
    held.id = taken.snapshot;
    held.session = session;
    return held.id;
  }
  session->connection().Post(wire::ReleaseSnapshot{.snapshot = taken.snapshot});
  return MakeStatus(Code::kIoError,
                    "{}: the snapshot of timestamp {} went with the connection, and the newest is {} by now: "
                    "take another one",
                    path(), held.timestamp, taken.timestamp);
}

}  // namespace quarry::client
