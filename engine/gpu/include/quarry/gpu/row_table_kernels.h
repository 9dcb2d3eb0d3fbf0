// A hash table of rows in a device's memory, and kernels of batches of rows that meet it. The kernels of one table run one
// after the other, on one stream, so that nothing is locked; within a launch every row is there once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quarry/gpu/atomic.h"
#include "quarry/gpu/kernel.h"
#include "quarry/gpu/words.h"

namespace quarry::gpu {

// Row id -> {timestamp, slot}: open addressing, linear probing. Arrays of their own, since a probe reads ids alone. An
// empty table is all ones; nothing is erased, as a timestamp tells what is too old, and who fills it empties it in time.
struct RowTable {
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  uint64_t* rows;
  int64_t* timestamps;
  uint32_t* slots;
  uint64_t cells;  // fewer than 2^32

  // By the upper bits of a product (Fibonacci hashing), scaled to the cells.
  QUARRY_ON_DEVICE uint64_t Home(uint64_t row) const {
    return ((row * 0x9e3779b97f4a7c15U) >> 32) * cells >> 32;
  }
  QUARRY_ON_DEVICE uint64_t Next(uint64_t cell) const { return cell + 1 == cells ? 0 : cell + 1; }
};

inline constexpr uint32_t kNoRowSlot = 0xffffffff;

// For each row of a batch the slot of its version in the table, where that has a larger timestamp than the batch's row and
// than `newer_than`; the batch's row gets that timestamp.
struct FindNewerRows {
  static constexpr char kName[] = "quarry_find_newer_rows";
  RowTable table;
  const uint64_t* rows;
  int64_t* timestamps;
  uint64_t row_count;
  int64_t newer_than;
  uint32_t* found;        // by row of the batch: the slot, or kNoRowSlot
  uint64_t* found_count;  // is added to

  QUARRY_ON_DEVICE uint64_t count() const { return row_count; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    found[i] = kNoRowSlot;
    uint64_t cell = table.Home(rows[i]);
    while (table.rows[cell] != rows[i]) {
      if (table.rows[cell] == RowTable::kEmpty) return;
      cell = table.Next(cell);
    }
    const int64_t timestamp = table.timestamps[cell];
    if (timestamp <= newer_than || timestamp <= timestamps[i]) return;
    timestamps[i] = timestamp;
    found[i] = table.slots[cell];
    AtomicAdd(found_count, 1);
  }
};

// Brings the found versions into the batch. An index copies a chunk, and the indices of a row are neighbors.
struct CopyFoundRows {
  static constexpr char kName[] = "quarry_copy_found_rows";
  const uint32_t* found;
  const std::byte* slots;
  std::byte* rows;
  uint64_t row_count;
  Divisor chunks;  // of a row, in both

  QUARRY_ON_DEVICE uint64_t count() const { return row_count * chunks.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [row, chunk] = Divide(index, chunks);
    if (found[row] == kNoRowSlot) return;
    reinterpret_cast<Chunk*>(rows)[index] =
        reinterpret_cast<const Chunk*>(slots)[uint64_t{found[row]} * chunks.value() + chunk];
  }
};

// Puts the rows of a batch in: row i has slot first_slot + i. An older version of a row leaves its cell.
// REQUIRES: fewer rows than the table has empty cells.
struct InsertRows {
  static constexpr char kName[] = "quarry_insert_rows";
  RowTable table;
  const uint64_t* rows;
  uint64_t row_count;
  int64_t timestamp;
  uint32_t first_slot;

  QUARRY_ON_DEVICE uint64_t count() const { return row_count; }
  QUARRY_ON_DEVICE void operator()(uint64_t i) const {
    for (uint64_t cell = table.Home(rows[i]);; cell = table.Next(cell)) {
      const uint64_t there = AtomicCompareExchange(&table.rows[cell], RowTable::kEmpty, rows[i]);
      if (there != RowTable::kEmpty && there != rows[i]) continue;
      table.timestamps[cell] = timestamp;
      table.slots[cell] = first_slot + static_cast<uint32_t>(i);
      return;
    }
  }
};

// Rounds the first `dim` floats of every row to bfloat16, as EncodeRow and DecodeRow would (format/row_codec.cc).
struct RoundRowsToBfloat16 {
  static constexpr char kName[] = "quarry_round_rows_to_bfloat16";
  std::byte* rows;
  uint64_t row_count;
  uint64_t stride_bytes;
  Divisor dim;

  QUARRY_ON_DEVICE uint64_t count() const { return row_count * dim.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [row, c] = Divide(index, dim);
    auto* const value = reinterpret_cast<float*>(rows + row * stride_bytes) + c;
    const auto bits = BitsAs<uint32_t>(*value);
    const uint32_t quiet_nan = (bits >> 16) | 0x40;
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    *value = BitsAs<float>(((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded) << 16);
  }
};

}  // namespace quarry::gpu
