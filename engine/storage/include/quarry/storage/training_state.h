// Checkpoints of training runs: everything that a run needs to go on (weights of the model, optimizer state,
// position in its batches), as bytes that the trainer understands, in DB/training/NUMBER.qts.
//
// The catalog names one file a run, the last: a crash at any instant leaves the checkpoint before or the new
// one. Whatever else belongs to the checkpoint (embedding tables) is committed with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/storage/store.h"

namespace quarry {

// kUsage for a name that no run can have: letters, digits, - and _ make one.
Status CheckTrainingName(std::string_view name);

// kNotFound: there is no checkpoint of a run of this name; lists what there is.
Status NoTraining(const Store& store, std::string_view name);

struct TrainingCheckpoint {
  std::string_view name;      // the run's name
  std::string_view settings;  // these three as in TrainingRecord
  std::string_view config;
  int64_t timestamp = -1;
  std::span<const std::byte> state;
};

// Commits `change` together with whatever else belongs to the checkpoint: Store::UpdateManifest, or
// CheckpointAll of embedding tables.
using ManifestChange = std::function<Status(Manifest&)>;
using ManifestCommit = std::function<Status(const ManifestChange& change)>;

// Writes the state, synced, then names it by `commit`; the file before it goes after that. kUsage for a
// config of more than wire::kConfigBytesMax. On an error the checkpoint before stands, except that a commit
// which failed on disk may have happened. One thread at a time for a run.
Status CheckpointTraining(Store& store, const TrainingCheckpoint& checkpoint, const ManifestCommit& commit);

// The state of the run's last checkpoint. kCorruption; NoTraining.
Result<std::vector<std::byte>> ReadTrainingState(Store& store, std::string_view name);

// Removes the run's record, then its file. NoTraining.
Status DropTraining(Store& store, std::string_view name);

// The checkpoints of runs, wherever they lie, for a trainer that need not know where. Used by one thread.
class TrainingStates {
 public:
  virtual ~TrainingStates() = default;
  virtual const std::string& path() const = 0;  // the database's or the server's socket's, for messages
  // The record of the run's last checkpoint. NoTraining.
  virtual Result<TrainingRecord> Find(std::string_view name) = 0;
  // Its state. Errors as ReadTrainingState.
  virtual Result<std::vector<std::byte>> Read(std::string_view name) = 0;
  // CheckpointTraining, with nothing else in the commit.
  virtual Status Save(const TrainingCheckpoint& checkpoint) = 0;
};

// The states of an open database, which outlives them.
std::unique_ptr<TrainingStates> TrainingStatesOf(Store& store);

}  // namespace quarry
