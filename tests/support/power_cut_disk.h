// A disk whose power can be cut at any moment. What happens to the files below a folder, by a PowerCutBackend
// and by RocksDB (catalog_watch.h), goes into one log; Build makes the folder as a power cut behind any of
// its operations may leave it, as often as one likes.
//
// What is left, by POSIX and no more: bytes of a file up to an fsync of it that began after they were
// written; names in a folder up to an fsync of that folder (one of a new file does not keep its name). Any
// part of the rest, by a seed: bytes in sectors of 512, in any order, with zeros where the file is longer
// than what came; names one by one. Only renames hold together, as on any file system with a journal: the old
// name does not go unless the new one is there, a folder is never in two places, and RocksDB's CURRENT does
// not get ahead of the MANIFEST that it leads to. Two things are RocksDB's own: that, and that a MANIFEST
// loses its end and nothing before.
//
// A write counts as done when its completion was handed out; while it is under way it may be there as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quarry/base/mutex.h"
#include "support/backend_wrapper.h"
#include "support/catalog_watch.h"

namespace quarry::testing_util {

class PowerCutDisk {
 public:
  // What is below `root` now is there for good. Nobody changes it but through this disk, except for files of
  // the names LOCK and IDENTITY, which hold nothing.
  explicit PowerCutDisk(const std::string& root);

  // Syncs that it is true for are not done: for tests of tests. `path` is what the folder or file was called
  // when it was opened. Before the first operation.
  using Ignored = std::function<bool(std::string_view path, bool folder)>;
  void IgnoreSyncs(Ignored ignored) { ignored_ = std::move(ignored); }

  // Operations so far. What is acknowledged now must be there after a cut at this one or a later one.
  uint64_t now() const;
  // Makes the folder `to`, which must not exist, as a cut after the first `at` operations leaves it.
  void Build(uint64_t at, uint64_t seed, const std::string& to) const;
  // The last `count` of the first `at` operations, a line each: for who looks into a failure.
  std::string Operations(uint64_t at, uint64_t count) const;
  // Where the files below the root are not what the log makes of them; empty when they are. Something has
  // gone past the disk then.
  std::string Difference() const;

  // For PowerCutBackend and CatalogWatch. Paths elsewhere, and files that it knows nothing of, are let alone.

  using Node = uint32_t;  // a file or folder, whatever it is called
  static constexpr Node kNoNode = 0;
  using Perform = CatalogWatch::Perform;
  Node Find(const std::string& path) const;
  Node Create(const std::string& path, const Perform& perform);  // empties a file that is there
  void CreateDirectory(const std::string& path, const Perform& perform);
  void Rename(const std::string& from, const std::string& to, const Perform& perform);
  void Link(const std::string& from, const std::string& to, const Perform& perform);
  void Remove(const std::string& path, const Perform& perform);
  // A write is under way from here on; the number to end it with.
  uint64_t BeginWrite(Node node, uint64_t offset, std::span<const std::byte> bytes);
  void EndWrite(uint64_t write, uint64_t bytes);
  void Truncate(Node node, uint64_t bytes, const Perform& perform);
  void SyncFile(Node node, std::string_view path, const Perform& perform);
  void SyncDirectory(const std::string& path, const Perform& perform);
  void Watch(const CatalogOperation& operation, const Perform& perform);

 private:
  using Bytes = std::vector<std::byte>;
  using Names = std::map<std::string, Node>;
  struct Inode {
    bool folder = false;
    std::string path;  // as it was called first
    // As they were at the start, and as they are.
    Bytes first_bytes, bytes;
    Names first_names, names;
  };
  struct Naming {
    Node folder = kNoNode;
    std::string name;
    Node node = kNoNode;  // kNoNode: the name goes
  };
  struct Event {
    enum class Kind : uint8_t { kWrite, kTruncate, kSyncFile, kNames, kSyncFolder };
    Kind kind = Kind::kWrite;
    Node node = kNoNode;
    uint64_t offset = 0;  // the new size of kTruncate
    Bytes bytes;
    std::vector<Naming> names;  // of a rename: the new name, the old one
    // On a clock that all of them move: a sync is of what was done before it began.
    uint64_t began = 0, done = ~uint64_t{0};
  };
  struct Place {
    Node folder = kNoNode;
    std::string name;
    Node node = kNoNode;
  };
  class Replay;

  Node Load(const std::string& path, std::map<std::pair<uint64_t, uint64_t>, Node>& known);
  Place PlaceOf(const std::string& path) const QUARRY_REQUIRES(mutex_);
  void Name(std::vector<Naming> names) QUARRY_REQUIRES(mutex_);
  uint64_t Log(Event event) QUARRY_REQUIRES(mutex_);
  std::string DifferenceOf(Node node, const std::string& path) const QUARRY_REQUIRES(mutex_);
  static void Write(Bytes& file, uint64_t offset, std::span<const std::byte> bytes);

  const std::string root_;
  Ignored ignored_;
  mutable Mutex mutex_;
  std::vector<Inode> inodes_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Event> events_ QUARRY_GUARDED_BY(mutex_);
  uint64_t clock_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::unordered_map<uint64_t, Node> catalog_files_ QUARRY_GUARDED_BY(mutex_);
};

class PowerCutBackend final : public BackendWrapper {
 public:
  // Both outlive it.
  PowerCutBackend(IoBackend& inner, PowerCutDisk& disk) : BackendWrapper(inner), disk_(disk) {}

  std::string_view name() const override { return "power cut"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override;
  Result<File> Open(const std::string& path, OpenMode mode) override;
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override;
  Status Truncate(const File& file, uint64_t bytes) override;
  // Is refused: who clones can also copy.
  Result<bool> Clone(const File& /*from*/, const File& /*to*/) override { return false; }
  Status SyncFile(const File& file) override;
  Status SyncDirectory(const std::string& path) override;
  Status CreateDirectory(const std::string& path) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Link(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;

 private:
  class Port;
  PowerCutDisk::Node NodeOf(int descriptor);

  PowerCutDisk& disk_;
  Mutex mutex_;
  std::unordered_map<int, PowerCutDisk::Node> nodes_ QUARRY_GUARDED_BY(mutex_);  // by descriptor
};

}  // namespace quarry::testing_util
