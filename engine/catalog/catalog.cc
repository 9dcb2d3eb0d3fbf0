#include "quarry/catalog/catalog.h"

#include <rocksdb/utilities/checkpoint.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>

#include "anchor.h"
#include "catalog_files.h"
#include "catalog_keys.h"
#include "catalog_threads.h"
#include "descriptor_reserve.h"
#include "doubts.h"
#include "ledger.h"
#include "names.h"
#include "pending_write.h"
#include "proof.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/mutex.h"
#include "quarry/format/checksum.h"
#include "rocks.h"
#include "version_entries.h"
#include "writer.h"

namespace quarry {
namespace {

class RocksCatalog final : public Catalog {
 public:
  // `writer` has taken the anchor and loaded the ledger; none for a catalog that is only read.
  RocksCatalog(std::string database_path, OpenDatabase open, std::optional<CatalogWriter> writer)
      : database_path_(std::move(database_path)),
        path_(database_path_ + std::string(kCatalogFolder)),
        read_only_(!writer),
        open_(std::move(open)),
        writer_(std::move(writer)) {
    if (!read_only_) reserve_.Acquire();
  }
  ~RocksCatalog() override { static_cast<void>(Close().ok()); }

  Result<Manifest> ReadManifest() override {
    QUARRY_TRY(const Use use, Read());
    QUARRY_TRY(const std::optional<std::string> value,
               Get(use.open, kManifest, kManifestKey, "read the manifest"));
    if (!value) {
      return MakeStatus(Code::kCorruption, "{}: the catalog holds no manifest: restore it or import again",
                        path_);
    }
    return DecodeManifest(std::as_bytes(std::span(*value)), path_);
  }

  Status CommitManifest(const Manifest& manifest, const FoldedRows* folded,
                        std::optional<uint64_t> published) override {
    // Also syncs the names written before: they are in the same log.
    return Write(/*sync=*/true, "commit the manifest", [&](const OpenDatabase& open, PendingWrite& write) {
      PutManifest(manifest, write);
      if (published) AddPublished(*published, write);
      std::map<uint64_t, std::span<const std::byte>>
          changed;  // of two sets since the same time the later one
      if (folded != nullptr) {
        for (const auto& [since, rows] : folded->changed) changed[since] = rows;
      }
      if (folded == nullptr) return Status::Ok();
      // An attempt at the same generation that failed may have known other times.
      QUARRY_RETURN_IF_ERROR(DeleteFolded(
          open, folded->alone ? FoldedPrefix(folded->table) : FoldedPrefix(folded->table, folded->generation),
          write));
      for (const auto& [since, rows] : changed) {
        const std::string key = FoldedKey(folded->table, folded->generation, since);
        write.PutEntry(kSchema, key, ToSlice(rows).ToStringView(), kTallyOfFolded);
      }
      return Status::Ok();
    });
  }

  Status CommitDrop(const Manifest& manifest, std::string_view table) override {
    MutexLock one_drop(drop_mutex_);
    return Write(/*sync=*/true, "commit the manifest", [&](const OpenDatabase& open, PendingWrite& write) {
      PutManifest(manifest, write);
      AddDropOfVersions(table, write);
      return DeleteFolded(open, FoldedPrefix(table), write);
    });
  }

  Result<std::optional<std::string>> ReadFolded(std::string_view table, uint64_t generation,
                                                uint64_t timestamp) override {
    QUARRY_TRY(const Use use, Read());
    const std::string prefix = FoldedPrefix(table, generation);
    const std::unique_ptr<rocksdb::Iterator> entries = use.open.Entries(VerifiedRead(), kSchema);
    // Also finds the prefix itself: databases of before have all rows under it.
    entries->SeekForPrev(FoldedKey(table, generation, timestamp));
    QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "read the rows of a compaction", path_));
    if (!entries->Valid() || !entries->key().starts_with(prefix)) return std::optional<std::string>();
    return std::optional(entries->value().ToString());
  }

  Status PutNames(NameKind kind, uint64_t first_id, std::span<const std::string> names) override {
    constexpr size_t kNamesPerWrite = 1 << 14;
    for (size_t begin = 0; begin < names.size(); begin += kNamesPerWrite) {
      const std::span<const std::string> some =
          names.subspan(begin, std::min(kNamesPerWrite, names.size() - begin));
      QUARRY_RETURN_IF_ERROR(
          Write(/*sync=*/false, "store names", [&](const OpenDatabase&, PendingWrite& write) {
            AddNames(kind, first_id + begin, some, write);
            return Status::Ok();
          }));
    }
    return Status::Ok();
  }

  Result<std::optional<uint64_t>> IdOfName(NameKind kind, std::string_view name) override {
    QUARRY_TRY(const Use use, Read());
    return quarry::IdOfName(use.open, kind, name, path_);
  }

  Result<std::optional<std::string>> NameOfId(NameKind kind, uint64_t id) override {
    QUARRY_TRY(const Use use, Read());
    return Get(use.open, kProperty, IdPrefix(kind) + IdBytes(id), "read a name");
  }

  Status DropNames(NameKind kind, uint64_t first_id) override {
    for (bool more = true; more;) {
      QUARRY_RETURN_IF_ERROR(
          Write(/*sync=*/false, "drop names", [&](const OpenDatabase& open, PendingWrite& write) {
            const Status status = DeleteNames(open, kind, first_id, path_, write);
            more = !write.empty();
            return status;
          }));
    }
    return Status::Ok();
  }

  Result<uint64_t> VerifyNames(NameKind kind) override {
    QUARRY_TRY(const Use use, Read());
    return CheckNames(use.open, kind, path_);
  }

  Status PutVersions(std::span<const RowVersion> versions, bool sync) override {
    return Write(sync, "store row versions", [&](const OpenDatabase&, PendingWrite& write) -> Status {
      const uint64_t newest = AddVersions(versions, write);
      write.SetTimestamp(newest);
      return Status::Ok();
    });
  }

  Status StageVersions(std::span<const RowVersion> versions,
                       const std::function<bool(size_t)>& again) override {
    return Write(
        /*sync=*/false, "store row versions", [&](const OpenDatabase& open, PendingWrite& write) -> Status {
          std::unordered_set<std::string> replaced;  // a row may come twice
          for (size_t i = 0; i < versions.size(); ++i) {
            const std::string key = again(i) ? KeyOf(versions[i]) : std::string();
            if (key.empty() || !replaced.insert(key).second) continue;
            QUARRY_RETURN_IF_ERROR(RemoveEntry(open, path_, kDelta, key, kVersionKindBytes,
                                               TallyOfRows(versions[i].table, versions[i].row), write));
          }
          const uint64_t timestamp = AddVersions(versions, write);
          write.Put(kSchema, kStagedKey, IdBytes(timestamp));
          return Status::Ok();
        });
  }

  Result<std::optional<uint64_t>> StagedTimestamp() override {
    QUARRY_TRY(const Use use, Read());
    QUARRY_TRY(const std::optional<std::string> value,
               Get(use.open, kSchema, kStagedKey, "read the timestamp of a commit under way"));
    return value ? std::optional(IdFromBytes(*value)) : std::nullopt;
  }

  Status PublishStaged(uint64_t timestamp) override {
    // Also syncs the versions: they are in the same log.
    return Write(/*sync=*/true, "commit row versions", [&](const OpenDatabase&, PendingWrite& write) {
      AddPublished(timestamp, write);
      return Status::Ok();
    });
  }

  Status DropStaged() override {
    QUARRY_TRY(const std::optional<uint64_t> staged, StagedTimestamp());
    if (!staged) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(DeleteVersions("", [&](uint64_t timestamp) { return timestamp == *staged; }));
    KillPoint("put: staged rows dropped, their record there");
    return Write(/*sync=*/true, "drop row versions", [&](const OpenDatabase&, PendingWrite& write) {
      write.Delete(kSchema, kStagedKey);
      return Status::Ok();
    });
  }

  Result<uint64_t> LastTimestamp() override {
    QUARRY_TRY(const Use use, Read());
    return ReadTimestamp(use.open, path_);
  }

  Status ReadVersions(std::string_view table, std::span<const uint64_t> rows, uint64_t timestamp,
                      const std::function<Status(size_t, const RowVersion&)>& visit) override {
    QUARRY_TRY(const Use use, Read());
    const std::unique_ptr<rocksdb::Iterator> entries = use.open.Entries(VerifiedRead(), kDelta);
    const std::string prefix = TablePrefix(table);
    for (size_t i = 0; i < rows.size(); ++i) {
      SeekForward(*entries, VersionKey(table, rows[i], timestamp));
      if (!entries->Valid()) break;
      if (!IsVersionOf(entries->key(), prefix)) continue;
      QUARRY_TRY(const RowVersion version, ToVersion(table, prefix.size(), *entries, path_));
      if (version.row == rows[i]) QUARRY_RETURN_IF_ERROR(visit(i, version));
    }
    return FromRocks(entries->status(), "read row versions", path_);
  }

  Status ScanVersions(std::string_view table,
                      const std::function<Status(const RowVersion&)>& visit) override {
    QUARRY_TRY(const Use use, Read());
    const std::unique_ptr<rocksdb::Iterator> entries = use.open.Entries(VerifiedRead(), kDelta);
    const std::string prefix = TablePrefix(table);
    for (entries->Seek(prefix); entries->Valid() && IsVersionOf(entries->key(), prefix); entries->Next()) {
      QUARRY_TRY(const RowVersion version, ToVersion(table, prefix.size(), *entries, path_));
      QUARRY_RETURN_IF_ERROR(visit(version));
    }
    return FromRocks(entries->status(), "read row versions", path_);
  }

  Status DropVersions(std::string_view table, uint64_t timestamp) override {
    return DeleteVersions(TablePrefix(table), [&](uint64_t version) { return version <= timestamp; });
  }

  Status DropAllVersions(std::string_view table) override {
    MutexLock one_drop(drop_mutex_);
    return Write(/*sync=*/false, "drop row versions", [&](const OpenDatabase&, PendingWrite& write) {
      AddDropOfVersions(table, write);
      return Status::Ok();
    });
  }

  Status VerifyChecksums() override {
    QUARRY_TRY(const Use use, Read());
    return FromRocks(use.open.db->VerifyChecksum(), "verify checksums", path_);
  }

  Result<std::vector<Doubt>> FindDoubts() override {
    QUARRY_TRY(const Use use, Read());
    // Entries and ledger as of one commit: the latch keeps others from between.
    rocksdb::ReadOptions options = VerifiedRead();
    options.fill_cache = false;
    {
      MutexLock lock(write_mutex_);
      options.snapshot = use.open.db->GetSnapshot();
    }
    auto doubts = ReadDoubts(use.open, options, path_);
    use.open.db->ReleaseSnapshot(options.snapshot);
    return doubts;
  }

  Status AcceptDoubts() override {
    QUARRY_RETURN_IF_ERROR(Recover());
    QUARRY_TRY(const Use use, Read());
    MutexLock lock(write_mutex_);
    if (writer_->stale()) return MakeStatus(Code::kIoError, "{}: a write beside it failed: try again", path_);
    QUARRY_TRY(const Tallies counted, Recount(use.open, VerifiedRead(), path_));
    return writer_->Rewrite(use.open, counted);
  }

  Status CopyTo(const std::string& to_path) override {
    const std::string to = to_path + std::string(kCatalogFolder);
    if (read_only_) return CopyClosed(to_path);
    QUARRY_RETURN_IF_ERROR(Recover());
    QUARRY_TRY(const Use use, Read());
    rocksdb::Checkpoint* made = nullptr;
    rocksdb::Status status = rocksdb::Checkpoint::Create(use.open.db.get(), &made);
    const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
    if (status.ok()) status = checkpoint->CreateCheckpoint(to);
    QUARRY_RETURN_IF_ERROR(FromRocks(status, fmt::format("copy the catalog to {}", to), path_));
    // Commits went on while the log was copied, so pieces of later ones may lie behind room that was empty
    // yet. Opened for writing, the copy keeps what is before, as tables, and no log.
    QUARRY_TRY(OpenDatabase copy, OpenRocks(to, OpenAs::kWriter));
    const Status promised = PromiseAll(copy, to_path);
    QUARRY_RETURN_IF_ERROR(FromRocks(copy.Close(), "close the catalog", to));
    return promised;
  }

  Status Recover() override {
    {
      MutexLock lock(write_mutex_);
      if (read_only_) return MakeStatus(Code::kInvalidArgument, "{}: open for reading only", path_);
      QUARRY_RETURN_IF_ERROR(writer_->broken());
      if (!writer_->stale()) return Status::Ok();
    }
    const std::unique_lock<std::shared_mutex> alone(open_mutex_);
    MutexLock lock(write_mutex_);
    if (!writer_->stale()) return writer_->broken();
    reserve_.Release();
    static_cast<void>(open_.Close().ok());  // a failed write has put it into an error, which closing repeats
    writer_->Unload();
    const auto reopen = [&]() -> Status {
      write_mutex_.AssertHeld();
      QUARRY_TRY(open_, OpenRocks(path_, OpenAs::kWriter));
      return writer_->Load(open_);
    };
    const Status reopened = reopen();
    if (!reopened.ok()) {
      static_cast<void>(open_.Close().ok());
      if (auto reader = OpenRocks(path_, OpenAs::kReader); reader.ok()) open_ = std::move(reader).value();
    }
    reserve_.Acquire();
    return reopened;
  }

  Status Close() override {
    const std::unique_lock<std::shared_mutex> alone(open_mutex_);
    MutexLock lock(write_mutex_);
    if (!open_.db) return Status::Ok();
    const bool clean = !read_only_ && writer_->broken().ok() && !writer_->stale();
    rocksdb::Status status;
    if (clean) {
      status = open_.db->Flush(rocksdb::FlushOptions(), open_.handles);
      if (status.ok()) status = open_.db->SyncWAL();
    }
    const rocksdb::Status closed = open_.Close();
    if (status.ok()) status = closed;
    QUARRY_RETURN_IF_ERROR(FromRocks(status, "close the catalog", path_));
    return clean ? writer_->Closed() : Status::Ok();
  }

 private:
  // What compactions remember, of the tables and generations that the prefix has.
  Status DeleteFolded(const OpenDatabase& open, const std::string& prefix, PendingWrite& write) const {
    const std::unique_ptr<rocksdb::Iterator> entries = open.Entries(VerifiedRead(), kSchema);
    for (entries->Seek(prefix); entries->Valid() && entries->key().starts_with(prefix); entries->Next()) {
      write.Delete(kSchema, entries->key().ToStringView());
      write.change().Remove(kTallyOfFolded,
                            EntryHash(entries->key().ToStringView(), entries->value().ToStringView()));
    }
    return FromRocks(entries->status(), "read the rows of a compaction", path_);
  }

  // The open catalog, which stays open while this lives.
  struct Use {
    std::shared_lock<std::shared_mutex> lock;
    const OpenDatabase& open;
  };
  Result<Use> Read() {
    std::shared_lock<std::shared_mutex> lock(open_mutex_);
    if (!open_.db) {  // it could not be opened anew after a write had failed; perhaps now it can
      lock.unlock();
      {
        const std::unique_lock<std::shared_mutex> alone(open_mutex_);
        if (!open_.db) {
          QUARRY_TRY(open_, OpenRocks(path_, OpenAs::kReader));
        }
      }
      lock.lock();
      if (!open_.db) return MakeStatus(Code::kIoError, "{}: closed", path_);
    }
    return Use{std::move(lock), open_};
  }

  // Commits what `build(open, write)` puts together.
  template <typename Build>
  Status Write(bool sync, std::string_view what, const Build& build) {
    QUARRY_RETURN_IF_ERROR(CheckRoomForWrite(path_, what));
    QUARRY_RETURN_IF_ERROR(Recover());
    QUARRY_TRY(const Use use, Read());
    PendingWrite write(use.open);
    QUARRY_RETURN_IF_ERROR(build(use.open, write));
    MutexLock lock(write_mutex_);
    return Commit(use.open, write, sync, what);
  }
  Status Commit(const OpenDatabase& open, PendingWrite& write, bool sync, std::string_view what)
      QUARRY_REQUIRES(write_mutex_) {
    if (writer_->stale()) {
      return MakeStatus(Code::kIoError, "{}: cannot {}: a write beside it failed: try again", path_, what);
    }
    return writer_->Commit(open, write, sync, what);
  }

  void PutManifest(const Manifest& manifest, PendingWrite& write) {
    const std::vector<std::byte> bytes = EncodeManifest(manifest);
    write.Put(kManifest, kManifestKey, ToSlice(bytes).ToStringView());
    write.SetManifestDigest(Checksum64(bytes));
  }

  static void AddPublished(uint64_t timestamp, PendingWrite& write) {
    write.Delete(kSchema, kStagedKey);
    write.SetTimestamp(timestamp);
  }

  void AddDropOfVersions(std::string_view table, PendingWrite& write) {
    write.DeleteAll(kDelta, TablePrefix(table));
    const std::string prefix = TallyPrefixOfTable(table);
    MutexLock lock(write_mutex_);
    const Tallies& tallies = writer_->tallies();
    for (auto at = tallies.lower_bound(prefix); at != tallies.end() && at->first.starts_with(prefix); ++at) {
      if (!at->second.empty()) write.change().Empty(at->second, at->first);
    }
  }

  // Deletes the versions under `prefix` whose timestamp `dropped` says so of, a mebibyte at a time. Not
  // synced.
  template <typename Dropped>
  Status DeleteVersions(const std::string& prefix, const Dropped& dropped) {
    constexpr size_t kBatchBytes = 1 << 20;
    MutexLock one_drop(drop_mutex_);  // a version is taken out of the ledger once
    QUARRY_RETURN_IF_ERROR(CheckRoomForWrite(path_, "drop row versions"));
    QUARRY_RETURN_IF_ERROR(Recover());
    QUARRY_TRY(const Use use, Read());
    PendingWrite write(use.open);
    const auto flush = [&]() -> Status {
      MutexLock lock(write_mutex_);
      QUARRY_RETURN_IF_ERROR(Commit(use.open, write, /*sync=*/false, "drop row versions"));
      write.Clear();
      return Status::Ok();
    };
    const std::unique_ptr<rocksdb::Iterator> entries = use.open.Entries(VerifiedRead(), kDelta);
    for (entries->Seek(prefix); entries->Valid() && entries->key().starts_with(prefix); entries->Next()) {
      const std::string_view key = entries->key().ToStringView();
      const uint64_t timestamp = TimestampOfKey(key);
      if (timestamp == 0 || !dropped(timestamp)) continue;
      const std::string_view table = key.substr(0, key.size() - kVersionTailBytes - 1);
      const uint64_t row = IdFromBytes(key.substr(table.size() + 1, sizeof(uint64_t)));
      const std::string_view value = entries->value().ToStringView();
      write.Delete(kDelta, key);
      write.change().Remove(TallyOfRows(table, row),
                            EntryHash(key, value.substr(std::min(kVersionKindBytes, value.size()))));
      if (write.bytes() >= kBatchBytes) QUARRY_RETURN_IF_ERROR(flush());
    }
    QUARRY_RETURN_IF_ERROR(FromRocks(entries->status(), "drop row versions", path_));
    return write.empty() ? Status::Ok() : flush();
  }

  Result<std::optional<std::string>> Get(const OpenDatabase& open, Family family, std::string_view key,
                                         std::string_view what) {
    return ReadValue(open, VerifiedRead(), family, key, what, path_);
  }

  // Copies the files of a catalog that is open for reading only as they are, with what was promised of them.
  Status CopyClosed(const std::string& to_path) {
    QUARRY_RETURN_IF_ERROR(
        CopyFiles(path_, to_path + std::string(kCatalogFolder), [](const auto&) { return true; }));
    QUARRY_TRY(const std::optional<AnchorRecord> anchor, ReadAnchor(database_path_));
    if (anchor) return CreateAnchor(to_path, *anchor);
    QUARRY_TRY(const std::unique_ptr<Catalog> copy,
               Catalog::Open(to_path, /*read_only=*/false, /*anchored=*/false));
    return copy->Close();
  }

  const std::string database_path_, path_;
  const bool read_only_;
  std::shared_mutex
      open_mutex_;  // whoever uses open_ shares it; it is changed alone. Taken before the others
  OpenDatabase open_;
  Mutex drop_mutex_;
  Mutex write_mutex_;
  std::optional<CatalogWriter> writer_ QUARRY_GUARDED_BY(write_mutex_);
  DescriptorReserve reserve_;
};

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::Create(const std::string& database_path) {
  const std::string path = database_path + std::string(kCatalogFolder);
  if (std::error_code error; std::filesystem::exists(path, error)) {
    return MakeStatus(Code::kAlreadyExists, "{}: there is a catalog already", path);
  }
  CatalogWriter writer(database_path, path);
  QUARRY_RETURN_IF_ERROR(writer.TakeAnchor(/*anchored=*/false));
  QUARRY_TRY(OpenDatabase open, OpenRocks(path, OpenAs::kNew));
  QUARRY_RETURN_IF_ERROR(writer.Load(open));
  return std::unique_ptr<Catalog>(
      std::make_unique<RocksCatalog>(database_path, std::move(open), std::move(writer)));
}

Result<std::unique_ptr<Catalog>> Catalog::Open(const std::string& database_path, bool read_only,
                                               bool anchored) {
  const std::string path = database_path + std::string(kCatalogFolder);
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no catalog", path);
  }
  QUARRY_RETURN_IF_ERROR(CheckFiles(path));
  if (read_only) {
    QUARRY_TRY(OpenDatabase open, OpenRocks(path, OpenAs::kReader));
    QUARRY_RETURN_IF_ERROR(CheckReader(database_path, path, open, anchored));
    return std::unique_ptr<Catalog>(
        std::make_unique<RocksCatalog>(database_path, std::move(open), std::nullopt));
  }
  CatalogWriter writer(database_path, path);
  QUARRY_RETURN_IF_ERROR(writer.TakeAnchor(anchored));
  QUARRY_TRY(OpenDatabase open, OpenRocks(path, OpenAs::kWriter));
  QUARRY_RETURN_IF_ERROR(writer.Load(open));
  return std::unique_ptr<Catalog>(
      std::make_unique<RocksCatalog>(database_path, std::move(open), std::move(writer)));
}

}  // namespace quarry
