#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/objects/push.h"
#include "quarry/objects/thin_database.h"
#include "quarry/storage/lock.h"
#include "quarry/storage/store.h"
#include "transfer_slots.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kFetchesMax = 64;
constexpr uint64_t kPageBytes = 4096;

// The files of a database on their way into a folder. One thread.
class Puller {
 public:
  Puller(ObjectStore& store, IoBackend& backend, std::string folder, const ProgressFunction& progress,
         bool thin)
      : store_(store), backend_(backend), folder_(std::move(folder)), progress_(progress), thin_(thin) {}

  Status Pull(MemoryBudget& budget, const RemoteManifest& manifest) {
    ThinFiles staying{store_.place(), manifest};
    std::erase_if(staying.manifest.files, [this](const RemoteFile& file) { return !Stays(file); });
    report_.files = manifest.files.size();
    report_.bytes = manifest.bytes();
    to_fetch_ = report_.bytes - staying.manifest.bytes();
    QUARRY_RETURN_IF_ERROR(RemoveOthers(manifest));
    uint64_t block_bytes = kPageBytes, blocks = 0;
    for (const RemoteFile& file : manifest.files) {
      if (Stays(file)) continue;
      blocks += file.blocks.size();
      block_bytes = std::max(block_bytes, std::min(RoundUp(file.bytes, kPageBytes), kRemoteBlockBytes));
    }
    QUARRY_TRY(const auto slots,
               TransferSlots::Make(store_, budget, block_bytes,
                                   static_cast<unsigned>(std::min<uint64_t>(kFetchesMax, blocks)),
                                   [&] { return Advance(0); }));
    for (const RemoteFile& file : manifest.files) {
      QUARRY_RETURN_IF_ERROR(Stays(file) ? MakeHole(file) : PullFile(*slots, file));
    }
    QUARRY_RETURN_IF_ERROR(slots->Drain());
    if (thin_) QUARRY_RETURN_IF_ERROR(WriteStaying(staying));
    return Sync(manifest);
  }

  TransferReport& report() { return report_; }

 private:
  std::string PathOf(const RemoteFile& file) const { return folder_ + "/" + file.name; }

  // What an earlier pull left of a manifest that had other files.
  Status RemoveOthers(const RemoteManifest& manifest) {
    std::set<std::string> names;
    for (const RemoteFile& file : manifest.files) names.insert(PathOf(file));
    std::vector<std::string> others;
    std::error_code error;
    for (fs::recursive_directory_iterator entry(folder_, error), end; !error && entry != end;
         entry.increment(error)) {
      if (!entry->is_directory(error) && !names.contains(entry->path().string()))
        others.push_back(entry->path().string());
    }
    if (error) return ErrnoStatus(error.value(), "list", folder_);
    for (const std::string& path : others) QUARRY_RETURN_IF_ERROR(backend_.Remove(path));
    return Status::Ok();
  }

  Status MakeFolders(const RemoteFile& file) {
    std::string folder = folder_;
    for (const fs::path& part : fs::path(file.name).parent_path()) {
      folder += "/" + part.string();
      if (folders_.insert(folder).second) QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend_, folder));
    }
    return Status::Ok();
  }

  bool Stays(const RemoteFile& file) const { return thin_ && StaysInStore(file); }

  // A file that stays in the store: its name and size are here. What an earlier pull fetched of it goes.
  Status MakeHole(const RemoteFile& remote) {
    QUARRY_RETURN_IF_ERROR(MakeFolders(remote));
    const std::string path = PathOf(remote);
    const Status removed = backend_.Remove(path);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
    QUARRY_TRY(const File file, backend_.Open(path, OpenMode::kCreate));
    return backend_.Truncate(file, remote.bytes);
  }

  // RemoveOthers has removed an older one.
  Status WriteStaying(const ThinFiles& staying) {
    const std::string text = EncodeThinFiles(staying);
    QUARRY_TRY(const File file, backend_.Open(folder_ + "/" + kObjectsFile, OpenMode::kCreate));
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file, 0, std::as_bytes(std::span(text))));
    return backend_.SyncFile(file);
  }

  Status PullFile(TransferSlots& slots, const RemoteFile& remote) {
    QUARRY_RETURN_IF_ERROR(MakeFolders(remote));
    const std::string path = PathOf(remote);
    std::error_code error;
    const bool begun = fs::exists(path, error);
    auto file = std::make_shared<File>();
    QUARRY_TRY(*file, backend_.Open(path, begun ? OpenMode::kReadWriteDirect : OpenMode::kCreateDirect));
    QUARRY_TRY(const File reader, backend_.Open(path, OpenMode::kReadBuffered));
    QUARRY_TRY(const uint64_t there, backend_.FileBytes(reader));
    bool moved = false;
    for (size_t block = 0; block < remote.blocks.size(); block++) {
      const uint64_t offset = block * kRemoteBlockBytes;
      const uint64_t bytes = remote.BlockBytes(block);
      QUARRY_TRY(TransferSlots::Slot* const slot, slots.Take());
      const std::span<std::byte> buffer = slot->buffer().first(bytes);
      if (offset + bytes <= there && backend_.ReadAt(reader, offset, buffer).ok() &&
          remote.Check(block, buffer).ok()) {
        slots.Return(slot);
        QUARRY_RETURN_IF_ERROR(Advance(bytes));
        continue;
      }
      moved = true;
      store_.StartGet(
          {.key = remote.Key(),
           .offset = offset,
           .into = buffer,
           .check = [&remote, block](std::span<const std::byte> got) { return remote.Check(block, got); }},
          slot->Done([this, file, offset, bytes, slot](const ObjectAnswer&) -> Status {
            // Whole pages, as direct writes are; what is behind the file's end is cut off in the end.
            const auto pages = slot->buffer().first(RoundUp(bytes, kPageBytes));
            QUARRY_RETURN_IF_ERROR(backend_.WriteAt(*file, offset, pages));
            report_.bytes_moved += bytes;
            return Advance(bytes);
          }));
    }
    if (moved) ++report_.files_moved;
    return Status::Ok();
  }

  Status Sync(const RemoteManifest& manifest) {
    for (const RemoteFile& remote : manifest.files) {
      QUARRY_TRY(const File file, backend_.Open(PathOf(remote), OpenMode::kReadWriteDirect));
      QUARRY_TRY(const uint64_t bytes, backend_.FileBytes(file));
      if (bytes != remote.bytes) QUARRY_RETURN_IF_ERROR(backend_.Truncate(file, remote.bytes));
      QUARRY_RETURN_IF_ERROR(backend_.SyncFile(file));
    }
    for (const std::string& folder : folders_) QUARRY_RETURN_IF_ERROR(backend_.SyncDirectory(folder));
    return backend_.SyncDirectory(folder_);
  }

  Status Advance(uint64_t bytes) {
    done_ += bytes;
    return progress_ ? progress_("fetching", done_, to_fetch_) : Status::Ok();
  }

  ObjectStore& store_;
  IoBackend& backend_;
  const std::string folder_;
  const ProgressFunction& progress_;
  const bool thin_;
  TransferReport report_;
  uint64_t to_fetch_ = 0;
  std::set<std::string> folders_;
  uint64_t done_ = 0;
};

Result<FolderLock> LockFolder(IoBackend& backend, const std::string& folder) {
  Status made = backend.CreateDirectory(folder);
  if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
  Result<FolderLock> lock = FolderLock::Acquire(folder);
  if (lock.status().code() == Code::kBusy || (lock.ok() && !lock->Holds(folder))) {
    return MakeStatus(Code::kBusy, "{}: another pull of this database is running; wait for it or stop it",
                      folder);
  }
  return lock;
}

Result<TransferReport> Pull(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                            const std::string& path, const ProgressFunction& progress, bool thin) {
  const double start = MonotonicSeconds();
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    return MakeStatus(Code::kAlreadyExists, "{} exists already; choose another path or remove it first",
                      path);
  }
  const std::string parent =
      fs::path(path).parent_path().empty() ? "." : fs::path(path).parent_path().string();
  if (!fs::is_directory(parent, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no folder {} to put the database in", path, parent);
  }
  QUARRY_TRY(const PublishedManifest published, ReadPublished(store));
  const std::string workspace = path + ".pulling";
  const std::string folder = workspace + "/db";
  QUARRY_TRY(const FolderLock lock, LockFolder(backend, workspace));
  for (const std::string& made : {folder, folder + "/features", folder + "/topology"}) {
    QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend, made));
    if (made != folder) QUARRY_RETURN_IF_ERROR(backend.SyncDirectory(made));
  }
  Puller puller(store, backend, folder, progress, thin);
  QUARRY_RETURN_IF_ERROR(puller.Pull(budget, published.manifest));
  QUARRY_RETURN_IF_ERROR(backend.Rename(folder, path));
  const Status durable = backend.SyncDirectory(parent);
  if (!durable.ok()) {  // a database that may be gone after a failure of power is none: the next pull goes on
    if (!backend.Rename(path, folder).ok()) Discard(backend, path);
    return durable;
  }
  Discard(backend, workspace);
  TransferReport report = puller.report();
  report.requests = store.statistics().requests;
  report.retries = store.statistics().retries;
  report.seconds = MonotonicSeconds() - start;
  return report;
}

}  // namespace

Result<TransferReport> PullDatabase(ObjectStore& store, IoBackend& backend, MemoryBudget& budget,
                                    const std::string& path, const ProgressFunction& progress, bool thin) {
  std::string place = path;
  while (place.size() > 1 && place.back() == '/') place.pop_back();
  Result<TransferReport> report = Pull(store, backend, budget, place, progress, thin);
  if (!report.ok()) store.Cancel();
  return report;
}

}  // namespace quarry
