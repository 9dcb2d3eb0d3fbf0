// DeviceValidationCache: ValidationCache (oac.h) for batches that compute on a GPU, in its memory. The same protocol; but
// rows lie in device memory, and every call only enqueues, on the one stream that batches compute on. That stream is the
// order of computation, so nothing is locked, and the host waits for nothing: timestamps and tickets are its own.
//
// Slots are a ring, a batch's rows one after the other: that is the log of §3.2.2.3, ascending by timestamp. So what is
// safe to evict is the ring's oldest batches, which the host knows, and eviction is no work of the device at all: their
// slots are given to later batches, and in the table of rows a timestamp that is safe to evict counts as absent. Cells
// of such rows are got rid of by filling the table anew from the ring, once for as many rows as the ring has.
//
// One thread, the one that enqueues computations. The device outlives it; nothing may be enqueued any more when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/oac.h"
#include "quarry/gpu/handles.h"
#include "quarry/gpu/row_table_kernels.h"

namespace quarry {

// How a row lies in device memory: its vector, its state, and up to three floats that fill the last 16 bytes.
inline uint32_t DeviceRowStride(const EmbeddingSpec& spec) {
  return (spec.dim + spec.state_dim() + 3) / 4 * 4;
}

// Rows of a batch in device memory, as a RowBlock has them.
struct DeviceRowBlock {
  const RowId* ids = nullptr;  // unique
  int64_t* timestamps = nullptr;
  float* rows = nullptr;  // aligned to 16 bytes, DeviceRowStride floats each
  uint64_t count = 0;
};

class DeviceValidationCache {
 public:
  // For batches of up to `rows_max` rows, fewer than `batches` of which are not safe to evict at any time, the one that
  // is put in counted (embedding_pipeline.h has the figure).
  struct Capacity {
    uint64_t rows_max = 0;
    uint64_t batches = 0;
  };
  static uint64_t MemoryBytes(const EmbeddingSpec& spec, const Capacity& capacity);

  // Allocates all that it will ever have. kOutOfBudget when the device has not that much; kUnsupported for more slots
  // than there are numbers for.
  static Result<std::unique_ptr<DeviceValidationCache>> Make(gpu::Device& device, const EmbeddingSpec& spec,
                                                             const Capacity& capacity,
                                                             gpu::StreamHandle stream);

  // Enqueues what ValidationCache::Validate does. `replaced`, in device memory, goes up by the rows that were.
  Status Validate(const CommitTracker::Ticket& ticket, const DeviceRowBlock& rows, uint64_t* replaced);
  // Enqueues that these rows, as they are once all that is enqueued is through, come in with this timestamp, which is
  // larger than all before. kOutOfBudget for more rows than its capacity.
  Status Insert(const DeviceRowBlock& rows, int64_t timestamp);

  // Versions of rows that are not safe to evict.
  uint64_t row_count() const { return row_count_; }
  uint64_t memory_bytes() const { return memory_.get().size(); }

 private:
  // A batch in the ring.
  struct Versions {
    int64_t timestamp = kNeverWritten;
    uint64_t first_slot = 0;
    uint64_t count = 0;
  };

  DeviceValidationCache(gpu::Device& device, const EmbeddingSpec& spec, const Capacity& capacity,
                        gpu::StreamHandle stream, gpu::Memory memory);

  void Evict(int64_t safe_to_evict);
  Result<uint64_t> TakeSlots(uint64_t count);
  Status EmptyTable();
  Status FillTable();
  Status PutIn(const Versions& versions);

  gpu::Device& device_;
  const gpu::StreamHandle stream_;
  const uint64_t row_bytes_;
  const Capacity capacity_;
  const uint64_t slot_count_;
  const gpu::Memory memory_;  // what is below
  gpu::RowTable table_;
  RowId* ids_ = nullptr;  // by slot, as is the next
  std::byte* rows_ = nullptr;
  uint32_t* found_ = nullptr;  // of the batch that is being validated

  std::deque<Versions> ring_;  // timestamps ascend
  uint64_t head_ = 0;          // the slot after the last batch
  uint64_t row_count_ = 0;     // of all in the ring
  uint64_t used_cells_ = 0;    // at most so many cells of the table are not empty
  int64_t newest_ = kNeverWritten;
  int64_t evicted_ = kNeverWritten;  // up to this timestamp all are
};

}  // namespace quarry
