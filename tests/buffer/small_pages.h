// A page file with its maps in a folder of its own, a pool over it, and what the rooms above do with them:
// commit a map, restart from the one that was committed last.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/buffer/buffer_pool.h"
#include "support/temporary_folder.h"
#include "support/unsynced_backend.h"

namespace quarry {

// One of each for all tests: a pool of threads is not cheap to make.
inline IoBackend& MemoryBackend() {
  static testing_util::UnsyncedBackend backend;
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
      const bool named =
          entry.path() == spec.path || entry.path() == committed.path || entry.path() == kept.path;
      if (!named) std::filesystem::remove(entry.path());
    }
    return Take(PageFile::Open(backend_, spec, committed, kept));
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
  PageMapName committed, kept;
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
