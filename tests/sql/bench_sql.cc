// SQL beside what lies under it: point lookups, lists of ids, a scan of all features, and the nearest rows of
// one, each with the limit of the same run.
//
//   bench_sql DB     a database of features; better larger than the device's caches
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/sql/connection.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/scanner.h"

namespace quarry::bench {
namespace {

constexpr double kSecondsPerRate = 2;
constexpr uint64_t kListRows = 1000;
constexpr uint64_t kMemoryBytes = kGiB;

// Shares of what the engine alone, or the disk, does.
constexpr double kListTarget = 0.7;
constexpr double kScanTarget = 0.6;

struct Bench {
  Store& store;
  const FeatureTable& table;
  sql::Connection& sql;
  MergedReader& reader;
};

// Calls of `work` a second.
template <typename Work>
Result<double> RateOf(Work&& work) {
  const double start = MonotonicSeconds();
  uint64_t calls = 0;
  for (; calls == 0 || MonotonicSeconds() - start < kSecondsPerRate; ++calls) {
    QUARRY_RETURN_IF_ERROR(work());
  }
  return static_cast<double>(calls) / (MonotonicSeconds() - start);
}

Status Drain(Result<sql::Rows> rows) {
  QUARRY_RETURN_IF_ERROR(rows.status());
  while (true) {
    QUARRY_TRY(const bool more, rows->Next());
    if (!more) return Status::Ok();
  }
}

// Rows by merged requests, verified: what the engine does for a list.
Status ReadRows(const Bench& bench, const std::vector<uint64_t>& rows) {
  const FeatureGeometry& geometry = bench.table.geometry();
  std::vector<ByteRange> ranges;
  for (const uint64_t row : rows) {
    ranges.push_back({geometry.CellOffset(geometry.CellOfRow(row)), geometry.cell_bytes()});
  }
  return bench.reader.Read(bench.table.file(), bench.table.block_bytes(), ranges,
                           [&](size_t i, std::span<const std::byte> bytes) {
                             return bench.table.VerifyCell(geometry.CellOfRow(rows[i]), bytes);
                           });
}

std::vector<uint64_t> DrawRows(Rng& rng, uint64_t row_count, uint64_t count) {
  std::vector<uint64_t> rows(count);
  for (uint64_t& row : rows) row = rng.Below(row_count);
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// What stands behind a share; none without a target.
std::string Judge(double share, double target, bool& met) {
  if (target == 0) return "";
  met &= share >= target;
  return fmt::format("  target {:.2f}: {}", target, share >= target ? "met" : "MISSED");
}

Status Lookups(const Bench& bench, uint64_t list_rows, double target, bool& met) {
  const uint64_t row_count = bench.table.geometry().row_count;
  std::string text = "SELECT feature FROM features WHERE id IN (?";
  for (uint64_t i = 1; i < list_rows; ++i) text += ",?";
  text += ")";
  Rng sql_rng(1), raw_rng(1);
  QUARRY_TRY(const double sql, RateOf([&] {
               const std::vector<uint64_t> rows = DrawRows(sql_rng, row_count, list_rows);
               std::vector<sql::Value> ids(list_rows);  // NULL where a row was drawn twice
               for (size_t i = 0; i < rows.size(); ++i) ids[i] = static_cast<int64_t>(rows[i]);
               return Drain(bench.sql.Query(text, ids));
             }));
  QUARRY_TRY(const double raw,
             RateOf([&] { return ReadRows(bench, DrawRows(raw_rng, row_count, list_rows)); }));
  fmt::print("{:>6} ids: {:>9.0f} queries/s, {:>9.0f} by the engine alone: {:.2f}{}\n", list_rows, sql, raw,
             sql / raw, Judge(sql / raw, target, met));
  return Status::Ok();
}

Result<double> ScanBytesPerSecond(const Bench& bench) {
  const FeatureGeometry& geometry = bench.table.geometry();
  const double start = MonotonicSeconds();
  QUARRY_TRY(const auto scanner, FileScanner::Make(bench.store.backend(), bench.table.file(),
                                                   geometry.data_offset, geometry.data_bytes()));
  while (true) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    if (piece.empty()) break;
  }
  return static_cast<double>(geometry.data_bytes()) / (MonotonicSeconds() - start);
}

Status Scan(const Bench& bench, const char* what, std::string_view text, double target, bool& met) {
  QUARRY_TRY(const double limit, ScanBytesPerSecond(bench));
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(Drain(bench.sql.Query(text)));
  const double seconds = MonotonicSeconds() - start;
  const FeatureGeometry& geometry = bench.table.geometry();
  const double rate = static_cast<double>(geometry.data_bytes()) / seconds;
  fmt::print("{}: {:.2f} s, {:.2f} M rows/s, {:.2f} GB/s; the file alone {:.2f} GB/s: {:.2f}{}\n", what,
             seconds, static_cast<double>(geometry.row_count) / seconds / 1e6, rate / 1e9, limit / 1e9,
             rate / limit, Judge(rate / limit, target, met));
  return Status::Ok();
}

// Whether all targets are met.
Result<bool> Run(const std::string& path) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, path));
  MemoryBudget budget(kMemoryBytes);
  QUARRY_TRY(const auto table, store->OpenTable("feature"));
  QUARRY_TRY(const auto connection, sql::Connection::Open(*store, budget, {}));
  constexpr uint64_t kStagingBytes = 4 * kMiB;  // as SQL's
  MergedReader reader(*backend, budget, ProfileOf(*store->manifest()), kStagingBytes);
  const Bench bench{*store, *table, *connection, reader};
  fmt::print("{} rows of {} bytes\n", table->geometry().row_count, table->geometry().row_bytes);
  bool met = true;
  for (const uint64_t rows : {uint64_t{1}, uint64_t{32}, kListRows}) {
    QUARRY_RETURN_IF_ERROR(Lookups(bench, rows, rows == kListRows ? kListTarget : 0, met));
  }
  QUARRY_RETURN_IF_ERROR(
      Scan(bench, "sum over a scan", "SELECT sum(vec_dim(feature)) FROM features", kScanTarget, met));
  QUARRY_RETURN_IF_ERROR(
      Scan(bench, "10 nearest rows",
           "SELECT f.id FROM (SELECT feature AS point FROM features WHERE id = 7), features f "
           "ORDER BY vec_l2(f.feature, point) LIMIT 10",
           0, met));
  return met;
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: bench_sql DB\n");
    return 2;
  }
  const auto met = quarry::bench::Run(argv[1]);
  if (met.ok()) return *met ? 0 : 1;
  std::fprintf(stderr, "%s\n", met.status().ToString().c_str());
  return quarry::ExitCode(met.status().code());
}
