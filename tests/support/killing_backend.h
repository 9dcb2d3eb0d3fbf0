// A backend that kills its process by SIGKILL at the k-th operation that changes files: for tests whose child
// is to die there.
#pragma once

#include <signal.h>

#include <atomic>
#include <memory>
#include <string>

#include "quarry/io/backend.h"

namespace quarry::testing_util {

class KillingBackend final : public IoBackend {
 public:
  // Counted from 1; 0 = never.
  KillingBackend(IoBackend& inner, uint64_t kill_at) : inner_(inner), kill_at_(kill_at) {}
  std::string_view name() const override { return "killing"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_.NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect) Count();
    return inner_.Open(path, mode);
  }
  Result<uint64_t> FileBytes(const File& file) override { return inner_.FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return inner_.ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    Count();
    return inner_.WriteAt(file, offset, bytes);
  }
  Status SyncFile(const File& file) override {
    Count();
    return inner_.SyncFile(file);
  }
  Status SyncDirectory(const std::string& path) override {
    Count();
    return inner_.SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    Count();
    return inner_.Rename(from, to);
  }

 private:
  void Count() {
    if (++count_ == kill_at_) raise(SIGKILL);
  }
  IoBackend& inner_;
  const uint64_t kill_at_;
  std::atomic<uint64_t> count_{0};
};

}  // namespace quarry::testing_util
