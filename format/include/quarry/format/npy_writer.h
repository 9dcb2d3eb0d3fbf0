// The header of a NumPy .npy file (format 1.0), for writers that stream the data behind it themselves.
//
// The header is padded to one 4 KiB block, which the format allows, so that the data that follows it is
// aligned for direct I/O and for mapping. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/element_type.h"

namespace quarry {

inline constexpr size_t kNpyHeaderBytes = 4096;

// kNpyHeaderBytes that announce a little-endian, C-ordered array. bfloat16 is written as '<u2', since NumPy
// has no name for it. REQUIRES: at most 32 dimensions (NumPy's own limit).
std::vector<std::byte> EncodeNpyHeader(ElementType type, std::span<const uint64_t> shape);

}  // namespace quarry
