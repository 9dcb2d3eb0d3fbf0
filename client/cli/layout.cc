// quarry layout build|list|rebuild|drop DB [NAME]: packed layouts, what an index is to a relational table.
// explain and trace: layout_explain.cc.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "layout_options.h"
#include "opened_store.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/wire.h"
#include "quarry/layout/rebuild.h"
#include "quarry/service/maintenance.h"
#include "record_json.h"

namespace quarry::cli {
namespace {

struct LayoutArguments {
  std::string path;
  LayoutFlags flags;
  std::string memory;
  bool resume = false;
  uint32_t ranks = 0;
  bool by_partition = false;
  std::string partitioning = "default";
  bool full = false;
  bool dry_run = false;
  bool json = false;
};

void PrintRecord(const LayoutRecord& record) {
  Print("layout {}: {} batches of {} seeds, fanout {}, {} epoch{}, policy {}, order {}\n", record.name,
        record.batch_count, record.spec.batch_size, fmt::join(GivenFanouts(record.spec), ","), record.epochs,
        record.epochs == 1 ? "" : "s", NameOf(record.policy), NameOf(record.spec.seed_order));
  Print("  disk       {} in {}{}\n", FormatBytes(record.total_bytes()), record.directory,
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

void PrintLacking(const Manifest& manifest, const LayoutRecord& record) {
  const TopologyRecord* const topology = manifest.FindTopology(record.spec.topology);
  if (topology == nullptr || topology->timestamp() <= record.timestamp) return;
  const bool folded = topology->folded > record.timestamp;  // how many, nobody knows any more
  Print("  since      {} came or went; {}\n",
        folded ? "edges" : Counted(topology->ChangedSince(record.timestamp), "edge"),
        record.spec.edge_ids ? "its batches say which edges they have: refused until `quarry layout rebuild`"
        : record.spec.relation_fanouts.empty()
            ? "`quarry layout explain` says whose batches draw from them"
            : "its batches have those of when it was built, until `quarry layout rebuild`");
}

// What the catalog has of the layout that was just worked on.
Result<LayoutRecord> RecordOf(client::Store& store, const LayoutArguments& arguments) {
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.path));
  const LayoutRecord* const record = manifest.FindLayout(arguments.flags.name);
  if (record != nullptr) return *record;
  return MakeStatus(Code::kNotFound, "{}: somebody else has dropped layout \"{}\"", arguments.path,
                    arguments.flags.name);
}

// A layout for each trainer: what each holds, and what all of them took.
Status PrintRanks(client::Store& store, const LayoutSpec& spec, const Figures& report,
                  const LayoutArguments& arguments) {
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.path));
  Json layouts = Json::array();
  for (uint32_t rank = 0; rank < spec.share.ranks; rank++) {
    const std::string name = RankLayoutName(spec.name, rank, spec.share.ranks);
    const LayoutRecord* const record = manifest.FindLayout(name);
    if (record == nullptr) {
      return MakeStatus(Code::kNotFound, "{}: somebody else has dropped layout \"{}\"", arguments.path, name);
    }
    layouts.push_back(LayoutJson(*record));
    if (!arguments.json) PrintRecord(*record);
  }
  if (arguments.json) {
    PrintJson({{"layouts", std::move(layouts)},
               {"disk_bytes", report.Count("disk_bytes")},
               {"sample_seconds", report.Real("sample_seconds")},
               {"simulate_seconds", report.Real("plan_seconds")},
               {"pack_seconds", report.Real("pack_seconds")},
               {"peak_rss_bytes", PeakRssBytes()}});
    return Status::Ok();
  }
  Print(
      "all {} together take {}; {:.1f} s sampling, {:.1f} s planning, {:.1f} s packing, in one pass over the "
      "table\n",
      spec.share.ranks, FormatBytes(report.Count("disk_bytes")), report.Real("sample_seconds"),
      report.Real("plan_seconds"), report.Real("pack_seconds"));
  return Status::Ok();
}

Status BuildAndPrint(client::Store& store, const LayoutSpec& spec, const LayoutArguments& arguments) {
  const wire::Maintain request = {RequestOf(spec, arguments.resume)};
  if (const Status fits = wire::CheckRequest(request); !fits.ok())
    return MakeStatus(Code::kUsage, "{}", fits.message());
  QUARRY_TRY(const std::string folder, FolderOf(store));
  ProgressBar bar;
  const std::string left = fmt::format(
      "the layouts are as they were, but {}/layouts/{}.building stays: --resume takes over what is whole "
      "of it, `quarry repair {}` removes it",
      folder, spec.name, folder);
  const auto done = store.Maintain(request.task, bar.AsFunction(left));
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(done.status());
  const Figures report(*done);
  const double edges = report.Real("edges");
  const double bytes_per_edge = edges == 0 ? 0.0 : report.Real("block_bytes") / edges;
  const bool resumed = report.Count("resumed") > 0;
  if (spec.share.ranks > 0) return PrintRanks(store, spec, report, arguments);
  QUARRY_TRY(const LayoutRecord record, RecordOf(store, arguments));
  if (arguments.json) {
    Json json = LayoutJson(record);
    json["edges"] = report.Count("edges");
    json["block_bytes"] = report.Count("block_bytes");
    json["block_bytes_per_edge"] = bytes_per_edge;
    json["sample_seconds"] = report.Real("sample_seconds");
    json["simulate_seconds"] = report.Real("plan_seconds");
    json["segment_search_seconds"] = report.Real("segment_search_seconds");
    json["pack_seconds"] = report.Real("pack_seconds");
    json["sequences"] = report.Count("sequences");
    json["resumed"] = resumed;
    json["peak_rss_bytes"] = PeakRssBytes();
    PrintJson(json);
    return Status::Ok();
  }
  PrintRecord(record);
  Print(
      "  of these   {:.1f} s sampling{}, {:.1f} s planning, {:.1f} s packing; blocks take {:.2f} bytes an "
      "edge\n",
      report.Real("sample_seconds"), resumed ? " (taken over)" : "", report.Real("plan_seconds"),
      report.Real("pack_seconds"), bytes_per_edge);
  return Status::Ok();
}

Status Build(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
  QUARRY_TRY(LayoutSpec spec, arguments.flags.ToSpec(manifest));
  spec.share.ranks = arguments.ranks;
  if (arguments.by_partition) spec.share.rank_partitioning = arguments.partitioning;
  return BuildAndPrint(*store, spec, arguments);
}

Status List(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const Manifest manifest, ManifestOf(*store, arguments.path));
  if (arguments.json) {
    Json json = Json::array();
    for (const LayoutRecord& record : manifest.layouts) json.push_back(LayoutJson(record));
    PrintJson(json);
    return Status::Ok();
  }
  for (const LayoutRecord& record : manifest.layouts) {
    PrintRecord(record);
    PrintLacking(manifest, record);
  }
  if (manifest.layouts.empty()) Print("no layouts; `quarry layout build {}` makes one\n", arguments.path);
  return Status::Ok();
}

RebuildPath PathOf(const Figures& report) {
  return static_cast<RebuildPath>(
      std::min<uint64_t>(report.Count("path"), static_cast<uint64_t>(RebuildPath::kMend)));
}

Json RebuildJson(const Figures& report, const std::string& why) {
  return {{"path", RebuildPathName(PathOf(report))},
          {"why", why},
          {"changed_rows", report.Count("rows_changed")},
          {"places", report.Count("places")},
          {"seeds_changed", report.Count("seeds_changed")},
          {"batches_changed", report.Count("batches_changed")},
          {"find_seconds", report.Real("find_seconds")},
          {"patch_seconds", report.Real("patch_seconds")},
          {"patch_bytes", report.Count("patch_bytes")},
          {"build_seconds", report.Real("build_seconds")},
          {"build_bytes", report.Count("build_bytes")},
          {"seconds", report.Real("seconds")},
          {"mend_seconds", report.Real("mend_seconds")},
          {"anew_seconds", report.Real("anew_seconds")},
          {"batches_sampled", report.Count("batches_sampled")},
          {"rows_read", report.Count("rows_read")},
          {"bytes_written", report.Count("bytes_written")},
          {"peak_rss_bytes", PeakRssBytes()}};
}

std::string_view Outcome(RebuildPath path) {
  switch (path) {
    case RebuildPath::kRecord:
      return "left as it is";
    case RebuildPath::kPatch:
      return "patched";
    case RebuildPath::kCopy:
      return "copied and patched";
    case RebuildPath::kMend:
      return "mended";
    case RebuildPath::kBuild:
      break;
  }
  return "built anew";
}

void PrintRebuild(const Figures& report, const std::string& why, bool dry_run) {
  Print("  changed    {} rows, which the layout holds in {} places, found in {:.2f} s\n",
        report.Count("rows_changed"), report.Count("places"), report.Real("find_seconds"));
  if (const uint64_t bytes = report.Count("patch_bytes"); bytes > 0) {
    Print("  patching   {:.2f} s predicted, {} written\n", report.Real("patch_seconds"), FormatBytes(bytes));
  }
  if (const double seconds = report.Real("mend_seconds"); seconds > 0) {
    Print("  mending    {:.2f} s predicted for {} batches, {:.2f} s for building\n", seconds,
          report.Count("batches_changed"), report.Real("anew_seconds"));
  }
  Print("  building   {:.2f} s the last time, {} written\n", report.Real("build_seconds"),
        FormatBytes(report.Count("build_bytes")));
  Print("  {} {}: {}\n", dry_run ? "would be" : "was", Outcome(PathOf(report)), why);
  if (dry_run) return;
  if (const uint64_t batches = report.Count("batches_sampled"); batches > 0) {
    Print("  anew       {} batches sampled, {} rows read of the table\n", batches, report.Count("rows_read"));
  }
  Print("  in         {:.2f} s, {} written\n", report.Real("seconds"),
        FormatBytes(report.Count("bytes_written")));
}

Status Rebuild(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  ProgressBar bar;
  const wire::RebuildLayout request = {
      .name = arguments.flags.name, .full = arguments.full, .dry_run = arguments.dry_run};
  const auto done = store->Maintain(
      request, bar.AsFunction("the layout is as it was; what was built of another goes with the next "
                              "rebuild"));
  bar.Clear();
  QUARRY_RETURN_IF_ERROR(done.status());
  const Figures report(*done);
  const std::string why = done->notes.empty() ? "" : done->notes.front();
  QUARRY_TRY(const LayoutRecord record, RecordOf(*store, arguments));
  if (arguments.json) {
    Json json = LayoutJson(record);
    json["rebuild"] = RebuildJson(report, why);
    PrintJson(json);
    return Status::Ok();
  }
  PrintRecord(record);
  PrintRebuild(report, why, arguments.dry_run);
  return Status::Ok();
}

Status Drop(const LayoutArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path));
  QUARRY_RETURN_IF_ERROR(store->Maintain(wire::DropLayout{arguments.flags.name}).status());
  if (arguments.json) {
    PrintJson({{"path", arguments.path}, {"kind", "layout"}, {"name", arguments.flags.name}});
  } else {
    Print("layout {}: dropped\n", arguments.flags.name);
  }
  return Status::Ok();
}

CLI::App* AddVerb(CLI::App* layout, const std::string& name, const std::string& help,
                  const std::shared_ptr<LayoutArguments>& arguments, Action& action,
                  Status (*run)(const LayoutArguments&)) {
  CLI::App* verb = layout->add_subcommand(name, help);
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
  if (name != "list") {
    verb->add_option("NAME", arguments->flags.name, "of the layout")->capture_default_str();
  }
  verb->add_flag("--json", arguments->json, "JSON on stdout");
  if (name != "drop") {
    verb->add_option("--memory", arguments->memory,
                     "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
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
  CLI::Option* const resume =
      build->add_flag("--resume", arguments->resume, "take the trace of an interrupted build over");
  constexpr const char* kRanksGroup = "Several trainers";
  CLI::Option* const ranks =
      build
          ->add_option("--ranks", arguments->ranks,
                       "build NAME-0ofR, NAME-1ofR, ..., one for each of R trainers that learn one model: "
                       "each has its own "
                       "batches and cache, and needs no other; --disk is of all together")
          ->type_name("R")
          ->check(WholeFrom(1, 4096, "a number of trainers from 1 to 4096", "4"))
          ->group(kRanksGroup);
  CLI::Option* const by = AddChoice<bool>(
      build, "--by", arguments->by_partition, {{"random", false}, {"partition", true}},
      "which trainer has which training nodes: random (default): batches in turn; partition: those of its "
      "parts of --partitioning, so that its cache holds more of what it reads");
  by->group(kRanksGroup)->needs(ranks);
  build
      ->add_option("--partitioning", arguments->partitioning,
                   "with --by partition: as `quarry partition build` named it")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(kRanksGroup)
      ->needs(by);
  ranks->excludes(resume);
  build->footer(
      "All or nothing: interrupted, it leaves the database as it was.\n"
      "Example: quarry layout build db/ --fanout 10,15,20 --batch-size 1024 --cache 10% --disk 3x");
  AddVerb(layout, "list", "the layouts of a database", make(), action, List)
      ->footer("Example: quarry layout list db/ --json");
  AddLayoutExplain(*layout, action);
  arguments = make();
  CLI::App* rebuild =
      AddVerb(layout, "rebuild", "put the rows that changed into a layout", arguments, action, Rebuild);
  rebuild->add_flag("--full", arguments->full, "build it anew, whatever changed");
  rebuild->add_flag("--dry-run", arguments->dry_run, "say what would be done, and why; do nothing");
  rebuild->footer(
      "Writes the pages of the layout that hold changed rows, or builds it anew where that is cheaper or "
      "the\n"
      "batches are others. Interrupted, it leaves the layout as it was.\n"
      "Example: quarry layout rebuild db/ --dry-run");
  AddVerb(layout, "drop", "remove a layout", make(), action, Drop)
      ->footer("Example: quarry layout drop db/ default");
}

}  // namespace quarry::cli
