// PinnedPieces: equal pieces of pinned memory, in which what goes to a device waits for its copy. Private to this room.
//
//   free -> taken [Take] -> under way [SendOff] -> free [Read, on a thread of the driver's]
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/gpu/handles.h"
#include "quarry/io/buffer.h"

namespace quarry {

class PinnedPieces {
 public:
  static uint64_t MemoryBytes(uint64_t piece_bytes, size_t count);
  // `device` outlives them. kOutOfBudget where the system refuses the memory, and the errors of Pin.
  static Result<std::unique_ptr<PinnedPieces>> Make(gpu::Device& device, uint64_t piece_bytes, size_t count);

  struct Piece {
    PinnedPieces* owner = nullptr;
    std::byte* bytes = nullptr;
    size_t index = 0;        // among them
    bool under_way = false;  // guarded by the owner's latch
  };
  struct GiveBack {
    void operator()(Piece* piece) const { Read(piece); }
  };
  using Taken = std::unique_ptr<Piece, GiveBack>;

  // Waits while all are under way. kCancelled after Cancel; what Break was told, after it.
  Result<Taken> Take();
  // From here on the device reads the piece, and gives it back: enqueue a call of Read with it behind the copy. What
  // cannot be enqueued is told to Break.
  static Piece* SendOff(Taken taken);
  static void Read(void* piece);

  // Ends Take, now and from now on, until Restart.
  void Cancel();
  void Break(const Status& why);
  Status broken() const;
  // REQUIRES: no piece is taken; after Break, the device reads none.
  void Restart();

 private:
  PinnedPieces(gpu::Device& device, IoBuffer memory) : device_(&device), memory_(std::move(memory)) {}

  gpu::Device* const device_;
  const IoBuffer memory_;
  gpu::Pinned pinned_;  // goes before the memory
  std::vector<Piece> pieces_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Piece*> free_ QUARRY_GUARDED_BY(mutex_);
  bool cancelled_ QUARRY_GUARDED_BY(mutex_) = false;
  Status broken_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
