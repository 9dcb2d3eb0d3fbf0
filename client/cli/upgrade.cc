// quarry upgrade DB: which version of the format the files of a database have, and which this build writes.
//
// There is one version of files so far. A folder of version 1, whose catalog has no ledger and no anchor,
// gets both; one of version 2 gets a ledger of steps.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli.h"
#include "print_json.h"
#include "quarry/database.h"
#include "quarry/format/superblock.h"
#include "quarry/io/backend.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

struct UpgradeArguments {
  std::string path;
  bool dry_run = false;
  bool json = false;
};

Result<std::vector<std::string>> FilesOf(Database& database) {
  QUARRY_TRY(sql::Rows rows, database.Query("SELECT path FROM files WHERE generation IS NOT NULL"));
  std::vector<std::string> files;
  while (true) {
    QUARRY_TRY(const bool more, rows.Next());
    if (!more) return files;
    files.emplace_back(rows.Text(0));
  }
}

// OK for a file of the version that this build writes; kUnsupported names any other.
Status CheckVersion(IoBackend& backend, const std::string& path) {
  QUARRY_TRY(const File file, backend.Open(path, OpenMode::kReadBuffered));
  std::array<std::byte, kSuperblockBytes> bytes{};
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, bytes));
  return DecodeSuperblock(bytes, path).status();
}

Status Upgrade(const UpgradeArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("upgrade", arguments.path));
  // Refuses a folder, and thereby a catalog, of another version.
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.path));
  QUARRY_TRY(const std::vector<std::string> files, FilesOf(*database));
  for (const std::string& file : files) {
    QUARRY_RETURN_IF_ERROR(CheckVersion(database->store().backend(), arguments.path + "/" + file));
  }
  Store& store = database->store();
  const uint32_t version = store.version();
  const bool behind = version < kStoreVersion;
  if (behind && !arguments.dry_run) {
    QUARRY_RETURN_IF_ERROR(store.PrepareToWrite());
    QUARRY_RETURN_IF_ERROR(store.UpdateManifest([](Manifest&) { return Status::Ok(); }));
  }
  if (arguments.json) {
    nlohmann::ordered_json json = {{"path", arguments.path},
                                   {"version", kFormatVersion},
                                   {"folder_version", kStoreVersion},
                                   {"files", files},
                                   {"upgraded", behind && !arguments.dry_run ? 1 : 0}};
    PrintJson(json);
    return Status::Ok();
  }
  Print("version {}  VERSION, catalog\n", version);
  for (const std::string& file : files) Print("version {}  {}\n", kFormatVersion, file);
  if (behind) {
    Print("{}: the catalog {} a ledger{}: version {}\n", arguments.path,
          arguments.dry_run ? "would get" : "has got",
          version < kAnchoredVersion ? " and an anchor" : " of steps", kStoreVersion);
    return Status::Ok();
  }
  Print("{}: up to date: this Quarry writes folders of version {} and files of version {}\n", arguments.path,
        kStoreVersion, kFormatVersion);
  return Status::Ok();
}

}  // namespace

void AddUpgrade(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("upgrade", "bring the files of a database to this build's format");
  auto arguments = std::make_shared<UpgradeArguments>();
  verb->add_option("DB", arguments->path, "database folder")->required();
  verb->add_flag("--dry-run", arguments->dry_run, "say what would be done, and change nothing");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "A folder of version 1 or 2 becomes one of version 3: its catalog gets a ledger of steps,\n"
      "and from 1 on an anchor. "
      "There is one version of files so far; a file of another is refused by its name.\n"
      "Example: quarry upgrade graph.db --dry-run");
  verb->callback([arguments, &action] { action = [arguments] { return Upgrade(*arguments); }; });
}

}  // namespace quarry::cli
