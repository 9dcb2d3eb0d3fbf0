#include "create_table.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/node_types.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/record_names.h"
#include "quarry/storage/topology_compaction.h"

namespace quarry {
namespace {

constexpr uint64_t kTableWriterBytes = 8 * kMiB;  // buffers of the file's writer
constexpr uint64_t kZerosBytes = kMiB;

// "paper", of a table "paper.feature"; nothing of a table with a row for each node.
std::optional<std::string_view> TypeIn(std::string_view table) {
  const size_t dot = table.find('.');
  return dot == std::string_view::npos ? std::nullopt : std::optional(table.substr(0, dot));
}

// The type of nodes whose rows the table would have; null: all nodes have.
NodeTypeRecord* TypeOf(Manifest& manifest, std::string_view table) {
  const std::optional<std::string_view> name = TypeIn(table);
  if (!name) return nullptr;
  const auto type = std::ranges::find(manifest.node_types, *name, &NodeTypeRecord::name);
  return type == manifest.node_types.end() ? nullptr : &*type;
}

Status CheckNewTable(Manifest& manifest, const wire::CreateTable& create, const std::string& path) {
  if (manifest.FindTable(create.table) != nullptr) {
    return MakeStatus(Code::kAlreadyExists, "{}: there is a table \"{}\" already", path, create.table);
  }
  for (const std::string_view known :
       {std::string_view("label"), std::string_view("split"), kLabelCodeTable, kPlaceColumns, kTimeColumns}) {
    if (create.table != known) continue;
    return MakeStatus(Code::kInvalidArgument,
                      "{}: a table \"{}\" of zeros would say something of each node: import it", path, known);
  }
  if (!TypeIn(create.table) || TypeOf(manifest, create.table) != nullptr) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "{}: table \"{}\": {}", path, create.table,
                    ThereIsNo("type of nodes", *TypeIn(create.table), "types", manifest.node_types));
}

Status WriteZeros(FeatureTableWriter& writer, const FeatureGeometry& geometry,
                  const ProgressFunction& progress) {
  const uint64_t rows_max = std::max<uint64_t>(1, kZerosBytes / geometry.row_bytes);
  const std::vector<std::byte> zeros(rows_max * geometry.row_bytes);
  for (uint64_t done = 0; done < geometry.row_count;) {
    const uint64_t rows = std::min(rows_max, geometry.row_count - done);
    QUARRY_RETURN_IF_ERROR(writer.Append(std::span(zeros).first(rows * geometry.row_bytes)));
    done += rows;
    if (progress) QUARRY_RETURN_IF_ERROR(progress("creating a table", done, geometry.row_count));
  }
  return Status::Ok();
}

}  // namespace

Status CreateTable(Store& store, MemoryBudget& budget, const wire::CreateTable& create,
                   const ProgressFunction& progress) {
  Manifest manifest = *store.manifest();
  QUARRY_RETURN_IF_ERROR(CheckNewTable(manifest, create, store.path()));
  const NodeTypeRecord* const of = TypeOf(manifest, create.table);
  QUARRY_TRY(const FeatureGeometry geometry,
             FeatureGeometry::Make(create.element_type, create.dim,
                                   of == nullptr ? manifest.node_count : NodeCount(*of)));
  TableRecord record = {.name = create.table,
                        .file = fmt::format("features/{}-1.qft", create.table),
                        .element_type = create.element_type,
                        .row_count = geometry.row_count,
                        .dim = create.dim};
  std::error_code error;
  const auto space = std::filesystem::space(store.path(), error);
  if (!error && space.available < geometry.data_end()) {
    return MakeStatus(Code::kNoSpace, "{}: {} free, and table \"{}\" takes {}", store.path(),
                      FormatBytes(space.available), create.table, FormatBytes(geometry.data_end()));
  }
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(kTableWriterBytes + kZerosBytes + geometry.row_bytes +
                                geometry.cell_count() * sizeof(uint32_t),
                            "creating a table"));
  QUARRY_RETURN_IF_ERROR(ClearTopologyFile(store, record.file));
  const std::string path = store.path() + "/" + record.file;
  const auto write = [&]() -> Status {
    QUARRY_TRY(const auto writer, FeatureTableWriter::Create(store.backend(), path, geometry,
                                                             manifest.database_id, record.generation));
    QUARRY_RETURN_IF_ERROR(WriteZeros(*writer, geometry, progress));
    QUARRY_TRY(record.file_bytes, writer->Finish());
    return Status::Ok();
  };
  if (const Status written = write(); !written.ok()) {
    Discard(store.backend(), path);
    return written;
  }
  // After an error the file may be named: it stays, and the next open knows.
  return store.UpdateManifest([&](Manifest& next) {
    QUARRY_RETURN_IF_ERROR(CheckNewTable(next, create, store.path()));
    NodeTypeRecord* const type = TypeOf(next, record.name);
    if (type != nullptr) type->feature_table = record.name;
    const uint64_t rows = type == nullptr ? next.node_count : NodeCount(*type);
    record.added_rows = rows - record.row_count;
    record.row_count = rows;
    next.tables.push_back(record);
    return Status::Ok();
  });
}

}  // namespace quarry
