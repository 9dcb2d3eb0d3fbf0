// quarry info DB: what a database holds.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli.h"
#include "opened_store.h"
#include "partition.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/format/feature_table.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/topology.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoOptions {
  std::string path;
  bool json = false;
  std::optional<std::string> entity, relation;
  std::optional<uint64_t> entity_id, relation_id;
};

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

// What is known of a database.
struct Facts {
  Manifest manifest;
  std::string path;
  wire::MaintenanceReport report;  // what the manifest does not say

  Figures figures() const { return Figures(report); }
  uint64_t ChangedRows(const TableRecord& table) const {
    return figures().Count("changed_rows." + table.name);
  }
  // What whoever opens the table holds throughout, whatever is cached besides: checksums, and which rows changed.
  uint64_t ResidentBytes(const TableRecord& table) const {
    const auto geometry = FeatureGeometry::Make(table.element_type, table.dim, table.row_count);
    return (geometry.ok() ? geometry->cell_count() * sizeof(uint32_t) : 0) +
           figures().Count("changed_rows_bytes." + table.name);
  }
  uint64_t DiskBytes(const EmbeddingRecord& table) const {
    return figures().Count("disk_bytes.embeddings." + table.name);
  }
};

// Disk space of one kind of files. Files that no record names, and what an interrupted command left, are not in it.
struct DiskKind {
  const char* key;   // in JSON
  const char* name;  // in text
  uint64_t bytes = 0;
};

std::vector<DiskKind> DiskKinds(const Facts& facts) {
  const Manifest& manifest = facts.manifest;
  DiskKind tables{"tables", "tables"}, topologies{"topologies", "graph"}, layouts{"layouts", "layouts"};
  DiskKind partitionings{"partitionings", "partitionings"};
  DiskKind embeddings{"embeddings", "embeddings"}, trainings{"trainings", "training runs"};
  for (const TableRecord& table : manifest.tables) tables.bytes += table.file_bytes;
  for (const TopologyRecord& topology : manifest.topologies) topologies.bytes += topology.file_bytes;
  for (const LayoutRecord& layout : manifest.layouts) layouts.bytes += layout.total_bytes();
  for (const PartitioningRecord& partitioning : manifest.partitionings)
    partitionings.bytes += partitioning.file_bytes;
  for (const EmbeddingRecord& table : manifest.embeddings) embeddings.bytes += facts.DiskBytes(table);
  for (const TrainingRecord& run : manifest.trainings) trainings.bytes += run.file_bytes;
  // The catalog: the manifest, names, and rows that changed.
  return {tables,
          topologies,
          layouts,
          partitionings,
          embeddings,
          trainings,
          {"catalog", "catalog", facts.figures().Count("disk_bytes.catalog")}};
}

std::string OptimizerName(const EmbeddingRecord& table) {
  constexpr std::array<const char*, 3> kNames = {"sgd", "adagrad", "adam"};
  return table.optimizer < kNames.size() ? kNames[table.optimizer] : std::to_string(table.optimizer);
}

Json EmbeddingsJson(const Facts& facts) {
  Json json = Json::array();
  for (const EmbeddingRecord& table : facts.manifest.embeddings) {
    const bool checkpointed = table.timestamp != kNeverWritten;
    json.push_back({{"name", table.name},
                    {"rows", table.row_count},
                    {"dim", table.dim},
                    {"element_type", ElementTypeName(table.element_type)},
                    {"optimizer", OptimizerName(table)},
                    {"page_bytes", table.page_bytes},
                    {"disk_bytes", facts.DiskBytes(table)},
                    {"timestamp", checkpointed ? Json(table.timestamp) : Json(nullptr)},
                    {"file", table.file},
                    {"created_utc", table.created_utc}});
  }
  return json;
}

Json TrainingsJson(const Manifest& manifest) {
  Json json = Json::array();
  for (const TrainingRecord& run : manifest.trainings) {
    const bool has_batches = run.timestamp != kNeverWritten;
    json.push_back({{"name", run.name},
                    {"settings", run.settings},
                    {"config", run.config.empty() ? Json(nullptr) : Json(run.config)},
                    {"timestamp", has_batches ? Json(run.timestamp) : Json(nullptr)},
                    {"checkpoint_utc", run.created_utc},
                    {"file", run.file},
                    {"disk_bytes", run.file_bytes}});
  }
  return json;
}

Json LayoutsJson(const Manifest& manifest) {
  Json json = Json::array();
  for (const LayoutRecord& layout : manifest.layouts) {
    json.push_back({{"name", layout.name},
                    {"policy", NameOf(layout.policy)},
                    {"seed_order", NameOf(layout.spec.seed_order)},
                    {"epochs", layout.epochs},
                    {"batches", layout.batch_count},
                    {"batches_per_segment", layout.batches_per_segment},
                    {"fresh", IsFresh(manifest, layout)},
                    {"generation", layout.generation},
                    {"directory", layout.directory},
                    {"disk_bytes", layout.total_bytes()}});
  }
  return json;
}

Json DeviceJson(const std::optional<DeviceRecord>& device) {
  if (!device) return nullptr;
  return {{"random_reads_per_second", device->random_reads_per_second},
          {"sequential_bytes_per_second", device->sequential_bytes_per_second},
          {"write_bytes_per_second", device->write_bytes_per_second},
          {"gather_bytes_per_second", device->gather_bytes_per_second},
          {"measured_utc", device->measured_utc}};
}

Json DiskJson(const Facts& facts) {
  Json json;
  for (const DiskKind& kind : DiskKinds(facts)) json[kind.key] = kind.bytes;
  return json;
}

void PrintInfoJson(const Facts& facts) {
  const Manifest& manifest = facts.manifest;
  const TopologyRecord* const graph = manifest.FindTopology("graph");
  Json json = {{"path", facts.path},
               {"database_id", Hex(manifest.database_id)},
               {"nodes", manifest.node_count},
               {"edges", graph == nullptr ? 0 : graph->edge_count},
               {"relations", graph == nullptr ? 0 : graph->relation_count},
               {"classes", facts.figures().Count("classes")},
               {"source", manifest.source},
               {"created_utc", manifest.created_utc},
               {"entity_names", manifest.has_entity_names},
               {"relation_names", manifest.has_relation_names},
               {"timestamp", facts.figures().Count("timestamp")},
               {"disk_bytes", DiskJson(facts)}};
  if (manifest.FindTable("split") != nullptr) json["splits"] = facts.figures().Group("splits");
  json["tables"] = Json::array();
  for (const TableRecord& table : manifest.tables) {
    json["tables"].push_back({{"name", table.name},
                              {"element_type", ElementTypeName(table.element_type)},
                              {"dim", table.dim},
                              {"rows", table.row_count},
                              {"changed_rows", facts.ChangedRows(table)},
                              {"row_bytes", RowBytes(table.element_type, table.dim)},
                              {"generation", table.generation},
                              {"file", table.file},
                              {"file_bytes", table.file_bytes},
                              {"resident_bytes", facts.ResidentBytes(table)}});
  }
  json["topologies"] = Json::array();
  for (const TopologyRecord& topology : manifest.topologies) {
    json["topologies"].push_back({{"name", topology.name},
                                  {"nodes", topology.node_count},
                                  {"edges", topology.edge_count},
                                  {"relations", topology.relation_count},
                                  {"csr", topology.has_csr},
                                  {"undirected", topology.undirected},
                                  {"deduplicated", topology.deduplicated},
                                  {"weighted", topology.weighted},
                                  {"generation", topology.generation},
                                  {"file", topology.file},
                                  {"file_bytes", topology.file_bytes},
                                  {"resident_bytes", Topology::ResidentBytes(topology)}});
  }
  json["layouts"] = LayoutsJson(manifest);
  json["partitionings"] = Json::array();
  for (const PartitioningRecord& record : manifest.partitionings) {
    json["partitionings"].push_back(PartitioningJson(manifest, record));
  }
  json["embeddings"] = EmbeddingsJson(facts);
  json["trainings"] = TrainingsJson(manifest);
  json["device"] = DeviceJson(manifest.device);
  PrintJson(json);
}

// Columns as wide as their widest cell; the first row is the header. Column i is flush right where right[i].
void PrintTable(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths(right.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line +=
          right[i] ? fmt::format("{:>{}}  ", row[i], widths[i]) : fmt::format("{:<{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    Print("{}\n", line);
  }
}

void PrintLayouts(const Manifest& manifest) {
  std::vector<std::vector<std::string>> rows = {
      {"layout", "policy", "batches", "segment caches", "size", "built from"}};
  for (const LayoutRecord& layout : manifest.layouts) {
    rows.push_back(
        {layout.name, std::string(NameOf(layout.policy)), std::to_string(layout.batch_count),
         layout.batches_per_segment == 0 ? std::string("none")
                                         : fmt::format("of {} batches", layout.batches_per_segment),
         FormatBytes(layout.total_bytes()),
         IsFresh(manifest, layout)      ? "these data"
         : IsServable(manifest, layout) ? "an earlier generation: serves, changed rows from the table"
                                        : "other data: rebuild it"});
  }
  Print("\n");
  PrintTable(rows, {false, false, true, false, true, false});
}

void PrintPartitionings(const Manifest& manifest) {
  std::vector<std::vector<std::string>> rows = {
      {"partitioning", "method", "parts", "edges between parts", "size", "built from"}};
  for (const PartitioningRecord& record : manifest.partitionings) {
    rows.push_back({record.name, record.method, std::to_string(record.part_count),
                    fmt::format("{:.1f} %", 100 * CutShare(record)), FormatBytes(record.file_bytes),
                    IsFresh(manifest, record) ? "these data" : "other data: build it again"});
  }
  Print("\n");
  PrintTable(rows, {false, false, true, true, true, false});
}

void PrintEmbeddings(const Facts& facts) {
  std::vector<std::vector<std::string>> rows = {
      {"embeddings", "type", "dim", "rows", "optimizer", "size", "batches at the checkpoint"}};
  for (const EmbeddingRecord& table : facts.manifest.embeddings) {
    rows.push_back(
        {table.name, std::string(ElementTypeName(table.element_type)), std::to_string(table.dim),
         std::to_string(table.row_count), OptimizerName(table), FormatBytes(facts.DiskBytes(table)),
         table.timestamp == kNeverWritten ? "no checkpoint" : std::to_string(table.timestamp + 1)});
  }
  Print("\n");
  PrintTable(rows, {false, false, true, true, false, true, true});
}

void PrintTrainings(const Manifest& manifest) {
  std::vector<std::vector<std::string>> rows = {{"run", "checkpoint of", "size", "settings"}};
  for (const TrainingRecord& run : manifest.trainings) {
    rows.push_back({run.name, run.created_utc, FormatBytes(run.file_bytes), run.settings});
  }
  Print("\n");
  PrintTable(rows, {false, false, true, false});
}

std::string DescribeDevice(const DeviceRecord& device) {
  const auto bandwidth = [](double rate) { return FormatBytes(static_cast<uint64_t>(rate)) + "/s"; };
  return fmt::format("{} random reads/s, {} sequential, {} written, {} gathered in memory; measured {}",
                     FormatCount(device.random_reads_per_second),
                     bandwidth(device.sequential_bytes_per_second), bandwidth(device.write_bytes_per_second),
                     bandwidth(device.gather_bytes_per_second), device.measured_utc);
}

// "5.2 MiB: tables 4.1 MiB, graph 1.0 MiB, catalog 84 KiB": the kinds that there are.
std::string DescribeDisk(const Facts& facts) {
  std::string kinds;
  uint64_t total = 0;
  for (const DiskKind& kind : DiskKinds(facts)) {
    total += kind.bytes;
    if (kind.bytes == 0) continue;
    kinds += fmt::format("{} {} {}", kinds.empty() ? ":" : ",", kind.name, FormatBytes(kind.bytes));
  }
  return FormatBytes(total) + kinds;
}

void PrintText(const Facts& known) {
  const Manifest& manifest = known.manifest;
  std::vector<std::vector<std::string>> files = {{"name", "type", "dim", "rows", "changed", "edges",
                                                  "row bytes", "file", "size", "memory", "generation"}};
  for (const TableRecord& table : manifest.tables) {
    files.push_back({table.name, std::string(ElementTypeName(table.element_type)), std::to_string(table.dim),
                     std::to_string(table.row_count), std::to_string(known.ChangedRows(table)), "",
                     std::to_string(RowBytes(table.element_type, table.dim)), table.file,
                     FormatBytes(table.file_bytes), FormatBytes(known.ResidentBytes(table)),
                     std::to_string(table.generation)});
  }
  for (const TopologyRecord& topology : manifest.topologies) {
    files.push_back({topology.name, topology.has_csr ? "CSC + CSR" : "CSC", "",
                     std::to_string(topology.node_count), "", std::to_string(topology.edge_count), "",
                     topology.file, FormatBytes(topology.file_bytes),
                     FormatBytes(Topology::ResidentBytes(topology)), std::to_string(topology.generation)});
  }
  std::vector<std::vector<std::string>> facts = {{"database", known.path}, {"id", Hex(manifest.database_id)}};
  facts.push_back({"nodes", std::to_string(manifest.node_count)});
  if (const TopologyRecord* graph = manifest.FindTopology("graph")) {
    facts.push_back(
        {"edges",
         fmt::format("{}{}{}{}", graph->edge_count, graph->undirected ? ", undirected" : "",
                     graph->deduplicated ? ", deduplicated" : "", graph->weighted ? ", weighted" : "")});
    facts.push_back({"relations", std::to_string(graph->relation_count)});
  }
  facts.push_back({"classes", std::to_string(known.figures().Count("classes"))});
  if (manifest.FindTable("split") != nullptr) {
    const auto nodes = [&](const char* split) {
      return known.figures().Count(std::string("splits.") + split);
    };
    facts.push_back({"splits", fmt::format("train {}, valid {}, test {}, none {}", nodes("train"),
                                           nodes("valid"), nodes("test"), nodes("none"))});
  }
  if (manifest.has_entity_names || manifest.has_relation_names) {
    facts.push_back(
        {"names", fmt::format("{}{}{}", manifest.has_entity_names ? "entities" : "",
                              manifest.has_entity_names && manifest.has_relation_names ? ", " : "",
                              manifest.has_relation_names ? "relations" : "")});
  }
  facts.push_back({"size", DescribeDisk(known)});
  facts.push_back({"source", manifest.source});
  facts.push_back({"created", manifest.created_utc});
  if (manifest.device) facts.push_back({"device", DescribeDevice(*manifest.device)});
  PrintTable(facts, {false, false});
  Print("\n");
  PrintTable(files, {false, false, true, true, true, true, true, false, true, true, true});
  if (!manifest.layouts.empty()) PrintLayouts(manifest);
  if (!manifest.partitionings.empty()) PrintPartitionings(manifest);
  if (!manifest.embeddings.empty()) PrintEmbeddings(known);
  if (!manifest.trainings.empty()) PrintTrainings(manifest);
}

// Prints the one value that the statement finds. False where there is none.
Result<bool> PrintValue(client::Store& store, std::string_view sql, const client::Value& parameter) {
  QUARRY_TRY(const std::unique_ptr<client::RowCursor> rows, store.Query(sql, {&parameter, 1}));
  QUARRY_TRY(const bool found, rows->Next());
  if (!found || std::holds_alternative<std::monostate>(rows->value(0))) return false;
  Print("{}\n", rows->Text(0));
  return true;
}

// Prints the id of a name, or the name of an id.
Status PrintNames(client::Store& store, const InfoOptions& options) {
  const auto print_id = [&](const char* sql, const std::optional<std::string>& name) -> Status {
    if (!name) return Status::Ok();
    QUARRY_TRY(const bool found, PrintValue(store, sql, *name));
    if (found) return Status::Ok();
    return MakeStatus(Code::kNotFound, "{}: nothing has the name \"{}\"", options.path, *name);
  };
  const auto print_name = [&](const char* sql, std::optional<uint64_t> id) -> Status {
    if (!id) return Status::Ok();
    QUARRY_TRY(const bool found, PrintValue(store, sql, static_cast<int64_t>(*id)));
    if (found) return Status::Ok();
    return MakeStatus(Code::kNotFound, "{}: id {} has no name", options.path, *id);
  };
  QUARRY_RETURN_IF_ERROR(print_id("SELECT id FROM nodes WHERE name = ?1", options.entity));
  QUARRY_RETURN_IF_ERROR(print_name("SELECT name FROM nodes WHERE id = ?1", options.entity_id));
  QUARRY_RETURN_IF_ERROR(print_id("SELECT id FROM relations WHERE name = ?1", options.relation));
  return print_name("SELECT name FROM relations WHERE id = ?1", options.relation_id);
}

Status Info(const InfoOptions& options) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(options.path));
  if (options.entity || options.entity_id || options.relation || options.relation_id) {
    return PrintNames(*store, options);
  }
  Facts facts;
  QUARRY_TRY(facts.manifest, ManifestOf(*store, options.path));
  QUARRY_TRY(facts.path, FolderOf(*store));
  QUARRY_TRY(facts.report, store->Maintain(wire::InspectDatabase{}));
  options.json ? PrintInfoJson(facts) : PrintText(facts);
  return Status::Ok();
}

}  // namespace

void AddInfo(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("info", "show what a database holds");
  auto options = std::make_shared<InfoOptions>();
  verb->add_option("DB", options->path, kAddressHelp)->required();
  verb->add_flag("--json", options->json, "one JSON object on stdout");
  verb->add_option("--entity", options->entity, "print the node id of this name, and nothing else");
  verb->add_option("--entity-id", options->entity_id, "print the name of this node id");
  verb->add_option("--relation", options->relation, "print the relation id of this name");
  verb->add_option("--relation-id", options->relation_id, "print the name of this relation id");
  verb->footer("Example: quarry info graph.db --json");
  verb->callback([options, &action] { action = [options] { return Info(*options); }; });
}

}  // namespace quarry::cli
