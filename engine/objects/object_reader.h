// ObjectReader: bytes of published files (remote_manifest.h), fetched by whole blocks, each verified before a byte of it is
// used. Private to this room.
//
//   free -> loading [a read needs it, or will soon] -> ready [cache or store brought it, whole] -> free [another needs its memory]
//
// A block comes from the cache on this machine's disk, else from the store, which the cache is then given. Files that are
// read front to back are read ahead, as far as there are buffers: a store answers after a delay, so throughput is bytes on
// their way ÷ delay. A file has several fronts, as layouts have chunks and segments.
//
// Thread-safe. Threads of its own wait for the disk, copy what came, and call the functions of reads. The reader outlives
// its reads; the destructor cancels the store's requests.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/io/buffer.h"
#include "quarry/objects/block_cache.h"
#include "quarry/objects/object_store.h"
#include "quarry/objects/remote_manifest.h"
#include "quarry/objects/thin_database.h"

namespace quarry {

class ObjectReader {
 public:
  using Done = std::function<void(const Status&)>;

  // `store` and `cache` (null: there is none) outlive it. As many buffers as the budget has room for, up to `blocks_max`;
  // kOutOfBudget for less than kThinBlocksMin.
  static Result<std::unique_ptr<ObjectReader>> Make(ObjectStore& store, BlockCache* cache,
                                                    MemoryBudget& budget, std::vector<RemoteFile> files,
                                                    unsigned blocks_max);
  ~ObjectReader();
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  const std::vector<RemoteFile>& files() const { return files_; }
  // Reads all of `out` from the file's offset, and calls `done` once, here or on a thread of the reader's. `out` is in use
  // until then. kCorruption when the file ends before.
  void Start(size_t file, uint64_t offset, std::span<std::byte> out, Done done);
  Status Read(size_t file, uint64_t offset, std::span<std::byte> out);  // the same, and waits

  ObjectReadStatistics statistics() const;

 private:
  struct Transfer;
  struct Piece;
  struct Block;
  struct Front;
  struct Task;
  using Key = std::pair<size_t, size_t>;  // file and block

  ObjectReader(ObjectStore& store, BlockCache* cache, std::vector<RemoteFile> files);
  void Settle() QUARRY_REQUIRES(mutex_);
  bool BeginLoading(Key key, bool ahead) QUARRY_REQUIRES(mutex_);
  Block* TakeBuffer(bool ahead) QUARRY_REQUIRES(mutex_);
  void ReadAhead(Key key) QUARRY_REQUIRES(mutex_);
  void Push(Task task) QUARRY_REQUIRES(mutex_);
  void Run();
  void Load(Block& block) QUARRY_EXCLUDES(mutex_);
  void Arrive(Block& block, const Status& status, bool from_store) QUARRY_EXCLUDES(mutex_);
  void Serve(Block& block, std::span<Piece> pieces, const Status& status) QUARRY_EXCLUDES(mutex_);
  void Break(const Status& why) QUARRY_EXCLUDES(mutex_);

  ObjectStore& store_;
  BlockCache* const cache_;
  const std::vector<RemoteFile> files_;
  MemoryBudget::Reservation reservation_;
  std::vector<std::unique_ptr<Block>> blocks_;  // their number is constant; what is in them is guarded

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Key, Block*> there_ QUARRY_GUARDED_BY(mutex_);                  // loading or ready
  std::deque<Piece> waiting_ QUARRY_GUARDED_BY(mutex_);                    // for a buffer
  std::map<size_t, std::vector<Front>> fronts_ QUARRY_GUARDED_BY(mutex_);  // by file
  std::deque<Task> tasks_ QUARRY_GUARDED_BY(mutex_);
  uint64_t clock_ QUARRY_GUARDED_BY(mutex_) = 0;    // counts pieces
  size_t ahead_ QUARRY_GUARDED_BY(mutex_) = 0;      // blocks that nobody asked for yet
  unsigned getting_ QUARRY_GUARDED_BY(mutex_) = 0;  // requests whose function was not called yet
  bool ending_ QUARRY_GUARDED_BY(mutex_) = false;
  Status broken_ QUARRY_GUARDED_BY(mutex_);  // a thread found no memory: nothing goes on
  ObjectReadStatistics statistics_ QUARRY_GUARDED_BY(mutex_);

  std::vector<Thread> threads_;  // last: die before what they use
};

}  // namespace quarry
