// Rows that a client puts: checked as every other door of the database checks them. Pure functions.
#pragma once

#include <span>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/format/wire_requests.h"
#include "quarry/storage/deltas.h"

namespace quarry {

// Adds the rows of one table, whose ids and bytes are `block` (docs/protocol.md, "Rows of a put"). kNotFound
// lists what there is; kInvalidArgument names the row: beyond the table, of other bytes than the table's,
// with an element that is NaN or infinite, a label or a split that cannot be.
Status AddPutRows(const Manifest& manifest, const wire::PutRows& rows, std::span<const std::byte> block,
                  WriteBatch& batch);

}  // namespace quarry
