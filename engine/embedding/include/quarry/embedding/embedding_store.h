// Embedding tables of a database: files in DB/embeddings that the manifest names.
//
//   CreateEmbeddings   a page file with nothing in it: rows are made when they are first touched
//   StoredEmbeddings   an open table: trained in memory, written behind, durable at checkpoints
//   CheckpointAll      the state of several tables, and of whatever else the manifest says, as one commit
//   VerifyEmbeddings, DropEmbeddings
//
// What is on disk is the state of a checkpoint: pages that are written between two checkpoints go to slots
// that the last one does not name (quarry/buffer/page_file.h). A crash at any instant leaves the checkpoint
// before or the new one, of all tables together.
//
// Creating, opening and dropping are for one thread at a time; while that happens, tables that are open may
// be trained and checkpointed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry {

inline constexpr uint32_t kEmbeddingPageBytes = 16 * 1024;

// Makes a table of rows that nobody has written, whatever its size without writing them. kUsage for a name of
// other than letters, digits, - and _; kAlreadyExists; kInvalidArgument for a table that cannot be.
Status CreateEmbeddings(Store& store, std::string_view name, const EmbeddingSpec& spec,
                        uint32_t page_bytes = kEmbeddingPageBytes);

// Removes the table and its files. kNotFound lists what there is, kBusy while somebody has it open.
Status DropEmbeddings(Store& store, std::string_view name);

// An open table with its pages: what is written to table() is lost with this object, except what a checkpoint
// has. One at a time of a table. Store and budget outlive it.
class StoredEmbeddings {
 public:
  // As the last checkpoint left it. Removes what crashes have left in the folder: nobody names it.
  // kNotFound lists what there is; kBusy; kOutOfBudget says how much memory the pool needs at least;
  // kCorruption; kUnsupported for a table of a later Quarry.
  static Result<std::unique_ptr<StoredEmbeddings>> Open(Store& store, MemoryBudget& budget,
                                                        std::string_view name,
                                                        const BufferPoolOptions& options);

  EmbeddingTable& table() { return *table_; }
  const EmbeddingRecord& record() const { return record_; }  // of the last checkpoint
  int64_t timestamp() const { return record_.timestamp; }    // and its timestamp; kNeverWritten before
  BufferPoolStats stats() const { return pool_->stats(); }

  // CheckpointAll of this table alone.
  Status Checkpoint(int64_t timestamp);

 private:
  friend Status CheckpointAll(Store& store, std::span<StoredEmbeddings* const> tables, int64_t timestamp,
                              const std::function<Status(Manifest&)>& also);
  StoredEmbeddings(Store& store, const EmbeddingRecord& record)
      : store_(store), record_(record), next_(record) {}
  Status WriteMap(int64_t timestamp);
  Status Publish(Manifest& manifest) const;
  void Commit();

  Store& store_;
  EmbeddingRecord record_;
  EmbeddingRecord next_;  // of the map that was written last; its generation is never given again
  std::unique_ptr<PageFile> file_;
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<EmbeddingTable> table_;
};

// Makes what the tables hold now their state on disk, and puts into the manifest what `also` does (which may
// be empty), in one commit. REQUIRES: nobody writes to the tables meanwhile, and all rows in them have
// timestamps of at most `timestamp`, as after a Run of the pipeline. kInvalidArgument when it is before that
// of an earlier checkpoint.
//
// After an error, or when `also` returns other than OK (which comes back), training may go on, and so may
// checkpoints if it was no error of a write; a restart finds the checkpoint before. But for a commit that the
// disk failed: that one may have happened, and then a restart finds the new one, whole.
Status CheckpointAll(Store& store, std::span<StoredEmbeddings* const> tables, int64_t timestamp,
                     const std::function<Status(Manifest&)>& also = {});

// Adds the files of embeddings/ that no record names: ours are leftovers of a crash, others are strangers.
Status FindEmbeddingStrays(const Store& store, VerifyReport& report);

// Reads every page of every table's checkpoint, and the timestamps in it; adds what it finds, and strays, to
// the report of VerifyStore. Leftovers of crashes are mentioned and no faults. Holds the page maps, and a
// mebibyte.
Status VerifyEmbeddings(Store& store, const ProgressFunction& progress, VerifyReport& report);

}  // namespace quarry
