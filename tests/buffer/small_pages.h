// A page file with its maps in a folder of its own, a pool over it, and what the rooms above do with them:
// commit a map, restart from the one that was committed last.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/buffer/buffer_pool.h"
#include "support/temporary_folder.h"

namespace quarry {

// Does not wait for the disk, for tests with thousands of transfers and syncs that lose no power: files stay
// in the page cache. What is asked for as direct must be aligned as if it were.
class UnsyncedBackend final : public IoBackend {
 public:
  std::string_view name() const override { return "unsynced"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_->NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreateDirect) return inner_->Open(path, OpenMode::kCreate);
    if (mode != OpenMode::kReadWriteDirect) return inner_->Open(path, OpenMode::kReadBuffered);
    const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return ErrnoStatus(errno, "open", path);
    return File(descriptor, path, false);
  }
  Result<uint64_t> FileBytes(const File& file) override { return inner_->FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    CheckAlignment(offset, out);
    return inner_->ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    CheckAlignment(offset, bytes);
    return inner_->WriteAt(file, offset, bytes);
  }
  Status SyncFile(const File& /*file*/) override { return Status::Ok(); }
  Status SyncDirectory(const std::string& /*path*/) override { return Status::Ok(); }
  Status Rename(const std::string& from, const std::string& to) override { return inner_->Rename(from, to); }

 private:
  static void CheckAlignment(uint64_t offset, std::span<const std::byte> bytes) {
    EXPECT_EQ((offset | bytes.size() | reinterpret_cast<uint64_t>(bytes.data())) % 512, 0u);
  }
  const std::unique_ptr<IoBackend> inner_ =
      MakeDefaultBackend();  // threads when QUARRY_IO says so, as under TSan
};

// One of each for all tests: a pool of threads is not cheap to make.
inline IoBackend& MemoryBackend() {
  static UnsyncedBackend backend;
  return backend;
}
inline IoBackend& DiskBackend() {
  static const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  return *backend;
}

class SmallPages {
 public:
  explicit SmallPages(IoBackend& backend, uint32_t page_count = 64, uint32_t page_bytes = 4096)
      : backend_(backend) {
    spec.path = folder / "pages.qpf";
    spec.database_id.fill(std::byte{7});
    spec.page_bytes = page_bytes;
    spec.page_count = page_count;
  }

  Status Create() { return Take(PageFile::Create(backend_, spec)); }
  // As after a crash: with the map that was committed last, and without what was left over.
  Status Restart() {
    Close();
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path() != spec.path && entry.path() != committed.path) std::filesystem::remove(entry.path());
    }
    return Take(PageFile::Open(backend_, spec, committed));
  }
  void Close() {
    pool.reset();
    file.reset();
  }

  // With the fewest frames that there may be, and `more_frames`.
  Status OpenPool(uint32_t more_frames = 0, BufferPoolOptions options = {}) {
    options.memory_bytes = BufferPool::BytesMin(*file) + uint64_t{more_frames} * (spec.page_bytes + 1024);
    Result<std::unique_ptr<BufferPool>> made = BufferPool::Make(backend_, *file, budget, options, Init);
    if (!made.ok()) return made.status();
    pool = std::move(made).value();
    return Status::Ok();
  }

  PageMapName MapName(uint64_t generation) const {
    return {folder / ("map-" + std::to_string(generation)), generation};
  }
  Status Checkpoint() {
    QUARRY_RETURN_IF_ERROR(pool->Flush());
    const PageMapName name = MapName(committed.generation + 1);
    QUARRY_RETURN_IF_ERROR(file->WriteMap(name.path, name.generation));
    committed = name;
    file->CommitMap();
    return Status::Ok();
  }

  // What a page holds that was never written.
  static void Init(PageNumber page, std::span<std::byte> body) {
    std::ranges::fill(body, static_cast<std::byte>(page + 1));
  }
  std::vector<std::byte> InitialBody(PageNumber page) const {
    std::vector<std::byte> body(spec.page_bytes - sizeof(PageHeader));
    Init(page, body);
    return body;
  }

  TemporaryFolder folder{"buffer"};
  PageFileSpec spec;
  PageMapName committed;
  MemoryBudget budget{uint64_t{1} << 30};
  std::unique_ptr<PageFile> file;
  std::unique_ptr<BufferPool> pool;

 private:
  Status Take(Result<std::unique_ptr<PageFile>> opened) {
    if (opened.ok()) file = std::move(opened).value();
    return opened.status();
  }
  IoBackend& backend_;
};

// A random change of a body; the same for a page and for the model of it.
inline void Change(std::span<std::byte> body, uint64_t seed) {
  Rng rng(seed);
  for (int i = 0; i < 16; ++i) body[rng.Below(body.size())] = static_cast<std::byte>(rng());
}

}  // namespace quarry
