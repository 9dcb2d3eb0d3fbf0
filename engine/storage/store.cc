#include "quarry/storage/store.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "delta_log.h"
#include "lock.h"
#include "quarry/base/mutex.h"
#include "quarry/format/superblock.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVersionPrefix = "quarry ";
constexpr uint32_t kStoreVersion = 1;

std::string VersionText() { return fmt::format("{}{}\n", kVersionPrefix, kStoreVersion); }

// Reads the first bytes of a small or foreign file.
Result<std::string> ReadPrefix(IoBackend& backend, const std::string& path) {
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  std::string text(std::min<uint64_t>(file_bytes, 64), '\0');
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

// kNotFound, with what `path` is instead of a database.
Status NoDatabase(IoBackend& backend, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no such database; `quarry import {} SOURCE` makes one",
                      path, path);
  }
  if (!fs::is_directory(path, error)) {
    QUARRY_TRY(const std::string prefix, ReadPrefix(backend, path));
    return MakeStatus(Code::kNotFound,
                      "{}: not a database (a folder) but {}; `quarry import DB {}` may take it", path,
                      DescribeForeignBytes(std::as_bytes(std::span(prefix))), path);
  }
  return MakeStatus(Code::kNotFound,
                    "{}: a folder, but not a database (it has no VERSION file); if it holds source data, "
                    "`quarry import DB {}` may take it",
                    path, path);
}

Status CheckVersion(IoBackend& backend, const std::string& database_path) {
  const std::string path = database_path + "/VERSION";
  QUARRY_TRY(const std::string text, ReadPrefix(backend, path));
  if (text == VersionText()) return Status::Ok();
  uint32_t version = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with(kVersionPrefix)) {
    const auto parsed = std::from_chars(text.data() + kVersionPrefix.size(), end, version);
    if (parsed.ec == std::errc() && parsed.ptr + 1 == end && *parsed.ptr == '\n') {
      return MakeStatus(Code::kUnsupported,
                        "{}: database version {}; this Quarry reads version {}: use the other one", path,
                        version, kStoreVersion);
    }
  }
  return MakeStatus(Code::kCorruption, "{}: the file should read \"quarry {}\" and a line end", path,
                    kStoreVersion);
}

template <typename Record>
std::string NamesOf(const std::vector<Record>& records) {
  std::string names;
  for (const Record& record : records) {
    if (!names.empty()) names += ", ";
    names += record.name;
  }
  return names.empty() ? "none" : names;
}

class StoreImpl final : public Store {
 public:
  StoreImpl(IoBackend& backend, std::string path, StoreLock lock, std::unique_ptr<Catalog> catalog,
            Manifest manifest)
      : backend_(backend),
        path_(std::move(path)),
        lock_(std::move(lock)),
        catalog_(std::move(catalog)),
        manifest_(std::move(manifest)) {}

  const std::string& path() const override { return path_; }
  const Manifest& manifest() const override { return manifest_; }
  Catalog& catalog() override { return *catalog_; }
  IoBackend& backend() override { return backend_; }

  Status CommitManifest(const Manifest& manifest) override {
    QUARRY_RETURN_IF_ERROR(DecodeManifest(EncodeManifest(manifest), path_).status());
    {
      MutexLock lock(mutex_);
      if (writable_) {
        QUARRY_RETURN_IF_ERROR(catalog_->CommitManifest(manifest));
      } else {
        QUARRY_RETURN_IF_ERROR(CommitAndReopen(manifest));
      }
    }
    QUARRY_TRY(manifest_, catalog_->ReadManifest());
    return Status::Ok();
  }

  Result<uint64_t> Write(const WriteBatch& batch, const WriteOptions& options) override {
    return deltas_.Write(manifest_, batch, options);
  }
  Result<std::shared_ptr<const Snapshot>> TakeSnapshot() override { return deltas_.TakeSnapshot(); }
  Result<std::unique_ptr<RowOverlay>> OpenOverlay(std::string_view table,
                                                  std::shared_ptr<const Snapshot> snapshot) override {
    const TableRecord* const record = manifest_.FindTable(table);
    if (record == nullptr) return NoTable(table);
    return deltas_.OpenOverlay(*record, std::move(snapshot));
  }

  Result<std::unique_ptr<FeatureTable>> OpenTable(std::string_view name) override {
    const TableRecord* record = manifest_.FindTable(name);
    if (record == nullptr) return NoTable(name);
    return FeatureTable::Open(backend_, path_, *record, manifest_.database_id);
  }

  Result<std::unique_ptr<Topology>> OpenTopology(std::string_view name) override {
    const TopologyRecord* record = manifest_.FindTopology(name);
    if (record == nullptr) {
      return MakeStatus(Code::kNotFound, "{}: there is no topology \"{}\"; topologies: {}", path_, name,
                        NamesOf(manifest_.topologies));
    }
    return Topology::Open(backend_, path_, *record, manifest_.database_id);
  }

 private:
  Status NoTable(std::string_view name) const {
    return MakeStatus(Code::kNotFound, "{}: there is no table \"{}\"; tables: {}", path_, name,
                      NamesOf(manifest_.tables));
  }

  // A catalog that is open for reading only leaves no trace in a database that is only read; the first write
  // of rows opens it for writing, for good. Whoever reads in the one that was open meanwhile keeps it alive.
  Result<std::shared_ptr<Catalog>> OpenCatalog(bool writable) QUARRY_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (writable && !writable_) {
      QUARRY_TRY(catalog_, Catalog::Open(path_, /*read_only=*/false));
      writable_ = true;
    }
    return catalog_;
  }

  // Opened anew because the writer may delete files that the open one relies on.
  Status CommitAndReopen(const Manifest& manifest) QUARRY_REQUIRES(mutex_) {
    QUARRY_TRY(const std::unique_ptr<Catalog> writable, Catalog::Open(path_, /*read_only=*/false));
    QUARRY_RETURN_IF_ERROR(writable->CommitManifest(manifest));
    QUARRY_RETURN_IF_ERROR(writable->Close());
    QUARRY_TRY(catalog_, Catalog::Open(path_, /*read_only=*/true));
    return Status::Ok();
  }

  IoBackend& backend_;
  const std::string path_;
  const StoreLock lock_;  // held until the catalog is closed
  Mutex mutex_;           // of what follows
  std::shared_ptr<Catalog> catalog_;
  bool writable_ QUARRY_GUARDED_BY(mutex_) = false;
  Manifest manifest_;
  DeltaLog deltas_{path_, [this](bool writable) { return OpenCatalog(writable); }};
};

}  // namespace

Status CreateStoreDirectory(IoBackend& backend, const std::string& path) {
  std::error_code error;
  if (!fs::create_directory(path, error)) {
    return ErrnoStatus(error ? error.value() : EEXIST, "create the folder", path);
  }
  for (const char* name : {"features", "topology"}) {
    const std::string folder = path + "/" + name;
    if (!fs::create_directory(folder, error)) return ErrnoStatus(error.value(), "create the folder", folder);
    QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(folder));
  }
  for (const auto& [name, text] :
       std::array<std::pair<std::string, std::string>, 2>{{{"LOCK", ""}, {"VERSION", VersionText()}}}) {
    QUARRY_TRY(const File file, backend.Open(path + "/" + name, OpenMode::kCreate));
    if (!text.empty()) QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, std::as_bytes(std::span(text))));
    QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  }
  return backend.SyncDirectory(path);
}

Result<std::unique_ptr<Store>> Store::Open(IoBackend& backend, const std::string& path) {
  // Without these there is nothing to lock: LOCK must not be created in a folder that is none of ours.
  std::error_code error;
  if (!fs::exists(path + "/VERSION", error)) return NoDatabase(backend, path);
  QUARRY_RETURN_IF_ERROR(CheckVersion(backend, path));
  QUARRY_TRY(StoreLock lock, StoreLock::Acquire(path));
  Result<std::unique_ptr<Catalog>> catalog = Catalog::Open(path, /*read_only=*/true);
  if (catalog.status().code() == Code::kNotFound) {
    return MakeStatus(Code::kCorruption, "{}: the folder catalog/ is missing: restore it or import again",
                      path);
  }
  QUARRY_RETURN_IF_ERROR(catalog.status());
  QUARRY_TRY(Manifest manifest, (*catalog)->ReadManifest());
  return std::unique_ptr<Store>(
      new StoreImpl(backend, path, std::move(lock), std::move(catalog).value(), std::move(manifest)));
}

}  // namespace quarry
