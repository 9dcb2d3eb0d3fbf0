#include "device_rows.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/gpu/rows.h"

namespace quarry {
namespace {

// Takes twenty microseconds of the link, several times what starting a copy does; a disk of 3 GB/s fills it in a third of a
// millisecond.
constexpr uint64_t kPieceBytes = kMiB;
constexpr uint64_t kRowsAlignment = 256;  // of the rows behind the slots

uint64_t RowsMax(uint64_t stride) { return std::max<uint64_t>(1, kPieceBytes / (stride + sizeof(uint32_t))); }
uint64_t RowsAt(uint64_t stride) { return RoundUp(RowsMax(stride) * sizeof(uint32_t), kRowsAlignment); }
uint64_t BytesOfPiece(uint64_t stride) {
  return RoundUp(RowsAt(stride) + RowsMax(stride) * stride, kPageBytes);
}

}  // namespace

DeviceRows::DeviceRows(const DeviceRowsOptions& options)
    : options_(options), rows_max_(RowsMax(options.stride)), rows_at_(RowsAt(options.stride)) {}

uint64_t DeviceRows::PinnedBytes(uint64_t stride, size_t pieces) {
  return PinnedPieces::MemoryBytes(BytesOfPiece(stride), pieces);
}
uint64_t DeviceRows::DeviceBytes(uint64_t stride, size_t pieces) { return pieces * BytesOfPiece(stride); }

Result<std::unique_ptr<DeviceRows>> DeviceRows::Make(const DeviceRowsOptions& options) {
  assert(options.stride % sizeof(uint32_t) == 0 && options.pieces > 0);
  gpu::Device& device = *options.device;
  std::unique_ptr<DeviceRows> made(new DeviceRows(options));
  QUARRY_TRY(made->pieces_, PinnedPieces::Make(device, BytesOfPiece(options.stride), options.pieces));
  QUARRY_TRY(made->device_, gpu::AllocateMemory(device, DeviceBytes(options.stride, options.pieces)));
  for (size_t i = 0; i < options.pieces; ++i) {
    QUARRY_TRY(gpu::Event event, gpu::MakeEvent(device));
    made->copied_.push_back(std::move(event));
  }
  QUARRY_TRY(made->returns_, gpu::MakeStream(device));
  QUARRY_TRY(made->read_, gpu::MakeEvent(device));
  return made;
}

// A device that is lost calls nobody back and reads nothing more: its errors change nothing here.
DeviceRows::~DeviceRows() {
  if (returns_) static_cast<void>(options_.device->Synchronize(returns_.get()));
}

Result<DeviceRows::Piece> DeviceRows::Take() {
  QUARRY_TRY(PinnedPieces::Taken memory, pieces_->Take());
  return Piece{.memory = std::move(memory), .rows = 0};
}

std::byte* DeviceRows::Add(Piece& piece, uint32_t slot) const {
  assert(!IsFull(piece));
  std::memcpy(piece.memory->bytes + piece.rows * sizeof(slot), &slot, sizeof(slot));
  return piece.memory->bytes + rows_at_ + piece.rows++ * options_.stride;
}

Status DeviceRows::Send(Piece piece) {
  if (piece.rows == 0) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(broken());
  const Status status = Enqueue(*PinnedPieces::SendOff(std::move(piece.memory)), piece.rows);
  if (!status.ok()) pieces_->Break(status);
  return status;
}

Status DeviceRows::Enqueue(PinnedPieces::Piece& piece, uint64_t rows) {
  gpu::Device& device = *options_.device;
  const gpu::EventHandle copied = copied_[piece.index].get();
  std::byte* const there = device_.get().data() + piece.index * BytesOfPiece(options_.stride);
  const uint64_t bytes = rows_at_ + rows * options_.stride;
  QUARRY_RETURN_IF_ERROR(device.CopyIn(there, piece.bytes, bytes, options_.stream));
  sent_bytes_ += bytes;
  QUARRY_RETURN_IF_ERROR(device.Record(copied, options_.stream));
  QUARRY_RETURN_IF_ERROR(gpu::CopyRows(device,
                                       {.from = there + rows_at_,
                                        .to = options_.slots,
                                        .to_rows = reinterpret_cast<const uint32_t*>(there),
                                        .rows = rows,
                                        .row_bytes = options_.stride,
                                        .from_stride_bytes = options_.stride,
                                        .to_stride_bytes = options_.stride},
                                       options_.stream));
  QUARRY_RETURN_IF_ERROR(device.Wait(returns_.get(), copied));
  return device.CallHost(returns_.get(), PinnedPieces::Read, &piece);
}

Status DeviceRows::StayBehind(gpu::StreamHandle stream) {
  gpu::Device& device = *options_.device;
  Status status;
  {
    MutexLock lock(order_);
    status = device.Record(read_.get(), stream);
    if (status.ok()) status = device.Wait(options_.stream, read_.get());
  }
  if (status.ok()) return status;
  pieces_->Break(status);
  static_cast<void>(device.Synchronize(stream));
  return status;
}

void DeviceRows::Restart() {
  if (!broken().ok()) {
    static_cast<void>(options_.device->Synchronize(options_.stream));
    static_cast<void>(options_.device->Synchronize(returns_.get()));
  }
  pieces_->Restart();
}

}  // namespace quarry
