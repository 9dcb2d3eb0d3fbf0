// Times: a database whose nodes are the places of one graph at each of many times, as the hours of a record of weather
// (Waleffe §2.4).
//
//   node      t * places + p is place p at time t: rows, labels, splits and targets are tables of all nodes, time after time
//   topology  has the lists of the places, which are the same at every time. That it has fewer nodes than the database says
//             that there are times, and how many
//   columns   of a place, the same at all times, and of a time, the same at all places: tables kPlaceColumns and
//             kTimeColumns, stored once each and joined to a node's row, behind its own columns, where rows are gathered
//
// Values are copied freely. JoinedColumns is immutable once loaded: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/topology_record.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/store.h"
#include "quarry/storage/topology.h"

namespace quarry {

struct Times {
  uint64_t places = 0;  // nodes of the topology
  uint64_t count = 1;   // 1: the nodes are the topology's, and nothing of this applies

  bool any() const { return count > 1; }
  uint64_t nodes() const { return places * count; }
  // For whoever orders or folds ids by time; 0 where there is one.
  uint64_t places_or_none() const { return any() ? places : 0; }
  static Times Of(const TopologyRecord& topology, uint64_t node_count) {
    const bool any = topology.node_count > 0 && topology.node_count < node_count;
    return {.places = topology.node_count, .count = any ? node_count / topology.node_count : 1};
  }
};

// `source` is a Manifest or a Snapshot. Without such a topology there is one time.
template <typename Source>
Times TimesOf(const Source& source, std::string_view topology) {
  const TopologyRecord* const record = source.FindTopology(topology);
  return record == nullptr ? Times{.places = source.node_count} : Times::Of(*record, source.node_count);
}

// Columns that are joined to the rows of a table of all nodes.
template <typename Source>
uint32_t JoinedDim(const Source& source, std::string_view topology) {
  if (!TimesOf(source, topology).any()) return 0;
  uint64_t dim = 0;
  for (const std::string_view name : {kPlaceColumns, kTimeColumns}) {
    if (const TableRecord* const table = source.FindTable(name)) dim += table->dim;
  }
  return static_cast<uint32_t>(dim);
}
// Columns of the rows of batches: the table's own, and what is joined to them.
template <typename Source>
uint32_t BatchDim(const Source& source, std::string_view topology, const TableRecord& rows) {
  return static_cast<uint32_t>(rows.dim) + JoinedDim(source, topology);
}

// Opens the lists of the places. Store::OpenTopology refuses them, where there are several times, to whoever takes a node's
// id for that of a list.
Result<std::unique_ptr<Topology>> OpenPlaces(Store& store, const Snapshot& snapshot,
                                             std::string_view topology);
// That refusal. REQUIRES: there are several times.
Status RefuseTimes(const std::string& path, const TopologyRecord& topology, uint64_t node_count);

class JoinedColumns {
 public:
  // What loaded ones keep in memory.
  static uint64_t ResidentBytes(const Manifest& manifest, std::string_view topology);
  // Loads them as the snapshot has them; null where there are none. kInvalidArgument for elements of another type than
  // those of the rows that they are joined to, kCorruption for tables of other sizes than their names say.
  static Result<std::unique_ptr<const JoinedColumns>> Load(Store& store,
                                                           const std::shared_ptr<const Snapshot>& snapshot,
                                                           std::string_view topology, ElementType type);

  // Writes a node's, place's columns before time's: row_bytes() of them.
  void Write(uint64_t node, std::byte* out) const;
  uint64_t row_bytes() const { return of_places_.row_bytes + of_times_.row_bytes; }

 private:
  struct Columns {
    uint64_t row_bytes = 0;  // 0: there are none
    std::vector<std::byte> rows;
  };
  static Status LoadColumns(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                            std::string_view name, uint64_t rows, ElementType type, Columns& columns);

  uint64_t places_ = 1;
  Columns of_places_, of_times_;
};

}  // namespace quarry
