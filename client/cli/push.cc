// quarry push DB s3://...: brings a database, as it is now, to an object store.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "cli.h"
#include "objects.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "pull.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/objects/push.h"
#include "quarry/storage/import_workspace.h"
#include "quarry/verify/verify.h"
#include "record_json.h"

namespace quarry::cli {
namespace {

struct PushArguments {
  std::string path;
  std::string address;
  std::string memory = kObjectsMemory;
  bool replace = false;
  bool json = false;
};

// A name that no other push has, however many begin at the same instant.
std::string NewPublication() {
  std::random_device device;
  std::string name;
  for (int i = 0; i < 4; i++) name += fmt::format("{:08x}", device());
  return name;
}

// What is not sound is not published: whoever pulled it would have nothing better. Returns what the manifest says of the
// database.
Result<PushSpec> VerifyCopy(const std::string& path, const std::string& memory,
                            const ProgressFunction& progress) {
  QUARRY_TRY(const uint64_t memory_bytes, ParseSize("--memory", memory, MemoryLimitBytes()));
  QUARRY_TRY(const std::unique_ptr<Database> copy, Database::Open(path, {.memory_bytes = memory_bytes}));
  QUARRY_TRY(VerifyReport found, VerifyStore(copy->store(), progress));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(copy->store(), progress, found));
  if (!found.faults.empty()) {
    return MakeStatus(
        Code::kCorruption,
        "the database does not hold, and nothing was pushed; `quarry verify` tells all faults, the first: {}",
        found.faults.front().message());
  }
  PushSpec spec{.folder = path, .database_id = ValueOf(copy->manifest()->database_id).get<std::string>()};
  QUARRY_TRY(spec.timestamp, copy->store().catalog()->LastTimestamp());
  return spec;
}

Status Push(const PushArguments& arguments) {
  // Before anything is copied: a mistake in the address, and keys that are missing.
  QUARRY_TRY(const OpenedObjects opened, OpenObjects(arguments.address, arguments.memory));
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  QUARRY_TRY(const std::string folder, FolderOf(*store));
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  ProgressBar bar;
  // DB.pushing, beside the database, for the sake of links; it goes when the push ends.
  constexpr ImportWorkspace::Kind kPush{"ing", "push of this database"};
  std::string beside = std::filesystem::absolute(folder).lexically_normal().string();
  while (beside.size() > 1 && beside.back() == '/') beside.pop_back();
  QUARRY_TRY(const ImportWorkspace workspace, ImportWorkspace::Acquire(*backend, beside + ".push", kPush));
  const std::string copy = workspace.database_path();
  QUARRY_RETURN_IF_ERROR(store->Maintain(wire::CheckpointDatabase{copy}, bar.AsFunction()).status());
  QUARRY_TRY(PushSpec spec, VerifyCopy(copy, arguments.memory, bar.AsFunction()));
  spec.publication = NewPublication();
  spec.replace = arguments.replace;
  const auto report =
      PushDatabase(*opened.store, *backend, *opened.budget, spec,
                   bar.AsFunction("nothing was published; another push goes on with what was sent"));
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(report.status());
  PrintTransfer(arguments.address, *report, "sent", arguments.json);
  return Status::Ok();
}

}  // namespace

void PrintTransfer(const std::string& path, const TransferReport& report, const char* moved, bool json) {
  if (json) {
    PrintJson({{"path", path},
               {"files", report.files},
               {"bytes", report.bytes},
               {"files_moved", report.files_moved},
               {"bytes_moved", report.bytes_moved},
               {"requests", report.requests},
               {"retries", report.retries},
               {"seconds", report.seconds}});
    return;
  }
  Print("{}: {} in {} files: {} {} ({}), in {:.2f} s\n", path, FormatBytes(report.bytes), report.files,
        report.files_moved, moved, FormatBytes(report.bytes_moved), report.seconds);
}

void AddPush(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("push", "bring a database to an object store");
  auto arguments = std::make_shared<PushArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("PLACE", arguments->address, kPlaceHelp)->required();
  verb->add_option("--memory", arguments->memory, kObjectsMemoryHelp)->capture_default_str();
  verb->add_flag("--replace", arguments->replace,
                 "also where another database is, or a later commit of this one");
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  verb->footer(
      "Files that are there already are not sent again, and a push that was interrupted goes on. Of two "
      "pushes at the "
      "same\n"
      "time one is published, and the other says so.\n"
      "Example: quarry push graph.db s3://bucket/graphs/graph.db");
  verb->callback([arguments, &action] { action = [arguments] { return Push(*arguments); }; });
}

}  // namespace quarry::cli
