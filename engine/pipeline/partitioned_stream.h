// PartitionedStream: one pass over the partitioned road of node classification.
//
//   frames -> samplers -> [ready_] -> Next -> consumer -> release
//   ^------------------------------------------------------'
//
// Samplers take numbers of batches up to the end of the step. When the consumer has given back the last of them, nobody
// uses what is held, and Next goes to the next step by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "held_frame.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/format/feature_table.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/held_lists.h"
#include "quarry/sampling/block.h"
#include "quarry/sampling/sampler.h"
#include "sequenced_queue.h"

namespace quarry {

// The most of a batch, which frames are sized for.
struct BatchBounds {
  uint64_t nodes = 0;
  uint64_t targets = 0;  // nodes with a list
  uint64_t edges = 0;
  uint64_t seeds = 0;

  uint64_t frame_bytes() const {
    return nodes * (sizeof(NodeId) + sizeof(uint32_t)) + (targets + 1 + edges) * sizeof(uint32_t) +
           seeds * sizeof(int64_t);
  }
};

// Which rows of a buffer batches have used, each counted once while it stays in memory. One thread.
class UsedRows {
 public:
  static uint64_t Bytes(const PartitionDirectory& directory, uint64_t row_frames);

  // Counts begin here: `buffer` is at a new step. Rows that were read before the buffer had read so many parts do not
  // count.
  void TakeStep(const PartitionBuffer& buffer, uint64_t parts_read_before);
  void Use(std::span<const uint32_t> rows) {
    for (const uint32_t row : rows) {
      count_ += used_[row] ? 0 : 1;
      used_[row] = true;
    }
  }
  uint64_t count() const { return count_; }

 private:
  std::vector<bool> used_;             // by row of the buffer; or it does not count
  std::vector<uint64_t> read_number_;  // by part: of the stay that used_ is of
  uint64_t count_ = 0;
};

// What a pass works with; owned by the road, which outlives it. One pass at a time.
struct PartitionedResources {
  PartitionBuffer* buffer = nullptr;  // that follows the pass's plan
  HeldLists* lists = nullptr;         // that the samplers read
  std::span<const std::unique_ptr<NeighborSampler>> samplers;
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
  uint32_t batch_size = 0;
  BatchBounds bounds;
  uint32_t frame_count = 0;
  uint64_t seed = 0;
  Split split = Split::kTrain;
};

class PartitionedStream final : public BatchStream {
 public:
  // `step_seeds`: how many nodes each step of the plan has. `on_end` is called by the destructor, after the threads
  // have ended; not `whole`: the pass ended in an error, and buffer and samplers are of no more use.
  PartitionedStream(const PartitionedResources& resources, PassOptions options,
                    std::vector<uint64_t> step_seeds, std::function<void(bool whole)> on_end);
  // kOutOfBudget where the system has no thread at all; the stream can then only be destroyed.
  Status Start();
  ~PartitionedStream() override;

  uint64_t batch_count() const override { return batch_count_; }
  Result<std::unique_ptr<Batch>> Next() override;
  StreamStats stats() const override;

 private:
  uint64_t BatchesOf(uint64_t step) const;
  void RunSampler(NeighborSampler& sampler);
  std::optional<uint64_t> TakeNumber();
  void Fill(Frame& frame) const;
  Status EnterStep();
  void CollectSeeds(uint64_t step);
  void Fail(const Status& status);
  void Cancel();

  const PartitionedResources resources_;
  const PassOptions options_;
  const std::vector<uint64_t> step_seeds_;
  const std::vector<uint64_t> seed_starts_;  // by part: split's nodes in the parts before
  const std::function<void(bool)> on_end_;
  const PartitionBufferStats buffer_stats_at_start_;
  uint64_t batch_count_ = 0;

  // The step's; the consumer changes them while no batch is being made.
  std::vector<NodeId> seeds_;  // places
  // By held part:
  std::vector<std::span<const NodeId>> old_ids_;
  std::vector<uint64_t> first_rows_;
  std::vector<std::span<const int64_t>> labels_;
  UsedRows used_;
  uint64_t delivered_ = 0;

  BoundedQueue<std::unique_ptr<Frame>> frames_;
  FrameOwner owner_;
  SequencedQueue<std::unique_ptr<HeldFrame>> ready_;

  mutable Mutex mutex_;
  CondVar step_changed_;
  uint64_t step_first_ QUARRY_GUARDED_BY(mutex_) = 0;  // batch
  uint64_t step_end_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint64_t next_number_ QUARRY_GUARDED_BY(mutex_) = 0;
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  Status error_ QUARRY_GUARDED_BY(mutex_);
  StreamStats stats_ QUARRY_GUARDED_BY(mutex_);
  std::vector<Thread> workers_;
};

}  // namespace quarry
