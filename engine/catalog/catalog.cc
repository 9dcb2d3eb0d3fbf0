#include "quarry/catalog/catalog.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>

#include <bit>
#include <cassert>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <vector>

namespace quarry {
namespace {

constexpr std::string_view kManifestKey = "manifest";

// Order of handles_; `default` is RocksDB's own and stays empty.
enum Family : size_t { kDefault, kSchema, kManifest, kDelta, kProperty, kFamilyCount };
constexpr std::string_view kFamilyNames[kFamilyCount] = {"default", "schema", "manifest", "delta",
                                                         "property"};

// RocksDB keeps a LOG file otherwise, and writes it in read-only databases too.
class SilentLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
};

Status FromRocks(const rocksdb::Status& status, std::string_view what, const std::string& path) {
  if (status.ok()) return Status::Ok();
  Code code = Code::kIoError;
  if (status.IsCorruption()) code = Code::kCorruption;
  if (status.IsNoSpace()) code = Code::kNoSpace;
  if (status.IsBusy() || status.IsTryAgain()) code = Code::kBusy;
  if (status.IsNotSupported()) code = Code::kUnsupported;
  // An unreadable set of files comes as InvalidArgument or as a missing file: to us the catalog is damaged.
  if (status.IsInvalidArgument() || status.IsNotFound() || status.IsPathNotFound()) code = Code::kCorruption;
  return MakeStatus(code, "{}: cannot {}: {}", path, what, status.ToString());
}

rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }

// Keys of `property`: kind, direction, then the name or the id (big-endian, so that ids come in order).
std::string NameKey(NameKind kind, std::string_view name) {
  std::string key(kind == NameKind::kEntity ? "en" : "rn");
  return key.append(name);
}
std::string IdBytes(uint64_t id) {
  std::string bytes(sizeof(id), '\0');
  for (size_t i = 0; i < sizeof(id); ++i) bytes[i] = static_cast<char>(id >> (56 - 8 * i));
  return bytes;
}
std::string IdPrefix(NameKind kind) { return kind == NameKind::kEntity ? "ei" : "ri"; }
uint64_t IdFromBytes(std::string_view bytes) {
  uint64_t id = 0;
  for (const char c : bytes) id = id << 8 | static_cast<unsigned char>(c);
  return id;
}

// Sized for metadata: the engine's memory budget goes to features, and this is the fixed part of its
// overhead.
rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.info_log = std::make_shared<SilentLogger>();
  options.write_buffer_size = 16 << 20;
  options.max_open_files = 64;
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

  Status CommitManifest(const Manifest& manifest) override {
    const std::vector<std::byte> bytes = EncodeManifest(manifest);
    rocksdb::WriteOptions synced;
    synced.sync = true;  // also syncs the names written before: they are in the same log
    const rocksdb::Slice value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return FromRocks(db_->Put(synced, handles_[kManifest], ToSlice(kManifestKey), value),
                     "commit the manifest", path_);
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
      QUARRY_RETURN_IF_ERROR(FromRocks(db_->Write({}, &batch), "store names", path_));
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

  Status VerifyChecksums() override { return FromRocks(db_->VerifyChecksum(), "verify checksums", path_); }

  Status Close() override {
    if (!db_) return Status::Ok();
    rocksdb::Status status;
    if (!read_only_) {
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
  static rocksdb::ReadOptions VerifiedRead() {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  Result<std::optional<std::string>> GetProperty(const std::string& key) {
    std::string value;
    const rocksdb::Status status = db_->Get(VerifiedRead(), handles_[kProperty], key, &value);
    if (status.IsNotFound()) return std::optional<std::string>();
    QUARRY_RETURN_IF_ERROR(FromRocks(status, "read a name", path_));
    return std::optional<std::string>(std::move(value));
  }

  const std::string path_;
  const bool read_only_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;  // owned through db_
};

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Create(const std::string& database_path) {
  const std::string path = database_path + "/catalog";
  if (std::error_code error; std::filesystem::exists(path, error)) {
    return MakeStatus(Code::kAlreadyExists, "{}: there is a catalog already", path);
  }
  rocksdb::Options options = MakeOptions();
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  options.error_if_exists = true;
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, MakeFamilies(options), &handles, &db);
  QUARRY_RETURN_IF_ERROR(FromRocks(status, "create the catalog", path));
  return std::unique_ptr<Catalog>(
      new RocksCatalog(path, false, std::unique_ptr<rocksdb::DB>(db), std::move(handles)));
}

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& database_path, bool read_only) {
  const std::string path = database_path + "/catalog";
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no catalog", path);
  }
  const rocksdb::Options options = MakeOptions();
  rocksdb::DB* db = nullptr;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  const rocksdb::Status status =
      read_only ? rocksdb::DB::OpenForReadOnly(options, path, MakeFamilies(options), &handles, &db)
                : rocksdb::DB::Open(options, path, MakeFamilies(options), &handles, &db);
  QUARRY_RETURN_IF_ERROR(FromRocks(status, "open the catalog", path));
  return std::unique_ptr<Catalog>(
      new RocksCatalog(path, read_only, std::unique_ptr<rocksdb::DB>(db), std::move(handles)));
}

}  // namespace quarry
