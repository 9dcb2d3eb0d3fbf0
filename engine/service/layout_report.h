// What is told about a layout besides its record: the price of an epoch by each way of reading it, and what its
// access trace says of nodes and caches. Private to this room.
#pragma once

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"

namespace quarry {

// Both read the trace, and leave a scratch file in layouts/ while they are at it. kNotFound, kOutOfBudget with the
// least that would do, kCorruption, kIoError; kCancelled when `progress` says so. At most one at a time in a
// database.
Result<wire::MaintenanceReport> ExplainLayout(Store& store, MemoryBudget& budget,
                                              const wire::ExplainLayout& explain,
                                              const ProgressFunction& progress);
Result<wire::MaintenanceReport> TraceLayout(Store& store, MemoryBudget& budget,
                                            const wire::TraceLayout& trace, const ProgressFunction& progress);

}  // namespace quarry
