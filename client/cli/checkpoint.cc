// quarry checkpoint DB DEST: a copy of a database as it is now.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

struct CheckpointArguments {
  std::string path;
  std::string destination;
  bool json = false;
};

Status Run(const CheckpointArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  ProgressBar bar;
  const auto done = store->Maintain(wire::CheckpointDatabase{arguments.destination}, bar.AsFunction());
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(done.status());
  const Figures figures(*done);
  PrintCheckpoint(arguments.destination,
                  {.timestamp = figures.Count("timestamp"),
                   .files_linked = figures.Count("files_linked"),
                   .files_reflinked = figures.Count("files_reflinked"),
                   .files_copied = figures.Count("files_copied"),
                   .bytes = figures.Count("bytes"),
                   .bytes_copied = figures.Count("bytes_copied"),
                   .seconds = figures.Real("seconds")},
                  arguments.json);
  return Status::Ok();
}

}  // namespace

void PrintCheckpoint(const std::string& path, const CheckpointReport& report, bool json) {
  if (json) {
    const nlohmann::ordered_json object = {{"path", path},
                                           {"timestamp", report.timestamp},
                                           {"files_linked", report.files_linked},
                                           {"files_reflinked", report.files_reflinked},
                                           {"files_copied", report.files_copied},
                                           {"bytes", report.bytes},
                                           {"bytes_copied", report.bytes_copied},
                                           {"seconds", report.seconds}};
    PrintJson(object);
    return;
  }
  Print("{}: {} as of commit {}: {} files linked, {} reflinked, {} copied ({}), in {:.2f} s\n", path,
        FormatBytes(report.bytes), report.timestamp, report.files_linked, report.files_reflinked,
        report.files_copied, FormatBytes(report.bytes_copied), report.seconds);
}

void AddCheckpoint(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("checkpoint", "copy a database as it is now, by links where possible");
  auto arguments = std::make_shared<CheckpointArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("DEST", arguments->destination, "folder to make; of a server: on its machine, from / on")
      ->required();
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "DEST is a database: it opens, trains and verifies as it is. On the file system of DB, files that "
      "nobody\n"
      "changes are shared with it: that is quick, and outlives mistakes, but not the disk.\n"
      "Example: quarry checkpoint graph.db /backup/graph-monday");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
