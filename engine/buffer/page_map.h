// The file of a page map. Private to this room.
//
// A map page is 4,096 bytes: 255 entries | generation | 4 zero bytes | cell checksum of all before it, bound
// to the map page's number. The generation in each page tells it from what an older file had in the same
// place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/buffer/page_file.h"
#include "quarry/format/superblock.h"

namespace quarry {

inline constexpr size_t kMapPageBytes = 4096;
inline constexpr size_t kMapPageEntries = 255;

// `entries` at most kMapPageEntries; what is left of them is zero.
void EncodeMapPage(std::span<const PageEntry> entries, uint64_t generation, uint64_t number,
                   std::span<std::byte, kMapPageBytes> out);
// Fills `entries`. kCorruption names `path` and the map page.
Status DecodeMapPage(std::span<const std::byte, kMapPageBytes> bytes, uint64_t generation, uint64_t number,
                     std::string_view path, std::span<PageEntry> entries);

// kCorruption when a superblock is not that of `file`, a `what` of these pages.
Status CheckSuperblock(const Superblock& found, FileKind kind, std::string_view what, const PageMapName& file,
                       const PageFileSpec& spec);

// Memory that either of these takes beside the entries.
uint64_t MapBufferBytes(uint64_t page_count);

// Creates the file, syncs it and its folder. Leaves no file behind when it fails.
Status WriteMapFile(IoBackend& backend, const PageFileSpec& spec, const PageMapName& map,
                    std::span<const PageEntry> entries);
// Verifies all of the file, and that its entries are possible in a file of `slot_count` slots.
Result<std::vector<PageEntry>> ReadMapFile(IoBackend& backend, const PageFileSpec& spec,
                                           const PageMapName& map, uint64_t slot_count);

// Syncs the folder that `path` is in.
Status SyncFolderOf(IoBackend& backend, const std::string& path);

}  // namespace quarry
