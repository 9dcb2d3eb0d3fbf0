// Rows that are put into a database in this process. Private to the client library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "quarry/client/store.h"
#include "quarry/database.h"
#include "quarry/format/wire.h"

namespace quarry::client {

// Messages have limits; here memory is the only one.
inline constexpr wire::Limits kAnyNumber = {.ids_max = 0xffffffff};

Result<uint64_t> EmbeddedPut(Database& database, const wire::Put& request);
// The database outlives it.
std::unique_ptr<LargePut> BeginEmbeddedPut(Database& database, const std::optional<wire::PutGraph>& graph);
Result<wire::GraphChanged> EmbeddedChange(Database& database, const wire::Put& request);

}  // namespace quarry::client
