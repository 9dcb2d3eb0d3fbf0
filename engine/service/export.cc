#include "quarry/service/export.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "export_edges.h"
#include "export_output.h"
#include "quarry/base/json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/embedding/embedding_reader.h"
#include "quarry/format/node_types.h"
#include "quarry/import/graphbolt.h"
#include "quarry/service/work_folder.h"
#include "quarry/storage/checkpoint.h"
#include "table_scan.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNodesAtATime = 64 << 10;      // labels and splits, which are read side by side
constexpr uint64_t kListBufferBytes = 256 << 10;  // for each of up to six lists at once
constexpr std::string_view kNodeType = "node";

// What a file system takes as part of a name.
Status CheckFileName(const std::string& relation) {
  constexpr size_t kBytesMax = 240;  // 255 less what stands around the name
  if (relation.find('/') == std::string::npos && relation.size() <= kBytesMax) return Status::Ok();
  return MakeStatus(
      Code::kUnsupported,
      "the relation '{}' cannot be part of a file's name, as it has to be in npy and csv; choose graphbolt",
      relation);
}

// As DGL reads types: SOURCE:RELATION:DESTINATION.
Result<std::string> EdgeType(const std::string& relation) {
  if (relation.empty()) return std::string();
  if (relation.find(':') == std::string::npos) return fmt::format("{}:{}:{}", kNodeType, relation, kNodeType);
  return MakeStatus(
      Code::kUnsupported,
      "the relation '{}' has a colon, which separates the parts of a type for DGL; choose npy or csv",
      relation);
}

class Exporter {
 public:
  Exporter(Store& store, MemoryBudget& budget, const wire::ExportDatabase& options,
           const ProgressFunction& progress, const std::string& folder)
      : store_(store),
        options_(options),
        progress_(progress),
        target_{.backend = store.backend(),
                .budget = budget,
                .folder = folder,
                .text = options.format == ExportFormat::kCsv} {}

  Status Run() {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
    report_.timestamp = snapshot_->timestamp;
    types_ = store_.manifest()->node_types;
    nodes_ = NodeTypes(types_, snapshot_->node_count);
    if (IsTyped() && !ToGraphBolt()) {
      return MakeStatus(Code::kUnsupported,
                        "{}: has types of nodes and edges, which --format graphbolt keeps", store_.path());
    }
    if (options_.topology) QUARRY_RETURN_IF_ERROR(Topology());
    if (options_.features) QUARRY_RETURN_IF_ERROR(Features());
    if (options_.labels) {
      QUARRY_RETURN_IF_ERROR(Labels());
      QUARRY_RETURN_IF_ERROR(Targets());
    }
    if (options_.split) QUARRY_RETURN_IF_ERROR(Splits());
    if (options_.embeddings) QUARRY_RETURN_IF_ERROR(Embeddings());
    if (target_.files == 0) {
      return MakeStatus(Code::kInvalidArgument, "{}: holds nothing of what is to be exported", store_.path());
    }
    return Metadata();
  }

  ExportReport Report() const {
    ExportReport report = report_;
    report.files = target_.files;
    report.bytes = target_.bytes;
    return report;
  }

 private:
  bool IsTyped() const { return !types_.empty(); }
  bool ToGraphBolt() const { return options_.format == ExportFormat::kGraphBolt; }
  // Only triples have nodes with names, and edges to be predicted beside the graph.
  bool HasTriples() const {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    return manifest->has_entity_names || manifest->FindTopology("valid") != nullptr ||
           manifest->FindTopology("test") != nullptr;
  }
  Status Tell(std::string_view phase, uint64_t done, uint64_t total) const {
    return progress_ ? progress_(phase, done, total) : Status::Ok();
  }
  void NeedsForImport(std::string option) {
    std::vector<std::string>& options = report_.import_options;
    if (std::ranges::find(options, option) == options.end()) options.push_back(std::move(option));
  }

  Result<TableScan> Scan(std::string_view table, uint64_t rows_at_a_time = 0) {
    return TableScan::Open(store_, target_.budget, snapshot_, table, rows_at_a_time);
  }

  Status Topology();
  Status EdgeArrays(const std::vector<std::string>& relations);
  Status Features();
  Status TableOf(const std::string& table, const std::string& file, const std::string& node_type);
  Status CopyRows(TableScan& scan, std::string_view what, ElementType stored, ArrayOutput& output,
                  std::optional<ArrayOutput>& scales);
  Status Labels();
  Status Targets();
  Status TypedLabels();
  Status Splits();
  Status TypedSplits();
  Status Embeddings();
  Status Metadata();
  std::string ArraysMetadata() const;
  GraphBolt::Array Described(const ArrayOutput& output, std::string name) const {
    return {.name = std::move(name), .format = "numpy", .path = output.name()};
  }
  void AddFeature(const ArrayOutput& output, std::string name, std::string node_type = "");

  Store& store_;
  const wire::ExportDatabase& options_;
  const ProgressFunction& progress_;
  ExportTarget target_;
  std::shared_ptr<const Snapshot> snapshot_;
  ExportReport report_;

  std::vector<NodeTypeRecord> types_;  // of nodes; empty: one
  NodeTypes nodes_;                    // of the snapshot, by their types

  // What metadata.yaml will say.
  GraphBolt graphbolt_;
  std::vector<std::string> relations_;
  std::optional<uint64_t> edge_count_, feature_dim_, class_count_;
};

Status Exporter::Topology() {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TopologyRecord* const graph = manifest->FindTopology("graph");
  if (graph == nullptr) return Status::Ok();
  const ScopedSpan span("export edges");
  if (graph->undirected) NeedsForImport("--undirected");
  // Whether equal edges were dropped is in no array, so the report says it instead of leaving import to
  // guess.
  if (graph->keeps_equal_edges_once() && !graph->undirected) NeedsForImport("--dedup");
  if (graph->has_csr) NeedsForImport("--both-directions");
  QUARRY_TRY(const std::vector<std::string> relations, RelationNames(store_));
  if (!HasTriples()) return EdgeArrays(relations);
  if (!ToGraphBolt()) return ExportTriples(store_, target_, *snapshot_, relations, progress_);
  LogWarn("{}: a GraphBolt folder has no place for the names of nodes and for the edges that are ranked",
          store_.path());
  return EdgeArrays(relations);
}

Status Exporter::EdgeArrays(const std::vector<std::string>& relations) {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  edge_count_ = snapshot_->FindTopology("graph")->edge_count;
  std::vector<EdgeArrayNames> names;
  for (size_t i = 0; i < relations.size(); ++i) {
    if (!ToGraphBolt()) QUARRY_RETURN_IF_ERROR(CheckFileName(relations[i]));
    const std::string suffix = ToGraphBolt() ? fmt::format("_{}", i) : "_" + relations[i];
    names.push_back({.edges = "edges" + suffix, .weights = "edge_weights" + suffix});
  }
  if (names.empty()) names.push_back({.edges = "edges", .weights = "edge_weights"});
  relations_ = relations;
  for (size_t i = 0; ToGraphBolt() && i < names.size(); ++i) {
    QUARRY_TRY(const std::string type,
               IsTyped() ? relations[i] : EdgeType(relations.empty() ? "" : relations[i]));
    if (IsTyped()) names[i].types = &nodes_;
    graphbolt_.edges.push_back({.type = type, .format = "numpy", .path = names[i].edges + ".npy"});
    if (!manifest->FindTopology("graph")->weighted) continue;
    graphbolt_.graph_features.push_back({.domain = "edge",
                                         .type = type,
                                         .name = "weight",
                                         .format = "numpy",
                                         .path = names[i].weights + ".npy"});
  }
  return ExportEdges(store_, target_, *snapshot_, names, progress_);
}

Status Exporter::Features() {
  const ScopedSpan span("export features");
  for (size_t i = 0; options_.table == "feature" && i < types_.size(); ++i) {
    if (types_[i].feature_table.empty()) continue;
    QUARRY_RETURN_IF_ERROR(TableOf(types_[i].feature_table, fmt::format("features_{}", i), types_[i].name));
  }
  if (snapshot_->FindTable(options_.table) == nullptr && options_.table == "feature") return Status::Ok();
  return TableOf(options_.table, "features", "");
}

Status Exporter::TableOf(const std::string& table, const std::string& file, const std::string& node_type) {
  QUARRY_TRY(TableScan scan, Scan(table));
  const FeatureGeometry& geometry = scan.geometry();
  const ElementType type = geometry.element_type;
  if (!IsFloatType(type)) {
    return MakeStatus(Code::kInvalidArgument, "table \"{}\" holds {}, and features are floats", table,
                      ElementTypeName(type));
  }
  const ElementType stored = StoredAs(type, options_.format);
  if (target_.text ? type != ElementType::kFloat32 : type != stored) {
    NeedsForImport(fmt::format("--feature-dtype {}", ElementTypeName(type)));
  } else if (stored == ElementType::kBfloat16) {
    NeedsForImport("--bf16");
  }
  QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, file, stored, geometry.dim));
  std::optional<ArrayOutput> scales;
  if (stored == ElementType::kInt8) {
    QUARRY_TRY(scales, ArrayOutput::Create(target_, file + "_scale", ElementType::kFloat32));
  }
  QUARRY_RETURN_IF_ERROR(CopyRows(scan, "features", stored, output, scales));
  feature_dim_ = geometry.dim;
  AddFeature(output, "feat", node_type);
  if (scales.has_value()) QUARRY_RETURN_IF_ERROR(scales->Finish());
  return output.Finish();
}

// Rows of floats, decoded where they are not stored as the table has them.
Status Exporter::CopyRows(TableScan& scan, std::string_view what, ElementType stored, ArrayOutput& output,
                          std::optional<ArrayOutput>& scales) {
  const FeatureGeometry& geometry = scan.geometry();
  const ElementType type = geometry.element_type;
  std::vector<float> values(geometry.dim);
  while (true) {
    QUARRY_TRY(std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) return Status::Ok();
    for (; !rows.empty(); rows = rows.subspan(geometry.row_bytes)) {
      const std::span<const std::byte> row = rows.first(geometry.row_bytes);
      if (type != stored) {
        DecodeRow(type, row, values);
        QUARRY_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(values))));
        continue;
      }
      QUARRY_RETURN_IF_ERROR(output.Append(row.first(geometry.dim * ElementBytes(type))));
      if (scales.has_value()) QUARRY_RETURN_IF_ERROR(scales->Append(row.last(sizeof(float))));
    }
    QUARRY_RETURN_IF_ERROR(Tell(fmt::format("exporting {}", what), scan.done(), geometry.row_count));
  }
}

// What an import made of targets, unless it is what is exported as features.
Status Exporter::Targets() {
  constexpr std::string_view kTable = "target";
  if (snapshot_->FindTable(kTable) == nullptr || options_.table == kTable) return Status::Ok();
  const ScopedSpan span("export targets");
  QUARRY_TRY(TableScan scan, Scan(kTable));
  const ElementType stored = StoredAs(scan.geometry().element_type, options_.format);
  QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, "targets", stored, scan.geometry().dim));
  std::optional<ArrayOutput> scales;
  QUARRY_RETURN_IF_ERROR(CopyRows(scan, "targets", stored, output, scales));
  AddFeature(output, "target");
  return output.Finish();
}

void Exporter::AddFeature(const ArrayOutput& output, std::string name, std::string node_type) {
  GraphBolt::Array array = Described(output, std::move(name));
  array.domain = "node";
  array.type = std::move(node_type);
  graphbolt_.features.push_back(std::move(array));
}

Status Exporter::Labels() {
  if (snapshot_->FindTable("label") == nullptr) return Status::Ok();
  const ScopedSpan span("export labels");
  if (IsTyped()) return TypedLabels();
  QUARRY_TRY(TableScan scan, Scan("label"));
  QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, "labels", ElementType::kInt64));
  int64_t largest = -1;
  while (true) {
    QUARRY_TRY(const std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) break;
    for (size_t at = 0; at < rows.size(); at += sizeof(int64_t)) {
      int64_t label = 0;
      std::memcpy(&label, rows.data() + at, sizeof(label));
      largest = std::max(largest, label);
    }
    QUARRY_RETURN_IF_ERROR(output.Append(rows));
    QUARRY_RETURN_IF_ERROR(Tell("exporting labels", scan.done(), scan.geometry().row_count));
  }
  class_count_ = static_cast<uint64_t>(largest + 1);
  AddFeature(output, "label");
  return output.Finish();
}

// The labels of each type by themselves: its rows of the one table.
Status Exporter::TypedLabels() {
  QUARRY_TRY(TableScan scan, Scan("label", kNodesAtATime));
  std::vector<ArrayOutput> outputs;
  for (size_t i = 0; i < types_.size(); ++i) {
    QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, fmt::format("labels_{}", i),
                                                       ElementType::kInt64, 0, kListBufferBytes));
    AddFeature(output, "label", types_[i].name);
    outputs.push_back(std::move(output));
  }
  while (true) {
    uint64_t node = scan.done();
    QUARRY_TRY(std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) break;
    while (!rows.empty()) {
      const NodeTypes::Range& range = nodes_.RangeOf(node);
      const std::span<const std::byte> part =
          rows.first(std::min<uint64_t>(rows.size(), (range.end - node) * sizeof(int64_t)));
      QUARRY_RETURN_IF_ERROR(outputs[range.type].Append(part));
      node += part.size() / sizeof(int64_t);
      rows = rows.subspan(part.size());
    }
    QUARRY_RETURN_IF_ERROR(Tell("exporting labels", scan.done(), scan.geometry().row_count));
  }
  for (ArrayOutput& output : outputs) QUARRY_RETURN_IF_ERROR(output.Finish());
  return Status::Ok();
}

// The nodes of each split by their types; their labels are features.
Status Exporter::TypedSplits() {
  QUARRY_TRY(TableScan scan, Scan("split", kNodesAtATime));
  GraphBolt::Task task{.name = "node_classification"};
  const std::pair<const char*, std::vector<GraphBolt::Set>*> parts[] = {
      {"train", &task.train}, {"valid", &task.valid}, {"test", &task.test}};
  std::vector<ArrayOutput> outputs;  // [splits x types]
  for (const auto& [name, sets] : parts) {
    for (size_t i = 0; i < types_.size(); ++i) {
      QUARRY_TRY(ArrayOutput output, ArrayOutput::Create(target_, fmt::format("{}_idx_{}", name, i),
                                                         ElementType::kInt64, 0, kListBufferBytes));
      sets->push_back({.type = types_[i].name, .arrays = {Described(output, "seeds")}});
      outputs.push_back(std::move(output));
    }
  }
  while (true) {
    const uint64_t first = scan.done();
    QUARRY_TRY(const std::span<const std::byte> rows, scan.Next());
    if (rows.empty()) break;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto split = std::to_integer<size_t>(rows[i]);
      if (split == 0 || split > std::size(parts)) continue;
      const NodeTypes::Range& range = nodes_.RangeOf(first + i);
      QUARRY_RETURN_IF_ERROR(outputs[(split - 1) * types_.size() + range.type].Append(
          static_cast<int64_t>(range.RowOf(first + i))));
    }
    QUARRY_RETURN_IF_ERROR(Tell("exporting splits", scan.done(), scan.geometry().row_count));
  }
  for (ArrayOutput& output : outputs) QUARRY_RETURN_IF_ERROR(output.Finish());
  graphbolt_.tasks.push_back(std::move(task));
  return Status::Ok();
}

// The nodes of each split; for GraphBolt with their labels, of which a training set has its own.
Status Exporter::Splits() {
  if (snapshot_->FindTable("split") == nullptr) return Status::Ok();
  const ScopedSpan span("export splits");
  if (IsTyped()) return TypedSplits();
  struct Part {
    Split split;
    std::string name;
    std::vector<GraphBolt::Set>* sets;
    std::optional<ArrayOutput> seeds = {}, labels = {};
  };
  GraphBolt::Task task{.name = "node_classification", .class_count = class_count_};
  std::array<Part, 3> parts = {Part{Split::kTrain, "train", &task.train},
                               Part{Split::kValid, "valid", &task.valid},
                               Part{Split::kTest, "test", &task.test}};
  const bool with_labels = ToGraphBolt() && class_count_.has_value();
  QUARRY_TRY(TableScan splits, Scan("split", kNodesAtATime));
  std::optional<TableScan> labels;
  if (with_labels) {
    QUARRY_TRY(labels, Scan("label", kNodesAtATime));
  }
  for (Part& part : parts) {
    QUARRY_TRY(part.seeds,
               ArrayOutput::Create(target_, part.name + "_idx", ElementType::kInt64, 0, kListBufferBytes));
    if (with_labels) {
      QUARRY_TRY(part.labels, ArrayOutput::Create(target_, part.name + "_labels", ElementType::kInt64, 0,
                                                  kListBufferBytes));
    }
  }
  while (true) {
    const auto first = static_cast<int64_t>(splits.done());
    QUARRY_TRY(const std::span<const std::byte> rows, splits.Next());
    if (rows.empty()) break;
    std::span<const std::byte> label_rows;
    if (with_labels) {
      QUARRY_TRY(label_rows, labels->Next());
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      for (Part& part : parts) {
        if (static_cast<Split>(rows[i]) != part.split) continue;
        QUARRY_RETURN_IF_ERROR(part.seeds->Append(first + static_cast<int64_t>(i)));
        if (with_labels) {
          QUARRY_RETURN_IF_ERROR(
              part.labels->Append(label_rows.subspan(i * sizeof(int64_t), sizeof(int64_t))));
        }
      }
    }
    QUARRY_RETURN_IF_ERROR(Tell("exporting splits", splits.done(), splits.geometry().row_count));
  }
  for (Part& part : parts) {
    QUARRY_RETURN_IF_ERROR(part.seeds->Finish());
    GraphBolt::Set set{.arrays = {Described(*part.seeds, "seeds")}};
    if (with_labels) {
      QUARRY_RETURN_IF_ERROR(part.labels->Finish());
      set.arrays.push_back(Described(*part.labels, "labels"));
    }
    part.sets->push_back(std::move(set));
  }
  graphbolt_.tasks.push_back(std::move(task));
  return Status::Ok();
}

Status Exporter::Embeddings() {
  const ScopedSpan span("export embeddings");
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  for (const EmbeddingRecord& record : manifest->embeddings) {
    QUARRY_TRY(const auto reader, EmbeddingReader::Open(store_, target_.budget, record.name));
    QUARRY_TRY(ArrayOutput output,
               ArrayOutput::Create(target_, "embeddings_" + record.name, ElementType::kFloat32, record.dim));
    std::vector<float> vector(record.dim);
    for (uint64_t row = 0; row < record.row_count; ++row) {
      QUARRY_RETURN_IF_ERROR(reader->Read(row, vector).status());
      QUARRY_RETURN_IF_ERROR(output.Append(std::as_bytes(std::span(vector))));
      if (row % kNodesAtATime == 0) {
        QUARRY_RETURN_IF_ERROR(Tell("exporting embeddings", row, record.row_count));
      }
    }
    if (record.row_count == manifest->node_count && !IsTyped())
      AddFeature(output, "embeddings_" + record.name);
    QUARRY_RETURN_IF_ERROR(output.Finish());
  }
  return Status::Ok();
}

// As `quarry import` reads it.
// Relations are listed in the order of their ids, since the names of files do not tell it: an export whose
// ids changed would not be the database.
std::string Exporter::ArraysMetadata() const {
  std::string text = fmt::format("num_nodes: {}\n", store_.manifest()->node_count);
  const std::pair<const char*, const std::optional<uint64_t>&> counts[] = {
      {"num_edges", edge_count_}, {"feature_dim", feature_dim_}, {"num_classes", class_count_}};
  for (const auto& [key, count] : counts) {
    if (count.has_value()) text += fmt::format("{}: {}\n", key, *count);
  }
  if (!relations_.empty()) text += "relations:\n";  // in the order of their ids
  for (const std::string& relation : relations_) text += fmt::format("  - {}\n", JsonString(relation));
  return text;
}

Status Exporter::Metadata() {
  std::string text;
  if (ToGraphBolt()) {
    graphbolt_.name = fs::path(store_.path()).filename().string();
    for (uint32_t type = 0; type < nodes_.size(); ++type)
      graphbolt_.nodes.push_back({.type = types_[type].name, .count = nodes_.Count(type)});
    if (!IsTyped()) {
      const std::string node_type(relations_.empty() ? "" : kNodeType);
      graphbolt_.nodes.push_back({.type = node_type, .count = store_.manifest()->node_count});
      for (GraphBolt::Array& feature : graphbolt_.features) feature.type = node_type;
      for (GraphBolt::Task& task : graphbolt_.tasks) {
        for (auto* sets : {&task.train, &task.valid, &task.test}) sets->front().type = node_type;
      }
    }
    text = EncodeGraphBolt(graphbolt_);
  } else {
    text = ArraysMetadata();
  }
  QUARRY_TRY(FileOutput output, FileOutput::Create(target_, "metadata.yaml", 0, 64 << 10));
  QUARRY_RETURN_IF_ERROR(output.Append(text));
  return output.Finish({});
}

}  // namespace

Result<ExportReport> ExportDatabase(Store& store, MemoryBudget& budget, const wire::ExportDatabase& what,
                                    const ProgressFunction& progress) {
  const double start = MonotonicSeconds();
  QUARRY_RETURN_IF_ERROR(CheckOutside(store.path(), what.path));
  QUARRY_TRY(WorkFolder folder,
             WorkFolder::Make(store.backend(), what.path, ".exporting", "`quarry export`"));
  Exporter exporter(store, budget, what, progress, folder.path());
  QUARRY_RETURN_IF_ERROR(exporter.Run());
  QUARRY_RETURN_IF_ERROR(folder.Publish());
  ExportReport report = exporter.Report();
  report.seconds = MonotonicSeconds() - start;
  return report;
}

}  // namespace quarry
