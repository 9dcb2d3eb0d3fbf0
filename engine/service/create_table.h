// Making a table of a database that is there. Private to this room.
#pragma once

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/storage/store.h"

namespace quarry {

// Makes a table of a row of zeros for each node, nodes that are added meanwhile included. kAlreadyExists;
// kInvalidArgument for rows that cannot be, and for names that mean something else; kNoSpace; kCancelled when `progress`
// says so: then there is no such table.
Status CreateTable(Store& store, MemoryBudget& budget, const wire::CreateTable& create,
                   const ProgressFunction& progress);

}  // namespace quarry
