#include "quarry/buffer/page_file.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <numeric>

#include "page_map.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/format/superblock.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

static_assert(std::endian::native == std::endian::little,
              "headers and entries go to disk as they lie in memory");

uint64_t PageChecksum(std::span<const std::byte> bytes) {
  return Checksum64(bytes.subspan(sizeof(uint64_t)));
}

Status CheckSpec(const PageFileSpec& spec) {
  if (spec.page_bytes >= 4096 && spec.page_bytes % 4096 == 0 && spec.page_count <= PageFile::kPageCountMax) {
    return Status::Ok();
  }
  return MakeStatus(Code::kInvalidArgument,
                    "{}: {} pages of {} bytes: pages are multiples of 4096 bytes, and at most {}", spec.path,
                    spec.page_count, spec.page_bytes, PageFile::kPageCountMax);
}

Status WriteSuperblock(IoBackend& backend, const File& file, const PageFileSpec& spec) {
  const auto superblock = EncodeSuperblock({.kind = FileKind::kPageFile,
                                            .database_id = spec.database_id,
                                            .generation = spec.generation,
                                            .row_count = spec.page_count,
                                            .dim = spec.page_bytes});
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(superblock.size()));
  std::ranges::copy(superblock, buffer.data());
  QUARRY_RETURN_IF_ERROR(backend.WriteAt(file, 0, buffer.span()));
  QUARRY_RETURN_IF_ERROR(backend.SyncFile(file));
  return SyncFolderOf(backend, spec.path);
}

// The number of slots that are whole in the file; at its end may be a part of one, whose write a crash cut
// off.
Result<uint64_t> ReadSuperblock(IoBackend& backend, const File& file, const PageFileSpec& spec) {
  QUARRY_TRY(const IoBuffer buffer, IoBuffer::Allocate(kSuperblockBytes));
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, buffer.span()));
  QUARRY_TRY(const Superblock superblock, DecodeSuperblock(buffer.span(), spec.path));
  QUARRY_RETURN_IF_ERROR(
      CheckSuperblock(superblock, FileKind::kPageFile, "page file", {spec.path, spec.generation}, spec));
  QUARRY_TRY(const uint64_t file_bytes, backend.FileBytes(file));
  return std::min<uint64_t>((file_bytes - kSuperblockBytes) / spec.page_bytes, kNoPageSlot);
}

}  // namespace

PageEntry SealPage(PageNumber page, uint64_t version, uint32_t slot, std::span<std::byte> bytes) {
  PageHeader header{.version = version, .page = page};
  std::memcpy(bytes.data(), &header, sizeof(header));
  header.checksum = PageChecksum(bytes);
  std::memcpy(bytes.data(), &header, sizeof(header));
  return {.version = version, .slot = slot, .checksum = static_cast<uint32_t>(header.checksum)};
}

PageFile::PageFile(IoBackend& backend, const PageFileSpec& spec, File file)
    : backend_(backend), spec_(spec), file_(std::move(file)), entries_(spec.page_count) {}

Result<std::unique_ptr<PageFile>> PageFile::Create(IoBackend& backend, const PageFileSpec& spec) {
  QUARRY_RETURN_IF_ERROR(CheckSpec(spec));
  QUARRY_TRY(File file, backend.Open(spec.path, OpenMode::kCreateDirect));
  if (const Status status = WriteSuperblock(backend, file, spec); !status.ok()) {
    Discard(backend, spec.path);
    return status;
  }
  return std::unique_ptr<PageFile>(new PageFile(backend, spec, std::move(file)));
}

Result<std::unique_ptr<PageFile>> PageFile::Open(IoBackend& backend, const PageFileSpec& spec,
                                                 const PageMapName& map, const PageMapName& kept) {
  return OpenAs(backend, spec, map, kept, OpenMode::kReadWriteDirect);
}

Result<std::unique_ptr<PageFile>> PageFile::OpenAs(IoBackend& backend, const PageFileSpec& spec,
                                                   const PageMapName& map, const PageMapName& kept,
                                                   OpenMode mode) {
  QUARRY_RETURN_IF_ERROR(CheckSpec(spec));
  QUARRY_TRY(File file, backend.Open(spec.path, mode));
  std::unique_ptr<PageFile> pages(new PageFile(backend, spec, std::move(file)));
  QUARRY_RETURN_IF_ERROR(pages->LoadMaps(map, kept));
  return pages;
}

Status PageFile::LoadMaps(const PageMapName& map, const PageMapName& kept) {
  QUARRY_TRY(const uint64_t slot_count, ReadSuperblock(backend_, file_, spec_));
  std::vector<PageEntry> entries(spec_.page_count), kept_entries;
  if (!map.path.empty()) {
    QUARRY_TRY(entries, ReadMapFile(backend_, spec_, map, slot_count));
  }
  if (!kept.path.empty()) {
    QUARRY_TRY(kept_entries, ReadMapFile(backend_, spec_, kept, slot_count));
  }
  MutexLock lock(mutex_);
  entries_ = std::move(entries);
  uses_.assign(slot_count, 0);
  for (const PageEntry& entry : entries_) {
    if (entry.slot != kNoPageSlot) uses_[entry.slot] = kCurrent | kCommitted;
  }
  for (PageNumber page = 0; page < kept_entries.size(); ++page) {
    const PageEntry& entry = kept_entries[page];
    if (entry.slot == kNoPageSlot) continue;
    if (uses_[entry.slot] != 0 && entries_[page] != entry) {
      return MakeStatus(Code::kCorruption, "{}: page {} is in slot {}, where {} has another one", kept.path,
                        page, entry.slot, map.path);
    }
    uses_[entry.slot] |= kKept;
  }
  for (uint32_t slot = static_cast<uint32_t>(slot_count); slot-- > 0;) {
    if (uses_[slot] == 0) free_.push_back(slot);
  }
  return Status::Ok();
}

uint64_t PageFile::SlotOffset(uint32_t slot) const {
  return kSuperblockBytes + uint64_t{slot} * spec_.page_bytes;
}

uint64_t PageFile::slot_count() const {
  MutexLock lock(mutex_);
  return uses_.size();
}

uint64_t PageFile::memory_bytes() const {
  // The map and a copy of it while it is written, or the kept one while it is read; up to four slots a page, each with
  // its use and a place in the free list, whose vectors may be half empty.
  constexpr uint64_t kBytesPerPage = 2 * sizeof(PageEntry) + 2 * 4 * (sizeof(uint8_t) + sizeof(uint32_t));
  return spec_.page_count * kBytesPerPage + MapBufferBytes(spec_.page_count);
}

PageEntry PageFile::entry(PageNumber page) const {
  MutexLock lock(mutex_);
  return entries_[page];
}

bool PageFile::is_kept(PageNumber page) const {
  MutexLock lock(mutex_);
  const uint32_t slot = entries_[page].slot;
  return slot != kNoPageSlot && (uses_[slot] & kKept) != 0;
}

uint32_t PageFile::AllocateSlot() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    uses_.push_back(kGiven);
    return static_cast<uint32_t>(uses_.size() - 1);
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  uses_[slot] = kGiven;
  return slot;
}

void PageFile::ReleaseSlot(uint32_t slot) {
  MutexLock lock(mutex_);
  assert(uses_[slot] == kGiven);
  Drop(slot, kGiven);
}

void PageFile::SetEntry(PageNumber page, const PageEntry& entry) {
  MutexLock lock(mutex_);
  assert(uses_[entry.slot] == kGiven);
  const uint32_t older_slot = entries_[page].slot;
  entries_[page] = entry;
  uses_[entry.slot] = kCurrent;
  unsynced_ = true;
  if (older_slot != kNoPageSlot) Drop(older_slot, kCurrent);
}

void PageFile::Drop(uint32_t slot, uint8_t uses) {
  if (uses_[slot] == 0) return;
  uses_[slot] &= static_cast<uint8_t>(~uses);
  if (uses_[slot] == 0) free_.push_back(slot);
}

Status PageFile::Read(PageNumber page, std::span<std::byte> bytes) const {
  const PageEntry where = entry(page);
  assert(where.slot != kNoPageSlot);
  QUARRY_RETURN_IF_ERROR(backend_.ReadAt(file_, SlotOffset(where.slot), bytes));
  return Check(page, where, bytes);
}

Status PageFile::Check(PageNumber page, const PageEntry& entry, std::span<const std::byte> bytes) const {
  PageHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const uint64_t computed = PageChecksum(bytes);
  std::string fault;
  if (header.checksum != computed) {
    fault = fmt::format("checksum {:#x} is stored, the bytes give {:#x}", header.checksum, computed);
  } else if (header.page != page) {
    fault = fmt::format("page {} is there: a write or read went to the wrong place", header.page);
  } else if (header.version != entry.version) {
    fault = fmt::format("version {} is there instead of {}: a write was lost", header.version, entry.version);
  } else if (static_cast<uint32_t>(header.checksum) != entry.checksum) {
    fault = fmt::format(
        "another version {} is there than the map names (checksum {:#x} instead of {:#x}): a "
        "write was lost",
        header.version, static_cast<uint32_t>(header.checksum), entry.checksum);
  } else {
    return Status::Ok();
  }
  return MakeStatus(Code::kCorruption, "{}: page {}, slot {} (offset {}): {}", spec_.path, page, entry.slot,
                    SlotOffset(entry.slot), fault);
}

Status PageFile::Sync() {
  MutexLock sync_lock(sync_mutex_);
  {
    MutexLock lock(mutex_);
    if (!write_error_.ok()) return write_error_;
    if (!unsynced_) return Status::Ok();
    unsynced_ = false;  // a write that ends from now on may not be covered
  }
  const Status status = backend_.SyncFile(file_);
  if (status.ok()) return status;
  SetWriteError(status);
  return write_error();
}

std::vector<PageEntry> PageFile::MarkWritten() {
  MutexLock lock(mutex_);
  for (uint8_t& uses : uses_) {
    if ((uses & kWritten) != 0) uses = static_cast<uint8_t>((uses & ~kWritten) | kAbandoned);
  }
  for (const PageEntry& entry : entries_) {
    if (entry.slot != kNoPageSlot) uses_[entry.slot] |= kWritten;
  }
  return entries_;
}

Status PageFile::WriteMap(const std::string& path, uint64_t generation) {
  QUARRY_RETURN_IF_ERROR(write_error());
  const std::vector<PageEntry> entries = MarkWritten();
  QUARRY_RETURN_IF_ERROR(Sync());
  return WriteMapFile(backend_, spec_, {path, generation}, entries);
}

void PageFile::CommitMap(KeptMap kept) {
  MutexLock lock(mutex_);
  for (uint32_t slot = static_cast<uint32_t>(uses_.size()); slot-- > 0;) {
    const bool named = (uses_[slot] & kWritten) != 0;
    uint8_t gone = named ? kWritten | kAbandoned : kCommitted | kAbandoned;
    if (kept != KeptMap::kAsBefore) gone |= kKept;
    if (named && kept == KeptMap::kThis) {
      uses_[slot] |= kKept;
      gone &= static_cast<uint8_t>(~kKept);
    }
    if (named) uses_[slot] |= kCommitted;
    Drop(slot, gone);
  }
}

Status PageFile::write_error() const {
  MutexLock lock(mutex_);
  return write_error_;
}

void PageFile::SetWriteError(const Status& error) {
  MutexLock lock(mutex_);
  if (!write_error_.ok()) return;
  write_error_ =
      MakeStatus(error.code(), "{}; nothing is written any more until it is opened anew", error.message());
}

}  // namespace quarry
