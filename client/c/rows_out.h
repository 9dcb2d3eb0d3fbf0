// Rows that a batch or a lookup has, written where the caller of the C interface wants them. Private to it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"

namespace quarry::client {

// Row i lies at base + slots[i] * stride_bytes; without slots at base + i * stride_bytes.
struct RowsIn {
  const std::byte* base = nullptr;
  uint64_t stride_bytes = 0;
  const uint32_t* slots = nullptr;
  uint64_t count = 0;
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
};

// `element_type` as C gives it: 0 as stored, else float32. `stride_bytes` 0: one row behind the other.
struct RowsOut {
  int element_type = 0;
  void* out = nullptr;
  uint64_t stride_bytes = 0;
};

// One pass over the bytes, by up to `threads` threads (0: one a processor). kInvalidArgument as quarry.h says.
Status WriteRows(const RowsIn& rows, const RowsOut& to, unsigned threads);

}  // namespace quarry::client
