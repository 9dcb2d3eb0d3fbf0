// GatherRows: scattered rows of a table in memory, made dense.
//
// For callers that need a plain matrix (exports, other frameworks); the trainer aggregates rows in place and
// copies none. Pure; thread-safe. Allocates nothing but its threads, which end before it returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quarry {

struct RowTable {
  const std::byte* base = nullptr;
  uint64_t stride_bytes = 0;  // from one row to the next
  uint64_t row_bytes = 0;     // bytes copied of each row; may be more than the stride
};

// Copies row slots[i] to out[i * row_bytes]; the rows are shared out evenly among `threads`.
// REQUIRES: out.size() == slots.size() * row_bytes, not overlapping the table.
void GatherRows(const RowTable& table, std::span<const uint32_t> slots, std::span<std::byte> out,
                unsigned threads = 1);

}  // namespace quarry
