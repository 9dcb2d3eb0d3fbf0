// quarry compact DB: folds the changed rows of tables, and the runs of topologies, into new files.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CompactArguments {
  std::string path;
  std::string table;  // empty: all
  std::string memory;
  bool dry_run = false;
  bool json = false;
};

Json ReportJson(const std::string& path, const std::string& table, const Figures& report) {
  const double seconds = report.Real("seconds");
  return {{"path", path},
          {"table", table},
          {"changed_rows", report.Count("rows_changed")},
          {"rows", report.Count("rows")},
          {"bytes", report.Count("bytes")},
          {"timestamp", report.Count("timestamp")},
          {"generation", report.Count("generation")},
          {"resumed_row", report.Count("resumed_row")},
          {"seconds", seconds},
          {"bytes_per_second", seconds > 0 ? report.Real("bytes") / seconds : 0.0}};
}

void PrintReport(const std::string& table, const Figures& report, bool dry_run) {
  if (report.Count("rows_changed") == 0) {
    Print("{}: nothing to do\n", table);
    return;
  }
  Print("{}: {} of {} rows changed; {} {} {} as generation {}", table, report.Count("rows_changed"),
        report.Count("rows"), FormatBytes(report.Count("bytes")), dry_run ? "would be" : "were", "written",
        report.Count("generation"));
  if (const uint64_t row = report.Count("resumed_row"); row > 0) Print(", resumed at row {}", row);
  if (!dry_run) {
    const double seconds = report.Real("seconds");
    Print(" in {:.2f} s, {}", seconds, FormatRate(report.Real("bytes"), seconds));
  }
  Print("\n");
}

Json TopologyJson(const std::string& path, const std::string& topology, const Figures& report) {
  const double seconds = report.Real("seconds");
  return {{"path", path},
          {"topology", topology},
          {"runs", report.Count("runs")},
          {"nodes_added", report.Count("nodes_added")},
          {"edges_added", report.Count("edges_added")},
          {"edges_removed", report.Count("edges_removed")},
          {"edges", report.Count("edges")},
          {"resumed_edges", report.Count("resumed_edges")},
          {"bytes", report.Count("bytes")},
          {"timestamp", report.Count("timestamp")},
          {"generation", report.Count("generation")},
          {"seconds", seconds},
          {"bytes_per_second", seconds > 0 ? report.Real("bytes") / seconds : 0.0}};
}

void PrintTopology(const std::string& topology, const Figures& report, bool dry_run) {
  if (report.Count("runs") == 0 && report.Count("nodes_added") == 0) {
    Print("{}: nothing to do\n", topology);
    return;
  }
  Print("{}: ", topology);
  if (const uint64_t nodes = report.Count("nodes_added"); nodes > 0)
    Print("{} and ", Counted(nodes, "new node"));
  Print("{} added and {} removed in {}; {} {} {} as generation {}",
        Counted(report.Count("edges_added"), "edge"), report.Count("edges_removed"),
        Counted(report.Count("runs"), "run"), FormatBytes(report.Count("bytes")),
        dry_run ? "would be" : "were", "written", report.Count("generation"));
  if (const uint64_t edges = report.Count("resumed_edges"); edges > 0) Print(", resumed at edge {}", edges);
  if (!dry_run) {
    const double seconds = report.Real("seconds");
    Print(" in {:.2f} s, {}", seconds, FormatRate(report.Real("bytes"), seconds));
  }
  Print("\n");
}

// What is compacted: tables, and topologies that have runs; or the one of a name, where a table comes before a topology.
Result<std::vector<wire::CompactTable>> TasksOf(client::Store& store, const CompactArguments& arguments) {
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.path));
  if (!arguments.table.empty()) {
    const bool topology =
        manifest.FindTable(arguments.table) == nullptr && manifest.FindTopology(arguments.table) != nullptr;
    return std::vector<wire::CompactTable>{
        {.table = arguments.table, .dry_run = arguments.dry_run, .topology = topology}};
  }
  std::vector<wire::CompactTable> tasks;
  for (const TableRecord& table : manifest.tables) {
    tasks.push_back({.table = table.name, .dry_run = arguments.dry_run});
  }
  for (const TopologyRecord& topology : manifest.topologies) {
    if (topology.runs.empty() && topology.added_nodes == 0) continue;
    tasks.push_back({.table = topology.name, .dry_run = arguments.dry_run, .topology = true});
  }
  return tasks;
}

Status Run(const CompactArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const std::vector<wire::CompactTable> tasks, TasksOf(*store, arguments));
  Json json = Json::array();
  for (const wire::CompactTable& task : tasks) {
    ProgressBar bar;
    const ProgressFunction progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
      if (Interrupted())
        return MakeStatus(Code::kCancelled, "interrupted while compacting; the {} is as it was",
                          task.topology ? "graph" : "table");
      bar.Show(phase, done, total);
      return Status::Ok();
    };
    const auto done = store->Maintain(task, progress);
    bar.Clear();
    QUARRY_RETURN_IF_ERROR(done.status());
    const Figures report(*done);
    const std::string& name = task.table;
    if (arguments.json) {
      json.push_back(task.topology ? TopologyJson(arguments.path, name, report)
                                   : ReportJson(arguments.path, name, report));
    } else {
      task.topology ? PrintTopology(name, report, arguments.dry_run)
                    : PrintReport(name, report, arguments.dry_run);
    }
  }
  if (arguments.json) PrintJson(json);
  return Status::Ok();
}

}  // namespace

void AddCompact(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("compact", "fold changed rows and edges into new files");
  auto arguments = std::make_shared<CompactArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("--table", arguments->table, "only this table, or the graph (`graph`)")->type_name("NAME");
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_flag("--dry-run", arguments->dry_run, "say what would be written, and write nothing");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Interrupted, it leaves the database as it was, and the next one goes on where it was. Layouts\n"
      "stay valid: rows that changed since they were packed are read from the new file; `quarry layout "
      "rebuild`\n"
      "packs them again.\n"
      "Example: quarry compact db/ --dry-run");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
