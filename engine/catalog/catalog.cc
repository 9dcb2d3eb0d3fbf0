#include "quarry/catalog/catalog.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "catalog_environment.h"
#include "catalog_files.h"
#include "catalog_keys.h"
#include "catalog_listeners.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/mutex.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCatalogFolder = "/catalog";
// Order of handles_; `default` is RocksDB's own and stays empty.
enum Family : size_t { kDefault, kSchema, kManifest, kDelta, kProperty, kFamilyCount };
constexpr std::string_view kFamilyNames[kFamilyCount] = {"default", "schema", "manifest", "delta",
                                                         "property"};

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

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }
rocksdb::Slice ToSlice(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Sized for metadata: the engine's memory budget goes to features, and this is the fixed part of its
// overhead.
rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.env = CatalogEnvironment();
  options.info_log = std::make_shared<SilentLogger>();
  options.listeners.push_back(std::make_shared<NoRetries>());
  options.write_buffer_size = 16 << 20;
  options.max_open_files = 64;
  options.max_file_opening_threads = 1;  // RocksDB starts sixteen a family otherwise, at every open
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.max_manifest_file_size = 1 << 20;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(8 << 20);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

std::vector<rocksdb::ColumnFamilyDescriptor> MakeFamilies(const rocksdb::Options& options) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string_view name : kFamilyNames) families.emplace_back(std::string(name), options);
  // Rows hardly get smaller, and are read many times.
  families[kDelta].options.compression = rocksdb::kNoCompression;
  return families;
}

class RocksCatalog final : public Catalog {
 public:
  RocksCatalog(std::string path, bool read_only, std::unique_ptr<rocksdb::DB> db,
               std::vector<rocksdb::ColumnFamilyHandle*> handles)
      : path_(std::move(path)), read_only_(read_only), db_(std::move(db)), handles_(std::move(handles)) {}
  ~RocksCatalog() override { static_cast<void>(Close().ok()); }

  Result<Manifest> ReadManifest() override {
    std::string value;
    const rocksdb::Status status =
        db_->Get(VerifiedRead(), handles_[kManifest], ToSlice(kManifestKey), &value);
    if (status.IsNotFound()) {
      return MakeStatus(Code::kCorruption, "{}: the catalog holds no manifest: restore it or import again",
                        path_);
    }
    QUARRY_RETURN_IF_ERROR(FromRocks(status, "read the manifest", path_));
    return DecodeManifest(std::as_bytes(std::span(value)), path_);
  }

  Status CommitManifest(const Manifest& manifest, const FoldedRows* folded) override {
    const std::vector<std::byte> bytes = EncodeManifest(manifest);
    rocksdb::WriteBatch batch;
    rocksdb::Status status = batch.Put(handles_[kManifest], ToSlice(kManifestKey), ToSlice(bytes));
    for (size_t i = 0; status.ok() && folded != nullptr && i < folded->changed.size(); ++i) {
      const auto& [timestamp, rows] = folded->changed[i];
      status = batch.Put(handles_[kSchema], FoldedKey(folded->table, folded->generation, timestamp),
                         ToSlice(rows));
    }
    QUARRY_RETURN_IF_ERROR(FromRocks(status, "commit the manifest", path_));
    // Also syncs the names written before: they are in the same log.
    return Write(batch, /*sync=*/true, "commit the manifest");
  }

  Status CommitDrop(const Manifest& manifest, std::string_view table) override {
    const std::vector<std::byte> bytes = EncodeManifest(manifest);
    rocksdb::WriteBatch batch;
    QUARRY_RETURN_IF_ERROR(FromRocks(batch.Put(handles_[kManifest], ToSlice(kManifestKey), ToSlice(bytes)),
                                     "commit the manifest", path_));
    QUARRY_RETURN_IF_ERROR(AddDropOf(kDelta, TablePrefix(table), batch));
    QUARRY_RETURN_IF_ERROR(AddDropOf(kSchema, FoldedPrefix(table), batch));
    return Write(batch, /*sync=*/true, "commit the manifest");
  }

  Result<std::optional<std::string>> ReadFolded(std::string_view table, uint64_t generation,
                                                uint64_t timestamp) override {
    const std::string prefix = FoldedPrefix(table, generation);
    const std::unique_ptr<rocksdb::Iterator> entries(db_->NewIterator(VerifiedRead(), handles_[kSchema]));
    // Also finds the prefix itself: databases of before have all rows under it.
    entries->SeekForPrev(FoldedKey(table, generation, timestamp));
    QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "read the rows of a compaction", path_));
    if (!entries->Valid() || !entries->key().starts_with(prefix)) return std::optional<std::string>();
    return std::optional(entries->value().ToString());
  }

  Status PutNames(NameKind kind, uint64_t first_id, std::span<const std::string> names) override {
    constexpr size_t kBatchBytes = 1 << 20;
    rocksdb::WriteBatch batch;
    for (uint64_t i = 0; i < names.size(); ++i) {
      const std::string id = IdBytes(first_id + i);
      QUARRY_RETURN_IF_ERROR(
          FromRocks(batch.Put(handles_[kProperty], NameKey(kind, names[i]), id), "store names", path_));
      QUARRY_RETURN_IF_ERROR(
          FromRocks(batch.Put(handles_[kProperty], IdPrefix(kind) + id, names[i]), "store names", path_));
      if (batch.GetDataSize() < kBatchBytes && i + 1 < names.size()) continue;
      QUARRY_RETURN_IF_ERROR(Write(batch, /*sync=*/false, "store names"));
      batch.Clear();
    }
    return Status::Ok();
  }

  Result<std::optional<uint64_t>> IdOfName(NameKind kind, std::string_view name) override {
    QUARRY_TRY(const std::optional<std::string> value, GetProperty(NameKey(kind, name)));
    if (!value) return std::optional<uint64_t>();
    if (value->size() != sizeof(uint64_t)) {
      return MakeStatus(Code::kCorruption, "{}: the id of name \"{}\" has {} bytes instead of 8", path_, name,
                        value->size());
    }
    return std::optional<uint64_t>(IdFromBytes(*value));
  }

  Result<std::optional<std::string>> NameOfId(NameKind kind, uint64_t id) override {
    return GetProperty(IdPrefix(kind) + IdBytes(id));
  }

  Result<uint64_t> VerifyNames(NameKind kind) override {
    const std::string prefix = IdPrefix(kind);
    const std::unique_ptr<rocksdb::Iterator> entries(db_->NewIterator(VerifiedRead(), handles_[kProperty]));
    uint64_t count = 0;
    for (entries->Seek(prefix); entries->Valid() && entries->key().starts_with(prefix);
         entries->Next(), ++count) {
      const uint64_t id = IdFromBytes(entries->key().ToStringView().substr(prefix.size()));
      if (id != count) return MakeStatus(Code::kCorruption, "{}: the name of id {} is missing", path_, count);
      QUARRY_TRY(const std::optional<uint64_t> back, IdOfName(kind, entries->value().ToStringView()));
      if (back != id) {
        return MakeStatus(Code::kCorruption, "{}: id {} has the name \"{}\", which leads to {}", path_, id,
                          entries->value().ToStringView(), back ? fmt::format("id {}", *back) : "no id");
      }
    }
    QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "read names", path_));
    return count;
  }

  Status PutVersions(std::span<const RowVersion> versions, bool sync) override {
    rocksdb::WriteBatch batch;
    QUARRY_TRY(const uint64_t newest, AddVersions(versions, batch));
    QUARRY_RETURN_IF_ERROR(FromRocks(batch.Put(handles_[kSchema], ToSlice(kTimestampKey), IdBytes(newest)),
                                     "store row versions", path_));
    return Write(batch, sync, "store row versions");
  }

  Status StageVersions(std::span<const RowVersion> versions) override {
    rocksdb::WriteBatch batch;
    QUARRY_TRY(const uint64_t timestamp, AddVersions(versions, batch));
    QUARRY_RETURN_IF_ERROR(FromRocks(batch.Put(handles_[kSchema], ToSlice(kStagedKey), IdBytes(timestamp)),
                                     "store row versions", path_));
    return Write(batch, /*sync=*/false, "store row versions");
  }

  Result<std::optional<uint64_t>> StagedTimestamp() override {
    QUARRY_TRY(const std::optional<std::string> value,
               Get(kSchema, std::string(kStagedKey), "read the timestamp of a commit under way"));
    return value ? std::optional(IdFromBytes(*value)) : std::nullopt;
  }

  Status PublishStaged(uint64_t timestamp) override {
    rocksdb::WriteBatch batch;
    rocksdb::Status status = batch.Delete(handles_[kSchema], ToSlice(kStagedKey));
    if (status.ok()) status = batch.Put(handles_[kSchema], ToSlice(kTimestampKey), IdBytes(timestamp));
    QUARRY_RETURN_IF_ERROR(FromRocks(status, "commit row versions", path_));
    return Write(batch, /*sync=*/true, "commit row versions");  // also syncs them: they are in the same log
  }

  Status DropStaged() override {
    QUARRY_TRY(const std::optional<uint64_t> staged, StagedTimestamp());
    if (!staged) return Status::Ok();
    rocksdb::WriteBatch batch;
    QUARRY_RETURN_IF_ERROR(DeleteVersions(
        "", [&](uint64_t timestamp) { return timestamp == *staged; }, batch));
    KillPoint("put: staged rows dropped, their record there");
    QUARRY_RETURN_IF_ERROR(
        FromRocks(batch.Delete(handles_[kSchema], ToSlice(kStagedKey)), "drop row versions", path_));
    return Write(batch, /*sync=*/true, "drop row versions");
  }

  Result<uint64_t> LastTimestamp() override {
    QUARRY_TRY(const std::optional<std::string> value,
               Get(kSchema, std::string(kTimestampKey), "read the last timestamp"));
    return value ? IdFromBytes(*value) : 0;
  }

  Status ReadVersions(std::string_view table, std::span<const uint64_t> rows, uint64_t timestamp,
                      const std::function<Status(size_t, const RowVersion&)>& visit) override {
    const std::unique_ptr<rocksdb::Iterator> entries(db_->NewIterator(VerifiedRead(), handles_[kDelta]));
    const std::string prefix = TablePrefix(table);
    for (size_t i = 0; i < rows.size(); ++i) {
      SeekForward(*entries, VersionKey(table, rows[i], timestamp));
      if (!entries->Valid()) break;
      if (!IsVersionOf(entries->key(), prefix)) continue;
      QUARRY_TRY(const RowVersion version, ToVersion(table, prefix.size(), *entries));
      if (version.row == rows[i]) QUARRY_RETURN_IF_ERROR(visit(i, version));
    }
    return FromRocks(entries->status(), "read row versions", path_);
  }

  Status ScanVersions(std::string_view table,
                      const std::function<Status(const RowVersion&)>& visit) override {
    const std::unique_ptr<rocksdb::Iterator> entries(db_->NewIterator(VerifiedRead(), handles_[kDelta]));
    const std::string prefix = TablePrefix(table);
    for (entries->Seek(prefix); entries->Valid() && IsVersionOf(entries->key(), prefix); entries->Next()) {
      QUARRY_TRY(const RowVersion version, ToVersion(table, prefix.size(), *entries));
      QUARRY_RETURN_IF_ERROR(visit(version));
    }
    return FromRocks(entries->status(), "read row versions", path_);
  }

  Status DropVersions(std::string_view table, uint64_t timestamp) override {
    rocksdb::WriteBatch batch;
    QUARRY_RETURN_IF_ERROR(DeleteVersions(
        TablePrefix(table), [&](uint64_t version) { return version <= timestamp; }, batch));
    return Write(batch, /*sync=*/false, "drop row versions");
  }

  Status DropAllVersions(std::string_view table) override {
    rocksdb::WriteBatch batch;
    QUARRY_RETURN_IF_ERROR(AddDropOf(kDelta, TablePrefix(table), batch));
    return Write(batch, /*sync=*/false, "drop row versions");
  }

  Status VerifyChecksums() override { return FromRocks(db_->VerifyChecksum(), "verify checksums", path_); }

  Status CopyTo(const std::string& to_path) override {
    const std::string to = to_path + std::string(kCatalogFolder);
    if (read_only_) return CopyFiles(path_, to);
    QUARRY_RETURN_IF_ERROR(WriteError());
    rocksdb::Checkpoint* made = nullptr;
    rocksdb::Status status = rocksdb::Checkpoint::Create(db_.get(), &made);
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    if (status.ok()) status = checkpoint->CreateCheckpoint(to);
    return FromRocks(status, fmt::format("copy the catalog to {}", to), path_);
  }

  Status Close() override {
    if (!db_) return Status::Ok();
    rocksdb::Status status;
    MutexLock lock(write_mutex_);
    if (!read_only_ && write_error_.ok()) {
      status = db_->Flush(rocksdb::FlushOptions(), handles_);
      if (status.ok()) status = db_->SyncWAL();
    }
    for (rocksdb::ColumnFamilyHandle* handle : handles_) {
      static_cast<void>(db_->DestroyColumnFamilyHandle(handle).ok());  // fails only for a null handle
    }
    handles_.clear();
    const rocksdb::Status closed = db_->Close();
    db_.reset();
    return FromRocks(status.ok() ? closed : status, "close the catalog", path_);
  }

 private:
  // After a write that failed it is not known what the log holds, and RocksDB must not go on with it: nothing
  // is written any more. One at a time, so that none is under way then.
  Status Write(rocksdb::WriteBatch& batch, bool sync, std::string_view what) {
    MutexLock lock(write_mutex_);
    if (!write_error_.ok()) return write_error_;
    rocksdb::WriteOptions options;
    options.sync = sync;
    const Status status = FromRocks(db_->Write(options, &batch), what, path_);
    if (!status.ok()) {
      write_error_ = MakeStatus(status.code(), "{}; nothing is written any more until it is opened anew",
                                status.message());
    }
    return status;
  }

  Status WriteError() {
    MutexLock lock(write_mutex_);
    return write_error_;
  }

  static rocksdb::ReadOptions VerifiedRead() {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  // Adds them to `batch`; returns the newest timestamp.
  Result<uint64_t> AddVersions(std::span<const RowVersion> versions, rocksdb::WriteBatch& batch) {
    uint64_t newest = 0;
    for (const RowVersion& version : versions) {
      const char kind = version.deleted() ? kDeletedValue : kRowValue;
      const std::string key = VersionKey(version.table, version.row, version.timestamp);
      const rocksdb::Slice key_parts[] = {key};
      const rocksdb::Slice value_parts[] = {
          {&kind, 1}, {reinterpret_cast<const char*>(version.value.data()), version.value.size()}};
      QUARRY_RETURN_IF_ERROR(FromRocks(batch.Put(handles_[kDelta], {key_parts, 1}, {value_parts, 2}),
                                       "store row versions", path_));
      newest = std::max(newest, version.timestamp);
    }
    return newest;
  }

  // Adds the deletion of all keys under `prefix`, whose last byte is not the largest.
  Status AddDropOf(Family family, const std::string& prefix, rocksdb::WriteBatch& batch) {
    std::string end = prefix;
    ++end.back();
    return FromRocks(batch.DeleteRange(handles_[family], prefix, end), "drop row versions", path_);
  }

  // Deletes the versions under `prefix` of whose timestamp `dropped` says so; the last of them are left in
  // `batch`.
  template <typename Dropped>
  Status DeleteVersions(const std::string& prefix, const Dropped& dropped, rocksdb::WriteBatch& batch) {
    constexpr size_t kBatchBytes = 1 << 20;
    const std::unique_ptr<rocksdb::Iterator> entries(db_->NewIterator(VerifiedRead(), handles_[kDelta]));
    for (entries->Seek(prefix); entries->Valid() && entries->key().starts_with(prefix); entries->Next()) {
      if (!dropped(TimestampOfKey(entries->key().ToStringView()))) continue;
      QUARRY_RETURN_IF_ERROR(
          FromRocks(batch.Delete(handles_[kDelta], entries->key()), "drop row versions", path_));
      if (batch.GetDataSize() < kBatchBytes) continue;
      QUARRY_RETURN_IF_ERROR(Write(batch, /*sync=*/false, "drop row versions"));
      batch.Clear();
    }
    return FromRocks(entries->status(), "drop row versions", path_);
  }

  // To the first entry at `key` or behind it; it was before. Rows that are next to each other are a step or
  // two apart, which costs a tenth of a search.
  static void SeekForward(rocksdb::Iterator& entries, const std::string& key) {
    constexpr int kStepsMax = 4;
    for (int step = 0; step < kStepsMax && entries.Valid(); ++step, entries.Next()) {
      if (entries.key().compare(key) >= 0) return;
    }
    if (!entries.Valid() || entries.key().compare(key) < 0) entries.Seek(key);
  }

  static bool IsVersionOf(const rocksdb::Slice& key, const std::string& prefix) {
    return key.size() == prefix.size() + kVersionTailBytes && key.starts_with(prefix);
  }

  Result<RowVersion> ToVersion(std::string_view table, size_t prefix_bytes, const rocksdb::Iterator& entry) {
    const std::string_view tail = entry.key().ToStringView().substr(prefix_bytes);
    RowVersion version{.table = table,
                       .row = IdFromBytes(tail.substr(0, sizeof(uint64_t))),
                       .timestamp = ~IdFromBytes(tail.substr(sizeof(uint64_t)))};
    const std::string_view value = entry.value().ToStringView();
    if (value.empty() || (value[0] == kDeletedValue) != (value.size() == 1)) {
      return MakeStatus(Code::kCorruption, "{}: the version {} of row {} of table \"{}\" has {} bytes", path_,
                        version.timestamp, version.row, table, value.size());
    }
    version.value = std::as_bytes(std::span(value).subspan(1));
    return version;
  }

  Result<std::optional<std::string>> Get(Family family, const std::string& key, std::string_view what) {
    std::string value;
    const rocksdb::Status status = db_->Get(VerifiedRead(), handles_[family], key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    QUARRY_RETURN_IF_ERROR(FromRocks(status, what, path_));
    return std::optional<std::string>(std::move(value));
  }
  Result<std::optional<std::string>> GetProperty(const std::string& key) {
    return Get(kProperty, key, "read a name");
  }

  const std::string path_;
  const bool read_only_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // owned through db_
  Mutex write_mutex_;
  Status write_error_ QUARRY_GUARDED_BY(write_mutex_);  // of the first write that failed
};

Result<std::unique_ptr<Catalog>> OpenRocks(const std::string& path, const rocksdb::Options& options,
                                           bool read_only, std::string_view what = "open the catalog") {
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status =
      read_only ? rocksdb::DB::OpenForReadOnly(options, path, MakeFamilies(options), &handles, &db)
                : rocksdb::DB::Open(options, path, MakeFamilies(options), &handles, &db);
  QUARRY_RETURN_IF_ERROR(FromRocks(status, what, path));
  return std::unique_ptr<Catalog>(
      new RocksCatalog(path, read_only, std::unique_ptr<rocksdb::DB>(db), std::move(handles)));
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Create(const std::string& database_path) {
  const std::string path = database_path + std::string(kCatalogFolder);
  if (std::error_code error; fs::exists(path, error)) {
    return MakeStatus(Code::kAlreadyExists, "{}: there is a catalog already", path);
  }
  rocksdb::Options options = MakeOptions();
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.error_if_exists = true;
  return OpenRocks(path, options, /*read_only=*/false, "create the catalog");
}

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& database_path, bool read_only) {
  const std::string path = database_path + std::string(kCatalogFolder);
  if (std::error_code error; !fs::exists(path, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no catalog", path);
  }
  return OpenRocks(path, MakeOptions(), read_only);
}

Result<std::vector<std::string>> Catalog::Salvage(const std::string& database_path,
                                                  const std::string& to_path) {
  const std::string path = to_path + std::string(kCatalogFolder);
  rocksdb::Options options = MakeOptions();
  // An error of the disk may pass: what could not be read is tried again before it is given up for lost.
  constexpr int kTriesMax = 2;
  bool disk_failed = true;
  std::error_code error;
  for (int i = 0; disk_failed && i < kTriesMax; ++i) {
    fs::remove_all(path, error);
    QUARRY_RETURN_IF_ERROR(CopyFiles(database_path + std::string(kCatalogFolder), path));
    const auto logger = std::make_shared<RepairLogger>();
    options.info_log = logger;
    QUARRY_RETURN_IF_ERROR(
        FromRocks(rocksdb::RepairDB(path, options, MakeFamilies(options)), "repair the catalog", path));
    disk_failed = logger->disk_failed();
  }
  options = MakeOptions();
  std::vector<std::string> lost;
  for (fs::directory_iterator entry(path + "/lost", error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kTableSuffix) lost.push_back(entry->path().filename().string());
  }
  fs::remove_all(path + "/lost", error);          // the catalog that this was copied from has them
  options.create_missing_column_families = true;  // those of which there was no table
  QUARRY_TRY(const std::unique_ptr<Catalog> catalog, OpenRocks(path, options, /*read_only=*/false));
  QUARRY_RETURN_IF_ERROR(catalog->ReadManifest().status());
  QUARRY_RETURN_IF_ERROR(catalog->Close());
  return lost;
}

}  // namespace quarry
