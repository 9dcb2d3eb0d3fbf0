#include "support/catalog_faults.h"

#include <rocksdb/file_system.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "catalog_environment.h"
#include "log_room.h"
#include "quarry/base/mutex.h"

namespace quarry {
namespace {

rocksdb::IOStatus ToRocks(int error, std::string_view what, const std::string& file) {
  if (error == 0) return rocksdb::IOStatus::OK();
  const std::string place = std::string(what) + ": " + file;
  return error == ENOSPC ? rocksdb::IOStatus::NoSpace(place, std::strerror(error))
                         : rocksdb::IOStatus::IOError(place, std::strerror(error));
}

// Says which operations fail.
class Plan {
 public:
  void Set(const CatalogFaultPlan& plan) {
    MutexLock lock(mutex_);
    plan_ = plan;
    counts_.fill(0);
    strikes_ = 0;
    struck_file_.clear();
  }
  // Counts an operation; the errno that it fails with, or 0.
  int Count(CatalogFault kind, const std::string& file) {
    MutexLock lock(mutex_);
    const uint64_t number = ++counts_[static_cast<size_t>(kind)];
    const bool struck =
        kind == plan_.kind && plan_.at != 0 && (plan_.sticky ? number >= plan_.at : number == plan_.at);
    if (!struck) return 0;
    if (++strikes_ == 1) struck_file_ = file;
    return plan_.error;
  }
  uint64_t count(CatalogFault kind) const {
    MutexLock lock(mutex_);
    return counts_[static_cast<size_t>(kind)];
  }
  uint64_t strikes() const {
    MutexLock lock(mutex_);
    return strikes_;
  }
  std::string struck_file() const {
    MutexLock lock(mutex_);
    return struck_file_;
  }

 private:
  mutable Mutex mutex_;
  CatalogFaultPlan plan_ QUARRY_GUARDED_BY(mutex_);
  std::array<uint64_t, kCatalogFaultCount> counts_ QUARRY_GUARDED_BY(mutex_) = {};
  uint64_t strikes_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::string struck_file_ QUARRY_GUARDED_BY(mutex_);
};

class FaultyLog final : public rocksdb::FSSequentialFileOwnerWrapper {
 public:
  FaultyLog(Plan& plan, std::string name, std::unique_ptr<rocksdb::FSSequentialFile> file)
      : FSSequentialFileOwnerWrapper(std::move(file)), plan_(plan), name_(std::move(name)) {}

  rocksdb::IOStatus Read(size_t bytes, const rocksdb::IOOptions& options, rocksdb::Slice* result,
                         char* scratch, rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kRead, name_);
    return error == 0 ? FSSequentialFileOwnerWrapper::Read(bytes, options, result, scratch, debug)
                      : ToRocks(error, "read", name_);
  }

 private:
  Plan& plan_;
  const std::string name_;
};

class FaultyTable final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  FaultyTable(Plan& plan, std::string name, std::unique_ptr<rocksdb::FSRandomAccessFile> file)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), plan_(plan), name_(std::move(name)) {}

  rocksdb::IOStatus Read(uint64_t offset, size_t bytes, const rocksdb::IOOptions& options,
                         rocksdb::Slice* result, char* scratch,
                         rocksdb::IODebugContext* debug) const override {
    const int error = plan_.Count(CatalogFault::kRead, name_);
    return error == 0 ? FSRandomAccessFileOwnerWrapper::Read(offset, bytes, options, result, scratch, debug)
                      : ToRocks(error, "read", name_);
  }

 private:
  Plan& plan_;
  const std::string name_;
};

class FaultyFile final : public rocksdb::FSWritableFileOwnerWrapper {
 public:
  FaultyFile(Plan& plan, std::string name, std::unique_ptr<rocksdb::FSWritableFile> file)
      : FSWritableFileOwnerWrapper(std::move(file)), plan_(plan), name_(std::move(name)) {}

  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kAppend, name_);
    if (error == 0) return FSWritableFileOwnerWrapper::Append(data, options, debug);
    const rocksdb::Slice half(data.data(), data.size() / 2);
    const rocksdb::IOStatus torn = FSWritableFileOwnerWrapper::Append(half, options, debug);
    return torn.ok() ? ToRocks(error, "append", name_) : torn;
  }
  rocksdb::IOStatus Append(const rocksdb::Slice& data, const rocksdb::IOOptions& options,
                           const rocksdb::DataVerificationInfo& /*verification*/,
                           rocksdb::IODebugContext* debug) override {
    return Append(data, options, debug);
  }
  // Space is not reserved: in a file system in memory, where tests are, that takes longer than all the rest.
  void PrepareWrite(size_t /*offset*/, size_t /*bytes*/, const rocksdb::IOOptions& /*options*/,
                    rocksdb::IODebugContext* /*debug*/) override {}
  rocksdb::IOStatus Sync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kSync, name_);
    return error == 0 ? FSWritableFileOwnerWrapper::Sync(options, debug) : ToRocks(error, "sync", name_);
  }
  rocksdb::IOStatus Fsync(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kSync, name_);
    return error == 0 ? FSWritableFileOwnerWrapper::Fsync(options, debug) : ToRocks(error, "sync", name_);
  }

 private:
  Plan& plan_;
  const std::string name_;
};

class FaultyFolder final : public rocksdb::FSDirectoryWrapper {
 public:
  FaultyFolder(Plan& plan, std::string name, std::unique_ptr<rocksdb::FSDirectory> folder)
      : FSDirectoryWrapper(std::move(folder)), plan_(plan), name_(std::move(name)) {}

  rocksdb::IOStatus FsyncWithDirOptions(const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug,
                                        const rocksdb::DirFsyncOptions& folder_options) override {
    const int error = plan_.Count(CatalogFault::kSync, name_);
    return error == 0 ? FSDirectoryWrapper::FsyncWithDirOptions(options, debug, folder_options)
                      : ToRocks(error, "sync", name_);
  }

 private:
  Plan& plan_;
  const std::string name_;
};

class FaultyFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit FaultyFileSystem(Plan& plan) : FileSystemWrapper(FileSystemWithLogRoom()), plan_(plan) {}
  const char* Name() const override { return "FaultyFileSystem"; }

  rocksdb::IOStatus NewSequentialFile(const std::string& name, const rocksdb::FileOptions& options,
                                      std::unique_ptr<rocksdb::FSSequentialFile>* file,
                                      rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kOpen, name);
    if (error != 0) return ToRocks(error, "open", name);
    const rocksdb::IOStatus status = FileSystemWrapper::NewSequentialFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyLog>(plan_, name, std::move(*file));
    return status;
  }
  rocksdb::IOStatus NewRandomAccessFile(const std::string& name, const rocksdb::FileOptions& options,
                                        std::unique_ptr<rocksdb::FSRandomAccessFile>* file,
                                        rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kOpen, name);
    if (error != 0) return ToRocks(error, "open", name);
    const rocksdb::IOStatus status = FileSystemWrapper::NewRandomAccessFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyTable>(plan_, name, std::move(*file));
    return status;
  }
  rocksdb::IOStatus NewWritableFile(const std::string& name, const rocksdb::FileOptions& options,
                                    std::unique_ptr<rocksdb::FSWritableFile>* file,
                                    rocksdb::IODebugContext* debug) override {
    if (IsNewOptionsFile(name)) return ToRocks(EIO, "create", name);
    const int error = plan_.Count(CatalogFault::kCreate, name);
    if (error != 0) return ToRocks(error, "create", name);
    const rocksdb::IOStatus status = FileSystemWrapper::NewWritableFile(name, options, file, debug);
    if (status.ok()) *file = std::make_unique<FaultyFile>(plan_, name, std::move(*file));
    return status;
  }
  rocksdb::IOStatus NewDirectory(const std::string& name, const rocksdb::IOOptions& options,
                                 std::unique_ptr<rocksdb::FSDirectory>* folder,
                                 rocksdb::IODebugContext* debug) override {
    const rocksdb::IOStatus status = FileSystemWrapper::NewDirectory(name, options, folder, debug);
    if (status.ok()) *folder = std::make_unique<FaultyFolder>(plan_, name, std::move(*folder));
    return status;
  }
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kRename, from);
    return error == 0 ? FileSystemWrapper::RenameFile(from, to, options, debug)
                      : ToRocks(error, "rename", from);
  }
  rocksdb::IOStatus LinkFile(const std::string& from, const std::string& to,
                             const rocksdb::IOOptions& options, rocksdb::IODebugContext* debug) override {
    const int error = plan_.Count(CatalogFault::kCreate, to);
    return error == 0 ? FileSystemWrapper::LinkFile(from, to, options, debug) : ToRocks(error, "link", to);
  }

 private:
  Plan& plan_;
};

}  // namespace

class CatalogFaults::Impl {
 public:
  Plan plan;

 private:
  const CatalogEnvironmentOverride environment_{std::make_shared<FaultyFileSystem>(plan)};
};

CatalogFaults::CatalogFaults() : impl_(std::make_unique<Impl>()) {}
CatalogFaults::~CatalogFaults() = default;

void CatalogFaults::SetPlan(const CatalogFaultPlan& plan) { impl_->plan.Set(plan); }
uint64_t CatalogFaults::count(CatalogFault kind) const { return impl_->plan.count(kind); }
uint64_t CatalogFaults::strikes() const { return impl_->plan.strikes(); }
std::string CatalogFaults::struck_file() const { return impl_->plan.struck_file(); }

}  // namespace quarry
