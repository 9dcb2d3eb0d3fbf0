#include "quarry/cache/feature_buffer.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/mutex.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Every lookup is two dependent cache misses: the table entry, then the slot. Both are prefetched, the entry
// twice as far ahead as the slot it leads to: without, Acquire takes 1.6 times and Release twice as long.
constexpr size_t kAhead = 16;

constexpr uint64_t kSlotCountMax = (uint64_t{1} << 31) - 1;

inline void Prefetch(const void* address) { __builtin_prefetch(address, 1, 3); }

uint64_t RowsBytes(const FeatureBufferOptions& o) {
  return o.rows_elsewhere ? 0 : o.slot_count * o.slot_bytes;
}
uint64_t TableBytes(const FeatureBufferOptions& o) { return o.node_count * sizeof(uint32_t); }
uint64_t LogEntries(uint64_t slot_count) { return 2 * slot_count; }

}  // namespace

// 16 bytes, so that a slot is one cache line whatever is asked of it.
struct alignas(16) FeatureBuffer::Slot {
  enum class State : uint32_t { kFree = 0, kLoading, kResident, kFailed };
  NodeId node;  // the reverse map; meaningless when kFree or kFailed
  uint32_t references;
  uint32_t stamp;  // while in standby: the position of its entry in the standby log
  State state;
};

FeatureBuffer::FeatureBuffer(const FeatureBufferOptions& options, IoBuffer rows, IoBuffer table,
                             IoBuffer slots)
    : options_(options),
      rows_(std::move(rows)),
      table_memory_(std::move(table)),
      slots_memory_(std::move(slots)),
      table_(reinterpret_cast<uint32_t*>(table_memory_.data())),
      slots_(reinterpret_cast<Slot*>(slots_memory_.data())),
      log_(LogEntries(options.slot_count)),
      free_(options.slot_count) {
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<uint32_t>(free_.size() - 1 - i);
}

template <typename Visit>
void FeatureBuffer::ForEachEntry(std::span<const NodeId> nodes, Visit visit) const {
  const size_t count = nodes.size();
  for (size_t i = 0; i < std::min(2 * kAhead, count); ++i) Prefetch(&table_[nodes[i]]);
  for (size_t i = 0; i < count; ++i) {
    if (i + 2 * kAhead < count) Prefetch(&table_[nodes[i + 2 * kAhead]]);
    if (i + kAhead < count) {
      const uint32_t entry = table_[nodes[i + kAhead]];
      if (entry != 0) Prefetch(&slots_[entry - 1]);
    }
    assert(nodes[i] < options_.node_count);
    visit(i, table_[nodes[i]]);
  }
}

template <typename Iterator, typename Visit>
void FeatureBuffer::ForEachSlot(Iterator begin, Iterator end, Visit visit) const {
  for (Iterator i = begin; i != end; ++i) {
    if (static_cast<size_t>(end - i) > kAhead) Prefetch(&slots_[*(i + kAhead)]);
    visit(*i);
  }
}

// Exact: rows that others hold need no slot, every other row needs one that is free or in standby (its own,
// for a hit there). The count is taken only when the batch's size alone does not settle it.
bool FeatureBuffer::Fits(std::span<const NodeId> nodes) const {
  const uint64_t available = free_.size() + standby_count_;
  if (nodes.size() <= available) return true;
  uint64_t needed = 0;
  ForEachEntry(nodes, [&](size_t, uint32_t entry) {
    needed += entry == 0 || slots_[entry - 1].references == 0 ? 1 : 0;
  });
  return needed <= available;
}

Status FeatureBuffer::WaitForAdmission(std::span<const NodeId> nodes) {
  if (nodes.size() > options_.slot_count) {
    return MakeStatus(Code::kOutOfBudget,
                      "a batch of {} input nodes needs {} of feature rows, the feature buffer holds {} ({}): "
                      "raise {} by at least {}, or lower the batch size or the fanouts",
                      nodes.size(), FormatBytes(nodes.size() * options_.slot_bytes), options_.slot_count,
                      FormatBytes(options_.slot_count * options_.slot_bytes),
                      options_.rows_elsewhere ? "the device's memory" : "the memory budget",
                      FormatBytes((nodes.size() - options_.slot_count) * options_.slot_bytes));
  }
  const uint64_t ticket = next_ticket_++;
  const double start = MonotonicSeconds();
  while (!cancelled_ && (serving_ != ticket || !Fits(nodes))) slots_changed_.Wait(mutex_);
  stats_.admission_wait_seconds += MonotonicSeconds() - start;
  if (cancelled_) return Status(Code::kCancelled, "the feature buffer was cancelled");
  ++serving_;
  slots_changed_.NotifyAll();
  return Status::Ok();
}

Status FeatureBuffer::Acquire(std::span<const NodeId> nodes, std::span<uint32_t> slots,
                              std::vector<uint32_t>& misses, std::vector<uint32_t>& waits) {
  assert(slots.size() == nodes.size());
  misses.clear();
  waits.clear();
  MutexLock lock(mutex_);
  QUARRY_RETURN_IF_ERROR(WaitForAdmission(nodes));
  // Everything present is pinned first, so that no miss below evicts a row of this very batch.
  ForEachEntry(nodes, [&](size_t i, uint32_t entry) {
    mutex_.AssertHeld();
    if (entry == 0) {
      misses.push_back(static_cast<uint32_t>(i));
      return;
    }
    Slot& slot = slots_[entry - 1];
    slots[i] = entry - 1;
    if (slot.state == Slot::State::kLoading) waits.push_back(static_cast<uint32_t>(i));
    if (slot.references++ == 0) --standby_count_;
  });
  for (size_t m = 0; m < misses.size(); ++m) {
    if (m + kAhead < misses.size()) Prefetch(&table_[nodes[misses[m + kAhead]]]);
    if (free_.size() > kAhead) Prefetch(&slots_[free_[free_.size() - 1 - kAhead]]);
    const NodeId node = nodes[misses[m]];
    const uint32_t slot = TakeSlot();
    slots_[slot] = {.node = node, .references = 1, .stamp = 0, .state = Slot::State::kLoading};
    table_[node] = slot + 1;
    slots[misses[m]] = slot;
  }
  stats_.lookups += nodes.size();
  stats_.misses += misses.size();
  stats_.shared += waits.size();
  stats_.hits += nodes.size() - misses.size() - waits.size();
  return Status::Ok();
}

uint32_t FeatureBuffer::TakeSlot() {
  if (free_.empty()) return EvictOldest();
  const uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

bool FeatureBuffer::InStandby(uint32_t position) const {
  const Slot& slot = slots_[log_[position]];
  return slot.references == 0 && slot.state == Slot::State::kResident && slot.stamp == position;
}

// REQUIRES: standby_count_ > 0
uint32_t FeatureBuffer::EvictOldest() {
  for (;; ++log_head_) {
    assert(log_head_ < log_tail_);
    const uint32_t left = log_tail_ - log_head_;
    if (left > 2 * kAhead) Prefetch(&slots_[log_[log_head_ + 2 * kAhead]]);
    if (left > kAhead) Prefetch(&table_[slots_[log_[log_head_ + kAhead]].node]);
    if (InStandby(log_head_)) break;
  }
  const uint32_t slot = log_[log_head_++];
  table_[slots_[slot].node] = 0;
  slots_[slot].state = Slot::State::kFree;
  --standby_count_;
  return slot;
}

void FeatureBuffer::PushStandby(uint32_t slot) {
  if (standby_count_ == 0) log_head_ = log_tail_ = 0;  // whatever is left in the log is stale
  if (log_tail_ == log_.size()) CompactLog();
  slots_[slot].stamp = log_tail_;
  log_[log_tail_++] = slot;
  ++standby_count_;
}

void FeatureBuffer::CompactLog() {
  uint32_t kept = 0;
  for (uint32_t i = log_head_; i < log_tail_; ++i) {
    if (i + kAhead < log_tail_) Prefetch(&slots_[log_[i + kAhead]]);
    if (!InStandby(i)) continue;
    slots_[log_[i]].stamp = kept;
    log_[kept++] = log_[i];
  }
  log_head_ = 0;
  log_tail_ = kept;
}

void FeatureBuffer::FinishLoad(std::span<const uint32_t> slots) {
  MutexLock lock(mutex_);
  ForEachSlot(slots.begin(), slots.end(), [&](uint32_t slot) {
    assert(slots_[slot].state == Slot::State::kLoading);
    slots_[slot].state = Slot::State::kResident;
  });
  loads_changed_.NotifyAll();
}

Status FeatureBuffer::WaitLoaded(std::span<const uint32_t> slots) {
  MutexLock lock(mutex_);
  for (const uint32_t slot : slots) {
    while (slots_[slot].state == Slot::State::kLoading && !cancelled_) loads_changed_.Wait(mutex_);
    if (cancelled_) return Status(Code::kCancelled, "the feature buffer was cancelled");
    if (slots_[slot].state == Slot::State::kFailed) {
      return Status(Code::kIoError, "the batch that was loading a shared feature row gave up");
    }
  }
  return Status::Ok();
}

void FeatureBuffer::AbortLoad(std::span<const uint32_t> slots) {
  MutexLock lock(mutex_);
  for (const uint32_t slot : slots) {
    if (slots_[slot].state != Slot::State::kLoading) continue;
    table_[slots_[slot].node] = 0;  // whoever asks from now on loads it anew
    slots_[slot].state = Slot::State::kFailed;
  }
  loads_changed_.NotifyAll();
}

void FeatureBuffer::Release(std::span<const uint32_t> slots) {
  MutexLock lock(mutex_);
  ForEachSlot(slots.rbegin(), slots.rend(), [&](uint32_t index) {
    mutex_.AssertHeld();
    Slot& slot = slots_[index];
    assert(slot.references > 0);
    if (--slot.references > 0) return;
    assert(slot.state != Slot::State::kLoading &&
           "its loader holds a reference until it has finished or aborted");
    if (slot.state == Slot::State::kResident) {
      PushStandby(index);
    } else {
      slot.state = Slot::State::kFree;
      free_.push_back(index);
    }
  });
  while (standby_count_ > options_.retained_max) free_.push_back(EvictOldest());
  slots_changed_.NotifyAll();
}

void FeatureBuffer::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  slots_changed_.NotifyAll();
  loads_changed_.NotifyAll();
}

void FeatureBuffer::Resume() {
  MutexLock lock(mutex_);
  cancelled_ = false;
  serving_ = next_ticket_;
}

FeatureBufferStats FeatureBuffer::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

uint64_t FeatureBuffer::MemoryBytes(const FeatureBufferOptions& options) {
  return IoBuffer::MappedBytes(RowsBytes(options)) + IoBuffer::MappedBytes(TableBytes(options)) +
         IoBuffer::MappedBytes(options.slot_count * sizeof(Slot)) +
         (LogEntries(options.slot_count) + options.slot_count) * sizeof(uint32_t);
}

Result<std::unique_ptr<FeatureBuffer>> FeatureBuffer::Make(const FeatureBufferOptions& options) {
  assert(options.node_count > 0 && options.slot_bytes > 0 && options.retained_max <= options.slot_count);
  if (options.slot_count == 0 || options.slot_count > kSlotCountMax) {
    return MakeStatus(Code::kInvalidArgument, "a feature buffer of {} rows: it holds 1 to {}",
                      options.slot_count, kSlotCountMax);
  }
  IoBuffer rows;
  if (!options.rows_elsewhere) {
    QUARRY_TRY(rows, IoBuffer::Allocate(RowsBytes(options)));
  }
  QUARRY_TRY(IoBuffer table, IoBuffer::Allocate(TableBytes(options)));
  QUARRY_TRY(IoBuffer slots, IoBuffer::Allocate(options.slot_count * sizeof(Slot)));
  return std::unique_ptr<FeatureBuffer>(
      new FeatureBuffer(options, std::move(rows), std::move(table), std::move(slots)));
}

}  // namespace quarry
