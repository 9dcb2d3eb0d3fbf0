// FakeStore: an object store that speaks S3's protocol over HTTP on loopback, and does to each request what the test's
// schedule says: answers, delays, fails, hangs, loses the answer, tears or spoils it. Conditional writes are atomic.
//
// Its outcome depends on the order of requests alone. Thread-safe; a thread for each connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/objects/access.h"

namespace quarry {

struct Fate {
  enum Kind {
    kAnswer,
    kSlowDown,  // 503, nothing done
    kError,     // 500, nothing done
    kHang,      // nothing done, and never an answer
    kLost,      // done, and the connection closes instead of an answer
    kHangDone,  // done, and never an answer
    kTorn,      // done, and half of the answer's body
    kSpoilt,    // done, and one bit of the answer's body is wrong
  };
  Kind kind = kAnswer;
  double delay_seconds = 0;
  std::function<void()> before_answer = {};  // when all is done but the answer
};

struct SeenRequest {
  uint64_t number = 0;  // from 1 on, in the order of arrival
  std::string method, target, range, authorization;
};

class FakeStore {
 public:
  using Schedule = std::function<Fate(const SeenRequest&)>;

  explicit FakeStore(Schedule schedule = {});
  ~FakeStore();
  FakeStore(const FakeStore&) = delete;
  FakeStore& operator=(const FakeStore&) = delete;

  std::string endpoint() const;
  ObjectAccess access() const;  // of any bucket
  void SetSchedule(Schedule schedule);

  std::map<std::string, std::string> objects() const;  // "bucket/key" -> bytes
  void PutObject(const std::string& path, const std::string& bytes);
  void Clear();                      // objects and uploads
  size_t uploads() const;            // that were begun, and neither completed nor aborted
  uint64_t requests() const;         // so far
  uint64_t manifest_writes() const;  // conditional writes that went through

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace quarry
