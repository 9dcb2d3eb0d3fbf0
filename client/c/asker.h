// Asker: asks a stream for its next batch from a thread of its own, so that whoever waits for the batch can
// stop waiting, by a deadline or because another thread says so. Private to the C interface.
//
//   kIdle     -> kAsked     [Begin, NextWithin]
//   kAsked    -> kAnswered  [Run: the stream has answered]
//   kAnswered -> kIdle      [NextWithin takes the answer; Forget drops it]
//
// One thread at a time, except for Cancel. The stream outlives it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/client/store.h"

namespace quarry::client {

class Asker {
 public:
  explicit Asker(Stream& stream) : stream_(stream) {}
  ~Asker();  // waits for a batch that is under way
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;

  // Called with every batch of a pass before it is given out, on the thread that asked the stream for it.
  using Prepare = std::function<void(std::unique_ptr<Batch>&)>;
  // For the passes to come; while no batch is under way.
  void PrepareBy(Prepare prepare) { prepare_ = std::move(prepare); }

  using Deadline = std::optional<std::chrono::steady_clock::time_point>;
  // The next batch, null behind the last; nothing when the deadline has passed. kCancelled after Cancel, once.
  // After both the next call waits for the same batch.
  Result<std::optional<std::unique_ptr<Batch>>> NextWithin(Deadline deadline);
  // The same on the calling thread, as long as no batch is under way.
  Result<std::unique_ptr<Batch>> Next();
  // Asks, and does not wait: for whoever has something else to do before the next call.
  Status Begin();
  void Cancel();
  // Waits for a batch that is under way, and keeps it for the next call.
  void Settle();
  // Waits for it and drops it, and a Cancel that nobody has met.
  void Forget();

 private:
  enum class State { kIdle, kAsked, kAnswered };
  using Answer = Result<std::unique_ptr<Batch>>;

  void Run();
  Answer Ask();
  void Break(const Status& why);
  Answer Take() QUARRY_REQUIRES(mutex_);

  Stream& stream_;
  Prepare prepare_;  // of whoever asks the stream, one thread at a time
  Mutex mutex_;
  CondVar changed_;
  State state_ QUARRY_GUARDED_BY(mutex_) = State::kIdle;
  std::optional<Answer> answer_ QUARRY_GUARDED_BY(mutex_);
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  bool stopping_ QUARRY_GUARDED_BY(mutex_) = false;
  Status broken_ QUARRY_GUARDED_BY(mutex_);  // what ended the thread, if anything did
  Thread thread_;                            // from the first NextWithin on; last: dies before what it uses
};

}  // namespace quarry::client
