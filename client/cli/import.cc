// quarry import DB SOURCE
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/node_types.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/storage/store.h"
#include "quarry/storage/times.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct ImportArguments {
  std::string database;
  std::string source;
  std::string memory = "1GiB";
  std::string nodes;
  std::string feature_type;
  SourceHints hints;
  ImportOptions options;
  bool json = false;
};

uint64_t FileBytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const TableRecord& table : manifest.tables) bytes += table.file_bytes;
  for (const TopologyRecord& topology : manifest.topologies) bytes += topology.file_bytes;
  return bytes;
}

// What a row takes of its file, checksums and the room between rows included.
uint64_t RowDiskBytes(const TableRecord& table) {
  return table.row_count == 0 ? 0 : table.file_bytes / table.row_count;
}

uint64_t EdgeCount(const Manifest& manifest) {
  const TopologyRecord* graph = manifest.FindTopology("graph");
  return graph == nullptr ? 0 : graph->edge_count;
}

void PrintSummary(const ImportArguments& arguments, const Manifest& manifest, double seconds) {
  const TableRecord* features = manifest.FindTable("feature");
  const TopologyRecord* graph = manifest.FindTopology("graph");
  if (arguments.json) {
    const nlohmann::ordered_json summary = {
        {"path", arguments.database},
        {"nodes", manifest.node_count},
        {"edges", EdgeCount(manifest)},
        {"relations", graph == nullptr ? 0 : graph->relation_count},
        {"weighted", graph != nullptr && graph->weighted},
        {"node_types", manifest.node_types.size()},
        {"times", TimesOf(manifest, "graph").count},
        {"classes", manifest.class_count},
        {"dim", features == nullptr ? 0 : features->dim},
        {"element_type", features == nullptr ? "" : std::string(ElementTypeName(features->element_type))},
        {"row_disk_bytes", features == nullptr ? 0 : RowDiskBytes(*features)},
        {"bytes", FileBytes(manifest)},
        {"seconds", seconds},
        {"bytes_per_second", static_cast<double>(FileBytes(manifest)) / seconds},
        {"peak_rss_bytes", PeakRssBytes()}};
    PrintJson(summary);
    return;
  }
  std::string text = fmt::format("{}: {} nodes, {}{} edges", arguments.database, manifest.node_count,
                                 EdgeCount(manifest), graph != nullptr && graph->weighted ? " weighted" : "");
  if (graph != nullptr && graph->relation_count > 1)
    text += fmt::format(" of {} relations", graph->relation_count);
  if (const Times times = TimesOf(manifest, "graph"); times.any())
    text += fmt::format(", {} places at {} times", times.places, times.count);
  std::string types;
  for (const NodeTypeRecord& type : manifest.node_types) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", NodeCount(type), type.name);
  }
  if (!types.empty()) text += " (" + types + ")";
  if (features != nullptr) {
    text += fmt::format(", features {} x {}", ElementTypeName(features->element_type), features->dim);
    // Rows do not cross pages more often than they must, so some sizes leave room between them. (What few rows
    // lie in is whole pages, and tells nothing.)
    const uint64_t row_bytes = RowBytes(features->element_type, features->dim);
    if (features->file_bytes > kMiB && RowDiskBytes(*features) * 10 > row_bytes * 11) {
      text += fmt::format(" (rows of {} bytes take {} on disk)", row_bytes, RowDiskBytes(*features));
    }
  }
  if (manifest.class_count > 0) text += fmt::format(", {} classes", manifest.class_count);
  Print("{}\n{} in {:.2f} s, {}\n", text, FormatBytes(FileBytes(manifest)), seconds,
        FormatRate(static_cast<double>(FileBytes(manifest)), seconds));
}

Status Run(ImportArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("import", arguments.database));
  QUARRY_TRY(arguments.options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
  if (!arguments.nodes.empty()) {
    QUARRY_TRY(arguments.hints.node_count, ParseCount(arguments.nodes));
    if (arguments.hints.node_count == 0)
      return Status(Code::kUsage, "--nodes 0: a graph has a node at least");
  }
  if (!arguments.feature_type.empty()) {
    QUARRY_TRY(arguments.options.feature_type, ParseElementType(arguments.feature_type));
  }
  const double start = MonotonicSeconds();
  ProgressBar bar;
  arguments.options.progress = bar.AsFunction();
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(Dataset dataset, OpenDataset(arguments.source, arguments.hints));
  const Status imported = ImportDatabase(*backend, arguments.database, std::move(dataset), arguments.options);
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(imported);
  const double seconds = MonotonicSeconds() - start;
  QUARRY_TRY(const auto store, Store::Open(*backend, arguments.database));
  PrintSummary(arguments, *store->manifest(), seconds);
  return Status::Ok();
}

constexpr const char* kFooter = R"(SOURCE is one of
  a folder   edges.npy [2, E] or [E, 2] (or .npz .csv .tsv .txt, each text also .gz; or edges_<relation>.npy),
             features.npy [N, D] (or .npz, .csv, or features_indptr/_indices/_data.npy), labels.npy [N],
             targets.npy [N, K], train_idx.npy, valid_idx.npy, test_idx.npy, edge_weights.npy [E], metadata.yaml; all but the
             edges may be absent
  a folder   with times: num_times in metadata.yaml, features.npy [T, P, D] (or [T P, D]) of P places at T times, edges
             between places; place_features.npy [P, D] and time_features.npy [T, D] are joined to the features
  a folder   with types: a folder with the files above for each type of nodes, and SOURCE__RELATION__DESTINATION/ with
             edges.npy for each type of edges
  a folder   OGB's node-property and link-property sets: raw/*.csv.gz or raw/data.npz, split/*/; with types, too
  a folder   MAG240M, or a size of IGB: processed/paper/, processed/paper__cites__paper/edge_index.npy; all with --types
  a folder   what marius_preprocess writes: dataset.yaml, edges/*_edges.bin, nodes/*.bin
  a folder   train.txt, valid.txt, test.txt with triples: head TAB relation TAB tail
  a folder   GraphBolt's (DGL): metadata.yaml and the files that it names
  a file     an edge list: .npy, or text with two columns (a third: weights); .npz, .safetensors or .pt, with
             features and more

Examples:
  quarry import cora.db cora/
  quarry import web.db edges.tsv.gz --undirected --memory 4GiB
  quarry import papers.db ogbn_papers100M/ --add-reverse --feature-dtype float16)";

}  // namespace

void AddImport(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("import", "make a database of a graph, its features and labels");
  auto arguments = std::make_shared<ImportArguments>();
  SourceHints& hints = arguments->hints;
  ImportOptions& options = arguments->options;
  verb->add_option("DB", arguments->database, "database to make; must not exist")->required();
  verb->add_option("SOURCE", arguments->source, "folder or file to read")->required();
  verb->add_option("--memory", arguments->memory, "memory for buffers and sorting: 512MiB, 4GB, 10%")
      ->capture_default_str();
  verb->add_flag("--undirected", options.undirected, "store both directions of every edge, each once");
  verb->add_flag("--add-reverse", options.add_reverse, "add the reversed edges as relations of their own");
  verb->add_flag("--both-directions", options.both_directions, "store out-neighbors too (CSR beside CSC)");
  verb->add_flag("--dedup", options.deduplicate, "keep equal edges once; their weights are summed");
  verb->add_flag("--allow-nan", options.allow_nan, "take features that are NaN or infinite");
  verb->add_flag("--relabel", options.relabel,
                 "number the labels 0, 1, ... in ascending order; the SQL table classes has what they were");
  verb->add_option("--feature-dtype", arguments->feature_type,
                   "store features as float32, float16, bfloat16 or int8")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "int8"}));
  verb->add_option("--nodes", arguments->nodes, "number of nodes, where the source does not tell: 1M");
  verb->add_option(
          "--times", hints.times,
          "times at which there is each place of the graph, where the source does not tell: nodes are the "
          "places at the first, at the second and so on, and edges are between places")
      ->check(WholeFrom(1, 1e9, "a number of times from 1 on", "8760"));
  verb->add_option(
      "--dim", hints.feature_dim,
      "columns of sparse features, or of features without a header, where the source does not tell");
  verb->add_option(
      "--dtype", hints.raw_type,
      "type of features in a .npy without a header, as IGB's memory maps: float32, float16, bfloat16, "
      "float64; --nodes and --dim are their shape");
  verb->add_flag("--bf16", hints.u2_is_bfloat16, "two-byte unsigned features are bfloat16");
  verb->add_option("--edges", hints.edges, "file to take the edges from");
  verb->add_option("--features", hints.features, "file to take the features from");
  verb->add_option("--targets", hints.targets,
                   "file to take the targets from, which `quarry train --target target` learns");
  verb->add_option("--labels", hints.labels, "file to take the labels from");
  verb->add_option("--train", hints.train, "file with the training nodes: ids, or a mask");
  verb->add_option("--valid", hints.valid, "file with the validation nodes");
  verb->add_option("--test", hints.test, "file with the test nodes");
  verb->add_flag("--types", hints.types,
                 "of MAG240M and IGB all types of nodes and edges, not the papers alone");
  verb->add_flag("--json", arguments->json, "print the summary as one JSON object");
  verb->footer(kFooter);
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
