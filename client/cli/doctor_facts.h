// What `quarry doctor` asks of the machine that it runs on.
#pragma once

#include <string>

#include "doctor_findings.h"
#include "quarry/base/status.h"

namespace quarry::cli {

MachineFacts AskMachine();

// The path of a program; empty where none of this name is on the PATH.
std::string FindProgram(const std::string& name);

// Asks about a folder; makes a nameless file in it and leaves nothing behind. kNotFound when there is none.
Result<PlaceFacts> AskPlace(const std::string& path);

}  // namespace quarry::cli
