#include "quarry/layout/row_places.h"

#include <algorithm>
#include <numeric>

namespace quarry {
namespace {

const RowRange& RangeWith(std::span<const RowRange> ranges, NodeId node) {
  return *std::ranges::upper_bound(ranges, uint64_t{node}, {}, &RowRange::end);
}

// Nodes that follow each other are mostly of one range.
template <typename Visit>
void ForEachTable(std::span<const RowRange> ranges, std::span<const NodeId> nodes, const Visit& visit) {
  uint64_t begin = 1, end = 0, table = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < begin || nodes[i] >= end) {
      const RowRange& range = RangeWith(ranges, nodes[i]);
      begin = &range == ranges.data() ? 0 : (&range)[-1].end;
      end = range.end;
      table = range.table;
    }
    visit(i, table);
  }
}

}  // namespace

RowPlaces::RowPlaces(uint64_t node_count, uint64_t cache_slots, std::span<const RowForm> tables,
                     std::span<const RowRange> ranges)
    : tables_(tables.begin(), tables.end()),
      ranges_(ranges.begin(), ranges.end()),
      cache_slots_(cache_slots) {
  if (one_table()) {
    ranges_ = {{.end = node_count}};
    return;
  }
  tables_.push_back({});  // of nodes without rows
  Region at;
  const auto add = [&](uint64_t table, uint64_t slots) {
    at = {.end = at.end + slots,
          .first = at.end,
          .place = at.place + (at.end - at.first) * at.places,
          .places = tables_[table].places,
          .table = table};
    regions_.push_back(at);
  };
  for (uint64_t table = 0; table < tables.size(); ++table) add(table, tables[table].image_rows);
  for (uint64_t table = 0; table < tables.size(); ++table) {
    add(table, tables[table].cache_slots - tables[table].image_rows);
  }
}

const RowRange& RowPlaces::RangeOf(NodeId node) const { return RangeWith(ranges_, node); }

uint64_t RowPlaces::TableOf(NodeId node) const { return one_table() ? 0 : RangeOf(node).table; }

uint64_t RowPlaces::Of(NodeId node) const { return one_table() ? 1 : tables_[RangeOf(node).table].places; }

uint64_t RowPlaces::Locate(std::span<const NodeId> nodes, uint64_t first, std::vector<uint32_t>& at) const {
  at.resize(nodes.size());
  if (one_table()) {
    std::iota(at.begin(), at.end(), static_cast<uint32_t>(first));
    return first + nodes.size();
  }
  uint64_t place = first;
  ForEachTable(ranges_, nodes, [&](size_t i, uint64_t table) {
    at[i] = static_cast<uint32_t>(place);
    place += tables_[table].places;
  });
  return place;
}

uint64_t RowPlaces::Sum(std::span<const NodeId> nodes) const {
  if (one_table()) return nodes.size();
  uint64_t sum = 0;
  ForEachTable(ranges_, nodes, [&](size_t, uint64_t table) { sum += tables_[table].places; });
  return sum;
}

uint64_t RowPlaces::StoredBytes(std::span<const NodeId> nodes, uint64_t row_bytes) const {
  if (one_table()) return nodes.size() * row_bytes;
  uint64_t sum = 0;
  ForEachTable(ranges_, nodes, [&](size_t, uint64_t table) { sum += tables_[table].row_bytes; });
  return sum;
}

RowPlaces::Slot RowPlaces::OfSlot(uint64_t slot) const {
  if (one_table()) return {.place = slot};
  const auto region = std::ranges::upper_bound(regions_, slot, {}, &Region::end);
  if (region == regions_.end()) {
    const Region& last = regions_.back();
    return {.place = last.place + (last.end - last.first) * last.places, .places = 0};
  }
  return {.place = region->place + (slot - region->first) * region->places,
          .places = region->places,
          .region = static_cast<uint64_t>(region - regions_.begin())};
}

uint64_t RowPlaces::cache_places() const { return OfSlot(cache_slots_).place; }

}  // namespace quarry
