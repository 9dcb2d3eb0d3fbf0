// A planned batch for a device: what PlannedStream's assembler does with a frame once it has been verified.
//
// The frame becomes one piece: the rows that were read, those that the host's part of the cache has, the arrays of the
// block. The host's changes of the cache are made here, in the order of the batches, as nobody else reads its slots; those
// of the device go with the batch, which makes them behind its gather (device_frames.h).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "planned_stream.h"
#include "quarry/base/process.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"

namespace quarry {
namespace {

constexpr unsigned kPieceThreadsMax = 4;  // beyond, memory is the limit

}  // namespace

// A frame to read into; null once cancelled.
Result<PlannedFrame*> PlannedStream::AwaitFrame() {
  if (state_.device == nullptr) return free_.Pop().value_or(nullptr);
  constexpr std::chrono::milliseconds kBetween(1);
  constexpr uint32_t kLooksBeforeCheck = 100;
  for (uint32_t looks = 1;; ++looks) {
    if (const std::optional<PlannedFrame*> frame = free_.TryPop()) return *frame;
    if (cancelled_) return static_cast<PlannedFrame*>(nullptr);
    if (looks % kLooksBeforeCheck == 0) QUARRY_RETURN_IF_ERROR(state_.device->Check());
    std::this_thread::sleep_for(kBetween);
  }
}

// What the device's part of the cache begins with, by way of the first frame, which nobody uses yet.
Status PlannedStream::LoadDeviceRows(IoRing& ring) {
  const uint64_t stride = directory_.row_stride;
  const uint64_t pages = std::lcm(stride, kPageBytes) / stride;
  const PlannedFrame& frame = *state_.frames.front();
  const uint64_t at_once = state_.piece_bytes / stride / pages * pages;
  const uint64_t rows = std::min<uint64_t>(state_.device_slots, directory_.start_nodes.size());
  for (uint64_t first = 0; first < rows; first += at_once) {
    const uint64_t count = std::min(at_once, rows - first);
    QUARRY_RETURN_IF_ERROR(LoadImageRows(first, count, frame.first_slot, ring));
    QUARRY_RETURN_IF_ERROR(state_.device->Load(first, {frame.rows, count * stride}));
  }
  return Status::Ok();
}

// Gives every node its slot on the device, where the piece's rows begin at `first_slot`; what the host's cache has is
// appended to the piece. Returns how many rows that then has.
uint32_t PlannedStream::FillPiece(PlannedFrame& frame, uint32_t first_slot) {
  const auto cache_slots = static_cast<uint32_t>(directory_.cache_slots);
  const uint64_t stride = directory_.row_stride;
  PlannedBlock& planned = frame.planned;
  const auto read_rows = static_cast<uint32_t>(planned.frame_nodes.size());
  host_rows_.clear();
  uint64_t hits = 0;
  for (uint32_t& slot : planned.slots) {
    if (slot >= cache_slots) {
      slot = first_slot + (slot - cache_slots);
      continue;
    }
    const uint32_t physical = state_.physical[slot];
    if (physical < state_.device_slots) {
      slot = physical;
      ++hits;
    } else {
      slot = first_slot + read_rows + static_cast<uint32_t>(host_rows_.size());
      host_rows_.push_back(physical - static_cast<uint32_t>(state_.device_slots));
    }
  }
  {
    MutexLock lock(mutex_);
    stats_.device_hits += hits;
  }
  GatherRows({.base = state_.arena.data(), .stride_bytes = stride, .row_bytes = stride}, host_rows_,
             {frame.rows + read_rows * stride, host_rows_.size() * stride},
             std::min(ProcessorCount(), kPieceThreadsMax));
  frame.moved_rows.clear();
  frame.moved_slots.clear();
  for (size_t i = 0; i < planned.admitted_rows.size(); ++i) {
    const uint32_t row = planned.admitted_rows[i];
    const uint32_t physical = state_.physical[planned.admitted_slots[i]];
    if (physical < state_.device_slots) {
      frame.moved_rows.push_back(first_slot + row);
      frame.moved_slots.push_back(physical);
    } else {
      std::memcpy(state_.Row(physical - state_.device_slots), frame.rows + row * stride, stride);
    }
  }
  return read_rows + static_cast<uint32_t>(host_rows_.size());
}

Status PlannedStream::SendToDevice(PlannedFrame& frame) {
  const ScopedSpan span("send", frame.number);
  DeviceFrames::Taken taken = state_.device->Take();
  if (taken == nullptr) return Status(Code::kCancelled, "the stream was given up");
  const uint32_t rows = FillPiece(frame, DeviceFrames::FirstSlot(*taken));
  BatchView view = frame.planned.block.view();
  view.labels = frame.labels;
  view.features.slots = frame.planned.slots;
  const RowMoves moves = {frame.moved_rows, frame.moved_slots};
  const PieceForm form = PieceForm::Of(rows, directory_.row_stride, view, moves);
  if (form.bytes > state_.device_options.piece_bytes) {
    return MakeStatus(Code::kInternal, "batch {} takes {} bytes of a frame of {}", frame.number, form.bytes,
                      state_.device_options.piece_bytes);
  }
  form.Write(view, moves, frame.rows);
  {
    MutexLock lock(mutex_);
    stats_.device_bytes += form.bytes;
  }
  const auto read = [](void* context) {
    auto& sent = *static_cast<PlannedFrame*>(context);
    sent.stream->LetGo(sent);
  };
  frame.holders = 2;
  QUARRY_TRY(frame.on_device, state_.device->Send(std::move(taken), {.piece = frame.rows,
                                                                     .form = form,
                                                                     .view = view,
                                                                     .moves = moves.from.size(),
                                                                     .read = read,
                                                                     .context = &frame}));
  return Status::Ok();
}

// The frame is free once the device has read it and the batch is gone.
void PlannedStream::LetGo(PlannedFrame& frame) {
  if (frame.holders.fetch_sub(1) == 1) free_.Push(&frame);
}

}  // namespace quarry
