// EmbeddingPipeline: training of embedding tables in the stages of the dissertation's §3.1, kept exact by
// optimistic asynchrony control (§3.2, quarry/embedding/oac.h).
//
//   prepare        workers              row ids of the batch; Begin, Read
//   transfer       workers              rows to the device
//   compute        the caller's thread  Validate, gradients and updates, timestamp, Insert
//   transfer back  workers              rows from the device
//   update         workers              Write, Finish
//
// The two transfers are those of tasks that compute on a device (device_task.h); where the CPU that read the rows computes
// on them, there are none.
//
// A batch may touch several tables (nodes, relations): it has a RowBlock of each, and one timestamp. All
// tables share one computation order and one CommitTracker; each has a ValidationCache.
//
// Everything is bounded by `batches_in_flight`: batch n is not begun before batch n - batches_in_flight is in
// the tables. So queues never overflow, a batch that is stuck cannot be overtaken for ever, and a validation
// cache holds the rows of fewer than four times (when ordered, two times) as many batches.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"

namespace quarry {

enum class AsyncMode : uint8_t {
  kSync,          // one batch at a time goes through all stages
  kAsync,         // batches_in_flight at a time, unprotected: updates of concurrent batches may be lost
  kAsyncBounded,  // the same, with at most `staleness` batches between reading and having written
  kOac,  // batches_in_flight at a time; equal, bit for bit, to the serial run of the computation order
};

struct EmbeddingPipelineOptions {
  AsyncMode mode = AsyncMode::kOac;
  // Batches compute in the order of their numbers, so one seed gives one result; otherwise as they arrive.
  bool ordered = false;
  bool record_order = false;
  unsigned batches_in_flight = 8;
  unsigned staleness = 4;
  unsigned prepare_workers = 1, update_workers = 1;
  unsigned transfer_workers = 1;           // of each of the two transfers, where there are any
  int64_t last_timestamp = kNeverWritten;  // the checkpoint's from which training resumes
};

// Data that a task keeps with an item from stage to stage: its edges, for example. Items are used again for
// later batches, and so is their memory.
struct EmbeddingItemData {
  virtual ~EmbeddingItemData() = default;
};

// A batch on its way.
struct EmbeddingItem {
  uint64_t batch = 0;                       // its number
  std::vector<RowBlock> blocks;             // by table
  std::unique_ptr<EmbeddingItemData> data;  // null until the task sets it
};

// The training itself. An error from any of these calls ends the run.
class EmbeddingTask {
 public:
  virtual ~EmbeddingTask() = default;
  // Sets `ids` of each block to the rows that batch item.batch needs: ascending, unique, perhaps none. Called
  // by workers, for several items at a time. The ids must be a function of the batch number alone, for runs
  // to be repeatable.
  virtual Status Prepare(EmbeddingItem& item) = 0;
  // Computes, and updates values and state of the blocks in place. Called by one thread, that of Run.
  virtual Status Compute(EmbeddingItem& item) = 0;
};

enum class EmbeddingStage : uint8_t { kPrepare, kTransfer, kCompute, kTransferBack, kUpdate };
inline constexpr const char* kEmbeddingStageNames[] = {"prepare", "transfer", "compute", "transfer_back",
                                                       "update"};
inline constexpr size_t kEmbeddingStageCount = std::size(kEmbeddingStageNames);

// Seconds are summed over the workers of a stage.
struct EmbeddingStageStats {
  uint64_t batches = 0;
  double busy_seconds = 0;
  double wait_seconds = 0;  // for the stage before; of prepare: for a batch to leave the pipeline
  // The device's own time with the batches, by its clock: of the two copies, and of compute.
  double device_seconds = 0;
};

// Totals since the pipeline was made.
struct EmbeddingPipelineStats {
  std::array<EmbeddingStageStats, kEmbeddingStageCount> stages;
  uint64_t rows_computed = 0;
  uint64_t rows_replaced = 0;    // by validation, of these
  uint64_t cache_rows_peak = 0;  // all validation caches together
  uint64_t cache_bytes_peak = 0;

  const EmbeddingStageStats& stage(EmbeddingStage stage) const { return stages[static_cast<size_t>(stage)]; }
};

class EmbeddingPipeline {
 public:
  // Tables and task outlive the pipeline; nobody else writes to the tables while it runs. REQUIRES: all of
  // the options' counts at least 1.
  static std::unique_ptr<EmbeddingPipeline> Make(std::span<EmbeddingTable* const> tables, EmbeddingTask& task,
                                                 const EmbeddingPipelineOptions& options);
  virtual ~EmbeddingPipeline() = default;

  // Trains batches [first_batch, first_batch + count) and returns when all of them are in the tables. That is
  // a point for a checkpoint, which then has all updates up to last_timestamp() and none later. Timestamps go
  // on from run to run. One run at a time.
  //
  // The first error of any stage comes back, or kCancelled; then some batches are in the tables, others not
  // or in part, and every later run is refused with kCancelled.
  virtual Status Run(uint64_t first_batch, uint64_t count) = 0;
  // Ends the run, if there is one, as soon as each stage is through with its batch. Any thread.
  virtual void Cancel() = 0;

  // The timestamp of the batch that computed last; between runs.
  virtual int64_t last_timestamp() const = 0;
  // With record_order: the number of the batch that computed as timestamp options.last_timestamp + 1 + i;
  // between runs.
  virtual std::span<const uint64_t> order() const = 0;
  virtual EmbeddingPipelineStats stats() const = 0;  // any thread
};

}  // namespace quarry
