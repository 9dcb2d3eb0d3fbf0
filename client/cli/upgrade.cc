// quarry upgrade DB: which version of the format the files of a database have, and which this build writes.
//
// There is one version so far: nothing can be behind it, and there is nothing that would bring a file up to
// it.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli.h"
#include "print_json.h"
#include "quarry/database.h"
#include "quarry/format/superblock.h"
#include "quarry/io/backend.h"

namespace quarry::cli {
namespace {

struct Arguments {
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

Status Upgrade(const Arguments& arguments) {
  // Refuses a folder, and thereby a catalog, of another version.
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.path));
  QUARRY_TRY(const std::vector<std::string> files, FilesOf(*database));
  for (const std::string& file : files) {
    QUARRY_RETURN_IF_ERROR(CheckVersion(database->store().backend(), arguments.path + "/" + file));
  }
  if (arguments.json) {
    nlohmann::ordered_json json = {
        {"path", arguments.path}, {"version", kFormatVersion}, {"files", files}, {"upgraded", 0}};
    PrintJson(json, 2);
    return Status::Ok();
  }
  Print("version {}  VERSION, catalog\n", kFormatVersion);
  for (const std::string& file : files) Print("version {}  {}\n", kFormatVersion, file);
  Print("{}: up to date: this Quarry writes version {}, the only one so far\n", arguments.path,
        kFormatVersion);
  return Status::Ok();
}

}  // namespace

void AddUpgrade(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("upgrade", "bring the files of a database to this build's format");
  auto arguments = std::make_shared<Arguments>();
  verb->add_option("DB", arguments->path, "database folder")->required();
  verb->add_flag("--dry-run", arguments->dry_run, "say what would be done, and change nothing");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "There is one version so far, so it looks at every file's version and has nothing to change; a file "
      "of\n"
      "another version is refused by its name.\n"
      "Example: quarry upgrade graph.db --dry-run");
  verb->callback([arguments, &action] { action = [arguments] { return Upgrade(*arguments); }; });
}

}  // namespace quarry::cli
