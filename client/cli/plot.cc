// quarry plot KIND INPUT.. -o FILE: pictures of what other verbs print.
#include "plot.h"

#include <algorithm>
#include <cmath>

#include "plot_json.h"
#include "quarry/format/road_spec.h"

namespace quarry::cli {
namespace {

constexpr size_t kCurveColours = std::size(kColours) - 1;
constexpr int kDashes[] = {1, 2, 4};  // come after all colours
constexpr size_t kCurvesMax = kCurveColours * std::size(kDashes);

using Points = std::vector<std::pair<double, double>>;

// Points mark the measurements where they are not too many.
Picture::Look CurveLook(const std::string& name, size_t curve, size_t points) {
  return {name,
          fmt::format("with linespoints lc rgb '{}' dt {} lw 2 pt 7 ps 0.5 pointinterval {}",
                      kColours[curve % kCurveColours], kDashes[curve / kCurveColours], 1 + points / 25)};
}

std::string RowsOf(const Points& points) {
  std::string rows;
  for (const auto& [x, y] : points) rows += fmt::format("{} {}\n", x, y);
  return rows;
}

// ---- training: loss and validation by epoch, of runs as `quarry train --json` prints them

// A panel for each of these that a run has: loss always, then what the run is validated by.
constexpr std::pair<const char*, const char*> kTrainingPanels[] = {
    {"loss", "training loss"},         {"valid_accuracy", "validation accuracy"},
    {"valid_auc", "validation AUC"},   {"valid_micro_f1", "validation micro-F1"},
    {"valid_rmse", "validation RMSE"}, {"valid_mrr", "validation MRR (filtered)"}};

Result<Points> ReadCurve(const std::vector<JsonObject>& run, const char* field) {
  Points curve;
  for (const JsonObject& object : run) {
    if (object.value.contains("summary")) continue;
    QUARRY_TRY(const double epoch, object.Get<double>("epoch"));
    QUARRY_TRY(const std::optional<double> value, object.NumberIfAny(field));
    if (value) curve.emplace_back(epoch, *value);
  }
  return curve;
}

Result<Picture> ComposeTraining(const std::vector<std::string>& paths) {
  if (paths.size() > kCurvesMax) {
    return MakeStatus(Code::kUsage, "{} runs: a picture has room for {}", paths.size(), kCurvesMax);
  }
  Picture picture{.title = "Training"};
  std::vector<std::vector<JsonObject>> runs;
  for (const std::string& path : paths) {
    QUARRY_TRY(std::vector<JsonObject> run, ReadObjects(path));
    picture.looks.push_back(CurveLook(path, runs.size(), run.size()));
    runs.push_back(std::move(run));
  }
  for (const auto& [field, label] : kTrainingPanels) {
    Picture::Panel panel{.x_label = "epoch", .y_label = label};
    Points all;
    for (size_t i = 0; i < runs.size(); ++i) {
      QUARRY_TRY(const Points curve, ReadCurve(runs[i], field));
      if (curve.empty() && picture.panels.empty()) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: no epoch with a loss; `quarry train --json` prints one a line", paths[i]);
      }
      panel.series.push_back({i, RowsOf(curve)});
      all.insert(all.end(), curve.begin(), curve.end());
    }
    if (all.empty()) continue;
    // A tic an epoch where they are few: gnuplot would put some between them.
    const double first = std::ranges::min(all).first, last = std::ranges::max(all).first;
    const double room = std::max(0.5, (last - first) / 50);
    panel.axes = fmt::format("set xrange [{}:{}]\nset xtics {}", first - room, last + room,
                             last - first <= 12 ? "1" : "autofreq");
    picture.panels.push_back(std::move(panel));
  }
  if (picture.panels.size() > 1) picture.width = 560 * static_cast<int>(picture.panels.size());
  return picture;
}

// ---- explain: seconds of reading an epoch, predicted beside measured, of `quarry layout explain --json`

// A way of reading an epoch. Seconds an epoch.
struct Reading {
  std::string label;
  double predicted = 0;
  double packing = 0;  // an epoch's share of what is paid once
  std::optional<double> measured;
};

// The ways of reading that `layout explain` compares; what was measured stands beside the layout's own.
Status AddLayout(const JsonObject& explained, const std::string& prefix, std::vector<Reading>& readings) {
  QUARRY_TRY(const std::vector<JsonObject> ways, explained.Objects("paths"));
  const nlohmann::json own = explained.value.value("predicted", nlohmann::json());
  const JsonObject measured{explained.value.value("measured", nlohmann::json()), explained.place};
  for (const JsonObject& way : ways) {
    QUARRY_TRY(const auto path, way.Get<std::string>("path"));
    QUARRY_TRY(const auto policy, way.Get<std::string>("policy"));
    QUARRY_TRY(const double predicted, way.Get<double>("seconds_per_epoch"));
    QUARRY_TRY(const double amortised, way.Get<double>("amortised_seconds_per_epoch"));
    readings.push_back({.label = fmt::format("{}{}, {}", prefix, path, policy),
                        .predicted = predicted,
                        .packing = std::max(0.0, amortised - predicted)});
    if (way.value != own || measured.value.is_null()) continue;
    QUARRY_TRY(readings.back().measured, measured.Get<double>("seconds_per_epoch"));
  }
  return Status::Ok();
}

// Where bars begin: at 0, or, where the longest would leave the others as slivers, on a logarithmic axis, somewhat before
// the end of the shortest.
double BarsBegin(const std::vector<Reading>& readings) {
  constexpr double kSlivers = 20, kBefore = 3;
  double longest = 0, shortest = HUGE_VAL;
  for (const Reading& bar : readings) {
    longest = std::max({longest, bar.predicted + bar.packing, bar.measured.value_or(0)});
    shortest = std::min({shortest, bar.predicted, bar.measured.value_or(bar.predicted)});
  }
  return shortest > 0 && longest > kSlivers * shortest ? shortest / kBefore : 0;
}

// Bars lie on their side, so that their names can be read.
Picture PictureOf(const std::vector<Reading>& readings, double epochs) {
  constexpr double kHalf = 0.36;  // of a row's height
  std::string predicted, packing, measured, texts;
  std::vector<std::string> names;
  double longest = 0;
  const double begin = BarsBegin(readings);
  for (const Reading& bar : readings) {
    const double end = bar.predicted + bar.packing;
    const auto row = static_cast<double>(names.size());
    const double high = bar.measured ? row : row + kHalf;  // alone, a bar takes the place of both
    predicted += BoxRow(begin, bar.predicted, row - kHalf, high);
    if (bar.packing > 0) packing += BoxRow(bar.predicted, end, row - kHalf, high);
    texts += fmt::format("{} {}\n", end, (row - kHalf + high) / 2);
    if (bar.measured) {
      measured += BoxRow(begin, *bar.measured, row, row + kHalf);
      texts += fmt::format("{} {}\n", *bar.measured, row + kHalf / 2);
    }
    names.push_back(bar.label);
    longest = std::max({longest, end, bar.measured.value_or(0)});
  }
  Picture picture{.title = "Reading an epoch: predicted and measured",
                  .width = 1000,
                  .height = 110 + 44 * static_cast<int>(readings.size())};
  Picture::Panel panel{
      .x_label = begin > 0 ? "seconds an epoch, on a logarithmic scale" : "seconds an epoch",
      .axes = fmt::format("{}set xrange [{}:{}]\n{}", begin > 0 ? "set logscale x\n" : "", begin,
                          begin > 0     ? 2 * longest
                          : longest > 0 ? 1.12 * longest
                                        : 1,
                          NamedRows(names))};
  const auto add = [&](const std::string& name, const std::string& style, const std::string& rows) {
    if (rows.empty()) return;
    panel.series.push_back({picture.looks.size(), rows});
    picture.looks.push_back({name, style});
  };
  add("predicted", BoxStyle(kColours[0]), predicted);
  add(fmt::format("packing, spread over {} epochs", epochs), BoxStyle("#9CC9E3"), packing);
  add("measured", BoxStyle(kColours[1]), measured);
  add("", "using 1:2:(sprintf('%.3g s', $1)) with labels left offset 0.5,0 tc rgb '#303030'", texts);
  picture.panels.push_back(std::move(panel));
  return picture;
}

Result<Picture> ComposeExplain(const std::vector<std::string>& paths) {
  constexpr size_t kBarsMax = 100;
  std::vector<Reading> readings;
  double epochs = 0;  // over which packing is spread
  for (const std::string& path : paths) {
    QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(path));
    QUARRY_TRY(epochs, objects.front().Get<double>("epochs"));
    QUARRY_RETURN_IF_ERROR(AddLayout(objects.front(), paths.size() > 1 ? path + ": " : "", readings));
  }
  if (!readings.empty() && readings.size() <= kBarsMax) return PictureOf(readings, epochs);
  return MakeStatus(Code::kInvalidArgument, "{}: {} bars, and a picture has 1 to {}", paths.front(),
                    readings.size(), kBarsMax);
}

// ---- cache: hit ratio by memory and policy, as `quarry layout trace --json` prints them

Result<Picture> ComposeCache(const std::string& path) {
  QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(path));
  const JsonObject& traced = objects.front();
  QUARRY_TRY(const double nodes, traced.Get<double>("nodes"));
  QUARRY_TRY(const std::vector<JsonObject> sizes, traced.Objects("hit_ratios"));
  if (sizes.empty() || nodes <= 0) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} nodes and {} sizes of memory: nothing to draw",
                      traced.place, nodes, sizes.size());
  }
  Picture picture{.title = "Rows found in memory, by what memory holds"};
  Picture::Panel panel{.x_label = "memory (% of the rows)",
                       .y_label = "hit ratio (share of the accesses)",
                       .axes = "set xrange [0:*]\nset yrange [0:1]"};
  // The first is `none`, whose ratio is 0; the last misses least, and comes first.
  static_assert(kAllPolicies[0] == PolicyKind::kNone);
  for (size_t policy = std::size(kAllPolicies) - 1; policy > 0; --policy) {
    const std::string name(NameOf(kAllPolicies[policy]));
    Points curve;
    for (const JsonObject& size : sizes) {
      QUARRY_TRY(const double rows, size.Get<double>("cache_rows"));
      QUARRY_TRY(const double ratio, size.Get<double>(name.c_str()));
      curve.emplace_back(100 * rows / nodes, ratio);
    }
    std::ranges::sort(curve);
    panel.series.push_back({picture.looks.size(), RowsOf(curve)});
    picture.looks.push_back(CurveLook(name, picture.looks.size(), curve.size()));
  }
  picture.panels.push_back(std::move(panel));
  return picture;
}

// ---- the verbs

void AddPlotTraining(CLI::App& plot, Action& action) {
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* const verb = AddKind(plot, "training", "loss and validation by epoch, of one run or several",
                                 action, [paths] { return ComposeTraining(*paths); });
  verb->add_option("RUN.json", *paths, "what `quarry train --json` printed")->required();
  verb->footer("Example: quarry plot training live.json planned.json -o runs.svg");
}

void AddPlotExplain(CLI::App& plot, Action& action) {
  auto paths = std::make_shared<std::vector<std::string>>();
  CLI::App* const verb = AddKind(plot, "explain", "seconds of reading an epoch, predicted beside measured",
                                 action, [paths] { return ComposeExplain(*paths); });
  verb->add_option("FILE.json", *paths, "what `quarry layout explain --json` printed")->required();
  verb->footer("Example: quarry layout explain db/ --json | quarry plot explain /dev/stdin -o layout.svg");
}

void AddPlotCache(CLI::App& plot, Action& action) {
  auto path = std::make_shared<std::string>();
  CLI::App* const verb = AddKind(plot, "cache", "hit ratio by memory and policy", action,
                                 [path] { return ComposeCache(*path); });
  verb->add_option("TRACE.json", *path, "what `quarry layout trace --json` printed")->required();
  verb->footer("Example: quarry layout trace db/ --json | quarry plot cache /dev/stdin -o cache.svg");
}

}  // namespace

void AddPlot(CLI::App& app, Action& action) {
  CLI::App* const plot = app.add_subcommand("plot", "draw what other verbs print, as SVG or PNG");
  plot->require_subcommand(1);
  plot->footer(
      "Needs gnuplot (Debian, Ubuntu: gnuplot-nox) and no display.\n"
      "Example: quarry train db/ --json > run.json; quarry plot training run.json -o run.svg");
  AddPlotTraining(*plot, action);
  AddPlotCache(*plot, action);
  AddPlotExplain(*plot, action);
  AddPlotTimeline(*plot, action);
}

}  // namespace quarry::cli
