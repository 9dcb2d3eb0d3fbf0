// quarry plot cache: hit ratio by memory and policy, of a trace that is sampled from a database, or as
// `quarry layout trace --json` printed it of a layout's.
#include <algorithm>
#include <filesystem>

#include "cache_curve.h"
#include "layout_options.h"
#include "option_values.h"
#include "plot.h"
#include "plot_json.h"
#include "plot_picture.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/storage/layout_files.h"

namespace quarry::cli {
namespace {

constexpr uint64_t kPercents[] = {1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50};

struct CacheArguments {
  std::string source, output, memory;
  LayoutFlags flags{.cache = "0"};
  std::vector<const CLI::Option*> sampling;  // options of a database alone
};

// Curve i is of kAllPolicies[i]: hit ratio by percent of the rows that memory holds.
using Curves = std::vector<Points>;

double Percent(double rows, double node_count) { return 100 * rows / node_count; }

// A layout that holds no rows and that the catalog never names, for its trace; gone with its owner.
class SampledTrace {
 public:
  static Result<std::unique_ptr<SampledTrace>> Make(Database& database, LayoutSpec spec,
                                                    const ProgressFunction& progress) {
    spec.name = "plot-cache";
    spec.policy = PolicyKind::kNone;
    spec.packing = Packing::kNever;
    auto sampled = std::unique_ptr<SampledTrace>(
        new SampledTrace(std::filesystem::path(database.store().path()) / PassingFolder(spec.name)));
    QUARRY_TRY(sampled->record_, BuildPassingLayout(database.store(), database.budget(), spec, progress));
    QUARRY_TRY(const std::unique_ptr<Layout> layout, Layout::Open(database.store(), sampled->record_));
    sampled->batch_nodes_max_ = layout->directory().nodes_max();
    QUARRY_TRY(sampled->trace_, layout->OpenTrace(database.store()));
    QUARRY_TRY(sampled->reservation_,
               database.budget().Reserve(sampled->trace_->resident_bytes(), "an open trace"));
    return sampled;
  }
  ~SampledTrace() {
    trace_.reset();
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  SampledTrace(const SampledTrace&) = delete;
  SampledTrace& operator=(const SampledTrace&) = delete;

  const LayoutRecord& record() const { return record_; }
  const Trace& trace() const { return *trace_; }
  uint64_t batch_nodes_max() const { return batch_nodes_max_; }
  std::string scratch_path() const { return folder_ / "next.tmp"; }

 private:
  explicit SampledTrace(std::filesystem::path folder) : folder_(std::move(folder)) {}
  const std::filesystem::path folder_;
  LayoutRecord record_;
  std::unique_ptr<Trace> trace_;
  uint64_t batch_nodes_max_ = 0;
  MemoryBudget::Reservation reservation_;  // for the open trace
};

Result<Curves> SampleCurves(const CacheArguments& arguments) {
  DatabaseOptions options;
  if (!arguments.memory.empty()) {
    QUARRY_TRY(options.memory_bytes, ParseSize("--memory", arguments.memory, 0));
  }
  QUARRY_TRY(const std::unique_ptr<Database> database, Database::Open(arguments.source, std::move(options)));
  QUARRY_TRY(const LayoutSpec spec, arguments.flags.ToSpec(*database->manifest()));
  ProgressBar bar;
  QUARRY_TRY(const std::unique_ptr<SampledTrace> sampled,
             SampledTrace::Make(*database, spec, bar.AsFunction()));
  CacheCurveOptions curve = {.batch_nodes_max = sampled->batch_nodes_max(),
                             .threads = spec.threads,
                             .scratch_path = sampled->scratch_path()};
  const uint64_t node_count = database->manifest()->node_count;
  for (const uint64_t percent : kPercents) curve.cache_rows.push_back(node_count * percent / 100);
  QUARRY_TRY(const CacheCurve measured,
             MeasureCacheCurve(*database, sampled->record(), sampled->trace(), curve, bar.AsFunction()));
  const std::vector<HitRatio>& hits = measured.hits;
  Curves curves(std::size(kAllPolicies));
  for (size_t i = 0; i < hits.size(); ++i) {
    curves[i % curves.size()].emplace_back(
        Percent(static_cast<double>(hits[i].cache_rows), static_cast<double>(node_count)), hits[i].ratio);
  }
  return curves;
}

Result<Curves> ReadCurves(const CacheArguments& arguments) {
  for (const CLI::Option* const option : arguments.sampling) {
    if (option->count() == 0) continue;
    return MakeStatus(Code::kUsage, "{}: {} is no database to sample, but what was sampled already",
                      option->get_name(), arguments.source);
  }
  QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(arguments.source));
  const JsonObject& traced = objects.front();
  QUARRY_TRY(const double nodes, traced.Number("nodes"));
  QUARRY_TRY(const std::vector<JsonObject> sizes, traced.Objects("hit_ratios"));
  if (sizes.empty() || nodes <= 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} nodes and {} sizes of memory: nothing to draw",
                      traced.place, nodes, sizes.size());
  }
  Curves curves(std::size(kAllPolicies));
  for (const JsonObject& size : sizes) {
    QUARRY_TRY(const double rows, size.Number("cache_rows"));
    for (size_t i = 0; i < curves.size(); ++i) {
      QUARRY_TRY(const double ratio, size.Number(std::string(NameOf(kAllPolicies[i]))));
      curves[i].emplace_back(Percent(rows, nodes), ratio);
    }
  }
  for (Points& curve : curves) std::ranges::sort(curve);
  return curves;
}

Result<Picture> Compose(const CacheArguments& arguments) {
  std::error_code error;
  const bool database = std::filesystem::is_directory(arguments.source, error);
  QUARRY_TRY(const Curves curves, database ? SampleCurves(arguments) : ReadCurves(arguments));
  Picture picture{.title = "Rows found in memory, by what memory holds"};
  Panel panel{.x_label = "memory (% of the rows)",
              .y_label = "hit ratio (share of the accesses)",
              .axes = "set xrange [0:*]\nset yrange [0:1]\n"};
  // The first is `none`, whose ratio is 0; the last misses least, and comes first.
  static_assert(kAllPolicies[0] == PolicyKind::kNone);
  for (size_t policy = curves.size() - 1; policy > 0; --policy) {
    const size_t curve = panel.series.size();
    picture.legend.push_back({std::string(NameOf(kAllPolicies[policy])), CurveLook(curve)});
    panel.series.push_back(CurveSeries(curve, curves[policy]));
  }
  picture.panels.push_back(std::move(panel));
  return picture;
}

}  // namespace

void AddPlotCache(CLI::App& plot, Action& action) {
  auto arguments = std::make_shared<CacheArguments>();
  CLI::App* const verb = plot.add_subcommand("cache", "hit ratio by memory and policy");
  verb->add_option("DB", arguments->source,
                   "database to sample an epoch from, or what `quarry layout trace --json` printed")
      ->required();
  AddOutput(*verb, arguments->output);
  LayoutFlags& flags = arguments->flags;
  arguments->sampling = {
      verb->add_option("--fanout", flags.road.fanouts,
                       "neighbors to sample per layer, from the seeds outwards")
          ->delimiter(',')
          ->capture_default_str(),
      verb->add_option("--batch-size", flags.road.batch_size, "seed nodes a mini-batch")
          ->capture_default_str(),
      AddChoice(verb, "--direction", flags.road.direction, "along which edges neighbors send"),
      verb->add_option("--seed", flags.road.seed, "of order and samples")->capture_default_str(),
      verb->add_option("--epochs-planned", flags.epochs, "epochs to sample")->capture_default_str(),
      verb->add_option("--threads", flags.threads, "default: processors"),
      verb->add_option("--memory", arguments->memory,
                       "cap on what the engine holds (default 80% of what the machine or cgroup allows)")};
  verb->footer("Example: quarry plot cache db/ --fanout 10,15,20 --batch-size 1024 -o cache.svg");
  verb->callback([arguments, &action] {
    action = [arguments] { return DrawPicture(arguments->output, [&] { return Compose(*arguments); }); };
  });
}

}  // namespace quarry::cli
