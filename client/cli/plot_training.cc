// quarry plot training: loss and validation by epoch, of runs as `quarry train --json` prints them.
#include <algorithm>
#include <array>

#include "plot.h"
#include "plot_gnuplot.h"
#include "plot_json.h"

namespace quarry::cli {
namespace {

struct TrainingArguments {
  std::vector<std::string> paths;
  std::string output;
};

struct Field {
  std::string name, label;
};

// What is drawn where a run has it: loss always, then what the run is validated by.
const std::array<Field, 4>& Fields() {
  static const std::array<Field, 4> fields = {{{"loss", "training loss"},
                                               {"valid_accuracy", "validation accuracy"},
                                               {"valid_auc", "validation AUC"},
                                               {"valid_mrr", "validation MRR (filtered)"}}};
  return fields;
}

// A panel a field, and in each the curve of this run.
Status AddRun(const std::string& path, std::vector<Panel>& panels) {
  QUARRY_TRY(const std::vector<JsonObject> objects, ReadObjects(path));
  for (Panel& panel : panels) panel.curves.emplace_back();
  size_t epochs = 0;
  for (const JsonObject& object : objects) {
    if (object.value.contains("summary")) continue;
    QUARRY_TRY(const double epoch, NeedNumber(object.value, object.place, "epoch"));
    epochs++;
    for (size_t i = 0; i < panels.size(); ++i) {
      QUARRY_TRY(const std::optional<double> value, NumberIn(object.value, object.place, Fields()[i].name));
      if (value) panels[i].curves.back().emplace_back(epoch, *value);
    }
  }
  if (epochs > 0 && !panels[0].curves.back().empty()) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument,
                    "{}: no epoch with a loss; `quarry train --json` prints one a line", path);
}

bool HasPoints(const Panel& panel) {
  return std::ranges::any_of(panel.curves, [](const auto& curve) { return !curve.empty(); });
}

// A tic an epoch where they are few: gnuplot would put some between them.
std::string AxesOf(const Panel& panel) {
  double first = panel.curves.front().empty() ? 1 : panel.curves.front().front().first;
  double last = first;
  for (const auto& curve : panel.curves) {
    for (const auto& point : curve) {
      first = std::min(first, point.first);
      last = std::max(last, point.first);
    }
  }
  const double room = std::max(0.5, (last - first) / 50);
  return fmt::format("set xrange [{}:{}]\nset xtics {}\n", first - room, last + room,
                     last - first <= 12 ? "1" : "autofreq");
}

Result<Picture> Compose(const TrainingArguments& arguments) {
  std::vector<Panel> panels;
  for (const Field& field : Fields()) panels.push_back({.x_label = "epoch", .y_label = field.label});
  for (const std::string& path : arguments.paths) QUARRY_RETURN_IF_ERROR(AddRun(path, panels));
  std::erase_if(panels, [](const Panel& panel) { return !HasPoints(panel); });
  for (Panel& panel : panels) panel.axes = AxesOf(panel);
  return DrawCurves("Training", arguments.paths, panels);
}

Status Run(const TrainingArguments& arguments) {
  if (arguments.paths.size() > kCurvesMax) {
    return MakeStatus(Code::kUsage, "{} runs: a picture has room for {}", arguments.paths.size(), kCurvesMax);
  }
  return DrawPicture(arguments.output, [&] { return Compose(arguments); });
}

}  // namespace

void AddPlotTraining(CLI::App& plot, Action& action) {
  auto arguments = std::make_shared<TrainingArguments>();
  CLI::App* const verb =
      plot.add_subcommand("training", "loss and validation by epoch, of one run or several");
  verb->add_option("RUN.json", arguments->paths, "what `quarry train --json` printed")->required();
  AddOutput(*verb, arguments->output);
  verb->footer("Example: quarry plot training live.json planned.json -o runs.svg");
  verb->callback([arguments, &action] { action = [arguments] { return Run(*arguments); }; });
}

}  // namespace quarry::cli
