// quarry plot KIND: pictures by gnuplot, a program of its own that reads a script and needs no display. A kind
// composes a Picture; plot_picture.cc alone writes scripts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"

namespace quarry::cli {

// Panels side by side above one legend. Texts may hold any bytes; styles and axes are gnuplot's own words.
struct Picture {
  struct Look {
    std::string name;   // in the legend; empty: not there
    std::string style;  // "with ..."
  };
  struct Series {
    size_t look = 0;   // of `looks`
    std::string rows;  // numbers, a line each; a series without any is not drawn
  };
  struct Panel {
    std::string x_label, y_label;
    std::string axes;  // commands that set ranges and tics
    std::vector<Series> series;
  };
  std::string title;
  int width = 800, height = 470;  // SVG's pixels, without the legend; a PNG has twice as many
  std::vector<Look> looks;
  std::vector<Panel> panels;
};

// Colours that the colour-blind can tell apart (Okabe and Ito), the first ones best. Yellow, the last, is too
// pale for a curve but not for an area.
inline constexpr std::string_view kColours[] = {"#0072B2", "#D55E00", "#009E73", "#E69F00",
                                                "#CC79A7", "#56B4E9", "#404040", "#F0E442"};

// Boxes: their style, a row of a series of them, and the axis of rows with names, the first on top.
std::string BoxStyle(std::string_view colour);
std::string BoxRow(double from, double to, double low, double high);
std::string NamedRows(const std::vector<std::string>& names);

// Adds the verb of a kind, whose picture goes into --output: SVG or PNG by its ending, drawn beside it and
// renamed, so that what was there stays until the new picture is whole. Before `compose` is called: kUsage for
// another ending, kNotFound without gnuplot.
CLI::App* AddKind(CLI::App& plot, const std::string& name, const std::string& description, Action& action,
                  std::function<Result<Picture>()> compose);

void AddPlotTimeline(CLI::App& plot, Action& action);

}  // namespace quarry::cli
