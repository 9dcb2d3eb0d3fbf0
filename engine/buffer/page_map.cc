#include "page_map.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>

#include "quarry/base/kill_point.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/format/superblock.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

constexpr size_t kGenerationAt = kMapPageEntries * sizeof(PageEntry);
constexpr size_t kChecksumAt = kMapPageBytes - sizeof(uint32_t);
static_assert(kGenerationAt + sizeof(uint64_t) <= kChecksumAt);

constexpr size_t kChunkPages = 256;  // 1 MiB a transfer

uint64_t MapPageCount(uint64_t page_count) { return CeilDiv(page_count, kMapPageEntries); }

size_t BufferBytes(uint64_t page_count) {
  return std::clamp<size_t>(MapPageCount(page_count), 1, kChunkPages) * kMapPageBytes;
}

// Calls `transfer(first map page, bytes)` for chunk after chunk of a map with this many pages.
template <typename Transfer>
Status ForEachChunk(uint64_t map_pages, const IoBuffer& buffer, Transfer transfer) {
  for (uint64_t first = 0; first < map_pages; first += kChunkPages) {
    const size_t count = std::min<uint64_t>(kChunkPages, map_pages - first);
    QUARRY_RETURN_IF_ERROR(transfer(first, buffer.span().first(count * kMapPageBytes)));
  }
  return Status::Ok();
}

template <typename Entries>
Entries EntriesOf(Entries entries, uint64_t map_page) {
  const size_t first = map_page * kMapPageEntries;
  return entries.subspan(first, std::min(kMapPageEntries, entries.size() - first));
}

Status WriteMapContent(IoBackend& backend, const File& file, const PageFileSpec& spec, uint64_t generation,
                       std::span<const PageEntry> entries) {
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(BufferBytes(spec.page_count)));
  const auto superblock = EncodeSuperblock({.kind = FileKind::kPageMap,
                                            .database_id = spec.database_id,
                                            .generation = generation,
                                            .row_count = spec.page_count,
                                            .dim = spec.page_bytes});
  std::ranges::copy(superblock, buffer.data());
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, buffer.span().first(kSuperblockBytes)));
  return ForEachChunk(MapPageCount(entries.size()), buffer, [&](uint64_t first, std::span<std::byte> chunk) {
    for (uint64_t page = first; page < first + chunk.size() / kMapPageBytes; ++page) {
      const auto out = chunk.subspan((page - first) * kMapPageBytes).first<kMapPageBytes>();
      EncodeMapPage(EntriesOf(entries, page), generation, page, out);
    }
    return backend.WriteAt(file, kSuperblockBytes + first * kMapPageBytes, chunk);
  });
}

// Each entry is of a page that was never written, or names a slot of the file, and no slot is named twice.
Status CheckEntries(std::span<const PageEntry> entries, uint64_t slot_count, const PageMapName& map,
                    const PageFileSpec& spec) {
  std::vector<bool> named(slot_count);
  for (size_t page = 0; page < entries.size(); ++page) {
    const PageEntry& entry = entries[page];
    if (entry == PageEntry{}) continue;
    if (entry.slot >= slot_count) {
      return MakeStatus(Code::kCorruption, "{}: page {} is in slot {}, but {} has {} slots: it is truncated",
                        map.path, page, entry.slot, spec.path, slot_count);
    }
    if (named[entry.slot] || entry.version == 0) {
      return MakeStatus(Code::kCorruption, "{}: page {} is in slot {} with version {}, {}", map.path, page,
                        entry.slot, entry.version,
                        entry.version == 0 ? "which is none" : "and so is a page before it");
    }
    named[entry.slot] = true;
  }
  return Status::Ok();
}

}  // namespace

Status CheckSuperblock(const Superblock& found, FileKind kind, std::string_view what, const PageMapName& file,
                       const PageFileSpec& spec) {
  if (found.kind == kind && found.database_id == spec.database_id && found.generation == file.generation &&
      found.row_count == spec.page_count && found.dim == spec.page_bytes) {
    return Status::Ok();
  }
  return MakeStatus(Code::kCorruption,
                    "{}: page 0: is not the {} of generation {} with {} pages of {} bytes that the catalog "
                    "names (kind {}, generation {}, {} pages of {} bytes{})",
                    file.path, what, file.generation, spec.page_count, spec.page_bytes,
                    static_cast<uint32_t>(found.kind), found.generation, found.row_count, found.dim,
                    found.database_id == spec.database_id ? "" : ", another database's");
}

void EncodeMapPage(std::span<const PageEntry> entries, uint64_t generation, uint64_t number,
                   std::span<std::byte, kMapPageBytes> out) {
  assert(entries.size() <= kMapPageEntries);
  std::ranges::fill(out, std::byte{0});
  std::ranges::copy(std::as_bytes(entries), out.begin());
  std::memcpy(&out[kGenerationAt], &generation, sizeof(generation));
  const uint32_t checksum = CellChecksum(out.first<kChecksumAt>(), number);
  std::memcpy(&out[kChecksumAt], &checksum, sizeof(checksum));
}

Status DecodeMapPage(std::span<const std::byte, kMapPageBytes> bytes, uint64_t generation, uint64_t number,
                     std::string_view path, std::span<PageEntry> entries) {
  uint32_t stored = 0;
  std::memcpy(&stored, &bytes[kChecksumAt], sizeof(stored));
  const uint32_t computed = CellChecksum(bytes.first<kChecksumAt>(), number);
  if (stored != computed) {
    return MakeStatus(Code::kCorruption,
                      "{}: map page {} (offset {}): checksum {:#x} is stored, the bytes give {:#x}", path,
                      number, kSuperblockBytes + number * kMapPageBytes, stored, computed);
  }
  uint64_t found = 0;
  std::memcpy(&found, &bytes[kGenerationAt], sizeof(found));
  if (found != generation) {
    return MakeStatus(Code::kCorruption, "{}: map page {} (offset {}): is of generation {} instead of {}",
                      path, number, kSuperblockBytes + number * kMapPageBytes, found, generation);
  }
  std::ranges::copy(bytes.first(entries.size_bytes()), std::as_writable_bytes(entries).begin());
  return Status::Ok();
}

uint64_t MapBufferBytes(uint64_t page_count) { return IoBuffer::MappedBytes(BufferBytes(page_count)); }

Status WriteMapFile(IoBackend& backend, const PageFileSpec& spec, const PageMapName& map,
                    std::span<const PageEntry> entries) {
  QUARRY_TRY(const File file, backend.Open(map.path, OpenMode::kCreateDirect));
  Status status = WriteMapContent(backend, file, spec, map.generation, entries);
  KillPoint("pages: map written, not synced");
  if (status.ok()) status = backend.SyncFile(file);
  if (status.ok()) status = SyncFolderOf(backend, map.path);
  if (!status.ok()) Discard(backend, map.path);
  return status;
}

Result<std::vector<PageEntry>> ReadMapFile(IoBackend& backend, const PageFileSpec& spec,
                                           const PageMapName& map, uint64_t slot_count) {
  QUARRY_TRY(const File file, backend.Open(map.path, OpenMode::kReadDirect));
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  const uint64_t map_pages = MapPageCount(spec.page_count);
  const uint64_t expected_bytes = kSuperblockBytes + map_pages * kMapPageBytes;
  if (file_bytes != expected_bytes) {
    return MakeStatus(Code::kCorruption, "{}: has {} bytes instead of the {} of a map of {} pages", map.path,
                      file_bytes, expected_bytes, spec.page_count);
  }
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(BufferBytes(spec.page_count)));
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, buffer.span().first(kSuperblockBytes)));
  QUARRY_TRY(const Superblock superblock, DecodeSuperblock(buffer.span().first(kSuperblockBytes), map.path));
  QUARRY_RETURN_IF_ERROR(CheckSuperblock(superblock, FileKind::kPageMap, "page map", map, spec));
  std::vector<PageEntry> entries(spec.page_count);
  const auto read_chunk = [&](uint64_t first, std::span<std::byte> chunk) {
    QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, kSuperblockBytes + first * kMapPageBytes, chunk));
    for (uint64_t page = first; page < first + chunk.size() / kMapPageBytes; ++page) {
      const auto bytes = chunk.subspan((page - first) * kMapPageBytes).first<kMapPageBytes>();
      QUARRY_RETURN_IF_ERROR(
          DecodeMapPage(bytes, map.generation, page, map.path, EntriesOf(std::span(entries), page)));
    }
    return Status::Ok();
  };
  QUARRY_RETURN_IF_ERROR(ForEachChunk(map_pages, buffer, read_chunk));
  QUARRY_RETURN_IF_ERROR(CheckEntries(entries, slot_count, map, spec));
  return entries;
}

Status SyncFolderOf(IoBackend& backend, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return backend.SyncDirectory(folder.empty() ? "." : folder);
}

}  // namespace quarry
