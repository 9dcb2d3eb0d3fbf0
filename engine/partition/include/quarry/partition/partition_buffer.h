// PartitionBuffer: the parts of a stored partitioning that are in memory, with all buckets of edges among
// them, as they follow one another in an epoch's plan (policy.h; Waleffe §5.2). While one step is used, a
// thread reads what the next one has besides.
//
//   frames     one for each part's rows and for each bucket, as large as it is
//   a step     what the next one does not hold is let go of; what was read meanwhile comes in; the reads of
//              the step after it begin
//
// What a step reads is the rows of the parts that the one before did not hold, and the buckets with such a
// part: as many bytes as CostOf says, to the page. Parts are read-only.
//
// Used by one thread; what the accessors return is valid until the next call of Next. Not moved.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/base/thread.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/partition/auto_tune.h"
#include "quarry/partition/policy.h"
#include "quarry/partition/stored_partitioning.h"

namespace quarry {

struct PartitionBufferOptions {
  bool prefetch = true;  // reads beside the use; it costs the frames of what comes next
};

struct PartitionBufferStats {
  uint64_t parts_read = 0;
  uint64_t buckets_read = 0;
  uint64_t bytes_read = 0;
  double wait_seconds = 0;  // in Next, for reads
};

// What a buffer takes at most for any set of `buffer` parts with `incoming` others that are prefetched: the
// largest of each. The plans of all epochs fit into it.
uint64_t PartitionBufferBytesMax(const PartitionDirectory& directory, uint32_t buffer, uint32_t incoming);

// c and l for a partitioning that is stored, as TunePartitions has them for one that is not: the largest share
// of its parts that fits into the memory, for the order and prefetch of `options`, and two logical parts at a
// time. kOutOfBudget with the least that would do; kUsage where no number of logical parts suits the order.
Result<PartitionTuning> TuneBuffer(const PartitionDirectory& directory, const TuneOptions& options);

class PartitionBuffer {
 public:
  // What it takes at most in any step, exactly: the frames of a step and, with prefetch, of what the next one
  // has besides.
  static uint64_t Bytes(const PartitionDirectory& directory, const SwapPlan& plan,
                        const PartitionBufferOptions& options);

  // Reserves Bytes(). kOutOfBudget. The plan is for as many parts as there are, else kUsage. Partitioning,
  // backend and budget outlive it.
  static Result<std::unique_ptr<PartitionBuffer>> Make(const StoredPartitioning& partitioning,
                                                       IoBackend& backend, MemoryBudget& budget,
                                                       SwapPlan plan,
                                                       const PartitionBufferOptions& options = {});
  ~PartitionBuffer();
  PartitionBuffer(const PartitionBuffer&) = delete;
  PartitionBuffer& operator=(const PartitionBuffer&) = delete;

  // Goes to the next step, whose parts are there afterwards; false behind the last one. kIoError, kCorruption,
  // and kOutOfBudget where the system has no memory left; after an error the buffer is of no more use.
  Result<bool> Next();

  // REQUIRES: Next has returned true, and the step holds the parts.
  const SwapStep& step() const { return plan_.steps()[step_]; }
  uint64_t step_number() const { return step_; }
  // Rows of a part, directory().row_stride apart, in the order of new ids; empty without rows.
  std::span<const std::byte> Rows(uint32_t part) const;
  EdgeBucket Bucket(uint32_t source, uint32_t destination) const;

  const SwapPlan& plan() const { return plan_; }
  PartitionBufferStats stats() const { return stats_; }
  uint64_t memory_bytes() const { return reservation_.bytes(); }
  uint64_t held_bytes() const;  // by frames now, those that are being read included

 private:
  // A part's rows (destination kRows), or a bucket.
  struct FrameKey {
    uint32_t source = 0;
    uint32_t destination = 0;
    uint64_t number() const { return uint64_t{source} << 32 | destination; }
  };
  struct Frame {
    FrameKey key;
    IoBuffer pages;
  };
  static constexpr uint32_t kRows = ~uint32_t{0};

  PartitionBuffer(const StoredPartitioning& partitioning, IoBackend& backend, SwapPlan plan,
                  const PartitionBufferOptions& options);
  static std::vector<FrameKey> NewFrames(const PartitionDirectory& directory, const SwapStep* before,
                                         const SwapStep& step);
  static uint64_t FrameBytes(const PartitionDirectory& directory, FrameKey key);
  const SwapStep* StepAt(uint64_t number) const {
    return number < plan_.steps().size() ? &plan_.steps()[number] : nullptr;
  }
  // Makes the frames of what `step` has besides `before` in `coming_`.
  Status MakeFrames(const SwapStep* before, const SwapStep& step);
  // Reads and verifies `coming_`; on the thread.
  Status ReadFrames();
  Status Verify(const Frame& frame) const;
  void Drop(const SwapStep& next);

  const StoredPartitioning& partitioning_;
  IoBackend& backend_;
  const SwapPlan plan_;
  const PartitionBufferOptions options_;
  MemoryBudget::Reservation reservation_;

  uint64_t step_ = ~uint64_t{0};  // before the first
  std::unordered_map<uint64_t, Frame> frames_;
  std::vector<Frame> coming_;  // the thread's while it reads
  PartitionBufferStats stats_;
  BackgroundTask<Status> reading_;  // last: ends before what it uses
};

}  // namespace quarry
