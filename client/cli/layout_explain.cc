// quarry layout explain|trace DB [NAME]: what an epoch costs by each way of reading, and what the trace says.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "layout_options.h"
#include "opened_store.h"
#include "print_json.h"
#include "quarry/base/units.h"
#include "quarry/layout/cost_model.h"
#include "record_json.h"

namespace quarry::cli {
namespace {

struct ExplainArguments {
  std::string path;
  std::string name = "default";
  std::string memory;
  uint64_t epochs = 10;
  std::vector<std::string> sizes = {"1%", "2%", "5%", "10%", "20%", "30%", "50%"};
  bool json = false;
};

// What is told about a layout, and its record.
struct Told {
  Manifest manifest;
  LayoutRecord record;
  wire::MaintenanceReport report;

  Figures figures() const { return Figures(report); }
};

// Errors of a layout that is not there are of whoever has the database.
Result<Told> Ask(client::Store& store, const ExplainArguments& arguments, const wire::MaintenanceTask& task) {
  Told told;
  ProgressBar bar;
  QUARRY_TRY(told.report, store.Maintain(task, bar.AsFunction()));
  QUARRY_TRY(told.manifest, ManifestOf(store, arguments.path));
  const LayoutRecord* const record = told.manifest.FindLayout(arguments.name);
  if (record != nullptr) told.record = *record;
  return told;
}

constexpr std::string_view kLevels[] = {"cache", "segment caches", "chunks"};

Json LevelsJson(const Told& told) {
  Json levels = Json::array();
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    Json level = {{"level", kLevels[i]}};
    level.update(told.figures().Group(fmt::format("levels.{}", i)));
    levels.push_back(std::move(level));
  }
  return levels;
}

void PrintLevels(const Told& told) {
  Print("level           {:>9} {:>9} {:>7}\n", "rows", "served", "share");
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    const double rows = told.figures().Real(fmt::format("levels.{}.rows", i));
    const double served = told.figures().Real(fmt::format("levels.{}.served", i));
    if (rows == 0) continue;
    Print("  {:<14}{:>9} {:>9} {:>7.3f}\n", kLevels[i], FormatCount(rows), FormatCount(served),
          served / static_cast<double>(std::max<uint64_t>(1, told.record.accesses)));
  }
  Print("\n");
}

// A server may say anything.
template <typename Enum>
Enum EnumOf(const Figures& figures, const std::string& name, Enum last) {
  return static_cast<Enum>(std::min(figures.Count(name), static_cast<uint64_t>(last)));
}

// Ways of reading, by their numbers in a report.
class Paths {
 public:
  explicit Paths(const Told& told) : figures_(told.report) {
    while (!figures_.Group(Name(count_)).empty()) ++count_;
  }
  size_t count() const { return count_; }
  size_t best() const { return std::min<size_t>(figures_.Count("best"), count_); }
  size_t own() const { return std::min<size_t>(figures_.Count("own"), count_); }
  std::string_view path(size_t i) const {
    return AccessPathName(EnumOf(figures_, Name(i) + ".path", AccessPath::kSegmentCaches));
  }
  std::string_view policy(size_t i) const {
    return NameOf(EnumOf(figures_, Name(i) + ".policy", PolicyKind::kBelady));
  }
  double Real(size_t i, std::string_view field) const {
    return figures_.Real(fmt::format("{}.{}", Name(i), field));
  }
  Json ToJson(size_t i) const {
    Json json = figures_.Group(Name(i));
    json["path"] = path(i);
    json["policy"] = policy(i);
    json["gather_bound"] = Real(i, "gather_bound") != 0;
    json["processor_bound"] = Real(i, "processor_bound") != 0;
    return json;
  }

 private:
  static std::string Name(size_t i) { return fmt::format("paths.{}", i); }

  const Figures figures_;
  size_t count_ = 0;
};

std::string_view WhyOf(const Told& told) {
  return told.report.notes.empty() ? std::string_view() : told.report.notes.front();
}

// What an epoch from the layout was measured to take beside what was predicted.
Json MeasuredJson(const LayoutRecord& record) {
  if (record.measured_seconds == 0) return nullptr;
  return {{"seconds_per_epoch", record.measured_seconds}, {"bytes_read", record.measured_bytes}};
}

Json GraphJson(const Told& told) {
  Json graph = told.figures().Group("graph");
  for (const char* const flag : {"lists_known", "mends"}) {
    graph[flag] = told.figures().Count(fmt::format("graph.{}", flag)) != 0;
  }
  return graph;
}

// What has become of the graph since the layout, where anything has.
void PrintGraph(const Told& told) {
  const Figures figures = told.figures();
  const auto count = [&](std::string_view name) { return figures.Count(fmt::format("graph.{}", name)); };
  const auto real = [&](std::string_view name) { return figures.Real(fmt::format("graph.{}", name)); };
  if (count("lists_known") == 0) {
    Print(
        "  since      edges came or went, and were folded into the graph's file: nobody knows whose "
        "batches\n");
  } else if (const uint64_t edges = count("edges_changed"); edges > 0 || count("lists_changed") > 0) {
    // What was folded into the graph's file since is known by its lists.
    Print("  since      {}: {} of {} seeds, in {} of {} batches, draw from lists that changed\n",
          edges > 0 ? Counted(edges, "edge") + " came or went"
                    : Counted(count("lists_changed"), "list") + " of neighbors changed",
          count("seeds_changed"), count("seeds"), count("batches_changed"), told.record.batch_count);
  }
  if (count("batches_changed") > 0) {
    Print("  rebuilding {:.2f} s for these batches, {:.2f} s for all: `quarry layout rebuild` {}\n",
          real("mend_seconds"), real("anew_seconds"),
          count("mends") != 0 ? "mends it, where the same nodes are trained on" : "builds it anew");
  }
  if (count("runs") == 0) return;
  Print(
      "  the graph  {} of edges, which take {:.2f} s to open; sampling is {:.2f} times slower from memory, "
      "{:.2f} from disk; folding them takes {:.2f} s\n",
      Counted(count("runs"), "run"), real("open_seconds"), real("loaded_slowdown"), real("disk_slowdown"),
      real("fold_seconds"));
}

void PrintExplanationJson(const Told& told, uint64_t epochs) {
  const LayoutRecord& record = told.record;
  const Paths paths(told);
  Json json = {{"layout", record.name},
               {"policy", NameOf(record.policy)},
               {"cache_rows", record.cache_rows},
               {"levels", LevelsJson(told)},
               {"epochs", epochs},
               {"device", FieldsOf(DeviceOf(told.manifest))},
               {"paths", Json::array()}};
  json["device"]["measured"] = told.manifest.device.has_value();
  for (size_t i = 0; i < paths.count(); ++i) json["paths"].push_back(paths.ToJson(i));
  json["choice"] = {{"path", paths.path(paths.best())}, {"policy", paths.policy(paths.best())}};
  json["why"] = WhyOf(told);
  json["predicted"] = paths.ToJson(paths.own());
  json["measured"] = MeasuredJson(record);
  json["plan_seconds"] = record.plan_seconds;
  json["graph"] = GraphJson(told);
  PrintJson(json);
}

std::string Bytes(double bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

void PrintPaths(const Paths& paths) {
  Print("{:<2}{:<14} {:<16} {:>9} {:>5} {:>8} {:>7} {:>7}\n", "", "path", "policy", "read", "ampl",
        "requests", "s/epoch", "s once");
  for (size_t i = 0; i < paths.count(); ++i) {
    const double one_time = paths.Real(i, "one_time_seconds");
    Print("{:<2}{:<14} {:<16} {:>9} {:>5.2f} {:>8} {:>7.2f} {:>7}{}\n", i == paths.best() ? "*" : "",
          paths.path(i), paths.policy(i), Bytes(paths.Real(i, "bytes_read")),
          paths.Real(i, "read_amplification"), FormatCount(paths.Real(i, "requests")),
          paths.Real(i, "seconds_per_epoch"), one_time > 0 ? fmt::format("{:.2f}", one_time) : "",
          paths.Real(i, "gather_bound") != 0      ? " gather"
          : paths.Real(i, "processor_bound") != 0 ? " processors"
                                                  : "");
  }
}

void PrintExplanation(const Told& told, const std::string& database) {
  const LayoutRecord& record = told.record;
  const Paths paths(told);
  Print("layout {}, a cycle of {} epoch{}\n\n", record.name, record.epochs, record.epochs == 1 ? "" : "s");
  PrintLevels(told);
  Print("an epoch by each way of reading\n\n");
  PrintPaths(paths);
  Print("\n* {}\n\n", WhyOf(told));
  Print("this layout  {:>9} {:>9}\n", "s/epoch", "read");
  Print("  predicted  {:>9.2f} {:>9}\n", paths.Real(paths.own(), "seconds_per_epoch"),
        Bytes(paths.Real(paths.own(), "bytes_read")));
  if (record.measured_seconds > 0) {
    Print("  measured   {:>9.2f} {:>9}\n", record.measured_seconds, FormatBytes(record.measured_bytes));
  } else {
    Print("  measured     not yet: training from it does\n");
  }
  Print("  built in   {:>9.2f} s, sampling and planning included\n", record.plan_seconds);
  PrintGraph(told);
  if (!told.manifest.device) {
    Print(
        "\nThe device is not measured: these are the figures of a default one; run `quarry calibrate {}`.\n",
        database);
  }
}

Status RunExplain(const ExplainArguments& arguments) {
  if (arguments.epochs == 0) return Status(Code::kUsage, "--epochs 0: costs are spread over at least one");
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(const Told told, Ask(*store, arguments, wire::ExplainLayout{arguments.name, arguments.epochs}));
  if (arguments.json) {
    PrintExplanationJson(told, arguments.epochs);
  } else {
    PrintExplanation(told, arguments.path);
  }
  return Status::Ok();
}

// Shares are of the features that the layout is of; without it there is nothing to take a share of, and asking
// says what there is.
Result<std::vector<uint64_t>> ParseSizes(client::Store& store, const ExplainArguments& arguments) {
  QUARRY_TRY(const Manifest manifest, ManifestOf(store, arguments.path));
  const LayoutRecord* const layout = manifest.FindLayout(arguments.name);
  std::vector<uint64_t> sizes;
  if (layout == nullptr) return sizes;
  QUARRY_TRY(const uint64_t feature_bytes, FeatureBytes(manifest, layout->spec));
  for (const std::string& text : arguments.sizes) {
    QUARRY_TRY(const uint64_t bytes, ParseBytes(text, feature_bytes));
    sizes.push_back(bytes);
  }
  return sizes;
}

void PrintTraceJson(const Told& told, const std::vector<std::string>& sizes) {
  const Figures figures = told.figures();
  Json json = {{"layout", told.record.name}};
  for (const char* name :
       {"batches", "nodes", "accesses", "distinct_rows", "input_nodes_mean", "input_nodes_max"}) {
    json[name] = NumberOf(figures.Real(name));
  }
  for (const char* name : {"top_shares", "decile_shares", "hit_ratios"}) json[name] = Json::array();
  const Json top = figures.Group("top_shares"), deciles = figures.Group("decile_shares");
  for (const auto& [percent, share] : top.items()) {
    json["top_shares"].push_back({{"nodes_percent", std::atoi(percent.c_str())}, {"accesses_share", share}});
  }
  for (const Json& share : deciles) json["decile_shares"].push_back(share);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Json row = {{"size", sizes[i]}};
    row.update(figures.Group(fmt::format("hit_ratios.{}", i)));
    json["hit_ratios"].push_back(std::move(row));
  }
  PrintJson(json);
}

// The shares under their names.
void PrintShares(const Json& shares, bool named, int width) {
  std::string names, values;
  for (const auto& [name, share] : shares.items()) {
    names += fmt::format(" {:>{}}", name + "%", width);
    values += fmt::format(" {:>{}.3f}", share.get<double>(), width);
  }
  if (named) Print(" {}\n", names);
  Print(" {}\n", values);
}

void PrintTrace(const Told& told, const std::vector<std::string>& sizes) {
  const Figures figures = told.figures();
  const LayoutRecord& record = told.record;
  Print("trace of layout {}: {} batches, {} epoch{}\n", record.name, figures.Count("batches"), record.epochs,
        record.epochs == 1 ? "" : "s");
  Print("  accesses       {}\n", FormatCount(figures.Real("accesses")));
  Print("  distinct rows  {} of {}\n", FormatCount(figures.Real("distinct_rows")),
        FormatCount(figures.Real("nodes")));
  Print("  input nodes    {} a batch, {} at most\n", FormatCount(figures.Real("input_nodes_mean")),
        FormatCount(figures.Real("input_nodes_max")));
  Print("\nshare of accesses that go to the nodes used most\n");
  PrintShares(figures.Group("top_shares"), true, 7);
  Print("by tenths of the nodes, the most used first\n");
  PrintShares(figures.Group("decile_shares"), false, 5);
  Print("\nhit ratio by memory (share of the features) and policy\n  {:>8}", "memory");
  const auto width = [](PolicyKind policy) { return std::max<size_t>(6, NameOf(policy).size()); };
  for (const PolicyKind policy : kAllPolicies) Print("  {:>{}}", NameOf(policy), width(policy));
  Print("\n");
  for (size_t i = 0; i < sizes.size(); ++i) {
    Print("  {:>8}", sizes[i]);
    for (const PolicyKind policy : kAllPolicies) {
      Print("  {:>{}.3f}", figures.Real(fmt::format("hit_ratios.{}.{}", i, NameOf(policy))), width(policy));
    }
    Print("\n");
  }
}

Status RunTrace(const ExplainArguments& arguments) {
  QUARRY_TRY(const std::unique_ptr<client::Store> store, OpenStore(arguments.path, arguments.memory));
  QUARRY_TRY(std::vector<uint64_t> sizes, ParseSizes(*store, arguments));
  QUARRY_TRY(const Told told, Ask(*store, arguments, wire::TraceLayout{arguments.name, std::move(sizes)}));
  arguments.json ? PrintTraceJson(told, arguments.sizes) : PrintTrace(told, arguments.sizes);
  return Status::Ok();
}

CLI::App* AddVerb(CLI::App& layout, const std::string& name, const std::string& help,
                  const std::shared_ptr<ExplainArguments>& arguments, Action& action,
                  Status (*run)(const ExplainArguments&)) {
  CLI::App* verb = layout.add_subcommand(name, help);
  verb->add_option("DB", arguments->path, kAddressHelp)->required();
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
  explain->footer(
      "Reads the trace, and where edges came or went since, the blocks of the batches.\nExample: quarry "
      "layout explain db/ --epochs 20");
  arguments = std::make_shared<ExplainArguments>();
  CLI::App* trace = AddVerb(layout, "trace", "how unevenly nodes are used, and what caches would spare",
                            arguments, action, RunTrace);
  trace->add_option("--sizes", arguments->sizes, "of memory: sizes, or shares of the feature bytes")
      ->delimiter(',')
      ->capture_default_str();
  trace->footer("Takes a minute for 65 million accesses.\nExample: quarry layout trace db/ --sizes 5%,10%");
}

}  // namespace quarry::cli
