// RowSources: the tables that a live road's rows are in: one of all nodes, or, where fanouts are by type, one for each type
// of nodes that has rows, which may differ in elements and dim; or none, of a road without rows. Private to this room.
//
// Immutable once open: any thread. Must not outlive its store.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/road_spec.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/store.h"

namespace quarry {

// Rows of the nodes [first, end): row i is node first + i's.
struct RowSource {
  uint64_t first = 0;
  uint64_t end = 0;
  std::unique_ptr<FeatureTable> table;
  std::unique_ptr<RowOverlay> overlay;  // in the road's snapshot; null until OpenOverlays
};

class RowSources {
 public:
  // What open ones keep resident, by the manifest alone; overlays apart.
  static Result<uint64_t> ResidentBytes(const Manifest& manifest, const RoadSpec& spec);
  // kNotFound lists the tables that there are; kCorruption.
  static Result<RowSources> Open(Store& store, const Snapshot& snapshot, const RoadSpec& spec);
  // Opens what the snapshot has newer than the tables; returns the bytes that stay resident.
  Result<uint64_t> OpenOverlays(Store& store, const std::shared_ptr<const Snapshot>& snapshot);

  // Nodes, with rows or without.
  uint64_t node_count() const { return node_count_; }
  std::span<const RowSource> sources() const { return sources_; }
  // Elements of a row, where there is one table; else 0.
  uint32_t dim() const {
    return sources_.empty() || !types_.empty() ? 0 : static_cast<uint32_t>(widest_.dim);
  }
  // By type of nodes; empty where there is one table, or none at all.
  std::span<const TypeRows> types() const { return types_; }
  // The longest row's, which slots have room for: not of a table, where there is none.
  const FeatureGeometry& widest() const { return widest_; }
  // The table with the most bytes; null where there is none.
  const FeatureTable* largest() const;
  uint64_t data_bytes() const;

 private:
  std::vector<RowSource> sources_;  // ascending
  std::vector<std::string> names_;  // of their tables
  std::vector<TypeRows> types_;
  FeatureGeometry widest_;
  uint64_t node_count_ = 0;
};

}  // namespace quarry
