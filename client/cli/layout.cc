// quarry layout build|list|rebuild|drop DB [NAME]: packed layouts, what an index is to a relational table.
// explain and trace: layout_explain.cc.
#include <nlohmann/json.hpp>

#include "cli.h"
#include "layout_options.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/database.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LayoutArguments {
  std::string path;
  LayoutFlags flags;
  std::string memory;
  bool resume = false;
  bool json = false;
};

Json RecordJson(const LayoutRecord& record) {
  return {{"name", record.name},
          {"directory", record.directory},
          {"policy", record.policy},
          {"seed_order", record.seed_order},
          {"fanouts", record.fanouts},
          {"batch_size", record.batch_size},
          {"seed", record.seed},
          {"epochs", record.epochs},
          {"batches", record.batch_count},
          {"cache_rows", record.cache_rows},
          {"gpu_cache_rows", record.gpu_cache_rows},
          {"accesses", record.accesses},
          {"hits", record.hits},
          {"gpu_hits", record.gpu_hits},
          {"batches_per_segment", record.batches_per_segment},
          {"disk_bytes", record.file_bytes + record.trace_bytes},
          {"bytes_read", record.row_bytes_read},
          {"bytes_useful", record.useful_bytes},
          {"predicted_seconds", record.predicted_seconds},
          {"measured_seconds", record.measured_seconds},
          {"measured_bytes", record.measured_bytes},
          {"plan_seconds", record.plan_seconds},
          {"plan_bytes_written", record.plan_bytes_written},
          {"plan_bytes_read", record.plan_bytes_read},
          {"created_utc", record.created_utc}};
}

void PrintRecord(const LayoutRecord& record) {
  Print("layout {}: {} batches of {} seeds, fanout {}, {} epoch{}, policy {}, order {}\n", record.name,
        record.batch_count, record.batch_size, fmt::join(record.fanouts, ","), record.epochs,
        record.epochs == 1 ? "" : "s", record.policy, record.seed_order);
  Print("  disk       {} in {}{}\n", FormatBytes(record.file_bytes + record.trace_bytes), record.directory,
        record.batches_per_segment == 0
            ? std::string()
            : fmt::format(", segment caches of {} batches", record.batches_per_segment));
  Print("  a cycle    reads {} for {} of rows that miss\n", FormatBytes(record.row_bytes_read),
        FormatBytes(record.useful_bytes));
  Print("  an epoch   {:.2f} s of reading predicted{}\n", record.predicted_seconds,
        record.measured_seconds > 0 ? fmt::format(", {:.2f} s measured", record.measured_seconds)
                                    : std::string(", not measured yet"));
  Print("  built in   {:.1f} s, {} written\n", record.plan_seconds, FormatBytes(record.plan_bytes_written));
}

Result<std::unique_ptr<Database>> OpenDatabase(const LayoutArguments& arguments) {
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseBytes(arguments.memory, 0));
  }
  return Database::Open(arguments.path, std::move(options));
}

Status BuildAndPrint(Database& database, const LayoutSpec& spec, const LayoutArguments& arguments) {
  ProgressBar bar;
  BuildReport report;
  Result<LayoutRecord> record = database.BuildLayout(spec, arguments.resume, bar.AsFunction(), &report);
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(record.status());
  if (arguments.json) {
    Json json = RecordJson(*record);
    json["edges"] = report.trace.edges;
    json["block_bytes"] = report.blocks_bytes;
    json["block_bytes_per_edge"] = report.trace.edges == 0 ? 0.0
                                                           : static_cast<double>(report.blocks_bytes) /
                                                                 static_cast<double>(report.trace.edges);
    json["sample_seconds"] = report.sample_seconds;
    json["simulate_seconds"] = report.plan_seconds;
    json["segment_search_seconds"] = report.segment_search_seconds;
    json["pack_seconds"] = report.pack_seconds;
    json["sequences"] = report.sequences;
    json["resumed"] = report.resumed;
    json["peak_rss_bytes"] = PeakRssBytes();
    Print("{}\n", json.dump());
    return Status::Ok();
  }
  PrintRecord(*record);
  Print(
      "  of these   {:.1f} s sampling{}, {:.1f} s planning, {:.1f} s packing; blocks take {:.2f} bytes an "
      "edge\n",
      report.sample_seconds, report.resumed ? " (taken over)" : "", report.plan_seconds, report.pack_seconds,
      report.trace.edges == 0
          ? 0.0
          : static_cast<double>(report.blocks_bytes) / static_cast<double>(report.trace.edges));
  return Status::Ok();
}

Status Build(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenDatabase(arguments));
  QUARRY_TRY(const LayoutSpec spec, arguments.flags.ToSpec(database->manifest()));
  return BuildAndPrint(*database, spec, arguments);
}

Status List(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenDatabase(arguments));
  if (arguments.json) {
    Json json = Json::array();
    for (const LayoutRecord& record : database->manifest().layouts) json.push_back(RecordJson(record));
    Print("{}\n", json.dump(2));
    return Status::Ok();
  }
  for (const LayoutRecord& record : database->manifest().layouts) PrintRecord(record);
  if (database->manifest().layouts.empty())
    Print("no layouts; `quarry layout build {}` makes one\n", arguments.path);
  return Status::Ok();
}

// The spec that a layout was built with.
LayoutSpec SpecOf(const LayoutRecord& record, uint64_t row_stride) {
  LayoutSpec spec{.name = record.name,
                  .feature_table = record.table,
                  .topology = record.topology,
                  .direction = static_cast<Direction>(record.direction),
                  .fanouts = record.fanouts,
                  .batch_size = record.batch_size,
                  .seed = record.seed,
                  .epochs = record.epochs,
                  .cache_bytes = (record.cache_rows - record.gpu_cache_rows) * row_stride,
                  .gpu_cache_bytes = record.gpu_cache_rows * row_stride,
                  .hash_functions = record.hash_functions,
                  .threads = ProcessorCount()};
  // One that needed segment caches had a budget, which was what it takes.
  if (record.batches_per_segment > 0) spec.disk_bytes = record.file_bytes + record.trace_bytes;
  return spec;
}

Status Rebuild(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenDatabase(arguments));
  const LayoutRecord* found = database->manifest().FindLayout(arguments.flags.name);
  if (found == nullptr) return Layout::Open(database->store(), arguments.flags.name).status();
  const LayoutRecord record = *found;
  const TableRecord* table = database->manifest().FindTable(record.table);
  if (table == nullptr) return database->store().OpenTable(record.table).status();
  LayoutSpec spec = SpecOf(record, RoundUp(RowBytes(table->element_type, table->dim), sizeof(float)));
  QUARRY_TRY(spec.policy, ParsePolicy(record.policy));
  QUARRY_TRY(spec.order, ParseSeedOrder(record.seed_order));
  return BuildAndPrint(*database, spec, arguments);
}

Status Drop(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Database> database, OpenDatabase(arguments));
  return DropLayout(database->store(), arguments.flags.name);
}

CLI::App* AddVerb(CLI::App* layout, const std::string& name, const std::string& help,
                  const std::shared_ptr<LayoutArguments>& arguments, Action& action,
                  Status (*run)(const LayoutArguments&)) {
  CLI::App* verb = layout->add_subcommand(name, help);
  verb->add_option("DB", arguments->path, "database folder")->required();
  if (name != "list") {
    verb->add_option("NAME", arguments->flags.name, "of the layout")->capture_default_str();
  }
  if (name != "drop") {
    verb->add_flag("--json", arguments->json, "JSON on stdout");
    verb->add_option("--memory", arguments->memory,
                     "cap on what the engine holds (default 80% of the machine)");
  }
  verb->callback([arguments, run, &action] { action = [arguments, run] { return run(*arguments); }; });
  return verb;
}

}  // namespace

void AddLayout(CLI::App& app, Action& action) {
  CLI::App* layout = app.add_subcommand("layout", "pack what training will read, in the order of its use");
  layout->require_subcommand(1);
  const auto make = [] { return std::make_shared<LayoutArguments>(); };
  auto arguments = make();
  CLI::App* build = AddVerb(layout, "build", "sample, plan and pack epochs", arguments, action, Build);
  arguments->flags.AddTo(build);
  build->add_flag("--resume", arguments->resume, "take the trace of an interrupted build over");
  build->footer(
      "All or nothing: interrupted, it leaves the database as it was.\n"
      "Example: quarry layout build db/ --fanout 10,15,20 --batch-size 1024 --cache 10% --disk 3x");
  AddVerb(layout, "list", "the layouts of a database", make(), action, List);
  AddLayoutExplain(*layout, action);
  AddVerb(layout, "rebuild", "build a layout again, as it was specified", make(), action, Rebuild);
  AddVerb(layout, "drop", "remove a layout", make(), action, Drop);
}

}  // namespace quarry::cli
