// --trace FILE: where the time of a long command goes, for Perfetto (quarry/base/trace.h).
#pragma once

#include <string>

#include "cli.h"

namespace quarry::cli {

// Adds the option to every long verb of `app`, and to theirs; the one that was chosen sets `path`.
void AddTrace(CLI::App& app, std::string& path);

// Does the action, and writes its trace to `file` whatever becomes of it; where a launcher of several
// trainers says which this one is, to `file`.RANK. Without a file only the former. One that cannot be made is
// an error before anything is done.
Status RunTraced(const std::string& file, const Action& action);

}  // namespace quarry::cli
