// quarry info DB: what a database holds.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli.h"
#include "objects.h"
#include "opened_store.h"
#include "partition.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/format/embedding_spec.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/node_types.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/topology.h"
#include "record_json.h"

namespace quarry::cli {
namespace {

struct InfoOptions {
  std::string path;
  bool json = false;
  std::optional<std::string> entity, relation;
  std::optional<uint64_t> entity_id, relation_id;
};

// The name of a value that a record keeps by its number; the number of one that this build does not know.
template <typename Enum>
Json NumberedName(uint8_t number) {
  constexpr auto& kNames = EnumNames<Enum>::kNames;
  return number < std::size(kNames) ? Json(kNames[number]) : Json(number);
}

// What is known of a database: a field of its manifest for each that the manifest has, and what it does not say.
class InfoReport {
 public:
  InfoReport(const Manifest& manifest, const std::string& path, const wire::MaintenanceReport& report)
      : manifest_(manifest), figures_(report) {
    json_["path"] = path;
    json_.update(FieldsOf(manifest));
    const TopologyRecord* const graph = manifest.FindTopology("graph");
    json_["edges"] = graph == nullptr ? 0 : graph->edge_count;
    json_["relations"] = graph == nullptr ? 0 : graph->relation_count;
    json_["classes"] = figures_.Count("classes");
    json_["timestamp"] = figures_.Count("timestamp");
    if (manifest.FindTable("split") != nullptr) json_["splits"] = figures_.Group("splits");
    for (size_t i = 0; i < manifest.node_types.size(); ++i) {
      json_["node_types"][i]["count"] = NodeCount(manifest.node_types[i]);
    }
    for (size_t i = 0; i < manifest.edge_types.size(); ++i) {
      const EdgeTypeRecord& type = manifest.edge_types[i];
      json_["edge_types"][i]["source"] = manifest.node_types[type.source].name;
      json_["edge_types"][i]["destination"] = manifest.node_types[type.destination].name;
    }
    AddTo("tables", manifest.tables);
    AddTo("topologies", manifest.topologies);
    AddTo("layouts", manifest.layouts);
    AddTo("partitionings", manifest.partitionings);
    AddTo("embeddings", manifest.embeddings);
    AddTo("trainings", manifest.trainings);
    // Files that no record names, and what an interrupted command left, are not in it. The catalog: the manifest, names, and
    // rows that changed.
    disk_["catalog"] = figures_.Count("disk_bytes.catalog");
    json_["disk_bytes"] = disk_;
  }

  const Json& json() const { return json_; }

 private:
  template <typename T>
  void AddTo(const char* kind, const std::vector<T>& records) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      Json& json = json_[kind][i];
      Complete(records[i], json);
      bytes += json[json.contains("disk_bytes") ? "disk_bytes" : "file_bytes"].template get<uint64_t>();
    }
    disk_[kind] = bytes;
  }

  void Complete(const TableRecord& table, Json& json) const {
    json["row_bytes"] = RowBytes(table.element_type, table.dim);
    json["changed_rows"] = figures_.Count("changed_rows." + table.name);
    // What whoever opens it holds throughout, whatever is cached besides: checksums, and which rows changed.
    const auto geometry = FeatureGeometry::Make(table.element_type, table.dim, table.row_count);
    json["resident_bytes"] = (geometry.ok() ? geometry->cell_count() * sizeof(uint32_t) : 0) +
                             figures_.Count("changed_rows_bytes." + table.name);
  }
  static uint64_t Sum(const std::vector<TopologyRun>& runs, uint64_t TopologyRun::*counted) {
    uint64_t sum = 0;
    for (const TopologyRun& run : runs) sum += run.*counted;
    return sum;
  }
  void Complete(const TopologyRecord& topology, Json& json) const {
    json["resident_bytes"] = Topology::ResidentBytes(topology);
    uint64_t bytes = topology.file_bytes;
    for (const TopologyRun& run : topology.runs) bytes += run.file_bytes;
    json["disk_bytes"] = bytes;
    json["edges_added"] = Sum(topology.runs, &TopologyRun::added);
    json["edges_removed"] = Sum(topology.runs, &TopologyRun::removed);
    const Json nodes = figures_.Group("nodes_of_runs." + topology.name);
    for (size_t i = 0; i < topology.runs.size(); ++i) {
      const std::string run = std::to_string(i);
      json["runs"][i]["nodes_added"] = nodes.contains(run) ? nodes[run] : Json();
    }
    json["growth"] = figures_.Group("growth." + topology.name);
  }
  void Complete(const LayoutRecord& layout, Json& json) const {
    json = LayoutJson(layout);
    json["fresh"] = IsFresh(manifest_, layout);
    json["servable"] = IsServable(manifest_, layout);
    const TopologyRecord* const topology = manifest_.FindTopology(layout.spec.topology);
    json["edges_changed"] = topology == nullptr ? 0 : topology->ChangedSince(layout.timestamp);
  }
  void Complete(const PartitioningRecord& record, Json& json) const {
    json = PartitioningJson(manifest_, record);
  }
  void Complete(const EmbeddingRecord& table, Json& json) const {
    json["optimizer"] = NumberedName<OptimizerKind>(table.optimizer);
    json["init"] = NumberedName<InitKind>(table.init);
    json["disk_bytes"] = figures_.Count("disk_bytes.embeddings." + table.name);
  }
  void Complete(const TrainingRecord& /*run*/, Json& json) const {
    Rename(json, "created_utc", "checkpoint_utc");
    Rename(json, "file_bytes", "disk_bytes");
  }

  const Manifest& manifest_;
  const Figures figures_;
  Json json_;
  Json disk_;
};

// Nothing where the record has no such field, or it is null.
std::string Text(const Json& record, const char* key) {
  if (!record.contains(key) || record[key].is_null()) return "";
  return record[key].is_string() ? record[key].get<std::string>() : record[key].dump();
}
std::string Size(const Json& record, const char* key) { return FormatBytes(record[key].get<uint64_t>()); }
bool Is(const Json& record, const char* key) { return record[key].get<bool>(); }

// A column of a table for people: its head, and what of each record stands in it; flush right where it is a number.
struct Column {
  const char* head;
  std::function<std::string(const Json&)> cell;
  bool right = false;
};
Column Words(const char* head, const char* key) {
  return {head, [key](const Json& record) { return Text(record, key); }};
}
Column Number(const char* head, const char* key) { return {head, Words(head, key).cell, true}; }
Column Bytes(const char* head, const char* key) {
  return {head, [key](const Json& record) { return Size(record, key); }, true};
}

// Columns as wide as their widest cell.
void PrintTable(const Json& records, const std::vector<Column>& columns) {
  std::vector<std::string> lines(records.size() + 1);
  for (const Column& column : columns) {
    std::vector<std::string> cells = {column.head};
    for (const Json& record : records) cells.push_back(column.cell(record));
    size_t width = 0;
    for (const std::string& cell : cells) width = std::max(width, cell.size());
    for (size_t i = 0; i < lines.size(); ++i) {
      lines[i] +=
          column.right ? fmt::format("{:>{}}  ", cells[i], width) : fmt::format("{:<{}}  ", cells[i], width);
    }
  }
  for (const std::string& line : lines) Print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

std::string SegmentsOf(const Json& layout) {
  const std::string batches = Text(layout, "batches_per_segment");
  return batches == "0" ? "none" : fmt::format("of {} batches", batches);
}

std::string SourceOf(const Json& layout) {
  if (Is(layout, "fresh")) return "these data";
  if (const std::string edges = Text(layout, "edges_changed"); Is(layout, "servable") && edges != "0") {
    return fmt::format("a graph before {} edges came or went: serves its batches", edges);
  }
  return Is(layout, "servable") ? "an earlier generation: serves, changed rows from the table"
                                : "other data: rebuild it";
}

std::string PartsSourceOf(const Json& partitioning) {
  if (Is(partitioning, "fresh")) return "these data";
  return Is(partitioning, "servable") ? "the graph as it was then: --method kept takes in what came since"
                                      : "other data: build it again";
}

std::string BatchesOf(const Json& table) {
  const Json& last = table["timestamp"];
  return last.is_null() ? "no checkpoint" : std::to_string(last.get<int64_t>() + 1);
}

// Tables and topologies, which have a file each.
void PrintFiles(const Json& report) {
  Json files = report["tables"];
  for (Json topology : report["topologies"]) {
    topology["element_type"] = Is(topology, "csr") ? "CSC + CSR" : "CSC";
    Rename(topology, "nodes", "rows");
    files.push_back(std::move(topology));
  }
  PrintTable(files, {Words("name", "name"), Words("type", "element_type"), Number("dim", "dim"),
                     Number("rows", "rows"), Number("changed", "changed_rows"), Number("edges", "edges"),
                     Number("row bytes", "row_bytes"), Words("file", "file"), Bytes("size", "file_bytes"),
                     Bytes("memory", "resident_bytes"), Number("generation", "generation")});
}

std::string DescribeDevice(const Json& device) {
  const auto rate = [&](const char* key) { return device[key].get<double>(); };
  const auto bandwidth = [&](const char* key) {
    return FormatBytes(static_cast<uint64_t>(rate(key))) + "/s";
  };
  return fmt::format("{} random reads/s, {} sequential, {} written, {} gathered in memory; measured {}",
                     FormatCount(rate("random_reads_per_second")), bandwidth("sequential_bytes_per_second"),
                     bandwidth("write_bytes_per_second"), bandwidth("gather_bytes_per_second"),
                     Text(device, "measured_utc"));
}

// What runs cost whoever samples.
std::string DescribeGrowth(const Json& growth) {
  const auto real = [&](const char* figure) { return growth[figure].get<double>(); };
  return fmt::format(
      "{} of runs, {:.1f} times what their edges are given by, {:.1f} % of all edges; {:.2f} s to open, "
      "{:.2f} "
      "s to fold; sampling {:.2f} times slower from memory, {:.2f} from disk",
      Size(growth, "run_bytes"), real("run_amplification"), 100 * real("edited_share"), real("open_seconds"),
      real("fold_seconds"), real("loaded_slowdown"), real("disk_slowdown"));
}

// "5.2 MiB: tables 4.1 MiB, graph 1.0 MiB, catalog 84 KiB": the kinds that there are.
std::string DescribeDisk(const Json& disk) {
  std::string kinds;
  uint64_t total = 0;
  for (const auto& [kind, value] : disk.items()) {
    const auto bytes = value.get<uint64_t>();
    total += bytes;
    if (bytes == 0) continue;
    const std::string name = kind == "topologies" ? "graph" : kind == "trainings" ? "training runs" : kind;
    kinds += fmt::format("{} {} {}", kinds.empty() ? ":" : ",", name, FormatBytes(bytes));
  }
  return FormatBytes(total) + kinds;
}

// Those of the words whose keys the record says yes to.
std::string WordsOf(const Json& record, std::initializer_list<std::pair<const char*, const char*>> words) {
  std::vector<std::string> said;
  for (const auto& [key, word] : words) {
    if (Is(record, key)) said.emplace_back(word);
  }
  return fmt::format("{}", fmt::join(said, ", "));
}

void PrintFacts(const Json& report) {
  const auto line = [](std::string_view what, const std::string& value) {
    Print("{}\n", value.empty() ? std::string(what) : fmt::format("{:<9}  {}", what, value));
  };
  line("database", Text(report, "path"));
  line("id", Text(report, "database_id"));
  std::string node_count = Text(report, "nodes");
  for (const Json& graph : report["topologies"]) {
    const auto added = graph["added_nodes"].get<uint64_t>();
    if (Text(graph, "name") == "graph" && added > 0) node_count += fmt::format("; {} of them added", added);
  }
  line("nodes", node_count);
  for (const Json& graph : report["topologies"]) {
    if (Text(graph, "name") != "graph") continue;
    const auto nodes = report["nodes"].get<uint64_t>(), places = graph["nodes"].get<uint64_t>();
    if (places > 0 && places < nodes) line("times", fmt::format("{} of {} places", nodes / places, places));
    const char* const once = graph["deduplicated"].get<bool>() ? "deduplicated" : "distinct";
    const std::string kind =
        WordsOf(graph, {{"undirected", "undirected"}, {once, "deduplicated"}, {"weighted", "weighted"}});
    std::string runs;
    if (!graph["runs"].empty()) {
      runs = fmt::format("; {} added and {} removed in {}", Text(graph, "edges_added"),
                         Text(graph, "edges_removed"), Counted(graph["runs"].size(), "run"));
    }
    line("edges", Text(graph, "edges") + (kind.empty() ? "" : ", ") + kind + runs);
    if (graph["growth"].value("runs", 0) > 0) line("growth", DescribeGrowth(graph["growth"]));
    line("relations", Text(graph, "relations"));
  }
  line("classes", Text(report, "classes"));
  if (report.contains("splits")) {
    std::string splits;
    for (const char* const split : {"train", "valid", "test", "none"}) {
      const std::string nodes = Text(report["splits"], split);
      splits += fmt::format("{}{} {}", splits.empty() ? "" : ", ", split, nodes.empty() ? "0" : nodes);
    }
    line("splits", splits);
  }
  const std::string names = WordsOf(report, {{"entity_names", "entities"}, {"relation_names", "relations"}});
  if (!names.empty()) line("names", names);
  line("size", DescribeDisk(report["disk_bytes"]));
  line("source", Text(report, "source"));
  line("created", Text(report, "created_utc"));
  if (!report["device"].is_null()) line("device", DescribeDevice(report["device"]));
}

void PrintText(const Json& report) {
  PrintFacts(report);
  Print("\n");
  PrintFiles(report);
  const auto print = [&](const char* kind, const std::vector<Column>& columns) {
    if (report[kind].empty()) return;
    Print("\n");
    PrintTable(report[kind], columns);
  };
  print("node_types", {Words("nodes of type", "name"), Number("count", "count"), Number("first id", "first"),
                       Number("classes", "classes"), Words("features", "feature_table")});
  print("edge_types", {Words("edges from", "source"), Words("by", "name"), Words("to", "destination"),
                       Number("edges", "edges")});
  print("layouts", {Words("layout", "name"),
                    Words("policy", "policy"),
                    Number("batches", "batches"),
                    {"segment caches", SegmentsOf},
                    Bytes("size", "disk_bytes"),
                    {"built from", SourceOf}});
  print("partitionings",
        {Words("partitioning", "name"),
         Words("method", "method"),
         Number("parts", "parts"),
         {"edges between parts",
          [](const Json& record) { return fmt::format("{:.1f} %", 100 * record["cut_share"].get<double>()); },
          true},
         Bytes("size", "disk_bytes"),
         {"built from", PartsSourceOf}});
  print("embeddings", {Words("embeddings", "name"),
                       Words("type", "element_type"),
                       Number("dim", "dim"),
                       Number("rows", "rows"),
                       Words("optimizer", "optimizer"),
                       Bytes("size", "disk_bytes"),
                       {"batches at the checkpoint", BatchesOf, true}});
  print("trainings", {Words("run", "name"), Words("checkpoint of", "checkpoint_utc"),
                      Bytes("size", "disk_bytes"), Words("settings", "settings")});
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
  const bool names = options.entity || options.entity_id || options.relation || options.relation_id;
  if (names) QUARRY_RETURN_IF_ERROR(CheckNoObjects("info", options.path));
  if (IsObjectAddress(options.path)) return InfoOfObjects(options.path, options.json);
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(options.path));
  if (names) return PrintNames(*store, options);
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, options.path));
  QUARRY_TRY(const std::string folder, FolderOf(*store));
  QUARRY_TRY(const wire::MaintenanceReport figures, store->Maintain(wire::InspectDatabase{}));
  const InfoReport report(manifest, folder, figures);
  options.json ? PrintJson(report.json()) : PrintText(report.json());
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
