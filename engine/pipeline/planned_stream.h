// PlannedStream: one pass over a planned epoch (planned_road.h), and the state that passes share.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device_frames.h"
#include "extractor.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/mutex.h"
#include "quarry/base/thread.h"
#include "quarry/io/buffer.h"
#include "quarry/io/ring.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/planned_block.h"
#include "quarry/layout/segment_reads.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/storage/row_sources.h"

namespace quarry {

class PlannedStream;

// What one batch is read into.
struct PlannedFrame {
  uint64_t number = 0;           // the batch's number in the cycle
  std::byte* rows = nullptr;     // in the arena
  uint32_t first_slot = 0;       // place in the arena of its first row
  std::vector<uint32_t> places;  // in the arena, of each of its rows
  IoBuffer block_bytes;
  PlannedBlock planned;
  std::vector<int64_t> labels;
  uint32_t reads_left = 0;

  // For a device: the rows are those of the piece that the batch is sent as.
  PlannedStream* stream = nullptr;
  std::unique_ptr<DeviceBatch> on_device;
  std::atomic<uint32_t> holders{0};               // the copy to the device, and who has the batch
  std::vector<uint32_t> moved_rows, moved_slots;  // cache changes on the device, in its slots
};

// Owned by the road; one stream at a time uses it. `position` is where the cycle stands: the cache holds what
// batch `position` expects.
struct PlannedState {
  const Layout* layout = nullptr;
  // Their overlays are what is newer than the layout's rows, and joined columns are written behind these.
  const RowSources* rows = nullptr;
  IoBackend* backend = nullptr;
  std::span<const int64_t> labels;                   // by node; empty = none
  ElementType element_type = ElementType::kFloat32;  // where there is one table
  uint32_t dim = 0;                                  // so
  unsigned io_depth = 16;
  uint64_t gap_bytes_max = 0;

  // Cache slots, then the frames' rows, in places row_stride apart (row_places.h). Behind the last one is room for the longest
  // row: whoever copies rows takes that many bytes of each.
  IoBuffer arena;
  std::optional<RowPlaces> row_places;
  // With a device, which has the first `device_slots` slots of the cache: the arena begins with the slot behind them, and
  // is pinned.
  uint64_t device_slots = 0;
  uint64_t piece_bytes = 0;  // of a frame's part of the arena
  DeviceFramesOptions device_options;
  gpu::Pinned pinned;
  std::unique_ptr<DeviceFrames> device;
  std::vector<std::unique_ptr<PlannedFrame>> frames;
  std::unique_ptr<BlockDecoder> decoder;
  std::vector<uint32_t> physical;  // by the plan's slot: the place in the arena (a cycle's end permutes them)
  IoBuffer staging;                // for segment reads
  std::unique_ptr<Extractor> extractor;  // reads unpacked rows; the loader's, then the assembler's
  bool image_loaded = false;
  uint64_t position = 0;

  std::byte* Row(uint64_t place) const { return arena.data() + place * layout->directory().row_stride; }
  uint64_t host_slots() const { return layout->directory().cache_slots - device_slots; }
};

class PlannedStream final : public BatchStream {
 public:
  // Serves batches [state.position, + batches of an epoch). `on_end` is called by the destructor; not
  // `whole`: a thread found no memory, and the state is not fit for another pass.
  PlannedStream(PlannedState& state, std::function<void(bool whole)> on_end);
  // Starts both threads. kOutOfBudget where the system has none; the stream can then only be destroyed.
  Status Start();
  ~PlannedStream() override;

  uint64_t batch_count() const override { return batch_count_; }
  Result<std::unique_ptr<Batch>> Next() override;
  StreamStats stats() const override;

 private:
  void RunLoader();
  void RunAssembler();
  Status LoadAll();
  Status LoadImage(IoRing& ring);
  Status LoadImageRows(uint64_t first, uint64_t count, uint32_t to_slot, IoRing& ring);
  Result<PlannedFrame*> AwaitFrame();
  Status StartReads(PlannedFrame& frame, uint64_t number, IoRing& ring);
  Status SubmitRange(PlannedFrame* frame, uint64_t offset, std::span<std::byte> bytes, IoRing& ring);
  Status FinishReads(IoRing& ring);
  Status Assemble(PlannedFrame& frame);
  Status ReadRows(PlannedFrame& frame);
  Status ReadTableRows(std::span<const NodeId> nodes, std::span<const uint32_t> places);
  Status ReadSegmentRows(PlannedFrame& frame);
  Status CompleteRows(std::span<const NodeId> nodes, std::span<const uint32_t> places);
  Status CompleteRowsOf(const RowSource& source, std::span<const NodeId> nodes,
                        std::span<const uint32_t> places);
  void ApplyAdmissions(const PlannedFrame& frame);
  // planned_device.cc
  Status LoadDeviceRows(IoRing& ring);
  Status SendToDevice(PlannedFrame& frame);
  uint32_t FillPiece(PlannedFrame& frame, uint32_t first_slot);
  void LetGo(PlannedFrame& frame);
  std::unique_ptr<Batch> HandOut(PlannedFrame& frame);
  void Wrap();
  void Fail(const Status& status) QUARRY_EXCLUDES(mutex_);
  void Break(const Status& why);
  void Cancel();

  PlannedState& state_;
  const LayoutDirectory& directory_;
  const uint64_t first_;
  const uint64_t batch_count_;
  const std::function<void(bool)> on_end_;

  BoundedQueue<PlannedFrame*> free_;
  BoundedQueue<PlannedFrame*> loaded_{2};
  BoundedQueue<PlannedFrame*> ready_{2};
  std::vector<PlannedFrame*> flights_;  // whose request is on its way; null: the image's
  std::vector<uint32_t> idle_flights_;
  std::deque<PlannedFrame*> loading_;  // in order
  std::vector<uint64_t> done_;
  std::unique_ptr<IoRing> segment_ring_;
  std::vector<ByteRange> ranges_;
  std::vector<MergedRead> reads_;
  std::vector<uint32_t> image_places_, table_positions_;
  std::vector<uint32_t> host_rows_;  // of a piece for a device, by slot of the arena
  double row_read_seconds_ = 0;      // time that the assembler spent in ReadRows

  std::atomic<bool> cancelled_{false};
  std::atomic<bool> broken_{false};
  bool held_ = false;             // the consumer has a batch
  PlannedFrame* used_ = nullptr;  // the batch before: its changes are not applied yet
  uint64_t delivered_ = 0;

  mutable Mutex mutex_;
  Status error_ QUARRY_GUARDED_BY(mutex_);
  StreamStats stats_ QUARRY_GUARDED_BY(mutex_);
  Thread loader_, assembler_;
};

}  // namespace quarry
