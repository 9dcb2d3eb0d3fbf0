#include "quarry/storage/row_sources.h"

#include <algorithm>
#include <optional>

namespace quarry {

bool TakesRowsOf(const Manifest& manifest, const RoadSpec& spec, std::string_view table) {
  if (spec.relation_fanouts.empty()) return spec.feature_table == table;
  return FindTypeOfTable(manifest.node_types, table).has_value();
}

std::vector<SourceRecord> SourceRecordsOf(const Manifest& manifest, const RoadSpec& spec,
                                          const Snapshot* snapshot) {
  const auto find = [&](const std::string& name) {
    return snapshot == nullptr ? manifest.FindTable(name) : snapshot->FindTable(name);
  };
  std::vector<SourceRecord> tables;
  if (spec.relation_fanouts.empty()) {
    if (spec.feature_table.empty()) return tables;
    const TableRecord* const record = find(spec.feature_table);
    tables.push_back({spec.feature_table, record, {{.end = record == nullptr ? 0 : record->row_count}}});
    return tables;
  }
  const NodeTypes types(manifest.node_types,
                        snapshot == nullptr ? manifest.node_count : snapshot->node_count);
  for (uint32_t type = 0; type < manifest.node_types.size(); ++type) {
    if (!HasRows(manifest.node_types[type], snapshot)) continue;
    const std::string& name = manifest.node_types[type].feature_table;
    const auto nodes = types.RangesOf(type);
    tables.push_back({name, find(name), {nodes.begin(), nodes.end()}});
    if (nodes.empty()) tables.back().nodes.push_back({});  // none; no ranges at all would be all nodes
  }
  return tables;
}

Result<uint64_t> RowSources::ResidentBytes(const Manifest& manifest, const RoadSpec& spec) {
  uint64_t bytes = spec.feature_table.empty() ? 0 : JoinedColumns::ResidentBytes(manifest, spec.topology);
  for (const SourceRecord& table : SourceRecordsOf(manifest, spec)) {
    if (table.record == nullptr) continue;  // Open says so
    QUARRY_TRY(const FeatureGeometry geometry,
               FeatureGeometry::Make(table.record->element_type, table.record->dim, table.record->row_count));
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
  for (SourceRecord& found : SourceRecordsOf(*manifest, spec, snapshot.get())) {
    QUARRY_TRY(std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, found.name));
    const FeatureGeometry& geometry = table->geometry();
    if (rows.sources_.empty() || geometry.row_bytes > rows.widest_.row_bytes) rows.widest_ = geometry;
    rows.names_.push_back(found.name);
    rows.sources_.push_back({.nodes = std::move(found.nodes), .table = std::move(table), .overlay = nullptr});
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
    if (!HasRows(manifest->node_types[range.type], snapshot.get())) rows.without_rows_.push_back(range);
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

void RowSources::CloseTables() {
  for (RowSource& source : sources_) source.table.reset();
}

Result<uint64_t> RowSources::OpenOverlays(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                                          std::span<const TableVersion> bases) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const std::optional<TableVersion> base =
        bases.empty() ? std::optional<TableVersion>() : std::optional(bases[i]);
    QUARRY_TRY(sources_[i].overlay, store.OpenOverlay(names_[i], snapshot, base));
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
