// quarry info DB: what a database holds.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cli.h"
#include "footprint.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/io/backend.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/node_properties.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct InfoOptions {
  std::string path;
  bool json = false;
  std::optional<std::string> entity, relation;
  std::optional<uint64_t> entity_id, relation_id;
};

// Nodes by enum Split.
using SplitCounts = std::array<uint64_t, 4>;

std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

// Nothing without a split.
std::optional<SplitCounts> CountSplits(const NodeProperties& properties) {
  if (properties.splits.empty()) return std::nullopt;
  SplitCounts counts{};
  for (const uint8_t split : properties.splits) {
    if (split < counts.size()) ++counts[split];
  }
  return counts;
}

// What was written to a table since its file was made.
struct Changes {
  uint64_t rows = 0;
  uint64_t resident_bytes = 0;  // memory for the set of these rows
};

Result<std::vector<Changes>> FindChanges(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
  std::vector<Changes> changes;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const TableRecord& table : manifest->tables) {
    QUARRY_TRY(const std::unique_ptr<RowOverlay> overlay, store.OpenOverlay(table.name, snapshot));
    if (overlay->empty()) {
      changes.emplace_back();
    } else {
      changes.push_back({overlay->TouchedRows().size(), overlay->resident_bytes()});
    }
  }
  return changes;
}

std::string OptimizerName(const EmbeddingRecord& table) {
  constexpr std::array<const char*, 3> kNames = {"sgd", "adagrad", "adam"};
  return table.optimizer < kNames.size() ? kNames[table.optimizer] : std::to_string(table.optimizer);
}

// What a database tells about itself beyond its manifest.
struct Facts {
  std::optional<SplitCounts> splits;
  uint32_t classes = 0;
  std::vector<Changes> changes;  // by table
  uint64_t timestamp = 0;        // newest commit
  DiskFootprint disk;
};

Json EmbeddingsJson(const Store& store) {
  Json json = Json::array();
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& table : manifest->embeddings) {
    const bool checkpointed = table.timestamp != kNeverWritten;
    json.push_back({{"name", table.name},
                    {"rows", table.row_count},
                    {"dim", table.dim},
                    {"element_type", ElementTypeName(table.element_type)},
                    {"optimizer", OptimizerName(table)},
                    {"page_bytes", table.page_bytes},
                    {"disk_bytes", EmbeddingBytes(store, table)},
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

void PrintInfoJson(const Store& store, const Facts& facts) {
  const std::optional<SplitCounts>& splits = facts.splits;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  Json json = {{"path", store.path()},
               {"database_id", Hex(manifest->database_id)},
               {"nodes", manifest->node_count},
               {"edges", 0},
               {"relations", 0},
               {"classes", facts.classes},
               {"source", manifest->source},
               {"created_utc", manifest->created_utc},
               {"entity_names", manifest->has_entity_names},
               {"relation_names", manifest->has_relation_names},
               {"timestamp", facts.timestamp},
               {"disk_bytes",
                {{"tables", facts.disk.tables},
                 {"topologies", facts.disk.topologies},
                 {"layouts", facts.disk.layouts},
                 {"embeddings", facts.disk.embeddings},
                 {"trainings", facts.disk.trainings},
                 {"catalog", facts.disk.catalog}}}};
  if (const TopologyRecord* graph = manifest->FindTopology("graph")) {
    json["edges"] = graph->edge_count;
    json["relations"] = graph->relation_count;
  }
  if (splits) {
    json["splits"] = {
        {"train", (*splits)[1]}, {"valid", (*splits)[2]}, {"test", (*splits)[3]}, {"none", (*splits)[0]}};
  }
  json["tables"] = Json::array();
  for (size_t i = 0; i < manifest->tables.size(); ++i) {
    const TableRecord& table = manifest->tables[i];
    json["tables"].push_back({{"name", table.name},
                              {"element_type", ElementTypeName(table.element_type)},
                              {"dim", table.dim},
                              {"rows", table.row_count},
                              {"changed_rows", facts.changes[i].rows},
                              {"row_bytes", RowBytes(table.element_type, table.dim)},
                              {"generation", table.generation},
                              {"file", table.file},
                              {"file_bytes", table.file_bytes},
                              {"resident_bytes", ResidentBytes(table) + facts.changes[i].resident_bytes}});
  }
  json["topologies"] = Json::array();
  for (const TopologyRecord& topology : manifest->topologies) {
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
  json["layouts"] = LayoutsJson(*manifest);
  json["embeddings"] = EmbeddingsJson(store);
  json["trainings"] = TrainingsJson(*manifest);
  json["device"] = DeviceJson(manifest->device);
  PrintJson(json, 2);
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

void PrintEmbeddings(const Store& store) {
  std::vector<std::vector<std::string>> rows = {
      {"embeddings", "type", "dim", "rows", "optimizer", "size", "batches at the checkpoint"}};
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& table : manifest->embeddings) {
    rows.push_back(
        {table.name, std::string(ElementTypeName(table.element_type)), std::to_string(table.dim),
         std::to_string(table.row_count), OptimizerName(table), FormatBytes(EmbeddingBytes(store, table)),
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
std::string DescribeDisk(const DiskFootprint& disk) {
  std::string kinds;
  for (const auto& [name, bytes] :
       {std::pair("tables", disk.tables), std::pair("graph", disk.topologies),
        std::pair("layouts", disk.layouts), std::pair("embeddings", disk.embeddings),
        std::pair("training runs", disk.trainings), std::pair("catalog", disk.catalog)}) {
    if (bytes > 0) kinds += fmt::format("{} {} {}", kinds.empty() ? ":" : ",", name, FormatBytes(bytes));
  }
  return FormatBytes(disk.total()) + kinds;
}

void PrintText(const Store& store, const Facts& known) {
  const std::optional<SplitCounts>& splits = known.splits;
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  std::vector<std::vector<std::string>> files = {{"name", "type", "dim", "rows", "changed", "edges",
                                                  "row bytes", "file", "size", "memory", "generation"}};
  for (size_t i = 0; i < manifest->tables.size(); ++i) {
    const TableRecord& table = manifest->tables[i];
    files.push_back({table.name, std::string(ElementTypeName(table.element_type)), std::to_string(table.dim),
                     std::to_string(table.row_count), std::to_string(known.changes[i].rows), "",
                     std::to_string(RowBytes(table.element_type, table.dim)), table.file,
                     FormatBytes(table.file_bytes),
                     FormatBytes(ResidentBytes(table) + known.changes[i].resident_bytes),
                     std::to_string(table.generation)});
  }
  for (const TopologyRecord& topology : manifest->topologies) {
    files.push_back({topology.name, topology.has_csr ? "CSC + CSR" : "CSC", "",
                     std::to_string(topology.node_count), "", std::to_string(topology.edge_count), "",
                     topology.file, FormatBytes(topology.file_bytes),
                     FormatBytes(Topology::ResidentBytes(topology)), std::to_string(topology.generation)});
  }
  std::vector<std::vector<std::string>> facts = {{"database", store.path()},
                                                 {"id", Hex(manifest->database_id)}};
  facts.push_back({"nodes", std::to_string(manifest->node_count)});
  if (const TopologyRecord* graph = manifest->FindTopology("graph")) {
    facts.push_back(
        {"edges",
         fmt::format("{}{}{}{}", graph->edge_count, graph->undirected ? ", undirected" : "",
                     graph->deduplicated ? ", deduplicated" : "", graph->weighted ? ", weighted" : "")});
    facts.push_back({"relations", std::to_string(graph->relation_count)});
  }
  facts.push_back({"classes", std::to_string(known.classes)});
  if (splits) {
    facts.push_back({"splits", fmt::format("train {}, valid {}, test {}, none {}", (*splits)[1], (*splits)[2],
                                           (*splits)[3], (*splits)[0])});
  }
  if (manifest->has_entity_names || manifest->has_relation_names) {
    facts.push_back(
        {"names", fmt::format("{}{}{}", manifest->has_entity_names ? "entities" : "",
                              manifest->has_entity_names && manifest->has_relation_names ? ", " : "",
                              manifest->has_relation_names ? "relations" : "")});
  }
  facts.push_back({"size", DescribeDisk(known.disk)});
  facts.push_back({"source", manifest->source});
  facts.push_back({"created", manifest->created_utc});
  if (manifest->device) facts.push_back({"device", DescribeDevice(*manifest->device)});
  PrintTable(facts, {false, false});
  Print("\n");
  PrintTable(files, {false, false, true, true, true, true, true, false, true, true, true});
  if (!manifest->layouts.empty()) PrintLayouts(*manifest);
  if (!manifest->embeddings.empty()) PrintEmbeddings(store);
  if (!manifest->trainings.empty()) PrintTrainings(*manifest);
}

// Prints the id of a name, or the name of an id.
Status PrintNames(Store& store, const InfoOptions& options) {
  const auto print_id = [&](NameKind kind, const std::optional<std::string>& name) -> Status {
    if (!name) return Status::Ok();
    QUARRY_TRY(const std::optional<uint64_t> id, store.catalog()->IdOfName(kind, *name));
    if (!id) return MakeStatus(Code::kNotFound, "{}: nothing has the name \"{}\"", store.path(), *name);
    Print("{}\n", *id);
    return Status::Ok();
  };
  const auto print_name = [&](NameKind kind, std::optional<uint64_t> id) -> Status {
    if (!id) return Status::Ok();
    QUARRY_TRY(const std::optional<std::string> name, store.catalog()->NameOfId(kind, *id));
    if (!name) return MakeStatus(Code::kNotFound, "{}: id {} has no name", store.path(), *id);
    Print("{}\n", *name);
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(print_id(NameKind::kEntity, options.entity));
  QUARRY_RETURN_IF_ERROR(print_name(NameKind::kEntity, options.entity_id));
  QUARRY_RETURN_IF_ERROR(print_id(NameKind::kRelation, options.relation));
  return print_name(NameKind::kRelation, options.relation_id);
}

Status Info(const InfoOptions& options) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, options.path));
  if (options.entity || options.entity_id || options.relation || options.relation_id) {
    return PrintNames(*store, options);
  }
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, store->TakeSnapshot());
  Facts facts;
  QUARRY_TRY(const NodeProperties properties,
             LoadNodeProperties(*store, store->manifest()->node_count, snapshot));
  facts.splits = CountSplits(properties);
  facts.classes = CountClasses(properties.labels);  // as training does
  QUARRY_TRY(facts.changes, FindChanges(*store, snapshot));
  facts.timestamp = snapshot->timestamp;
  facts.disk = DiskFootprintOf(*store);
  options.json ? PrintInfoJson(*store, facts) : PrintText(*store, facts);
  return Status::Ok();
}

}  // namespace

void AddInfo(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("info", "Show what a database holds");
  auto options = std::make_shared<InfoOptions>();
  verb->add_option("DB", options->path, "database folder")->required();
  verb->add_flag("--json", options->json, "one JSON object on stdout");
  verb->add_option("--entity", options->entity, "print the node id of this name, and nothing else");
  verb->add_option("--entity-id", options->entity_id, "print the name of this node id");
  verb->add_option("--relation", options->relation, "print the relation id of this name");
  verb->add_option("--relation-id", options->relation_id, "print the name of this relation id");
  verb->footer("Example: quarry info graph.db --json");
  verb->callback([options, &action] { action = [options] { return Info(*options); }; });
}

}  // namespace quarry::cli
