// DeviceRows: the way of rows into slots on a device, the second phase of extraction (GNNDrive §4.2). Private to this room.
//
// Rows that were verified are made dense in a piece of pinned memory, with the slot of each. A full piece goes over by one
// copy, and one kernel puts its rows into their slots, both on the stream of all copies of the road: so whatever is sent
// there later, a batch's arrays and the event behind them among it, finds the rows in place.
//
// Dense, and not read by a kernel from the staging memory that is mapped: the processor has the bytes at hand, since it has
// just verified them, and copies them where a road of the host copies them, too. So the disk gets its staging memory back at
// once, whatever the device is at; and rows of the overlay, and rows at any address, go the same way.
//
// Thread-safe, but for a piece, which is its taker's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pinned_pieces.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/gpu/handles.h"

namespace quarry {

struct DeviceRowsOptions {
  gpu::Device* device = nullptr;
  gpu::StreamHandle stream;    // of all copies
  std::byte* slots = nullptr;  // on the device: slot 0
  uint64_t stride = 0;         // from slot to slot
  size_t pieces =
      2;  // one is filled while the other is under way: two more than threads keep both sides busy
};

class DeviceRows {
 public:
  // What they take of the host's memory, pinned, and of the device's.
  static uint64_t PinnedBytes(uint64_t stride, size_t pieces);
  static uint64_t DeviceBytes(uint64_t stride, size_t pieces);
  // Device, stream and slots outlive them, and what was sent is through before they go.
  static Result<std::unique_ptr<DeviceRows>> Make(const DeviceRowsOptions& options);
  ~DeviceRows();

  // Rows that go together.
  struct Piece {
    PinnedPieces::Taken memory;
    uint64_t rows = 0;
  };
  // An empty one. Errors as PinnedPieces::Take.
  Result<Piece> Take();
  bool IsFull(const Piece& piece) const { return piece.rows == rows_max_; }
  // Where the row of `slot` is to be written. REQUIRES: not full.
  std::byte* Add(Piece& piece, uint32_t slot) const;
  // Enqueues copy and kernel. After an error nothing can be sent until Restart, and the piece's slots hold anything.
  Status Send(Piece piece);

  // What is sent from now on reaches no slot before what is on `stream` now is through: a gather of rows whose slots may be
  // given away afterwards. Where that is refused it waits for the stream, and returns the error.
  Status StayBehind(gpu::StreamHandle stream);

  uint64_t sent_bytes() const { return sent_bytes_; }  // so far
  void Cancel() { pieces_->Cancel(); }
  Status broken() const { return pieces_->broken(); }
  // As PinnedPieces. Waits for the pieces where an error left some under way.
  void Restart();

 private:
  explicit DeviceRows(const DeviceRowsOptions& options);
  Status Enqueue(PinnedPieces::Piece& piece, uint64_t rows);

  const DeviceRowsOptions options_;
  const uint64_t rows_max_, rows_at_;  // of a piece: how many, and where behind their slots
  std::unique_ptr<PinnedPieces> pieces_;
  std::atomic<uint64_t> sent_bytes_{0};
  gpu::Memory device_;              // a piece for each of the host's
  std::vector<gpu::Event> copied_;  // for each
  gpu::Stream returns_;             // gives pieces back, so that copies do not wait for a thread of the host
  gpu::Event read_;                 // behind the last gather
  Mutex
      order_;  // makes its record and the wait for it one step. Apart from the latch that the driver's thread takes
};

}  // namespace quarry
