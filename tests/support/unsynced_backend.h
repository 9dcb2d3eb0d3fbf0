// A backend that does not wait for the disk: files stay in the page cache. For tests that write many files
// and lose no power. What is asked for as direct must be aligned as if it were.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>

#include "quarry/base/mutex.h"
#include "quarry/io/backend.h"

namespace quarry::testing_util {

class UnsyncedBackend final : public IoBackend {
 public:
  std::string_view name() const override { return "unsynced"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_->NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreateDirect || mode == OpenMode::kReadWriteDirect) {
      MutexLock lock(mutex_);
      direct_.insert(path);
    }
    if (mode == OpenMode::kCreateDirect) return inner_->Open(path, OpenMode::kCreate);
    if (mode == OpenMode::kReadDirect) return inner_->Open(path, OpenMode::kReadBuffered);
    if (mode != OpenMode::kReadWriteDirect) return inner_->Open(path, mode);
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return ErrnoStatus(errno, "open", path);
    return File(descriptor, path, false);
  }
  Result<uint64_t> FileBytes(const File& file) override { return inner_->FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return inner_->ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    constexpr uint64_t kSector = 512;
    const uint64_t odd = (offset | bytes.size() | reinterpret_cast<uint64_t>(bytes.data())) % kSector;
    {
      MutexLock lock(mutex_);
      EXPECT_TRUE(odd == 0 || !direct_.contains(file.path())) << file.path() << " at " << offset;
    }
    return inner_->WriteAt(file, offset, bytes);
  }
  Status Truncate(const File& file, uint64_t bytes) override { return inner_->Truncate(file, bytes); }
  Result<bool> Clone(const File& from, const File& to) override { return inner_->Clone(from, to); }
  Status SyncFile(const File& /*file*/) override { return Status::Ok(); }
  Status SyncDirectory(const std::string& /*path*/) override { return Status::Ok(); }
  Status CreateDirectory(const std::string& path) override { return inner_->CreateDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override { return inner_->Rename(from, to); }
  Status Link(const std::string& from, const std::string& to) override { return inner_->Link(from, to); }
  Status Remove(const std::string& path) override { return inner_->Remove(path); }

 private:
  const std::unique_ptr<IoBackend> inner_ = MakeDefaultBackend();  // threads where QUARRY_IO says so
  Mutex mutex_;
  std::set<std::string> direct_ QUARRY_GUARDED_BY(mutex_);  // opened to be written directly
};

}  // namespace quarry::testing_util
