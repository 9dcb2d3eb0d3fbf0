// BackendWrapper: an IoBackend that passes everything on to another. For tests, which override what they
// test.
//
// `inner` outlives it, its ports and its files. As thread-safe as that one.
#pragma once

#include <memory>
#include <string>

#include "quarry/io/backend.h"

namespace quarry {

class BackendWrapper : public IoBackend {
 public:
  explicit BackendWrapper(IoBackend& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  const RemoteFiles* remote_files() const override { return inner_.remote_files(); }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_.NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override { return inner_.Open(path, mode); }
  Result<uint64_t> FileBytes(const File& file) override { return inner_.FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return inner_.ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    return inner_.WriteAt(file, offset, bytes);
  }
  Status Truncate(const File& file, uint64_t bytes) override { return inner_.Truncate(file, bytes); }
  Result<bool> Clone(const File& from, const File& to) override { return inner_.Clone(from, to); }
  Status SyncFile(const File& file) override { return inner_.SyncFile(file); }
  Status SyncDirectory(const std::string& path) override { return inner_.SyncDirectory(path); }
  Status CreateDirectory(const std::string& path) override { return inner_.CreateDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override { return inner_.Rename(from, to); }
  Status Link(const std::string& from, const std::string& to) override { return inner_.Link(from, to); }
  Status Remove(const std::string& path) override { return inner_.Remove(path); }

 protected:
  IoBackend& inner() const { return inner_; }

 private:
  IoBackend& inner_;
};

}  // namespace quarry
