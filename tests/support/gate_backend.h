// A backend with a gate: who opens or makes a file whose path has a certain text in it waits there until the
// gate is opened. So a test can act while work is at a place that it knows.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "support/backend_wrapper.h"

namespace quarry::testing_util {

class GateBackend final : public BackendWrapper {
 public:
  explicit GateBackend(std::string text) : GateBackend(std::move(text), MakeDefaultBackend()) {}

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
    if (path.find(text_) != std::string::npos) Pass();
    return BackendWrapper::Open(path, mode);
  }

 private:
  GateBackend(std::string text, std::unique_ptr<IoBackend> kept)
      : BackendWrapper(*kept), text_(std::move(text)), kept_(std::move(kept)) {}

  void Pass() {
    std::unique_lock lock(mutex_);
    if (closed_) {
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !closed_; });
    }
    ++passed_;
  }

  const std::string text_;
  const std::unique_ptr<IoBackend> kept_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t passed_ = 0;
  bool closed_ = false;
  bool waiting_ = false;
};

}  // namespace quarry::testing_util
