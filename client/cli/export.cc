// quarry export DB DEST
#include <nlohmann/json.hpp>

#include "cli.h"
#include "export_model.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct ExportArguments {
  std::string path;
  std::vector<std::string> parts;
  std::string memory;
  wire::ExportDatabase what;
  std::string run;
  bool json = false;
};

void PrintReport(const ExportArguments& arguments, const wire::MaintenanceReport& report) {
  const Figures figures(report);
  const std::string& path = arguments.what.path;
  if (arguments.json) {
    const nlohmann::ordered_json object = {{"path", path},
                                           {"timestamp", figures.Count("timestamp")},
                                           {"files", figures.Count("files")},
                                           {"bytes", figures.Count("bytes")},
                                           {"import_options", report.notes},
                                           {"seconds", figures.Real("seconds")},
                                           {"peak_rss_bytes", PeakRssBytes()}};
    PrintJson(object);
    return;
  }
  Print("{}: {} files, {} as of commit {}, in {:.2f} s, {}\n", path, figures.Count("files"),
        FormatBytes(figures.Count("bytes")), figures.Count("timestamp"), figures.Real("seconds"),
        FormatRate(figures.Real("bytes"), figures.Real("seconds")));
  if (report.notes.empty() || !arguments.parts.empty()) return;
  std::string options;
  for (const std::string& option : report.notes) options += " " + option;
  Print("an equal database is made by: quarry import NEW.db {}{}\n", path, options);
}

// What is named and nothing else.
void TakeParts(const std::vector<std::string>& parts, wire::ExportDatabase& what) {
  if (parts.empty()) return;
  const auto named = [&](std::string_view name) { return std::ranges::count(parts, name) > 0; };
  what.topology = named("topology");
  what.features = named("features");
  what.labels = named("labels");
  what.split = named("split");
  what.embeddings = named("embeddings");
}

Status Run(ExportArguments& arguments) {
  if (!arguments.run.empty()) {
    return ExportModel({.path = arguments.path,
                        .run = arguments.run,
                        .dest = arguments.what.path,
                        .memory = arguments.memory,
                        .json = arguments.json});
  }
  TakeParts(arguments.parts, arguments.what);
  const uint64_t whole_bytes = IsServerAddress(arguments.path) ? 0 : MemoryLimitBytes();
  QUARRY_TRY(const std::unique_ptr<client::Store> store,
             OpenStore(arguments.path, arguments.memory, whole_bytes));
  ProgressBar bar;
  const auto report = store->Maintain(arguments.what, bar.AsFunction());
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(report.status());
  PrintReport(arguments, *report);
  return Status::Ok();
}

}  // namespace

void AddExport(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("export", "write a database as files that others read");
  auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("DEST", arguments->what.path,
                   "folder to make, which must not exist; of a server: on its machine, from / on")
      ->required();
  CLI::Option* const format = AddChoice(
      verb, "--format", arguments->what.format,
      "npy: arrays as `quarry import` takes them; csv: the same as text; graphbolt: what DGL opens");
  CLI::Option* const parts =
      verb->add_option("--what", arguments->parts,
                       "topology,features,labels,split,embeddings (default: the first four)")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(CLI::IsMember({"topology", "features", "labels", "split", "embeddings"}));
  CLI::Option* const table =
      verb->add_option("--table", arguments->what.table, "of the features")->capture_default_str();
  verb->add_option(
          "--run", arguments->run,
          "instead of the graph, the weights of this training run: DEST is a .safetensors file to make here")
      ->type_name("NAME")
      ->excludes(format)
      ->excludes(parts)
      ->excludes(table);
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Changed rows are in it, compacted or not. DEST appears whole or not at all.\n"
      "Examples:\n"
      "  quarry export graph.db graph-arrays/\n"
      "  quarry export graph.db for-dgl/ --format graphbolt\n"
      "  quarry export graph.db rows/ --format csv --what features,labels\n"
      "  quarry export graph.db sage.safetensors --run sage");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
