// ColumnCache: a table of one integer a row (labels, splits), looked up by row. Private to this room; one
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "page_cache.h"
#include "quarry/base/status.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/table_view.h"

namespace quarry::sql {

class ColumnCache {
 public:
  // Whether a table can be kept so: one integer from -1 on a row, and rows one behind the other.
  static bool Serves(const FeatureGeometry& geometry);
  // `table`: one that Serves. Errors as PageCache's.
  static Result<std::unique_ptr<ColumnCache>> Make(MemoryBudget& budget, const FeatureGeometry& geometry,
                                                   uint64_t capacity_bytes);

  uint64_t row_count() const { return row_count_; }
  // Rows are those of `table`, which has as many, from here on. What was read stays where this is the same instant: nobody
  // writes a row without a timestamp.
  void Attach(std::shared_ptr<const TableView> table);
  void Detach();  // lets go of the table's snapshot

  // The row's number, as the snapshot has it. kCorruption, kIoError. REQUIRES: attached.
  Result<int64_t> Get(MergedReader& reader, uint64_t row) {
    const std::byte* piece = pages_->Find(row >> piece_shift_);
    if (piece != nullptr) return Unpack(piece, row);
    QUARRY_TRY(const PageCache::Piece read, pages_->Get(reader, row >> piece_shift_));
    return Unpack(read.get(), row);
  }
  // The row will soon be asked for: where it is kept, the processor fetches it meanwhile.
  [[gnu::always_inline]] void Prefetch(uint64_t row) const {
    if (const std::byte* piece = pages_->Peek(row >> piece_shift_)) __builtin_prefetch(AddressIn(piece, row));
  }
  // The number that a row's bytes stand for.
  int64_t Decode(const std::byte* row) const {
    return row_bytes_ == 1 ? int64_t{std::to_integer<uint8_t>(*row)} : Load<int64_t>(row);
  }

 private:
  // What is kept of a piece: how many bytes a number has, then the numbers, one more than each, since none is
  // below -1. Lookups in any order take as long as the processor's caches are small.
  struct Header {
    uint64_t width = 0;
  };
  ColumnCache(std::unique_ptr<PageCache> pages, const FeatureGeometry& geometry);
  Result<PageCache::Piece> Pack(uint64_t first_byte, std::span<const std::byte> bytes) const;
  const std::byte* AddressIn(const std::byte* piece, uint64_t row) const {
    const uint64_t place = row & ((uint64_t{1} << piece_shift_) - 1);
    return piece + sizeof(Header) + place * Load<Header>(piece).width;
  }
  int64_t Unpack(const std::byte* piece, uint64_t row) const {
    const std::byte* const at = AddressIn(piece, row);
    switch (Load<Header>(piece).width) {
      case 1:
        return int64_t{std::to_integer<uint8_t>(*at)} - 1;
      case 2:
        return int64_t{Load<uint16_t>(at)} - 1;
      case 4:
        return int64_t{Load<uint32_t>(at)} - 1;
      default:
        return Load<int64_t>(at) - 1;
    }
  }
  template <typename T>
  static T Load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }

  const std::unique_ptr<PageCache> pages_;
  const uint64_t stride_bytes_, row_bytes_, row_count_;
  const int piece_shift_;                   // a piece has 2^piece_shift_ rows
  std::shared_ptr<const TableView> table_;  // null: detached
  uint64_t timestamp_ = 0;                  // of the snapshot that the pieces are of
};

}  // namespace quarry::sql
