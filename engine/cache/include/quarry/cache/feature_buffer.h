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
// Rows may lie elsewhere, in a device's memory: the buffer then keeps the account of their slots alone.
//
// Thread-safe: one latch, held for about 16 ns a row. Owned by a road; rows are valid while acquired.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/buffer.h"

namespace quarry {

struct FeatureBufferOptions {
  uint64_t node_count = 0;
  uint64_t slot_bytes = 0;    // distance of two rows, at least a row as encoded
  uint64_t slot_count = 0;    // rows in all, 1..2^31 - 1
  uint64_t retained_max = 0;  // rows that stay valid with no reference, at most slot_count
  bool rows_elsewhere = false;
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

  // Rows of all slots, slot_bytes() apart; empty where they are elsewhere.
  std::span<const std::byte> rows() const { return rows_.span(); }
  // REQUIRES: they are here.
  std::byte* SlotData(uint32_t slot) { return rows_.data() + slot * options_.slot_bytes; }
  uint64_t slot_bytes() const { return options_.slot_bytes; }

  // Pins the rows of `nodes` (unique), writing each one's slot to `slots`. `misses` receives the positions
  // (indices into nodes) that the caller must now load and FinishLoad or AbortLoad; `waits` those that
  // another batch is loading: call WaitLoaded for them after the caller's own loads. Blocks for admission;
  // kCancelled after Cancel(); on any error nothing is pinned.
  Status Acquire(std::span<const NodeId> nodes, std::span<uint32_t> slots, std::vector<uint32_t>& misses,
                 std::vector<uint32_t>& waits);
  // The rows in these slots are whole now. May be called in portions, and for a part of the misses.
  void FinishLoad(std::span<const uint32_t> slots);
  // Waits until every slot is valid; kIoError when the batch that was loading one gave up, kCancelled after
  // Cancel().
  Status WaitLoaded(std::span<const uint32_t> slots);
  // The loader gives up: those of `slots` that are still loading become invalid and their waiters wake with
  // an error. References stay and are dropped by Release as usual.
  void AbortLoad(std::span<const uint32_t> slots);
  // Drops one reference to each; the last one puts the slot on the standby list. Slots are retired from last
  // to first, so the rows that a block found first (the ones nearest to its seeds, found again most often)
  // are evicted last.
  void Release(std::span<const uint32_t> slots);

  // Wakes every waiter with kCancelled and refuses until Resume. Rows stay.
  void Cancel();
  // REQUIRES: no thread is in Acquire or WaitLoaded.
  void Resume();
  FeatureBufferStats stats() const;

 private:
  struct Slot;
  FeatureBuffer(const FeatureBufferOptions& options, IoBuffer rows, IoBuffer table, IoBuffer slots);

  Status WaitForAdmission(std::span<const NodeId> nodes) QUARRY_REQUIRES(mutex_);
  bool Fits(std::span<const NodeId> nodes) const QUARRY_REQUIRES(mutex_);
  uint32_t TakeSlot() QUARRY_REQUIRES(mutex_);
  uint32_t EvictOldest() QUARRY_REQUIRES(mutex_);
  bool InStandby(uint32_t position) const QUARRY_REQUIRES(mutex_);
  void PushStandby(uint32_t slot) QUARRY_REQUIRES(mutex_);
  void CompactLog() QUARRY_REQUIRES(mutex_);

  // Calls visit(i, entry) for each node in order, its table entry and the slot behind it prefetched.
  template <typename Visit>
  void ForEachEntry(std::span<const NodeId> nodes, Visit visit) const QUARRY_REQUIRES(mutex_);
  // Calls visit(slot) for each, prefetched.
  template <typename Iterator, typename Visit>
  void ForEachSlot(Iterator begin, Iterator end, Visit visit) const QUARRY_REQUIRES(mutex_);

  const FeatureBufferOptions options_;
  const IoBuffer rows_;
  const IoBuffer table_memory_;
  const IoBuffer slots_memory_;

  mutable Mutex mutex_;
  CondVar slots_changed_;  // slots were released, or it is another ticket's turn
  CondVar loads_changed_;
  uint32_t* const table_;  // by node: slot + 1, or 0
  Slot* const slots_;

  // The standby list as a log: releasing appends a slot, evicting takes from the head. An entry whose slot
  // has been acquired since is stale (its stamp points elsewhere) and skipped: no links to mend on a hit.
  // When the log is full, stale entries are squeezed out; it is twice as long as there are slots, so that
  // this costs O(1) a release.
  std::vector<uint32_t> log_ QUARRY_GUARDED_BY(mutex_);
  uint32_t log_head_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint32_t log_tail_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint64_t standby_count_ QUARRY_GUARDED_BY(mutex_) = 0;

  std::vector<uint32_t> free_ QUARRY_GUARDED_BY(mutex_);
  uint64_t next_ticket_ QUARRY_GUARDED_BY(mutex_) = 0;
  uint64_t serving_ QUARRY_GUARDED_BY(mutex_) = 0;
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  FeatureBufferStats stats_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
