// EmbeddingService: embedding tables that several trainers train at a time (docs/protocol.md, "Training
// embeddings together"). One order of commits: an update happens if every row still has the timestamp that
// its trainer read, under the next timestamp, or not at all. That is optimistic concurrency control: validated
// at the commit, refused when stale. It is not OAC (oac.h, Waleffe §3.2.2), which replaces stale rows before
// the computation and refuses nothing: for that, values would have to be computed here, in one order.
//
// Timestamps go on from the last checkpoint. So the tables are, bit for bit, what the commits that happened
// give one after the other, in the order of their timestamps. A reader sees each row whole, as some commit
// left it; of several rows, one may be as before a commit and another as after it. A commit that was computed
// from such a mixture is refused, since the older row is stale by then.
//
// Thread-safe; called by workers (it reads from disk). Lock order: commits < tables.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/format/wire_batch.h"
#include "quarry/format/wire_responses.h"
#include "quarry/storage/store.h"

namespace quarry {

class StoredEmbeddings;

class EmbeddingService {
 public:
  // Tables are opened when they are first asked for, each with a buffer pool of at most `pool_bytes` of
  // `budget`, and less when less is there. Store and budget outlive the service. What no checkpoint has is
  // lost with it.
  EmbeddingService(Store& store, MemoryBudget& budget, uint64_t pool_bytes);
  ~EmbeddingService();

  // As CreateEmbeddings, in pages for training.
  Status Create(std::string_view table, const EmbeddingSpec& spec);
  // As DropEmbeddings. kBusy while another thread reads the table or commits to it, and when a run of this
  // process trains it. What no checkpoint has is lost also when the disk fails and the table stays.
  Status Drop(std::string_view table);

  // kNotFound lists what there is; kOutOfBudget says how much memory the table needs at least; kBusy when a
  // run of this process trains it; kCorruption.
  Result<EmbeddingSpec> Spec(std::string_view table);
  // Fills the block of `ids`, whose arrays are `block`. Errors as Spec; kInvalidArgument for ids that are not
  // ascending, unique and within the table, and for arrays of other sizes than ids and table have.
  Status Read(std::string_view table, std::span<const uint64_t> ids, const wire::RowBlockArrays<true>& block);
  struct Update {
    std::string table;
    wire::RowBlockShape shape;
    std::vector<std::byte> block;  // a row block, the server's own copy
  };
  // All or none. Errors as Read; kInvalidArgument also for malformed blocks, shapes that differ from the
  // table's, and a table that is named twice. An error of the disk in the middle of the updates leaves a part
  // of them: all later commits and checkpoints are refused with it, and a restart finds the last checkpoint.
  Result<wire::EmbeddingsCommitted> Commit(std::span<const Update> updates);
  // Everything committed so far is on disk afterwards, as one checkpoint of all tables; commits wait
  // meanwhile. Without a commit since the last one, nothing is written.
  Status Checkpoint() { return Checkpoint({}); }
  // The same, together with what `also` does to the manifest, which is done in any case; it is told the
  // timestamp of the last commit.
  Status Checkpoint(const std::function<Status(Manifest&, int64_t timestamp)>& also);
  // Does `work` while nothing is committed and no checkpoint is made here: whoever wants to waits.
  Status HoldStill(const std::function<Status()>& work);

 private:
  struct Change;

  Result<std::shared_ptr<EmbeddingTable>> Find(std::string_view name);
  Result<Change> Check(const Update& update);
  Result<uint64_t> StaleRows(const Change& change) QUARRY_REQUIRES(commits_);
  Status Write(const Change& change, int64_t timestamp) QUARRY_REQUIRES(commits_);

  Store& store_;
  MemoryBudget& budget_;
  const uint64_t pool_bytes_;

  Mutex commits_;  // held over a whole commit, and over a checkpoint
  int64_t last_timestamp_ QUARRY_GUARDED_BY(commits_) = kNeverWritten;
  int64_t checkpointed_ QUARRY_GUARDED_BY(commits_) = kNeverWritten;
  Status broken_ QUARRY_GUARDED_BY(commits_);  // a commit happened by half

  Mutex tables_mutex_;
  std::map<std::string, std::shared_ptr<StoredEmbeddings>, std::less<>> tables_
      QUARRY_GUARDED_BY(tables_mutex_);  // closed when they are dropped
};

}  // namespace quarry
