// DeltaLog: what the store does with writes (deltas.h): one queue of writers, of which the first commits for
// all that wait (group commit), and the bitmaps of touched rows. Private to this room.
//
// Thread-safe.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/row_bitmap.h"

namespace quarry {

class DeltaLog {
 public:
  // `catalog(writable)` gives the catalog that is open, opened for writing where that is asked.
  using CatalogFunction = std::function<Result<std::shared_ptr<Catalog>>(bool writable)>;
  // While a large write is under way, one fewer than this many other commits may come.
  static constexpr uint64_t kCommitsBesideMax = uint64_t{1} << 32;
  // `structure_timestamp()` is that of the last commit of edges, which the catalog's last timestamp leaves out.
  DeltaLog(
      std::string path, CatalogFunction catalog, uint64_t commits_beside_max = kCommitsBesideMax,
      std::function<uint64_t()> structure_timestamp = [] { return uint64_t{0}; })
      : path_(std::move(path)),
        catalog_(std::move(catalog)),
        commits_beside_max_(commits_beside_max),
        structure_timestamp_(std::move(structure_timestamp)) {}

  // As Store::Write.
  Result<uint64_t> Write(const Manifest& manifest, const WriteBatch& batch, const WriteOptions& options)
      QUARRY_EXCLUDES(mutex_);
  // As Store::BeginLargeWrite, with rows of the tables of `manifest`.
  Result<std::unique_ptr<LargeWrite>> BeginLargeWrite(std::shared_ptr<const Manifest> manifest)
      QUARRY_EXCLUDES(mutex_);
  // Calls `commit` with the next timestamp, which it returns, in the turn of a writer: no rows are committed meanwhile.
  // With `rows`, which BeginLargeWrite has returned, `commit` publishes these, too, under their timestamp.
  Result<uint64_t> CommitStructure(const std::function<Status(uint64_t)>& commit, LargeWrite* rows = nullptr)
      QUARRY_EXCLUDES(mutex_);
  // Catalog::DropVersions of a table that compaction has folded up to `timestamp`.
  Status DropVersions(const std::string& table, uint64_t timestamp) QUARRY_EXCLUDES(mutex_);
  // The timestamp of the newest commit that is visible.
  Result<uint64_t> LastTimestamp() QUARRY_EXCLUDES(mutex_);
  // The overlay of `table` in the snapshot, together with `folded`: rows that are newer in `file` than in the
  // base that the overlay is for. `file` may be null when there are none.
  Result<std::unique_ptr<RowOverlay>> OpenOverlay(IoBackend& backend, const TableRecord& table,
                                                  std::shared_ptr<const Snapshot> snapshot, RowBitmap folded,
                                                  std::unique_ptr<FeatureTable> file) QUARRY_EXCLUDES(mutex_);

 private:
  class StagedWrite;
  // What Add has written of a large write.
  struct StagedRows {
    uint64_t timestamp = 0;
    std::map<std::string, RowBitmap, std::less<>> rows;  // by table
  };
  struct Writer {
    const WriteBatch* batch = nullptr;
    const StagedRows* staged = nullptr;                          // instead of a batch
    const std::function<Status(uint64_t)>* structure = nullptr;  // instead of either, or with staged rows
    bool alone() const { return staged != nullptr || structure != nullptr; }
    bool sync = true;
    bool done = false;
    Status status;
    uint64_t timestamp = 0;
    // Shared, because whoever wakes a writer has given up the latch by then, and the writer may have returned.
    std::shared_ptr<CondVar> wake = std::make_shared<CondVar>();
  };

  Status Load() QUARRY_REQUIRES(mutex_);
  Status Settle() QUARRY_REQUIRES(mutex_);
  Result<const RowBitmap*> RowsSince(const TableRecord& table) QUARRY_REQUIRES(mutex_);
  Result<uint64_t> CommitInTurn(Writer& self) QUARRY_REQUIRES(mutex_);
  void Gather(Writer& first) QUARRY_REQUIRES(mutex_);
  std::vector<Writer*> TakeGroup() QUARRY_REQUIRES(mutex_);
  Status CheckGroup(std::span<Writer* const> group) const QUARRY_REQUIRES(mutex_);
  Status Commit(std::span<Writer* const> group);
  void Publish(std::span<Writer* const> group) QUARRY_REQUIRES(mutex_);

  const std::string path_;
  const CatalogFunction catalog_;
  const uint64_t commits_beside_max_;
  const std::function<uint64_t()> structure_timestamp_;

  Mutex mutex_;
  bool loaded_ QUARRY_GUARDED_BY(mutex_) = false;
  uint64_t last_timestamp_ QUARRY_GUARDED_BY(mutex_) = 0;    // committed and visible
  uint64_t staged_timestamp_ QUARRY_GUARDED_BY(mutex_) = 0;  // the large write under way; 0 = none
  bool unsettled_ QUARRY_GUARDED_BY(mutex_) = false;       // a commit failed: it may be in the catalog or not
  std::deque<Writer*> writers_ QUARRY_GUARDED_BY(mutex_);  // the first one commits
  size_t gathered_ QUARRY_GUARDED_BY(mutex_) = 0;  // how many the first one waits for; 0: it does not wait
  size_t expected_ QUARRY_GUARDED_BY(mutex_) = 0;  // writers of the last commit, and those that waited then
  std::chrono::steady_clock::duration last_commit_ QUARRY_GUARDED_BY(mutex_){};  // how long it took
  // Rows that have versions above a timestamp, of tables that were asked about.
  std::map<std::pair<std::string, uint64_t>, RowBitmap> touched_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
