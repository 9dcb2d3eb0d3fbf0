// HeldFrame: a frame of a stream that is sampled into and whose rows are in memory, while the stream has it, and then the
// batch that the consumer has. It is given back when it goes, whoever has it. Private to this room.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "quarry/base/bounded_queue.h"
#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/block.h"

namespace quarry {

// What one batch needs beside its rows.
struct Frame {
  Block block;
  std::vector<uint32_t> slots;
  std::vector<int64_t> labels;
  std::unique_ptr<DeviceBatch> on_device;  // null: its rows are in memory
};

// What a stream's frames have in common; it outlives them.
struct FrameOwner {
  FeatureView rows;                          // where those of all batches lie; slots are the frame's
  std::span<const TypeRows> type_rows = {};  // where they are of several tables
  BoundedQueue<std::unique_ptr<Frame>>& back;
  std::atomic<uint64_t> held{0};  // frames that the consumer has

  // Before the next batch is handed out.
  Status CheckNoneHeld() const {
    if (held == 0) return Status::Ok();
    return Status(Code::kInternal,
                  "Next was called while the previous batch was still held: let it go first");
  }
};

class HeldFrame {
 public:
  HeldFrame(FrameOwner& owner, uint64_t number, std::unique_ptr<Frame> frame)
      : owner_(owner), number_(number), frame_(std::move(frame)) {}
  ~HeldFrame() {
    if (handed_out_) --owner_.held;
    owner_.back.Push(std::move(frame_));
  }
  HeldFrame(const HeldFrame&) = delete;
  HeldFrame& operator=(const HeldFrame&) = delete;

  // What the consumer is given, and counted in `stats`. REQUIRES: once.
  static std::unique_ptr<Batch> HandOut(std::unique_ptr<HeldFrame> hold, StreamStats& stats) {
    hold->handed_out_ = true;
    ++hold->owner_.held;
    BatchView view = hold->frame_->block.view();
    view.index = hold->number_;
    view.labels = hold->frame_->labels;
    view.features = hold->owner_.rows;
    view.type_rows = hold->owner_.type_rows;
    DeviceBatch* const on_device = hold->frame_->on_device.get();
    if (on_device == nullptr) view.features.slots = hold->frame_->slots;
    ++stats.batches;
    stats.sampled_edges += view.indices.size();
    stats.input_nodes += view.nodes.size();
    return std::make_unique<Batch>(view, std::move(hold), on_device);
  }

 private:
  FrameOwner& owner_;
  const uint64_t number_;
  std::unique_ptr<Frame> frame_;
  bool handed_out_ = false;
};

}  // namespace quarry
