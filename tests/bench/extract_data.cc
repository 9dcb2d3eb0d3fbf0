#include "extract_data.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"

namespace quarry::bench {
namespace {

// Whether the file is one that WriteRowFile left, as far as its size and some of its rows tell.
bool HoldsRows(IoBackend& backend, const File& file, uint64_t row_count) {
  const Result<uint64_t> bytes = backend.FileBytes(file);
  if (!bytes.ok() || *bytes != row_count * kRowBytes) return false;
  const Result<IoBuffer> page = IoBuffer::Allocate(kPageBytes);
  if (!page.ok()) return false;
  Rng rng(11);
  for (int i = 0; i < 8; i++) {
    const uint64_t first = RoundDown(i == 0 ? row_count - 1 : rng.Below(row_count), kPageBytes / kRowBytes);
    if (!backend.ReadAt(file, first * kRowBytes, page->span()).ok()) return false;
    std::array<std::byte, kRowBytes> expected;
    FillRow(first, expected);
    if (std::memcmp(page->data(), expected.data(), kRowBytes) != 0) return false;
  }
  return true;
}

Status WriteRowFile(IoBackend& backend, const std::string& path, uint64_t row_count) {
  constexpr uint64_t kPieceRows = (8 << 20) / kRowBytes;
  const std::string unfinished = path + ".unfinished";
  std::filesystem::remove(unfinished);
  QUARRY_TRY(const File file, backend.Open(unfinished, OpenMode::kCreateDirect));
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kPieceRows * kRowBytes));
  const double start = MonotonicSeconds();
  for (uint64_t first = 0; first < row_count; first += kPieceRows) {
    const uint64_t count = std::min(kPieceRows, row_count - first);
    for (uint64_t i = 0; i < count; i++) FillRow(first + i, buffer.span().subspan(i * kRowBytes, kRowBytes));
    QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, first * kRowBytes, buffer.span().first(count * kRowBytes)));
  }
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  fmt::print("wrote {} ({}) in {:.1f} s\n", path, FormatBytes(row_count * kRowBytes),
             MonotonicSeconds() - start);
  return backend.Rename(unfinished, path);
}

}  // namespace

void FillRow(uint64_t row, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size() / 8; i++) {
    const uint64_t word = Mix64(row * kRowBytes + i);
    std::memcpy(out.data() + i * 8, &word, 8);
  }
}

Result<File> OpenRowFile(IoBackend& backend, const std::string& directory, uint64_t row_count) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus(error.value(), "create folder", directory);
  const std::string path = fmt::format("{}/extract-{}.bin", directory, row_count);
  if (auto file = backend.Open(path, OpenMode::kReadDirect); file.ok()) {
    if (HoldsRows(backend, *file, row_count)) return std::move(file).value();
    std::filesystem::remove(path);
  }
  if (const Status status = WriteRowFile(backend, path, row_count); !status.ok()) {
    std::filesystem::remove(path + ".unfinished", error);
    return status;
  }
  return backend.Open(path, OpenMode::kReadDirect);
}

std::vector<uint32_t> DrawBatch(uint64_t row_count, uint64_t count, uint64_t seed) {
  std::vector<bool> chosen(row_count);
  std::vector<uint32_t> rows;
  Rng rng(seed);
  while (rows.size() < count) {
    const uint64_t row = rng.Below(row_count);
    if (chosen[row]) continue;
    chosen[row] = true;
    rows.push_back(static_cast<uint32_t>(row));
  }
  std::ranges::sort(rows);
  return rows;
}

double PagesTouched(std::span<const uint32_t> rows, uint64_t row_count) {
  uint64_t pages = 0, last = ~uint64_t{0};
  for (const uint32_t row : rows) {
    const uint64_t page = row / (kPageBytes / kRowBytes);
    pages += page != last;
    last = page;
  }
  return static_cast<double>(pages) / static_cast<double>(CeilDiv(row_count * kRowBytes, kPageBytes));
}

}  // namespace quarry::bench
