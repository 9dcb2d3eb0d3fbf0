// Link: what a remote store has of its server: the session of now, and the next one when that is lost; and
// the snapshots that are to outlive it. Retries are loops around sessions, not around frames: a call builds
// its request anew for the session that it goes to, since ranges of shared memory, snapshots and streams are
// the session's. Private to this library.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

#include "deadline.h"
#include "quarry/base/mutex.h"
#include "session.h"

namespace quarry::client {

class Link {
 public:
  // One attempt to connect.
  static Result<std::shared_ptr<Link>> Open(const SessionOptions& options, double timeout_seconds);

  const std::string& path() const { return options_.place.path; }
  double timeout_seconds() const { return timeout_seconds_; }  // for a request
  Deadline NewDeadline() const { return DeadlineIn(timeout_seconds_); }

  // The session; another one, after pauses that double from 10 ms to 1 s, where it was lost. kIoError when
  // there is none in time.
  Result<std::shared_ptr<Session>> Current(Deadline deadline);

  // What `attempt` (a session -> a Result) comes to in a session that is not lost meanwhile.
  template <typename Attempt>
  std::invoke_result_t<Attempt, const std::shared_ptr<Session>&> Run(Deadline deadline, Attempt attempt) {
    while (true) {
      QUARRY_TRY(const std::shared_ptr<Session> session, Current(deadline));
      auto result = attempt(session);
      if (result.ok()) pause_ms_.store(kPauseMsMin, std::memory_order_relaxed);
      if (result.ok() || !WentAway(*session, result.status(), deadline)) return result;
    }
  }
  // Whether what failed with `status` failed because the session ended, or the server is about to end it; and
  // another session may do better.
  static bool WentAway(Session& session, const Status& status, Deadline deadline);

  struct Taken {
    uint64_t id = 0;  // the client's own, the same in every session
    uint64_t timestamp = 0;
  };
  Result<Taken> TakeSnapshot(Deadline deadline);
  void ReleaseSnapshot(uint64_t id);
  // What the server calls the snapshot in this session. A snapshot that went with another one is taken again;
  // kIoError when there were commits meanwhile: it would be another one.
  Result<uint64_t> SnapshotIn(const std::shared_ptr<Session>& session, uint64_t id, Deadline deadline);

 private:
  static constexpr int64_t kPauseMsMin = 10;
  static constexpr int64_t kPauseMsMax = 1000;

  struct Held {
    uint64_t timestamp = 0;
    uint64_t id = 0;  // the server's
    std::weak_ptr<Session> session;
  };

  Link(const SessionOptions& options, double timeout_seconds, std::shared_ptr<Session> session)
      : options_(options), timeout_seconds_(timeout_seconds), session_(std::move(session)) {}
  Result<std::shared_ptr<Session>> Reconnect(Deadline deadline);

  const SessionOptions options_;
  const double timeout_seconds_;
  std::atomic<int64_t> pause_ms_{kPauseMsMin};  // before the next attempt to connect

  Mutex mutex_;
  CondVar connected_;
  bool connecting_ QUARRY_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Session> session_ QUARRY_GUARDED_BY(mutex_);  // null once it is lost

  Mutex snapshots_mutex_;
  uint64_t snapshots_taken_ QUARRY_GUARDED_BY(snapshots_mutex_) = 0;
  std::map<uint64_t, Held> snapshots_ QUARRY_GUARDED_BY(snapshots_mutex_);
};

}  // namespace quarry::client
