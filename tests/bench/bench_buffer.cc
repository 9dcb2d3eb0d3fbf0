// The buffer pool: random pages of a file that is four times the pool are read, changed and written behind,
// with the pages that come next prefetched, and flushed at the end.
//
// Limit, measured in the same run: the seconds in which the device reads and writes as many pages of that
// size as the pool did, 64 at a time, reads in random places of the file and writes one behind the other, as
// slots are given.
//
//   bench_buffer DIR [FILE MiB (1024)] [CHANGES MiB (2048)]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"

namespace quarry {
namespace {

constexpr size_t kDepth = 64;
constexpr size_t kAhead = 256;  // pages are prefetched so many before they are changed
constexpr size_t kStep = 16;    // and so many together

struct Setup {
  std::string directory;
  uint64_t file_bytes = 0;
  uint64_t change_bytes = 0;
  uint32_t page_bytes = 0;
  uint32_t page_count() const { return static_cast<uint32_t>(file_bytes / page_bytes); }
};

struct Outcome {
  uint64_t changes = 0;
  BufferPoolStats stats;  // of the changes alone
  double seconds = 0;
  double pin_nanoseconds = 0;
};

Status ChangePages(BufferPool& pool, std::span<const PageNumber> pages) {
  for (const PageNumber page : pages) {
    QUARRY_TRY(PageGuard guard, pool.Pin(page, LatchMode::kExclusive));
    uint64_t* const words = reinterpret_cast<uint64_t*>(guard.mutable_body().data());
    words[0] += 1;
  }
  return Status::Ok();
}

// Two checkpoints of all pages: the file has slots for two versions of each, and grows no more.
Status WriteAllPages(PageFile& file, BufferPool& pool, const std::string& map_path) {
  for (const uint64_t generation : {1, 2}) {
    for (PageNumber page = 0; page < file.page_count(); ++page) {
      QUARRY_TRY(PageGuard guard, pool.Pin(page, LatchMode::kExclusive));
      const std::span<std::byte> body = guard.mutable_body();
      for (size_t i = 0; i + 8 <= body.size(); i += 8) reinterpret_cast<uint64_t&>(body[i]) = Mix64(page + i);
    }
    QUARRY_RETURN_IF_ERROR(pool.Flush());
    std::filesystem::remove(map_path);
    QUARRY_RETURN_IF_ERROR(file.WriteMap(map_path, generation));
    file.CommitMap();
  }
  return Status::Ok();
}

// The time to pin a page that is there.
Result<double> PinNanoseconds(BufferPool& pool) {
  constexpr int kPins = 1'000'000;
  const double start = MonotonicSeconds();
  for (int i = 0; i < kPins; ++i) {
    QUARRY_TRY(const PageGuard guard, pool.Pin(7, LatchMode::kShared));
  }
  return (MonotonicSeconds() - start) / kPins * 1e9;
}

Result<Outcome> RunPool(IoBackend& backend, const Setup& setup) {
  const std::string path = setup.directory + "/bench_buffer.qpf";
  const std::string map_path = setup.directory + "/bench_buffer.map";
  std::filesystem::remove(path);
  std::filesystem::remove(map_path);
  QUARRY_TRY(const std::unique_ptr<PageFile> file,
             PageFile::Create(
                 backend, {.path = path, .page_bytes = setup.page_bytes, .page_count = setup.page_count()}));
  MemoryBudget budget(setup.file_bytes);
  QUARRY_TRY(const std::unique_ptr<BufferPool> pool,
             BufferPool::Make(backend, *file, budget, {.memory_bytes = setup.file_bytes / 4}, nullptr));
  QUARRY_RETURN_IF_ERROR(WriteAllPages(*file, *pool, map_path));
  const BufferPoolStats before = pool->stats();
  Outcome outcome{.changes = setup.change_bytes / setup.page_bytes};
  Rng rng(1);
  const double start = MonotonicSeconds();
  std::vector<PageNumber> pages(outcome.changes);
  for (PageNumber& page : pages) page = static_cast<PageNumber>(rng.Below(setup.page_count()));
  const auto step = [&](uint64_t first) {
    return std::span(pages).subspan(
        std::min<uint64_t>(first, pages.size()),
        std::min<uint64_t>(kStep, pages.size() - std::min<uint64_t>(first, pages.size())));
  };
  for (uint64_t first = 0; first < kAhead; first += kStep)
    QUARRY_RETURN_IF_ERROR(pool->Prefetch(step(first)));
  for (uint64_t first = 0; first < pages.size(); first += kStep) {
    QUARRY_RETURN_IF_ERROR(pool->Prefetch(step(first + kAhead)));
    QUARRY_RETURN_IF_ERROR(ChangePages(*pool, step(first)));
  }
  QUARRY_RETURN_IF_ERROR(pool->Flush());
  outcome.seconds = MonotonicSeconds() - start;
  outcome.stats = pool->stats();
  QUARRY_TRY(outcome.pin_nanoseconds, PinNanoseconds(*pool));
  outcome.stats.pages_read -= before.pages_read;
  outcome.stats.pages_written -= before.pages_written;
  outcome.stats.frame_wait_seconds -= before.frame_wait_seconds;
  outcome.stats.read_wait_seconds -= before.read_wait_seconds;
  return outcome;
}

// The same numbers of reads and writes, on the file that the pool left.
Result<double> DeviceSeconds(IoBackend& backend, const Setup& setup, const Outcome& outcome) {
  QUARRY_TRY(const File file,
             backend.Open(setup.directory + "/bench_buffer.qpf", OpenMode::kReadWriteDirect));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kDepth * setup.page_bytes));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, kDepth));
  const uint64_t total = outcome.stats.pages_read + outcome.stats.pages_written;
  std::vector<uint64_t> spare(kDepth);
  for (uint64_t i = 0; i < kDepth; ++i) spare[i] = i;
  Rng rng(2);
  uint64_t submitted = 0, written = 0;
  const double start = MonotonicSeconds();
  while (submitted < total || ring->pending() > 0) {
    std::vector<IoRequest> requests;
    for (; submitted < total && !spare.empty(); ++submitted) {
      const bool write = rng.Below(total) < outcome.stats.pages_written;
      const uint64_t slots = 2 * setup.page_count();
      const uint64_t place = write ? written++ % slots : rng.Below(slots);
      requests.push_back({.file = &file,
                          .offset = 4096 + place * setup.page_bytes,
                          .bytes = setup.page_bytes,
                          .buffer = buffer.data() + spare.back() * setup.page_bytes,
                          .user_data = spare.back(),
                          .kind = write ? RawRequest::Kind::kWrite : RawRequest::Kind::kRead});
      spare.pop_back();
    }
    QUARRY_RETURN_IF_ERROR(ring->Submit(requests));
    QUARRY_RETURN_IF_ERROR(ring->Wait(spare));
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  return MonotonicSeconds() - start;
}

Status Run(IoBackend& backend, const Setup& setup) {
  QUARRY_TRY(const Outcome outcome, RunPool(backend, setup));
  QUARRY_TRY(const double limit_seconds, DeviceSeconds(backend, setup, outcome));
  const auto changes = static_cast<double>(outcome.changes);
  fmt::print("{:>8} {:>10.0f} {:>10.0f} {:>8.2f} {:>8.2f} {:>8.2f} {:>9.2f} {:>9.2f} {:>8.0f}\n",
             FormatBytes(setup.page_bytes), changes / outcome.seconds, changes / limit_seconds,
             limit_seconds / outcome.seconds, static_cast<double>(outcome.stats.pages_read) / changes,
             static_cast<double>(outcome.stats.pages_written) / changes, outcome.stats.read_wait_seconds,
             outcome.stats.frame_wait_seconds, outcome.pin_nanoseconds);
  return Status::Ok();
}

int Main(Setup setup) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  fmt::print("random changes of pages of a file of {}, pool of {}\n", FormatBytes(setup.file_bytes),
             FormatBytes(setup.file_bytes / 4));
  fmt::print("    page  changes/s    limit/s    share  reads/c writes/c  read wait frame wait  ns/pin\n");
  for (const uint32_t page_bytes : {4u << 10, 16u << 10, 64u << 10}) {
    setup.page_bytes = page_bytes;
    if (const Status status = Run(*backend, setup); !status.ok()) {
      fmt::print(stderr, "{}\n", status.ToString());
      return 1;
    }
  }
  std::filesystem::remove(setup.directory + "/bench_buffer.qpf");
  std::filesystem::remove(setup.directory + "/bench_buffer.map");
  return 0;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: bench_buffer DIR [FILE MiB (1024)] [CHANGES MiB (2048)]\n");
    return 2;
  }
  const auto megabytes = [&](int i, uint64_t otherwise) {
    return (argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise) * quarry::kMiB;
  };
  return quarry::Main(
      {.directory = argv[1], .file_bytes = megabytes(2, 1024), .change_bytes = megabytes(3, 2048)});
}
