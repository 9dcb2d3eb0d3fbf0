// RateMeter: what a device moves a second, measured: over its link, by copies and by kernels that read the host's memory,
// and within its own. `quarry calibrate` and `./dev bench gpu` measure with it.
//
// It owns a stream, events, pinned memory of the host and memory of the device, and must go before its Device. One thread
// at a time. Errors are the device's; kOutOfBudget when the memory cannot be had.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"

namespace quarry::gpu {

// Anonymous memory of the host: huge pages of the system's pool, else those that it makes itself, else ordinary ones.
class HostPages {
 public:
  static Result<HostPages> Map(uint64_t bytes);
  HostPages(HostPages&& other) noexcept;
  HostPages& operator=(HostPages&& other) noexcept;
  ~HostPages();
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit HostPages(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

struct RateOptions {
  uint64_t host_bytes = uint64_t{256} << 20;      // pinned
  uint64_t table_bytes = uint64_t{8} << 30;       // of the device: much more than its cache
  uint64_t gathered_bytes = uint64_t{512} << 20;  // by one launch
  unsigned repeats = 7;                           // of which the median counts
};

class RateMeter {
 public:
  static Result<std::unique_ptr<RateMeter>> Make(Device& device, const RateOptions& options = {});

  ~RateMeter();
  RateMeter(const RateMeter&) = delete;
  RateMeter& operator=(const RateMeter&) = delete;

  // Bytes a second of copies of so many bytes each, one behind the other over all of the pinned memory.
  Result<double> CopyIn(uint64_t piece_bytes);
  Result<double> CopyOut(uint64_t piece_bytes);
  // Both ways at once, on two streams: the sum.
  Result<double> CopyBothWays(uint64_t piece_bytes);
  // Rows of the host's memory that a kernel reads over the link, at random.
  Result<double> GatherMapped(uint64_t row_bytes);

  // Within the device's memory; what is read and what is written both count.
  Result<double> CopyWithin();
  Result<double> Gather(uint64_t row_bytes);

  // Seconds of what `enqueue` puts on the stream, by events: the median of the repeats, after some that do not count.
  Result<double> Seconds(const std::function<Status(StreamHandle)>& enqueue);

  Device& device() { return device_; }
  std::span<std::byte> host() const { return host_.bytes(); }
  std::span<std::byte> table() const { return table_.get(); }
  std::span<std::byte> out() const { return out_.get(); }
  // Random numbers below `limit`, on the device, until the next call. REQUIRES: count rows of 64 bytes fit gathered_bytes.
  Result<const uint32_t*> RandomRows(uint64_t count, uint64_t limit);

 private:
  RateMeter(Device& device, const RateOptions& options, HostPages host, HostPages slots_host)
      : device_(device), options_(options), host_(std::move(host)), slots_host_(std::move(slots_host)) {}
  Result<double> GatherFrom(const std::byte* rows, uint64_t bytes, uint64_t row_bytes);

  Device& device_;
  const RateOptions options_;
  HostPages host_, slots_host_;
  Pinned pinned_, slots_pinned_;
  Memory table_, out_, slots_;
  Stream stream_, other_stream_;
  Event begin_, end_, forked_, joined_;
};

// What people are told of a device: bytes a second, as RateMeter counts them.
struct RowRate {
  uint64_t row_bytes = 0;
  double bytes_per_second = 0;
};
struct GpuRates {
  std::string name;
  double copy_in_bytes_per_second = 0, copy_out_bytes_per_second = 0, copy_within_bytes_per_second = 0;
  std::vector<RowRate> mapped_rows, gathered_rows;
};
Result<GpuRates> MeasureGpu(Device& device, const RateOptions& options);

}  // namespace quarry::gpu
