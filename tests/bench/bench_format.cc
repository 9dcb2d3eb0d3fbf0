// What verifying and decoding a row costs: nanoseconds per cell and per row, in and out of cache, beside the
// least that touching those bytes can cost (memcpy of the same rows in the same order).
//
//   bench_format [rows]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/format/checksum.h"
#include "quarry/format/element_type.h"

namespace quarry {
namespace {

constexpr size_t kOps = 1 << 20;

// Nanoseconds an operation: the median over stretches of `order` that are shorter than a time slice, so that
// a busy machine shows little.
double NanosecondsEach(const std::vector<uint32_t>& order, const std::function<void(uint32_t)>& op) {
  constexpr size_t kStretch = 1024;
  std::vector<double> seconds;
  for (size_t first = 0; first + kStretch <= order.size(); first += kStretch) {
    const double start = MonotonicSeconds();
    for (size_t i = first; i < first + kStretch; ++i) op(order[i]);
    seconds.push_back(MonotonicSeconds() - start);
  }
  const auto median = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median / kStretch * 1e9;
}

struct Case {
  const char* place;
  size_t row_count;
};

void RunCase(const Case& c) {
  constexpr size_t kRowBytes = 512;
  std::vector<std::byte> rows(c.row_count * kRowBytes, std::byte{0x3c});
  std::vector<uint32_t> order(kOps);
  Rng rng(1);
  for (uint32_t& i : order) i = static_cast<uint32_t>(rng.Below(c.row_count));
  std::vector<float> out(kRowBytes);
  const auto row = [&](uint32_t i, size_t bytes) { return std::span(rows).subspan(i * kRowBytes, bytes); };

  uint64_t sink = 0;
  fmt::print("{} ({} MB)\n", c.place, rows.size() / 1000000);
  fmt::print("  memcpy 512 B                 {:7.1f} ns  (the limit)\n",
             NanosecondsEach(order, [&](uint32_t i) { std::memcpy(out.data(), row(i, 512).data(), 512); }));
  fmt::print("  CellChecksum 512 B           {:7.1f} ns\n",
             NanosecondsEach(order, [&](uint32_t i) { sink += CellChecksum(row(i, 512), i); }));
  fmt::print("  CellChecksum 4 KiB           {:7.1f} ns\n", NanosecondsEach(order, [&](uint32_t i) {
               sink += CellChecksum(std::span(rows).subspan(i / 8 * 4096, 4096), i);
             }));
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16, ElementType::kInt8}) {
    const size_t bytes = RowBytes(type, 128);
    const std::span<float> values = std::span(out).first(128);
    fmt::print("  DecodeRow {:<8} x 128     {:7.1f} ns\n", ElementTypeName(type),
               NanosecondsEach(order, [&](uint32_t i) { DecodeRow(type, row(i, bytes), values); }));
    std::fill(values.begin(), values.end(), 0.7f);
    std::vector<std::byte> encoded(bytes);
    fmt::print("  EncodeRow {:<8} x 128     {:7.1f} ns\n", ElementTypeName(type),
               NanosecondsEach(order, [&](uint32_t) { EncodeRow(type, values, encoded); }));
  }
  if (sink == 1) fmt::print("\n");  // keeps the checksums alive
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const size_t rows = argc > 1 ? static_cast<size_t>(std::atoll(argv[1])) : 1 << 20;
  quarry::RunCase({"rows in the first-level cache", 32});
  quarry::RunCase({"rows in memory, in random order", rows});
}
