// quarry repair DB: removes and drops what `quarry verify` finds and can be done without, and says what is
// lost.
#include "repair.h"

#include <algorithm>

#include "cli.h"
#include "fault_json.h"
#include "layout_options.h"
#include "print_json.h"
#include "quarry/base/log.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/embedding/verify_embeddings.h"
#include "quarry/format/batch_view.h"
#include "quarry/verify/verify.h"
#include "server_address.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

// `quarry layout build` with what the layout was built with.
std::string BuildCommand(const Store& store, const LayoutRecord& layout) {
  std::string command = fmt::format(
      "quarry layout build {} {} {} --seed {} --epochs-planned {} --policy {} --seed-order {} "
      "--hash-functions {} --cache {}",
      store.path(), layout.name, SampleFlags(layout.spec), layout.spec.seed, layout.epochs,
      quarry::NameOf(layout.policy), quarry::NameOf(layout.spec.seed_order), layout.hash_functions,
      layout.spec.cache_bytes);
  uint64_t disk_bytes = layout.disk_bytes_max;
  // Older records do not say; one that needed segment caches had a budget, which was what it takes.
  if (disk_bytes == 0 && layout.batches_per_segment > 0) disk_bytes = layout.file_bytes + layout.trace_bytes;
  if (disk_bytes > 0) command += fmt::format(" --disk {}", disk_bytes);
  return command;
}

// `quarry partition build` likewise, but for the chunk, which no record has.
std::string BuildCommand(const Store& store, const PartitioningRecord& partitioning) {
  return fmt::format("quarry partition build {} {} --method {} --parts {} --seed {} --topology {} --table {}",
                     store.path(), partitioning.name, partitioning.method, partitioning.part_count,
                     partitioning.seed, partitioning.topology,
                     partitioning.table.empty() ? "none" : partitioning.table);
}

std::string RangeOf(const DamagedRows& rows) {
  if (rows.row_count == 1) return fmt::format("row {}", rows.first_row);
  return fmt::format("rows {} to {}", rows.first_row, rows.first_row + rows.row_count - 1);
}

std::string NameOf(const Damage& damage) {
  switch (damage.kind) {
    case Damage::Kind::kTable:
      return fmt::format("table \"{}\"", damage.name);
    case Damage::Kind::kTopology:
      return fmt::format("topology \"{}\"", damage.name);
    case Damage::Kind::kTraining:
      return fmt::format("the checkpoint of training run \"{}\"", damage.name);
    case Damage::Kind::kEmbedding:
      return fmt::format("embedding table \"{}\"", damage.name);
    case Damage::Kind::kOldRows:
      return fmt::format("table \"{}\": {}", damage.name,
                         RangeOf({damage.name, damage.first_row, damage.row_count}));
    case Damage::Kind::kVersion:
      return "VERSION";
    case Damage::Kind::kForeign:
      return damage.name;
    default:
      return "the catalog";
  }
}

std::string RemedyOf(const Damage& damage) {
  if (damage.kind == Damage::Kind::kOldRows) {
    return "put them again or restore a checkpoint; --drop-damaged takes them as they are";
  }
  const bool droppable = damage.kind == Damage::Kind::kTraining || damage.kind == Damage::Kind::kEmbedding;
  return droppable ? "restore a checkpoint, or drop it with --drop-damaged" : "restore a checkpoint";
}

// A compaction writes a table anew when newer versions replace all that it cannot read.
void PrintDoubts(const Store& store, const RepairReport& report) {
  for (const DamagedRows& rows : report.rows) {
    Print("table \"{}\": {}: {}\n", rows.table, RangeOf(rows),
          rows.replaced ? "damaged in the file, but there is a newer version" : "lost");
  }
  std::string last;
  for (const DamagedRows& rows : report.rows) {
    const bool whole = std::ranges::any_of(report.lost, [&](const Damage& damage) {
      return damage.kind == Damage::Kind::kTable && damage.name == rows.table;
    });
    if (whole || rows.table == last) continue;
    last = rows.table;
    const bool lost = std::ranges::any_of(
        report.rows, [&](const DamagedRows& other) { return other.table == last && !other.replaced; });
    Print("table \"{}\": {}`quarry compact {} --table {}` writes it anew, without them\n", last,
          lost ? "restore a checkpoint; or put the lost rows (`quarry put`), and then " : "", store.path(),
          last);
  }
}

void PrintReport(const Store& store, const RepairReport& report, bool dry_run) {
  const std::string_view would = dry_run ? "would be " : "";
  for (const std::string& folder : report.folders) Print("{}/: {}made: it was missing\n", folder, would);
  for (const std::string& path : report.removed) Print("{}: {}removed: no record names it\n", path, would);
  for (const LayoutRecord& layout : report.layouts) {
    Print("layout \"{}\": {}dropped: it is damaged; this makes it again:\n  {}\n", layout.name, would,
          BuildCommand(store, layout));
  }
  for (const PartitioningRecord& partitioning : report.partitionings) {
    Print("partitioning \"{}\": {}dropped: it is damaged; this makes it again:\n  {}\n", partitioning.name,
          would, BuildCommand(store, partitioning));
  }
  for (const TrainingRecord& training : report.trainings) {
    Print("training run \"{}\": its checkpoint {}dropped: it is damaged\n", training.name, would);
  }
  for (const std::string& table : report.embeddings) {
    Print("embedding table \"{}\": {}dropped: it is damaged\n", table, would);
  }
  for (const DamagedRows& rows : report.accepted) {
    Print("table \"{}\": {} {}taken as they are, though newer versions may be lost\n", rows.table,
          RangeOf(rows), would);
  }
  PrintDoubts(store, report);
  for (const Damage& damage : report.lost) {
    const bool foreign = damage.kind == Damage::Kind::kForeign;
    const bool old = damage.kind == Damage::Kind::kOldRows;
    const std::string_view what = foreign ? "stays, for it may be anything" : old ? "may be old" : "damaged";
    Print("{}: {}: {}\n", NameOf(damage), what, foreign ? "move it away" : RemedyOf(damage));
  }
}

void PrintCatalogRepair(const CatalogRepair& repair, bool dry_run) {
  if (dry_run) {
    Print("the catalog does not open; it would be made anew of what can be read\n");
    return;
  }
  Print("the catalog did not open: {}\n", repair.fault.message());
  Print("catalog: made anew of what could be read; {}\n",
        repair.proven ? fmt::format("all commits, up to {}, are proven to be in it", repair.timestamp)
                      : "not all commits are proven to be in it: rows that may be old are named below");
  for (const std::string& table : repair.lost_tables) Print("catalog: nothing of {} could be read\n", table);
  Print("catalog: the old one is in {}; remove it when nothing is missing\n", repair.damaged_path);
}

// Null when the catalog opens.
Json CatalogJson(const std::optional<CatalogRepair>& repair, bool dry_run) {
  if (!repair) return nullptr;
  return {{"fault", repair->fault.message()},
          {"timestamp", dry_run ? Json() : Json(repair->timestamp)},
          {"proven", dry_run ? Json() : Json(repair->proven)},
          {"lost_tables", repair->lost_tables},
          {"damaged_path", dry_run ? Json() : Json(repair->damaged_path)}};
}

template <typename Record>
Json NamesJson(const std::vector<Record>& records) {
  Json json = Json::array();
  for (const Record& record : records) json.push_back(record.name);
  return json;
}

Json RowsJson(const std::vector<DamagedRows>& all) {
  Json json = Json::array();
  for (const DamagedRows& rows : all) {
    json.push_back({{"table", rows.table},
                    {"first_row", rows.first_row},
                    {"row_count", rows.row_count},
                    {"replaced", rows.replaced}});
  }
  return json;
}

void AddReport(const Store& store, const RepairReport& report, Json& json) {
  json["folders"] = report.folders;
  json["removed"] = report.removed;
  json["layouts"] = Json::array();
  for (const LayoutRecord& layout : report.layouts) {
    json["layouts"].push_back({{"name", layout.name}, {"command", BuildCommand(store, layout)}});
  }
  json["partitionings"] = Json::array();
  for (const PartitioningRecord& partitioning : report.partitionings) {
    json["partitionings"].push_back(
        {{"name", partitioning.name}, {"command", BuildCommand(store, partitioning)}});
  }
  json["trainings"] = NamesJson(report.trainings);
  json["embeddings"] = report.embeddings;
  json["accepted"] = RowsJson(report.accepted);
  json["rows"] = RowsJson(report.rows);
  json["lost"] = DamagesJson(report.lost);
}

Result<VerifyReport> Find(Store& store) {
  ProgressBar bar;
  QUARRY_TRY(VerifyReport found, VerifyStore(store, bar.AsFunction()));
  QUARRY_RETURN_IF_ERROR(VerifyEmbeddings(store, bar.AsFunction(), found));
  bar.Clear();
  for (const std::string& note : found.notes) LogInfo("{}", note);
  return found;
}

}  // namespace

Status Repair(const RepairArguments& arguments) {
  QUARRY_RETURN_IF_ERROR(CheckNoServer("repair", arguments.path));
  const bool dry_run = arguments.options.dry_run;
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(const auto catalog, RepairCatalog(*backend, arguments.path, dry_run));
  if (catalog && !arguments.json) PrintCatalogRepair(*catalog, dry_run);
  Json json = {{"path", arguments.path},
               {"dry_run", dry_run},
               {"sound", false},
               {"catalog", CatalogJson(catalog, dry_run)}};
  if (catalog && dry_run) {
    if (arguments.json) PrintJson(json);
    return catalog->fault;
  }
  QUARRY_TRY(const std::unique_ptr<Store> store, Store::Open(*backend, arguments.path));
  QUARRY_TRY(const VerifyReport found, Find(*store));
  for (const Status& fault : found.faults) {
    if (!arguments.json) Print("{}\n", fault.message());
  }
  QUARRY_TRY(const RepairReport report, RepairStore(*store, found, arguments.options));
  if (!dry_run) {
    for (const std::string& table : report.embeddings) {
      QUARRY_RETURN_IF_ERROR(DropEmbeddings(*store, table));
    }
  }
  const bool sound = found.faults.empty() || (!dry_run && report.sound());
  if (arguments.json) {
    json["sound"] = sound;
    json["faults"] = FaultsJson(arguments.path, found.faults);
    AddReport(*store, report, json);
    PrintJson(json);
  } else {
    PrintReport(*store, report, dry_run);
    if (sound) Print("{}: sound\n", arguments.path);
  }
  if (sound) return Status::Ok();
  return MakeStatus(Code::kCorruption, "{}: {}; the first fault: {}", arguments.path,
                    dry_run ? "nothing was changed" : "what is lost stays as it is",
                    found.faults.front().message());
}

void AddRepair(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("repair", "do what can be done about the faults that verify finds");
  auto arguments = std::make_shared<RepairArguments>();
  verb->add_option("DB", arguments->path, "database folder")->required();
  verb->add_flag("--dry-run", arguments->options.dry_run, "say what would be done, and change nothing");
  verb->add_flag("--drop-damaged", arguments->options.drop_damaged,
                 "drop damaged checkpoints of training runs and of embeddings, too, and take rows that may "
                 "be old as they are");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "Removes what no record names, drops damaged layouts, makes a catalog that does not open anew, and "
      "says\n"
      "what of tables and graph is lost. Exit code 0 when the database is sound then, else 3.\n"
      "Example: quarry repair graph.db --dry-run");
  verb->callback([arguments, &action] { action = [arguments] { return Repair(*arguments); }; });
}

}  // namespace quarry::cli
