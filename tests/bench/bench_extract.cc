// Extraction of feature rows, each figure beside the limit that is measured in the same run:
//
//   random rows   reads of one row through IoRing, against fio at the same size and depth on the same file
//   sequential    reads of 1 MiB into huge and into ordinary pages: what the device can give
//   merged rows   one mini-batch of the design's trace by merged reads, against reading its rows one by one
//   gather        GatherRows in memory, against a plain loop of memcpy
//
// Reads are direct, so every run is cold; what is compared takes turns, and medians are compared. Exit code 1
// when a target is missed.
//
//   bench_extract [DIRECTORY] [--file-bytes SIZE] [--seconds S] [--rounds N]
//
// DIRECTORY (build/bench-data) lies on the device to measure; a file of 5 GB is left there for the next run.
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "extract_data.h"
#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/device.h"
#include "quarry/io/ring.h"

namespace quarry::bench {
namespace {

constexpr unsigned kDepth = 64;
constexpr uint64_t kTraceRows =
    10'000'000;  // the trace of the design, section "What a disk of this kind does"
constexpr uint64_t kTraceBatchRows = 670'000;

struct Options {
  std::string directory = "build/bench-data";
  uint64_t file_bytes = kTraceRows * kRowBytes;
  uint64_t seconds = 5;  // of each probe of random reads
  uint64_t rounds = 3;
};

Result<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i++) {
    const std::string word = argv[i];
    if (word == "--file-bytes" && i + 1 < argc) {
      QUARRY_TRY(options.file_bytes, ParseBytes(argv[++i], 0));
    } else if (word == "--seconds" && i + 1 < argc) {
      QUARRY_TRY(options.seconds, ParseCount(argv[++i]));
    } else if (word == "--rounds" && i + 1 < argc) {
      QUARRY_TRY(options.rounds, ParseCount(argv[++i]));
    } else if (!word.starts_with("--")) {
      options.directory = word;
    } else {
      return MakeStatus(Code::kUsage, "'{}': not an option of bench_extract", word);
    }
  }
  if (options.seconds == 0 || options.rounds == 0 || options.file_bytes < 64 * kMiB) {
    return Status(Code::kUsage, "bench_extract wants at least 1 second, 1 round and a file of 64MiB");
  }
  return options;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The summary: what was reached, beside its limit.
class Report {
 public:
  // target 0: for information.
  void Add(std::string what, std::string unit, double figure, double limit, double target) {
    const double ratio = figure / limit;
    const bool missed = ratio < target;
    missed_ |= missed;
    lines_.push_back(fmt::format(
        "{:<34}{:>10.2f}{:>10.2f} {:<11}{:>7.2f}  {}", what, figure, limit, unit, ratio,
        target == 0 ? std::string("-") : fmt::format(">= {:.2f} {}", target, missed ? "FAIL" : "PASS")));
  }
  void Print() const {
    fmt::print("\n{:<34}{:>10}{:>10} {:<11}{:>7}  {}\n", "", "quarry", "beside", "", "ratio", "target");
    for (const std::string& line : lines_) fmt::print("{}\n", line);
  }
  bool missed() const { return missed_; }

 private:
  std::vector<std::string> lines_;
  bool missed_ = false;
};

// --- random rows
// -----------------------------------------------------------------------------------------------

// Random reads per second that fio reaches with one job on the file.
Result<double> FioReads(const std::string& path, uint64_t request_bytes, uint64_t seconds) {
  const std::string command = fmt::format(
      "fio --name=limit --filename='{}' --readonly --rw=randread --bs={} --iodepth={} --ioengine=io_uring "
      "--direct=1 "
      "--norandommap=1 --randrepeat=0 --time_based --runtime={} --output-format=terse --terse-version=3 "
      "2>/dev/null",
      path, request_bytes, kDepth, seconds);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string output;
  char piece[4096];
  while (pipe && std::fgets(piece, sizeof piece, pipe.get()) != nullptr) output += piece;
  // terse 3: version;fio-version;job;group;error;read KiB;read bandwidth;read IOPS;...
  size_t at = output.find("3;fio-");
  for (int field = 0; field < 7 && at != std::string::npos; field++) {
    at = output.find(';', at);
    if (at != std::string::npos) at++;
  }
  const double reads = at == std::string::npos ? 0 : std::strtod(output.c_str() + at, nullptr);
  if (reads <= 0) return Status(Code::kNotFound, "fio gave no figure; is it installed? (./dev deps)");
  return reads;
}

Status RandomRows(IoBackend& backend, const File& file, const Options& options, Report& report) {
  fmt::print("\nrandom reads, depth {}, {} rounds of {} s each, fio and quarry in turns\n", kDepth,
             options.rounds, options.seconds);
  for (const uint32_t request_bytes : {512U, 4096U}) {
    if (request_bytes < LogicalBlockBytes(file)) {
      fmt::print("  {:>4} B: the device reads no less than {} B\n", request_bytes, LogicalBlockBytes(file));
      continue;
    }
    std::vector<double> fio, quarry;
    for (uint64_t round = 0; round < options.rounds; round++) {
      QUARRY_TRY(const double limit, FioReads(file.path(), request_bytes, options.seconds));
      QUARRY_TRY(const double reads, MeasureReads(backend, file,
                                                  {.request_bytes = request_bytes,
                                                   .depth = kDepth,
                                                   .seconds_max = static_cast<double>(options.seconds),
                                                   .seed = round}));
      fmt::print("  {:>4} B: fio {:.1f} k/s, quarry {:.1f} k/s\n", request_bytes, limit / 1e3, reads / 1e3);
      fio.push_back(limit);
      quarry.push_back(reads);
    }
    report.Add(fmt::format("random {} B reads (beside fio)", request_bytes), "k/s", Median(quarry) / 1e3,
               Median(fio) / 1e3, 0.85);
  }
  return Status::Ok();
}

// --- sequential
// ------------------------------------------------------------------------------------------------

// The bytes a second of large reads into huge pages, which are the limit of all that follows.
Result<double> Sequential(IoBackend& backend, const File& file, const Options& options, Report& report) {
  constexpr unsigned kSequentialDepth = 16;
  constexpr size_t kBytes = size_t{kSequentialDepth} * kMiB;
  fmt::print("\nsequential reads of 1 MiB, depth {}, 1 s each in turns\n", kSequentialDepth);
  QUARRY_TRY(const IoBuffer huge, IoBuffer::Allocate(kBytes));
  void* const ordinary = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ordinary == MAP_FAILED) return ErrnoStatus(errno, "map", "ordinary pages");
  madvise(ordinary, kBytes, MADV_NOHUGEPAGE);
  std::memset(ordinary, 0, kBytes);
  std::vector<double> rates[2];
  for (uint64_t round = 0; round < std::max<uint64_t>(options.rounds, 3); round++) {
    for (const bool is_huge : {true, false}) {
      const std::span<std::byte> buffer =
          is_huge ? huge.span() : std::span(static_cast<std::byte*>(ordinary), kBytes);
      QUARRY_TRY(const double reads, MeasureReads(backend, file,
                                                  {.request_bytes = kMiB,
                                                   .depth = kSequentialDepth,
                                                   .random = false,
                                                   .seconds_max = 1,
                                                   .seed = round,
                                                   .buffer = buffer}));
      rates[is_huge ? 1 : 0].push_back(reads * kMiB);
    }
    fmt::print("  huge pages {:.2f} GB/s, ordinary pages {:.2f} GB/s\n", rates[1].back() / 1e9,
               rates[0].back() / 1e9);
  }
  munmap(ordinary, kBytes);
  if (!huge.huge_pages()) fmt::print("  (this system gives no huge pages: both are ordinary)\n");
  report.Add("sequential 1 MiB, huge pages", "GB/s", Median(rates[1]) / 1e9, Median(rates[0]) / 1e9, 0);
  return Median(rates[1]);
}

Status ShortProbe(IoBackend& backend, const File& file) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const DeviceProfile profile, MeasureDevice(backend, file));
  fmt::print(
      "\nthe probe that opens a large table ({:.2f} s): {:.1f} k reads/s, {:.2f} GB/s, gap worth reading {} "
      "B\n",
      MonotonicSeconds() - start, profile.random_reads_per_second / 1e3,
      profile.sequential_bytes_per_second / 1e9, profile.GapBytesMax());
  return Status::Ok();
}

// --- merged rows
// -----------------------------------------------------------------------------------------------

struct Extraction {
  double seconds = 0;
  uint64_t requests = 0;
  uint64_t bytes = 0;
};

// Rows of one mini-batch, read from the file to dense places and verified, as an extractor does it.
class RowReader {
 public:
  static Result<std::unique_ptr<RowReader>> Make(IoBackend& backend, const File& file,
                                                 std::vector<uint32_t> rows) {
    auto reader = std::unique_ptr<RowReader>(new RowReader(file, std::move(rows)));
    QUARRY_TRY(reader->ring_, IoRing::Make(backend, kDepth));
    QUARRY_TRY(reader->rows_buffer_, IoBuffer::Allocate(reader->rows_.size() * kRowBytes));
    QUARRY_TRY(reader->staging_, IoBuffer::Allocate(kPieces * kRequestBytesMax));
    return reader;
  }

  // Row by row, straight to their places. The `count` rows from `first` on.
  Result<Extraction> ReadRows(size_t first, size_t count) {
    std::vector<ReadRequest> requests;
    std::vector<uint64_t> done;
    const double start = MonotonicSeconds();
    for (size_t i = first; i < first + count || ring_->pending() > 0;) {
      requests.clear();
      for (; i < first + count && ring_->pending() + requests.size() < 2 * kDepth; i++) {
        requests.push_back({&file_, rows_[i] * kRowBytes, kRowBytes, Place(i), i});
      }
      QUARRY_RETURN_IF_ERROR(ring_->Submit(requests));
      done.clear();
      QUARRY_RETURN_IF_ERROR(ring_->Wait(done));
      for (const uint64_t at : done) QUARRY_RETURN_IF_ERROR(Verify(at, Place(at)));
    }
    return Extraction{MonotonicSeconds() - start, count, count * kRowBytes};
  }

  // All rows, by requests that bridge gaps.
  Result<Extraction> ReadMerged(uint64_t gap_bytes_max) {
    const double start = MonotonicSeconds();
    std::vector<ByteRange> ranges;
    ranges.reserve(rows_.size());
    for (const uint32_t row : rows_) ranges.push_back({row * kRowBytes, kRowBytes});
    std::vector<MergedRead> reads;
    Coalesce(ranges,
             {.block_bytes = LogicalBlockBytes(file_),
              .gap_bytes_max = gap_bytes_max,
              .request_bytes_max = kRequestBytesMax},
             reads);
    // The next read follows as soon as a piece is free: the device never waits for rows to be copied.
    std::vector<uint32_t> flights(kPieces);
    std::vector<ReadRequest> requests;
    std::vector<uint64_t> done;
    Extraction result{0, reads.size(), 0};
    size_t next = 0;
    const auto request = [&](uint32_t piece) {
      const MergedRead& read = reads[next];
      flights[piece] = static_cast<uint32_t>(next++);
      result.bytes += read.bytes;
      return ReadRequest{&file_, read.offset, read.bytes, Piece(piece), piece};
    };
    for (uint32_t piece = 0; piece < kPieces && next < reads.size(); piece++)
      requests.push_back(request(piece));
    QUARRY_RETURN_IF_ERROR(ring_->Submit(requests));
    while (ring_->pending() > 0) {
      done.clear();
      QUARRY_RETURN_IF_ERROR(ring_->Wait(done));
      for (const uint64_t tag : done) {
        const auto piece = static_cast<uint32_t>(tag);
        QUARRY_RETURN_IF_ERROR(CopyRows(reads[flights[piece]], Piece(piece)));
        if (next == reads.size()) continue;
        const ReadRequest follower = request(piece);
        QUARRY_RETURN_IF_ERROR(ring_->Submit({&follower, 1}));
      }
    }
    result.seconds = MonotonicSeconds() - start;
    return result;
  }

 private:
  static constexpr uint32_t kRequestBytesMax = 512 << 10;
  static constexpr uint32_t kPieces = 16;  // 8 MiB of staging stay in the processor's cache

  RowReader(const File& file, std::vector<uint32_t> rows) : file_(file), rows_(std::move(rows)) {
    std::byte row[kRowBytes];
    for (const uint32_t id : rows_) {
      FillRow(id, row);
      checksums_.push_back(CellChecksum(row, id));
    }
  }

  std::byte* Place(size_t i) const { return rows_buffer_.data() + i * kRowBytes; }
  std::byte* Piece(uint32_t piece) const { return staging_.data() + size_t{piece} * kRequestBytesMax; }

  Status Verify(size_t i, const std::byte* row) const {
    if (CellChecksum({row, kRowBytes}, rows_[i]) == checksums_[i]) return Status::Ok();
    return MakeStatus(Code::kCorruption, "{}: row {} is not what was written", file_.path(), rows_[i]);
  }

  Status CopyRows(const MergedRead& read, const std::byte* bytes) {
    for (size_t i = read.first; i < read.first + read.count; i++) {
      const std::byte* const row = bytes + (rows_[i] * kRowBytes - read.offset);
      QUARRY_RETURN_IF_ERROR(Verify(i, row));
      std::memcpy(Place(i), row, kRowBytes);
    }
    return Status::Ok();
  }

  const File& file_;
  const std::vector<uint32_t> rows_;
  std::vector<uint32_t> checksums_;  // by position
  IoBuffer rows_buffer_, staging_;
  std::unique_ptr<IoRing> ring_;  // dies before the buffers that it writes to
};

Status MergedRows(IoBackend& backend, const File& file, const Options& options, double sequential_rate,
                  Report& report) {
  const uint64_t row_count = options.file_bytes / kRowBytes;
  const size_t batch_rows = row_count * kTraceBatchRows / kTraceRows;
  std::vector<uint32_t> rows = DrawBatch(row_count, batch_rows, 5);
  fmt::print(
      "\none mini-batch: {} of {} rows of {} B, which touch {:.0f} % of the pages; sorted, verified, dense\n",
      batch_rows, row_count, kRowBytes, 100 * PagesTouched(rows, row_count));
  QUARRY_TRY(const auto reader, RowReader::Make(backend, file, std::move(rows)));

  const auto print = [&](const std::string& what, const Extraction& e) {
    fmt::print("  {:<16}{:>9} requests {:>7.2f} GB {:>7.2f} s {:>6.2f} GB/s\n", what, e.requests,
               static_cast<double>(e.bytes) / 1e9, e.seconds, static_cast<double>(e.bytes) / e.seconds / 1e9);
  };
  for (const uint64_t gap_bytes : {uint64_t{0}, 4 * kKiB, 16 * kKiB, 64 * kKiB, 128 * kKiB}) {
    QUARRY_TRY(const Extraction merged, reader->ReadMerged(gap_bytes));
    print(fmt::format("gap {:>3} KiB", gap_bytes / kKiB), merged);
  }
  // Row reads are timed on a fifth of the rows, a different one each round, and scaled.
  constexpr size_t kShare = 5;
  const uint64_t gap_bytes = CoalesceOptions{}.gap_bytes_max;
  std::vector<double> row_seconds, merged_seconds, limit_seconds;
  for (uint64_t round = 0; round < std::max<uint64_t>(options.rounds, 3); round++) {
    const size_t part = batch_rows / kShare;
    QUARRY_TRY(Extraction by_row, reader->ReadRows(round % kShare * part, part));
    by_row.seconds *= static_cast<double>(batch_rows) / static_cast<double>(part);
    by_row.requests = batch_rows;
    by_row.bytes = batch_rows * kRowBytes;
    print("row by row *", by_row);
    QUARRY_TRY(const Extraction merged, reader->ReadMerged(gap_bytes));
    print(fmt::format("gap {:>3} KiB", gap_bytes / kKiB), merged);
    row_seconds.push_back(by_row.seconds);
    merged_seconds.push_back(merged.seconds);
    limit_seconds.push_back(static_cast<double>(merged.bytes) / sequential_rate);
  }
  fmt::print("  (* timed on a fifth of the rows, and scaled)\n");
  // The trace and the device together allow a ratio: its bytes at the sequential rate against its rows one by
  // one.
  report.Add("merged rows, times row reads", "x", Median(row_seconds) / Median(merged_seconds),
             Median(row_seconds) / Median(limit_seconds), 0.85);
  return Status::Ok();
}

// --- gather
// ----------------------------------------------------------------------------------------------------

// Seconds of `work(part, parts)` on `parts` threads.
double OnThreads(unsigned parts, const std::function<void(unsigned, unsigned)>& work) {
  const double start = MonotonicSeconds();
  std::vector<std::thread> threads;
  for (unsigned part = 0; part < parts; part++) threads.emplace_back(work, part, parts);
  for (std::thread& thread : threads) thread.join();
  return MonotonicSeconds() - start;
}

Status Gather(const Options& options, Report& report) {
  const uint64_t table_bytes = RoundDown(std::min(2 * kGiB, MemoryLimitBytes() / 4), kRowBytes);
  QUARRY_TRY(const IoBuffer table, IoBuffer::Allocate(table_bytes));
  for (uint64_t row = 0; row < table_bytes / kRowBytes; row++) {
    FillRow(row, table.span().subspan(row * kRowBytes, kRowBytes));
  }
  std::vector<uint32_t> slots(kTraceBatchRows);
  Rng rng(9);
  for (uint32_t& slot : slots) slot = static_cast<uint32_t>(rng.Below(table_bytes / kRowBytes));
  QUARRY_TRY(const IoBuffer out, IoBuffer::Allocate(slots.size() * kRowBytes));
  fmt::print("\ngather of {} random rows of {} B from {} in memory, in turns\n", slots.size(), kRowBytes,
             FormatBytes(table_bytes));
  const double gigabytes = static_cast<double>(out.size()) / 1e9;
  for (const unsigned threads : {1U, 2U}) {
    std::vector<double> plain, gathered;
    for (uint64_t round = 0; round < 5 * options.rounds; round++) {
      plain.push_back(OnThreads(threads, [&](unsigned part, unsigned parts) {
        for (size_t i = slots.size() * part / parts; i < slots.size() * (part + 1) / parts; i++) {
          std::memcpy(out.data() + i * kRowBytes, table.data() + slots[i] * kRowBytes, kRowBytes);
        }
      }));
      const double start = MonotonicSeconds();
      GatherRows({table.data(), kRowBytes, kRowBytes}, slots, out.span(), threads);
      gathered.push_back(MonotonicSeconds() - start);
    }
    fmt::print("  {} thread{}: memcpy loop {:.1f} GB/s, gather {:.1f} GB/s\n", threads,
               threads == 1 ? " " : "s", gigabytes / Median(plain), gigabytes / Median(gathered));
    report.Add(fmt::format("gather, {} thread{} (beside memcpy)", threads, threads == 1 ? "" : "s"), "GB/s",
               gigabytes / Median(gathered), gigabytes / Median(plain), 0.8);
  }
  return Status::Ok();
}

// ---------------------------------------------------------------------------------------------------------------

Result<bool> Run(Options options) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  std::error_code error;
  std::filesystem::create_directories(options.directory, error);
  const auto space = std::filesystem::space(options.directory, error);
  if (!error && space.available < 20 * kGiB && options.file_bytes > space.available / 4) {
    options.file_bytes = space.available / 4;
    fmt::print("{} are free: the file is made smaller, and the batch with it\n",
               FormatBytes(space.available));
  }
  options.file_bytes = RoundDown(options.file_bytes, kPageBytes);  // direct writes are of whole pages
  QUARRY_TRY(const File file, OpenRowFile(*backend, options.directory, options.file_bytes / kRowBytes));
  fmt::print("{}: {}, {}, blocks of {} B, {}\n", file.path(), FormatBytes(options.file_bytes),
             backend->name(), LogicalBlockBytes(file),
             file.direct() ? "direct" : "NOT DIRECT: the page cache is measured");
  Report report;
  QUARRY_RETURN_IF_ERROR(RandomRows(*backend, file, options, report));
  QUARRY_TRY(const double sequential_rate, Sequential(*backend, file, options, report));
  QUARRY_RETURN_IF_ERROR(ShortProbe(*backend, file));
  QUARRY_RETURN_IF_ERROR(MergedRows(*backend, file, options, sequential_rate, report));
  QUARRY_RETURN_IF_ERROR(Gather(options, report));
  report.Print();
  return !report.missed();
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  using namespace quarry;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const Result<bench::Options> options = bench::ParseOptions(argc, argv);
  const Result<bool> passed = options.ok() ? bench::Run(*options) : Result<bool>(options.status());
  if (passed.ok()) return *passed ? 0 : 1;
  fmt::print(stderr, "bench_extract: {}\n", passed.status().ToString());
  return ExitCode(passed.status().code());
}
