#include "quarry/io/device.h"

#include <cassert>
#include <numeric>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"

namespace quarry {

Result<double> MeasureReads(IoBackend& backend, const File& file, const ReadProbe& probe) {
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  const uint64_t places = file_bytes / probe.request_bytes;
  if (!file.direct() || places < probe.depth) {
    return MakeStatus(Code::kUnsupported, "{}: {} bytes{} cannot tell how fast the device is", file.path(),
                      file_bytes, file.direct() ? "" : " behind the page cache");
  }
  const size_t buffer_bytes = size_t{probe.depth} * probe.request_bytes;
  assert(probe.buffer.empty() || probe.buffer.size() >= buffer_bytes);
  IoBuffer own;
  if (probe.buffer.empty()) {
    QUARRY_TRY(own, IoBuffer::Allocate(buffer_bytes));
  }
  std::byte* const buffer = probe.buffer.empty() ? own.data() : probe.buffer.data();
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, probe.depth));
  Rng rng(probe.seed);
  uint64_t next = rng.Below(places);
  uint64_t completed = 0;
  std::vector<uint64_t> idle(probe.depth);  // pieces of the buffer
  std::iota(idle.begin(), idle.end(), uint64_t{0});
  std::vector<ReadRequest> requests;
  const double start_seconds = MonotonicSeconds();
  double now_seconds = start_seconds;
  while (now_seconds - start_seconds < probe.seconds_max) {
    requests.clear();
    for (const uint64_t piece : idle) {
      const uint64_t place = probe.random ? rng.Below(places) : next++ % places;
      requests.push_back({.file = &file,
                          .offset = place * probe.request_bytes,
                          .bytes = probe.request_bytes,
                          .buffer = buffer + piece * probe.request_bytes,
                          .user_data = piece});
    }
    QUARRY_RETURN_IF_ERROR(ring->Submit(requests));
    idle.clear();
    QUARRY_RETURN_IF_ERROR(ring->Wait(idle));
    completed += idle.size();
    now_seconds = MonotonicSeconds();
  }
  ring->Drain();
  return static_cast<double>(completed) / (now_seconds - start_seconds);
}

Result<DeviceProfile> MeasureDevice(IoBackend& backend, const File& file, double seconds_max) {
  const uint64_t seed = static_cast<uint64_t>(MonotonicSeconds() * 1e9);  // other places each time
  DeviceProfile profile;
  QUARRY_TRY(profile.random_reads_per_second, MeasureReads(backend, file,
                                                           {.request_bytes = LogicalBlockBytes(file),
                                                            .depth = 64,
                                                            .seconds_max = seconds_max / 2,
                                                            .seed = seed}));
  QUARRY_TRY(const double large_reads_per_second, MeasureReads(backend, file,
                                                               {.request_bytes = kMiB,
                                                                .depth = 8,
                                                                .random = false,
                                                                .seconds_max = seconds_max / 2,
                                                                .seed = seed}));
  profile.sequential_bytes_per_second = large_reads_per_second * static_cast<double>(kMiB);
  return profile;
}

}  // namespace quarry
