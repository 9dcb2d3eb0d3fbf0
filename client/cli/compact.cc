// quarry compact DB: folds the changed rows of tables into new files.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/storage/compaction.h"

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

CompactionReport ReportOf(const wire::MaintenanceReport& done) {
  const Figures figures(done);
  return {.rows_changed = figures.Count("rows_changed"),
          .row_count = figures.Count("rows"),
          .bytes = figures.Count("bytes"),
          .timestamp = figures.Count("timestamp"),
          .generation = figures.Count("generation"),
          .resumed_row = figures.Count("resumed_row"),
          .seconds = figures.Real("seconds")};
}

Json ReportJson(const std::string& table, const CompactionReport& report) {
  return {
      {"table", table},
      {"changed_rows", report.rows_changed},
      {"rows", report.row_count},
      {"bytes", report.bytes},
      {"timestamp", report.timestamp},
      {"generation", report.generation},
      {"resumed_row", report.resumed_row},
      {"seconds", report.seconds},
      {"bytes_per_second", report.seconds > 0 ? static_cast<double>(report.bytes) / report.seconds : 0.0}};
}

void PrintReport(const std::string& table, const CompactionReport& report, bool dry_run) {
  if (report.rows_changed == 0) {
    Print("{}: nothing to do\n", table);
    return;
  }
  Print("{}: {} of {} rows changed; {} {} {} as generation {}", table, report.rows_changed, report.row_count,
        FormatBytes(report.bytes), dry_run ? "would be" : "were", "written", report.generation);
  if (report.resumed_row > 0) Print(", resumed at row {}", report.resumed_row);
  if (!dry_run) {
    Print(" in {:.2f} s, {:.0f} MB/s", report.seconds,
          static_cast<double>(report.bytes) / report.seconds / 1e6);
  }
  Print("\n");
}

Status Run(const CompactArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  std::vector<std::string> tables = {arguments.table};
  if (arguments.table.empty()) {
    tables.clear();
    QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
    for (const TableRecord& table : manifest.tables) tables.push_back(table.name);
  }
  Json json = Json::array();
  for (const std::string& table : tables) {
    ProgressBar bar;
    const ProgressFunction progress = [&](std::string_view phase, uint64_t done, uint64_t total) {
      if (Interrupted())
        return Status(Code::kCancelled, "interrupted while compacting; the table is as it was");
      bar.Show(phase, done, total);
      return Status::Ok();
    };
    const auto done = store->Maintain(wire::CompactTable{table, arguments.dry_run}, progress);
    bar.Clear();
    QUARRY_RETURN_IF_ERROR(done.status());
    const CompactionReport report = ReportOf(*done);
    arguments.json ? json.push_back(ReportJson(table, report))
                   : PrintReport(table, report, arguments.dry_run);
  }
  if (arguments.json) PrintJson(json);
  return Status::Ok();
}

}  // namespace

void AddCompact(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("compact", "fold changed rows into new table files");
  auto arguments = std::make_shared<CompactArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("--table", arguments->table, "of all tables only this one")->type_name("NAME");
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_flag("--dry-run", arguments->dry_run, "say what would be written, and write nothing");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Interrupted, it leaves the database as it was, and the next one goes on where it was. Layouts stay\n"
      "valid: rows that changed since they were packed are read from the new file; `quarry layout rebuild`\n"
      "packs them again.\n"
      "Example: quarry compact db/ --dry-run");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
