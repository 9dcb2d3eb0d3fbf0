// Embedding tables of a database: files in DB/embeddings that the manifest names.
//
//   CreateEmbeddings   a page file with nothing in it: rows are made when they are first touched
//   StoredEmbeddings   an open table: trained in memory, written behind, durable at checkpoints
//   CheckpointAll      the state of several tables, and of whatever else the manifest says, as one commit
//   ReturnToKept       the state of an earlier checkpoint that was kept beside the last one
//   VerifyEmbeddings, DropEmbeddings
//
// The disk holds the state of a checkpoint: pages written between two checkpoints go to slots that the last
// one does not name (quarry/buffer/page_file.h). A crash at any instant leaves the checkpoint before or the
// new one, of all tables together.
//
// One thread at a time may create, open or drop tables; meanwhile, tables that are open may be trained and
// checkpointed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/parted_table.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry {

inline constexpr uint32_t kEmbeddingPageBytes = 16 * 1024;
inline constexpr uint32_t kEmbeddingDimMax = 1 << 16;

// Pages as large as a row, in 4 KiB. Training's rows are scattered, so larger ones fill a pool with what
// nobody asked for: with 16 KiB a batch reads half as many pages again (bench_link_stored).
uint32_t SmallestPageBytes(const EmbeddingSpec& spec);

// Makes a table of rows that nobody has written, without writing them, whatever its size. kUsage for a name
// with anything but letters, digits, - and _; kAlreadyExists; kInvalidArgument for an impossible table.
Status CreateEmbeddings(Store& store, std::string_view name, const EmbeddingSpec& spec,
                        uint32_t page_bytes = kEmbeddingPageBytes);

// Removes the table and its files. kNotFound lists what there is, kBusy while somebody has it open.
Status DropEmbeddings(Store& store, std::string_view name);

// An open table with its pages. What is written to table() is lost with this object, except what a checkpoint
// has. A table is open once at a time. Store and budget outlive it.
class StoredEmbeddings {
 public:
  // Opens the table as the last checkpoint left it. Removes files that crashes have left in the folder and
  // that nobody names. kNotFound lists what there is; kBusy; kOutOfBudget says how much memory the pool needs
  // at least; kCorruption; kUnsupported for a table of a later Quarry.
  static Result<std::unique_ptr<StoredEmbeddings>> Open(Store& store, MemoryBudget& budget,
                                                        std::string_view name,
                                                        const BufferPoolOptions& options);

  // The same of a table that was created with a layout's file_spec and page_bytes, for training by parts of
  // which up to `frames` are in memory. kInvalidArgument for a table of another layout.
  static Result<std::unique_ptr<StoredEmbeddings>> OpenParts(Store& store, MemoryBudget& budget,
                                                             std::string_view name, PartLayout layout,
                                                             uint32_t frames);

  EmbeddingTable& table() { return parts_ ? *parts_ : *table_; }
  // Null for a table that was opened whole.
  PartedTable* parts() { return parts_.get(); }
  const EmbeddingRecord& record() const { return record_; }  // the last checkpoint's
  int64_t timestamp() const { return record_.timestamp; }    // its timestamp; kNeverWritten before the first
  BufferPoolStats stats() const;

  // As CheckpointAll, for this table alone.
  Status Checkpoint(int64_t timestamp);

 private:
  friend Status CheckpointAll(Store& store, std::span<StoredEmbeddings* const> tables, int64_t timestamp,
                              const std::function<Status(Manifest&)>& also, KeptMap kept);
  StoredEmbeddings(Store& store, const EmbeddingRecord& record)
      : store_(store), record_(record), next_(record) {}
  static Result<std::unique_ptr<StoredEmbeddings>> OpenFile(Store& store, std::string_view name);
  Status WriteMap(int64_t timestamp, KeptMap kept);
  Status Publish(Manifest& manifest) const;
  void Commit(KeptMap kept);

  Store& store_;
  EmbeddingRecord record_;
  EmbeddingRecord next_;  // names the map written last; its generation is never given again
  std::unique_ptr<PageFile> file_;
  // Either pool and table, or parts.
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<EmbeddingTable> table_;
  std::unique_ptr<PartedTable> parts_;
};

// Makes what the tables hold now their state on disk, and applies `also` (which may be empty) to the
// manifest, in one commit. REQUIRES: nobody writes to the tables meanwhile, and all rows in them have
// timestamps of at most `timestamp`, as after a Run of the pipeline. kInvalidArgument when it is before that
// of an earlier checkpoint.
//
// After an error, or when `also` returns other than OK (which comes back), training may go on, and so may
// checkpoints unless a write failed; a restart finds the checkpoint before. The exception is a commit that
// failed on disk: it may have happened, and then a restart finds the new checkpoint, whole.
//
// `kept` says which checkpoint ReturnToKept will find: pages that it has are not overwritten, so that it takes no copy
// of what has not changed since, and at most another version of each page on disk.
Status CheckpointAll(Store& store, std::span<StoredEmbeddings* const> tables, int64_t timestamp,
                     const std::function<Status(Manifest&)>& also = {}, KeptMap kept = KeptMap::kAsBefore);

// Makes the kept checkpoint of these tables the last one of each, and keeps none beside it; applies `also` to the
// manifest in the same commit. Writes no pages. kNotFound; kInvalidArgument for a table that keeps none, and then nothing
// has changed. REQUIRES: none of the tables is open.
Status ReturnToKept(Store& store, std::span<const std::string> names,
                    const std::function<Status(Manifest&)>& also = {});

}  // namespace quarry
