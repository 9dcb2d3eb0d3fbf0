// quarry plot explain: seconds of reading an epoch, predicted beside measured, of `quarry layout explain
// --json` and of runs from a layout as `quarry train --json` prints them.
#include <algorithm>

#include "plot.h"
#include "plot_gnuplot.h"
#include "plot_json.h"

namespace quarry::cli {
namespace {

constexpr size_t kBarsMax = 100;

struct ExplainArguments {
  std::vector<std::string> paths;
  std::string output;
};

// A way of reading an epoch, or a run. Seconds an epoch.
struct Bar {
  std::string label;
  double predicted = 0;
  double packing = 0;  // an epoch's share of what is paid once
  std::optional<double> measured;
};

// Whether the layout is this way of reading.
bool IsOwn(const nlohmann::json& explained, const nlohmann::json& path) {
  const auto own = explained.find("predicted");
  return own != explained.end() && own->is_object() && own->contains("path") && own->contains("policy") &&
         (*own)["path"] == path["path"] && (*own)["policy"] == path["policy"];
}

// The ways of reading that `layout explain` compares; what was measured stands beside the layout's own.
Result<std::vector<Bar>> BarsOfLayout(const JsonObject& object, double& epochs) {
  const nlohmann::json& json = object.value;
  QUARRY_TRY(epochs, NeedNumber(json, object.place, "epochs"));
  QUARRY_TRY(const std::vector<JsonObject> paths, NeedObjects(json, object.place, "paths"));
  std::vector<Bar> bars;
  for (const JsonObject& path : paths) {
    QUARRY_TRY(const std::string name, NeedText(path.value, path.place, "path"));
    QUARRY_TRY(const std::string policy, NeedText(path.value, path.place, "policy"));
    Bar bar{.label = name + ", " + policy};
    QUARRY_TRY(bar.predicted, NeedNumber(path.value, path.place, "seconds_per_epoch"));
    QUARRY_TRY(const double amortised, NeedNumber(path.value, path.place, "amortised_seconds_per_epoch"));
    bar.packing = std::max(0.0, amortised - bar.predicted);
    if (const auto measured = json.find("measured");
        measured != json.end() && measured->is_object() && IsOwn(json, path.value)) {
      QUARRY_TRY(bar.measured, NeedNumber(*measured, object.place, "seconds_per_epoch"));
    }
    bars.push_back(std::move(bar));
  }
  return bars;
}

// A run from a layout: what the layout promised, and what its epochs took on average.
Result<Bar> BarOfRun(const std::string& path, const std::vector<JsonObject>& objects) {
  Bar bar{.label = path};
  double seconds = 0;
  size_t epochs = 0;
  for (const JsonObject& object : objects) {
    if (object.value.contains("summary")) continue;
    QUARRY_TRY(const std::optional<double> predicted,
               NumberIn(object.value, object.place, "predicted_seconds"));
    if (!predicted) {
      return MakeStatus(
          Code::kInvalidArgument,
          "{}: no \"predicted_seconds\": only training from a layout (`quarry train --plan`) and "
          "`quarry layout explain --json` tell what was predicted",
          object.place);
    }
    bar.predicted = *predicted;
    QUARRY_TRY(const double epoch_seconds, NeedNumber(object.value, object.place, "extract_seconds"));
    seconds += epoch_seconds;
    epochs++;
  }
  if (epochs == 0) return MakeStatus(Code::kInvalidArgument, "{}: no epoch in it", path);
  bar.measured = seconds / static_cast<double>(epochs);
  return bar;
}

struct Bars {
  std::vector<Bar> bars;
  double epochs = 0;  // over which packing is spread; 0: nothing is packed here
};

Result<Bars> ReadBars(const std::vector<std::string>& paths) {
  Bars all;
  for (const std::string& path : paths) {
    QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(path));
    if (!objects.front().value.contains("paths")) {
      QUARRY_TRY(Bar bar, BarOfRun(path, objects));
      all.bars.push_back(std::move(bar));
      continue;
    }
    QUARRY_TRY(const std::vector<Bar> bars, BarsOfLayout(objects.front(), all.epochs));
    for (Bar bar : bars) {
      if (paths.size() > 1) bar.label = path + ": " + bar.label;
      all.bars.push_back(std::move(bar));
    }
  }
  if (all.bars.empty() || all.bars.size() > kBarsMax) {
    return MakeStatus(Code::kInvalidArgument, "{}: {} bars, and a picture has 1 to {}", paths.front(),
                      all.bars.size(), kBarsMax);
  }
  return all;
}

// As gnuplot's data and tics.
struct Rows {
  std::string predicted, packing, measured, labels, tics;
  double longest = 0;
};

Rows RowsOf(const std::vector<Bar>& bars) {
  constexpr double kHalf = 0.36;  // of a row's height
  Rows rows;
  const auto box = [](double from, double to, double low, double high) {
    return fmt::format("{} {} {} {} {} {}\n", from, low, from, to, low, high);
  };
  const auto label = [](double seconds, double middle) { return fmt::format("{} {}\n", seconds, middle); };
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double end = bar.predicted + bar.packing;
    const double row = static_cast<double>(i);
    const double low = row - kHalf;
    const double high = bar.measured ? row : row + kHalf;  // alone, a bar takes the place of both
    rows.predicted += box(0, bar.predicted, low, high);
    if (bar.packing > 0) rows.packing += box(bar.predicted, end, low, high);
    rows.labels += label(end, (low + high) / 2);
    if (bar.measured) {
      rows.measured += box(0, *bar.measured, row, row + kHalf);
      rows.labels += label(*bar.measured, row + kHalf / 2);
    }
    rows.tics += fmt::format("{}{} {}", i == 0 ? "" : ", ", QuotedTic(bar.label), i);
    rows.longest = std::max({rows.longest, end, bar.measured.value_or(0)});
  }
  return rows;
}

// Bars lie on their side, so that their names can be read.
Result<Picture> Compose(const ExplainArguments& arguments) {
  QUARRY_TRY(const Bars all, ReadBars(arguments.paths));
  const Rows rows = RowsOf(all.bars);
  Picture picture{.width = 1000, .height = 110 + 44 * static_cast<int>(all.bars.size())};
  std::string plots;
  std::vector<LegendEntry> legend;
  const auto add = [&](std::string_view name, const std::string& data, const std::string& title,
                       std::string_view colour) {
    if (data.empty()) return;
    picture.script += fmt::format("${} << EOD\n{}EOD\n", name, data);
    plots += fmt::format("${} using 1:2:3:4:5:6 with boxxyerror lc rgb '{}' notitle, ", name, colour);
    legend.push_back({title, std::string(colour)});
  };
  add("predicted", rows.predicted, "predicted", kColours[0]);
  add("packing", rows.packing, fmt::format("packing, spread over {} epochs", all.epochs), "#9CC9E3");
  add("measured", rows.measured, "measured", kColours[1]);
  AddLegendBelow(legend, picture);
  picture.script += fmt::format(
      "$labels << EOD\n{}EOD\n"
      "set title 'Reading an epoch: predicted and measured'\n"
      "set xlabel 'seconds an epoch'\n"
      "set xrange [0:{}]\nset yrange [{}:-0.6]\nset ytics scale 0 ({})\nset grid noytics\n"
      "plot {}$labels using 1:2:(sprintf('%.3g s', $1)) with labels left offset 0.5,0 tc rgb '#303030' "
      "notitle\n",
      rows.labels, rows.longest > 0 ? 1.12 * rows.longest : 1, static_cast<double>(all.bars.size()) - 0.4,
      rows.tics, plots);
  return picture;
}

Status Run(const ExplainArguments& arguments) {
  return DrawPicture(arguments.output, [&] { return Compose(arguments); });
}

}  // namespace

void AddPlotExplain(CLI::App& plot, Action& action) {
  auto arguments = std::make_shared<ExplainArguments>();
  CLI::App* const verb =
      plot.add_subcommand("explain", "seconds of reading an epoch, predicted beside measured");
  verb->add_option("FILE.json", arguments->paths,
                   "what `quarry layout explain --json` printed, or `quarry train --plan --json`")
      ->required();
  AddOutput(*verb, arguments->output);
  verb->footer("Example: quarry layout explain db/ --json | quarry plot explain /dev/stdin -o layout.svg");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
