// LinkRun: a run of link prediction with checkpoints, from which training goes on; or with more vectors than
// memory holds. There are two kinds:
//
//   stored    the vectors are the embedding tables NAME-nodes and NAME-relations of an open database
//             (quarry/embedding/embedding_store.h), as much of them in buffer pools as the budget has room
//             for. A checkpoint is both tables and the state of the training
//             (quarry/storage/training_state.h) in one commit
//   in state  the vectors are in memory, and a checkpoint is a state that has them too, wherever states are
//             kept: by a server, say, whose tables are everybody's. Where features take the place of the nodes'
//             vectors, that is what the encoder and relations have learned
//
// A stored run may be *partitioned*: the vectors swap through memory part by part
// (quarry/pipeline/partitioned_road.h), and a checkpoint ends each epoch.
//
// With patience a run has two: the last one, and that of the best epoch so far, which stays until another is better or the
// training ends; then it is the last. Stored tables keep both page maps, so what has not changed between the two lies on
// disk once; a state has the vectors of both.
//
// A checkpoint has all batches up to its place, and none later. The edges and negatives of a batch are a
// function of (seed, epoch, batch), so a run needs nothing but its vectors, its place and what the task has
// learned beside them. In order, kSync and kOac go on bit for bit as if they had never stopped. A run in
// state that is opened as a stored one goes on as such: it first makes tables, and a checkpoint of them.
//
// One thread. Store, states and budget outlive the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/io/backend.h"
#include "quarry/pipeline/partitioned_road.h"
#include "quarry/storage/store.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

struct LinkRunOptions {
  enum class Start : uint8_t {
    kNew,        // kAlreadyExists when the run has a checkpoint
    kOverwrite,  // begins anew. Stored: first removes its checkpoint; in state: the next one replaces it
    kResume,     // goes on from the checkpoint; kNotFound without one
  };
  std::string name = "link";
  std::string config = {};  // as TrainRun's
  Start start = Start::kNew;
  // Training batches from one checkpoint to the next, counted through all epochs; 0: only the one that is
  // taken in any case at the end of training.
  uint64_t checkpoint_every = 0;
  // False: the run takes no checkpoint at all. Its tables are scratch (NAME-scratch-nodes,
  // NAME-scratch-relations), made anew whatever crashes have left of them. For stored runs only.
  bool keep = true;
  // Not null: training edges and nodes' vectors come by parts, on a partitioned road, and the table of nodes
  // is NAME-parts: its rows are those of the partitioning's new ids, in the layout of parts. `road` is tuned
  // to the budget. For stored runs only; the partitioning outlives the run.
  const StoredPartitioning* partitioning = nullptr;
  PartitionedRoadOptions road = {};
};

// Where training stands, between two batches.
struct LinkPlace {
  uint32_t epoch = 1;    // the epoch under way
  uint64_t batches = 0;  // batches of it that are trained; when all are, only validation is left
  double loss = 0;       // sum over the edges of these batches and their sides
  // About the epochs before:
  double best_mrr = -1;
  uint32_t validations_since_best = 0;
  // Where training with patience has ended: the validations behind this place, which were no better, so that one that
  // goes on need not train for them again.
  uint32_t validations_behind = 0;
};

// The part of a checkpoint beside the vectors.
struct LinkState {
  LinkPlace place;
  int64_t timestamp = kNeverWritten;  // the last batch of the place
  std::vector<std::byte> task_state;  // what is learned beside the vectors
};

// The checkpoint of the best epoch, and its validation.
struct LinkBest {
  LinkState state;
  LinkEvaluation valid;
};

struct LinkRunStats {
  BufferPoolStats pools;    // both tables together; zeros in state
  uint64_t pool_bytes = 0;  // memory of the pools
  uint64_t checkpoints = 0;
  double checkpoint_seconds = 0;
};

class LinkRun {
 public:
  // Opens a stored run, of learned vectors: opens its tables, or makes them. `data` and `train` are those of TrainLinks. Their
  // pools take what the budget has left beside what TrainLinks will reserve: the relations first, then the
  // nodes. kUsage for a name with anything but letters, digits, - and _, and for options that differ from the
  // checkpoint's, which it names with both values; kInvalidArgument for a checkpoint of another training;
  // kOutOfBudget names the least that would do; kAlreadyExists and kNotFound as above; errors of the store.
  static Result<std::unique_ptr<LinkRun>> Open(Store& store, MemoryBudget& budget, const LinkData& data,
                                               const LinkTrainOptions& train, const LinkRunOptions& options);
  // Opens a run in state. Holds the vectors, and reserves what a checkpoint takes while it is made. Returns
  // the same errors and those of the states; kInvalidArgument also for a run whose vectors are stored. Features are
  // those of `data`, which outlives it.
  static Result<std::unique_ptr<LinkRun>> OpenInState(TrainingStates& states, MemoryBudget& budget,
                                                      const LinkData& data, const LinkTrainOptions& train,
                                                      const LinkRunOptions& options);
  // Whatever no checkpoint has is lost; stored tables without a checkpoint are dropped.
  virtual ~LinkRun() = default;
  LinkRun(const LinkRun&) = delete;
  LinkRun& operator=(const LinkRun&) = delete;

  const LinkRunOptions& options() const { return options_; }
  virtual LinkTables where() const = 0;  // kStored or kInState
  virtual EmbeddingTable& nodes() = 0;
  // Null for decoders without vectors of relations.
  virtual EmbeddingTable* relations() = 0;
  // Null for runs whose epochs take all edges of the data at once.
  virtual PartitionedRoad* road() { return nullptr; }
  // The folder in which a stored run has files that go with their descriptor, and what makes them; empty and null for
  // other runs.
  virtual std::string scratch_folder() const { return {}; }
  virtual IoBackend* backend() const { return nullptr; }

  // The place at the last checkpoint, or, before the first one, at the beginning of a run.
  const LinkPlace& place() const { return last_.place; }
  std::span<const std::byte> task_state() const { return last_.task_state; }
  int64_t timestamp() const { return last_.timestamp; }
  // The best epoch's, of a training with patience that has not ended. It may be the last checkpoint.
  const std::optional<LinkBest>& best() const { return best_; }

  // How many batches it is to the next checkpoint, after this many batches of all epochs together.
  uint64_t BatchesToCheckpoint(uint64_t batches) const;
  // Takes a checkpoint. REQUIRES: nobody writes to the tables meanwhile, and no row has a later timestamp, as
  // after a Run of the pipeline. On an error the checkpoint before stands, except that a commit which failed
  // on disk may have happened.
  Status Checkpoint(LinkState state);
  // The same of an epoch that is the best so far, in place of the best before.
  Status CheckpointBest(LinkState state, const LinkEvaluation& valid);

  // The end of a training: makes the best epoch's checkpoint the last one, with so many validations behind it that were no
  // better, and gives up what was written since. The tables, and the road, are opened anew as it left them, and references
  // to the former end. Arguments as of Open. Its errors and Checkpoint's; after one, the run is good for nothing.
  // REQUIRES: best().
  virtual Status ReturnToBest(MemoryBudget& budget, const LinkData& data, const LinkTrainOptions& train,
                              uint32_t validations) = 0;

  // Adds to the status of a cancelled training what --resume will do.
  Status Explain(const Status& cancelled) const;

  virtual LinkRunStats stats() const { return stats_; }

 protected:
  LinkRun(const LinkRunOptions& options, std::string settings)
      : options_(options), settings_(std::move(settings)) {}
  // Takes a checkpoint and the best's beside it, which may be the same; null: none is kept.
  virtual Status Save(const LinkState& state, const LinkBest* best) = 0;
  // Says where a run goes on.
  void LogResumed(const TrainingRecord& record, uint64_t epoch_batches) const;

  const LinkRunOptions options_;
  std::string settings_;  // those of a partitioned run are complete once its road is tuned
  LinkState last_;        // the last checkpoint's
  std::optional<LinkBest> best_;
  LinkRunStats stats_;
};

}  // namespace quarry
