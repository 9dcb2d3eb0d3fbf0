// ExternalSorter: keys in any order in, ascending out, in bounded memory.
//
// Keys gather in a buffer that grows to half of the memory; when it is full it is radix-sorted (the other
// half is the sort's scratch) and spilled as a *run* by large direct writes. Reading merges the runs through
// a loser tree, every run by its own window. What fits in the buffer is never spilled. Runs that outnumber
// the windows that memory allows are merged into longer ones first.
//
//   kAdding -> kReading [Finish]
//
// Owned and used by one thread. The scratch files are removed when the sorter dies, and by the kernel when
// the process does (they are unlinked as soon as they are open).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry {

// Sorts keys[0, count) by radix, least significant byte first, in one pass per byte in which keys differ;
// returns whichever of the two buffers holds the result. REQUIRES: scratch has room for count keys.
template <typename Key>
Key* RadixSort(Key* keys, Key* scratch, size_t count);

struct ExternalSortOptions {
  uint64_t memory_bytes = 0;      // at least kExternalSortBytesMin
  std::string scratch_directory;  // exists
  bool deduplicate = false;       // equal keys come out once
};
inline constexpr uint64_t kExternalSortBytesMin = 2 << 20;

// A file of keys in runs, each starting at a page.
class RunFile {
 public:
  struct Run {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  static Result<std::unique_ptr<RunFile>> Create(IoBackend& backend, const std::string& directory);
  // Appends to the open run. REQUIRES: `bytes` lie at a page's start and have room up to a whole number of
  // pages; all but the run's last call give whole pages.
  Status Append(std::span<const std::byte> bytes);
  void EndRun();
  // Reads whole pages of a run from `offset` in it; up to the end of its last page.
  Status Read(const Run& run, uint64_t offset, std::span<std::byte> out) const;
  const std::vector<Run>& runs() const { return runs_; }

 private:
  RunFile(IoBackend& backend, File file) : backend_(backend), file_(std::move(file)) {}
  IoBackend& backend_;
  File file_;
  Run open_;
  std::vector<Run> runs_;
};

template <typename Key>
class ExternalSorter {
 public:
  // The key that must not occur: the loser tree's "no more".
  static constexpr Key kNoKey = ~Key{0};

  ExternalSorter(IoBackend& backend, ExternalSortOptions options);
  ~ExternalSorter();
  ExternalSorter(const ExternalSorter&) = delete;
  ExternalSorter& operator=(const ExternalSorter&) = delete;

  Status Add(std::span<const Key> keys);
  Status Finish();
  // Fills a prefix of `out` with the next keys, ascending; returns its length, 0 at the end. REQUIRES: Finish
  // succeeded.
  Result<size_t> Read(std::span<Key> out);

  uint64_t spilled_bytes() const { return spilled_bytes_; }  // over all passes

 private:
  class Merger;
  Key* keys() const { return reinterpret_cast<Key*>(buffer_.data()); }
  Status MakeRoom();
  Status SortBuffer();
  Status Spill();
  Status MergeDown();

  IoBackend& backend_;
  const ExternalSortOptions options_;
  const uint64_t capacity_;  // keys in half of the memory
  IoBuffer buffer_;
  IoBuffer scratch_;
  uint64_t count_ = 0;  // keys in buffer_
  uint64_t read_ = 0;   // keys of them that were read
  std::unique_ptr<RunFile> runs_;
  std::unique_ptr<Merger> merger_;
  uint64_t spilled_bytes_ = 0;
};

extern template class ExternalSorter<uint64_t>;
extern template class ExternalSorter<uint128_t>;
extern template uint64_t* RadixSort(uint64_t*, uint64_t*, size_t);
extern template uint128_t* RadixSort(uint128_t*, uint128_t*, size_t);

}  // namespace quarry
