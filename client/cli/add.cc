// quarry add DB --nodes FILE --edges FILE, quarry remove DB --edges FILE: nodes and edges, as one commit.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/put.h"
#include "quarry/layout/cost_model.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/record_names.h"
#include "remote_change.h"

namespace quarry::cli {
namespace {

struct ChangeArguments {
  std::string database;
  std::string edges, weights, memory;
  std::string sort_memory = "256MiB";
  std::string nodes, split, names;  // nodes: a file of features, or their number; or of ids that are removed
  std::string type, node_type;      // of the edges, and of the nodes; empty: not given
  std::string times, features;      // of the edges, which nobody keeps: refused
  SourceHints hints;
  PutOptions put;
  GraphChangeOptions options;
  double auto_compact = 0;  // times that sampling may be slower; 0: never
  bool remove = false;
  bool json = false;
};

// Files of what is added or removed. Which nodes come decides what comes, so that the change can be begun.
struct ChangeSource {
  Dataset rows;
  std::unique_ptr<EdgeReader> edges;  // null: none
  uint64_t nodes = 0;
};

// What the names of types stand for.
struct ChangeTypes {
  uint32_t relation = 0;
  uint32_t node_type = 0;
  std::string node_type_name;  // empty: nodes have no types
  uint64_t nodes_of_type = 0;  // before the change
};

struct Changed {
  GraphChangeReport report;
  ChangeTypes types;
};

bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

Result<ChangeSource> OpenSource(const ChangeArguments& arguments) {
  ChangeSource source;
  SourceHints hints = arguments.hints;
  std::error_code error;
  if (arguments.remove) {
    if (IsNumber(arguments.nodes) && !std::filesystem::exists(arguments.nodes, error)) {
      return MakeStatus(Code::kUsage, "--nodes {}: a file with the ids of the nodes that go is wanted",
                        arguments.nodes);
    }
    hints.train = arguments.nodes;  // a list of ids, or a mask
  } else if (IsNumber(arguments.nodes) && !std::filesystem::exists(arguments.nodes, error)) {
    const auto [end, failed] = std::from_chars(arguments.nodes.data(),
                                               arguments.nodes.data() + arguments.nodes.size(), source.nodes);
    if (failed != std::errc() || source.nodes > kNodeCountMax) {
      return MakeStatus(Code::kUsage, "--nodes {}: a database has at most {}", arguments.nodes,
                        kNodeCountMax);
    }
  } else {
    hints.features = arguments.nodes;
  }
  if (!hints.features.empty() || !hints.labels.empty() || !hints.train.empty()) {
    QUARRY_TRY(source.rows, OpenArrays(hints));
    if (source.rows.features != nullptr) source.nodes = source.rows.features->row_count();
  }
  if (!arguments.edges.empty()) {
    QUARRY_TRY(source.edges, OpenEdgeFile(arguments.edges, arguments.weights));
  }
  return source;
}

// The number of a relation: of a type of edges, or of one that has but a name.
Result<std::optional<uint32_t>> FindRelation(client::Store& store, const Manifest& manifest,
                                             const std::string& name) {
  if (const auto type = FindEdgeType(manifest.node_types, manifest.edge_types, name)) return type;
  const client::Value parameter = name;
  QUARRY_TRY(const std::unique_ptr<client::RowCursor> rows,
             store.Query("SELECT id FROM relations WHERE name = ?1", {&parameter, 1}));
  QUARRY_TRY(const bool found, rows->Next());
  if (!found) return std::optional<uint32_t>();
  const client::ValueView id = rows->value(0);
  const auto* const number = std::get_if<int64_t>(&id);
  return number == nullptr ? std::nullopt : std::optional(static_cast<uint32_t>(*number));
}

Result<ChangeTypes> TypesOf(client::Store& store, const ChangeArguments& arguments) {
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.database));
  ChangeTypes types;
  const TopologyRecord* const topology = manifest.FindTopology(arguments.options.topology);
  if (!arguments.edges.empty() && topology != nullptr && topology->relation_count > 1) {
    QUARRY_TRY(const std::string folder, FolderOf(store));
    if (arguments.type.empty()) {
      return MakeStatus(
          Code::kUsage,
          "{}: the edges of \"{}\" are of {} relations: say by --type which one (table \"relations\" "
          "of `quarry sql` lists them)",
          folder, topology->name, topology->relation_count);
    }
    QUARRY_TRY(const std::optional<uint32_t> relation, FindRelation(store, manifest, arguments.type));
    if (!relation) {
      return MakeStatus(Code::kNotFound,
                        "{}: there is no relation \"{}\", or several types of edges are called so: table "
                        "\"relations\" of `quarry sql` lists them",
                        folder, arguments.type);
    }
    types.relation = *relation;
  } else if (!arguments.type.empty() && !arguments.edges.empty()) {
    return Status(Code::kUsage, "--type is of edges, where there are several relations: leave it out");
  }
  // Where nodes come or go alone, --type is theirs.
  const std::string& node_type =
      arguments.node_type.empty() && arguments.edges.empty() ? arguments.type : arguments.node_type;
  if (arguments.nodes.empty() || manifest.node_types.empty()) {
    if (node_type.empty()) return types;
    return MakeStatus(Code::kUsage, "{} is of nodes that come or go, where nodes have types: leave it out",
                      arguments.node_type.empty() ? "--type" : "--node-type");
  }
  const auto type = std::ranges::find(manifest.node_types, node_type, &NodeTypeRecord::name);
  if (type == manifest.node_types.end()) {
    QUARRY_TRY(const std::string folder, FolderOf(store));
    if (node_type.empty()) {
      std::vector<std::string_view> names;
      for (const NodeTypeRecord& one : manifest.node_types) names.push_back(one.name);
      return MakeStatus(
          Code::kUsage,
          "{}: its nodes have types: say by --node-type of which one they are: {}; ids of nodes "
          "that go count from 0 in it",
          folder, fmt::join(names, ", "));
    }
    return MakeStatus(
        Code::kUsage, "{}: --node-type: {}", folder,
        ThereIsNo("type of nodes", node_type, "ids count from 0 in each of", manifest.node_types));
  }
  types.node_type = static_cast<uint32_t>(type - manifest.node_types.begin());
  types.node_type_name = node_type;
  types.nodes_of_type = NodeCount(*type);
  return types;
}

Status TakeNodes(const ChangeArguments& arguments, const ChangeSource& source, GraphChange& change) {
  const PutSource rows = {.features = source.rows.features.get(),
                          .labels = source.rows.labels.get(),
                          .split = ParseSplit(arguments.split)};
  if (rows.features != nullptr || rows.labels != nullptr || rows.split) {
    PutOptions put = arguments.put;
    put.progress = arguments.options.progress;
    QUARRY_RETURN_IF_ERROR(PutAdded(change, rows, put));
  }
  return arguments.names.empty() ? Status::Ok() : change.NameAll(arguments.names);
}

// What the process that has the database open has measured: nothing, where that is this one. A server that runs no SQL, or is of
// before it was measured, says nothing either.
GrowthMeasured MeasuredBy(client::Store& store, const std::string& topology) {
  GrowthMeasured measured;
  const client::Value parameter = topology;
  const auto rows = store.Query("SELECT * FROM growth WHERE topology = ?1", {&parameter, 1});
  if (!rows.ok()) return {};
  const auto found = (*rows)->Next();
  if (!found.ok() || !*found) return {};
  const std::vector<std::string>& columns = (*rows)->columns();
  ForEachField(measured, [&](std::string_view name, auto& figure) {
    const auto column = static_cast<size_t>(std::ranges::find(columns, name) - columns.begin());
    if (column == columns.size()) return;
    std::visit(
        [&](const auto& value) {
          using Value = std::remove_cvref_t<decltype(value)>;
          if constexpr (std::is_arithmetic_v<Value>) {
            figure = static_cast<std::remove_cvref_t<decltype(figure)>>(value);
          }
        },
        (*rows)->value(column));
  });
  return measured;
}

// Folds the runs where they slow sampling down beyond the bound. The change is committed by then.
Status FoldBeyond(client::Store& store, const ChangeArguments& arguments, GraphChangeReport& done) {
  if (arguments.auto_compact == 0) return Status::Ok();
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.database));
  const std::string& name = arguments.options.topology;
  const TopologyRecord* const topology = manifest.FindTopology(name);
  if (topology == nullptr ||
      !PaysToFold(*topology, DeviceOf(manifest), MeasuredBy(store, name), arguments.auto_compact)) {
    return Status::Ok();
  }
  ProgressBar bar;
  const auto report = store.Maintain(wire::CompactTable{.table = name, .topology = true},
                                     bar.AsFunction("the graph is as it was committed"));
  bar.Clear();
  if (!report.ok()) {
    return MakeStatus(report.status().code(),
                      "the change is committed, as {}; compacting topology \"{}\": {}", done.timestamp, name,
                      report.status().message());
  }
  const Figures figures(*report);
  QUARRY_TRY(const Manifest after, ManifestOf(store, arguments.database));
  const TopologyRecord* const left =
      after.FindTopology(name);  // what came since an interrupted fold began stays
  done.runs = left == nullptr ? 0 : left->runs.size();
  LogInfo("topology {}: {} of edges folded in {:.2f} s", name, Counted(figures.Count("runs"), "run"),
          figures.Real("seconds"));
  return Status::Ok();
}

Result<Changed> ChangeGraph(const ChangeArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.database, arguments.memory));
  QUARRY_TRY(const ChangeSource source, OpenSource(arguments));
  QUARRY_TRY(const ChangeTypes types, TypesOf(*store, arguments));
  ProgressBar bar;
  ChangeArguments used = arguments;
  used.options.nodes = source.nodes;
  if (source.nodes > 0) used.options.node_type = types.node_type_name;
  used.options.progress = bar.AsFunction("the graph is as it was");
  const auto change = [&]() -> Result<GraphChangeReport> {
    QUARRY_TRY(const std::unique_ptr<GraphChange> made, OpenChange(*store, arguments.database, used.options));
    if (source.rows.train != nullptr) {
      QUARRY_RETURN_IF_ERROR(made->RemoveAllNodes(*source.rows.train, types.node_type));
    }
    if (source.nodes > 0) QUARRY_RETURN_IF_ERROR(TakeNodes(used, source, *made));
    if (source.edges != nullptr) {
      QUARRY_RETURN_IF_ERROR(arguments.remove ? made->RemoveAll(*source.edges, types.relation)
                                              : made->AddAll(*source.edges, types.relation));
    }
    return made->Commit();
  };
  Result<GraphChangeReport> done = change();
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(done.status());
  QUARRY_RETURN_IF_ERROR(FoldBeyond(*store, arguments, *done));
  return Changed{*done, types};
}

void PrintChange(const ChangeArguments& arguments, const Changed& changed, double seconds) {
  const GraphChangeReport& done = changed.report;
  if (arguments.json) {
    PrintJson({{"path", arguments.database},
               {"topology", arguments.options.topology},
               {"nodes_added", done.nodes_added},
               {"first_node", done.nodes_added > 0 ? nlohmann::ordered_json(done.first_node) : nullptr},
               {"nodes_removed", done.nodes_removed},
               {"added", done.added},
               {"removed", done.removed},
               {"present", done.present},
               {"absent", done.absent},
               {"timestamp", done.timestamp},
               {"nodes", done.node_count},
               {"edges", done.edge_count},
               {"runs", done.runs},
               {"seconds", seconds},
               {"peak_rss_bytes", PeakRssBytes()}});
    return;
  }
  if (done.nodes_added > 0) {
    Print("{} added, {} to {}", Counted(done.nodes_added, "node"), done.first_node,
          done.first_node + done.nodes_added - 1);
    const ChangeTypes& types = changed.types;
    if (!types.node_type_name.empty()) {
      Print(": {} {} to {}", types.node_type_name, types.nodes_of_type,
            types.nodes_of_type + done.nodes_added - 1);
    }
    Print("\n");
  } else if (done.nodes_removed > 0) {
    Print("{} removed\n", Counted(done.nodes_removed, "node"));
  } else if (done.added == 0 && done.removed == 0) {
    Print("nothing changed: {} edges were {}\n", arguments.remove ? done.absent : done.present,
          arguments.remove ? "not there" : "there already");
    return;
  }
  std::string others;
  if (done.present > 0) others += fmt::format("; {} there already", Counted(done.present, "edge"));
  if (done.absent > 0) others += fmt::format("; {} not there", Counted(done.absent, "edge"));
  Print("{} added and {} removed as {} in {:.2f} s: {} nodes, {} edges, {}{}\n", Counted(done.added, "edge"),
        done.removed, done.timestamp, seconds, done.node_count, done.edge_count, Counted(done.runs, "run"),
        others);
}

// What temporal graphs and tables over edges are elsewhere. A column by edge id would have to move with every run.
Status NoColumnOfEdges(std::string_view option, std::string_view what) {
  return MakeStatus(
      Code::kUsage,
      "{}: a database keeps the weights and types of edges, and no {} of them: keep these in an array of "
      "your own, add the edges without, and put it in the order of edge ids afterwards (docs/python.md, "
      "`db.edge_ids`); rows of new nodes are what --nodes takes",
      option, what);
}

Status CheckArguments(const ChangeArguments& arguments) {
  if (!arguments.times.empty()) return NoColumnOfEdges("--times", "times");
  if (!arguments.features.empty()) return NoColumnOfEdges("--features", "features");
  if (arguments.remove && arguments.nodes.empty() && arguments.edges.empty()) {
    return Status(Code::kUsage, "nothing to remove: give --nodes, --edges or both");
  }
  if (arguments.remove || !arguments.nodes.empty()) return Status::Ok();
  if (arguments.edges.empty()) return Status(Code::kUsage, "nothing to add: give --nodes, --edges or both");
  if (arguments.hints.labels.empty() && arguments.split.empty() && arguments.names.empty()) {
    return Status::Ok();
  }
  return Status(Code::kUsage,
                "--labels, --split and --names are of added nodes: give --nodes; those of others are what "
                "`quarry put` changes");
}

Status RunChange(ChangeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckArguments(arguments));
  QUARRY_TRY(arguments.options.memory_bytes,
             ParseSize("--sort-memory", arguments.sort_memory, MemoryLimitBytes()));
  const double start = MonotonicSeconds();
  QUARRY_TRY(const Changed done, ChangeGraph(arguments));
  PrintChange(arguments, done, MonotonicSeconds() - start);
  return Status::Ok();
}

std::shared_ptr<ChangeArguments> AddEdgeOptions(CLI::App* verb, Action& action) {
  auto arguments = std::make_shared<ChangeArguments>();
  verb->add_option("DB", arguments->database, kAddressHelp)->required();
  verb->add_option("--edges", arguments->edges,
                   "file with the edges, as `quarry import` takes it: .npy, .npz, .csv")
      ->type_name("FILE");
  verb->add_option(
          "--type", arguments->type,
          "relation of all the edges, where there are several: author:writes:paper, or writes; without "
          "edges as --node-type")
      ->type_name("NAME");
  verb->add_option("--node-type", arguments->node_type, "of all the nodes, where nodes have types")
      ->type_name("NAME");
  verb->add_option("--topology", arguments->options.topology, "that has them")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_option("--sort-memory", arguments->sort_memory,
                   "part of it that edges are sorted in; a server takes what it has")
      ->capture_default_str();
  AddGraphAutoCompact(verb, arguments->auto_compact, "afterwards");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->callback([arguments, &action] { action = [arguments] { return RunChange(*arguments); }; });
  return arguments;
}

}  // namespace

void AddAdd(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("add", "add nodes and edges to the graph, as one commit");
  const auto arguments = AddEdgeOptions(verb, action);
  verb->add_option("--weights", arguments->weights,
                   "file with a weight for each; default: edge_weights.npy beside it")
      ->type_name("FILE");
  verb->add_option("--times", arguments->times)->group("");  // in no help: these are refused
  verb->add_option("--features", arguments->features)->group("");
  verb->add_option("--nodes", arguments->nodes,
                   "file with a row of features for each new node; or how many come, with rows of zeros")
      ->type_name("FILE");
  verb->add_option("--labels", arguments->hints.labels, "file with a label for each new node; -1: none")
      ->type_name("FILE");
  verb->add_option("--split", arguments->split, "of all new nodes")
      ->type_name("NAME")
      ->check(CLI::IsMember({"train", "valid", "test", "none"}));
  verb->add_option("--names", arguments->names,
                   "text file with a name for each new node on a line, where nodes have names")
      ->type_name("FILE");
  verb->add_option("--table", arguments->put.table, "of the features")->capture_default_str();
  verb->add_flag("--allow-nan", arguments->put.allow_nan, "take features that are NaN or infinite");
  verb->add_flag("--bf16", arguments->hints.u2_is_bfloat16, "two-byte unsigned features are bfloat16");
  verb->footer(
      "All or nothing: once it returns, whoever opens the database samples from the new graph, after a "
      "power\n"
      "failure too. New nodes come behind the last one; edges may lead to them. Where equal edges are kept "
      "once, one\n"
      "that is there already stays, or gets the new weight; of an undirected graph the reverse comes, too.\n"
      "`quarry compact` folds what was added into new files. Where nodes have types, a file counts those of "
      "each from 0,\n"
      "as the folder that was imported, and new nodes are behind the last one of their type.\n"
      "Example: quarry add db/ --nodes features.npy --edges edges.npy\n"
      "Example: quarry add db/ --nodes papers.npy --node-type paper --edges writes.npy --type writes");
}

void AddRemove(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("remove", "remove nodes and edges from the graph, as one commit");
  const auto arguments = AddEdgeOptions(verb, action);
  arguments->remove = true;
  verb->add_option("--nodes", arguments->nodes,
                   "file with the ids of nodes that go, as `quarry put --ids` takes it")
      ->type_name("FILE");
  verb->footer(
      "All or nothing, as `quarry add`. An edge goes with all its parallel copies, and of an undirected "
      "graph with\n"
      "its reverse; one that is not there is counted and no error. A node goes with all its edges, its label "
      "and its\n"
      "split, and its rows read as zeros; its id stays, and no new node gets it.\n"
      "Example: quarry remove db/ --edges edges.npy");
}

}  // namespace quarry::cli
