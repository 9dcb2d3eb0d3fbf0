// Tables of what the catalog says: short lists, made when a query begins.
#include <filesystem>
#include <functional>

#include "quarry/layout/layout.h"
#include "tables.h"

namespace quarry::sql {
namespace {

using RowValues = std::vector<Value>;
using RowList = std::vector<RowValues>;

// What prices a listing is nothing; a row is a few microseconds of SQLite's time.
constexpr double kListRows = 10;

Value Integer(uint64_t value) { return static_cast<int64_t>(value); }
Value Flag(bool value) { return int64_t{value ? 1 : 0}; }

class ListCursor final : public Cursor {
 public:
  explicit ListCursor(RowList rows) : rows_(std::move(rows)) {}
  Result<bool> Next() override { return next_++ < rows_.size(); }
  Status Get(int column, Output& out) override {
    out.Put(rows_[next_ - 1][static_cast<size_t>(column)]);
    return Status::Ok();
  }
  Result<int64_t> RowId() override { return static_cast<int64_t>(next_ - 1); }

 private:
  const RowList rows_;
  size_t next_ = 0;
};

// A list by its name, its columns, and the function that makes it.
class ListTable final : public Table {
 public:
  using Make = std::function<Result<RowList>(Session&)>;
  ListTable(Session& session, std::string_view name, std::vector<Column> columns, Make make)
      : session_(session), name_(name), columns_(std::move(columns)), make_(std::move(make)) {}
  std::string_view name() const override { return name_; }
  std::span<const Column> columns() const override { return columns_; }
  std::optional<Estimate> Price(const Query&) const override { return Estimate{.rows = kListRows}; }
  std::vector<int> Order(const Query&) const override { return {}; }
  Result<std::unique_ptr<Cursor>> Open(const Query&) override {
    QUARRY_TRY(RowList rows, make_(session_));
    return std::unique_ptr<Cursor>(std::make_unique<ListCursor>(std::move(rows)));
  }

 private:
  Session& session_;
  const std::string_view name_;
  const std::vector<Column> columns_;
  const Make make_;
};

constexpr ColumnType kInteger = ColumnType::kInteger, kReal = ColumnType::kReal, kText = ColumnType::kText;

Result<RowList> ListRelations(Session& session) {
  RowList rows;
  const TopologyRecord* const graph = session.manifest().FindTopology("graph");
  for (uint64_t id = 0; graph != nullptr && id < graph->relation_count; ++id) {
    std::optional<std::string> name;
    if (session.manifest().has_relation_names) {
      QUARRY_TRY(name, session.store().catalog().NameOfId(NameKind::kRelation, id));
    }
    rows.push_back({Integer(id), name ? Value(*name) : Value()});
  }
  return rows;
}

// NULL for a file that is not there: `quarry verify` says what to do.
Value FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? Value() : Integer(bytes);
}

Result<RowList> ListFiles(Session& session) {
  const Manifest& manifest = session.manifest();
  RowList rows;
  const auto add = [&](const std::string& file, std::string_view kind, const std::string& name,
                       uint64_t generation) {
    rows.push_back(
        {file, std::string(kind), name, Integer(generation), FileBytes(session.store().path() + "/" + file)});
  };
  for (const TableRecord& table : manifest.tables) add(table.file, "table", table.name, table.generation);
  for (const TopologyRecord& topology : manifest.topologies) {
    add(topology.file, "topology", topology.name, topology.generation);
  }
  for (const LayoutRecord& layout : manifest.layouts) {
    add(layout.directory + "/layout.qlc", "layout", layout.name, layout.generation);
    add(layout.directory + "/trace.qlt", "trace", layout.name, layout.generation);
  }
  for (const EmbeddingRecord& table : manifest.embeddings) {
    add(table.file, "embeddings", table.name, table.generation);
    if (!table.map_file.empty()) add(table.map_file, "page map", table.name, table.map_generation);
  }
  for (const TrainingRecord& run : manifest.trainings) add(run.file, "training", run.name, run.generation);
  return rows;
}

Result<RowList> ListVersions(Session& session) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  RowList rows;
  for (const TableRecord& table : snapshot->tables) {
    QUARRY_TRY(const std::shared_ptr<const StoredTable> open, session.OpenTable(table.name));
    rows.push_back({table.name, Integer(table.generation), std::string(ElementTypeName(table.element_type)),
                    Integer(table.dim), Integer(table.row_count),
                    Integer(open->overlay->TouchedRows().size()), Integer(table.folded),
                    Integer(snapshot->timestamp)});
  }
  return rows;
}

Result<RowList> ListLayouts(Session& session) {
  const Manifest& manifest = session.manifest();
  RowList rows;
  for (const LayoutRecord& layout : manifest.layouts) {
    rows.push_back({layout.name, layout.policy, layout.seed_order, layout.table, Integer(layout.batch_size),
                    Integer(layout.epochs), Integer(layout.batch_count), Integer(layout.batches_per_segment),
                    Integer(layout.cache_rows), Integer(layout.accesses), Integer(layout.hits),
                    Integer(layout.file_bytes + layout.trace_bytes), layout.predicted_seconds,
                    layout.measured_seconds == 0 ? Value() : Value(layout.measured_seconds),
                    Flag(IsFresh(manifest, layout)), Flag(IsServable(manifest, layout)), layout.created_utc});
  }
  return rows;
}

Result<RowList> ListEmbeddings(Session& session) {
  RowList rows;
  for (const EmbeddingRecord& table : session.manifest().embeddings) {
    rows.push_back({table.name, Integer(table.row_count), Integer(table.dim),
                    std::string(ElementTypeName(table.element_type)),
                    table.timestamp < 0 ? Value() : Value(table.timestamp), table.created_utc});
  }
  return rows;
}

Result<RowList> ListDeviceProfile(Session& session) {
  RowList rows;
  if (const std::optional<DeviceRecord>& device = session.manifest().device) {
    rows.push_back({device->random_reads_per_second, device->sequential_bytes_per_second,
                    device->write_bytes_per_second, device->gather_bytes_per_second, device->measured_utc});
  }
  return rows;
}

}  // namespace

std::vector<std::unique_ptr<Table>> MakeCatalogTables(Session& session) {
  std::vector<std::unique_ptr<Table>> tables;
  const auto add = [&](std::string_view name, std::vector<Column> columns, ListTable::Make make) {
    tables.push_back(std::make_unique<ListTable>(session, name, std::move(columns), std::move(make)));
  };
  add("relations", {{"id", kInteger}, {"name", kText}}, ListRelations);
  add("files",
      {{"path", kText}, {"kind", kText}, {"name", kText}, {"generation", kInteger}, {"bytes", kInteger}},
      ListFiles);
  add("versions",
      {{"table", kText},
       {"generation", kInteger},
       {"element_type", kText},
       {"dim", kInteger},
       {"row_count", kInteger},
       {"changed_rows", kInteger},
       {"folded", kInteger},
       {"snapshot", kInteger}},
      ListVersions);
  add("layouts",
      {{"name", kText},
       {"policy", kText},
       {"seed_order", kText},
       {"table", kText},
       {"batch_size", kInteger},
       {"epochs", kInteger},
       {"batches", kInteger},
       {"batches_per_segment", kInteger},
       {"cache_rows", kInteger},
       {"accesses", kInteger},
       {"hits", kInteger},
       {"bytes", kInteger},
       {"predicted_seconds", kReal},
       {"measured_seconds", kReal},
       {"fresh", kInteger},
       {"servable", kInteger},
       {"created_utc", kText}},
      ListLayouts);
  add("embeddings",
      {{"name", kText},
       {"row_count", kInteger},
       {"dim", kInteger},
       {"element_type", kText},
       {"timestamp", kInteger},
       {"created_utc", kText}},
      ListEmbeddings);
  add("device_profile",
      {{"random_reads_per_second", kReal},
       {"sequential_bytes_per_second", kReal},
       {"write_bytes_per_second", kReal},
       {"gather_bytes_per_second", kReal},
       {"measured_utc", kText}},
      ListDeviceProfile);
  return tables;
}

}  // namespace quarry::sql
