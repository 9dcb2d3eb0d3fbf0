// Pictures by gnuplot, a program of its own that reads a script and needs no display. It is told numbers, and
// texts through Quoted alone, so that nothing from a file is code to it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quarry/base/status.h"

namespace quarry::cli {

// What a script draws, without the terminal and the common looks, which DrawPicture sets before it.
struct Picture {
  int width = 1000, height = 560;  // in SVG's pixels; a PNG has twice as many
  std::string script;
};

// Composes a picture and draws it into `path`, as SVG or PNG by its ending. Drawn beside it and renamed: what
// was there before stays until the new picture is whole. Before anything is composed: kUsage for another
// ending, kNotFound without gnuplot.
Status DrawPicture(const std::string& path, const std::function<Result<Picture>()>& compose);

// `text` as a string of gnuplot's: in single quotes, where nothing but the quote itself is special, which
// becomes a typographic one. What no picture can show (control characters, bytes that are not UTF-8) becomes
// a space or a question mark, and of a long text the end is shown.
std::string Quoted(std::string_view text);

// As Quoted, for a label at a tic, where % begins a format.
std::string QuotedTic(std::string_view text);

// Colours that the colour-blind can tell apart (Okabe and Ito), the first ones best.
inline constexpr std::string_view kColours[] = {"#0072B2", "#D55E00", "#009E73", "#E69F00",
                                                "#CC79A7", "#56B4E9", "#404040"};

struct LegendEntry {
  std::string name;
  std::string colour;
};

// Puts a legend below the only plot of a picture, which gets higher by it. gnuplot's own drops entries that
// it finds no room for.
void AddLegendBelow(const std::vector<LegendEntry>& entries, Picture& picture);

// Curves that are drawn together. Curve i has the colour of entry i of the legend.
struct Panel {
  std::string x_label, y_label;
  std::string axes;  // commands that set ranges and tics
  std::vector<std::vector<std::pair<double, double>>> curves;
};

inline constexpr size_t kCurvesMax = 21;  // colours times dashes

// Panels side by side, with one legend below. REQUIRES: at most kCurvesMax entries, and in each panel as many
// curves, of which some may be empty but not all.
Picture DrawCurves(std::string_view title, const std::vector<std::string>& legend,
                   const std::vector<Panel>& panels);

}  // namespace quarry::cli
