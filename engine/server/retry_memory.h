// RetryMemory: what the latest writes of each client came to, so that one that is sent again, since its
// answer was lost with a connection, is not done twice (docs/protocol.md, "Retries").
//
// Holds the last 64 numbers of a client, and a client for ten minutes at least after its last write. Failures
// are not kept: nothing was written, so such a write may be tried again.
//
// Thread-safe; answers come from any thread, also from within the calls, and hold no lock.
#pragma once

#include <array>
#include <chrono>
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

namespace quarry {

using ClientId = std::array<std::byte, 16>;

class RetryMemory {
 public:
  static constexpr size_t kNumbersMax = 64;
  static constexpr size_t kClientsMax = 4096;
  static constexpr std::chrono::minutes kKept{10};
  using Clock = std::chrono::steady_clock;
  using Answer = std::function<void(const Result<wire::Response>&)>;

  // A write under way. Who holds it finishes it with what it came to; one that dies unfinished was cancelled.
  class Turn {
   public:
    Turn(RetryMemory& memory, const ClientId& client, uint64_t number)
        : memory_(memory), client_(client), number_(number) {}
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    void Finish(const Result<wire::Response>& result);

   private:
    RetryMemory& memory_;
    const ClientId client_;
    const uint64_t number_;
    bool finished_ = false;
  };

  // The turn to do the write; null when it was done, or is being done. `answer` gets what it came to in all
  // cases, once. kUsage for a number that is older than those remembered; kBusy when too many clients have
  // written in the last ten minutes. `now` only ever grows.
  Result<std::shared_ptr<Turn>> Begin(const ClientId& client, uint64_t number, Answer answer,
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

  void Finish(const ClientId& client, uint64_t number, const Result<wire::Response>& result);
  void ForgetIdle(Clock::time_point now) QUARRY_REQUIRES(mutex_);
  static void ForgetOld(Client& client);

  Mutex mutex_;
  std::map<ClientId, Client> clients_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
