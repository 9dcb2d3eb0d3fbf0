#include "device_frames.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/gpu/block_kernels.h"
#include "quarry/gpu/rows.h"

namespace quarry {
namespace {

constexpr uint64_t kAlignment = 256;  // of arrays on a device: whole lines for every warp

// Puts the arrays of a piece behind each other.
class PieceBytes {
 public:
  explicit PieceBytes(uint64_t rows_bytes) : bytes_(rows_bytes) {}
  uint64_t Add(uint64_t bytes) {
    const uint64_t at = RoundUp(bytes_, kAlignment);
    bytes_ = at + bytes;
    return at;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
};

}  // namespace

PieceForm PieceForm::Of(uint64_t rows, uint64_t stride, const BatchView& view, const RowMoves& moves) {
  PieceBytes piece(rows * stride);
  PieceForm form;
  form.slots = piece.Add(view.nodes.size_bytes());
  form.nodes = piece.Add(view.nodes.size_bytes());
  form.indptr = piece.Add(view.indptr.size_bytes());
  form.indices = piece.Add(view.indices.size_bytes());
  form.labels = piece.Add(view.labels.size_bytes());
  form.edge_ids = piece.Add(view.edge_ids.size_bytes());
  form.moved_from = piece.Add(moves.from.size_bytes());
  form.moved_to = piece.Add(moves.to.size_bytes());
  form.bytes = piece.bytes();
  return form;
}

void PieceForm::Write(const BatchView& view, const RowMoves& moves, std::byte* piece) const {
  const auto write = [piece](uint64_t at, auto array) {
    if (!array.empty()) std::memcpy(piece + at, array.data(), array.size_bytes());
  };
  write(slots, view.features.slots);
  write(nodes, view.nodes);
  write(indptr, view.indptr);
  write(indices, view.indices);
  write(labels, view.labels);
  write(edge_ids, view.edge_ids);
  write(moved_from, moves.from);
  write(moved_to, moves.to);
}

uint64_t PieceForm::BytesMax(uint64_t rows, uint64_t stride, uint64_t nodes, uint64_t edges, uint64_t moves,
                             bool edge_ids) {
  PieceBytes piece(rows * stride);
  for (int array = 0; array < 2; ++array) piece.Add(nodes * sizeof(uint32_t));
  piece.Add((nodes + 1) * sizeof(uint32_t));
  piece.Add(edges * sizeof(uint32_t));
  piece.Add(nodes * sizeof(int64_t));
  piece.Add(edge_ids ? edges * sizeof(uint64_t) : 0);
  for (int array = 0; array < 2; ++array) piece.Add(moves * sizeof(uint32_t));
  return piece.bytes();
}

class DeviceFrames::Frame {
 public:
  uint64_t first_slot = 0;
  gpu::Event copied, gathered;
};

// A batch that was sent.
class DeviceFrames::Sent final : public DeviceBatch {
 public:
  Sent(DeviceFrames& frames, Taken frame, const Sending& sending)
      : frames_(frames), frame_(std::move(frame)), sending_(sending) {}
  ~Sent() override {
    // Rows enter the cache whoever trains on the batch. Where that fails, the next Send says so.
    if (frame_ != nullptr) static_cast<void>(frames_.Write(*frame_, sending_, nullptr, frames_.own_.get()));
  }
  Status WriteTo(const DeviceOutputs& outputs, void* stream) override {
    if (frame_ == nullptr) return Status(Code::kUsage, "this batch was written to a device already");
    const Taken frame = std::move(frame_);
    return frames_.Write(*frame, sending_, &outputs, {stream});
  }

 private:
  DeviceFrames& frames_;
  Taken frame_;
  const Sending sending_;
};

DeviceFrames::DeviceFrames(const DeviceFramesOptions& options) : options_(options) {}

template <typename T>
const T* DeviceFrames::Array(const Frame& frame, uint64_t at) const {
  return reinterpret_cast<const T*>(Row(frame.first_slot) + at);
}

uint64_t DeviceFrames::DeviceBytes(const DeviceFramesOptions& options) {
  const uint64_t frame = RoundUp(options.piece_bytes, std::lcm(options.stride, kAlignment));
  return RoundUp(options.cached_rows * options.stride, std::lcm(options.stride, kAlignment)) +
         options.count * frame;
}

Result<std::unique_ptr<DeviceFrames>> DeviceFrames::Make(const DeviceFramesOptions& options) {
  std::unique_ptr<DeviceFrames> made(new DeviceFrames(options));
  gpu::Device& device = *options.device;
  QUARRY_TRY(made->copies_, gpu::MakeStream(device));
  QUARRY_TRY(made->calls_, gpu::MakeStream(device));
  QUARRY_TRY(made->own_, gpu::MakeStream(device));
  QUARRY_TRY(made->cache_used_, gpu::MakeEvent(device));
  QUARRY_TRY(made->memory_, gpu::AllocateMemory(device, DeviceBytes(options)));
  const uint64_t unit = std::lcm(options.stride, kAlignment);
  uint64_t at = RoundUp(options.cached_rows * options.stride, unit);
  for (uint32_t i = 0; i < options.count; ++i, at += RoundUp(options.piece_bytes, unit)) {
    auto frame = std::make_unique<Frame>();
    frame->first_slot = at / options.stride;
    QUARRY_TRY(frame->copied, gpu::MakeEvent(device));
    QUARRY_TRY(frame->gathered, gpu::MakeEvent(device));
    made->frames_.push_back(std::move(frame));
  }
  made->Restart();
  return made;
}

// What is under way ends before its memory goes.
DeviceFrames::~DeviceFrames() {
  if (free_ == nullptr) return;
  Quiesce();
  static_cast<void>(options_.device->Synchronize(own_.get()));
  for (const auto& frame : frames_) static_cast<void>(options_.device->Synchronize(frame->gathered.get()));
}

void DeviceFrames::GiveBack::operator()(Frame* frame) const { frames->free_->Push(frame); }
DeviceFrames::Taken DeviceFrames::Take() { return {free_->Pop().value_or(nullptr), {this}}; }
uint32_t DeviceFrames::FirstSlot(const Frame& frame) { return static_cast<uint32_t>(frame.first_slot); }
void DeviceFrames::Cancel() { free_->Cancel(); }
Status DeviceFrames::Check() { return options_.device->FreeBytes().status(); }
Status DeviceFrames::broken() const {
  MutexLock lock(mutex_);
  return broken_;
}
void DeviceFrames::Restart() {
  {
    MutexLock lock(mutex_);
    broken_ = Status();
  }
  free_ = std::make_unique<BoundedQueue<Frame*>>(frames_.size());
  for (const auto& frame : frames_) free_->Push(frame.get());
}
void DeviceFrames::Quiesce() {
  for (const gpu::Stream* const stream : {&copies_, &calls_}) {
    static_cast<void>(options_.device->Synchronize(stream->get()));
  }
}

Result<std::unique_ptr<DeviceBatch>> DeviceFrames::Send(Taken frame, const Sending& sending) {
  gpu::Device& device = *options_.device;
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
  }
  QUARRY_RETURN_IF_ERROR(device.Wait(copies_.get(), frame->gathered.get()));
  QUARRY_RETURN_IF_ERROR(
      device.CopyIn(Row(frame->first_slot), sending.piece, sending.form.bytes, copies_.get()));
  QUARRY_RETURN_IF_ERROR(device.Record(frame->copied.get(), copies_.get()));
  if (sending.read != nullptr) {
    QUARRY_RETURN_IF_ERROR(device.Wait(calls_.get(), frame->copied.get()));
    QUARRY_RETURN_IF_ERROR(device.CallHost(calls_.get(), sending.read, sending.context));
  }
  return std::unique_ptr<DeviceBatch>(std::make_unique<Sent>(*this, std::move(frame), sending));
}

Status DeviceFrames::Load(uint64_t first, std::span<const std::byte> rows) {
  gpu::Device& device = *options_.device;
  QUARRY_RETURN_IF_ERROR(device.Wait(copies_.get(), cache_used_.get()));
  QUARRY_RETURN_IF_ERROR(device.CopyIn(Row(first), rows.data(), rows.size(), copies_.get()));
  return device.Synchronize(copies_.get());
}

// Gathers a batch (`outputs` null: nobody wants it), and makes its moves.
Status DeviceFrames::Write(const Frame& frame, const Sending& batch, const DeviceOutputs* outputs,
                           gpu::StreamHandle stream) {
  gpu::Device& device = *options_.device;
  for (const gpu::EventHandle before : {frame.copied.get(), cache_used_.get()}) {
    const Status status = device.Wait(stream, before);
    if (status.ok()) continue;
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = status;
    return status;
  }
  const Status written = outputs == nullptr ? Status::Ok() : WriteOutputs(frame, batch, *outputs, stream);
  const Status kept = Keep(frame, batch, stream);
  return written.ok() ? kept : written;
}

// The moves of a batch, and what later ones wait for; whatever became of its outputs, as later batches are planned for both.
// Where that fails, so does every later Send until Restart.
Status DeviceFrames::Keep(const Frame& frame, const Sending& batch, gpu::StreamHandle stream) {
  const Status kept = TryToKeep(frame, batch, stream);
  if (!kept.ok()) {
    MutexLock lock(mutex_);
    if (broken_.ok()) broken_ = kept;
  }
  return kept;
}

Status DeviceFrames::TryToKeep(const Frame& frame, const Sending& batch, gpu::StreamHandle stream) {
  gpu::Device& device = *options_.device;
  if (batch.moves > 0) {
    QUARRY_RETURN_IF_ERROR(gpu::CopyRows(device,
                                         {.from = memory_.get().data(),
                                          .to = memory_.get().data(),
                                          .from_rows = Array<uint32_t>(frame, batch.form.moved_from),
                                          .to_rows = Array<uint32_t>(frame, batch.form.moved_to),
                                          .rows = batch.moves,
                                          .row_bytes = options_.stride,
                                          .from_stride_bytes = options_.stride,
                                          .to_stride_bytes = options_.stride},
                                         stream));
  }
  QUARRY_RETURN_IF_ERROR(device.Record(cache_used_.get(), stream));
  return device.Record(frame.gathered.get(), stream);
}

Status DeviceFrames::WriteRows(const DeviceOutputs& outputs, const uint32_t* slots, uint64_t rows,
                               gpu::StreamHandle stream) {
  gpu::Device& device = *options_.device;
  if (outputs.decoded) {
    const FeatureView view = {.rows = memory_.get(),
                              .stride_bytes = options_.stride,
                              .element_type = options_.element_type,
                              .dim = options_.dim,
                              .slots = {slots, rows}};
    return gpu::DecodeRows(device, view, rows, static_cast<float*>(outputs.x), stream);
  }
  const uint64_t row_bytes = RowBytes(options_.element_type, options_.dim);
  if (outputs.x_stride_bytes > 0 && outputs.x_stride_bytes < row_bytes) {
    return MakeStatus(Code::kInvalidArgument, "rows of {} bytes, {} bytes apart", row_bytes,
                      outputs.x_stride_bytes);
  }
  return gpu::CopyRows(device,
                       {.from = memory_.get().data(),
                        .to = static_cast<std::byte*>(outputs.x),
                        .from_rows = slots,
                        .rows = rows,
                        .row_bytes = row_bytes,
                        .from_stride_bytes = options_.stride,
                        .to_stride_bytes = outputs.x_stride_bytes > 0 ? outputs.x_stride_bytes : row_bytes},
                       stream);
}

Status DeviceFrames::WriteOutputs(const Frame& frame, const Sending& batch, const DeviceOutputs& outputs,
                                  gpu::StreamHandle stream) {
  gpu::Device& device = *options_.device;
  const PieceForm& form = batch.form;
  const BatchView& view = batch.view;
  if (outputs.x != nullptr && options_.dim > 0) {
    QUARRY_RETURN_IF_ERROR(WriteRows(outputs, Array<uint32_t>(frame, form.slots), view.nodes.size(), stream));
  }
  if (outputs.edge_index != nullptr && !view.indices.empty()) {
    QUARRY_RETURN_IF_ERROR(gpu::Run(device,
                                    gpu::WriteEdges{.indptr = Array<uint32_t>(frame, form.indptr),
                                                    .indices = Array<uint32_t>(frame, form.indices),
                                                    .out = outputs.edge_index,
                                                    .targets = view.target_count(),
                                                    .edges = view.indices.size()},
                                    stream));
  }
  if (outputs.nodes != nullptr) {
    QUARRY_RETURN_IF_ERROR(gpu::Run(
        device, gpu::WidenIds{Array<uint32_t>(frame, form.nodes), outputs.nodes, view.nodes.size()}, stream));
  }
  const auto copy = [&](int64_t* to, uint64_t at, uint64_t bytes) {
    if (to == nullptr || bytes == 0) return Status::Ok();
    return device.CopyWithin(reinterpret_cast<std::byte*>(to), Array<std::byte>(frame, at), bytes, stream);
  };
  QUARRY_RETURN_IF_ERROR(copy(outputs.labels, form.labels, view.labels.size_bytes()));
  return copy(outputs.edge_ids, form.edge_ids, view.edge_ids.size_bytes());
}

}  // namespace quarry
