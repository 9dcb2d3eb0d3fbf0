// quarry restore CHECKPOINT DB: a database as a checkpoint has it.
#include <filesystem>

#include "cli.h"
#include "quarry/base/progress.h"
#include "quarry/database.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/verify/verify.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct RestoreArguments {
  std::string checkpoint;
  std::string path;
  bool json = false;
};

// Before all of the checkpoint is read.
Status CheckFree(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error))) return Status::Ok();
  return MakeStatus(Code::kAlreadyExists, "{} exists already; choose another path or remove it first", path);
}

Status CheckSound(Store& store, const ProgressFunction& progress) {
  QUARRY_TRY(VerifyReport found, VerifyStore(store, progress));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(store, progress, found));
  if (found.faults.empty()) return Status::Ok();
  return MakeStatus(
      Code::kCorruption,
      "{}: the checkpoint does not hold, and nothing was restored; `quarry verify {}` tells all "
      "faults, the first: {}",
      store.path(), store.path(), found.faults.front().message());
}

Status Run(const RestoreArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("restore", arguments.path));
  QUARRY_RETURN_IF_ERROR(CheckFree(arguments.path));
  std::error_code error;
  if (!std::filesystem::exists(arguments.checkpoint, error)) {
    return MakeStatus(Code::kNotFound, "{}: there is no such checkpoint; `quarry checkpoint DB {}` makes one",
                      arguments.checkpoint, arguments.checkpoint);
  }
  QUARRY_TRY(const std::unique_ptr<Database> checkpoint, Database::Open(arguments.checkpoint));
  ProgressBar bar;
  QUARRY_RETURN_IF_ERROR(CheckSound(checkpoint->store(), bar.AsFunction()));
  const auto report =
      CheckpointStore(checkpoint->store(), checkpoint->budget(), arguments.path, bar.AsFunction());
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(report.status());
  PrintCheckpoint(arguments.path, *report, arguments.json);
  return Status::Ok();
}

}  // namespace

void AddRestore(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("restore", "make a database of a checkpoint, after verifying it");
  auto arguments = std::make_shared<RestoreArguments>();
  verb->add_option("CHECKPOINT", arguments->checkpoint, "folder that `quarry checkpoint` made")->required();
  verb->add_option("DB", arguments->path, "database folder to make")->required();
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "The checkpoint stays as it is, whatever becomes of DB. Exit code 3 when it does not verify.\n"
      "Example: quarry restore /backup/graph-monday graph.db");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
