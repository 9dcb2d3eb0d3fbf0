// IoRing: whole reads and writes with a bounded depth over an IoPort.
//
// Requests beyond the depth wait in the ring, in order. Short transfers are continued, EINTR and EAGAIN
// retried (at most kRetriesMax times without progress); reading past the end of the file is an error.
// Completions come in any order. One thread owns a ring; neither copied nor moved.
//
//   queued -> submitted [Pump] -> completed [Wait] ; short or EAGAIN: submitted -> queued [Wait]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/io/backend.h"

namespace quarry {

struct IoRequest {
  const File* file = nullptr;  // outlives the request
  uint64_t offset = 0;
  uint32_t bytes = 0;
  std::byte* buffer = nullptr;  // outlives the request; what is written is only read
  uint64_t user_data = 0;
  RawRequest::Kind kind = RawRequest::Kind::kRead;
};
using ReadRequest = IoRequest;

struct RingStats {
  uint64_t requests = 0;  // requests as the caller counted them
  uint64_t bytes = 0;
  uint64_t retries = 0;     // short transfers, EINTR, EAGAIN
  double wait_seconds = 0;  // blocked in Wait
};

class IoRing {
 public:
  static constexpr unsigned kRetriesMax = 16;
  static Result<std::unique_ptr<IoRing>> Make(IoBackend& backend, unsigned depth);
  virtual ~IoRing() = default;
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  // Queues `requests` and submits as many as the depth allows. Never blocks.
  virtual Status Submit(std::span<const IoRequest> requests) = 0;
  // Waits until at least one request that was submitted has completed, appends the user_data of all that have
  // to `done` and submits more of those queued. Returns at once when there is nothing to wait for. On an
  // error the ring is poisoned: Drain() it, then destroy it.
  virtual Status Wait(std::vector<uint64_t>& done) = 0;
  // Waits for everything in flight and forgets what is queued: afterwards no buffer is in use.
  virtual void Drain() = 0;
  virtual size_t pending() const = 0;  // queued and submitted
  virtual const RingStats& stats() const = 0;

 protected:
  IoRing() = default;
};

}  // namespace quarry
