// A backend with a gate: who opens or makes a file whose path has a certain text in it waits there until the
// gate is opened. So a test can act while work is at a place that it knows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "quarry/io/backend.h"

namespace quarry::testing_util {

class GateBackend final : public IoBackend {
 public:
  explicit GateBackend(std::string text) : text_(std::move(text)) {}

  void CloseGate() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    waiting_ = false;
  }
  void OpenGate() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  // Until somebody waits at the closed gate; false when nobody has come within half a minute.
  bool WaitForOne() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30), [this] { return waiting_; });
  }

  std::string_view name() const override { return "gate"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_->NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (path.find(text_) != std::string::npos) Pass();
    return inner_->Open(path, mode);
  }
  Result<uint64_t> FileBytes(const File& file) override { return inner_->FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return inner_->ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    return inner_->WriteAt(file, offset, bytes);
  }
  Status SyncFile(const File& file) override { return inner_->SyncFile(file); }
  Status SyncDirectory(const std::string& path) override { return inner_->SyncDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override { return inner_->Rename(from, to); }

 private:
  void Pass() {
    std::unique_lock lock(mutex_);
    if (!closed_) return;
    waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !closed_; });
  }

  const std::string text_;
  const std::unique_ptr<IoBackend> inner_ = MakeDefaultBackend();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  bool waiting_ = false;
};

}  // namespace quarry::testing_util
