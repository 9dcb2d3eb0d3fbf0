// A backend whose every operation takes a while: what is prepared through it takes long, on any machine.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "quarry/io/backend.h"

namespace quarry::testing_util {

class SlowBackend final : public IoBackend {
 public:
  std::string_view name() const override { return "slow"; }
  // Sets the delay of every operation from now on; those of ports aside.
  void SetDelay(std::chrono::milliseconds delay) { delay_ms_ = delay.count(); }

  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return Late().NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override { return Late().Open(path, mode); }
  Result<uint64_t> FileBytes(const File& file) override { return inner_->FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return Late().ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    return Late().WriteAt(file, offset, bytes);
  }
  Status Truncate(const File& file, uint64_t bytes) override { return Late().Truncate(file, bytes); }
  Result<bool> Clone(const File& from, const File& to) override { return Late().Clone(from, to); }
  Status SyncFile(const File& file) override { return Late().SyncFile(file); }
  Status SyncDirectory(const std::string& path) override { return Late().SyncDirectory(path); }
  Status CreateDirectory(const std::string& path) override { return Late().CreateDirectory(path); }
  Status Link(const std::string& from, const std::string& to) override { return Late().Link(from, to); }
  Status Remove(const std::string& path) override { return Late().Remove(path); }
  Status Rename(const std::string& from, const std::string& to) override { return Late().Rename(from, to); }

 private:
  IoBackend& Late() {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
    return *inner_;
  }
  const std::unique_ptr<IoBackend> inner_ = MakeDefaultBackend();
  std::atomic<int64_t> delay_ms_{0};
};

}  // namespace quarry::testing_util
