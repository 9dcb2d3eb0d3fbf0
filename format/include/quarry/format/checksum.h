// Checksums: XXH3-64 (xxHash), folded to 32 bits and bound to their place, so that a cell that was written to, or
// read from, the wrong place does not verify. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quarry {

// Checksum of a cell of a table or a page of a section; `place` is its number within the section.
uint32_t CellChecksum(std::span<const std::byte> bytes, uint64_t place);

// Checksum of a superblock, footer or a whole section.
uint64_t Checksum64(std::span<const std::byte> bytes);

}  // namespace quarry
