// quarry export DB DEST
#include "quarry/export.h"
#include "print_json.h"

#include <nlohmann/json.hpp>

#include "cli.h"
#include "option_values.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"

namespace quarry::cli {
namespace {

struct ExportArguments {
  std::string path;
  std::string destination;
  std::vector<std::string> what;
  std::string memory;
  ExportOptions options;
  bool json = false;
};

void PrintReport(const ExportArguments& arguments, const ExportReport& report) {
  if (arguments.json) {
    const nlohmann::ordered_json object = {{"path", arguments.destination},
                                           {"timestamp", report.timestamp},
                                           {"files", report.files},
                                           {"bytes", report.bytes},
                                           {"import_options", report.import_options},
                                           {"seconds", report.seconds},
                                           {"peak_rss_bytes", PeakRssBytes()}};
    PrintJson(object);
    return;
  }
  Print("{}: {} files, {} as of commit {}, in {:.2f} s, {:.0f} MB/s\n", arguments.destination, report.files,
        FormatBytes(report.bytes), report.timestamp, report.seconds,
        static_cast<double>(report.bytes) / 1e6 / report.seconds);
  if (report.import_options.empty() || !arguments.what.empty()) return;
  std::string options;
  for (const std::string& option : report.import_options) options += " " + option;
  Print("an equal database is made by: quarry import NEW.db {}{}\n", arguments.destination, options);
}

// What is named and nothing else.
ExportParts PartsOf(const std::vector<std::string>& what) {
  ExportParts parts;
  if (what.empty()) return parts;
  const auto named = [&](std::string_view name) { return std::ranges::count(what, name) > 0; };
  return {.topology = named("topology"),
          .features = named("features"),
          .labels = named("labels"),
          .split = named("split"),
          .embeddings = named("embeddings")};
}

Status Run(ExportArguments& arguments) {
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, MemoryLimitBytes()));
  }
  arguments.options.parts = PartsOf(arguments.what);
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.path, std::move(options)));
  ProgressBar bar;
  const auto report = ExportDatabase(*database, arguments.destination, arguments.options, bar.AsFunction());
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(report.status());
  PrintReport(arguments, *report);
  return Status::Ok();
}

}  // namespace

void AddExport(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("export", "write a database as files that others read");
  auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("DB", arguments->path, "database folder")->required();
  verb->add_option("DEST", arguments->destination, "folder to make; must not exist")->required();
  AddChoice<ExportFormat>(
      verb, "--format", arguments->options.format,
      {{"npy", ExportFormat::kNpy}, {"csv", ExportFormat::kCsv}, {"graphbolt", ExportFormat::kGraphBolt}},
      "npy: arrays as `quarry import` takes them; csv: the same as text; graphbolt: what DGL opens")
      ->default_str("npy");
  verb->add_option("--what", arguments->what,
                   "topology,features,labels,split,embeddings (default: the first four)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"topology", "features", "labels", "split", "embeddings"}));
  verb->add_option("--table", arguments->options.table, "of the features")->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Changed rows are in it, compacted or not. DEST appears whole or not at all.\n"
      "Examples:\n"
      "  quarry export graph.db graph-arrays/\n"
      "  quarry export graph.db for-dgl/ --format graphbolt\n"
      "  quarry export graph.db rows/ --format csv --what features,labels");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
