// The settings of a training run, which its checkpoints remember: a run that goes on must be given the same.
#pragma once

#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

// Both as "--option value --option value"; a value may hold blanks. kUsage names the first option that
// differs, with both values.
Status CheckSettings(std::string_view run, std::string_view stored, std::string_view given);

// The value of an option in the same text; empty where it is not there.
std::string_view SettingIn(std::string_view settings, std::string_view option);

}  // namespace quarry
