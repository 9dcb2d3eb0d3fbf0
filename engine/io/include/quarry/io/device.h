// Measures a device with short probes, through the same rings and buffers that the engine reads with.
//
// The figures are not deterministic, so they may price reads and never change a result. Files must have been
// opened for direct reads, or the page cache would be measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"

namespace quarry {

struct ReadProbe {
  uint32_t request_bytes = 4096;  // a multiple of the file's block
  unsigned depth = 64;            // requests in flight
  bool random = true;             // places drawn uniformly; else one after the other, from a random place on
  double seconds_max = 0.1;
  uint64_t seed = 1;
  // Memory to read into, all of it in turn: aligned, at least depth x request_bytes; empty: an IoBuffer of
  // that size. Memory that fits into the processor's cache is read into up to a tenth faster
  // (docs/benchmarks.md), so give as much as will be used in earnest.
  std::span<std::byte> buffer = {};
};

// Requests completed per second. kUnsupported when the file is not direct or smaller than depth requests.
Result<double> MeasureReads(IoBackend& backend, const File& file, const ReadProbe& probe);

// Two probes of half of `seconds_max` each, holding 8 MiB: random reads of one block at depth 64, and
// sequential reads of 1 MiB at depth 8. The file should have at least 8 MiB, or better more than the device's
// caches.
Result<DeviceProfile> MeasureDevice(IoBackend& backend, const File& file, double seconds_max = 0.2);

// A fuller measurement, to be kept (`quarry calibrate`).
struct RatesProbe {
  const File* file = nullptr;  // what is read, at least kMeasuredFileBytesMin; null: the scratch file
  uint32_t row_bytes = 4096;   // size of the random reads that rows will need
  // Folder, with enough room, for a scratch file that is written, and read where there is no `file`. The file
  // is unlinked at once, so nothing is left of it however the process ends.
  std::string scratch_directory;
  uint64_t scratch_bytes = uint64_t{512} << 20;  // at least kScratchBytesMin
  double seconds_max = 3;                        // a slow device takes longer to write the least
};
inline constexpr uint64_t kMeasuredFileBytesMin = uint64_t{64} << 20;
inline constexpr uint64_t kScratchBytesMin = uint64_t{40} << 20;
inline constexpr uint64_t kMeasureRatesBytes = uint64_t{16} << 20;  // what MeasureRates holds

struct ReadRate {
  uint32_t request_bytes = 0;
  double reads_per_second = 0;
};

// Medians of five probes each. Probes of the kinds of reads take turns, so a disturbance of the device hits
// one probe of each kind.
struct DeviceRates {
  double random_reads_per_second = 0;      // reads of row_bytes, 64 at a time
  double sequential_bytes_per_second = 0;  // reads of 1 MiB, 8 at a time
  double write_bytes_per_second = 0;       // writes of 4 MiB, one after the other, synced
  std::vector<ReadRate> random_reads;      // 512 B, 4, 16, 64, 256 KiB, if the device takes them
  double request_seconds = 0;  // of processor, the kernel's part too, for one random read of a row
};

// kUnsupported where the file system has no direct reads; kNoSpace and kIoError from writing.
Result<DeviceRates> MeasureRates(IoBackend& backend, const RatesProbe& probe);

// The median. REQUIRES: at least one value.
double Median(std::vector<double> values);

}  // namespace quarry
