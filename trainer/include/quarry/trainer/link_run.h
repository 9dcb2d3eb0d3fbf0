// LinkRun: a run of link prediction with checkpoints, from which training goes on; or with more vectors than
// memory holds. There are two kinds:
//
//   stored    the vectors are the embedding tables NAME-nodes and NAME-relations of an open database
//             (quarry/embedding/embedding_store.h), as much of them in buffer pools as the budget has room
//             for. A checkpoint is both tables and the state of the training
//             (quarry/storage/training_state.h) in one commit
//   in state  the vectors are in memory, and a checkpoint is a state that has them too, wherever states are
//             kept: by a server, say, whose tables are everybody's
//
// A checkpoint has all batches up to its place, and none later. Which edges a batch has, and which negatives,
// is a function of (seed, epoch, batch), so vectors, place and what the task has learned beside them are all
// that a run needs. In order, kSync and kOac go on bit for bit as if they had never stopped. A run in state
// goes on stored where it is opened so: its first act is then to make tables, and a checkpoint of them.
//
// One thread. Store, states and budget outlive the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/storage/store.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

struct LinkRunOptions {
  enum class Start : uint8_t {
    kNew,        // kAlreadyExists when the run has a checkpoint
    kOverwrite,  // begins anew. Stored: its checkpoint is removed first of all; in state: by the next one
    kResume,     // goes on from it; kNotFound without one
  };
  std::string name = "link";
  std::string config = {};  // as TrainRun's
  Start start = Start::kNew;
  // Training batches from one checkpoint to the next, counted through all epochs; 0: only the one that is
  // taken in any case at the end of training.
  uint64_t checkpoint_every = 0;
  // False: no checkpoint at all. The tables are scratch (NAME-scratch-nodes, NAME-scratch-relations), made
  // anew whatever crashes have left of them. For stored runs only.
  bool keep = true;
};

// Where training stands, between two batches.
struct LinkPlace {
  uint32_t epoch = 1;    // under way
  uint64_t batches = 0;  // of it that are trained; all of them: what is left of it is validation
  double loss = 0;       // of these, summed over edges and sides
  // The epochs before:
  double best_mrr = -1;
  uint32_t validations_since_best = 0;
};

// What a checkpoint has beside the vectors.
struct LinkState {
  LinkPlace place;
  int64_t timestamp = kNeverWritten;  // of the last batch of the place
  std::vector<std::byte> task_state;  // what is learned beside the vectors
};

struct LinkRunStats {
  BufferPoolStats pools;    // of both tables; zeros in state
  uint64_t pool_bytes = 0;  // of memory
  uint64_t checkpoints = 0;
  double checkpoint_seconds = 0;
};

class LinkRun {
 public:
  // Stored. `data` and `train` are those of TrainLinks. Opens the run's tables, or makes them. Their pools
  // take what the budget has left beside what TrainLinks will reserve: the relations first, then the nodes.
  // kUsage for a name of other than letters, digits, - and _, and for options other than those of the
  // checkpoint, which it names with both values; kInvalidArgument for a checkpoint of another training;
  // kOutOfBudget names the least that would do; kAlreadyExists and kNotFound as above; errors of the store.
  static Result<std::unique_ptr<LinkRun>> Open(Store& store, MemoryBudget& budget, const LinkData& data,
                                               const LinkTrainOptions& train, const LinkRunOptions& options);
  // In state. Holds the vectors, and of the budget what a checkpoint takes while it is made. Errors are the
  // same, and those of the states; kInvalidArgument also for a run whose vectors are stored.
  static Result<std::unique_ptr<LinkRun>> OpenInState(TrainingStates& states, MemoryBudget& budget,
                                                      const LinkData& data, const LinkTrainOptions& train,
                                                      const LinkRunOptions& options);
  // What no checkpoint has is lost; stored tables without any are dropped.
  virtual ~LinkRun() = default;
  LinkRun(const LinkRun&) = delete;
  LinkRun& operator=(const LinkRun&) = delete;

  const LinkRunOptions& options() const { return options_; }
  virtual LinkTables where() const = 0;  // kStored or kInState
  virtual EmbeddingTable& nodes() = 0;
  // Null for decoders without vectors of relations.
  virtual EmbeddingTable* relations() = 0;

  // The state at the last checkpoint; as at the beginning of a run before the first.
  const LinkPlace& place() const { return last_.place; }
  std::span<const std::byte> task_state() const { return last_.task_state; }
  int64_t timestamp() const { return last_.timestamp; }

  // Behind this many batches of all epochs together: how many it is to the next checkpoint.
  uint64_t BatchesToCheckpoint(uint64_t batches) const;
  // REQUIRES: nobody writes to the tables meanwhile, and no row is of a later timestamp, as after a Run of
  // the pipeline. On an error the checkpoint before stands, but for a commit that the disk failed.
  Status Checkpoint(LinkState state);

  // A cancelled training, with what --resume does now.
  Status Explain(const Status& cancelled) const;

  virtual LinkRunStats stats() const { return stats_; }

 protected:
  LinkRun(const LinkRunOptions& options, std::string settings)
      : options_(options), settings_(std::move(settings)) {}
  virtual Status Save(const LinkState& state) = 0;
  // Says where a run goes on.
  void LogResumed(const TrainingRecord& record, uint64_t epoch_batches) const;

  const LinkRunOptions options_;
  const std::string settings_;
  LinkState last_;  // of the last checkpoint
  LinkRunStats stats_;
};

}  // namespace quarry
