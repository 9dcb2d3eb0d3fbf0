// RowSources: the tables that the rows of a road, or of a layout, are in: one of all nodes, or, where fanouts are by type, one
// for each type of nodes that has rows, which may differ in elements and dim; or none, of a road without rows. Where nodes are
// at several times, columns of places and times are joined to the rows of the one table.
//
// Immutable once open: any thread. Must not outlive its store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/node_types.h"
#include "quarry/format/road_spec.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/store.h"
#include "quarry/storage/times.h"

namespace quarry {

// A table by its record, and the nodes whose rows it has: those of one type, or all.
struct SourceRecord {
  std::string name;
  const TableRecord* record = nullptr;  // of whom it was asked; null: it has no such table
  std::vector<NodeTypes::Range> nodes;  // ascending, and so are their rows; at least one
};

// Whether nodes of the type have rows, as the snapshot has them, or else the manifest that the type is of: a table may have been
// made since the snapshot.
inline bool HasRows(const NodeTypeRecord& type, const Snapshot* snapshot) {
  if (type.feature_table.empty()) return false;
  return snapshot == nullptr || snapshot->FindTable(type.feature_table) != nullptr;
}

// Whether rows of a road are of this table.
bool TakesRowsOf(const Manifest& manifest, const RoadSpec& spec, std::string_view table);

// The tables of a road's rows, in the order of the types that have one: as the snapshot has them, or else the manifest.
std::vector<SourceRecord> SourceRecordsOf(const Manifest& manifest, const RoadSpec& spec,
                                          const Snapshot* snapshot = nullptr);

// An open one.
struct RowSource {
  std::vector<NodeTypes::Range> nodes;  // ascending, and so are their rows
  std::unique_ptr<FeatureTable> table;
  std::unique_ptr<RowOverlay> overlay;  // in the road's snapshot; null until OpenOverlays
};

class RowSources {
 public:
  // What open ones keep resident, by the manifest alone; overlays apart.
  static Result<uint64_t> ResidentBytes(const Manifest& manifest, const RoadSpec& spec);
  // kNotFound lists the tables that there are; kCorruption; errors of JoinedColumns::Load.
  static Result<RowSources> Open(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                                 const RoadSpec& spec);
  // Opens what the snapshot has newer than the tables, or than `bases`, a version of each; returns the bytes that stay
  // resident.
  Result<uint64_t> OpenOverlays(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                                std::span<const TableVersion> bases = {});
  // Closes the tables, for whoever has their rows elsewhere: overlays and forms of rows stay.
  void CloseTables();

  // Nodes, with rows or without.
  uint64_t node_count() const { return node_count_; }
  std::span<const RowSource> sources() const { return sources_; }
  // Nodes whose type has no rows; all, of a road without rows.
  std::span<const NodeTypes::Range> nodes_without_rows() const { return without_rows_; }
  // Elements of a row, where there is one table; else 0.
  uint32_t dim() const {
    return sources_.empty() || !types_.empty() ? 0 : static_cast<uint32_t>(widest_.dim);
  }
  // By type of nodes; empty where there is one table, or none at all.
  std::span<const TypeRows> types() const { return types_; }
  // The longest row's, which slots have room for, with what is joined to it: not of a table, where there is none.
  const FeatureGeometry& widest() const { return widest_; }
  // Behind a row's own columns; null: nothing.
  const JoinedColumns* joined() const { return joined_.get(); }
  // What a miss has to be read for, where there is one table.
  uint64_t stored_row_bytes() const { return widest_.row_bytes - (joined_ ? joined_->row_bytes() : 0); }
  // The table with the most bytes; null where there is none.
  const FeatureTable* largest() const;
  uint64_t data_bytes() const;

 private:
  Status Join(Store& store, const std::shared_ptr<const Snapshot>& snapshot, std::string_view topology);

  std::vector<RowSource> sources_;
  std::vector<NodeTypes::Range> without_rows_;
  std::vector<std::string> names_;  // of their tables
  std::vector<TypeRows> types_;
  FeatureGeometry widest_;
  std::unique_ptr<const JoinedColumns> joined_;
  uint64_t node_count_ = 0;
};

}  // namespace quarry
