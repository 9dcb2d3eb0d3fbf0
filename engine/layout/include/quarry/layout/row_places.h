// RowPlaces: where rows lie that follow each other, in chunks, frames and the cache of a layout, when they are of several
// tables and differ in length: those of the types of a graph. They are counted in *places*, all of one length that every
// row's stride is a multiple of. With one table a place is a row, and nothing has to be looked up.
//
// Slots of the cache are numbered so that those which its image fills come first, table by table, and then the others, table
// by table: slot i of the image is slot i of the cache, and rows of a slot of one table are always of that table.
//
// Immutable: any thread may use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/types.h"

namespace quarry {

// The rows of one table among several, and its part of the cache.
struct RowForm {
  uint64_t row_bytes = 0;  // as stored
  uint64_t places = 0;     // that a row takes
  uint64_t cache_slots = 0;
  uint64_t image_rows = 0;  // of these, filled before the first batch
  uint64_t generation = 1;  // of the table
};

// Nodes whose rows are of one table: those up to `end` that are not in the ranges before.
struct RowRange {
  uint64_t end = 0;
  uint64_t table = 0;  // how many tables there are: the nodes have no rows, which take no place
};

class RowPlaces {
 public:
  // Without tables, the one table of all nodes, with so many slots. REQUIRES: the last range ends at `node_count`.
  RowPlaces(uint64_t node_count, uint64_t cache_slots, std::span<const RowForm> tables,
            std::span<const RowRange> ranges);

  bool one_table() const { return tables_.empty(); }
  // Which table a node's row is of.
  uint64_t TableOf(NodeId node) const;
  // Places that a node's row takes.
  uint64_t Of(NodeId node) const;
  // Where rows of these nodes lie one after the other, from `first` on, and the place behind the last one.
  uint64_t Locate(std::span<const NodeId> nodes, uint64_t first, std::vector<uint32_t>& at) const;
  // What rows of these nodes take, and what they are as stored, of rows of `row_bytes` where there is one table.
  uint64_t Sum(std::span<const NodeId> nodes) const;
  uint64_t StoredBytes(std::span<const NodeId> nodes, uint64_t row_bytes) const;

  // Where a slot of the cache begins, and what it takes.
  struct Slot {
    uint64_t place = 0, places = 1;
    uint64_t region = 0;  // slots of one region take the same, and follow each other
  };
  Slot OfSlot(uint64_t slot) const;
  // All slots together, and those that the image fills, of so many rows.
  uint64_t cache_places() const;
  uint64_t ImagePlaces(uint64_t image_rows) const { return OfSlot(image_rows).place; }
  // The table of each slot, for whoever gives slots other rows: where the slots of a table are, first those of the image.
  uint64_t TableOfSlot(uint64_t slot) const { return one_table() ? 0 : regions_[OfSlot(slot).region].table; }

 private:
  struct Region {
    uint64_t end = 0;  // slot behind the last
    uint64_t first = 0, place = 0, places = 1, table = 0;
  };
  const RowRange& RangeOf(NodeId node) const;

  std::vector<RowForm> tables_;
  std::vector<RowRange> ranges_;
  std::vector<Region> regions_;
  uint64_t cache_slots_ = 0;
};

}  // namespace quarry
