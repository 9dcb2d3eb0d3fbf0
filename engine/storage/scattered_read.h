// Rows of a table from here and there, by merged requests: for what is too little for a pipeline of its own.
// Private to this room.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/storage/feature_table.h"

namespace quarry {

// Calls put(i, row) for each of `rows` (ascending), in any order, with the row as encoded, verified, valid
// during the call. Holds up to 64 requests of 256 KiB, or of a row where that is larger.
Status ReadScattered(IoBackend& backend, const FeatureTable& table, std::span<const uint64_t> rows,
                     const std::function<void(size_t, std::span<const std::byte>)>& put);

}  // namespace quarry
