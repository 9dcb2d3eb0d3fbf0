// BlockCache: blocks of objects on a disk of this machine, by their checksums; bounded, and shared by processes.
//
//   FOLDER/index    a page of header, then a page for each set of slots, with 16 bytes for each: checksum, bytes, second of
//                   the last use
//   FOLDER/blocks   slots of kRemoteBlockBytes each; the file grows to the limit, and no further
//
// A block is found by its content alone: what a slot holds is verified against the checksum that is asked for, on every
// read. So nothing is synced, no order of writes matters, and neither a kill, a loss of power, a flipped bit nor another
// process that takes the slot meanwhile can make a wrong block of it: the block is not there, and is fetched again.
//
// A block may lie in either of two sets of slots (by two hashes of its checksum), so that a cache as large as what is read
// holds nearly all of it. A full set takes one new block in kAdmitOneIn, in place of the one that was used longest ago:
// epochs read the same blocks in the same order, of which LRU, admitting all, would keep none until they come again
// (bimodal insertion: Qureshi et al., ISCA 2007).
//
// Thread-safe. Calls read and write the disk on the caller's thread. Errors of the disk after opening are no errors of a
// call: the block counts as missing, or is not kept, and `statistics` tells.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/mutex.h"
#include "quarry/base/random.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

struct BlockCacheStatistics {
  uint64_t hits = 0, misses = 0;
  uint64_t stored = 0;
  uint64_t damaged = 0;  // of the misses: the slot held something else than the index says
  uint64_t failed = 0;   // reads and writes that the disk refused
};

class BlockCache {
 public:
  static constexpr uint64_t kBytesMin = 64 << 20;
  static constexpr unsigned kAdmitOneIn = 8;

  // Makes the folder where there is none (its parent must exist), and an empty cache where there is none of this size: one
  // that is given another size begins anew. kUsage below kBytesMin; kBusy while another process uses it with another size;
  // kAlreadyExists when the folder holds files of somebody else.
  static Result<std::unique_ptr<BlockCache>> Open(IoBackend& backend, const std::string& folder,
                                                  uint64_t bytes_max, uint64_t seed = 0);
  BlockCache(const BlockCache&) = delete;
  BlockCache& operator=(const BlockCache&) = delete;

  // Fills the first `bytes` of `buffer`, if the block of this checksum is there, whole. `buffer` has whole pages, aligned
  // to one, as the disk is read directly.
  bool Get(uint64_t checksum, uint64_t bytes, std::span<std::byte> buffer);
  // Keeps a block, unless its sets are full and it is not its turn. `buffer` as above.
  void Put(uint64_t checksum, uint64_t bytes, std::span<const std::byte> buffer);

  uint64_t slots() const { return sets_ * set_slots_; }
  BlockCacheStatistics statistics() const;

 private:
  struct Entry;
  struct Set;
  BlockCache(IoBackend& backend, uint64_t sets, uint64_t set_slots, uint64_t seed)
      : backend_(backend), sets_(sets), set_slots_(set_slots), rng_(seed) {}
  Status OpenFiles(const std::string& folder);
  Status Begin(const std::string& folder) const;
  uint64_t SetOf(uint64_t checksum, unsigned choice) const;
  Status ReadSet(uint64_t number, Set& set) const;
  Status WriteSet(uint64_t number, const Set& set) const;
  // Has the slot's entry say this, unless it says something else than `expected` by now.
  Status Replace(uint64_t slot, const Entry& expected, const Entry& entry) QUARRY_EXCLUDES(mutex_);
  // The slot that is the block's to take, with what its entry says; nothing where it is not the block's turn, or is there.
  struct Taken;
  Result<bool> Take(uint64_t checksum, uint64_t bytes, Taken& taken) QUARRY_EXCLUDES(mutex_);
  void Note(uint64_t BlockCacheStatistics::*count) QUARRY_EXCLUDES(mutex_);
  void Failed(const Status& why) QUARRY_EXCLUDES(mutex_);

  IoBackend& backend_;
  const uint64_t sets_, set_slots_;
  File lock_;  // the folder: shared while it is used, exclusive while files are made in it
  File index_, blocks_;
  mutable Mutex mutex_;
  Rng rng_ QUARRY_GUARDED_BY(mutex_);
  bool told_ QUARRY_GUARDED_BY(mutex_) = false;  // that the disk failed
  BlockCacheStatistics statistics_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
