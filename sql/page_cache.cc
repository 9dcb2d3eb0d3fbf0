#include "page_cache.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/trace.h"
#include "quarry/format/feature_table.h"

namespace quarry::sql {
namespace {

Result<PageCache::Piece> Copy(std::span<const std::byte> bytes) {
  std::shared_ptr<std::byte[]> copy(new std::byte[bytes.size()]);
  std::memcpy(copy.get(), bytes.data(), bytes.size());
  return PageCache::Piece(std::move(copy));
}

}  // namespace

Result<std::unique_ptr<PageCache>> PageCache::Make(MemoryBudget& budget, uint64_t section_bytes,
                                                   uint64_t capacity_bytes) {
  const uint64_t pieces = CeilDiv(section_bytes, kPieceBytes);
  const uint64_t capacity =
      std::clamp<uint64_t>(CeilDiv(capacity_bytes, kPieceBytes), 1, std::max<uint64_t>(pieces, 1));
  std::unique_ptr<PageCache> cache(new PageCache(pieces, capacity));
  const uint64_t bytes = capacity * (kPieceBytes + sizeof(Slot)) + pieces * sizeof(uint32_t);
  QUARRY_TRY(cache->reservation_, budget.Reserve(bytes, "pages of a table that is looked up"));
  return cache;
}

void PageCache::Clear() {
  std::ranges::fill(slot_of_, kNone);
  slots_.clear();
  hand_ = 0;
}

uint32_t PageCache::TakeSlot() {
  if (slots_.size() < capacity_) {
    slots_.emplace_back();
    return static_cast<uint32_t>(slots_.size() - 1);
  }
  while (std::exchange(slots_[hand_].asked, false)) hand_ = (hand_ + 1) % slots_.size();
  const auto slot = static_cast<uint32_t>(hand_);
  hand_ = (hand_ + 1) % slots_.size();
  if (slot_of_[slots_[slot].number] == slot) slot_of_[slots_[slot].number] = kNone;
  return slot;
}

Result<PageCache::Piece> PageCache::Get(MergedReader& reader, uint64_t number) {
  if (slot_of_[number] == kNone) {
    ahead_ = number == next_ ? std::min(2 * ahead_, std::min(kAheadMax, capacity_)) : 1;
    uint64_t end = number + 1;
    while (end < slot_of_.size() && end < number + ahead_ && slot_of_[end] == kNone) ++end;
    QUARRY_RETURN_IF_ERROR(Load(reader, number, end - number));
    next_ = end;
  }
  Slot& slot = slots_[slot_of_[number]];
  slot.asked = true;
  return Piece(slot.bytes);
}

Status PageCache::Load(MergedReader& reader, uint64_t first, uint64_t count) {
  const ScopedSpan span("read pages", first);
  std::vector<ByteRange> ranges;
  for (uint64_t i = first; i < first + count; ++i) {
    const uint64_t begin = i * kPieceBytes;
    ranges.push_back({section_.offset + begin, std::min(kPieceBytes, section_.bytes - begin)});
  }
  return reader.Read(*section_.file, section_.block_bytes, ranges,
                     [&](size_t i, std::span<const std::byte> bytes) -> Status {
                       const uint64_t number = first + i;
                       QUARRY_RETURN_IF_ERROR(section_.verify(number * (kPieceBytes / kPageBytes), bytes));
                       QUARRY_TRY(Piece piece, shape_ ? shape_(number * kPieceBytes, bytes) : Copy(bytes));
                       const uint32_t slot = TakeSlot();
                       slots_[slot] = {.bytes = std::move(piece), .number = number, .asked = true};
                       slot_of_[number] = slot;
                       return Status::Ok();
                     });
}

}  // namespace quarry::sql
