// FeatureBuffer: the feature buffer of GNNDrive §4.2 and Algorithm 1: rows of the batches in flight plus
// those that stay between batches, in fixed slots.
//
// Mapping table (node -> slot, 4 bytes a node); per slot its node (reverse map), reference count and state
// (the valid bit). A slot whose reference count is 0 is on the standby list, least recently used first, its
// row still valid and served to whoever asks again; at most `retained_max` valid rows stay there (the --cache
// budget), the rest are forgotten.
//
//   kFree     -> kLoading  [Acquire: miss]
//   kLoading  -> kResident [FinishLoad]
//   kLoading  -> kFailed   [AbortLoad]
//   kFailed   -> kFree     [Release, last reference]
//   kResident, references > 0 -> standby [Release, last reference] -> kFree [evicted]
//   standby   -> kResident, references > 0 [Acquire: hit]
//
// Deadlock rule: GNNDrive reserves extractors x largest batch slots, but the largest possible batch of
// fanouts 10, 15, 20 is three times what occurs, and slots are most of the budget. Here a batch is admitted
// whole: Acquire waits, in the order of arrival (tickets), until all the slots it needs are free or in
// standby, then takes them at once. An admitted batch never waits for slots again, so it completes and is
// released whatever the others do. A batch larger than the buffer is refused with kOutOfBudget.
//
// Thread-safe: one latch, held for about 16 ns a row. Owned by a road; rows are valid while acquired.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/buffer.h"

namespace quarry {

struct FeatureBufferOptions {
  uint64_t node_count = 0;
  uint64_t slot_bytes = 0;    // distance of two rows, at least a row as encoded
  uint64_t slot_count = 0;    // rows in all, 1..2^31 - 1
  uint64_t retained_max = 0;  // rows that stay valid with no reference, at most slot_count
};

struct FeatureBufferStats {
  uint64_t lookups = 0;  // rows asked for
  uint64_t hits = 0;     // already valid
  uint64_t shared = 0;   // being loaded by another batch
  uint64_t misses = 0;   // handed to the caller to load
  double admission_wait_seconds = 0;
};

class FeatureBuffer {
 public:
  // Bytes that Make will allocate.
  static uint64_t MemoryBytes(const FeatureBufferOptions& options);
  // kOutOfBudget when the system refuses the memory, kInvalidArgument for a slot_count out of range.
  static Result<std::unique_ptr<FeatureBuffer>> Make(const FeatureBufferOptions& options);
  virtual ~FeatureBuffer() = default;

  virtual std::span<const std::byte> rows() const = 0;  // of all slots, slot_bytes() apart
  virtual std::byte* SlotData(uint32_t slot) = 0;
  virtual uint64_t slot_bytes() const = 0;

  // Pins the rows of `nodes` (unique), writing each one's slot to `slots`. `misses` receives the positions
  // (indices into nodes) that the caller must now load and FinishLoad or AbortLoad; `waits` those that
  // another batch is loading: call WaitLoaded for them after the caller's own loads. Blocks for admission;
  // kCancelled after Cancel(); on any error nothing is pinned.
  virtual Status Acquire(std::span<const NodeId> nodes, std::span<uint32_t> slots,
                         std::vector<uint32_t>& misses, std::vector<uint32_t>& waits) = 0;
  // The rows in these slots are whole now. May be called in portions, and for a part of the misses.
  virtual void FinishLoad(std::span<const uint32_t> slots) = 0;
  // Waits until every slot is valid; kIoError when the batch that was loading one gave up, kCancelled after
  // Cancel().
  virtual Status WaitLoaded(std::span<const uint32_t> slots) = 0;
  // The loader gives up: those of `slots` that are still loading become invalid and their waiters wake with
  // an error. References stay and are dropped by Release as usual.
  virtual void AbortLoad(std::span<const uint32_t> slots) = 0;
  // Drops one reference to each; the last one puts the slot on the standby list. Slots are retired from last
  // to first, so the rows that a block found first (the ones nearest to its seeds, found again most often)
  // are evicted last.
  virtual void Release(std::span<const uint32_t> slots) = 0;

  // Wakes every waiter with kCancelled and refuses until Resume. Rows stay.
  virtual void Cancel() = 0;
  // REQUIRES: no thread is in Acquire or WaitLoaded.
  virtual void Resume() = 0;
  virtual FeatureBufferStats stats() const = 0;
};

}  // namespace quarry
