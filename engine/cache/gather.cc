#include "quarry/cache/gather.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "quarry/base/thread.h"

namespace quarry {
namespace {

constexpr uint64_t kLineBytes = 64;

// How far ahead of the copy rows are asked for: enough to keep the processor's outstanding misses busy, and
// little enough to stay in its first cache. From 4 to 16 KiB it makes no difference (bench_extract).
constexpr uint64_t kAheadBytes = 8 << 10;

// Below this a thread costs more than it copies.
constexpr uint64_t kThreadBytesMin = 1 << 20;

void GatherPart(const RowTable& table, std::span<const uint32_t> slots, std::byte* out) {
  const uint64_t ahead_rows = std::max<uint64_t>(1, kAheadBytes / std::max<uint64_t>(1, table.row_bytes));
  // The hardware follows a row by itself once it is under way.
  const uint64_t prefetched_bytes = std::min(table.row_bytes, kAheadBytes);
  for (size_t i = 0; i < slots.size(); i++) {
    if (i + ahead_rows < slots.size()) {
      const std::byte* const next = table.base + slots[i + ahead_rows] * table.stride_bytes;
      for (uint64_t at = 0; at < prefetched_bytes; at += kLineBytes) __builtin_prefetch(next + at);
    }
    std::memcpy(out + i * table.row_bytes, table.base + slots[i] * table.stride_bytes, table.row_bytes);
  }
}

}  // namespace

void GatherRows(const RowTable& table, std::span<const uint32_t> slots, std::span<std::byte> out,
                unsigned threads) {
  assert(out.size() == slots.size() * table.row_bytes);
  const uint64_t parts = std::clamp<uint64_t>(out.size() / kThreadBytesMin, 1, std::max(1U, threads));
  const auto gather = [&](uint64_t part) {
    const size_t begin = slots.size() * part / parts;
    const size_t end = slots.size() * (part + 1) / parts;
    GatherPart(table, slots.subspan(begin, end - begin), out.data() + begin * table.row_bytes);
  };
  if (parts == 1) return gather(0);
  std::atomic<uint64_t> next{0};
  // Copying cannot fail.
  static_cast<void>(RunOnThreads("gather", static_cast<unsigned>(parts), [&](unsigned) {
    for (uint64_t part = next++; part < parts; part = next++) gather(part);
    return Status::Ok();
  }));
}

}  // namespace quarry
