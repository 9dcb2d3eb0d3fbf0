// What `quarry repair` and `quarry verify --repair` do.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/verify/repair.h"

namespace quarry::cli {

struct RepairArguments {
  std::string path;
  RepairOptions options;
  bool json = false;
};

// Verifies the database, does what can be done about the faults, and prints both. kCorruption when it is not
// sound afterwards.
Status Repair(const RepairArguments& arguments);

}  // namespace quarry::cli
