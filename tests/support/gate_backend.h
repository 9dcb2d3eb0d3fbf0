// A backend with a gate: who opens or makes a file whose path has a certain text in it, or does what a test says, waits there
// until the gate is opened. So a test can act while work is at a place that it knows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "support/backend_wrapper.h"

namespace quarry::testing_util {

class GateBackend final : public BackendWrapper {
 public:
  // Whether who opens the file in this mode stops, or who syncs it: then there is none.
  using Stops = std::function<bool(const std::string& path, std::optional<OpenMode> mode)>;

  explicit GateBackend(const std::string& text)
      : GateBackend([text](const std::string& path, std::optional<OpenMode> mode) {
          return mode && path.find(text) != std::string::npos;
        }) {}
  explicit GateBackend(Stops stops) : GateBackend(std::move(stops), MakeDefaultBackend()) {}

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
  // Until somebody waits at the closed gate.
  void WaitForOne() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_; });
  }
  // How many have been let through so far.
  uint64_t passed() const {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (stops_(path, mode)) Pass();
    return BackendWrapper::Open(path, mode);
  }
  Status SyncFile(const File& file) override {
    if (stops_(file.path(), std::nullopt)) Pass();
    return BackendWrapper::SyncFile(file);
  }

 private:
  GateBackend(Stops stops, std::unique_ptr<IoBackend> kept)
      : BackendWrapper(*kept), stops_(std::move(stops)), kept_(std::move(kept)) {}

  void Pass() {
    std::unique_lock lock(mutex_);
    if (closed_) {
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !closed_; });
    }
    ++passed_;
  }

  const Stops stops_;
  const std::unique_ptr<IoBackend> kept_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t passed_ = 0;
  bool closed_ = false;
  bool waiting_ = false;
};

}  // namespace quarry::testing_util
