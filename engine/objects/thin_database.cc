#include "quarry/objects/thin_database.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "object_reader.h"
#include "quarry/base/mutex.h"
#include "quarry/base/units.h"
#include "quarry/storage/store.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kThinFirstLine = "quarry-thin 1 ";
constexpr uint64_t kThinHandleBytes = 512 << 10;  // of a request, beside its block (transport.cc)
constexpr uint64_t kThinBlockCost = kRemoteBlockBytes + kThinHandleBytes;

std::string Clean(const std::string& path) { return fs::path(path).lexically_normal().string(); }

// Reads of files in the store, and of the disk, side by side. The disk's are waited for first where both are under way: it
// answers soon.
class ThinPort final : public IoPort {
 public:
  using FileOf = std::function<std::optional<size_t>(int descriptor)>;

  ThinPort(IoBackend& local, ObjectReader& reader, unsigned depth, FileOf file_of)
      : local_(local), reader_(reader), depth_(depth), file_of_(std::move(file_of)) {
    MutexLock lock(shared_->mutex);
    shared_->answers.reserve(depth);
  }
  ~ThinPort() override {
    MutexLock lock(shared_->mutex);
    while (shared_->answers.size() < remote_) shared_->changed.Wait(shared_->mutex);
  }

  Status Submit(std::span<const RawRequest> requests) override {
    local_requests_.clear();
    for (const RawRequest& request : requests) {
      const std::optional<size_t> file = file_of_(request.descriptor);
      if (!file) {
        local_requests_.push_back(request);
        continue;
      }
      if (request.kind == RawRequest::Kind::kWrite) {
        return MakeStatus(Code::kUnsupported, "{}: is in an object store, where nothing is written",
                          reader_.files()[*file].name);
      }
      ++remote_;
      // The end of a file is that of the disk's too: a read across it is cut off.
      const uint64_t bytes =
          std::min<uint64_t>(request.bytes, reader_.files()[*file].bytes -
                                                std::min(request.offset, reader_.files()[*file].bytes));
      reader_.Start(*file, request.offset, {request.buffer, bytes},
                    [shared = shared_, id = request.user_data, bytes](const Status& status) {
                      MutexLock lock(shared->mutex);
                      shared->answers.push_back({{id, static_cast<int32_t>(bytes)}, status});
                      shared->changed.NotifyAll();
                    });
    }
    if (local_requests_.empty()) return Status::Ok();
    if (port_ == nullptr) {
      QUARRY_TRY(port_, local_.NewPort(depth_));
    }
    on_disk_ += local_requests_.size();
    return port_->Submit(local_requests_);
  }

  Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
    size_t count = 0;
    while (true) {
      QUARRY_TRY(const size_t came, Take(out.subspan(count)));
      count += came;
      const size_t missing = count_min - std::min(count_min, count);
      if (on_disk_ > 0 && count < out.size()) {
        QUARRY_TRY(const size_t read, port_->Wait(missing > 0 ? 1 : 0, out.subspan(count)));
        on_disk_ -= read;
        count += read;
      }
      if (count >= count_min || (on_disk_ == 0 && remote_ == 0)) return count;
      if (on_disk_ > 0) continue;
      MutexLock lock(shared_->mutex);
      while (shared_->answers.empty()) shared_->changed.Wait(shared_->mutex);
    }
  }

 private:
  struct Answered {
    RawCompletion completion;
    Status status;
  };
  // Outlives the port in functions that the reader is done with.
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::vector<Answered> answers QUARRY_GUARDED_BY(mutex);
  };

  // What the store answered so far. An error of it is the port's, since an errno would not say what is wrong.
  Result<size_t> Take(std::span<RawCompletion> out) {
    MutexLock lock(shared_->mutex);
    size_t count = 0;
    while (count < out.size() && !shared_->answers.empty()) {
      const Answered answered = std::move(shared_->answers.back());
      shared_->answers.pop_back();
      --remote_;
      if (!answered.status.ok()) return answered.status;
      out[count++] = answered.completion;
    }
    return count;
  }

  IoBackend& local_;
  ObjectReader& reader_;
  const unsigned depth_;
  const FileOf file_of_;
  std::unique_ptr<IoPort> port_;     // null before the first request to the disk
  size_t on_disk_ = 0, remote_ = 0;  // under way
  std::vector<RawRequest> local_requests_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

class ThinBackendImpl final : public ThinBackend {
 public:
  ThinBackendImpl(std::unique_ptr<IoBackend> local, const std::string& path, ThinFiles files, bool read_only,
                  uint64_t memory_bytes)
      : local_(std::move(local)),
        path_(Clean(path)),
        about_({.address = files.place.address(), .block_bytes = kRemoteBlockBytes, .read_only = read_only}),
        budget_(memory_bytes) {
    for (size_t i = 0; i < files.manifest.files.size(); i++) {
      remote_.emplace(Clean(path_ + "/" + files.manifest.files[i].name), i);
    }
    files_ = std::move(files.manifest.files);
  }

  Status Start(const ObjectPlace& place, const ObjectAccess& access, const ThinOptions& options) {
    const uint64_t blocks = budget_.limit_bytes() / kThinBlockCost;
    ObjectStoreOptions store = options.store;
    store.in_flight_max = static_cast<unsigned>(std::min<uint64_t>(store.in_flight_max, blocks));
    QUARRY_TRY(store_, ObjectStore::Open(place, access, budget_, store));
    if (!options.cache_folder.empty()) {
      QUARRY_TRY(cache_, BlockCache::Open(*local_, options.cache_folder, options.cache_bytes, store.seed));
    }
    QUARRY_TRY(reader_,
               ObjectReader::Make(*store_, cache_.get(), budget_, std::move(files_), kThinBlocksMax));
    return Status::Ok();
  }

  std::string_view name() const override { return local_->name(); }
  const RemoteFiles* remote_files() const override { return &about_; }
  ObjectReadStatistics statistics() const override { return reader_->statistics(); }

  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override {
    return std::unique_ptr<IoPort>(std::make_unique<ThinPort>(
        *local_, *reader_, depth, [this](int descriptor) { return FileOf(descriptor); }));
  }

  // The descriptor is that of the file without blocks, whose size is right; it stands for the one in the store.
  Result<File> Open(const std::string& path, OpenMode mode) override {
    const std::optional<size_t> file = Named(path);
    const bool reads = mode == OpenMode::kReadDirect || mode == OpenMode::kReadBuffered;
    if (file && !reads) return Refused(path, "written");
    QUARRY_TRY(File opened, local_->Open(path, file ? OpenMode::kReadBuffered : mode));
    MutexLock lock(mutex_);
    if (file) {
      open_[opened.descriptor()] = *file;
    } else {
      open_.erase(opened.descriptor());  // the number may have been such a file's
    }
    return opened;
  }
  Result<uint64_t> FileBytes(const File& file) override { return local_->FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    if (const auto remote = FileOf(file.descriptor())) return reader_->Read(*remote, offset, out);
    return local_->ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    if (FileOf(file.descriptor())) return Refused(file.path(), "written");
    return local_->WriteAt(file, offset, bytes);
  }
  Status Truncate(const File& file, uint64_t bytes) override {
    if (FileOf(file.descriptor())) return Refused(file.path(), "written");
    return local_->Truncate(file, bytes);
  }
  Result<bool> Clone(const File& from, const File& to) override {
    if (FileOf(from.descriptor()) || FileOf(to.descriptor())) return false;  // whoever asks copies instead
    return local_->Clone(from, to);
  }
  Status SyncFile(const File& file) override { return local_->SyncFile(file); }
  Status SyncDirectory(const std::string& path) override { return local_->SyncDirectory(path); }
  Status CreateDirectory(const std::string& path) override { return local_->CreateDirectory(path); }
  // Names of files in the store are theirs for as long as OBJECTS lists them: what would take one is refused.
  Status Rename(const std::string& from, const std::string& to) override {
    for (const std::string& path : {from, to}) {
      if (HasRemote(path)) return Refused(path, "renamed, or replaced");
    }
    return local_->Rename(from, to);
  }
  Status Link(const std::string& from, const std::string& to) override {
    for (const std::string& path : {from, to}) {
      if (HasRemote(path)) return Refused(path, "linked");
    }
    return local_->Link(from, to);
  }
  Status Remove(const std::string& path) override { return local_->Remove(path); }

 private:
  std::optional<size_t> Named(const std::string& path) const {
    const auto found = remote_.find(Clean(path));
    return found == remote_.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<size_t> FileOf(int descriptor) const {
    MutexLock lock(mutex_);
    const auto found = open_.find(descriptor);
    return found == open_.end() ? std::nullopt : std::optional(found->second);
  }
  // A file that stays in the store, or a folder with one.
  bool HasRemote(const std::string& path) const {
    const std::string clean = Clean(path);
    const auto at = remote_.lower_bound(clean);
    return at != remote_.end() &&
           (at->first == clean || (at->first.starts_with(clean) && at->first[clean.size()] == '/'));
  }
  Status Refused(const std::string& path, std::string_view what) const {
    return MakeStatus(
        Code::kUnsupported,
        "{}: lies in the object store ({}) and cannot be {}: quarry pull {} DB brings a whole database", path,
        about_.address, what, about_.address);
  }

  const std::unique_ptr<IoBackend> local_;
  const std::string path_;
  const RemoteFiles about_;
  std::vector<RemoteFile> files_;  // until the reader has them
  std::map<std::string, size_t> remote_;
  mutable Mutex mutex_;
  std::unordered_map<int, size_t> open_ QUARRY_GUARDED_BY(mutex_);  // by descriptor
  MemoryBudget budget_;
  std::unique_ptr<ObjectStore> store_;
  std::unique_ptr<BlockCache> cache_;
  std::unique_ptr<ObjectReader> reader_;  // last: uses the others
};

}  // namespace

Result<uint64_t> ThinMemoryBytes(uint64_t budget_bytes) {
  const uint64_t share = std::min(budget_bytes / 4, kThinBlocksMax * kThinBlockCost);
  if (share >= kThinBlocksMin * kThinBlockCost) return share;
  return MakeStatus(
      Code::kOutOfBudget,
      "reading from an object store takes a quarter of the memory budget, {} at least, and the budget is "
      "{}: give at least {}",
      FormatBytes(kThinBlocksMin * kThinBlockCost), FormatBytes(budget_bytes),
      FormatBytes(4 * kThinBlocksMin * kThinBlockCost));
}

bool IsThin(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path + "/" + kObjectsFile, error));
}

bool StaysInStore(const RemoteFile& file) {
  return file.bytes > kRemoteBlockBytes && !file.name.starts_with("catalog/");
}

std::string EncodeThinFiles(const ThinFiles& files) {
  return fmt::format("{}{}\n{}", kThinFirstLine, files.place.address(), EncodeRemoteManifest(files.manifest));
}

Result<ThinFiles> ReadThinFiles(const std::string& path) {
  const std::string source = path + "/" + kObjectsFile;
  const std::unique_ptr<IoBackend> backend = MakeThreadBackend(1);
  QUARRY_TRY(const File file, backend->Open(source, OpenMode::kReadBuffered));
  QUARRY_TRY(const uint64_t bytes, backend->FileBytes(file));
  if (bytes > kRemoteManifestBytesMax) {
    return MakeStatus(Code::kCorruption, "{}: {} are no list of files", source, FormatBytes(bytes));
  }
  std::string text(bytes, 0);
  QUARRY_RETURN_IF_ERROR(backend->ReadAt(file, 0, std::as_writable_bytes(std::span(text))));
  const size_t end = text.find('\n');
  if (end == std::string::npos || !text.starts_with(kThinFirstLine)) {
    return MakeStatus(Code::kCorruption, "{}: does not begin with '{}'", source, kThinFirstLine);
  }
  const std::string address = text.substr(kThinFirstLine.size(), end - kThinFirstLine.size());
  const auto place = ParseObjectPlace(address);
  if (!place.ok()) return MakeStatus(Code::kCorruption, "{}: {}", source, place.status().message());
  QUARRY_TRY(RemoteManifest manifest, DecodeRemoteManifest(std::string_view(text).substr(end + 1), source));
  return ThinFiles{*place, std::move(manifest)};
}

Result<std::unique_ptr<ThinBackend>> OpenThin(std::unique_ptr<IoBackend> local, const std::string& path,
                                              const ThinOptions& options) {
  QUARRY_TRY(const ThinFiles files, ReadThinFiles(path));
  QUARRY_TRY(const ObjectAccess access, ResolveObjectAccess(files.place));
  return OpenThin(std::move(local), path, access, options);
}

Result<std::unique_ptr<ThinBackend>> OpenThin(std::unique_ptr<IoBackend> local, const std::string& path,
                                              const ObjectAccess& access, const ThinOptions& options) {
  QUARRY_TRY(ThinFiles files, ReadThinFiles(path));
  const ObjectPlace place = files.place;
  auto backend = std::make_unique<ThinBackendImpl>(std::move(local), path, std::move(files),
                                                   options.read_only, options.memory_bytes);
  QUARRY_RETURN_IF_ERROR(backend->Start(place, access, options));
  return std::unique_ptr<ThinBackend>(std::move(backend));
}

}  // namespace quarry
