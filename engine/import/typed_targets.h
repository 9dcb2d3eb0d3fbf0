// Targets of nodes of several types, as one table of all nodes. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/import/dataset.h"

namespace quarry {

// Rows of all nodes in their order, NaN for those of types without; null where no type has any. The types outlive it.
// kInvalidArgument where they differ in columns or elements, or a type has more rows or fewer than nodes.
Result<std::unique_ptr<RowReader>> JoinTargets(std::span<const NodeTypeInput> types);

}  // namespace quarry
