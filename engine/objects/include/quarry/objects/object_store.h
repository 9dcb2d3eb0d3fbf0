// ObjectStore: the objects of one place (place.h) in a store that speaks S3's protocol, by libcurl.
//
//   QUARRY_TRY(const auto store, ObjectStore::Open(place, access, budget, {}));
//   QUARRY_TRY(const ObjectBytes manifest, store->GetWhole("manifest", 64 << 20));
//   store->StartGet({.key = "data/x", .offset = 0, .into = block}, [](Result<ObjectAnswer> answer) { ... });
//
// Threads: all functions are thread-safe. One thread of the store's own runs all transfers; functions of a Start...
// are called on it, must not wait for other requests, and must not destroy the store. Memory that a request names
// (`into`, `body`, `check`) is the caller's, and in use until its function was called, which happens exactly once for
// each, also after Cancel and in the destructor.
//
// Failures: a request that got no whole, valid answer (refused connection, deadline, torn or wrong body, 408, 429,
// 5xx) is made again after a pause that doubles, times a random share (`seed`), until `attempts_max`. A request that
// hangs is replaced at its deadline, which follows measured answers, as the number of requests in flight does. What is
// left is a Status that names operation, URL and answer: kNotFound (404), kAlreadyExists (a condition did not hold:
// 412), kBusy (409, another conditional write is under way), kCancelled, kIoError for the rest, and what `check` says.
//
// Memory: bodies are the caller's; the store reserves its transfer buffers from the budget when it opens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/objects/access.h"
#include "quarry/objects/place.h"

namespace quarry {

struct ObjectStoreOptions {
  unsigned in_flight_max = 128;  // requests
  unsigned attempts_max = 8;
  double backoff_seconds = 0.1;  // before the second attempt
  double backoff_max_seconds = 10;
  double first_deadline_seconds = 10;  // of a request before any was answered
  double deadline_min_seconds = 2;
  double deadline_max_seconds = 60;  // of a request without a body
  uint64_t seed = 0;                 // of the pauses
};

struct ObjectAnswer {
  std::string etag;       // as it came, quotes included
  uint64_t bytes = 0;     // of the body; of a HEAD, of the object
  unsigned attempts = 1;  // that the request took
  std::string body;       // of answers that are XML
};

struct ObjectGet {
  std::string key;
  uint64_t offset = 0;
  std::span<std::byte> into;  // the answer must have all of it
  // Says whether the bytes are right; those that are not are asked for again. May be empty.
  std::function<Status(std::span<const std::byte>)> check;
};

struct ObjectBytes {
  std::vector<std::byte> bytes;
  std::string etag;
};

// A write goes through only where this holds of what is there.
struct PutCondition {
  bool absent = false;  // nothing is there (If-None-Match: *)
  std::string etag;     // this object is there (If-Match)
};

struct ObjectPart {
  uint32_t number = 0;  // from 1 on
  uint64_t bytes = 0;
  std::string etag;
};

struct ListedObject {
  std::string key;
  uint64_t bytes = 0;
};

// Totals since the store was opened.
struct ObjectStatistics {
  uint64_t requests = 0;  // that were sent, repetitions included
  uint64_t retries = 0;
  uint64_t replaced = 0;                        // retries of requests that missed their deadline
  uint64_t bytes_received = 0, bytes_sent = 0;  // bodies that counted
  unsigned in_flight = 0;                       // the window's size now
};

class ObjectStore {
 public:
  using Done = std::function<void(Result<ObjectAnswer>)>;

  // Keys are those below the place's prefix. Sends nothing. kUnsupported without libcurl, kOutOfBudget.
  static Result<std::unique_ptr<ObjectStore>> Open(const ObjectPlace& place, const ObjectAccess& access,
                                                   MemoryBudget& budget, const ObjectStoreOptions& options);
  virtual ~ObjectStore() = default;  // cancels what is under way, and waits for its functions

  virtual const ObjectPlace& place() const = 0;

  virtual void StartGet(ObjectGet get, Done done) = 0;
  virtual void StartPut(const std::string& key, std::span<const std::byte> body, Done done) = 0;
  virtual void StartPutPart(const std::string& key, const std::string& upload, uint32_t number,
                            std::span<const std::byte> body, Done done) = 0;

  // The same, and all below, wait for their answer.
  virtual Status Get(ObjectGet get) = 0;
  virtual Result<ObjectAnswer> Put(const std::string& key, std::span<const std::byte> body,
                                   const PutCondition& condition = {}) = 0;
  // kOutOfBudget for an object of more than bytes_max.
  virtual Result<ObjectBytes> GetWhole(const std::string& key, uint64_t bytes_max) = 0;
  virtual Result<ObjectAnswer> Head(const std::string& key) = 0;
  virtual Status Delete(const std::string& key) = 0;  // OK where there is none
  // All objects whose keys begin so, in the order of their keys.
  virtual Result<std::vector<ListedObject>> List(const std::string& key_prefix) = 0;

  // Multipart uploads: the object is there, whole, when Complete returns, and not before.
  virtual Result<std::string> CreateUpload(const std::string& key) = 0;               // its id
  virtual Result<std::optional<std::string>> FindUpload(const std::string& key) = 0;  // one that was begun
  virtual Result<std::vector<ObjectPart>> ListParts(const std::string& key, const std::string& upload) = 0;
  virtual Status CompleteUpload(const std::string& key, const std::string& upload,
                                std::span<const ObjectPart> parts) = 0;
  virtual Status AbortUpload(const std::string& key, const std::string& upload) = 0;

  // Everything under way and to come fails with kCancelled.
  virtual void Cancel() = 0;
  virtual ObjectStatistics statistics() const = 0;
};

}  // namespace quarry
