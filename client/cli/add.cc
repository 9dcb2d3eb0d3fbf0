// quarry add DB --edges FILE, quarry remove DB --edges FILE: edges of existing nodes, as one commit.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/import/graph_change.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct EdgeChangeArguments {
  std::string database;
  std::string edges, weights, memory;
  std::string sort_memory = "256MiB";
  GraphChangeOptions options;
  bool remove = false;
  bool json = false;
};

Result<GraphChangeReport> ChangeEdges(const EdgeChangeArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.database, arguments.memory));
  Database& database = *store->database();
  QUARRY_TRY(const std::unique_ptr<EdgeReader> edges, OpenEdgeFile(arguments.edges, arguments.weights));
  ProgressBar bar;
  GraphChangeOptions options = arguments.options;
  options.progress = bar.AsFunction("the graph is as it was");
  const auto change = [&]() -> Result<GraphChangeReport> {
    QUARRY_TRY(const std::unique_ptr<GraphChange> made,
               GraphChange::Create(database.store(), database.budget(), options));
    QUARRY_RETURN_IF_ERROR(arguments.remove ? made->RemoveAll(*edges) : made->AddAll(*edges));
    return made->Commit();
  };
  Result<GraphChangeReport> done = change();
  bar.Clear();
  return done;
}

void PrintChange(const EdgeChangeArguments& arguments, const GraphChangeReport& done, double seconds) {
  if (arguments.json) {
    PrintJson({{"path", arguments.database},
               {"topology", arguments.options.topology},
               {"added", done.added},
               {"removed", done.removed},
               {"present", done.present},
               {"absent", done.absent},
               {"timestamp", done.timestamp},
               {"edges", done.edge_count},
               {"runs", done.runs},
               {"seconds", seconds},
               {"peak_rss_bytes", PeakRssBytes()}});
    return;
  }
  if (done.added == 0 && done.removed == 0) {
    Print("nothing changed: {} edges were {}\n", arguments.remove ? done.absent : done.present,
          arguments.remove ? "not there" : "there already");
    return;
  }
  Print("{} edges added and {} removed as {} in {:.2f} s: {} edges, {} runs\n", done.added, done.removed,
        done.timestamp, seconds, done.edge_count, done.runs);
}

Status RunEdgeChange(EdgeChangeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer(arguments.remove ? "remove" : "add", arguments.database));
  QUARRY_TRY(arguments.options.memory_bytes,
             ParseSize("--sort-memory", arguments.sort_memory, MemoryLimitBytes()));
  const double start = MonotonicSeconds();
  QUARRY_TRY(const GraphChangeReport done, ChangeEdges(arguments));
  PrintChange(arguments, done, MonotonicSeconds() - start);
  return Status::Ok();
}

std::shared_ptr<EdgeChangeArguments> AddEdgeOptions(CLI::App* verb, Action& action) {
  auto arguments = std::make_shared<EdgeChangeArguments>();
  verb->add_option("DB", arguments->database, "database folder")->required();
  verb->add_option("--edges", arguments->edges,
                   "file with the edges, as `quarry import` takes it: .npy, .npz, .csv")
      ->required()
      ->type_name("FILE");
  verb->add_option("--topology", arguments->options.topology, "that has them")
      ->type_name("NAME")
      ->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_option("--sort-memory", arguments->sort_memory, "part of it that edges are sorted in")
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->callback([arguments, &action] { action = [arguments] { return RunEdgeChange(*arguments); }; });
  return arguments;
}

}  // namespace

void AddAdd(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("add", "add edges to the graph, as one commit");
  const auto arguments = AddEdgeOptions(verb, action);
  verb->add_option("--weights", arguments->weights,
                   "file with a weight for each; default: edge_weights.npy beside it")
      ->type_name("FILE");
  verb->footer(
      "All or nothing: once it returns, whoever opens the database samples from the new graph, after a "
      "power\n"
      "failure too. Where equal edges are kept once, one that is there already stays, or gets the new "
      "weight; of\n"
      "an undirected graph the reverse comes, too. `quarry compact` folds what was added into a new file.\n"
      "Example: quarry add db/ --edges edges.npy");
}

void AddRemove(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("remove", "remove edges from the graph, as one commit");
  AddEdgeOptions(verb, action)->remove = true;
  verb->footer(
      "All or nothing, as `quarry add`. An edge goes with all its parallel copies, and of an undirected "
      "graph with\n"
      "its reverse; one that is not there is counted and no error.\n"
      "Example: quarry remove db/ --edges edges.npy");
}

}  // namespace quarry::cli
