#include "rocks.h"

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "catalog_environment.h"
#include "catalog_threads.h"
#include "ledger.h"
#include "quarry/base/exhaustion.h"
#include "quarry/base/process_limits.h"
#include "quarry/base/regular_file.h"
#include "quarry/catalog/open_tables.h"
#include "table_guard.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

// Sized for metadata: the engine's memory budget goes to features, and this is the fixed part of its
// overhead.
rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.env = CatalogEnvironment();
  options.write_buffer_size = 16 << 20;
  constexpr int kOtherFiles = 10;  // that RocksDB takes off
  options.max_open_files =
      kOtherFiles + (DescriptorsLimit() <= kFewDescriptors ? kTablesOpenOfFew : kTablesOpen);
  options.max_file_opening_threads = 1;  // RocksDB starts sixteen a family otherwise, at every open
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.max_manifest_file_size = 1 << 20;
  // RocksDB would take 4 MB of the disk for each MANIFEST; what logs get is in log_room.h.
  options.allow_fallocate = false;
  // RocksDB's own list of synced logs (track_and_verify_wals_in_manifest) stays off: what it would find, a
  // log that is missing or shorter than it was, the ledger and the anchor find too, and exactly; of a flipped
  // bit it finds nothing.
  rocksdb::BlockBasedTableOptions table;
  table.format_version = 5;  // these two are what table_guard.cc reads
  table.checksum = rocksdb::kXXH3;
  table.block_cache = rocksdb::NewLRUCache(8 << 20);
  table.max_auto_readahead_size =
      0;  // a read is a block, which table_guard.cc verifies; the kernel reads ahead
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// The records of the ledger that every commit writes, steps and marks, by the size of their keys. Beside the place of the
// one before is that of the next, so a hint spares the search through the memtable, which costs several writers a tenth of
// their commits. RocksDB takes hints for the beginnings of deleted ranges from the same place, though they lie in another
// list: no such beginning may have the size of these keys.
class LedgerKeys final : public rocksdb::SliceTransform {
 public:
  explicit LedgerKeys(size_t bytes) : bytes_(bytes) {}
  const char* Name() const override { return "LedgerKeys"; }
  rocksdb::Slice Transform(const rocksdb::Slice& key) const override {
    return {key.data(), kCommitKey.size()};
  }
  bool InDomain(const rocksdb::Slice& key) const override {
    return key.size() == bytes_ && key.starts_with(ToSlice(kCommitKey));
  }

 private:
  const size_t bytes_;
};

std::vector<rocksdb::ColumnFamilyDescriptor> MakeFamilies(const rocksdb::Options& options) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string_view name : kFamilyNames) families.emplace_back(std::string(name), options);
  for (const Family family : {kSchema, kManifest, kDelta, kProperty}) {
    families[family].options.memtable_insert_with_hint_prefix_extractor =
        std::make_shared<LedgerKeys>(family == kSchema ? kStepKeyBytes : kCommitKey.size());
  }
  // Rows hardly get smaller, and are read many times.
  families[kDelta].options.compression = rocksdb::kNoCompression;
  return families;
}

// RocksDB before 9.5 (its pull request 12805) frees a deleted range twice when a table of level 0 holds it and the next one
// there cannot be opened: it adds the range of the one before for that one too. So the family is first opened without its
// deleted ranges, which opens the same tables and holds them open, and the iterator that counts follows only when all are.
class WatchedIterator final : public rocksdb::Iterator {
 public:
  WatchedIterator(rocksdb::DB& db, rocksdb::ReadOptions options, rocksdb::ColumnFamilyHandle* family)
      : failures_(TableFailuresOfThread(db.GetName())) {
    const bool ignores = std::exchange(options.ignore_range_deletions, true);
    entries_.reset(db.NewIterator(options, family));
    if (ignores || Failed()) return;
    const std::unique_ptr<rocksdb::Iterator> holds_tables = std::move(entries_);
    options.ignore_range_deletions = false;
    entries_.reset(db.NewIterator(options, family));
    if (!Failed()) return;
    // A table that was written meanwhile, of which RocksDB let go at once. Whether this one is sound, nobody knows: it is
    // left to the process.
    static_cast<void>(entries_.release());
    entries_.reset(rocksdb::NewErrorIterator(failures_.last));
  }
  bool Valid() const override { return !Failed() && entries_->Valid(); }
  void SeekToFirst() override { entries_->SeekToFirst(); }
  void SeekToLast() override { entries_->SeekToLast(); }
  void Seek(const rocksdb::Slice& key) override { entries_->Seek(key); }
  void SeekForPrev(const rocksdb::Slice& key) override { entries_->SeekForPrev(key); }
  void Next() override { entries_->Next(); }
  void Prev() override { entries_->Prev(); }
  rocksdb::Slice key() const override { return entries_->key(); }
  rocksdb::Slice value() const override { return entries_->value(); }
  rocksdb::Status status() const override {
    rocksdb::Status status = entries_->status();
    if (status.ok() && Failed()) return failures_.last;
    return status;
  }

 private:
  bool Failed() const { return failures_.count != failures_before_; }

  const TableFailures& failures_;
  const uint64_t failures_before_ = failures_.count;  // tables are opened with the iterator
  std::unique_ptr<rocksdb::Iterator> entries_;
};

}  // namespace

Status FromRocks(const rocksdb::Status& status, std::string_view what, const std::string& path) {
  if (status.ok()) return Status::Ok();
  Code code = Code::kIoError;
  if (status.IsCorruption()) code = Code::kCorruption;
  if (status.IsNoSpace()) code = Code::kNoSpace;
  if (status.IsBusy() || status.IsTryAgain()) code = Code::kBusy;
  if (status.IsNotSupported()) code = Code::kUnsupported;
  // RocksDB calls it so when it cannot open CURRENT to see what the file system can.
  const std::string text = status.ToString();
  if (status.IsInvalidArgument() && (text.find("Direct I/O is not supported") != std::string::npos ||
                                     text.find("incompatible with filesystem") != std::string::npos)) {
    return MakeStatus(Code::kIoError, "{}: cannot {}: {}", path, what, text);
  }
  // An unreadable set of files comes as InvalidArgument or as a missing file: to us the catalog is damaged.
  if (status.IsInvalidArgument() || status.IsNotFound() || status.IsPathNotFound()) code = Code::kCorruption;
  return MakeStatus(code, "{}: cannot {}: {}", path, what, text);
}

std::shared_ptr<rocksdb::FileSystem> CatalogFileSystem() { return CatalogEnvironment()->GetFileSystem(); }

std::unique_ptr<rocksdb::Iterator> OpenDatabase::Entries(const rocksdb::ReadOptions& options,
                                                         Family family) const {
  return std::make_unique<WatchedIterator>(*db, options, handles[family]);
}

rocksdb::Status OpenDatabase::Close() {
  if (!db) return rocksdb::Status::OK();
  for (rocksdb::ColumnFamilyHandle* handle : handles) {
    static_cast<void>(db->DestroyColumnFamilyHandle(handle).ok());  // fails only for a null handle
  }
  handles.clear();
  const std::string path = db->GetName();
  rocksdb::Status closed = db->Close();
  db.reset();
  ForgetFailedCompaction(path);
  return closed;
}

Result<std::optional<std::string>> ReadValue(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                             Family family, std::string_view key, std::string_view what,
                                             const std::string& path) {
  std::string value;
  const rocksdb::Status status = open.db->Get(options, open[family], ToSlice(key), &value);
  if (status.IsNotFound()) return std::optional<std::string>();
  QUARRY_RETURN_IF_ERROR(FromRocks(status, what, path));
  return std::optional(std::move(value));
}

Result<OpenDatabase> OpenRocks(const std::string& path, OpenAs as) {
  OpenDatabase open;
  open.logger = std::make_shared<OpenLogger>();
  open.errors = std::make_shared<ErrorListener>();
  open.replay = std::make_shared<ReplayGuard>();
  rocksdb::Options options = MakeOptions();
  options.info_log = open.logger;
  options.listeners.push_back(open.errors);
  options.wal_filter = open.replay.get();
  options.create_if_missing = options.error_if_exists = as == OpenAs::kNew;
  // Repair leaves out families of which it found no table.
  options.create_missing_column_families = as == OpenAs::kNew || as == OpenAs::kRepaired;
  options.disable_auto_compactions =
      as == OpenAs::kRepaired;  // before it is known which tables count (salvage.cc)
  options.paranoid_checks = as != OpenAs::kTablesUnread;
  const bool reads = as == OpenAs::kReader || as == OpenAs::kTablesUnread;
  const std::string_view what = as == OpenAs::kNew ? "create the catalog" : "open the catalog";
  QUARRY_RETURN_IF_ERROR(CheckRocksThreads(path, what));
  if (!reads) {
    QUARRY_RETURN_IF_ERROR(CheckRoomForWrite(path, what));
    ForgetFailedCompaction(path);
  }
  QUARRY_RETURN_IF_ERROR(CatchExhaustion(path, [&] {
    rocksdb::DB* db = nullptr;
    const rocksdb::Status status =
        reads ? rocksdb::DB::OpenForReadOnly(options, path, MakeFamilies(options), &open.handles, &db)
              : rocksdb::DB::Open(options, path, MakeFamilies(options), &open.handles, &db);
    open.db.reset(db);
    return FromRocks(status, what, path);
  }));
  return open;
}

Status RepairRocks(const std::string& path, bool& disk_failed) {
  rocksdb::Options options = MakeOptions();
  const auto logger = std::make_shared<RepairLogger>();
  options.info_log = logger;
  QUARRY_RETURN_IF_ERROR(CheckRocksThreads(path, "repair the catalog"));
  QUARRY_RETURN_IF_ERROR(CatchExhaustion(path, [&] {
    return FromRocks(rocksdb::RepairDB(path, options, MakeFamilies(options)), "repair the catalog", path);
  }));
  disk_failed = logger->disk_failed();
  return Status::Ok();
}

Status CheckRegular(const std::string& path) {
  QUARRY_TRY(const OpenedFile opened, OpenRegularFile(path, O_RDONLY, Code::kCorruption));
  close(opened.descriptor);
  return Status::Ok();
}

Status CheckFiles(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code failed;
    const fs::file_status status = entry->status(failed);
    if (!fs::is_regular_file(status) && !fs::is_directory(status)) {
      QUARRY_RETURN_IF_ERROR(CheckRegular(entry->path().string()));
    }
  }
  return error ? ErrnoStatus(error.value(), "list", path) : Status::Ok();
}

}  // namespace quarry
