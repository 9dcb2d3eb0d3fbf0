// DeviceFeed: batches of any stream, to a device (docs/architecture.md "GPUs").
//
// A road that keeps rows on the device gives batches that are there, which pass through. Those of other roads lie in
// memory: their rows are gathered into a piece of pinned memory, which goes over by one copy.
#pragma once

#include <cstdint>
#include <memory>

#include "quarry/base/status.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/device_target.h"

namespace quarry {

class DeviceFeed {
 public:
  // Takes no memory before the first batch that needs some: then two pieces of the host's and three frames of the
  // device's, a quarter larger than it, and larger ones when a batch does not fit. `bytes_max`: the most that a piece
  // may have; kOutOfBudget for a batch that takes more, or more of the device than `target` allows.
  DeviceFeed(const DeviceTarget& target, uint64_t bytes_max);
  // Streams must be gone.
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // `stream` with batches on the device. One at a time; REQUIRES: it has one batch out at a time.
  std::unique_ptr<BatchStream> Feed(std::unique_ptr<BatchStream> stream);

 private:
  class Fed;
  struct Buffers;

  // Adds what went over to `device_bytes`.
  Result<std::unique_ptr<Batch>> Send(std::unique_ptr<Batch> batch, uint64_t& device_bytes);
  Status Enlarge(const FeatureView& features, uint64_t bytes);

  const DeviceTarget target_;
  const uint64_t bytes_max_;
  std::unique_ptr<Buffers> buffers_;  // null before the first batch
};

}  // namespace quarry
