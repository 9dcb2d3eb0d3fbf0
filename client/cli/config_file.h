// --config FILE: options from a file in TOML, a section for each verb; and what a command ran with, as such a
// file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "quarry/base/status.h"

namespace quarry::cli {

// The two options of the application. Those of the command line count where the file has them too; a key that
// no verb has is refused, whatever verb runs.
void AddConfig(CLI::App& app, std::string& save_path);

// The section of the verb that was chosen: what was given, and as comments the defaults of all else. (Were
// they given, verbs would refuse those that do not go together.)
std::string EffectiveConfig(const CLI::App& app);

// Writes it to the file. kIoError and so on name the file; a file that is there is replaced.
Status SaveConfig(const CLI::App& app, const std::string& path);

}  // namespace quarry::cli
