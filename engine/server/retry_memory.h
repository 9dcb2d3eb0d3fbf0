// RetryMemory: what the latest writes of each client came to, so that one that is sent again, since its
// answer was lost with a connection, is not done twice (docs/protocol.md, "Retries").
//
// Holds the last 64 numbers of a client, and a client for ten minutes at least after its last write. A user
// whose clients have filled its part of the memory (user_shares.h) loses those that have not written for a
// minute, and is refused when it has no such write to give up; nobody else is refused. Failures are not kept:
// nothing was written, so such a write may be tried again.
//
// Thread-safe; answers come from any thread, also from within the calls, and hold no lock.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_responses.h"
#include "quarry/service/stream_hub.h"
#include "user_shares.h"

namespace quarry {

class RetryMemory {
 public:
  static constexpr size_t kNumbersMax = 64;
  static constexpr size_t kWritesMax = 1 << 16;
  static constexpr std::chrono::minutes kKept{10};
  static constexpr std::chrono::minutes kKeptAtLeast{1};
  using Clock = std::chrono::steady_clock;
  using Answer = std::function<void(const Result<wire::Response>&)>;

  // Who numbers its writes: ids are the clients' to choose, so no user's are those of another.
  struct Writer {
    uid_t user = 0;
    ClientId client{};
    auto operator<=>(const Writer&) const = default;
  };

  // `users`: who may come.
  explicit RetryMemory(const std::vector<uid_t>& users = {}) : shares_(kWritesMax, users) {}

  // A write under way. Its holder finishes it with the outcome; a turn that dies unfinished was cancelled.
  class Turn {
   public:
    Turn(RetryMemory& memory, const Writer& writer, uint64_t number)
        : memory_(memory), writer_(writer), number_(number) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    void Finish(const Result<wire::Response>& result);

   private:
    RetryMemory& memory_;
    const Writer writer_;
    const uint64_t number_;
    bool finished_ = false;
  };

  // The turn to do the write; null when it was done, or is being done. `answer` gets what it came to in all
  // cases, once. kUsage for a number that is older than those remembered; kBusy when the user's
  // clients have written too much in the last minute. `now` only ever grows.
  Result<std::shared_ptr<Turn>> Begin(const Writer& writer, uint64_t number, Answer answer,
                                      Clock::time_point now = Clock::now());

 private:
  struct Write {
    std::optional<wire::Response> response;  // none: under way
    std::vector<Answer> answers;             // who waits for it
  };
  struct Client {
    std::map<uint64_t, Write> writes;
    uint64_t forgotten = 0;  // the largest number that is not remembered any more
    Clock::time_point last;
  };

  void Finish(const Writer& writer, uint64_t number, const Result<wire::Response>& result);
  bool MakeRoom(uid_t user, Clock::time_point now) QUARRY_REQUIRES(mutex_);
  void ForgetOld(uid_t user, Client& client) QUARRY_REQUIRES(mutex_);

  Mutex mutex_;
  UserShares shares_ QUARRY_GUARDED_BY(mutex_);  // how kWritesMax is shared
  std::map<Writer, Client> clients_ QUARRY_GUARDED_BY(mutex_);
  std::map<uid_t, Clock::time_point> looked_ QUARRY_GUARDED_BY(mutex_);  // for room, in vain
};

}  // namespace quarry
