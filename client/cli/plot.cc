// quarry plot KIND INPUT.. -o FILE: pictures of what other verbs print.
#include "plot.h"

namespace quarry::cli {

void AddOutput(CLI::App& verb, std::string& path) {
  verb.add_option("-o,--output", path, "the picture: FILE.svg or FILE.png")->type_name("FILE")->required();
}

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
