// Merges reads of nearby ranges into single requests where bridging the gap is cheaper than another request.
//
// A request costs 1/IOPS seconds, a byte 1/bandwidth: a gap shorter than bandwidth/IOPS is cheaper to read
// than to skip (about 40 KiB on virtio NVMe). Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace quarry {

// The rates of a device; the defaults were measured on virtio NVMe (docs/benchmarks.md).
struct DeviceProfile {
  double random_reads_per_second = 78e3;
  double sequential_bytes_per_second = 3.2e9;
  // The longest gap that is cheaper to read than to skip.
  uint64_t GapBytesMax() const {
    return static_cast<uint64_t>(sequential_bytes_per_second / random_reads_per_second);
  }
  // The time to read `bytes` by requests of which `requests` start at a new place. The first 4 KiB of a
  // request are part of its price, since reads of 512 bytes and of 4 KiB take the same time.
  double ReadSeconds(uint64_t bytes, uint64_t requests) const {
    const uint64_t streamed = bytes - std::min(bytes, requests * 4096);
    return static_cast<double>(streamed) / sequential_bytes_per_second +
           static_cast<double>(requests) / random_reads_per_second;
  }
};

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// One request that serves ranges [first, first + count) of the input.
struct MergedRead {
  uint64_t offset = 0;  // multiple of block_bytes
  uint32_t bytes = 0;  // multiple of block_bytes, at most request_bytes_max unless one range alone needs more
  uint32_t first = 0;
  uint32_t count = 0;
};

struct CoalesceOptions {
  uint32_t block_bytes = 512;              // logical block: requests start and end at multiples of it
  uint64_t gap_bytes_max = 40 << 10;       // 0 merges only ranges whose blocks touch
  uint32_t request_bytes_max = 256 << 10;  // beyond this a request gains no bandwidth
};

// `ranges` ascending by offset (overlaps allowed). Appends to `out`.
void Coalesce(std::span<const ByteRange> ranges, const CoalesceOptions& options,
              std::vector<MergedRead>& out);

}  // namespace quarry
