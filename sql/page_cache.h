// PageCache: a section of a file, of which pieces that were asked for stay in memory, verified. Joins that
// look up a row for each of theirs are served from it. Private to this room; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/io/backend.h"
#include "quarry/storage/merged_reader.h"

namespace quarry::sql {

// Pages of a file, counted from `offset`.
struct PageSection {
  using Verify = std::function<Status(uint64_t first_page, std::span<const std::byte> bytes)>;
  const File* file = nullptr;
  uint32_t block_bytes = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;  // whole pages
  Verify verify;
};

class PageCache {
 public:
  static constexpr uint64_t kPieceBytes = 64 * kKiB;

  // Keeps at most `capacity_bytes` of `section_bytes`, and one piece at least, all of it reserved from the
  // budget: kOutOfBudget. Where pieces are asked for in order, some are read ahead.
  static Result<std::unique_ptr<PageCache>> Make(MemoryBudget& budget, uint64_t section_bytes,
                                                 uint64_t capacity_bytes);

  // What the cache keeps of a piece is what `shape` makes of its verified bytes, and no more of them: the
  // same without one. Valid until the next call; what has been read before stays.
  using Piece = std::shared_ptr<const std::byte[]>;
  using Shape = std::function<Result<Piece>(uint64_t first_byte, std::span<const std::byte> bytes)>;
  void Attach(PageSection section, Shape shape = {}) {
    section_ = std::move(section);
    shape_ = std::move(shape);
  }
  void Detach() { Attach({}); }
  void Clear();  // forgets all pieces

  // Piece `number`, counted from the section's begin; null: it has to be read. Valid until the next Get.
  const std::byte* Find(uint64_t number) {
    const uint32_t slot = slot_of_[number];
    if (slot == kNone) return nullptr;
    slots_[slot].asked = true;
    return slots_[slot].bytes.get();
  }
  // The same, for somebody who does not ask for it.
  const std::byte* Peek(uint64_t number) const {
    const uint32_t slot = slot_of_[number];
    return slot == kNone ? nullptr : slots_[slot].bytes.get();
  }
  // The same piece, read where it is not there; whoever holds it keeps it when the cache has let it go.
  // kCorruption, kIoError. REQUIRES: attached.
  Result<Piece> Get(MergedReader& reader, uint64_t number);

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr uint64_t kAheadMax = 16;  // pieces

  struct Slot {
    Piece bytes;
    uint64_t number = 0;
    bool asked = false;  // since the clock's hand came by
  };

  PageCache(uint64_t pieces, uint64_t capacity) : slot_of_(pieces, kNone), capacity_(capacity) {}
  Status Load(MergedReader& reader, uint64_t first, uint64_t count);
  uint32_t TakeSlot();

  MemoryBudget::Reservation reservation_;
  PageSection section_;
  Shape shape_;
  std::vector<uint32_t> slot_of_;  // by piece
  const uint64_t capacity_;        // slots
  std::vector<Slot> slots_;
  size_t hand_ = 0;     // of the clock that chooses the slot to be used again
  uint64_t next_ = 0;   // behind the pieces that were read last
  uint64_t ahead_ = 1;  // pieces of the next read, where it begins there
};

}  // namespace quarry::sql
