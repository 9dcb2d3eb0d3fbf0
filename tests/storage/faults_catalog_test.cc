// Whatever the catalog's files fail at, what was acknowledged is there after reopening, nothing is half
// there, and the error names the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "embedding/trained_tables.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/catalog/catalog_faults.h"
#include "quarry/io/fault_backend.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/training_state.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::TinyGraph;
using testing_util::TrainedTables;

using Bytes = std::vector<std::byte>;

const TinyGraph kGraph{.nodes = 60, .dim = 4};
constexpr uint64_t kSeed = 6;

Bytes RowOf(uint64_t number) {
  const std::vector<float> values(kGraph.dim, static_cast<float>(number));
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// An open database, and what was done to it.
class Workbench {
 public:
  explicit Workbench(std::string path) : path_(std::move(path)) {}

  Status Open() {
    QUARRY_TRY(store_, Store::Open(backend_, path_));
    return Status::Ok();
  }
  void Close() {
    tables_.Close();
    store_.reset();
  }

  // Those that failed may have happened.
  Status Do(std::string_view step) {
    ++number_;
    if (step == "put") return Put();
    if (step == "change") return Change();
    if (step == "compact") return CompactTable(*store_, budget_, "feature", false, {}).status();
    if (step == "build") {
      return BuildLayout(*store_, budget_, {.fanouts = {3}, .batch_size = 16}, false, {}).status();
    }
    return Train();
  }

  // The rows as a new snapshot has them.
  Result<std::vector<Bytes>> Rows() {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store_->TakeSnapshot());
    QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store_->OpenTable(*snapshot, "feature"));
    QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store_->OpenOverlay("feature", snapshot));
    const size_t row_bytes = RowOf(0).size();
    Bytes all(kGraph.nodes * row_bytes);
    QUARRY_RETURN_IF_ERROR(table->ReadRows(backend_, 0, kGraph.nodes, all));
    std::vector<Bytes> rows;
    for (const std::byte* row = all.data(); row < all.data() + all.size(); row += row_bytes) {
      rows.emplace_back(row, row + row_bytes);
    }
    const std::vector<uint64_t> touched = overlay->TouchedRows();
    QUARRY_RETURN_IF_ERROR(overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      rows[touched[i]].assign(value.begin(), value.end());
    }));
    return rows;
  }
  std::vector<Bytes> RowsAfter(const std::vector<uint64_t>& puts) const {
    std::vector<Bytes> rows;
    for (NodeId node = 0; node < kGraph.nodes; ++node) rows.push_back(kGraph.Row(node));
    for (const uint64_t number : puts) {
      for (const uint64_t row : RowsOfPut(number)) rows[row] = RowOf(number);
    }
    return rows;
  }

  // Opened anew, without faults.
  void ExpectWhole() {
    const Status opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.ToString();
    EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
    const auto rows = Rows();
    ASSERT_TRUE(rows.ok()) << rows.status().ToString();
    std::vector<uint64_t> all = puts_;
    all.push_back(std::exchange(failed_put_, 0));
    if (all.back() != 0 && *rows == RowsAfter(all)) puts_ = all;
    EXPECT_TRUE(*rows == RowsAfter(puts_)) << "a batch is lost, or half there";
    EXPECT_THAT(changes_, testing::Contains(store_->manifest().created_utc));
    const Status tables = tables_.Open(*store_);
    ASSERT_TRUE(tables.ok()) << tables.ToString();
    const int64_t timestamp = tables_[0].timestamp();
    ASSERT_THAT(checkpoints_, testing::Contains(timestamp));
    tables_.ExpectState(*store_, timestamp, tables_.WritesUpTo(timestamp));
    if (timestamp != kNeverWritten) {
      EXPECT_TRUE(ReadTrainingState(*store_, "run").value() == RowOf(static_cast<uint64_t>(timestamp)));
    }
    const Status put = Do("put");
    EXPECT_TRUE(put.ok()) << put.ToString();
  }

  Store& store() { return *store_; }
  FaultBackend& backend() { return backend_; }
  const std::vector<uint64_t>& puts() const { return puts_; }

 private:
  static std::vector<uint64_t> RowsOfPut(uint64_t number) { return {1, 2 + number % 7, 20 + number}; }

  Status Put() {
    WriteBatch batch;
    for (const uint64_t row : RowsOfPut(number_)) batch.Put("feature", row, RowOf(number_));
    const auto written = store_->Write(batch);
    if (written.ok()) {
      puts_.push_back(number_);
      EXPECT_EQ(*written, puts_.size());
    } else if (failed_put_ == 0) {
      failed_put_ = number_;
    } else {
      EXPECT_THAT(std::string(written.status().message()), HasSubstr("writes are refused since one failed"));
    }
    return written.status();
  }

  Status Change() {
    const std::string change = std::to_string(number_);
    const Status status = store_->UpdateManifest([&](Manifest& manifest) {
      manifest.created_utc = change;
      return Status::Ok();
    });
    if (status.ok()) changes_.clear();
    changes_.push_back(change);
    return status;
  }

  // A checkpoint of both tables and the state beside them.
  Status Train() {
    if (number_trained_ == kNeverWritten) {
      tables_.Close();  // of an Open that failed for the second
      QUARRY_RETURN_IF_ERROR(tables_.Open(*store_));
    }
    const auto now = static_cast<int64_t>(number_);
    while (number_trained_ < now) QUARRY_RETURN_IF_ERROR(tables_.Train(++number_trained_));
    const std::array<StoredEmbeddings*, TrainedTables::kTables> tables = {&tables_[0], &tables_[1]};
    const auto commit = [&](const ManifestChange& change) {
      return CheckpointAll(*store_, tables, now, [&](Manifest& manifest) {
        manifest.source = std::to_string(now);
        return change(manifest);
      });
    };
    const Bytes state = RowOf(number_);
    const Status status =
        CheckpointTraining(*store_, {.name = "run", .timestamp = now, .state = state}, commit);
    if (status.ok()) checkpoints_.clear();
    checkpoints_.push_back(now);
    return status;
  }

  const std::string path_;
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  FaultBackend backend_{*real_};
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  TrainedTables tables_{kSeed};
  uint64_t number_ = 0;  // of the step
  int64_t number_trained_ = kNeverWritten;
  std::vector<uint64_t> puts_;  // that succeeded
  uint64_t failed_put_ = 0;     // the first that did not
  // The last that succeeded, and what was tried after it.
  std::vector<std::string> changes_ = {""};
  std::vector<int64_t> checkpoints_ = {kNeverWritten};
};

class CatalogFaultsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<testing_util::ScratchFolder>(testing_util::Medium::kMemory);
    const auto backend = MakeDefaultBackend();
    ASSERT_TRUE(ImportTinyGraph(*backend, kGraph, Original()).ok());
    const auto store = Store::Open(*backend, Original());
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ASSERT_TRUE(TrainedTables(kSeed).Create(**store).ok());
    ASSERT_TRUE(
        (*store)->UpdateManifest([](Manifest& m) { return m.created_utc.clear(), Status::Ok(); }).ok());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string Original() { return folder_->path() + "/original"; }
  static std::string Path() { return folder_->path() + "/db"; }

  void Begin() {
    fs::remove_all(Path());
    fs::copy(Original(), Path(), fs::copy_options::recursive);
  }

  // The error says what failed, and where.
  static void ExpectClear(const Status& status, const CatalogFaultPlan& plan) {
    EXPECT_EQ(status.code(), plan.error == ENOSPC ? Code::kNoSpace : Code::kIoError) << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path()));
    // RocksDB does not tell why it could not open a file that it tried only to see what the file system can.
    if (plan.kind == CatalogFault::kOpen) return;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::strerror(plan.error)));
  }

  // True when the plan struck.
  bool RunWith(const CatalogFaultPlan& plan, std::span<const std::string_view> steps) {
    Begin();
    Workbench bench(Path());
    const Status opened = bench.Open();
    EXPECT_TRUE(opened.ok()) << opened.ToString();
    faults_.SetPlan(plan);
    for (const std::string_view step : steps) {
      SCOPED_TRACE(step);
      const uint64_t strikes = faults_.strikes();
      const Status status = bench.Do(step);
      EXPECT_TRUE(status.ok() || faults_.strikes() > 0) << status.ToString();
      if (!status.ok()) ExpectClear(status, plan);
      const auto rows = bench.Rows();
      // A file that cannot be opened may be one that a reader needs.
      EXPECT_TRUE(rows.ok() || plan.kind == CatalogFault::kOpen) << rows.status().ToString();
      if (rows.ok()) {
        EXPECT_TRUE(*rows == bench.RowsAfter(bench.puts())) << "what readers see, strikes " << strikes;
      }
    }
    const bool struck = faults_.strikes() > 0;
    bench.Close();
    faults_.SetPlan({});
    bench.ExpectWhole();
    bench.Close();
    return struck;
  }

  void RunForEachK(CatalogFaultPlan plan, std::span<const std::string_view> steps) {
    for (plan.at = 1;; ++plan.at) {
      SCOPED_TRACE(testing::Message() << "operation " << plan.at << (plan.sticky ? " and later" : "")
                                      << ", error " << plan.error);
      if (!RunWith(plan, steps) || HasFailure()) break;
      ASSERT_LT(plan.at, 500u);
    }
    EXPECT_GT(plan.at, 1u) << "nothing struck";
  }

  // With a catalog that the first step opens for writing, and with one that every change opens anew.
  void RunForEachK(CatalogFault kind) {
    constexpr std::string_view kWritable[] = {"put", "change", "compact", "put", "train", "put"};
    constexpr std::string_view kReopened[] = {"train", "change", "put", "compact"};
    RunForEachK({.kind = kind, .error = EIO}, kWritable);
    RunForEachK({.kind = kind, .sticky = true, .error = kind == CatalogFault::kOpen ? EIO : ENOSPC},
                kReopened);
  }

  static std::unique_ptr<testing_util::ScratchFolder> folder_;
  CatalogFaults faults_;
};
std::unique_ptr<testing_util::ScratchFolder> CatalogFaultsTest::folder_;

TEST_F(CatalogFaultsTest, AnyOpenMayFail) { RunForEachK(CatalogFault::kOpen); }
TEST_F(CatalogFaultsTest, AnyAppendMayFail) { RunForEachK(CatalogFault::kAppend); }
TEST_F(CatalogFaultsTest, AnySyncMayFail) { RunForEachK(CatalogFault::kSync); }
TEST_F(CatalogFaultsTest, AnyRenameMayFail) { RunForEachK(CatalogFault::kRename); }

TEST_F(CatalogFaultsTest, AFailedSyncIsNotTriedAgainAndStopsWritesButNotReaders) {
  Begin();
  Workbench bench(Path());
  ASSERT_TRUE(bench.Open().ok());
  ASSERT_TRUE(bench.Do("put").ok());
  const std::vector<Bytes> rows = bench.Rows().value();
  faults_.SetPlan({.kind = CatalogFault::kSync, .at = 1, .error = EIO});
  const Status failed = bench.Do("put");
  ExpectClear(failed, {.error = EIO});
  EXPECT_THAT(std::string(failed.message()), HasSubstr(".log"));
  for (const std::string_view step : {"put", "change", "compact", "train", "put"}) {
    const Status refused = bench.Do(step);
    EXPECT_EQ(refused.code(), Code::kIoError) << step << ": " << refused.ToString();
    EXPECT_TRUE(bench.Rows().value() == rows);
  }
  EXPECT_EQ(faults_.count(CatalogFault::kSync), 1u) << "no other try";
  bench.Close();
  bench.ExpectWhole();
  bench.Close();
}

// A commit that failed may be on disk, and name a file that this process takes for a leftover. A second try
// that also fails must not have damaged it.
TEST_F(CatalogFaultsTest, AFileThatAFailedCommitMayNameIsKeptUntilThatIsSettled) {
  for (const std::string_view step : {"compact", "train", "build"}) {
    for (const bool writable : {false, true}) {
      bool struck = true;
      for (uint64_t at = 1; struck; ++at) {
        SCOPED_TRACE(testing::Message()
                     << step << ", sync " << at << (writable ? ", written to before" : ""));
        Begin();
        Workbench bench(Path());
        if (!writable) {  // something to compact
          ASSERT_TRUE(bench.Open().ok());
          ASSERT_TRUE(bench.Do("put").ok());
          bench.Close();
        }
        ASSERT_TRUE(bench.Open().ok());
        if (writable) {
          ASSERT_TRUE(bench.Do("put").ok());
        }
        faults_.SetPlan({.kind = CatalogFault::kSync, .at = at, .error = EIO});
        static_cast<void>(bench.Do(step).ok());
        struck = faults_.strikes() > 0;
        faults_.SetPlan({});
        bench.backend().SetPlans({{.kind = FaultKind::kWrite, .at = 1, .sticky = true, .error = EIO}});
        static_cast<void>(bench.Do(step).ok());
        bench.backend().SetPlans({});
        bench.Close();
        bench.ExpectWhole();
        bench.Close();
        if (HasFailure()) return;
      }
    }
  }
}

// What opening a database would remove may be what a commit names that is not on disk yet: it goes behind a
// commit that is.
TEST_F(CatalogFaultsTest, ALeftoverIsRemovedOnlyBehindACommit) {
  Begin();
  const std::string leftover = Path() + "/features/feature-7.qft";
  fs::copy(Path() + "/features/feature-1.qft", leftover);
  Workbench bench(Path());
  faults_.SetPlan({.kind = CatalogFault::kSync, .at = 1, .sticky = true, .error = EIO});
  ASSERT_TRUE(bench.Open().ok()) << "it can be read";
  EXPECT_TRUE(bench.Rows().ok());
  EXPECT_TRUE(fs::exists(leftover));
  bench.Close();
  faults_.SetPlan({});
  ASSERT_TRUE(bench.Open().ok());
  EXPECT_FALSE(fs::exists(leftover));
  bench.Close();
}

}  // namespace
}  // namespace quarry
