#include "quarry/storage/row_bitmap.h"

#include <roaring/roaring.h>

namespace quarry {

std::vector<std::byte> EncodeRows(std::span<const uint64_t> rows) {
  RowBitmap bitmap;
  for (const uint64_t row : rows) bitmap.add(static_cast<uint32_t>(row));
  bitmap.runOptimize();
  std::vector<std::byte> bytes(bitmap.getSizeInBytes());
  bitmap.write(reinterpret_cast<char*>(bytes.data()));
  return bytes;
}

Result<RowBitmap> DecodeRows(std::span<const std::byte> bytes, std::string_view what) {
  const char* const begin = reinterpret_cast<const char*>(bytes.data());
  // The C++ reader throws on bytes that are no bitmap: they are measured first.
  using namespace ::roaring;  // NOLINT(google-build-using-namespace): row_bitmap.h
  if (roaring_bitmap_portable_deserialize_size(begin, bytes.size()) != bytes.size() || bytes.empty()) {
    return MakeStatus(Code::kCorruption, "{}: {} bytes that are no set of rows", what, bytes.size());
  }
  return RowBitmap::readSafe(begin, bytes.size());
}

}  // namespace quarry
