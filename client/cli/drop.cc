// quarry drop DB layout|embeddings|training|table NAME: removes what a database no longer needs; quarry create-table DB NAME.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/format/element_type.h"

namespace quarry::cli {
namespace {

struct DropArguments {
  std::string path;
  std::string kind;
  std::string name;
  bool yes = false;
  bool json = false;
};

// What goes, in bytes of the disk; nothing where there is no such thing, which dropping then tells.
std::optional<uint64_t> BytesOf(const Manifest& manifest, const DropArguments& arguments) {
  if (const auto* layout = manifest.FindLayout(arguments.name); arguments.kind == "layout" && layout) {
    return layout->total_bytes();
  }
  if (const auto* table = manifest.FindTable(arguments.name); arguments.kind == "table" && table) {
    return table->file_bytes;
  }
  if (const auto* run = manifest.FindTraining(arguments.name); arguments.kind == "training" && run) {
    return run->file_bytes;
  }
  const auto* embeddings = manifest.FindEmbedding(arguments.name);
  if (arguments.kind != "embeddings" || embeddings == nullptr) return std::nullopt;
  return uint64_t{embeddings->page_count} * embeddings->page_bytes;
}

wire::MaintenanceTask TaskOf(const DropArguments& arguments) {
  if (arguments.kind == "layout") return wire::DropLayout{arguments.name};
  if (arguments.kind == "embeddings") return wire::DropEmbeddings{arguments.name};
  if (arguments.kind == "training") return wire::DropTraining{arguments.name};
  return wire::DropTable{arguments.name};
}

Status Run(const DropArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
  const std::optional<uint64_t> bytes = BytesOf(manifest, arguments);
  // A layout can be built again.
  if (bytes && arguments.kind != "layout" && !arguments.yes) {
    return MakeStatus(Code::kUsage, "{} \"{}\" ({}) would be gone for good: say --yes to drop it",
                      arguments.kind, arguments.name, FormatBytes(*bytes));
  }
  QUARRY_RETURN_IF_ERROR(store->Maintain(TaskOf(arguments)).status());
  if (arguments.json) {
    const nlohmann::ordered_json object = {{"path", arguments.path},
                                           {"kind", arguments.kind},
                                           {"name", arguments.name},
                                           {"bytes", bytes.value_or(0)}};
    PrintJson(object);
  } else {
    Print("{} {}: dropped\n", arguments.kind, arguments.name);
  }
  return Status::Ok();
}

struct CreateArguments {
  std::string path;
  wire::CreateTable table;
  std::string type;  // of nodes; empty: all have rows
  std::string dtype = "float32";
  bool json = false;
};

Status Create(CreateArguments& arguments) {
  QUARRY_TRY(arguments.table.element_type, ParseElementType(arguments.dtype));
  if (arguments.table.table.empty() == arguments.type.empty()) {
    return Status(Code::kUsage,
                  "give NAME, of a table with a row for each node, or --type, of one for a type's");
  }
  if (!arguments.type.empty()) arguments.table.table = FeatureTableOf(arguments.type);
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  ProgressBar bar;
  const auto created = store->Maintain(arguments.table, bar.AsFunction("there is no such table"));
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(created.status());
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
  const TableRecord* const table = manifest.FindTable(arguments.table.table);
  if (table == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: table \"{}\" was made, and another has dropped it",
                      arguments.path, arguments.table.table);
  }
  if (arguments.json) {
    PrintJson({{"path", arguments.path},
               {"table", table->name},
               {"rows", table->row_count},
               {"dim", table->dim},
               {"element_type", ElementTypeName(table->element_type)},
               {"bytes", table->file_bytes}});
  } else {
    Print("{}: {} rows of {} x {}, zeros, {}\n", table->name, table->row_count, table->dim,
          ElementTypeName(table->element_type), FormatBytes(table->file_bytes));
  }
  return Status::Ok();
}

}  // namespace

void AddCreateTable(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("create-table", "make a table with a row of zeros for each node");
  auto arguments = std::make_shared<CreateArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("NAME", arguments->table.table, "of letters, digits, - and _");
  verb->add_option("--type", arguments->type,
                   "of nodes that have no features, where nodes have types: makes their table, TYPE.feature")
      ->type_name("TYPE");
  verb->add_option("--dim", arguments->table.dim, "elements of a row")->required()->type_name("N");
  verb->add_option("--dtype", arguments->dtype, "of the elements")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "int8", "uint8", "int32", "int64"}))
      ->capture_default_str();
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "All or nothing, beside readers and writers. `quarry put --table` fills it, `quarry drop DB table "
      "NAME`\n"
      "removes it.\n"
      "Example: quarry create-table db/ age --dim 1 --dtype float16");
  verb->callback([arguments, &action] { action = [arguments] { return Create(*arguments); }; });
}

void AddDrop(CLI::App& app, Action& action) {
  CLI::App* verb =
      app.add_subcommand("drop", "remove a layout, an embedding table, a training run or a table");
  auto arguments = std::make_shared<DropArguments>();
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  verb->add_option("KIND", arguments->kind, "layout, embeddings, training, table")
      ->required()
      ->type_name("KIND")
      ->check(CLI::IsMember({"layout", "embeddings", "training", "table"}));
  verb->add_option("NAME", arguments->name, "as `quarry info` has it")->required();
  verb->add_flag("--yes", arguments->yes, "also what cannot be built again, which all but layouts is");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->footer(
      "All or nothing. A table that a layout or a training run needs stays, and so does one that is in use.\n"
      "Example: quarry drop graph.db training run --yes");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
