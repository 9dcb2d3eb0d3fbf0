// Measuring what one core does with bytes that were read. Private to this room.
#pragma once

#include <cstdint>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/manifest.h"

namespace quarry {

// Checksums of rows, copies of rows to scattered places, and decoding of planned blocks, a tenth of a second each on
// this thread; request_seconds is left at 0, since it is measured with the device. Holds 64 MiB of the budget, or what
// it has; kOutOfBudget below a row twice.
Result<CoreRates> MeasureCoreRates(MemoryBudget& budget, uint64_t row_bytes);

}  // namespace quarry
