#include "row_sources.h"

#include <algorithm>

namespace quarry {
namespace {

// The tables of a road.
std::vector<std::string> TablesOf(const Manifest& manifest, const RoadSpec& spec) {
  std::vector<std::string> tables;
  if (spec.relation_fanouts.empty()) {
    if (!spec.feature_table.empty()) tables.push_back(spec.feature_table);
    return tables;
  }
  for (const NodeTypeRecord& type : manifest.node_types) {
    if (!type.feature_table.empty()) tables.push_back(type.feature_table);
  }
  return tables;
}

}  // namespace

Result<uint64_t> RowSources::ResidentBytes(const Manifest& manifest, const RoadSpec& spec) {
  uint64_t bytes = spec.feature_table.empty() ? 0 : JoinedColumns::ResidentBytes(manifest, spec.topology);
  for (const std::string& name : TablesOf(manifest, spec)) {
    const TableRecord* const record = manifest.FindTable(name);
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
  const NodeTypes types(manifest->node_types, snapshot->node_count);
  for (const std::string& name : TablesOf(*manifest, spec)) {
    QUARRY_TRY(std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, name));
    const FeatureGeometry& geometry = table->geometry();
    if (rows.sources_.empty() || geometry.row_bytes > rows.widest_.row_bytes) rows.widest_ = geometry;
    rows.names_.push_back(name);
    std::vector<NodeTypes::Range> nodes = {{.end = geometry.row_count}};
    if (!spec.relation_fanouts.empty()) {
      const auto ranges = types.RangesOf(*FindTypeOfTable(manifest->node_types, name));
      nodes.assign(ranges.begin(), ranges.end());
    }
    rows.sources_.push_back({.nodes = std::move(nodes), .table = std::move(table), .overlay = nullptr});
  }
  if (spec.relation_fanouts.empty()) {
    rows.node_count_ =
        rows.sources_.empty() ? manifest->node_count : rows.sources_.front().table->geometry().row_count;
    if (rows.sources_.empty()) rows.without_rows_ = {{.end = rows.node_count_}};
    if (!rows.sources_.empty()) QUARRY_RETURN_IF_ERROR(rows.Join(store, snapshot, spec.topology));
    return rows;
  }
  rows.node_count_ = snapshot->node_count;
  for (const NodeTypes::Range& range : types.ranges()) {
    if (manifest->node_types[range.type].feature_table.empty()) rows.without_rows_.push_back(range);
  }
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
