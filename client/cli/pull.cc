// quarry pull s3://... DB: makes a database of what an object store has.
#include "pull.h"

#include "cli.h"
#include "objects.h"
#include "quarry/io/backend.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct PullArguments {
  std::string address;
  std::string path;
  std::string memory = kObjectsMemory;
  bool thin = false;
  bool json = false;
};

Status RunPull(const PullArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("pull", arguments.path));
  QUARRY_TRY(const OpenedObjects opened, OpenObjects(arguments.address, arguments.memory));
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  ProgressBar bar;
  const auto report = PullDatabase(
      *opened.store, *backend, *opened.budget, arguments.path,
      bar.AsFunction(fmt::format("another pull goes on with {}.pulling", arguments.path)), arguments.thin);
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(report.status());
  PrintTransfer(arguments.path, *report, "fetched", arguments.json);
  return Status::Ok();
}

}  // namespace

void AddPull(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("pull", "make a database of what an object store has");
  auto arguments = std::make_shared<PullArguments>();
  verb->add_option("PLACE", arguments->address, kPlaceHelp)->required();
  verb->add_option("DB", arguments->path, "database folder to make")->required();
  verb->add_option("--memory", arguments->memory, kObjectsMemoryHelp)->capture_default_str();
  verb->add_flag(
      "--thin", arguments->thin,
      "leave files of more than 4 MiB in the store, and read them from there: training by layouts or parts");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Every block is verified as it comes; DB is there when it is whole. A pull that was interrupted goes "
      "on.\n"
      "Example: quarry pull s3://bucket/graphs/graph.db graph.db");
  verb->callback([arguments, &action] { action = [arguments] { return RunPull(*arguments); }; });
}

}  // namespace quarry::cli
