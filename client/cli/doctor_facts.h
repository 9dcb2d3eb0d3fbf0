// What `quarry doctor` asks of the machine that it runs on.
#pragma once

#include <string>

#include "doctor_findings.h"
#include "quarry/base/status.h"

namespace quarry::cli {

MachineFacts AskMachine();

// Of a folder; makes a file without a name in it, and leaves nothing behind. kNotFound when there is none.
Result<PlaceFacts> AskPlace(const std::string& path);

}  // namespace quarry::cli
