#include "quarry/service/row_fetcher.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/radix_sort.h"

namespace quarry {
namespace {

constexpr size_t kPieceRows = 16384;

}  // namespace

Result<RowFetcher::Order> RowFetcher::Sort(const TableRecord& table, std::span<const NodeId> ids) {
  Order order;
  order.rows_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= table.row_count) {
      return MakeStatus(Code::kInvalidArgument, "ids: number {} is {}, and table \"{}\" has {} rows", i,
                        ids[i], table.name, table.row_count);
    }
    order.rows_[i] = uint64_t{ids[i]} << 32 | i;
  }
  if (ids.size() < kPieceRows) {
    std::ranges::sort(order.rows_);
  } else {
    std::vector<uint64_t> scratch;
    RadixSortByKey(order.rows_, table.row_count - 1, scratch);
  }
  return order;
}

Result<bool> RowFetcher::ReadSome(const StoredTable& table, Order& order, std::span<std::byte> out) {
  const size_t begin = order.next_;
  size_t end = begin;
  std::vector<Wanted> rows;  // each once
  for (; end < order.rows_.size() && rows.size() < kPieceRows; ++end) {
    const auto row = static_cast<NodeId>(order.rows_[end] >> 32);
    if (rows.empty() || rows.back().row != row)
      rows.push_back({row, static_cast<uint32_t>(order.rows_[end])});
  }
  QUARRY_RETURN_IF_ERROR(ReadPiece(table, rows, out));
  const uint64_t row_bytes = table.file->geometry().row_bytes;
  const Wanted* read = rows.data();
  for (size_t i = begin; i < end; ++i) {  // the others are copies of the first
    if (read->row != order.rows_[i] >> 32) ++read;
    const auto place = static_cast<uint32_t>(order.rows_[i]);
    if (place == read->place) continue;
    std::memcpy(out.data() + place * row_bytes, out.data() + read->place * row_bytes, row_bytes);
  }
  order.next_ = end;
  return end < order.rows_.size();
}

Status RowFetcher::Read(const StoredTable& table, std::span<const NodeId> ids, std::span<std::byte> out,
                        const std::atomic<bool>& cancelled) {
  QUARRY_TRY(Order order, Sort(table.record, ids));
  for (bool more = true; more;) {
    if (cancelled.load(std::memory_order_relaxed)) return {Code::kCancelled, "the lookup was cancelled"};
    QUARRY_TRY(more, ReadSome(table, order, out));
  }
  return Status::Ok();
}

Status RowFetcher::ReadPiece(const StoredTable& table, std::span<const Wanted> rows,
                             std::span<std::byte> out) {
  if (table.overlay->empty()) return ReadFile(*table.file, rows, out);
  std::vector<Wanted> unchanged;
  QUARRY_RETURN_IF_ERROR(ReadChanged(table, rows, out, unchanged));
  return ReadFile(*table.file, unchanged, out);
}

Status RowFetcher::ReadChanged(const StoredTable& table, std::span<const Wanted> rows,
                               std::span<std::byte> out, std::vector<Wanted>& unchanged) {
  std::vector<uint64_t> touched;
  std::vector<size_t> numbers;
  std::vector<bool> found(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!table.overlay->Touched(rows[i].row)) continue;
    touched.push_back(rows[i].row);
    numbers.push_back(i);
  }
  if (!touched.empty()) {
    QUARRY_RETURN_IF_ERROR(table.overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(out.data() + rows[numbers[i]].place * value.size(), value.data(), value.size());
      found[numbers[i]] = true;
    }));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!found[i]) unchanged.push_back(rows[i]);
  }
  return Status::Ok();
}

Status RowFetcher::ReadFile(const FeatureTable& file, std::span<const Wanted> rows,
                            std::span<std::byte> out) {
  const FeatureGeometry& geometry = file.geometry();
  cells_.clear();
  for (const Wanted& wanted : rows) {
    cells_.push_back({geometry.CellOffset(geometry.CellOfRow(wanted.row)), geometry.cell_bytes()});
  }
  return reader_.Read(
      file.file(), file.block_bytes(), cells_, [&](size_t i, std::span<const std::byte> cell) {
        const Wanted& wanted = rows[i];
        QUARRY_RETURN_IF_ERROR(file.VerifyCell(geometry.CellOfRow(wanted.row), cell));
        std::memcpy(out.data() + wanted.place * geometry.row_bytes,
                    cell.data() + (geometry.RowOffset(wanted.row) - cells_[i].offset), geometry.row_bytes);
        return Status::Ok();
      });
}

}  // namespace quarry
