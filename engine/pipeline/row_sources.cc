#include "row_sources.h"

#include <algorithm>

#include "quarry/format/graph_types.h"

namespace quarry {
namespace {

// The tables of a road, by the nodes that their rows are of.
struct NamedRows {
  std::string table;
  uint64_t first = 0;
};

std::vector<NamedRows> TablesOf(const Manifest& manifest, const RoadSpec& spec) {
  if (spec.relation_fanouts.empty()) {
    return spec.feature_table.empty() ? std::vector<NamedRows>()
                                      : std::vector{NamedRows{spec.feature_table, 0}};
  }
  std::vector<NamedRows> tables;
  for (const NodeTypeRecord& type : manifest.node_types) {
    if (!type.feature_table.empty()) tables.push_back({type.feature_table, type.first});
  }
  return tables;
}

}  // namespace

Result<uint64_t> RowSources::ResidentBytes(const Manifest& manifest, const RoadSpec& spec) {
  uint64_t bytes = spec.feature_table.empty() ? 0 : JoinedColumns::ResidentBytes(manifest, spec.topology);
  for (const NamedRows& rows : TablesOf(manifest, spec)) {
    const TableRecord* const record = manifest.FindTable(rows.table);
    if (record == nullptr) continue;  // Open says so
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(record->element_type, record->dim, record->row_count));
    bytes += geometry.cell_count() * sizeof(uint32_t);
  }
  return bytes;
}

Result<RowSources> RowSources::Open(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                                    const RoadSpec& spec) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  RowSources rows;
  QUARRY_TRY(rows.widest_, FeatureGeometry::Make(ElementType::kFloat32, 1, 0));
  for (const NamedRows& named : TablesOf(*manifest, spec)) {
    QUARRY_TRY(std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, named.table));
    const FeatureGeometry& geometry = table->geometry();
    if (rows.sources_.empty() || geometry.row_bytes > rows.widest_.row_bytes) rows.widest_ = geometry;
    rows.names_.push_back(named.table);
    rows.sources_.push_back({.first = named.first,
                             .end = named.first + geometry.row_count,
                             .table = std::move(table),
                             .overlay = nullptr});
  }
  if (spec.relation_fanouts.empty()) {
    rows.node_count_ = rows.sources_.empty() ? manifest->node_count : rows.sources_.front().end;
    if (!rows.sources_.empty()) QUARRY_RETURN_IF_ERROR(rows.Join(store, snapshot, spec.topology));
    return rows;
  }
  rows.node_count_ = manifest->node_count;
  for (const NodeTypeRecord& type : manifest->node_types) {
    const auto source = std::ranges::find(rows.names_, type.feature_table);
    if (type.feature_table.empty() || source == rows.names_.end()) {
      rows.types_.push_back({});
      continue;
    }
    const FeatureGeometry& geometry =
        rows.sources_[static_cast<size_t>(source - rows.names_.begin())].table->geometry();
    rows.types_.push_back({geometry.element_type, static_cast<uint32_t>(geometry.dim)});
  }
  return rows;
}

// Widens the rows of the one table.
Status RowSources::Join(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                        std::string_view topology) {
  QUARRY_TRY(joined_, JoinedColumns::Load(store, snapshot, topology, widest_.element_type));
  if (joined_ == nullptr) return Status::Ok();
  QUARRY_TRY(widest_, FeatureGeometry::Make(widest_.element_type,
                                            widest_.dim + JoinedDim(*snapshot, topology), widest_.row_count));
  return Status::Ok();
}

Result<uint64_t> RowSources::OpenOverlays(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    QUARRY_TRY(sources_[i].overlay, store.OpenOverlay(names_[i], snapshot));
    bytes += sources_[i].overlay->resident_bytes();
  }
  return bytes;
}

const FeatureTable* RowSources::largest() const {
  const auto largest = std::ranges::max_element(
      sources_, {}, [](const RowSource& source) { return source.table->geometry().data_bytes(); });
  return largest == sources_.end() ? nullptr : largest->table.get();
}

uint64_t RowSources::data_bytes() const {
  uint64_t bytes = 0;
  for (const RowSource& source : sources_) bytes += source.table->geometry().data_bytes();
  return bytes;
}

}  // namespace quarry
