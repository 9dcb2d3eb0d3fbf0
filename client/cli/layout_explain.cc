// quarry layout explain|trace DB [NAME]: what an epoch costs by each way of reading, and what the trace says.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "option_values.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/trace_statistics.h"

namespace quarry::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainArguments {
  std::string path;
  std::string name = "default";
  std::string memory;
  uint64_t epochs = 10;
  std::vector<std::string> sizes = {"1%", "2%", "5%", "10%", "20%", "30%", "50%"};
  bool json = false;
};

// A layout with its trace.
struct Opened {
  std::unique_ptr<Database> database;
  std::unique_ptr<Layout> layout;
  std::unique_ptr<Trace> trace;
  MemoryBudget::Reservation reservation;  // for what is open

  const LayoutRecord& record() const { return layout->record(); }
  const LayoutDirectory& directory() const { return layout->directory(); }
};

Result<std::unique_ptr<Opened>> Open(const ExplainArguments& arguments) {
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, 0));
  }
  auto opened = std::make_unique<Opened>();
  QUARRY_TRY(opened->database, Database::Open(arguments.path, std::move(options)));
  QUARRY_TRY(opened->layout, Layout::Open(opened->database->store(), arguments.name));
  QUARRY_TRY(opened->trace, opened->layout->OpenTrace(opened->database->store()));
  QUARRY_TRY(opened->reservation,
             opened->database->budget().Reserve(
                 opened->layout->resident_bytes() + opened->trace->resident_bytes(), "an open layout"));
  return opened;
}

// Where scratch files may go. What a killed process left there is removed: nobody else has the database open.
std::string ScratchPath(Store& store) {
  constexpr std::string_view kPrefix = ".explain-";
  const std::filesystem::path folder = std::filesystem::path(store.path()) / "layouts";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().starts_with(kPrefix))
      Discard(store.backend(), entry.path().string());
  }
  return folder / fmt::format("{}{}", kPrefix, getpid());
}

struct Explanation {
  DeviceRecord device;
  bool device_measured = false;
  std::vector<PathCost> paths;
  PathChoice choice;
  size_t own = 0;  // the path that the layout is
};

Result<Explanation> Explain(Opened& opened, const ExplainArguments& arguments) {
  Database& database = *opened.database;
  const LayoutRecord& record = opened.record();
  Explanation explanation{.device = DeviceOf(*database.manifest()),
                          .device_measured = database.manifest()->device.has_value()};
  CostModelOptions options{.device = explanation.device,
                           .cache_rows = record.cache_rows,
                           .batches_per_epoch = opened.directory().batches_per_epoch,
                           .batches_per_segment = record.batches_per_segment,
                           .hash_functions = record.hash_functions,
                           .seed = record.spec.seed,
                           .scratch_path = ScratchPath(database.store())};
  options.policy = record.policy;
  {
    QUARRY_TRY(const std::unique_ptr<FeatureTable> table,
               database.store().OpenTable(record.spec.feature_table));
    options.geometry = table->geometry();
    options.block_bytes = table->block_bytes();
  }
  for (const BatchEntry& batch : opened.directory().batches) {
    options.planned_block_bytes += RoundUp(batch.block_bytes, kPageBytes);
  }
  std::vector<uint32_t> degrees;
  if (options.policy == PolicyKind::kStaticDegree) {
    QUARRY_TRY(degrees, CountUses(database.store(), database.budget(), record));
    options.degrees = degrees;
  }
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             database.budget().Reserve(
                 CostModelBytes(options, opened.directory().nodes_max()) + degrees.size() * sizeof(uint32_t),
                 "explaining a layout"));
  ProgressBar bar;
  const ScopedSpan span("price the ways of reading");
  QUARRY_TRY(explanation.paths, PredictPaths(database.backend(), *opened.trace, options, bar.AsFunction()));
  explanation.choice = ChoosePath(explanation.paths, arguments.epochs);
  const AccessPath own =
      record.batches_per_segment > 0 ? AccessPath::kSegmentCaches : AccessPath::kPackedChunks;
  const auto found = std::ranges::find_if(explanation.paths, [&](const PathCost& cost) {
    return cost.path == own && cost.policy == options.policy;
  });
  explanation.own = static_cast<size_t>(found - explanation.paths.begin());
  return explanation;
}

// Where the rows of a cycle are served from, the nearest level first.
struct Level {
  std::string_view name;
  uint64_t rows = 0;    // that it holds
  uint64_t served = 0;  // accesses; of chunks also the rows that only enter the cache
};

std::vector<Level> LevelsOf(const LayoutRecord& record, const LayoutDirectory& directory) {
  const Level cache{"cache", record.cache_rows, record.hits};
  Level segments{"segment caches"}, chunks{"chunks"};
  for (const SegmentEntry& segment : directory.segments) segments.rows += segment.rows;
  for (const BatchEntry& batch : directory.batches) {
    segments.served += batch.segment_rows;
    chunks.rows += batch.chunk_rows;
    chunks.served += batch.chunk_rows;
  }
  return {cache, segments, chunks};
}

Json LevelsJson(const LayoutRecord& record, const LayoutDirectory& directory) {
  Json levels = Json::array();
  for (const Level& level : LevelsOf(record, directory)) {
    levels.push_back({{"level", level.name}, {"rows", level.rows}, {"served", level.served}});
  }
  return levels;
}

void PrintLevels(const LayoutRecord& record, const LayoutDirectory& directory) {
  Print("level           {:>9} {:>9} {:>7}\n", "rows", "served", "share");
  for (const Level& level : LevelsOf(record, directory)) {
    if (level.rows == 0) continue;
    Print("  {:<14}{:>9} {:>9} {:>7.3f}\n", level.name, FormatCount(static_cast<double>(level.rows)),
          FormatCount(static_cast<double>(level.served)),
          static_cast<double>(level.served) / static_cast<double>(std::max<uint64_t>(1, record.accesses)));
  }
  Print("\n");
}

Json PathJson(const PathCost& cost, uint64_t epochs) {
  return {{"path", AccessPathName(cost.path)},
          {"policy", NameOf(cost.policy)},
          {"bytes_useful", cost.useful_bytes},
          {"bytes_read", cost.read_bytes},
          {"bytes_written", cost.written_bytes},
          {"read_amplification", cost.amplification()},
          {"requests", cost.requests},
          {"seconds_per_epoch", cost.seconds},
          {"gather_bound", cost.gather_bound},
          {"one_time_seconds", cost.one_time_seconds},
          {"one_time_bytes_written", cost.one_time_bytes},
          {"amortised_seconds_per_epoch", cost.AmortisedSeconds(epochs)}};
}

// What an epoch from the layout was measured to take beside what was predicted.
Json MeasuredJson(const LayoutRecord& record) {
  if (record.measured_seconds == 0) return nullptr;
  return {{"seconds_per_epoch", record.measured_seconds}, {"bytes_read", record.measured_bytes}};
}

void PrintExplanationJson(const Opened& opened, const Explanation& explanation, uint64_t epochs) {
  const LayoutRecord& record = opened.record();
  const DeviceRecord& device = explanation.device;
  Json json = {{"layout", record.name},
               {"policy", NameOf(record.policy)},
               {"cache_rows", record.cache_rows},
               {"levels", LevelsJson(record, opened.directory())},
               {"epochs", epochs},
               {"device",
                {{"measured", explanation.device_measured},
                 {"random_reads_per_second", device.random_reads_per_second},
                 {"sequential_bytes_per_second", device.sequential_bytes_per_second},
                 {"write_bytes_per_second", device.write_bytes_per_second},
                 {"gather_bytes_per_second", device.gather_bytes_per_second}}},
               {"paths", Json::array()}};
  for (const PathCost& cost : explanation.paths) json["paths"].push_back(PathJson(cost, epochs));
  const PathCost& best = explanation.paths[explanation.choice.best];
  json["choice"] = {{"path", AccessPathName(best.path)}, {"policy", NameOf(best.policy)}};
  json["why"] = explanation.choice.why;
  json["predicted"] = PathJson(explanation.paths[explanation.own], epochs);
  json["measured"] = MeasuredJson(record);
  json["plan_seconds"] = record.plan_seconds;
  PrintJson(json, 2);
}

double Gigabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

void PrintPaths(const Explanation& explanation) {
  Print("{:<2}{:<15} {:<17} {:>9} {:>9} {:>7} {:>9} {:>9} {:>10}\n", "", "path", "policy", "GB useful",
        "GB read", "amplif.", "requests", "s/epoch", "s one-time");
  for (size_t i = 0; i < explanation.paths.size(); ++i) {
    const PathCost& cost = explanation.paths[i];
    Print("{:<2}{:<15} {:<17} {:>9.2f} {:>9.2f} {:>7.2f} {:>9} {:>9.2f} {:>10}{}\n",
          i == explanation.choice.best ? "*" : "", AccessPathName(cost.path), NameOf(cost.policy),
          Gigabytes(cost.useful_bytes), Gigabytes(cost.read_bytes), cost.amplification(),
          FormatCount(static_cast<double>(cost.requests)), cost.seconds,
          cost.one_time_seconds > 0 ? fmt::format("{:.2f}", cost.one_time_seconds) : "",
          cost.gather_bound ? "  gather" : "");
  }
}

void PrintExplanation(const Opened& opened, const Explanation& explanation, const std::string& database) {
  const LayoutRecord& record = opened.record();
  Print("layout {}, a cycle of {} epoch{}\n\n", record.name, record.epochs, record.epochs == 1 ? "" : "s");
  PrintLevels(record, opened.directory());
  Print("an epoch by each way of reading\n\n");
  PrintPaths(explanation);
  Print("\n* {}\n\n", explanation.choice.why);
  const PathCost& own = explanation.paths[explanation.own];
  Print("this layout  {:>9} {:>9}\n", "s/epoch", "GB read");
  Print("  predicted  {:>9.2f} {:>9.2f}\n", own.seconds, Gigabytes(own.read_bytes));
  if (record.measured_seconds > 0) {
    Print("  measured   {:>9.2f} {:>9.2f}\n", record.measured_seconds, Gigabytes(record.measured_bytes));
  } else {
    Print("  measured     not yet: training from it does\n");
  }
  Print("  built in   {:>9.2f} s, sampling and planning included\n", record.plan_seconds);
  if (!explanation.device_measured) {
    Print(
        "\nThe device is not measured: these are the figures of a default one; run `quarry calibrate {}`.\n",
        database);
  }
}

Status RunExplain(const ExplainArguments& arguments) {
  if (arguments.epochs == 0) return Status(Code::kUsage, "--epochs 0: costs are spread over at least one");
  QUARRY_TRY(const std::unique_ptr<Opened> opened, Open(arguments));
  QUARRY_TRY(const Explanation explanation, Explain(*opened, arguments));
  if (arguments.json) {
    PrintExplanationJson(*opened, explanation, arguments.epochs);
  } else {
    PrintExplanation(*opened, explanation, arguments.path);
  }
  return Status::Ok();
}

struct CacheSize {
  std::string text;  // as it was asked for
  uint64_t rows = 0;
};

Result<std::vector<CacheSize>> ParseSizes(const ExplainArguments& arguments,
                                          const LayoutDirectory& directory) {
  std::vector<CacheSize> sizes;
  for (const std::string& text : arguments.sizes) {
    QUARRY_TRY(const uint64_t bytes, ParseBytes(text, directory.node_count * directory.row_bytes));
    sizes.push_back({text, std::min(bytes / directory.row_stride, directory.node_count)});
  }
  return sizes;
}

// What every cache policy finds in memory at every size.
struct Curve {
  std::vector<CacheSize> sizes;
  TraceStatistics statistics;
  std::vector<HitRatio> hits;  // by size, then by policy as in kAllPolicies
};

// Draws on the database's budget while it runs.
Result<Curve> MeasureCurve(Opened& opened, const ExplainArguments& arguments) {
  Database& database = *opened.database;
  const uint64_t node_count = database.manifest()->node_count;
  Curve curve;
  QUARRY_TRY(curve.sizes, ParseSizes(arguments, opened.directory()));
  QUARRY_TRY(const std::vector<uint32_t> degrees,
             CountUses(database.store(), database.budget(), opened.record()));
  HitCurveOptions options = {
      .degrees = degrees, .threads = ProcessorCount(), .scratch_path = ScratchPath(database.store())};
  for (const CacheSize& size : curve.sizes) options.cache_rows.push_back(size.rows);
  constexpr uint64_t kBytesPerNode = 2 * sizeof(uint32_t);  // degrees, uses
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             database.budget().Reserve(HitCurveBytes(options, node_count, opened.directory().nodes_max()) +
                                           node_count * kBytesPerNode,
                                       "simulating caches"));
  ProgressBar bar;
  {
    const ScopedSpan span("count uses");
    QUARRY_TRY(curve.statistics, MeasureTrace(*opened.trace, node_count, bar.AsFunction()));
  }
  const ScopedSpan span("simulate caches");
  QUARRY_TRY(curve.hits,
             MeasureHitCurve(database.backend(), *opened.trace, curve.statistics, options, bar.AsFunction()));
  return curve;
}

constexpr uint64_t kTopPercents[] = {1, 5, 10, 20};

double ShareOfTopPercent(const TraceStatistics& statistics, uint64_t percent) {
  return statistics.ShareOfTop(statistics.uses.size() * percent / 100);
}

// The share of accesses that go to each tenth of the nodes, the most used first.
std::vector<double> Deciles(const TraceStatistics& statistics) {
  std::vector<double> shares;
  double before = 0;
  for (uint64_t decile = 1; decile <= 10; ++decile) {
    const double share = ShareOfTopPercent(statistics, 10 * decile);
    shares.push_back(share - std::exchange(before, share));
  }
  return shares;
}

double MeanNodes(const TraceStatistics& statistics) {
  return static_cast<double>(statistics.accesses) /
         static_cast<double>(std::max<uint64_t>(1, statistics.batch_count));
}

void PrintTraceJson(const LayoutRecord& record, const Curve& curve) {
  const TraceStatistics& statistics = curve.statistics;
  Json json = {{"layout", record.name},
               {"batches", statistics.batch_count},
               {"nodes", statistics.uses.size()},
               {"accesses", statistics.accesses},
               {"distinct_rows", statistics.distinct_rows},
               {"input_nodes_mean", MeanNodes(statistics)},
               {"input_nodes_max", statistics.batch_nodes_max},
               {"top_shares", Json::array()},
               {"decile_shares", Deciles(statistics)},
               {"hit_ratios", Json::array()}};
  for (const uint64_t percent : kTopPercents) {
    json["top_shares"].push_back(
        {{"nodes_percent", percent}, {"accesses_share", ShareOfTopPercent(statistics, percent)}});
  }
  auto hit = curve.hits.begin();
  for (const CacheSize& size : curve.sizes) {
    Json row = {{"size", size.text}, {"cache_rows", size.rows}};
    for (const PolicyKind policy : kAllPolicies) row[NameOf(policy)] = (hit++)->ratio;
    json["hit_ratios"].push_back(std::move(row));
  }
  PrintJson(json, 2);
}

void PrintTrace(const LayoutRecord& record, const Curve& curve) {
  const TraceStatistics& statistics = curve.statistics;
  Print("trace of layout {}: {} batches, {} epoch{}\n", record.name, statistics.batch_count, record.epochs,
        record.epochs == 1 ? "" : "s");
  Print("  accesses       {}\n", FormatCount(static_cast<double>(statistics.accesses)));
  Print("  distinct rows  {} of {}\n", FormatCount(static_cast<double>(statistics.distinct_rows)),
        FormatCount(static_cast<double>(statistics.uses.size())));
  Print("  input nodes    {} a batch, {} at most\n", FormatCount(MeanNodes(statistics)),
        FormatCount(statistics.batch_nodes_max));
  Print("\nshare of accesses that go to the nodes used most\n ");
  for (const uint64_t percent : kTopPercents) {
    Print(" {:>7}", fmt::format("{}%", percent));
  }
  Print("\n ");
  for (const uint64_t percent : kTopPercents) Print(" {:>7.3f}", ShareOfTopPercent(statistics, percent));
  Print("\nby tenths of the nodes, the most used first\n ");
  for (const double share : Deciles(statistics)) Print(" {:>5.3f}", share);
  Print("\n\nhit ratio by memory (share of the features) and policy\n  {:>8}", "memory");
  for (const PolicyKind policy : kAllPolicies)
    Print("  {:>{}}", NameOf(policy), std::max<size_t>(6, NameOf(policy).size()));
  Print("\n");
  auto hit = curve.hits.begin();
  for (const CacheSize& size : curve.sizes) {
    Print("  {:>8}", size.text);
    for (const PolicyKind policy : kAllPolicies) {
      Print("  {:>{}.3f}", (hit++)->ratio, std::max<size_t>(6, NameOf(policy).size()));
    }
    Print("\n");
  }
}

Status RunTrace(const ExplainArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<Opened> opened, Open(arguments));
  QUARRY_TRY(const Curve curve, MeasureCurve(*opened, arguments));
  arguments.json ? PrintTraceJson(opened->record(), curve) : PrintTrace(opened->record(), curve);
  return Status::Ok();
}

CLI::App* AddVerb(CLI::App& layout, const std::string& name, const std::string& help,
                  const std::shared_ptr<ExplainArguments>& arguments, Action& action,
                  Status (*run)(const ExplainArguments&)) {
  CLI::App* verb = layout.add_subcommand(name, help);
  verb->add_option("DB", arguments->path, "database folder")->required();
  verb->add_option("NAME", arguments->name, "of the layout")->capture_default_str();
  verb->add_option("--memory", arguments->memory,
                   "cap on what the engine holds (default 80% of what the machine or cgroup allows)");
  verb->add_flag("--json", arguments->json, "one JSON object on stdout");
  verb->callback([arguments, run, &action] { action = [arguments, run] { return run(*arguments); }; });
  return verb;
}

}  // namespace

void AddLayoutExplain(CLI::App& layout, Action& action) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* explain = AddVerb(layout, "explain", "what an epoch costs by each way of reading it", arguments,
                              action, RunExplain);
  explain->add_option("--epochs", arguments->epochs, "over which packing is spread")->capture_default_str();
  explain->footer("Reads the trace alone.\nExample: quarry layout explain db/ --epochs 20");
  arguments = std::make_shared<ExplainArguments>();
  CLI::App* trace = AddVerb(layout, "trace", "how unevenly nodes are used, and what caches would spare",
                            arguments, action, RunTrace);
  trace->add_option("--sizes", arguments->sizes, "of memory: sizes, or shares of the feature bytes")
      ->delimiter(',')
      ->capture_default_str();
  trace->footer("Takes a minute for 65 million accesses.\nExample: quarry layout trace db/ --sizes 5%,10%");
}

}  // namespace quarry::cli
