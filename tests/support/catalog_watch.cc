#include "support/catalog_watch.h"

#include <rocksdb/file_system.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "catalog_environment.h"
#include "log_room.h"

namespace quarry {
namespace {

using Kind = CatalogOperation::Kind;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// Performs `work`, which says how it went, under the eyes of the watcher.
template <typename Work>
IOStatus Watched(const CatalogWatch::Watcher& watcher, const CatalogOperation& operation, const Work& work) {
  IOStatus status;
  watcher(operation, [&] {
    status = work();
    return status.ok();
  });
  return status;
}

class WatchedFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  WatchedFile(const CatalogWatch::Watcher& watcher, CatalogWatch::Logs logs, std::string name,
              uint64_t number, uint64_t bytes, std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)),
        watcher_(watcher),
        reserve_(logs == CatalogWatch::Logs::kWithRoom),
        name_(std::move(name)),
        number_(number),
        bytes_(bytes) {}

  IOStatus Append(const Slice& data, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus status = Write(bytes_, data, [&] { return target()->Append(data, options, debug); });
    if (status.ok()) bytes_ += data.size();
    return status;
  }
  IOStatus Append(const Slice& data, const IOOptions& options,
                  const rocksdb::DataVerificationInfo& /*verification*/, IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            IODebugContext* debug) override {
    return Write(offset, data, [&] { return target()->PositionedAppend(data, offset, options, debug); });
  }
  IOStatus PositionedAppend(const Slice& data, uint64_t offset, const IOOptions& options,
                            const rocksdb::DataVerificationInfo& /*verification*/,
                            IODebugContext* debug) override {
    return PositionedAppend(data, offset, options, debug);
  }
  IOStatus Truncate(uint64_t bytes, const IOOptions& options, IODebugContext* debug) override {
    const IOStatus status =
        Watched(watcher_, {.kind = Kind::kTruncate, .path = name_, .file = number_, .offset = bytes},
                [&] { return target()->Truncate(bytes, options, debug); });
    if (status.ok()) bytes_ = bytes;
    return status;
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kSyncFile, .path = name_, .file = number_},
                   [&] { return target()->Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kSyncFile, .path = name_, .file = number_},
                   [&] { return target()->Fsync(options, debug); });
  }
  void PrepareWrite(size_t offset, size_t bytes, const IOOptions& options, IODebugContext* debug) override {
    if (reserve_) target()->PrepareWrite(offset, bytes, options, debug);
  }

 private:
  template <typename Work>
  IOStatus Write(uint64_t offset, const Slice& data, const Work& work) {
    const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
    return Watched(watcher_,
                   {.kind = Kind::kWrite, .path = name_, .file = number_, .offset = offset, .bytes = bytes},
                   work);
  }

  const CatalogWatch::Watcher& watcher_;
  const bool reserve_;
  const std::string name_;
  const uint64_t number_;
  uint64_t bytes_;  // where the next append goes
};

class WatchedReading final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  WatchedReading(const CatalogWatch::Watcher& watcher, std::string name,
                 std::unique_ptr<rocksdb::FSSequentialFile> file)
      : FSSequentialFileOwnerWrapper(std::move(file)), watcher_(watcher), name_(std::move(name)) {}

  IOStatus Read(size_t bytes, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) override {
    const IOStatus status = Watched(watcher_, {.kind = Kind::kRead, .path = name_, .offset = offset_}, [&] {
      return FSSequentialFileOwnerWrapper::Read(bytes, options, result, scratch, debug);
    });
    if (status.ok()) offset_ += result->size();
    return status;
  }
  IOStatus Skip(uint64_t bytes) override {
    offset_ += bytes;
    return FSSequentialFileOwnerWrapper::Skip(bytes);
  }

 private:
  const CatalogWatch::Watcher& watcher_;
  const std::string name_;
  uint64_t offset_ = 0;
};

// The anchor, which is written in place.
class WatchedInPlace final : public rocksdb::FSRandomRWFileOwnerWrapper {
 public:
  WatchedInPlace(const CatalogWatch::Watcher& watcher, std::string name, uint64_t number,
                 std::unique_ptr<rocksdb::FSRandomRWFile> file)
      : FSRandomRWFileOwnerWrapper(std::move(file)),
        watcher_(watcher),
        name_(std::move(name)),
        number_(number) {}

  IOStatus Write(uint64_t offset, const Slice& data, const IOOptions& options,
                 IODebugContext* debug) override {
    const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
    return Watched(watcher_,
                   {.kind = Kind::kWrite, .path = name_, .file = number_, .offset = offset, .bytes = bytes},
                   [&] { return FSRandomRWFileOwnerWrapper::Write(offset, data, options, debug); });
  }
  IOStatus Sync(const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kSyncFile, .path = name_, .file = number_},
                   [&] { return FSRandomRWFileOwnerWrapper::Sync(options, debug); });
  }
  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kSyncFile, .path = name_, .file = number_},
                   [&] { return FSRandomRWFileOwnerWrapper::Fsync(options, debug); });
  }

 private:
  const CatalogWatch::Watcher& watcher_;
  const std::string name_;
  const uint64_t number_;
};

class WatchedFolder final : public rocksdb::FSDirectoryWrapper {
 public:
  WatchedFolder(const CatalogWatch::Watcher& watcher, std::string name,
                std::unique_ptr<rocksdb::FSDirectory> folder)
      : FSDirectoryWrapper(std::move(folder)), watcher_(watcher), name_(std::move(name)) {}

  IOStatus Fsync(const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kSyncDirectory, .path = name_},
                   [&] { return FSDirectoryWrapper::Fsync(options, debug); });
  }
  IOStatus FsyncWithDirOptions(const IOOptions& options, IODebugContext* debug,
                               const rocksdb::DirFsyncOptions& folder_options) override {
    return Watched(watcher_, {.kind = Kind::kSyncDirectory, .path = name_},
                   [&] { return FSDirectoryWrapper::FsyncWithDirOptions(options, debug, folder_options); });
  }

 private:
  const CatalogWatch::Watcher& watcher_;
  const std::string name_;
};

class WatchedFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  WatchedFileSystem(CatalogWatch::Watcher watcher, CatalogWatch::Logs logs)
      : FileSystemWrapper(FileSystemWithLogRoom()), watcher_(std::move(watcher)), logs_(logs) {}
  const char* Name() const override { return "WatchedFileSystem"; }

  IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                             std::unique_ptr<rocksdb::FSSequentialFile>* file,
                             IODebugContext* debug) override {
    const IOStatus status = FileSystemWrapper::NewSequentialFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<WatchedReading>(watcher_, name, std::move(*file));
    return status;
  }
  IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSWritableFile>* file, IODebugContext* debug) override {
    if (IsNewOptionsFile(name))
      return IOStatus::IOError("create: " + name, "watched catalogs have no options");
    return OpenFile(Kind::kCreate, name, file,
                    [&] { return FileSystemWrapper::NewWritableFile(name, options, file, debug); });
  }
  IOStatus ReopenWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                              std::unique_ptr<rocksdb::FSWritableFile>* file,
                              IODebugContext* debug) override {
    return OpenFile(Kind::kReopen, name, file,
                    [&] { return FileSystemWrapper::ReopenWritableFile(name, options, file, debug); });
  }
  // Reusing is refused: the catalog does not set options that need it, and what they write would not be seen.
  IOStatus ReuseWritableFile(const std::string& name, const std::string& /*old_name*/,
                             const rocksdb::FileOptions& /*options*/,
                             std::unique_ptr<rocksdb::FSWritableFile>* /*file*/,
                             IODebugContext* /*debug*/) override {
    return IOStatus::NotSupported("reuse: " + name);
  }
  IOStatus NewRandomRWFile(const std::string& name, const rocksdb::FileOptions& options,
                           std::unique_ptr<rocksdb::FSRandomRWFile>* file, IODebugContext* debug) override {
    const uint64_t number = ++files_;
    const IOStatus status = Watched(watcher_, {.kind = Kind::kReopen, .path = name, .file = number}, [&] {
      return FileSystemWrapper::NewRandomRWFile(name, options, file, debug);
    });
    if (status.ok()) *file = std::make_unique<WatchedInPlace>(watcher_, name, number, std::move(*file));
    return status;
  }
  IOStatus Truncate(const std::string& name, size_t /*bytes*/, const IOOptions& /*options*/,
                    IODebugContext* /*debug*/) override {
    return IOStatus::NotSupported("truncate by name: " + name);
  }
  IOStatus NewDirectory(const std::string& name, const IOOptions& options,
                        std::unique_ptr<rocksdb::FSDirectory>* folder, IODebugContext* debug) override {
    const IOStatus status = FileSystemWrapper::NewDirectory(name, options, folder, debug);
    if (status.ok()) *folder = std::make_unique<WatchedFolder>(watcher_, name, std::move(*folder));
    return status;
  }
  IOStatus CreateDir(const std::string& name, const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kCreateDirectory, .path = name},
                   [&] { return FileSystemWrapper::CreateDir(name, options, debug); });
  }
  IOStatus CreateDirIfMissing(const std::string& name, const IOOptions& options,
                              IODebugContext* debug) override {
    const bool there = FileSystemWrapper::FileExists(name, options, debug).ok();
    return there ? IOStatus::OK() : CreateDir(name, options, debug);
  }
  IOStatus DeleteFile(const std::string& name, const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kRemove, .path = name},
                   [&] { return FileSystemWrapper::DeleteFile(name, options, debug); });
  }
  IOStatus DeleteDir(const std::string& name, const IOOptions& options, IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kRemove, .path = name},
                   [&] { return FileSystemWrapper::DeleteDir(name, options, debug); });
  }
  IOStatus RenameFile(const std::string& from, const std::string& to, const IOOptions& options,
                      IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kRename, .path = from, .to = to},
                   [&] { return FileSystemWrapper::RenameFile(from, to, options, debug); });
  }
  IOStatus LinkFile(const std::string& from, const std::string& to, const IOOptions& options,
                    IODebugContext* debug) override {
    return Watched(watcher_, {.kind = Kind::kLink, .path = from, .to = to},
                   [&] { return FileSystemWrapper::LinkFile(from, to, options, debug); });
  }

 private:
  template <typename Work>
  IOStatus OpenFile(Kind kind, const std::string& name, std::unique_ptr<rocksdb::FSWritableFile>* file,
                    const Work& work) {
    const uint64_t number = ++files_;
    IOStatus status = Watched(watcher_, {.kind = kind, .path = name, .file = number}, work);
    if (!status.ok()) return status;
    uint64_t bytes = 0;
    if (kind == Kind::kReopen) status = FileSystemWrapper::GetFileSize(name, {}, &bytes, nullptr);
    if (status.ok())
      *file = std::make_unique<WatchedFile>(watcher_, logs_, name, number, bytes, std::move(*file));
    return status;
  }

  const CatalogWatch::Watcher watcher_;
  const CatalogWatch::Logs logs_;
  std::atomic<uint64_t> files_{0};
};

}  // namespace

class CatalogWatch::Impl {
 public:
  Impl(Watcher watcher, Logs logs)
      : environment_(std::make_shared<WatchedFileSystem>(std::move(watcher), logs)) {}

 private:
  const CatalogEnvironmentOverride environment_;
};

CatalogWatch::CatalogWatch(Watcher watcher, Logs logs)
    : impl_(std::make_unique<Impl>(std::move(watcher), logs)) {}
CatalogWatch::~CatalogWatch() = default;

}  // namespace quarry
