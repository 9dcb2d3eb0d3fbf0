// Pictures by gnuplot, a program of its own that reads a script and needs no display: what is drawn, as a table
// of panels and series, and the one writer of scripts. Texts reach gnuplot in Quoted alone, so that nothing
// from a file is code to it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/status.h"

namespace quarry::cli {

// Colours that the colour-blind can tell apart (Okabe and Ito), the first ones best.
inline constexpr std::string_view kColours[] = {"#0072B2", "#D55E00", "#009E73", "#E69F00",
                                                "#CC79A7", "#56B4E9", "#404040"};
inline constexpr size_t kCurvesMax = 21;  // colours times dashes

struct Series {
  std::string rows;  // numbers, a line each
  std::string look;  // how they are drawn, in gnuplot's words
};

using Points = std::vector<std::pair<double, double>>;
std::string CurveLook(size_t curve);
Series CurveSeries(size_t curve, const Points& points);

std::string BoxLook(std::string_view colour);
// A row of a series that has it.
std::string BoxRow(double from, double to, double low, double high);

struct Panel {
  std::string x_label, y_label;
  std::string axes;  // commands that set ranges and tics
  std::vector<Series> series;
};

// Panels side by side above one legend.
struct Picture {
  std::string title;
  int width = 800, height = 470;  // in SVG's pixels, without the legend; a PNG has twice as many
  struct LegendEntry {
    std::string name, look;
  };
  std::vector<LegendEntry> legend;
  std::vector<Panel> panels;
};

// Composes a picture and draws it into `path`, as SVG or PNG by its ending. Drawn beside it and renamed: what
// was there before stays until the new picture is whole. Before anything is composed: kUsage for another
// ending, kNotFound without gnuplot.
Status DrawPicture(const std::string& path, const std::function<Result<Picture>()>& compose);

// `text` as a string of gnuplot's: in single quotes, where nothing but the quote itself is special, which
// becomes a typographic one. What no picture can show (control characters, bytes that are not UTF-8) becomes
// a space or a question mark, and of a long text the end is shown.
std::string Quoted(std::string_view text);

// Axes of bars that lie on their side, one below the other, each with its name.
std::string NamedRows(const std::vector<std::string>& names);

}  // namespace quarry::cli
