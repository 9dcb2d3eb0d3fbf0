// Writing to a database: synced commits a second by one and by several writers beside what the disk syncs,
// bytes written for a byte of rows, what changed rows cost readers of each road, and compaction beside the
// disk's rates.
//
//   bench_writes DB [commits]     of commits alone, or of all; DB: a database of features, labels and splits, which is written to
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/database.h"

namespace quarry::bench {
namespace {

constexpr double kSecondsPerRate = 2;
constexpr uint64_t kRowsPerCommit = 1;

std::vector<std::byte> RandomRow(Rng& rng, uint64_t row_bytes) {
  std::vector<std::byte> row(row_bytes);
  for (size_t at = 0; at + sizeof(float) <= row.size(); at += sizeof(float)) {
    const auto value = static_cast<float>(rng.Unit() - 0.5);
    std::memcpy(row.data() + at, &value, sizeof(value));
  }
  return row;
}

// Bytes that this process has given to the disk, as the kernel counts them.
uint64_t WrittenBytes() {
  std::ifstream file("/proc/self/io");
  std::string key;
  uint64_t value = 0;
  while (file >> key >> value) {
    if (key == "write_bytes:") return value;
  }
  return 0;
}

// Syncs a second of a file that grows by 4 KiB each time: the limit of one writer.
Result<double> SyncRate(IoBackend& backend, const std::string& folder) {
  const std::string path = folder + "/sync-probe";
  std::filesystem::remove(path);
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kCreate));
  const std::vector<std::byte> bytes(4096);
  uint64_t count = 0;
  const double start = MonotonicSeconds();
  while (MonotonicSeconds() - start < kSecondsPerRate) {
    QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, count * bytes.size(), bytes));
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
    ++count;
  }
  const double rate = static_cast<double>(count) / (MonotonicSeconds() - start);
  std::filesystem::remove(path);
  return rate;
}

struct Rate {
  double commits_per_second = 0;
  double bytes_per_row_byte = 0;
};

// Each writer commits one row after another.
Result<Rate> CommitRate(Store& store, const TableRecord& table, unsigned writers, bool sync) {
  const uint64_t row_bytes = RowBytes(table.element_type, table.dim);
  std::vector<uint64_t> counts(writers);
  std::vector<Status> statuses(writers);
  const uint64_t written_before = WrittenBytes();
  const double start = MonotonicSeconds();
  std::vector<std::thread> threads;
  for (unsigned w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      Rng rng(MixSeed(w, writers));
      const std::vector<std::byte> row = RandomRow(rng, row_bytes);
      WriteBatch batch;
      while (MonotonicSeconds() - start < kSecondsPerRate && statuses[w].ok()) {
        batch.Clear();
        for (uint64_t i = 0; i < kRowsPerCommit; ++i) batch.Put(table.name, rng.Below(table.row_count), row);
        statuses[w] = store.Write(batch, {.sync = sync}).status();
        ++counts[w];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = MonotonicSeconds() - start;
  uint64_t commits = 0;
  for (unsigned w = 0; w < writers; ++w) {
    QUARRY_RETURN_IF_ERROR(statuses[w]);
    commits += counts[w];
  }
  return Rate{static_cast<double>(commits) / seconds,
              static_cast<double>(WrittenBytes() - written_before) /
                  static_cast<double>(commits * kRowsPerCommit * row_bytes)};
}

// Seconds of a pass over the training nodes; rows are touched as a trainer would.
Result<double> PassSeconds(Road& road) {
  const double start = MonotonicSeconds();
  QUARRY_TRY(const std::unique_ptr<BatchStream> stream,
             road.StartPass({.seeds = road.TrainNodes(), .pass = 1, .ordered = true}));
  for (;;) {
    QUARRY_TRY(const std::unique_ptr<Batch> batch, stream->Next());
    if (!batch) return MonotonicSeconds() - start;
  }
}

struct PassTimes {
  double live = 0, planned = 0;
};

Result<PassTimes> MeasurePasses(Database& database, uint64_t cache_bytes) {
  PassTimes times;
  LiveRoadOptions live{.spec = {.fanouts = {10, 15}, .cache_bytes = cache_bytes},
                       .sampler_threads = 1,
                       .extractor_threads = 1};
  {
    QUARRY_TRY(const std::unique_ptr<LiveRoad> road, database.OpenLiveRoad(live));
    QUARRY_TRY(times.live, PassSeconds(*road));
  }
  QUARRY_TRY(const std::unique_ptr<PlannedRoad> road, database.OpenLayout({.layout = "writes"}));
  QUARRY_RETURN_IF_ERROR(PassSeconds(*road).status());  // reads the cache image
  QUARRY_TRY(times.planned, PassSeconds(*road));
  return times;
}

// Changes rows until `share` of the table has versions; rows a second.
Result<double> Touch(Store& store, const TableRecord& table, double share) {
  Rng rng(17);
  const uint64_t row_bytes = RowBytes(table.element_type, table.dim);
  const std::vector<std::byte> row = RandomRow(rng, row_bytes);
  const auto step = static_cast<uint64_t>(1 / share);
  const uint64_t shift = rng.Below(step);
  const double start = MonotonicSeconds();
  uint64_t count = 0;
  WriteBatch batch;
  for (uint64_t id = shift; id < table.row_count; id += step, ++count) {
    batch.Put(table.name, id, row);
    if (batch.entries().size() < 10'000) continue;
    QUARRY_RETURN_IF_ERROR(store.Write(batch).status());
    batch.Clear();
  }
  QUARRY_RETURN_IF_ERROR(store.Write(batch).status());
  return static_cast<double>(count) / (MonotonicSeconds() - start);
}

Status MeasureCommits(Store& store, const TableRecord& table) {
  QUARRY_TRY(const double syncs, SyncRate(store.backend(), store.path()));
  fmt::print("\ncommits of one row; the disk does {:.0f} syncs/s of 4 KiB\n", syncs);
  fmt::print("  {:>8}{:>8}{:>12}{:>14}{:>18}\n", "writers", "sync", "commits/s", "of the limit",
             "bytes a row byte");
  for (const bool sync : {true, false}) {
    for (const unsigned writers : {1U, 4U, 16U}) {
      QUARRY_TRY(const Rate rate, CommitRate(store, table, writers, sync));
      fmt::print("  {:>8}{:>8}{:>12.0f}{:>14}{:>18.2f}\n", writers, sync ? "yes" : "no",
                 rate.commits_per_second, sync ? fmt::format("{:.2f}", rate.commits_per_second / syncs) : "-",
                 rate.bytes_per_row_byte);
      std::fflush(stdout);
    }
  }
  return Status::Ok();
}

Status MeasureReaders(Database& database) {
  Store& store = database.store();
  QUARRY_RETURN_IF_ERROR(database.Calibrate(true).status());
  const DeviceRecord device = *database.manifest()->device;
  const std::shared_ptr<const Manifest> manifest = database.manifest();
  const TableRecord table = *manifest->FindTable("feature");
  const uint64_t row_bytes = RowBytes(table.element_type, table.dim);
  fmt::print("{} rows of {} bytes; device {:.2f} GB/s read, {:.2f} GB/s written\n", table.row_count,
             row_bytes, device.sequential_bytes_per_second / 1e9, device.write_bytes_per_second / 1e9);

  const uint64_t cache_bytes = table.row_count * row_bytes / 10;
  QUARRY_RETURN_IF_ERROR(
      database
          .BuildLayout(
              {.name = "writes", .road = {.fanouts = {10, 15}, .cache_bytes = cache_bytes}, .threads = 2})
          .status());
  fmt::print("\nreading an epoch, with a share of the rows changed since table and layout were written\n");
  fmt::print("  {:>8}{:>12}{:>10}{:>12}{:>10}{:>16}\n", "changed", "live s", "slower", "planned s", "slower",
             "rows put/s");
  PassTimes first;
  for (const double share : {0.0, 0.01, 0.1}) {
    double put_rate = 0;
    if (share > 0) {
      QUARRY_TRY(put_rate, Touch(store, table, share));
    }
    QUARRY_TRY(const PassTimes times, MeasurePasses(database, cache_bytes));
    if (share == 0) first = times;
    fmt::print("  {:>7.0f}%{:>12.2f}{:>10.2f}{:>12.2f}{:>10.2f}{:>16.0f}\n", share * 100, times.live,
               times.live / first.live, times.planned, times.planned / first.planned, put_rate);
    std::fflush(stdout);
  }

  QUARRY_TRY(const CompactionReport report, CompactTable(store, database.budget(), "feature", false, {}));
  const auto bytes = static_cast<double>(report.bytes);
  const double limit = 1 / (1 / device.sequential_bytes_per_second + 1 / device.write_bytes_per_second);
  fmt::print(
      "\ncompaction of {} changed rows: {:.2f} s, {:.0f} MB/s; limit {:.0f} MB/s (read, then written, at the "
      "device's rates): {:.2f}\n",
      report.rows_changed, report.seconds, bytes / report.seconds / 1e6, limit / 1e6,
      bytes / report.seconds / limit);
  QUARRY_TRY(const PassTimes after, MeasurePasses(database, cache_bytes));
  fmt::print("after it: live {:.2f} s ({:.2f}), planned from the older layout {:.2f} s ({:.2f})\n",
             after.live, after.live / first.live, after.planned, after.planned / first.planned);

  return Status::Ok();
}

Status Run(const std::string& path, bool commits_alone) {
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(path, {.memory_bytes = 4 * kGiB}));
  if (!commits_alone) QUARRY_RETURN_IF_ERROR(MeasureReaders(*database));
  const std::shared_ptr<const Manifest> manifest = database->manifest();
  return MeasureCommits(database->store(), *manifest->FindTable("feature"));
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const bool commits_alone = argc == 3 && std::string_view(argv[2]) == "commits";
  if (argc != 2 && !commits_alone) {
    std::fprintf(
        stderr,
        "usage: bench_writes DB [commits] (a database that is written to: bench_writes.sh makes one)\n");
    return 2;
  }
  const quarry::Status status = quarry::bench::Run(argv[1], commits_alone);
  if (!status.ok()) fmt::print(stderr, "bench_writes: {}\n", status.message());
  return quarry::ExitCode(status.code());
}
