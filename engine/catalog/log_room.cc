#include "log_room.h"

#include <algorithm>
#include <string>
#include <utility>

namespace quarry {
namespace {

class LogFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  explicit LogFile(std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)) {}
  // RocksDB would take a tenth more than a memtable has: 17.6 MB before the first commit.
  void SetPreallocationBlockSize(size_t bytes) override {
    FSWritableFileOwnerWrapper::SetPreallocationBlockSize(std::min(bytes, kLogRoomBytes));
  }
};

class LogRoomFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  LogRoomFileSystem() : FileSystemWrapper(rocksdb::FileSystem::Default()) {}
  const char* Name() const override { return "LogRoomFileSystem"; }

  rocksdb::FileOptions OptimizeForLogWrite(const rocksdb::FileOptions& options,
                                           const rocksdb::DBOptions& of_database) const override {
    rocksdb::FileOptions of_log = FileSystemWrapper::OptimizeForLogWrite(options, of_database);
    of_log.allow_fallocate = true;
    of_log.fallocate_with_keep_size = false;
    return of_log;
  }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok() && name.ends_with(".log")) *file = std::make_unique<LogFile>(std::move(*file));
    return status;
  }
};

}  // namespace

std::shared_ptr<rocksdb::FileSystem> FileSystemWithLogRoom() {
  static const auto files = std::make_shared<LogRoomFileSystem>();
  return files;
}

}  // namespace quarry
