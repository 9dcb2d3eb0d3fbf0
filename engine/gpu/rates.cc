#include "quarry/gpu/rates.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/gpu/rows.h"

namespace quarry::gpu {
namespace {

constexpr uint64_t kHugePage = 2 * kMiB, kLeastRow = 64;
constexpr uint64_t kPiece = 16 * kMiB;  // larger ones are no faster
// Runs that do not count: clocks rise while they last.
constexpr int kWarmRuns = 6;
constexpr double kWarmSeconds = 0.01;

}  // namespace

Result<HostPages> HostPages::Map(uint64_t bytes) {
  const uint64_t whole = RoundUp(bytes, kHugePage);
  void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      return ErrnoStatus(errno, fmt::format("map {} of", FormatBytes(whole)), "memory");
    madvise(memory, whole, MADV_HUGEPAGE);
  }
  // Something to copy, and pages that are there.
  const std::span<std::byte> mapped(static_cast<std::byte*>(memory), whole);
  std::fill(mapped.begin(), mapped.end(), std::byte{1});
  return HostPages(mapped);
}

HostPages::HostPages(HostPages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
HostPages& HostPages::operator=(HostPages&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}
HostPages::~HostPages() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<std::unique_ptr<RateMeter>> RateMeter::Make(Device& device, const RateOptions& options) {
  const uint64_t slots_bytes = std::max(options.gathered_bytes / kLeastRow, uint64_t{1}) * sizeof(uint32_t);
  QUARRY_TRY(HostPages host, HostPages::Map(options.host_bytes));
  QUARRY_TRY(HostPages slots_host, HostPages::Map(slots_bytes));
  std::unique_ptr<RateMeter> meter(new RateMeter(device, options, std::move(host), std::move(slots_host)));
  QUARRY_TRY(meter->pinned_, PinMemory(device, meter->host_.bytes()));
  QUARRY_TRY(meter->slots_pinned_, PinMemory(device, meter->slots_host_.bytes()));
  // Copies in go to the table, so it holds all of them.
  QUARRY_TRY(meter->table_,
             AllocateMemory(device, std::max(options.table_bytes, meter->host_.bytes().size())));
  QUARRY_TRY(meter->out_, AllocateMemory(device, options.gathered_bytes));
  QUARRY_TRY(meter->slots_, AllocateMemory(device, slots_bytes));
  QUARRY_TRY(meter->stream_, MakeStream(device));
  QUARRY_TRY(meter->other_stream_, MakeStream(device));
  QUARRY_TRY(meter->begin_, MakeEvent(device, true));
  QUARRY_TRY(meter->end_, MakeEvent(device, true));
  QUARRY_TRY(meter->forked_, MakeEvent(device));
  QUARRY_TRY(meter->joined_, MakeEvent(device));
  QUARRY_RETURN_IF_ERROR(
      device.Fill(meter->table_.get().data(), 1, meter->table_.get().size(), meter->stream_.get()));
  QUARRY_RETURN_IF_ERROR(device.Synchronize(meter->stream_.get()));
  return meter;
}

RateMeter::~RateMeter() {
  // What failed half-way has left copies of the memory that goes now.
  if (stream_) static_cast<void>(device_.Synchronize(stream_.get()));
  if (other_stream_) static_cast<void>(device_.Synchronize(other_stream_.get()));
}

Result<double> RateMeter::Seconds(const std::function<Status(StreamHandle)>& enqueue) {
  std::vector<double> seconds;
  double warm_seconds = 0;
  for (int run = 0; seconds.size() < std::max(options_.repeats, 1U); ++run) {
    QUARRY_RETURN_IF_ERROR(device_.Record(begin_.get(), stream_.get()));
    const Status enqueued = enqueue(stream_.get());
    QUARRY_RETURN_IF_ERROR(device_.Record(end_.get(), stream_.get()));
    QUARRY_RETURN_IF_ERROR(device_.Synchronize(end_.get()));
    QUARRY_RETURN_IF_ERROR(enqueued);
    QUARRY_TRY(const double taken, device_.SecondsBetween(begin_.get(), end_.get()));
    if (run == 0 || (run < kWarmRuns && warm_seconds < kWarmSeconds)) {
      warm_seconds += taken;
    } else {
      seconds.push_back(taken);
    }
  }
  const auto median = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median;
}

Result<double> RateMeter::CopyIn(uint64_t piece_bytes) {
  piece_bytes = std::min<uint64_t>(piece_bytes, host().size());
  const uint64_t bytes = RoundDown(host().size(), piece_bytes);
  QUARRY_TRY(const double seconds, Seconds([&](StreamHandle stream) {
               for (uint64_t at = 0; at < bytes; at += piece_bytes) {
                 QUARRY_RETURN_IF_ERROR(
                     device_.CopyIn(table().data() + at, host().data() + at, piece_bytes, stream));
               }
               return Status::Ok();
             }));
  return static_cast<double>(bytes) / seconds;
}

Result<double> RateMeter::CopyOut(uint64_t piece_bytes) {
  piece_bytes = std::min<uint64_t>(piece_bytes, host().size());
  const uint64_t bytes = RoundDown(host().size(), piece_bytes);
  QUARRY_TRY(const double seconds, Seconds([&](StreamHandle stream) {
               for (uint64_t at = 0; at < bytes; at += piece_bytes) {
                 QUARRY_RETURN_IF_ERROR(
                     device_.CopyOut(host().data() + at, table().data() + at, piece_bytes, stream));
               }
               return Status::Ok();
             }));
  return static_cast<double>(bytes) / seconds;
}

Result<double> RateMeter::CopyBothWays(uint64_t piece_bytes) {
  piece_bytes = std::min<uint64_t>(piece_bytes, host().size() / 2);
  const uint64_t half = RoundDown(host().size() / 2, piece_bytes);
  QUARRY_TRY(const double seconds, Seconds([&](StreamHandle stream) {
               QUARRY_RETURN_IF_ERROR(device_.Record(forked_.get(), stream));
               QUARRY_RETURN_IF_ERROR(device_.Wait(other_stream_.get(), forked_.get()));
               for (uint64_t at = 0; at < half; at += piece_bytes) {
                 QUARRY_RETURN_IF_ERROR(
                     device_.CopyIn(table().data() + at, host().data() + at, piece_bytes, stream));
                 QUARRY_RETURN_IF_ERROR(device_.CopyOut(host().data() + half + at, table().data() + half + at,
                                                        piece_bytes, other_stream_.get()));
               }
               QUARRY_RETURN_IF_ERROR(device_.Record(joined_.get(), other_stream_.get()));
               return device_.Wait(stream, joined_.get());
             }));
  return 2 * static_cast<double>(half) / seconds;
}

Result<double> RateMeter::CopyWithin() {
  const uint64_t bytes = std::min(table().size() / 2, 2 * kGiB);
  QUARRY_TRY(const double seconds, Seconds([&](StreamHandle stream) {
               return device_.CopyWithin(table().data() + bytes, table().data(), bytes, stream);
             }));
  return 2 * static_cast<double>(bytes) / seconds;
}

Result<double> RateMeter::Gather(uint64_t row_bytes) {
  QUARRY_TRY(const double rate, GatherFrom(table().data(), table().size(), row_bytes));
  return 2 * rate;
}

Result<double> RateMeter::GatherMapped(uint64_t row_bytes) {
  QUARRY_TRY(const std::byte* const mapped, device_.MappedAddress(host().data()));
  return GatherFrom(mapped, host().size(), row_bytes);
}

Result<double> RateMeter::GatherFrom(const std::byte* rows, uint64_t bytes, uint64_t row_bytes) {
  const uint64_t count = options_.gathered_bytes / row_bytes;
  QUARRY_TRY(const uint32_t* const chosen, RandomRows(count, bytes / row_bytes));
  QUARRY_TRY(const double seconds, Seconds([&](StreamHandle stream) {
               return CopyRows(device_,
                               {.from = rows,
                                .to = out().data(),
                                .from_rows = chosen,
                                .rows = count,
                                .row_bytes = row_bytes,
                                .from_stride_bytes = row_bytes,
                                .to_stride_bytes = row_bytes},
                               stream);
             }));
  return static_cast<double>(count * row_bytes) / seconds;
}

Result<GpuRates> MeasureGpu(Device& device, const RateOptions& options) {
  QUARRY_TRY(const std::unique_ptr<RateMeter> meter, RateMeter::Make(device, options));
  GpuRates rates{.name = device.facts().name};
  QUARRY_TRY(rates.copy_in_bytes_per_second, meter->CopyIn(kPiece));
  QUARRY_TRY(rates.copy_out_bytes_per_second, meter->CopyOut(kPiece));
  QUARRY_TRY(rates.copy_within_bytes_per_second, meter->CopyWithin());
  for (const uint64_t row_bytes : {64, 256, 512, 1024, 3072}) {
    QUARRY_TRY(const double mapped, meter->GatherMapped(row_bytes));
    QUARRY_TRY(const double gathered, meter->Gather(row_bytes));
    rates.mapped_rows.push_back({row_bytes, mapped});
    rates.gathered_rows.push_back({row_bytes, gathered});
  }
  return rates;
}

Result<const uint32_t*> RateMeter::RandomRows(uint64_t count, uint64_t limit) {
  auto* const numbers = reinterpret_cast<uint32_t*>(slots_host_.bytes().data());
  Rng random(count);
  for (uint64_t i = 0; i < count; ++i) numbers[i] = static_cast<uint32_t>(random.Below(limit));
  QUARRY_RETURN_IF_ERROR(device_.CopyIn(slots_.get().data(), slots_host_.bytes().data(),
                                        count * sizeof(uint32_t), stream_.get()));
  QUARRY_RETURN_IF_ERROR(device_.Synchronize(stream_.get()));
  return reinterpret_cast<const uint32_t*>(slots_.get().data());
}

}  // namespace quarry::gpu
