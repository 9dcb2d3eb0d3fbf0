// LinkRun: a run of link prediction whose vectors lie in its database: more of them than memory holds, and
// durable at checkpoints, from which training goes on.
//
//   tables       the embedding tables NAME-nodes and NAME-relations (quarry/embedding/embedding_store.h), as
//                much of them in buffer pools as the budget has room for
//   checkpoint   both tables and the place in the training (quarry/storage/training_state.h), in one commit:
//                all batches up to the place, and none later
//
// Which edges a batch has, and which negatives, is a function of (seed, epoch, batch), so tables, place and
// what the task has learned beside them are all that a run needs. In order, kSync and kOac go on bit for bit
// as if they had never stopped.
//
// One thread. Store and budget outlive the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/storage/store.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

struct LinkRunOptions {
  enum class Start : uint8_t {
    kNew,        // kAlreadyExists when the run has a checkpoint
    kOverwrite,  // removes it, with its tables, first of all
    kResume,     // goes on from it; kNotFound without one
  };
  std::string name = "link";
  Start start = Start::kNew;
  // Training batches from one checkpoint to the next, counted through all epochs; 0: only the one that is
  // taken in any case at the end of training.
  uint64_t checkpoint_every = 0;
  // False: no checkpoint at all. The tables are scratch (NAME-scratch-nodes, NAME-scratch-relations), made
  // anew whatever crashes have left of them.
  bool keep = true;
};

// Where training stands, between two batches.
struct LinkPlace {
  uint32_t epoch = 1;    // under way
  uint64_t batches = 0;  // of it that are trained; all of them: what is left of it is validation
  double loss = 0;       // of these, summed over edges and sides
  // Of the epochs before:
  double best_mrr = -1;
  uint32_t validations_since_best = 0;
};

struct LinkRunStats {
  BufferPoolStats pools;    // both tables'
  uint64_t pool_bytes = 0;  // of memory
  uint64_t checkpoints = 0;
  double checkpoint_seconds = 0;
};

class LinkRun {
 public:
  // `data` and `train` are those of TrainLinks. Opens the run's tables, or makes them. Their pools take what
  // the budget has left beside what TrainLinks will reserve: the relations first, then the nodes. kUsage for
  // a name of other than letters, digits, - and _, and for options other than those of the checkpoint, which
  // it names with both values; kInvalidArgument for a checkpoint of another training; kOutOfBudget names the
  // least that would do; kAlreadyExists and kNotFound as above; errors of the store.
  static Result<std::unique_ptr<LinkRun>> Open(Store& store, MemoryBudget& budget, const LinkData& data,
                                               const LinkTrainOptions& train, const LinkRunOptions& options);
  // What no checkpoint has is lost; tables without any are dropped.
  ~LinkRun();
  LinkRun(const LinkRun&) = delete;
  LinkRun& operator=(const LinkRun&) = delete;

  const LinkRunOptions& options() const { return options_; }
  EmbeddingTable& nodes() { return tables_.front()->table(); }
  // Null for decoders without vectors of relations.
  EmbeddingTable* relations() { return tables_.size() > 1 ? &tables_[1]->table() : nullptr; }

  // Of the last checkpoint; as at the beginning of a run before the first.
  const LinkPlace& place() const { return place_; }
  std::span<const std::byte> task_state() const { return task_state_; }
  int64_t timestamp() const { return tables_.front()->timestamp(); }

  // Behind this many batches of all epochs together: how many it is to the next checkpoint.
  uint64_t BatchesToCheckpoint(uint64_t batches) const;
  // REQUIRES: what CheckpointAll does; `timestamp` is that of the last batch of `place`.
  Status Checkpoint(const LinkPlace& place, std::vector<std::byte> task_state, int64_t timestamp);

  // A cancelled training, with what --resume does now.
  Status Explain(const Status& cancelled) const;

  LinkRunStats stats() const;

 private:
  static constexpr size_t kTables = 2;  // of nodes, then of relations
  LinkRun(Store& store, const LinkRunOptions& options, std::string settings);
  std::string TableName(size_t i) const;
  Status CheckStart();
  Status DropTables(bool checkpointed);
  Status MakeTables(std::span<const EmbeddingSpec> specs);
  Status OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
                    unsigned workers);
  Status ReadCheckpoint(std::span<const EmbeddingSpec> specs, uint64_t epoch_batches);

  Store& store_;
  const LinkRunOptions options_;
  const std::string name_;  // of the state, and before those of the tables
  const std::string settings_;
  std::vector<std::unique_ptr<StoredEmbeddings>> tables_;  // one for decoders without relations
  LinkPlace place_;
  std::vector<std::byte> task_state_;
  uint64_t pool_bytes_ = 0;
  uint64_t checkpoints_ = 0;
  double checkpoint_seconds_ = 0;
};

}  // namespace quarry
