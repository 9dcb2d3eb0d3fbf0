// quarry plot KIND: the kinds of pictures that read more than JSON, which have a file each.
#pragma once

#include "cli.h"

namespace quarry::cli {

void AddPlotCache(CLI::App& plot, Action& action);
void AddPlotTimeline(CLI::App& plot, Action& action);

// The picture's path, which every kind needs.
void AddOutput(CLI::App& verb, std::string& path);

}  // namespace quarry::cli
