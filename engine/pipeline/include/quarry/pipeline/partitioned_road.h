// PartitionedRoad: the edges that link prediction trains on, out of a stored partitioning, while the vectors of
// their nodes swap through memory part by part (Waleffe ch. 5; policy.h has the orders).
//
//   an epoch   a swap plan, a function of (seed, epoch)
//   a step     the parts of S_i with their vectors (parted_table.h) and the buckets between them; the edges of
//              X_i in random order, which make the batches of the step, and of no other
//
// Each training edge is in one batch an epoch, and whatever a batch reads besides (negatives, neighbors) lies
// in the parts of its step. So what training holds is that of one step and of the next one that is being read.
//
// Nodes have the partitioning's new ids. One thread; step() is also read by those that make batches, until the
// next call of Enter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/embedding/parted_table.h"
#include "quarry/partition/partition_buffer.h"
#include "quarry/partition/policy.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/held_lists.h"

namespace quarry {

struct PartitionedRoadOptions {
  PartitionOrder order = PartitionOrder::kComet;
  uint32_t buffer = 0;   // parts that are held: 0: the most that fit
  uint32_t logical = 0;  // logical parts; 0: so many that two are held
  bool prefetch = true;  // the next step's parts are read beside the use of this one's
};

// `options` with what it leaves open, for vectors that take `frame_bytes` a part beside the edges: the largest
// buffer for `memory_bytes`. kUsage for what cannot be; kOutOfBudget with the least that would do.
Result<PartitionedRoadOptions> TuneRoad(const PartitionDirectory& directory,
                                        const PartitionedRoadOptions& options, uint64_t frame_bytes,
                                        uint64_t memory_bytes);

// Parts that are in memory at once, those that are being brought in included. REQUIRES: tuned options.
uint32_t RoadFrames(const PartitionDirectory& directory, const PartitionedRoadOptions& options);

// What batches are made of while the same parts are held. A node of them is named by its place among them: the
// nodes of the first part, then those of the next.
class EdgeStep {
 public:
  uint64_t first_batch() const { return first_batch_; }  // of the epoch
  uint64_t batch_count() const { return batch_count_; }
  // In the order in which they are used; ends are places.
  std::span<const Triple> edges() const { return edges_; }
  uint64_t node_count() const { return place_starts_.back(); }
  NodeId NodeAt(uint64_t place) const;
  std::span<const uint32_t> parts() const { return parts_; }

 private:
  friend class PartitionedRoad;
  uint64_t first_batch_ = 0, batch_count_ = 0;
  std::vector<uint32_t> parts_;
  std::vector<uint64_t> place_starts_{0};  // of each part, and the end
  std::vector<NodeId> node_starts_;
  std::vector<Triple> edges_;
};

class PartitionedRoad {
 public:
  // What the edges, buckets and lists of the largest possible step take. REQUIRES: tuned options.
  static uint64_t Bytes(const PartitionDirectory& directory, const PartitionedRoadOptions& options);
  // `options` are tuned. `rows` has the partitioning's layout; null: vectors lie elsewhere. Reserves Bytes.
  // kUsage; kOutOfBudget. All outlive the road.
  static Result<std::unique_ptr<PartitionedRoad>> Make(const StoredPartitioning& partitioning,
                                                       IoBackend& backend, MemoryBudget& budget,
                                                       PartedTable* rows,
                                                       const PartitionedRoadOptions& options, uint64_t seed,
                                                       uint32_t batch_edges);

  // Epochs count from 1. Errors as PlanSwaps'.
  Result<uint64_t> BatchesOf(uint32_t epoch);      // batches of this epoch
  Result<uint64_t> BatchesBefore(uint32_t epoch);  // of all epochs before

  Status StartEpoch(uint32_t epoch);
  uint64_t batch_count() const { return batch_starts_.back(); }  // of the epoch
  // Edges of the epoch's batches before this one.
  uint64_t EdgesBefore(uint64_t batch) const;
  // Goes to the step of this batch, which is no earlier than the one that it is at; false: it is at it. Errors of the
  // buffer and of the rows.
  Result<bool> Enter(uint64_t batch);
  const EdgeStep& step() const { return step_; }
  // Takes the lists of neighbors between held parts, by place; valid until the next call of Enter.
  void TakeLists(HeldLists& lists) const { lists.TakeStep(*buffer_); }

  const StoredPartitioning& partitioning() const { return partitioning_; }
  IoBackend& backend() const { return backend_; }
  const PartitionedRoadOptions& options() const { return options_; }
  PartitionBufferStats stats() const;  // of the buckets

 private:
  PartitionedRoad(const StoredPartitioning& partitioning, IoBackend& backend, PartedTable* rows,
                  const PartitionedRoadOptions& options, uint64_t seed, uint32_t batch_edges);
  const PartitionDirectory& directory() const { return partitioning_.directory(); }
  Result<SwapPlan> PlanOf(uint32_t epoch) const;
  uint64_t StepEdges(const SwapStep& step) const;
  uint64_t StepBatches(const SwapStep& step) const;
  void FillStep();

  const StoredPartitioning& partitioning_;
  IoBackend& backend_;
  PartedTable* const rows_;
  const PartitionedRoadOptions options_;
  const uint64_t seed_;
  const uint32_t batch_edges_;
  MemoryBudget::Reservation reservation_;

  std::vector<uint64_t> epoch_starts_{0};  // batches before epoch 1, 2, ... as far as they are known
  uint32_t epoch_ = 0;
  std::vector<uint64_t> batch_starts_{0};  // of the epoch's steps, and the end
  std::vector<uint64_t> edge_starts_{0};
  std::unique_ptr<MemoryBudget> buffer_budget_;  // what reservation_ has for the buffer
  std::unique_ptr<PartitionBuffer> buffer_;      // the epoch's
  PartitionBufferStats stats_;                   // of the buffers before
  EdgeStep step_;
  uint64_t step_edges_max_ = 0;  // of the epoch: reserved once, as a list that grows is there twice
};

}  // namespace quarry
