// quarry plot KIND: one file per kind of picture (plot_training.cc, ...), each adding itself here.
#pragma once

#include "cli.h"

namespace quarry::cli {

void AddPlotTraining(CLI::App& plot, Action& action);
void AddPlotCache(CLI::App& plot, Action& action);
void AddPlotExplain(CLI::App& plot, Action& action);
void AddPlotTimeline(CLI::App& plot, Action& action);

// The picture's path, which every kind needs.
void AddOutput(CLI::App& verb, std::string& path);

}  // namespace quarry::cli
