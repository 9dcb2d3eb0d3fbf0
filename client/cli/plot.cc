// quarry plot KIND INPUT.. -o FILE: pictures of what other verbs print.
#include "plot.h"

#include <algorithm>
#include <cmath>

#include "plot_json.h"
#include "plot_picture.h"

namespace quarry::cli {
namespace {

struct PlotArguments {
  std::vector<std::string> paths;
  std::string output;
};

// ---- training: loss and validation by epoch, of runs as `quarry train --json` prints them

// What is drawn where a run has it: loss always, then what the run is validated by.
struct TrainingField {
  const char *name, *label;
};
constexpr TrainingField kTrainingFields[] = {{"loss", "training loss"},
                                             {"valid_accuracy", "validation accuracy"},
                                             {"valid_auc", "validation AUC"},
                                             {"valid_mrr", "validation MRR (filtered)"}};

Result<Points> ReadCurve(const std::vector<JsonObject>& run, const std::string& field) {
  Points curve;
  for (const JsonObject& object : run) {
    if (object.value.contains("summary")) continue;
    QUARRY_TRY(const double epoch, object.Number("epoch"));
    QUARRY_TRY(const std::optional<double> value, object.NumberIfAny(field));
    if (value) curve.emplace_back(epoch, *value);
  }
  return curve;
}

// A tic an epoch where they are few: gnuplot would put some between them.
std::string EpochAxis(const std::vector<Points>& curves) {
  double first = HUGE_VAL, last = -HUGE_VAL;
  for (const Points& curve : curves) {
    for (const auto& [epoch, value] : curve) {
      first = std::min(first, epoch);
      last = std::max(last, epoch);
    }
  }
  const double room = std::max(0.5, (last - first) / 50);
  return fmt::format("set xrange [{}:{}]\nset xtics {}\n", first - room, last + room,
                     last - first <= 12 ? "1" : "autofreq");
}

Result<Picture> ComposeTraining(const std::vector<std::string>& paths) {
  if (paths.size() > kCurvesMax) {
    return MakeStatus(Code::kUsage, "{} runs: a picture has room for {}", paths.size(), kCurvesMax);
  }
  Picture picture{.title = "Training"};
  std::vector<std::vector<JsonObject>> runs;
  for (const std::string& path : paths) {
    picture.legend.push_back({path, CurveLook(runs.size())});
    QUARRY_TRY(std::vector<JsonObject> run, ReadObjects(path));
    runs.push_back(std::move(run));
  }
  for (const auto& [name, label] : kTrainingFields) {
    Panel panel{.x_label = "epoch", .y_label = label};
    std::vector<Points> curves;
    for (size_t i = 0; i < runs.size(); ++i) {
      QUARRY_TRY(Points curve, ReadCurve(runs[i], name));
      if (curve.empty() && picture.panels.empty()) {
        return MakeStatus(Code::kInvalidArgument,
                          "{}: no epoch with a loss; `quarry train --json` prints one a line", paths[i]);
      }
      panel.series.push_back(CurveSeries(i, curve));
      curves.push_back(std::move(curve));
    }
    if (std::ranges::all_of(curves, [](const Points& curve) { return curve.empty(); })) continue;
    panel.axes = EpochAxis(curves);
    picture.panels.push_back(std::move(panel));
  }
  if (picture.panels.size() > 1) picture.width = 560 * static_cast<int>(picture.panels.size());
  return picture;
}

// ---- explain: seconds of reading an epoch, predicted beside measured, of `quarry layout explain --json` and
// of runs from a layout as `quarry train --json` prints them

constexpr size_t kBarsMax = 100;

// A way of reading an epoch, or a run. Seconds an epoch.
struct Bar {
  std::string label;
  double predicted = 0;
  double packing = 0;  // an epoch's share of what is paid once
  std::optional<double> measured;
};

struct Bars {
  std::vector<Bar> bars;
  double epochs = 0;  // over which packing is spread; 0: nothing is packed here
};

// The ways of reading that `layout explain` compares; what was measured stands beside the layout's own.
Status AddLayout(const JsonObject& explained, const std::string& prefix, Bars& all) {
  QUARRY_TRY(all.epochs, explained.Number("epochs"));
  QUARRY_TRY(const std::vector<JsonObject> ways, explained.Objects("paths"));
  const nlohmann::json own = explained.value.value("predicted", nlohmann::json());
  const JsonObject measured{explained.value.value("measured", nlohmann::json()), explained.place};
  for (const JsonObject& way : ways) {
    QUARRY_TRY(const std::string path, way.Text("path"));
    QUARRY_TRY(const std::string policy, way.Text("policy"));
    Bar bar{.label = prefix + path + ", " + policy};
    QUARRY_TRY(bar.predicted, way.Number("seconds_per_epoch"));
    QUARRY_TRY(const double amortised, way.Number("amortised_seconds_per_epoch"));
    bar.packing = std::max(0.0, amortised - bar.predicted);
    const bool is_own = own.is_object() && own.value("path", nlohmann::json()) == way.value["path"] &&
                        own.value("policy", nlohmann::json()) == way.value["policy"];
    if (is_own && measured.value.is_object()) {
      QUARRY_TRY(bar.measured, measured.Number("seconds_per_epoch"));
    }
    all.bars.push_back(std::move(bar));
  }
  return Status::Ok();
}

// A run from a layout: what the layout promised, and what its epochs took on average.
Status AddRun(const std::string& path, const std::vector<JsonObject>& objects, Bars& all) {
  Bar bar{.label = path};
  double seconds = 0, epochs = 0;
  for (const JsonObject& object : objects) {
    if (object.value.contains("summary")) continue;
    QUARRY_TRY(const std::optional<double> predicted, object.NumberIfAny("predicted_seconds"));
    if (!predicted) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: no \"predicted_seconds\": only training from a layout (`quarry train --plan`) and "
          "`quarry layout explain --json` tell what was predicted",
          object.place);
    }
    bar.predicted = *predicted;
    QUARRY_TRY(const double epoch_seconds, object.Number("extract_seconds"));
    seconds += epoch_seconds;
    epochs++;
  }
  if (epochs == 0) return MakeStatus(Code::kInvalidArgument, "{}: no epoch in it", path);
  bar.measured = seconds / epochs;
  all.bars.push_back(std::move(bar));
  return Status::Ok();
}

// Bars lie on their side, so that their names can be read.
Picture PictureOf(const Bars& all) {
  constexpr double kHalf = 0.36;  // of a row's height
  std::string predicted, packing, measured, seconds;
  std::vector<std::string> names;
  double longest = 0;
  for (const Bar& bar : all.bars) {
    const double end = bar.predicted + bar.packing;
    const auto row = static_cast<double>(names.size());
    const double low = row - kHalf;
    const double high = bar.measured ? row : row + kHalf;  // alone, a bar takes the place of both
    predicted += BoxRow(0, bar.predicted, low, high);
    if (bar.packing > 0) packing += BoxRow(bar.predicted, end, low, high);
    seconds += fmt::format("{} {}\n", end, (low + high) / 2);
    if (bar.measured) {
      measured += BoxRow(0, *bar.measured, row, row + kHalf);
      seconds += fmt::format("{} {}\n", *bar.measured, row + kHalf / 2);
    }
    names.push_back(bar.label);
    longest = std::max({longest, end, bar.measured.value_or(0)});
  }
  Picture picture{.title = "Reading an epoch: predicted and measured",
                  .width = 1000,
                  .height = 110 + 44 * static_cast<int>(all.bars.size())};
  Panel panel{
      .x_label = "seconds an epoch",
      .axes = fmt::format("set xrange [0:{}]\n{}", longest > 0 ? 1.12 * longest : 1, NamedRows(names))};
  const auto add = [&](const std::string& name, const std::string& rows, std::string_view colour) {
    if (rows.empty()) return;
    picture.legend.push_back({name, BoxLook(colour)});
    panel.series.push_back({rows, BoxLook(colour)});
  };
  add("predicted", predicted, kColours[0]);
  add(fmt::format("packing, spread over {} epochs", all.epochs), packing, "#9CC9E3");
  add("measured", measured, kColours[1]);
  panel.series.push_back(
      {seconds, "using 1:2:(sprintf('%.3g s', $1)) with labels left offset 0.5,0 tc rgb '#303030'"});
  picture.panels.push_back(std::move(panel));
  return picture;
}

Result<Picture> ComposeExplain(const std::vector<std::string>& paths) {
  Bars all;
  for (const std::string& path : paths) {
    QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(path));
    QUARRY_RETURN_IF_ERROR(objects.front().value.contains("paths")
                               ? AddLayout(objects.front(), paths.size() > 1 ? path + ": " : "", all)
                               : AddRun(path, objects, all));
  }
  if (!all.bars.empty() && all.bars.size() <= kBarsMax) return PictureOf(all);
  return MakeStatus(Code::kInvalidArgument, "{}: {} bars, and a picture has 1 to {}", paths.front(),
                    all.bars.size(), kBarsMax);
}

// ---- the verbs

struct Kind {
  const char *name, *description, *input, *input_description, *example;
  Result<Picture> (*compose)(const std::vector<std::string>& paths);
};
constexpr Kind kKinds[] = {
    {"training", "loss and validation by epoch, of one run or several", "RUN.json",
     "what `quarry train --json` printed", "quarry plot training live.json planned.json -o runs.svg",
     ComposeTraining},
    {"explain", "seconds of reading an epoch, predicted beside measured", "FILE.json",
     "what `quarry layout explain --json` printed, or `quarry train --plan --json`",
     "quarry layout explain db/ --json | quarry plot explain /dev/stdin -o layout.svg", ComposeExplain}};

void AddKind(CLI::App& plot, const Kind& kind, Action& action) {
  auto arguments = std::make_shared<PlotArguments>();
  CLI::App* const verb = plot.add_subcommand(kind.name, kind.description);
  verb->add_option(kind.input, arguments->paths, kind.input_description)->required();
  AddOutput(*verb, arguments->output);
  verb->footer(std::string("Example: ") + kind.example);
  verb->callback([arguments, &kind, &action] {
    action = [arguments, &kind] {
      return DrawPicture(arguments->output, [&] { return kind.compose(arguments->paths); });
    };
  });
}

}  // namespace

void AddOutput(CLI::App& verb, std::string& path) {
  verb.add_option("-o,--output", path, "the picture: FILE.svg or FILE.png")->type_name("FILE")->required();
}

void AddPlot(CLI::App& app, Action& action) {
  CLI::App* const plot = app.add_subcommand("plot", "draw what other verbs print, as SVG or PNG");
  plot->require_subcommand(1);
  plot->footer(
      "Needs gnuplot (Debian, Ubuntu: gnuplot-nox) and no display.\n"
      "Example: quarry train db/ --json > run.json; quarry plot training run.json -o run.svg");
  AddKind(*plot, kKinds[0], action);
  AddPlotCache(*plot, action);
  AddKind(*plot, kKinds[1], action);
  AddPlotTimeline(*plot, action);
}

}  // namespace quarry::cli
