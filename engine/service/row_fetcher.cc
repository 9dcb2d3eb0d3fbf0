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

Result<bool> RowFetcher::ReadSome(const TableView& table, Order& order, std::span<std::byte> out) {
  const size_t begin = order.next_;
  size_t end = begin;
  std::vector<uint64_t> rows;    // each once
  std::vector<uint32_t> places;  // where each goes
  for (; end < order.rows_.size() && rows.size() < kPieceRows; ++end) {
    const uint64_t row = order.rows_[end] >> 32;
    if (!rows.empty() && rows.back() == row) continue;
    rows.push_back(row);
    places.push_back(static_cast<uint32_t>(order.rows_[end]));
  }
  const uint64_t row_bytes = table.geometry().row_bytes;
  QUARRY_RETURN_IF_ERROR(table.Gather(reader_, rows, [&](size_t i, std::span<const std::byte> row) {
    std::memcpy(out.data() + places[i] * row_bytes, row.data(), row_bytes);
  }));
  size_t read = 0;
  for (size_t i = begin; i < end; ++i) {  // the others are copies of the first
    if (rows[read] != order.rows_[i] >> 32) ++read;
    const auto place = static_cast<uint32_t>(order.rows_[i]);
    if (place == places[read]) continue;
    std::memcpy(out.data() + place * row_bytes, out.data() + places[read] * row_bytes, row_bytes);
  }
  order.next_ = end;
  return end < order.rows_.size();
}

Status RowFetcher::Read(const TableView& table, std::span<const NodeId> ids, std::span<std::byte> out,
                        const std::atomic<bool>& cancelled) {
  QUARRY_TRY(Order order, Sort(table.record, ids));
  for (bool more = true; more;) {
    if (cancelled.load(std::memory_order_relaxed)) return {Code::kCancelled, "the lookup was cancelled"};
    QUARRY_TRY(more, ReadSome(table, order, out));
  }
  return Status::Ok();
}

}  // namespace quarry
