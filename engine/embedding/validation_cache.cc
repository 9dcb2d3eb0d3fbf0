#include <algorithm>
#include <cassert>
#include <cstring>

#include "quarry/base/random.h"
#include "quarry/embedding/oac.h"

namespace quarry {
namespace {

constexpr uint32_t kNoSlot = 0xffffffff;

// Row id -> slot: open addressing, linear probing, at most half full. Erasing moves later entries back, so
// there are no tombstones and a long run does not slow it down.
class SlotTable {
 public:
  size_t size() const { return size_; }
  uint64_t memory_bytes() const { return cells_.capacity() * sizeof(Cell); }

  uint32_t Find(RowId row) const { return cells_[Locate(row)].slot; }

  // The slot of the row; kNoSlot has been put in when there was none, for the caller to set.
  uint32_t& FindOrInsert(RowId row) {
    if (2 * (size_ + 1) > cells_.size()) Grow();
    Cell& cell = cells_[Locate(row)];
    if (cell.slot == kNoSlot) {
      cell.row = row;
      ++size_;
    }
    return cell.slot;
  }

  // REQUIRES: the row is there.
  void Erase(RowId row) {
    size_t hole = Locate(row);
    assert(cells_[hole].slot != kNoSlot);
    for (size_t i = Next(hole); cells_[i].slot != kNoSlot; i = Next(i)) {
      // An entry may fill the hole when its probe sequence, from its home on, passes it.
      const size_t home = Home(cells_[i].row);
      if (((i - home) & mask()) < ((i - hole) & mask())) continue;
      cells_[hole] = cells_[i];
      hole = i;
    }
    cells_[hole].slot = kNoSlot;
    --size_;
  }

 private:
  struct Cell {
    RowId row = 0;
    uint32_t slot = kNoSlot;
  };
  static constexpr size_t kCellsMin = 64;

  size_t mask() const { return cells_.size() - 1; }
  size_t Home(RowId row) const { return Mix64(row) & mask(); }
  size_t Next(size_t i) const { return (i + 1) & mask(); }

  // The row's cell, or the empty one where it belongs.
  size_t Locate(RowId row) const {
    size_t i = Home(row);
    while (cells_[i].slot != kNoSlot && cells_[i].row != row) i = Next(i);
    return i;
  }

  void Grow() {
    std::vector<Cell> old(2 * cells_.size());
    old.swap(cells_);
    for (const Cell& cell : old) {
      if (cell.slot != kNoSlot) cells_[Locate(cell.row)] = cell;
    }
  }

  std::vector<Cell> cells_ = std::vector<Cell>(kCellsMin);  // a power of two
  size_t size_ = 0;
};

class ValidationCacheImpl final : public ValidationCache {
 public:
  explicit ValidationCacheImpl(const EmbeddingSpec& spec) : dim_(spec.dim), state_dim_(spec.state_dim()) {}

  uint64_t Validate(const CommitTracker::Ticket& ticket, RowBlock& block) override {
    Evict(ticket.safe_to_evict);
    if (newest_ <= ticket.mfct) return 0;
    uint64_t replaced = 0;
    for (size_t i = 0; i < block.ids.size(); ++i) {
      const uint32_t slot = table_.Find(block.ids[i]);
      if (slot == kNoSlot) continue;
      if (timestamps_[slot] <= std::max(ticket.mfct, block.timestamps[i])) continue;
      block.timestamps[i] = timestamps_[slot];
      std::copy_n(&values_[slot * dim_], dim_, &block.values[i * dim_]);
      std::copy_n(state_.data() + slot * state_dim_, state_dim_, block.state.data() + i * state_dim_);
      ++replaced;
    }
    return replaced;
  }

  void Insert(const RowBlock& block) override {
    for (size_t i = 0; i < block.ids.size(); ++i) {
      assert(block.timestamps[i] >= newest_ && "timestamps ascend");
      newest_ = block.timestamps[i];
      uint32_t& slot = table_.FindOrInsert(block.ids[i]);
      if (slot == kNoSlot) slot = TakeSlot();
      rows_[slot] = block.ids[i];
      timestamps_[slot] = newest_;
      std::copy_n(&block.values[i * dim_], dim_, &values_[slot * dim_]);
      std::copy_n(block.state.data() + i * state_dim_, state_dim_, state_.data() + slot * state_dim_);
      log_.push_back({newest_, slot});
    }
  }

  size_t row_count() const override { return table_.size(); }
  uint64_t memory_bytes() const override {
    return table_.memory_bytes() + values_.capacity() * sizeof(float) + state_.capacity() * sizeof(float) +
           timestamps_.capacity() * sizeof(int64_t) + rows_.capacity() * sizeof(RowId) +
           free_.capacity() * sizeof(uint32_t) + log_.capacity() * sizeof(LogEntry);
  }

 private:
  struct LogEntry {
    int64_t timestamp;
    uint32_t slot;
  };

  uint32_t TakeSlot() {
    if (free_.empty()) AddSlots();
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  void AddSlots() {
    const size_t old_count = rows_.size();
    const size_t count = std::max<size_t>(64, 2 * old_count);
    rows_.resize(count);
    timestamps_.resize(count);
    values_.resize(count * dim_);
    state_.resize(count * state_dim_);
    free_.reserve(count);
    for (size_t slot = count; slot-- > old_count;) free_.push_back(static_cast<uint32_t>(slot));
  }

  // Timestamps ascend in the log. An entry whose slot has another timestamp by now is of a version that has
  // been replaced: a slot is only given to another row after all its entries have left the log.
  void Evict(int64_t safe_to_evict) {
    while (log_head_ < log_.size() && log_[log_head_].timestamp <= safe_to_evict) {
      const auto [timestamp, slot] = log_[log_head_++];
      if (timestamps_[slot] != timestamp) continue;
      table_.Erase(rows_[slot]);
      free_.push_back(slot);
    }
    if (2 * log_head_ < log_.size()) return;
    log_.erase(log_.begin(), log_.begin() + static_cast<ptrdiff_t>(log_head_));
    log_head_ = 0;
  }

  const size_t dim_;
  const size_t state_dim_;
  SlotTable table_;
  std::vector<RowId> rows_;  // by slot, as are the next three
  std::vector<int64_t> timestamps_;
  std::vector<float> values_;
  std::vector<float> state_;
  std::vector<uint32_t> free_;
  std::vector<LogEntry> log_;  // every row that came in, from log_head_ on
  size_t log_head_ = 0;
  int64_t newest_ = kNeverWritten;
};

}  // namespace

std::unique_ptr<ValidationCache> MakeValidationCache(const EmbeddingSpec& spec) {
  return std::make_unique<ValidationCacheImpl>(spec);
}

}  // namespace quarry
