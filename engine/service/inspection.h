// What a database tells of itself beyond its manifest. Private to this room.
#pragma once

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"

namespace quarry {

// As wire::InspectDatabase says. Reads the splits, front to back. kCorruption, kIoError, kOutOfBudget.
Result<wire::MaintenanceReport> Inspect(Store& store, MemoryBudget& budget);

}  // namespace quarry
