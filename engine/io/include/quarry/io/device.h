// What a device does, measured with short probes through the same rings and buffers that the engine reads
// with.
//
// Not deterministic, and nothing that it decides may show in a result: it prices reads, no more. Files must
// have been opened for direct reads, else it would be the page cache that is measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/coalesce.h"

namespace quarry {

struct ReadProbe {
  uint32_t request_bytes = 4096;  // a multiple of the file's block
  unsigned depth = 64;            // requests in flight
  bool random = true;             // places drawn uniformly; else one after the other, from a random place on
  double seconds_max = 0.1;
  uint64_t seed = 1;
  // Read into this, at least depth x request_bytes and aligned; empty: an IoBuffer of that size.
  std::span<std::byte> buffer = {};
};

// Requests completed per second. kUnsupported when the file is not direct or smaller than depth requests.
Result<double> MeasureReads(IoBackend& backend, const File& file, const ReadProbe& probe);

// Two probes of half of `seconds_max` each, holding 8 MiB: random reads of one block at depth 64, and
// sequential reads of 1 MiB at depth 8. Wants a file of at least 8 MiB, better one beyond the caches of the
// device.
Result<DeviceProfile> MeasureDevice(IoBackend& backend, const File& file, double seconds_max = 0.2);

}  // namespace quarry
