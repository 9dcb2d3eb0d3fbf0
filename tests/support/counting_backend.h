// CountingBackend: passes everything on, and counts the bytes that transfers of data move, by file. For tests.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/mutex.h"
#include "support/backend_wrapper.h"

namespace quarry {

class CountingBackend final : public BackendWrapper {
 public:
  // `inner` outlives this backend and its ports.
  explicit CountingBackend(IoBackend& inner) : BackendWrapper(inner) {}

  struct Bytes {
    uint64_t read = 0, written = 0;
  };
  // What ports transferred of files whose paths have this text in them.
  Bytes Of(std::string_view path) {
    MutexLock lock(mutex_);
    Bytes sum;
    for (const auto& [name, bytes] : bytes_) {
      if (name.find(path) == std::string::npos) continue;
      sum.read += bytes.read;
      sum.written += bytes.written;
    }
    return sum;
  }

  std::string_view name() const override { return "counting"; }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    QUARRY_TRY(File file, inner().Open(path, mode));
    MutexLock lock(mutex_);
    paths_[file.descriptor()] = path;  // the number may have been another file's
    return file;
  }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override {
    QUARRY_TRY(std::unique_ptr<IoPort> port, inner().NewPort(depth));
    return std::unique_ptr<IoPort>(std::make_unique<Port>(*this, std::move(port)));
  }

 private:
  // What was asked for: a short transfer's rest is asked for again, so this is exact where none comes back short.
  class Port final : public IoPort {
   public:
    Port(CountingBackend& backend, std::unique_ptr<IoPort> port)
        : backend_(backend), port_(std::move(port)) {}
    Status Submit(std::span<const RawRequest> requests) override {
      {
        MutexLock lock(backend_.mutex_);
        for (const RawRequest& request : requests) {
          Bytes& bytes = backend_.bytes_[backend_.paths_[request.descriptor]];
          (request.kind == RawRequest::Kind::kRead ? bytes.read : bytes.written) += request.bytes;
        }
      }
      return port_->Submit(requests);
    }
    Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
      return port_->Wait(count_min, out);
    }

   private:
    CountingBackend& backend_;
    const std::unique_ptr<IoPort> port_;
  };

  Mutex mutex_;
  std::map<int, std::string> paths_ QUARRY_GUARDED_BY(mutex_);
  std::map<std::string, Bytes> bytes_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
