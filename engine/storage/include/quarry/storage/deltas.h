// Writes to tables: versions of rows over the base files, in the catalog (DESIGN "Writes").
//
//   WriteBatch   rows to be stored, of any tables: visible together, under one timestamp, or not at all
//   LargeWrite   the same of more rows than memory holds
//   Snapshot     what was committed up to a timestamp
//   RowOverlay   the rows of one table that a snapshot has newer than the base file
//
// A reader takes its base rows from wherever it likes (file, cache, chunk) and asks the overlay about them: a
// row that nobody wrote to costs one bit test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/types.h"

namespace quarry {

// Rows for one commit. The later of two writes to a row counts.
class WriteBatch {
 public:
  // `bytes`: the row as the table encodes it; copied.
  void Put(std::string_view table, uint64_t row, std::span<const std::byte> bytes);
  // The row reads as zeros afterwards.
  void Delete(std::string_view table, uint64_t row) { Put(table, row, {}); }
  void SetLabel(NodeId node, int64_t label);  // -1 = none
  void SetSplit(NodeId node, Split split);

  struct Entry {
    uint32_t table = 0;  // index into tables()
    uint64_t row = 0;
    size_t offset = 0, bytes = 0;  // range of values(); no bytes: a deletion
  };
  std::span<const Entry> entries() const { return entries_; }
  const std::vector<std::string>& tables() const { return tables_; }
  std::span<const std::byte> value(const Entry& entry) const {
    return std::span(values_).subspan(entry.offset, entry.bytes);
  }
  bool empty() const { return entries_.empty(); }
  uint64_t memory_bytes() const { return entries_.capacity() * sizeof(Entry) + values_.capacity(); }
  void Clear();

 private:
  std::vector<std::string> tables_;
  std::vector<Entry> entries_;
  std::vector<std::byte> values_;
};

struct WriteOptions {
  bool sync = true;  // else a power failure may lose the batch, and those after it; never part of it
};

// A commit in pieces, for more rows than one batch should hold. The rows are on disk before the commit, where
// no snapshot sees them; rows that are not committed in the end are forgotten, after a crash by the first
// write. Takes a bit or two of memory per row. Used by one thread. Must not outlive its store.
class LargeWrite {
 public:
  virtual ~LargeWrite() = default;  // forgets the rows, unless they were committed
  // As Store::Write, but nobody sees the rows yet. The later of two writes to a row counts.
  virtual Status Add(const WriteBatch& batch) = 0;
  // Publishes all of it, synced, and returns its timestamp. Call it once.
  virtual Result<uint64_t> Commit() = 0;
};

// A point in time: everything committed up to `timestamp`. While it lives, the base files that it names and
// the versions over them are kept, whatever is compacted meanwhile. Must not outlive its store.
struct Snapshot {
  uint64_t timestamp = 0;
  uint64_t node_count = 0;
  std::vector<TableRecord> tables;
  std::vector<TopologyRecord> topologies;
  std::vector<std::shared_ptr<const void>> files;  // pins of their files

  const TableRecord* FindTable(std::string_view name) const {
    const auto found = std::ranges::find(tables, name, &TableRecord::name);
    return found == tables.end() ? nullptr : &*found;
  }
  const TopologyRecord* FindTopology(std::string_view name) const {
    const auto found = std::ranges::find(topologies, name, &TopologyRecord::name);
    return found == topologies.end() ? nullptr : &*found;
  }
};

// The snapshots of one point in time that somebody holds.
struct HeldSnapshots {
  uint64_t timestamp = 0;
  uint64_t count = 0;
  double oldest_seconds = 0;  // since the first of them was taken
};

// The version of a table that a copy of its rows (a layout) has: the newest rows up to `timestamp`, copied
// when the table's file was of `generation`. A compaction may fold less than that into the next file, since
// it goes by its own snapshot.
struct TableVersion {
  uint64_t generation = 1;
  uint64_t timestamp = 0;
};

// The rows that a snapshot has newer than a base of a table: the table's file in the snapshot, or an older
// version of the table (which a layout holds). Const use is thread-safe. Must not outlive its store.
class RowOverlay {
 public:
  virtual ~RowOverlay() = default;
  virtual bool empty() const = 0;
  virtual bool Touched(uint64_t row) const = 0;
  virtual std::vector<uint64_t> TouchedRows() const = 0;  // ascending
  virtual uint64_t resident_bytes() const = 0;
  // Calls put(i, value) for each of `rows` (ascending) that the snapshot has newer, in any order: `value` is
  // the row as encoded, zeros for a deleted one, valid during the call. All of these rows are touched, but a
  // touched row need not be among them. kCorruption, kIoError.
  virtual Status Read(std::span<const uint64_t> rows,
                      const std::function<void(size_t, std::span<const std::byte>)>& put) const = 0;
};

// Puts what the overlay has newer over `rows`: the rows of the table from `first` on, row_bytes apart.
// `touched` is its TouchedRows().
Status FoldRows(const RowOverlay& overlay, std::span<const uint64_t> touched, uint64_t first,
                uint64_t row_bytes, std::span<std::byte> rows);

}  // namespace quarry
