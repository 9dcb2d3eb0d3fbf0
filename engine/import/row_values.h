// Checks and conversions of encoded rows on their way into a database. Pure functions; thread-safe. Private
// to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "quarry/format/element_type.h"

namespace quarry {

// The number of the first element that is NaN or infinite. `elements` are of a float type, without gaps.
// Runs at the speed of memory.
std::optional<uint64_t> FindNonFinite(ElementType type, std::span<const std::byte> elements);

}  // namespace quarry
