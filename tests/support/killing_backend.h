// A backend that kills its process by SIGKILL at the k-th operation that changes files: for tests whose child
// is to die there.
#pragma once

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>

#include "support/backend_wrapper.h"

namespace quarry::testing_util {

class KillingBackend final : public BackendWrapper {
 public:
  // Counted from 1; 0 = never.
  KillingBackend(IoBackend& inner, uint64_t kill_at) : BackendWrapper(inner), kill_at_(kill_at) {}
  std::string_view name() const override { return "killing"; }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect) Count();
    return inner().Open(path, mode);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    Count();
    return inner().WriteAt(file, offset, bytes);
  }
  Status SyncFile(const File& file) override {
    Count();
    return inner().SyncFile(file);
  }
  Status SyncDirectory(const std::string& path) override {
    Count();
    return inner().SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    Count();
    return inner().Rename(from, to);
  }
  Status Truncate(const File& file, uint64_t bytes) override {
    Count();
    return inner().Truncate(file, bytes);
  }
  Status CreateDirectory(const std::string& path) override {
    Count();
    return inner().CreateDirectory(path);
  }
  Status Link(const std::string& from, const std::string& to) override {
    Count();
    return inner().Link(from, to);
  }
  Status Remove(const std::string& path) override {
    Count();
    return inner().Remove(path);
  }

 private:
  void Count() {
    if (++count_ == kill_at_) raise(SIGKILL);
  }
  const uint64_t kill_at_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace quarry::testing_util
