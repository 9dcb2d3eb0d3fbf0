// Tables of what the catalog says: short lists, made when a query begins.
#include <filesystem>
#include <set>
#include <utility>

#include "list_table.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/format/node_types.h"
#include "quarry/layout/cost_model.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/partition_files.h"
#include "quarry/storage/topology_run.h"
#include "quarry/verify/verify.h"
#include "tables.h"

namespace quarry::sql {
namespace {

constexpr ColumnType kInteger = ColumnType::kInteger, kReal = ColumnType::kReal, kText = ColumnType::kText;

Result<RowList> ListRelations(Session& session, const Query&) {
  RowList rows;
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  const TopologyRecord* const graph = manifest->FindTopology("graph");
  for (uint64_t id = 0; graph != nullptr && id < graph->relation_count; ++id) {
    std::optional<std::string> name;
    if (manifest->has_relation_names) {
      QUARRY_TRY(name, session.store().catalog()->NameOfId(NameKind::kRelation, id));
    }
    rows.Add({Integer(id), name ? Value(*name) : Value()});
  }
  return rows;
}

// What labels stand for, where an import has numbered them.
Result<RowList> ListClasses(Session& session, const Query&) {
  RowList rows;
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  if (snapshot->FindTable(kLabelCodeTable) == nullptr) return rows;
  QUARRY_TRY(const std::shared_ptr<const TableView> table, session.OpenTable(kLabelCodeTable));
  std::vector<int64_t> codes(table->geometry().row_count);
  QUARRY_RETURN_IF_ERROR(table->file->ReadRows(session.store().backend(), 0, codes.size(),
                                               std::as_writable_bytes(std::span(codes))));
  for (size_t label = 0; label < codes.size(); ++label) rows.Add({Integer(label), codes[label]});
  return rows;
}

// NULL for a file that is not there: `quarry verify` says what to do.
Value FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? Value() : Integer(bytes);
}

struct NamedFile {
  std::string path;  // relative to the database
  const char* kind;
  std::string name;
  uint64_t generation = 0;
  Damage::Kind damage = Damage::Kind::kTable;  // what a fault in it is of
};

// The size of the files in a folder and below it.
uint64_t FolderBytes(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    const uintmax_t size = entry->is_regular_file(gone) ? entry->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

// NULL for what is not there: `quarry verify` says what to do.
Value PathBytes(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? Integer(FolderBytes(path)) : FileBytes(path);
}

std::vector<NamedFile> FilesIn(const Manifest& manifest) {
  std::vector<NamedFile> files;
  for (const TableRecord& table : manifest.tables) {
    files.push_back({table.file, "table", table.name, table.generation, Damage::Kind::kTable});
  }
  for (const TopologyRecord& topology : manifest.topologies) {
    files.push_back({topology.file, "topology", topology.name, topology.generation, Damage::Kind::kTopology});
  }
  for (const LayoutRecord& layout : manifest.layouts) {
    for (const LayoutFile& file : FilesOf(layout)) {
      const char* const kind = file.path.ends_with(kTraceFile) ? "trace" : "layout";
      files.push_back({file.path, kind, layout.name, file.generation, Damage::Kind::kLayout});
    }
  }
  for (const PartitioningRecord& partitioning : manifest.partitionings) {
    for (const LayoutFile& file : FilesOf(partitioning)) {
      files.push_back(
          {file.path, "partitioning", partitioning.name, file.generation, Damage::Kind::kPartitioning});
    }
  }
  for (const EmbeddingRecord& table : manifest.embeddings) {
    files.push_back({table.file, "embeddings", table.name, table.generation, Damage::Kind::kEmbedding});
    if (table.map_file.empty()) continue;
    files.push_back({table.map_file, "page map", table.name, table.map_generation, Damage::Kind::kEmbedding});
    if (table.kept_map_file.empty() || table.kept_map_file == table.map_file) continue;
    files.push_back(
        {table.kept_map_file, "page map", table.name, table.kept_map_generation, Damage::Kind::kEmbedding});
  }
  for (const TrainingRecord& run : manifest.trainings) {
    files.push_back({run.file, "training", run.name, run.generation, Damage::Kind::kTraining});
  }
  return files;
}

enum FileColumn : int { kChecksum = 5 };

const char* StrayKind(Damage::Kind kind) {
  if (kind == Damage::Kind::kLeftover) return "leftover";
  return kind == Damage::Kind::kFolder ? "folder" : "stray";
}

// Everything in the folder, whether the manifest names it or not, so that each fault has its row. What no
// record names has its path for a name, as in its damage.
Result<std::vector<NamedFile>> AllFilesOf(Session& session) {
  std::vector<NamedFile> files = FilesIn(*session.manifest());
  files.push_back({"VERSION", "version", "", 0, Damage::Kind::kVersion});
  files.push_back({"catalog/", "catalog", "", 0, Damage::Kind::kCatalog});
  QUARRY_TRY(VerifyReport strays, FindStrays(session.store()));
  QUARRY_RETURN_IF_ERROR(FindEmbeddingStrays(session.store(), strays));
  for (const Damage& stray : strays.damages) {
    files.push_back({stray.name, StrayKind(stray.kind), stray.name, 0, stray.kind});
  }
  return files;
}

// Reads every byte of the database. What a fault is of, all files of it are called damaged.
Result<std::set<std::pair<Damage::Kind, std::string>>> FindDamaged(Session& session) {
  const auto look = [&](std::string_view, uint64_t, uint64_t) { return session.Look(); };
  QUARRY_TRY(VerifyReport report, VerifyStore(session.store(), look));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(session.store(), look, report));
  std::set<std::pair<Damage::Kind, std::string>> damaged;
  for (const Damage& damage : report.damages) {
    if (damage.kind != Damage::Kind::kLeftover) damaged.emplace(damage.kind, damage.name);
  }
  return damaged;
}

Result<RowList> ListFiles(Session& session, const Query& query) {
  std::set<std::pair<Damage::Kind, std::string>> damaged;
  if (query.Wants(kChecksum)) {
    QUARRY_TRY(damaged, FindDamaged(session));
  }
  RowList rows;
  QUARRY_TRY(const std::vector<NamedFile> files, AllFilesOf(session));
  for (const NamedFile& file : files) {
    const bool named = file.generation > 0;
    rows.Add({file.path, file.kind, named ? Value(file.name) : Value(),
              named ? Integer(file.generation) : Value(), PathBytes(session.store().path() + "/" + file.path),
              damaged.contains({file.damage, file.name}) ? "damaged" : "ok"});
  }
  return rows;
}

Result<RowList> ListVersions(Session& session, const Query&) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  RowList rows;
  for (const TableRecord& table : snapshot->tables) {
    QUARRY_TRY(const std::shared_ptr<const TableView> open, session.OpenTable(table.name));
    rows.Add({table.name, Integer(table.generation), std::string(ElementTypeName(table.element_type)),
              Integer(table.dim), Integer(table.row_count), Integer(open->overlay->TouchedRows().size()),
              Integer(table.folded), Integer(snapshot->timestamp)});
  }
  return rows;
}

enum RunColumn : int { kRunNodes = 8 };

// What was committed to topologies since their files were written, in order.
Result<RowList> ListRuns(Session& session, const Query& query) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  RowList rows;
  for (const TopologyRecord& topology : snapshot->topologies) {
    std::vector<uint64_t> nodes(topology.runs.size());
    if (query.Wants(kRunNodes)) {
      QUARRY_TRY(nodes, NodesOfRuns(session.store().backend(), session.store().path(), topology,
                                    manifest->database_id));
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const TopologyRun& run = topology.runs[i];
      rows.Add({topology.name, run.file, Integer(run.timestamp), Integer(run.commits), Integer(run.added),
                Integer(run.removed), Integer(run.lists), Integer(run.file_bytes), Integer(nodes[i])});
    }
  }
  return rows;
}

template <typename Number>
Value NumberValue(Number number) {
  if constexpr (std::is_integral_v<Number>) return Integer(number);
  return static_cast<double>(number);
}

// The topology's name, and a column for each figure.
std::vector<Column> GrowthColumns() {
  static const std::vector<std::pair<std::string, ColumnType>> kFigures = [] {
    std::vector<std::pair<std::string, ColumnType>> figures;
    const auto add = [&](std::string_view name, auto value) {
      figures.emplace_back(name, std::is_integral_v<decltype(value)> ? kInteger : kReal);
    };
    ForEachFigure(GrowthCost(), add);
    ForEachFigure(GrowthWritten(), add);
    ForEachFigure(GrowthMeasured(), add);
    return figures;
  }();
  std::vector<Column> columns = {{"topology", kText}};
  for (const auto& [name, type] : kFigures) columns.push_back({name.c_str(), type});
  return columns;
}

Result<RowList> ListGrowth(Session& session, const Query&) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  const DeviceRecord device = DeviceOf(*session.manifest());
  RowList rows;
  for (const TopologyRecord& topology : snapshot->topologies) {
    std::vector<Value> row = {topology.name};
    const auto add = [&](std::string_view, auto value) { row.push_back(NumberValue(value)); };
    ForEachFigure(CostOf(topology, device), add);
    ForEachFigure(session.store().growth().Of(topology.name), add);
    ForEachFigure(session.store().growth().Measured(topology), add);
    rows.Add(std::move(row));
  }
  return rows;
}

// Nodes of each type that follow each other, by their ids.
Result<RowList> ListNodeRanges(Session& session, const Query&) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  RowList rows;
  const NodeTypes types(manifest->node_types, snapshot->node_count);
  for (const NodeTypes::Range& range : types.ranges()) {
    rows.Add({manifest->node_types[range.type].name, Integer(range.first), Integer(range.end - range.first),
              Integer(range.row)});
  }
  return rows;
}

// Whoever holds them: this connection, others, roads, sessions of the server.
Result<RowList> ListSnapshots(Session& session, const Query&) {
  RowList rows;
  for (const HeldSnapshots& held : session.store().Held()) {
    rows.Add({Integer(held.timestamp), Integer(held.count), held.oldest_seconds});
  }
  return rows;
}

// Rows of the snapshot's tables that have versions newer than their files.
Result<uint64_t> ChangedRows(Session& session, const std::shared_ptr<const Snapshot>& snapshot) {
  uint64_t rows = 0;
  for (const TableRecord& table : snapshot->tables) {
    QUARRY_TRY(const auto overlay, session.store().OpenOverlay(table.name, snapshot));
    rows += overlay->TouchedRows().size();
  }
  return rows;
}

Result<RowList> ListStats(Session& session, const Query&) {
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
  const TopologyRecord* const graph = snapshot->FindTopology("graph");
  QUARRY_TRY(const uint64_t changed_rows, ChangedRows(session, snapshot));
  uint64_t file_bytes = 0;
  const std::vector<NamedFile> files = FilesIn(*manifest);
  for (const NamedFile& file : files) {
    const Value bytes = FileBytes(session.store().path() + "/" + file.path);
    if (const auto* known = std::get_if<int64_t>(&bytes)) file_bytes += static_cast<uint64_t>(*known);
  }
  const std::pair<const char*, uint64_t> stats[] = {
      {"nodes", snapshot->node_count},
      {"edges", graph == nullptr ? 0 : graph->edge_count},
      {"relations", graph == nullptr ? 0 : graph->relation_count},
      {"classes", manifest->class_count},
      {"tables", snapshot->tables.size()},
      {"layouts", manifest->layouts.size()},
      {"embeddings", manifest->embeddings.size()},
      {"files", files.size()},
      {"file_bytes", file_bytes},
      {"timestamp", snapshot->timestamp},
      {"changed_rows", changed_rows},
      {"memory_bytes_max", session.budget().limit_bytes()},
      {"memory_bytes_used", session.budget().used_bytes()},
  };
  RowList rows;
  for (const auto& [metric, value] : stats) rows.Add({metric, Integer(value)});
  const GrowthCost cost = graph == nullptr ? GrowthCost() : CostOf(*graph, DeviceOf(*manifest));
  ForEachFigure(cost, [&](std::string_view name, auto value) {
    rows.Add({std::string(name), NumberValue(value)});
  });
  return rows;
}

// An edge is its destination's; it is cut where its source lies in another part.
Result<RowList> ListPartitions(Session& session, const Query&) {
  RowList rows;
  const std::shared_ptr<const Manifest> manifest = session.manifest();
  for (const PartitioningRecord& record : manifest->partitionings) {
    QUARRY_TRY(const PartitionDirectory directory, ReadPartitions(session.store(), record));
    for (uint32_t part = 0; part < directory.parts(); ++part) {
      uint64_t edges = 0;
      for (uint32_t source = 0; source < directory.parts(); ++source)
        edges += directory.bucket(source, part).edges;
      rows.Add({record.name, record.topology, record.method, Integer(part),
                Integer(directory.part_nodes(part)), Integer(edges),
                Integer(edges - directory.bucket(part, part).edges),
                Integer(IsFresh(*manifest, record) ? 1 : 0)});
    }
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
  add("classes", {{"label", kInteger}, {"code", kInteger}}, ListClasses);
  add("files",
      {{"path", kText},
       {"kind", kText},
       {"name", kText},
       {"generation", kInteger},
       {"bytes", kInteger},
       {.name = "checksum", .type = kText, .costly = true}},
      ListFiles);
  add("runs",
      {{"topology", kText},
       {"path", kText},
       {"timestamp", kInteger},
       {"commits", kInteger},
       {"added", kInteger},
       {"removed", kInteger},
       {"lists", kInteger},
       {"bytes", kInteger},
       {"nodes", kInteger}},
      ListRuns);
  add("growth", GrowthColumns(), ListGrowth);
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
  add("snapshots", {{"timestamp", kInteger}, {"held", kInteger}, {"oldest_seconds", kReal}}, ListSnapshots);
  add("node_ranges", {{"type", kText}, {"first", kInteger}, {"count", kInteger}, {"row", kInteger}},
      ListNodeRanges);
  using M = Manifest;
  using N = NodeTypeRecord;
  tables.push_back(MakeRecordTable<N>(
      session, "node_types",
      {{{"name", kText}, [](const M&, const N& n) -> Value { return n.name; }},
       {{"first", kInteger}, [](const M&, const N& n) { return Integer(n.first); }},
       {{"count", kInteger}, [](const M&, const N& n) { return Integer(NodeCount(n)); }},
       {{"feature_table", kText},
        [](const M&, const N& n) { return n.feature_table.empty() ? Value() : Value(n.feature_table); }},
       {{"dim", kInteger},
        [](const M& m, const N& n) {
          const TableRecord* const table = m.FindTable(n.feature_table);
          return table == nullptr ? Value() : Integer(table->dim);
        }},
       {{"classes", kInteger}, [](const M&, const N& n) { return Integer(n.class_count); }}},
      [](const M& manifest) { return std::span(manifest.node_types); }));
  using T = EdgeTypeRecord;
  tables.push_back(MakeRecordTable<T>(
      session, "edge_types",
      {{{"relation", kInteger},
        [](const M& m, const T& t) { return Integer(static_cast<uint64_t>(&t - m.edge_types.data())); }},
       {{"source", kText}, [](const M& m, const T& t) -> Value { return m.node_types[t.source].name; }},
       {{"name", kText}, [](const M&, const T& t) -> Value { return t.name; }},
       {{"destination", kText},
        [](const M& m, const T& t) -> Value { return m.node_types[t.destination].name; }},
       {{"count", kInteger}, [](const M&, const T& t) { return Integer(t.edge_count); }}},
      [](const M& manifest) { return std::span(manifest.edge_types); }));
  using E = EmbeddingRecord;
  tables.push_back(MakeRecordTable<E>(
      session, "embeddings",
      {{{"name", kText}, [](const M&, const E& e) -> Value { return e.name; }},
       {{"row_count", kInteger}, [](const M&, const E& e) { return Integer(e.row_count); }},
       {{"dim", kInteger}, [](const M&, const E& e) { return Integer(e.dim); }},
       {{"element_type", kText},
        [](const M&, const E& e) -> Value { return std::string(ElementTypeName(e.element_type)); }},
       {{"timestamp", kInteger},
        [](const M&, const E& e) { return e.timestamp < 0 ? Value() : Value(e.timestamp); }},
       {{"created_utc", kText}, [](const M&, const E& e) -> Value { return e.created_utc; }}},
      [](const M& manifest) { return std::span(manifest.embeddings); }));
  using D = DeviceRecord;
  tables.push_back(MakeRecordTable<D>(
      session, "device_profile",
      {{{"random_reads_per_second", kReal},
        [](const M&, const D& d) -> Value { return d.random_reads_per_second; }},
       {{"sequential_bytes_per_second", kReal},
        [](const M&, const D& d) -> Value { return d.sequential_bytes_per_second; }},
       {{"write_bytes_per_second", kReal},
        [](const M&, const D& d) -> Value { return d.write_bytes_per_second; }},
       {{"gather_bytes_per_second", kReal},
        [](const M&, const D& d) -> Value { return d.gather_bytes_per_second; }},
       {{"measured_utc", kText}, [](const M&, const D& d) -> Value { return d.measured_utc; }}},
      [](const M& manifest) {
        return manifest.device ? std::span<const D>(&*manifest.device, 1) : std::span<const D>();
      }));
  add("stats", {{"metric", kText}, {"value", kInteger}}, ListStats);
  add("partitions",
      {{"partitioning", kText},
       {"topology", kText},
       {"method", kText},
       {"partition", kInteger},
       {"nodes", kInteger},
       {"edges", kInteger},
       {"cut_edges", kInteger},
       {"fresh", kInteger}},
      ListPartitions);
  return tables;
}

}  // namespace quarry::sql
