// PageFile: pages of one size that are never overwritten in place: every write of a page goes to a free slot
// of the file (copy on write), and the *page map* says which slot holds which page. A slot that the last
// checkpoint's map names is never overwritten before the next checkpoint has committed.
//
// So a reader never sees a torn page: a crash during a write damages a slot that no map names. And a
// checkpoint is exact: without a log, a restart finds the pages as they were then, none newer. A page costs
// one write (a double-write area would cost two, and an update log beside it a third); the price is space for
// two versions of the pages that changed between two checkpoints, and the map, 16 bytes a page, written whole
// each time. A page changes several times before it is written: 0.85 to 0.90 page writes a change
// (bench_buffer).
//
//   file   superblock | slot 0 | slot 1 | ...          a slot: page header | body
//   map    superblock | map page 0 | map page 1 | ...  whole with every checkpoint, named by the catalog
//
// A page header holds the page's checksum, number and version; the map repeats version and checksum. A read
// verifies all of it, so a lost or misdirected write is found as surely as a torn one. (The version alone
// would not do: after a crash versions that no map names are given once more.) docs/format.md has the bytes.
//
// One map of an earlier checkpoint may be *kept* beside the last one, so that its pages stay too: a third version
// of those that changed since.
//
//   slot: free -> given [AllocateSlot] -> current [SetEntry] -> written [WriteMap] -> committed [CommitMap]
//         given -> free [ReleaseSlot]; current -> free [SetEntry of the page's next write];
//         committed -> free [CommitMap of a map that does not name it]; kept as long as the kept map is
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"

namespace quarry {

using PageNumber = uint32_t;

struct PageHeader {
  uint64_t checksum = 0;  // checksum of all that follows it in the page, header included
  uint64_t version = 0;   // counts the writes of the page
  uint32_t page = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PageHeader) == 24);

inline constexpr uint32_t kNoPageSlot = 0xffffffff;

// Where a page lies and what is there, as the map has it.
struct PageEntry {
  uint64_t version = 0;         // 0: never written
  uint32_t slot = kNoPageSlot;  // kNoPageSlot: never written
  uint32_t checksum = 0;        // the low half of that in the page's header
  friend bool operator==(const PageEntry&, const PageEntry&) = default;
};
static_assert(sizeof(PageEntry) == 16);

struct PageFileSpec {
  std::string path;
  std::array<std::byte, 16> database_id{};
  uint64_t generation = 1;
  uint32_t page_bytes = 0;  // a multiple of 4096, header included
  uint32_t page_count = 0;  // at most PageFile::kPageCountMax
};

// A map that the catalog names. The path is empty when none was committed yet and no page was ever written.
struct PageMapName {
  std::string path;
  uint64_t generation = 0;
};

// Which map is kept beside the one that is committed: the one that was, the committed one itself, or none.
enum class KeptMap : uint8_t { kAsBefore, kThis, kNone };

// Takes a page's body, or the fault that was found instead of it.
using PageVisit = std::function<void(PageNumber page, const Result<std::span<const std::byte>>& body)>;

// Thread-safe, except Open and Create. The backend outlives it.
class PageFile {
 public:
  static constexpr uint32_t kPageCountMax = (1U << 30) - 1;  // four versions of each still have 32-bit slots

  // A new file without pages, synced with its folder. kAlreadyExists, kIoError, kNoSpace; kInvalidArgument
  // for a size that is not allowed.
  static Result<std::unique_ptr<PageFile>> Create(IoBackend& backend, const PageFileSpec& spec);
  // kCorruption where the file or a map is not what `spec`, `map` and `kept` say, or does not verify. Reads the
  // maps, and no pages. `kept` has an empty path where no map is kept; it may be `map`.
  static Result<std::unique_ptr<PageFile>> Open(IoBackend& backend, const PageFileSpec& spec,
                                                const PageMapName& map, const PageMapName& kept = {});
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  uint32_t page_bytes() const { return spec_.page_bytes; }
  uint32_t body_bytes() const { return spec_.page_bytes - uint32_t{sizeof(PageHeader)}; }
  uint32_t page_count() const { return spec_.page_count; }
  const File& file() const { return file_; }
  uint64_t SlotOffset(uint32_t slot) const;
  uint64_t slot_count() const;  // all slots that the file ever had: its size
  // The most memory that a file of this many pages holds; BufferPool::BytesMin includes it.
  uint64_t memory_bytes() const;

  // The page's current place. To write it elsewhere: AllocateSlot, write the sealed page there, SetEntry.
  PageEntry entry(PageNumber page) const;
  bool is_kept(PageNumber page) const;  // the kept map names the page's current place
  // Returns a slot that no map names: neither the committed map, nor the current one, nor one that was
  // written and whose commit may have happened. Freed slots come before new ones.
  uint32_t AllocateSlot();
  void ReleaseSlot(uint32_t slot);  // gives back a slot that was not used
  // The page has been written to entry.slot: its older slot is free, unless a map on disk names it.
  void SetEntry(PageNumber page, const PageEntry& entry);

  // Reads a page that has a slot into `bytes` (page_bytes, aligned to 4096) and verifies it.
  Status Read(PageNumber page, std::span<std::byte> bytes) const;
  // kCorruption, naming file, page, slot and offset, when `bytes` are not what the map says of `page`.
  Status Check(PageNumber page, const PageEntry& entry, std::span<const std::byte> bytes) const;

  // Syncs all pages that SetEntry was called for. Never tried again after it failed.
  Status Sync();
  // Writes the current map to a new file, synced with its folder; syncs the pages that it names before. The
  // caller publishes its name and then calls CommitMap. kAlreadyExists when there is such a file.
  Status WriteMap(const std::string& path, uint64_t generation);
  // The map that was written last is the one that a restart finds: slots that only older maps name are free.
  // A map that was written and not committed keeps its slots until the next one is, since its name may have
  // reached the disk. REQUIRES: the catalog names the kept map as well.
  void CommitMap(KeptMap kept = KeptMap::kAsBefore);

  // The first error of a write or a sync, after which nothing is written any more. OK while there is none.
  Status write_error() const;
  void SetWriteError(const Status& error);

 private:
  friend Status VerifyPageFile(IoBackend& backend, const PageFileSpec& spec, const PageMapName& map,
                               const PageVisit& visit, const PageMapName& but_not);
  // What uses a slot; a slot without any use is free.
  enum Use : uint8_t { kGiven = 1, kCurrent = 2, kWritten = 4, kAbandoned = 8, kCommitted = 16, kKept = 32 };

  PageFile(IoBackend& backend, const PageFileSpec& spec, File file);
  static Result<std::unique_ptr<PageFile>> OpenAs(IoBackend& backend, const PageFileSpec& spec,
                                                  const PageMapName& map, const PageMapName& kept,
                                                  OpenMode mode);
  Status LoadMaps(const PageMapName& map, const PageMapName& kept);
  void Drop(uint32_t slot, uint8_t uses) QUARRY_REQUIRES(mutex_);
  std::vector<PageEntry> MarkWritten();

  IoBackend& backend_;
  const PageFileSpec spec_;
  const File file_;

  Mutex sync_mutex_;  // before mutex_: one sync at a time, so that none returns before another's is done
  mutable Mutex mutex_;
  std::vector<PageEntry> entries_ QUARRY_GUARDED_BY(mutex_);  // by page
  std::vector<uint8_t> uses_ QUARRY_GUARDED_BY(mutex_);       // by slot
  std::vector<uint32_t> free_ QUARRY_GUARDED_BY(mutex_);      // the next one to give last
  bool unsynced_ QUARRY_GUARDED_BY(mutex_) = false;
  Status write_error_ QUARRY_GUARDED_BY(mutex_);
};

// Fills in the header of the page in `bytes`; returns the entry that names it in `slot`.
PageEntry SealPage(PageNumber page, uint64_t version, uint32_t slot, std::span<std::byte> bytes);

// Reads every page that the map names, in the order of slots, and hands it to `visit`; but for those that the map
// `but_not` has in the same place. Returns the error that ends it, of the superblocks, the maps or memory. Opens the
// files for reading only.
Status VerifyPageFile(IoBackend& backend, const PageFileSpec& spec, const PageMapName& map,
                      const PageVisit& visit, const PageMapName& but_not = {});

}  // namespace quarry
