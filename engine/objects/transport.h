// Transport: HTTP requests to one store, many at a time, repeated until they are answered (object_store.h says how).
// Private to this room; the only user of libcurl.
//
//   waiting --window has room--> in flight --whole answer--> done
//      ^                             |  no answer, attempts left: a pause, then waiting again
//      +-----------------------------+  none left: done, with the Status of the last attempt
//
// Thread-safe; one thread of its own. `done` of a request is called on it, without a latch.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "curl_library.h"
#include "quarry/base/mutex.h"
#include "quarry/base/random.h"
#include "quarry/base/thread.h"
#include "quarry/objects/object_store.h"
#include "request_window.h"

namespace quarry {

struct HttpRequest {
  const char* operation = "GET";  // GET, PUT, POST, DELETE, HEAD
  std::string url;
  std::vector<std::string> headers;
  std::span<const std::byte> body;
  std::span<std::byte> into;  // of a GET of a range: where its bytes go; empty: the body is text
  uint64_t offset = 0;        // of that range
  uint64_t text_bytes_max = 16 << 20;
  std::function<Status(std::span<const std::byte>)> check;  // of `into`
  std::function<bool(const std::string&)>
      fails;  // whether an answer of 200 is an error by its text, which is tried again
  std::function<void(Result<ObjectAnswer>)> done;
};

class Transport {
 public:
  static Result<std::unique_ptr<Transport>> Make(const ObjectAccess& access, MemoryBudget& budget,
                                                 const ObjectStoreOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  void Start(HttpRequest request);
  Result<ObjectAnswer> Perform(HttpRequest request);  // waits; `done` is its own
  void Cancel();
  ObjectStatistics statistics() const;

 private:
  struct Attempt;
  using Clock = std::chrono::steady_clock;

  Transport(const CurlLibrary& curl, const ObjectAccess& access, const ObjectStoreOptions& options);
  void Run();
  void TakeNew();
  void Begin(std::unique_ptr<Attempt> attempt);
  void RenewKeys();
  void Arm(Attempt& attempt);
  void ReplaceLate();
  void Finish(CURL* handle, CURLcode code);
  void Detach(Attempt& attempt);
  void RetryOrFail(std::unique_ptr<Attempt> attempt, Status status, bool final);
  void FailAll(const Status& why);
  Status Judge(Attempt& attempt, CURLcode code, bool& final, bool& slow_down) const;
  void Answer(Attempt& attempt, const Status& status);
  int PollMilliseconds() const;
  Status Fault(const Attempt& attempt, Code code, const std::string& answer) const;
  static double Seconds(Clock::time_point time);

  const CurlLibrary& curl_;
  ObjectAccess access_;  // the thread's, once it runs
  const ObjectStoreOptions options_;
  const std::string signature_;  // as libcurl wants it
  Clock::time_point next_renewal_;
  MemoryBudget::Reservation reservation_;
  CURLM* multi_ = nullptr;
  std::vector<CURL*> idle_;  // handles, which keep their connections' state

  // The thread's.
  RequestWindow window_;
  Rng rng_;
  std::map<CURL*, std::unique_ptr<Attempt>> in_flight_;
  std::vector<Attempt*> begun_;  // of those, since the last look
  std::multimap<Clock::time_point, std::unique_ptr<Attempt>> paused_;
  std::deque<std::unique_ptr<Attempt>> ready_;

  mutable Mutex mutex_;
  std::deque<HttpRequest> new_ QUARRY_GUARDED_BY(mutex_);
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  bool ending_ QUARRY_GUARDED_BY(mutex_) = false;
  bool ended_ QUARRY_GUARDED_BY(mutex_) = false;  // the thread: nobody would take what comes
  ObjectStatistics statistics_ QUARRY_GUARDED_BY(mutex_);

  Thread thread_;  // last: dies before what it uses
};

}  // namespace quarry
