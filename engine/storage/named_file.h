// Files of tables and topologies that snapshots keep beyond the manifest that named them. Private to this room.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"

namespace quarry {

// Removes files as long as the store is there: snapshots may outlive it, and then nobody knows whether its
// backend does. What stays is a leftover.
class FileRemover {
 public:
  explicit FileRemover(IoBackend& backend) : backend_(&backend) {}
  void Remove(const std::string& path) {
    MutexLock lock(mutex_);
    if (backend_ != nullptr) Discard(*backend_, path);
  }
  void Stop() {
    MutexLock lock(mutex_);
    backend_ = nullptr;
  }

 private:
  Mutex mutex_;
  IoBackend* backend_ QUARRY_GUARDED_BY(mutex_);
};

// A file that the manifest names, which goes with the last that uses it once another has taken its place.
class NamedFile {
 public:
  NamedFile(std::shared_ptr<FileRemover> remover, std::string path)
      : remover_(std::move(remover)), path_(std::move(path)) {}
  ~NamedFile() {
    if (replaced_) remover_->Remove(path_);
  }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  void Replace() { replaced_ = true; }

 private:
  const std::shared_ptr<FileRemover> remover_;
  const std::string path_;
  std::atomic<bool> replaced_{false};
};

// A manifest, and the files of tables and topologies that it names, which stay there while it is held.
struct HeldManifest {
  std::shared_ptr<const Manifest> manifest;
  std::vector<std::shared_ptr<NamedFile>> files;
};

}  // namespace quarry
