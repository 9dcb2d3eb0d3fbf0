#include "quarry/io/device.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <numeric>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

constexpr unsigned kProbes = 5;  // per kind
constexpr uint32_t kReadSizes[] = {512, 4 << 10, 16 << 10, 64 << 10, 256 << 10};
constexpr uint64_t kWriteBytes = 4 * kMiB;
static_assert(kScratchBytesMin == kProbes * 2 * kWriteBytes);
static_assert(kMeasureRatesBytes == 64 * kReadSizes[4]);

uint64_t AnySeed() { return static_cast<uint64_t>(MonotonicSeconds() * 1e9); }  // other places each time

Result<File> MakeScratchFile(IoBackend& backend, const std::string& directory) {
  const std::string path = directory + "/calibrate.tmp";
  Discard(backend, path);  // left by a process that was killed before it could unlink it
  QUARRY_TRY(File file, backend.Open(path, OpenMode::kCreateDirect));
  QUARRY_RETURN_IF_ERROR(backend.Remove(path));
  return file;
}

// Bytes per second of writing `file` on from `end` for so long, or up to bytes_max, twice at least.
Result<double> MeasureWrites(IoBackend& backend, const File& file, std::span<const std::byte> bytes,
                             uint64_t bytes_max, double seconds_max, uint64_t& end) {
  const double start_seconds = MonotonicSeconds();
  const uint64_t start = end;
  while (end - start < 2 * bytes.size() ||
         (end - start + bytes.size() <= bytes_max && MonotonicSeconds() - start_seconds < seconds_max)) {
    QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, end, bytes));
    end += bytes.size();
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  return static_cast<double>(end - start) / (MonotonicSeconds() - start_seconds);
}

// A third of the time at most; less where the scratch file is full before.
Result<double> MeasureScratchWrites(IoBackend& backend, const File& scratch, const RatesProbe& probe,
                                    const IoBuffer& buffer) {
  Rng rng(1);  // zeros may be free to write
  const std::span<std::byte> bytes = buffer.span().first(kWriteBytes);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  std::vector<double> rates;
  uint64_t end = 0;
  for (unsigned i = 0; i < kProbes; ++i) {
    QUARRY_TRY(const double rate, MeasureWrites(backend, scratch, bytes, probe.scratch_bytes / kProbes,
                                                probe.seconds_max / 3 / kProbes, end));
    rates.push_back(rate);
  }
  return Median(std::move(rates));
}

}  // namespace

double Median(std::vector<double> values) {
  assert(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
  // Pieces of the buffer, the one that was free longest first.
  std::deque<uint64_t> free(std::max(probe.buffer.size(), buffer_bytes) / probe.request_bytes);
  std::iota(free.begin(), free.end(), uint64_t{0});
  std::vector<uint64_t> done;
  std::vector<ReadRequest> requests;
  const double start_seconds = MonotonicSeconds();
  double now_seconds = start_seconds;
  while (now_seconds - start_seconds < probe.seconds_max) {
    requests.clear();
    while (ring->pending() + requests.size() < probe.depth) {
      const uint64_t piece = free.front();
      free.pop_front();
      const uint64_t place = probe.random ? rng.Below(places) : next++ % places;
      requests.push_back({.file = &file,
                          .offset = place * probe.request_bytes,
                          .bytes = probe.request_bytes,
                          .buffer = buffer + piece * probe.request_bytes,
                          .user_data = piece});
    }
    QUARRY_RETURN_IF_ERROR(ring->Submit(requests));
    done.clear();
    QUARRY_RETURN_IF_ERROR(ring->Wait(done));
    free.insert(free.end(), done.begin(), done.end());
    completed += done.size();
    now_seconds = MonotonicSeconds();
  }
  ring->Drain();
  return static_cast<double>(completed) / (now_seconds - start_seconds);
}

Result<DeviceProfile> MeasureDevice(IoBackend& backend, const File& file, double seconds_max) {
  const uint64_t seed = AnySeed();
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

Result<DeviceRates> MeasureRates(IoBackend& backend, const RatesProbe& probe) {
  assert(probe.scratch_bytes >= kScratchBytesMin);
  QUARRY_TRY(const File scratch, MakeScratchFile(backend, probe.scratch_directory));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kMeasureRatesBytes));
  DeviceRates rates;
  QUARRY_TRY(rates.write_bytes_per_second, MeasureScratchWrites(backend, scratch, probe, buffer));

  const File& file = probe.file != nullptr ? *probe.file : scratch;
  const uint32_t block_bytes = LogicalBlockBytes(file);
  const auto row_bytes = static_cast<uint32_t>(RoundUp(probe.row_bytes, block_bytes));
  std::vector<ReadProbe> kinds = {
      {.request_bytes = std::min(row_bytes, kReadSizes[4])},
      {.request_bytes = static_cast<uint32_t>(kMiB), .depth = 8, .random = false}};
  for (const uint32_t bytes : kReadSizes) {
    if (bytes >= block_bytes) kinds.push_back({.request_bytes = bytes});
  }
  std::vector<std::vector<double>> measured(kinds.size());
  std::vector<double> request_seconds;
  for (unsigned i = 0; i < kProbes; ++i) {
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      // The two that are kept have twice the time of the others.
      const double shares = static_cast<double>(kinds.size() + 2) * kProbes;
      kinds[kind].seconds_max = probe.seconds_max * 2 / 3 * (kind < 2 ? 2 : 1) / shares;
      kinds[kind].seed = AnySeed();
      kinds[kind].buffer = buffer.span();
      const double processor_start = ProcessProcessorSeconds();
      const double start = MonotonicSeconds();
      QUARRY_TRY(const double rate, MeasureReads(backend, file, kinds[kind]));
      measured[kind].push_back(rate);
      if (kind == 0) {
        request_seconds.push_back((ProcessProcessorSeconds() - processor_start) /
                                  std::max(1.0, rate * (MonotonicSeconds() - start)));
      }
    }
  }
  rates.random_reads_per_second = Median(measured[0]);
  rates.request_seconds = Median(std::move(request_seconds));
  rates.sequential_bytes_per_second = Median(measured[1]) * static_cast<double>(kMiB);
  for (size_t kind = 2; kind < kinds.size(); ++kind) {
    rates.random_reads.push_back({kinds[kind].request_bytes, Median(measured[kind])});
  }
  return rates;
}

}  // namespace quarry
