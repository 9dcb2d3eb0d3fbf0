#include "quarry/storage/times.h"

#include <cstring>

#include "quarry/base/units.h"

namespace quarry {

Status RefuseTimes(const std::string& path, const TopologyRecord& topology, uint64_t node_count) {
  return MakeStatus(
      Code::kUnsupported,
      "{}: topology \"{}\" has the lists of {} places, which are the same at each of {} times: batches of "
      "`quarry train`, `quarry predict` and streams are drawn from them, and nothing else takes them",
      path, topology.name, topology.node_count, node_count / topology.node_count);
}

Result<std::unique_ptr<Topology>> OpenPlaces(Store& store, const Snapshot& snapshot,
                                             std::string_view topology) {
  const TopologyRecord* const record = snapshot.FindTopology(topology);
  if (record == nullptr || !Times::Of(*record, snapshot.node_count).any()) {
    return store.OpenTopology(snapshot, topology);
  }
  return Topology::Open(store.backend(), store.path(), *record, store.manifest()->database_id);
}

uint64_t JoinedColumns::ResidentBytes(const Manifest& manifest, std::string_view topology) {
  if (!TimesOf(manifest, topology).any()) return 0;
  uint64_t bytes = 0;
  for (const std::string_view name : {kPlaceColumns, kTimeColumns}) {
    const TableRecord* const table = manifest.FindTable(name);
    if (table != nullptr) bytes += table->row_count * RowBytes(table->element_type, table->dim);
  }
  return bytes;
}

Result<std::unique_ptr<const JoinedColumns>> JoinedColumns::Load(
    Store& store, const std::shared_ptr<const Snapshot>& snapshot, std::string_view topology,
    ElementType type) {
  const Times times = TimesOf(*snapshot, topology);
  if (JoinedDim(*snapshot, topology) == 0) return std::unique_ptr<const JoinedColumns>();
  auto joined = std::make_unique<JoinedColumns>();
  joined->places_ = times.places;
  QUARRY_RETURN_IF_ERROR(LoadColumns(store, snapshot, kPlaceColumns, times.places, type, joined->of_places_));
  QUARRY_RETURN_IF_ERROR(LoadColumns(store, snapshot, kTimeColumns, times.count, type, joined->of_times_));
  return std::unique_ptr<const JoinedColumns>(std::move(joined));
}

Status JoinedColumns::LoadColumns(Store& store, const std::shared_ptr<const Snapshot>& snapshot,
                                  std::string_view name, uint64_t rows, ElementType type, Columns& columns) {
  if (snapshot->FindTable(name) == nullptr) return Status::Ok();
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table, store.OpenTable(*snapshot, name));
  const FeatureGeometry& geometry = table->geometry();
  if (geometry.row_count != rows) {
    return MakeStatus(Code::kCorruption, "{}: {} rows, expected {}, one for each {}", table->file().path(),
                      geometry.row_count, rows, name == kPlaceColumns ? "place" : "time");
  }
  if (type == ElementType::kInt8) {
    return MakeStatus(Code::kUnsupported,
                      "{}: nothing is joined to rows of int8, which have a scale of their own each: import "
                      "features of another type",
                      table->file().path());
  }
  if (geometry.element_type != type) {
    return MakeStatus(
        Code::kInvalidArgument,
        "{}: the columns are {}, and those of the rows that they are joined to are {}: make the "
        "tables of one type",
        table->file().path(), ElementTypeName(geometry.element_type), ElementTypeName(type));
  }
  columns.row_bytes = geometry.row_bytes;
  columns.rows.resize(rows * geometry.row_bytes);
  QUARRY_RETURN_IF_ERROR(table->ReadRows(store.backend(), 0, rows, columns.rows));
  QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store.OpenOverlay(name, snapshot));
  const std::vector<uint64_t> touched = overlay->TouchedRows();
  return overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(columns.rows.data() + touched[i] * columns.row_bytes, value.data(), value.size());
  });
}

void JoinedColumns::Write(uint64_t node, std::byte* out) const {
  if (of_places_.row_bytes > 0) {
    std::memcpy(out, of_places_.rows.data() + node % places_ * of_places_.row_bytes, of_places_.row_bytes);
  }
  if (of_times_.row_bytes > 0) {
    std::memcpy(out + of_places_.row_bytes, of_times_.rows.data() + node / places_ * of_times_.row_bytes,
                of_times_.row_bytes);
  }
}

}  // namespace quarry
