// Names and ids in the family `property`: the name leads to the id, and the id to the name. Private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pending_write.h"
#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "rocks.h"

namespace quarry {

// Each function reads the open catalog in the folder `path`.
Result<std::optional<uint64_t>> IdOfName(const OpenDatabase& open, NameKind kind, std::string_view name,
                                         const std::string& path);
void AddNames(NameKind kind, uint64_t first_id, std::span<const std::string> names, PendingWrite& write);
// Deletes names of ids from `first_id` on, and the ids that they lead to, as many as go into one write; none when none
// are left.
Status DeleteNames(const OpenDatabase& open, NameKind kind, uint64_t first_id, const std::string& path,
                   PendingWrite& write);
// As Catalog::VerifyNames.
Result<uint64_t> CheckNames(const OpenDatabase& open, NameKind kind, const std::string& path);

}  // namespace quarry
