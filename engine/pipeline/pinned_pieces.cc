#include "pinned_pieces.h"

#include <chrono>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {

uint64_t PinnedPieces::MemoryBytes(uint64_t piece_bytes, size_t count) {
  return IoBuffer::MappedBytes(RoundUp(piece_bytes, kPageBytes) * count);
}

Result<std::unique_ptr<PinnedPieces>> PinnedPieces::Make(gpu::Device& device, uint64_t piece_bytes,
                                                         size_t count) {
  const uint64_t distance = RoundUp(piece_bytes, kPageBytes);
  QUARRY_TRY(IoBuffer memory, IoBuffer::Allocate(distance * count));
  std::unique_ptr<PinnedPieces> made(new PinnedPieces(device, std::move(memory)));
  QUARRY_TRY(made->pinned_, gpu::PinMemory(device, made->memory_.span()));
  for (size_t i = 0; i < count; ++i) {
    made->pieces_.push_back(
        {.owner = made.get(), .bytes = made->memory_.data() + i * distance, .index = i, .under_way = false});
  }
  MutexLock lock(made->mutex_);
  for (Piece& piece : made->pieces_) made->free_.push_back(&piece);
  return made;
}

Result<PinnedPieces::Taken> PinnedPieces::Take() {
  MutexLock lock(mutex_);
  while (!cancelled_ && broken_.ok() && free_.empty()) {
    // A device that is lost calls nobody, so it is asked now and then.
    constexpr std::chrono::milliseconds kPatience(100);
    if (changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kPatience)) continue;
    const Status lost = device_->FreeBytes().status();
    if (!lost.ok() && broken_.ok()) broken_ = lost;
  }
  if (!broken_.ok()) return broken_;
  if (cancelled_) return Status(Code::kCancelled, "nothing more goes to the device");
  Taken taken(free_.back());
  free_.pop_back();
  return taken;
}

PinnedPieces::Piece* PinnedPieces::SendOff(Taken taken) {
  MutexLock lock(taken->owner->mutex_);
  taken->under_way = true;
  return taken.release();
}

void PinnedPieces::Read(void* piece) {
  auto* const read = static_cast<Piece*>(piece);
  PinnedPieces& owner = *read->owner;
  MutexLock lock(owner.mutex_);
  read->under_way = false;
  owner.free_.push_back(read);
  owner.changed_.NotifyAll();
}

void PinnedPieces::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

void PinnedPieces::Break(const Status& why) {
  MutexLock lock(mutex_);
  if (broken_.ok()) broken_ = why;
  changed_.NotifyAll();
}

Status PinnedPieces::broken() const {
  MutexLock lock(mutex_);
  return broken_;
}

void PinnedPieces::Restart() {
  MutexLock lock(mutex_);
  for (Piece& piece : pieces_) {
    if (!broken_.ok() && std::exchange(piece.under_way, false)) free_.push_back(&piece);
  }
  cancelled_ = false;
  broken_ = Status();
}

}  // namespace quarry
