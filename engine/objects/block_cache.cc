#include "quarry/objects/block_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <utility>

#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/objects/remote_manifest.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCachePageBytes = 4096;
constexpr uint64_t kSetSlotsMax = 256;  // a page of entries
constexpr uint32_t kTouchSeconds = 60;  // a use is written down when the last one that was is as old
constexpr uint32_t kWriteSeconds = 60;  // how long a slot is left to whoever writes it, who may have died

// The first page of the index.
//
//   bytes  field
//       8  magic
//       8  sets
//       8  slots of a set
//       8  bytes of a slot
//       8  Checksum64 of the 32 before
struct CacheHeader {
  char magic[8] = {'Q', 'R', 'Y', 'C', 'A', 'C', 'H', '1'};
  uint64_t sets = 0, set_slots = 0;
  uint64_t slot_bytes = kRemoteBlockBytes;
  uint64_t checksum = 0;
};
static_assert(sizeof(CacheHeader) == 40);

struct alignas(kCachePageBytes) CachePage {
  std::array<std::byte, kCachePageBytes> bytes{};
};

CachePage HeaderPage(uint64_t sets, uint64_t set_slots) {
  CacheHeader header{.sets = sets, .set_slots = set_slots};
  header.checksum = Checksum64(std::as_bytes(std::span(&header, 1)).first(offsetof(CacheHeader, checksum)));
  CachePage page;
  std::memcpy(page.bytes.data(), &header, sizeof(header));
  return page;
}

uint32_t NowSeconds() { return static_cast<uint32_t>(std::time(nullptr)); }

}  // namespace

// A slot's entry in the index; bytes 0: the slot is free, or, for kWriteSeconds from `used` on, being written. It says where to look, never what is there, so that no content
// of the index does harm.
struct BlockCache::Entry {
  uint64_t checksum = 0;
  uint32_t bytes = 0;
  uint32_t used = 0;  // seconds since 1970

  bool Is(uint64_t wanted, uint64_t wanted_bytes) const {
    return checksum == wanted && bytes == wanted_bytes;
  }
  // What to take first: a free slot, then the one that was used longest ago; nothing where it is being written.
  std::optional<uint64_t> Age(uint32_t now) const {
    if (bytes > 0) return uint64_t{used} + 1;
    return used != 0 && now - used < kWriteSeconds ? std::optional<uint64_t>() : 0;
  }
  bool operator==(const Entry&) const = default;
};

struct alignas(kCachePageBytes) BlockCache::Set {
  std::array<Entry, kSetSlotsMax> entries{};
};

struct BlockCache::Taken {
  uint64_t slot = 0;
  Entry cleared;
};

Result<std::unique_ptr<BlockCache>> BlockCache::Open(IoBackend& backend, const std::string& folder,
                                                     uint64_t bytes_max, uint64_t seed) {
  static_assert(sizeof(Entry) == 16 && sizeof(Set) == kCachePageBytes);
  if (bytes_max < kBytesMin) {
    return MakeStatus(Code::kUsage, "a cache of {} for blocks of an object store: it takes {} at least",
                      FormatBytes(bytes_max), FormatBytes(kBytesMin));
  }
  // The index is paid from the limit too: a page of it for each set, and the header's.
  const uint64_t room = bytes_max - kCachePageBytes;
  const uint64_t sets = CeilDiv(room, kSetSlotsMax * kRemoteBlockBytes + kCachePageBytes);
  const uint64_t set_slots = std::min(kSetSlotsMax, (room / sets - kCachePageBytes) / kRemoteBlockBytes);
  std::unique_ptr<BlockCache> cache(new BlockCache(backend, sets, set_slots, seed));
  QUARRY_RETURN_IF_ERROR(cache->OpenFiles(folder));
  return cache;
}

Status BlockCache::OpenFiles(const std::string& folder) {
  QUARRY_RETURN_IF_ERROR(EnsureDirectory(backend_, folder));
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return ErrnoStatus(errno, "open the folder", folder);
  lock_ = File(descriptor, folder, false);
  const CachePage expected = HeaderPage(sets_, set_slots_);
  const auto holds = [&]() -> bool {
    CachePage found;
    std::error_code error;
    const auto index = backend_.Open(folder + "/index", OpenMode::kReadBuffered);
    const auto bytes = index.ok() ? backend_.FileBytes(*index) : index.status();
    return bytes.ok() && *bytes == (1 + sets_) * kCachePageBytes &&
           backend_.ReadAt(*index, 0, found.bytes).ok() && found.bytes == expected.bytes &&
           fs::exists(folder + "/blocks", error);
  };
  // Whoever makes the files has the folder for itself. A file system that locks no folders (NFS) goes without.
  for (bool begun = false;; begun = true) {
    while (flock(descriptor, LOCK_SH) != 0 && errno == EINTR) {
    }
    if (holds()) break;
    if (begun) return MakeStatus(Code::kBusy, "{}: another process makes a cache of another size", folder);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return MakeStatus(
          Code::kBusy,
          "{}: another process uses this cache with another size: give the same size, or another folder",
          folder);
    }
    if (!holds()) QUARRY_RETURN_IF_ERROR(Begin(folder));
  }
  QUARRY_TRY(index_, backend_.Open(folder + "/index", OpenMode::kReadWriteDirect));
  QUARRY_TRY(blocks_, backend_.Open(folder + "/blocks", OpenMode::kReadWriteDirect));
  return Status::Ok();
}

// The header comes last: without it there is no cache, and the next process begins again.
Status BlockCache::Begin(const std::string& folder) const {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == "index" || name == "blocks") continue;
    return MakeStatus(Code::kAlreadyExists, "{}: holds {}, which is of no cache: choose another folder",
                      folder, name);
  }
  if (error) return ErrnoStatus(error.value(), "list", folder);
  for (const char* const name : {"/index", "/blocks"}) {
    const Status removed = backend_.Remove(folder + name);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  QUARRY_RETURN_IF_ERROR(backend_.Open(folder + "/blocks", OpenMode::kCreate).status());
  QUARRY_TRY(const File index, backend_.Open(folder + "/index", OpenMode::kCreate));
  QUARRY_RETURN_IF_ERROR(backend_.Truncate(index, (1 + sets_) * kCachePageBytes));
  return backend_.WriteAt(index, 0, HeaderPage(sets_, set_slots_).bytes);
}

uint64_t BlockCache::SetOf(uint64_t checksum, unsigned choice) const {
  return Rng(MixSeed(checksum, choice)).Below(sets_);
}

Status BlockCache::ReadSet(uint64_t number, Set& set) const {
  return backend_.ReadAt(index_, (1 + number) * kCachePageBytes, std::as_writable_bytes(std::span(&set, 1)));
}

Status BlockCache::WriteSet(uint64_t number, const Set& set) const {
  return backend_.WriteAt(index_, (1 + number) * kCachePageBytes, std::as_bytes(std::span(&set, 1)));
}

// Another process may write the same page in between: then one of the two changes is lost, which costs a block.
Status BlockCache::Replace(uint64_t slot, const Entry& expected, const Entry& entry) {
  MutexLock lock(mutex_);
  Set set;
  QUARRY_RETURN_IF_ERROR(ReadSet(slot / set_slots_, set));
  Entry& there = set.entries[slot % set_slots_];
  if (!(there == expected)) return Status::Ok();
  there = entry;
  return WriteSet(slot / set_slots_, set);
}

bool BlockCache::Get(uint64_t checksum, uint64_t bytes, std::span<std::byte> buffer) {
  for (unsigned choice = 0; choice < (sets_ > 1 ? 2U : 1U); choice++) {
    const uint64_t number = SetOf(checksum, choice);
    Set set;
    if (const Status read = ReadSet(number, set); !read.ok()) {
      Failed(read);
      return false;
    }
    for (uint64_t i = 0; i < set_slots_; i++) {
      const Entry entry = set.entries[i];
      if (!entry.Is(checksum, bytes)) continue;
      const uint64_t slot = number * set_slots_ + i;
      const Status read =
          backend_.ReadAt(blocks_, slot * kRemoteBlockBytes, buffer.first(RoundUp(bytes, kCachePageBytes)));
      const bool whole = read.ok() && Checksum64(buffer.first(bytes)) == checksum;
      Entry now = whole ? entry : Entry();
      if (whole) now.used = NowSeconds();
      const bool stale = !whole || now.used - entry.used >= kTouchSeconds;
      if (const Status told = stale ? Replace(slot, entry, now) : Status::Ok(); !told.ok()) Failed(told);
      if (whole) {
        Note(&BlockCacheStatistics::hits);
        return true;
      }
      Note(&BlockCacheStatistics::damaged);
    }
  }
  Note(&BlockCacheStatistics::misses);
  return false;
}

// The slot's entry is cleared first, so that nobody looks for another block where this one is being written.
Result<bool> BlockCache::Take(uint64_t checksum, uint64_t bytes, Taken& taken) {
  MutexLock lock(mutex_);
  const uint32_t now = NowSeconds();
  struct Candidate {
    Set set;
    uint64_t number = 0, free = 0;
    std::optional<uint64_t> oldest;  // its place in the set
    uint64_t age = 0, ties = 0;      // of the oldest, and how many there are
  };
  Candidate candidates[2];
  for (unsigned choice = 0; choice < (sets_ > 1 ? 2U : 1U); choice++) {
    Candidate& candidate = candidates[choice];
    candidate.number = SetOf(checksum, choice);
    QUARRY_RETURN_IF_ERROR(ReadSet(candidate.number, candidate.set));
    for (uint64_t i = 0; i < set_slots_; i++) {
      const Entry& entry = candidate.set.entries[i];
      if (entry.Is(checksum, bytes)) return false;
      const auto age = entry.Age(now);
      if (!age) continue;
      candidate.free += *age == 0 ? 1 : 0;
      if (candidate.oldest && *age > candidate.age) continue;
      candidate.ties = candidate.oldest && *age == candidate.age ? candidate.ties + 1 : 1;
      candidate.age = *age;
      // Seconds are coarse: of those of the same one, any. Else a slot would be taken again and again.
      if (candidate.ties == 1 || rng_.Below(candidate.ties) == 0) candidate.oldest = i;
    }
  }
  Candidate& chosen = candidates[candidates[1].free > candidates[0].free ? 1 : 0];
  if (!chosen.oldest || (chosen.free == 0 && rng_.Below(kAdmitOneIn) != 0)) return false;
  // With a number of its own, so that whoever else takes the slot is seen.
  chosen.set.entries[*chosen.oldest] = taken.cleared = {.checksum = rng_(), .bytes = 0, .used = now};
  taken.slot = chosen.number * set_slots_ + *chosen.oldest;
  QUARRY_RETURN_IF_ERROR(WriteSet(chosen.number, chosen.set));
  return true;
}

void BlockCache::Put(uint64_t checksum, uint64_t bytes, std::span<const std::byte> buffer) {
  Taken taken;
  const Result<bool> takes = Take(checksum, bytes, taken);
  if (!takes.ok()) return Failed(takes.status());
  if (!*takes) return;
  Status status = backend_.WriteAt(blocks_, taken.slot * kRemoteBlockBytes,
                                   buffer.first(RoundUp(bytes, kCachePageBytes)));
  if (status.ok()) {
    status = Replace(taken.slot, taken.cleared,
                     {.checksum = checksum, .bytes = static_cast<uint32_t>(bytes), .used = NowSeconds()});
  }
  if (!status.ok()) return Failed(status);
  Note(&BlockCacheStatistics::stored);
}

void BlockCache::Note(uint64_t BlockCacheStatistics::*count) {
  MutexLock lock(mutex_);
  ++(statistics_.*count);
}

// A full disk, or one that fails, costs requests to the store and nothing else.
void BlockCache::Failed(const Status& why) {
  MutexLock lock(mutex_);
  ++statistics_.failed;
  if (std::exchange(told_, true)) return;
  LogWarn("blocks of the object store are not kept, or not found: {}", why.message());
}

BlockCacheStatistics BlockCache::statistics() const {
  MutexLock lock(mutex_);
  return statistics_;
}

}  // namespace quarry
