#include "rows_out.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "quarry.h"
#include "quarry/base/process.h"
#include "quarry/base/thread.h"

namespace quarry::client {
namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kPrefetchedBytes = 8 << 10;  // as GatherRows (engine/cache), which measured it
constexpr uint64_t kThreadBytesMin = 1 << 20;   // below this a thread costs more than it copies

// How one row is written.
struct Copy {
  ElementType type;
  uint32_t dim;
  uint64_t row_bytes;  // as it is stored
  bool decodes;

  void operator()(const std::byte* from, std::byte* to) const {
    if (!decodes) {
      std::memcpy(to, from, row_bytes);
    } else {
      DecodeRow(type, {from, row_bytes}, {reinterpret_cast<float*>(to), dim});
    }
  }
};

const std::byte* RowAt(const RowsIn& rows, uint64_t i) {
  return rows.base + (rows.slots == nullptr ? i : rows.slots[i]) * rows.stride_bytes;
}

void WritePart(const RowsIn& rows, const Copy& copy, std::byte* out, uint64_t out_stride, uint64_t begin,
               uint64_t end) {
  const uint64_t row_bytes = std::max<uint64_t>(1, copy.row_bytes);
  const uint64_t ahead = std::max<uint64_t>(1, kPrefetchedBytes / row_bytes);
  for (uint64_t i = begin; i < end; ++i) {
    if (i + ahead < end) {
      const std::byte* const next = RowAt(rows, i + ahead);
      for (uint64_t at = 0; at < std::min(row_bytes, kPrefetchedBytes); at += kLineBytes) {
        __builtin_prefetch(next + at);
      }
    }
    copy(RowAt(rows, i), out + i * out_stride);
  }
}

}  // namespace

Status WriteRows(const RowsIn& rows, const RowsOut& to, unsigned threads) {
  const ElementType stored = rows.element_type;
  const bool as_stored = to.element_type == 0 || to.element_type == static_cast<int>(stored);
  if (!as_stored && (to.element_type != QUARRY_FLOAT32 || !IsFloatType(stored))) {
    return MakeStatus(Code::kInvalidArgument,
                      "rows of {} as type {}: as they are stored, or floats as float32",
                      ElementTypeName(stored), to.element_type);
  }
  const Copy copy = {stored, rows.dim, RowBytes(stored, rows.dim), !as_stored};
  const uint64_t out_bytes = as_stored ? copy.row_bytes : uint64_t{rows.dim} * sizeof(float);
  const uint64_t out_stride = to.stride_bytes == 0 ? out_bytes : to.stride_bytes;
  if (out_stride < out_bytes) {
    return MakeStatus(Code::kInvalidArgument, "a stride of {} bytes for rows of {}", out_stride, out_bytes);
  }
  if (rows.count == 0) return Status();
  auto* const out = static_cast<std::byte*>(to.out);
  const uint64_t parts = std::clamp<uint64_t>(rows.count * out_bytes / kThreadBytesMin, 1,
                                              threads == 0 ? ProcessorCount() : threads);
  std::atomic<uint64_t> next{0};
  return RunOnThreads("gather", static_cast<unsigned>(parts), [&](unsigned) {
    for (uint64_t part = next++; part < parts; part = next++) {
      WritePart(rows, copy, out, out_stride, rows.count * part / parts, rows.count * (part + 1) / parts);
    }
    return Status();
  });
}

}  // namespace quarry::client
