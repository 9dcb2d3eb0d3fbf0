// DeviceFrames: batches on their way to a device, and the rows that stay there (docs/architecture.md "GPUs"). Private to
// this room.
//
// The device has one array of rows, a stride apart: `cached_rows` that stay, then frames, one for each batch under way. A
// batch comes as one piece of pinned host memory, its rows first and its arrays behind them, and goes over by one copy on a
// stream of its own. WriteTo gathers it on the taker's stream, and then moves the rows that enter the cache, device to
// device. Order is kept by events:
//   copied      of a frame: recorded behind its copy; the gather waits for it
//   gathered    of a frame: recorded behind gather and moves; the next copy into the frame waits for it
//   cache_used  behind gather and moves of every batch: those of the next one wait for it, whatever stream they are on
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/bounded_queue.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/gpu/handles.h"

namespace quarry {

// Rows of the device's array that go to other slots of it behind a batch.
struct RowMoves {
  std::span<const uint32_t> from, to;
};

// A batch as it lies in its piece, host and device alike: rows, and at these bytes its arrays.
struct PieceForm {
  uint64_t slots = 0, nodes = 0, indptr = 0, indices = 0, labels = 0, edge_ids = 0;
  uint64_t moved_from = 0, moved_to = 0;
  uint64_t bytes = 0;  // of all of it

  // `rows`: that lie in the piece.
  static PieceForm Of(uint64_t rows, uint64_t stride, const BatchView& view, const RowMoves& moves);
  // No batch of so many takes more.
  static uint64_t BytesMax(uint64_t rows, uint64_t stride, uint64_t nodes, uint64_t edges, uint64_t moves,
                           bool edge_ids);
  // The arrays of the view, whose slots are the device's.
  void Write(const BatchView& view, const RowMoves& moves, std::byte* piece) const;
};

struct DeviceFramesOptions {
  gpu::Device* device = nullptr;  // outlives the frames
  uint64_t stride = 0;            // from row to row
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
  uint64_t cached_rows = 0;
  uint64_t piece_bytes = 0;  // of the largest batch
  uint32_t count = 3;        // one is copied to, one waits, one is read
};

class DeviceFrames {
 public:
  // What they take of the device's memory.
  static uint64_t DeviceBytes(const DeviceFramesOptions& options);
  static Result<std::unique_ptr<DeviceFrames>> Make(const DeviceFramesOptions& options);
  // Waits for what is under way. Batches must be gone.
  ~DeviceFrames();

  // A frame of the device, the taker's alone until it is sent, or goes.
  class Frame;
  struct GiveBack {
    DeviceFrames* frames;
    void operator()(Frame* frame) const;
  };
  using Taken = std::unique_ptr<Frame, GiveBack>;
  // Blocks while all are under way; null once cancelled.
  Taken Take();
  // The slot of the first row of a batch's piece in that frame.
  static uint32_t FirstSlot(const Frame& frame);

  struct Sending {
    const std::byte* piece = nullptr;  // pinned
    PieceForm form;
    BatchView view;  // only its counts: the arrays lie in the piece
    uint64_t moves = 0;
    // Called on a thread of the driver's once the piece has been read; must not call the device.
    void (*read)(void*) = nullptr;
    void* context = nullptr;
  };
  // Enqueues the copy. The batch dies before the frames; if nobody had it written, its moves are made then. `read` is
  // called if, and only if, this succeeds.
  Result<std::unique_ptr<DeviceBatch>> Send(Taken frame, const Sending& sending);

  // Rows [first, first + bytes / stride) of the cache, behind whatever still reads them; waits until `rows` was read, so
  // not for use in a batch.
  Status Load(uint64_t first, std::span<const std::byte> rows);
  // For whoever brings rows into the cache by copies of its own: slot 0, and the stream of the frames' copies.
  std::byte* slots() const { return Row(0); }
  gpu::StreamHandle copies() const { return copies_.get(); }
  // Waits until no piece is being read, and all calls of `read` are through.
  void Quiesce();
  // Ends Take, now and from now on, until Restart.
  void Cancel();
  // What left the cache other than planned since Restart; whoever goes on loads it anew.
  Status broken() const;
  void Restart();
  // An error where the device is lost: it calls nobody then, so whoever waits for a call asks now and then.
  Status Check();

 private:
  class Sent;

  explicit DeviceFrames(const DeviceFramesOptions& options);
  Status Write(const Frame& frame, const Sending& batch, const DeviceOutputs* outputs,
               gpu::StreamHandle stream);
  Status Keep(const Frame& frame, const Sending& batch, gpu::StreamHandle stream);
  Status TryToKeep(const Frame& frame, const Sending& batch, gpu::StreamHandle stream);
  Status WriteOutputs(const Frame& frame, const Sending& batch, const DeviceOutputs& outputs,
                      gpu::StreamHandle stream);
  Status WriteRows(const DeviceOutputs& outputs, const uint32_t* slots, uint64_t rows,
                   gpu::StreamHandle stream);
  template <typename T>
  const T* Array(const Frame& frame, uint64_t at) const;
  std::byte* Row(uint64_t slot) const { return memory_.get().data() + slot * options_.stride; }

  const DeviceFramesOptions options_;
  gpu::Memory memory_;
  gpu::Stream copies_;
  // Calls `read`: on the copies' own stream, the next copy would wait for the host to be through.
  gpu::Stream calls_;
  gpu::Stream own_;  // for moves of batches that nobody takes
  gpu::Event cache_used_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::unique_ptr<BoundedQueue<Frame*>> free_;
  mutable Mutex mutex_;
  Status broken_ QUARRY_GUARDED_BY(mutex_);  // rows of the cache are not where they were planned
};

}  // namespace quarry
