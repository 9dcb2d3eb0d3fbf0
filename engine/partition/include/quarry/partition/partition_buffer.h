// PartitionBuffer: the parts of a stored partitioning that are in memory, with all buckets of edges among
// them, as they follow one another in an epoch's plan (policy.h; Waleffe §5.2). While one step is used, a
// thread reads what the next one has besides.
//
//   frames     one for each part's labels and for each bucket, as large as it is; those of rows are of one size and lie
//              in one piece of memory, so that a batch names the rows of any held part by one number
//   a step     what the next one does not hold is let go of; what was read meanwhile comes in; the reads of
//              the step after it begin
//
// What a step reads is the rows of the parts that the one before did not hold, and the buckets with such a
// part: as many bytes as CostOf says, to the page. Parts are read-only. An epoch that follows another one keeps of its
// last step what its own first step has.
//
// Used by one thread; what the accessors return is valid until the next call of Next or Follow. Not moved.
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
  bool rows = true;      // of parts that have some
  bool labels = false;   // and splits; REQUIRES: the partitioning has them
  bool old_ids = false;  // what the database calls the nodes
};

struct PartitionBufferStats {
  uint64_t parts_read = 0;
  uint64_t buckets_read = 0;
  uint64_t bytes_read = 0;
  uint64_t bucket_bytes_read = 0;  // of these
  double wait_seconds = 0;         // in Next, for reads
  double read_seconds = 0;         // of the reads themselves, beside the use of other parts or not
};

// What a buffer takes at most for any set of `buffer` parts with `incoming` others that are prefetched: the
// largest of each. The plans of all epochs fit into it.
uint64_t PartitionBufferBytesMax(const PartitionDirectory& directory, uint32_t buffer, uint32_t incoming,
                                 const PartitionBufferOptions& options = {});
// What is read for each part beside its buckets, for CostOf.
std::vector<uint64_t> PartBytesRead(const PartitionDirectory& directory,
                                    const PartitionBufferOptions& options);

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

  // Reserves Bytes(). kOutOfBudget; the system may refuse the memory, too. The plan is for as many parts as there are, else kUsage. Partitioning,
  // backend and budget outlive it.
  static Result<std::unique_ptr<PartitionBuffer>> Make(const StoredPartitioning& partitioning,
                                                       IoBackend& backend, MemoryBudget& budget,
                                                       SwapPlan plan,
                                                       const PartitionBufferOptions& options = {});
  // One without a plan, for any plans of `buffer` parts that bring in at most `incoming` at a time: reserves
  // PartitionBufferBytesMax. Follow comes first.
  static Result<std::unique_ptr<PartitionBuffer>> MakeForPlans(const StoredPartitioning& partitioning,
                                                               IoBackend& backend, MemoryBudget& budget,
                                                               uint32_t buffer, uint32_t incoming,
                                                               const PartitionBufferOptions& options);
  ~PartitionBuffer();
  PartitionBuffer(const PartitionBuffer&) = delete;
  PartitionBuffer& operator=(const PartitionBuffer&) = delete;

  // Goes to the next step, whose parts are there afterwards; false behind the last one. kIoError, kCorruption,
  // and kOutOfBudget where the system has no memory left; after an error the buffer is of no more use.
  Result<bool> Next();
  // Begins another epoch, wherever the one before was: Next goes to its first step. Errors of reads that were under way.
  // REQUIRES: memory for it was reserved.
  Status Follow(SwapPlan plan);

  // REQUIRES: Next has returned true, and the step holds the parts.
  const SwapStep& step() const { return plan_.steps()[step_]; }
  uint64_t step_number() const { return step_; }
  // Rows of a part, directory().row_stride apart, in the order of new ids; empty without rows.
  std::span<const std::byte> Rows(uint32_t part) const;
  // The memory that has them: row i of a part is its row FirstRow(part) + i.
  std::span<const std::byte> AllRows() const { return row_frames_.span(); }
  uint64_t FirstRow(uint32_t part) const;
  // How many parts' rows had been read or were being read when this part's were: it tells one stay of a part from
  // another. 0 without rows.
  uint64_t ReadNumber(uint32_t part) const;
  // By node of the part; without labels, empty.
  std::span<const int64_t> Labels(uint32_t part) const;
  std::span<const uint8_t> Splits(uint32_t part) const;
  // By node of the part; empty where they were not asked for.
  std::span<const NodeId> OldIds(uint32_t part) const;
  EdgeBucket Bucket(uint32_t source, uint32_t destination) const;

  const SwapPlan& plan() const { return plan_; }
  const PartitionDirectory& directory() const { return partitioning_.directory(); }
  PartitionBufferStats stats() const { return stats_; }
  uint64_t memory_bytes() const { return reservation_.bytes(); }
  uint64_t held_bytes() const;  // by frames now, those that are being read included

 private:
  // A part's rows, labels, splits or old ids (the destination says which), or a bucket.
  struct FrameKey {
    uint32_t source = 0;
    uint32_t destination = 0;
    uint64_t number() const { return uint64_t{source} << 32 | destination; }
    bool is_bucket() const { return destination < kOldIds; }
  };
  struct Frame {
    FrameKey key;
    IoBuffer own;              // memory; empty for rows
    uint32_t row_frame = 0;    // for rows: which of row_frames_
    uint64_t read_number = 0;  // for rows
    std::span<std::byte> pages;
  };
  static constexpr uint32_t kRows = ~uint32_t{0}, kLabels = kRows - 1, kSplits = kRows - 2,
                            kOldIds = kRows - 3;

  PartitionBuffer(const StoredPartitioning& partitioning, IoBackend& backend, SwapPlan plan,
                  const PartitionBufferOptions& options);
  static std::vector<FrameKey> NewFrames(const PartitionDirectory& directory,
                                         const PartitionBufferOptions& options, const SwapStep* before,
                                         const SwapStep& step);
  static uint64_t FrameBytes(const PartitionDirectory& directory, FrameKey key);
  static uint64_t RowFrames(const SwapPlan& plan, const PartitionBufferOptions& options);
  Status AllocateRows(uint64_t frames);
  const Frame* Find(uint32_t part, uint32_t what) const;
  void Free(const Frame& frame);
  const SwapStep* StepAt(uint64_t number) const {
    return number < plan_.steps().size() ? &plan_.steps()[number] : nullptr;
  }
  // Makes the frames of what `step` has besides `before` in `coming_`.
  Status MakeFrames(const SwapStep* before, const SwapStep& step);
  uint64_t OffsetOf(FrameKey key) const;  // in the file
  // Reads and verifies `coming_`; on the thread.
  Status ReadFrames();
  Status Verify(const Frame& frame) const;
  void Drop(const SwapStep& next);

  const StoredPartitioning& partitioning_;
  IoBackend& backend_;
  SwapPlan plan_;
  const PartitionBufferOptions options_;
  MemoryBudget::Reservation reservation_;

  SwapStep before_;  // the last step of the plan before: what it held is there until the first step
  uint64_t step_ = ~uint64_t{0};  // before the first
  IoBuffer row_frames_;
  std::vector<uint32_t> free_row_frames_;
  std::unordered_map<uint64_t, Frame> frames_;
  std::vector<Frame> coming_;  // the thread's while it reads
  PartitionBufferStats stats_;
  double reading_seconds_ = 0;      // the last reads'; the thread's while it reads
  BackgroundTask<Status> reading_;  // last: ends before what it uses
};

}  // namespace quarry
