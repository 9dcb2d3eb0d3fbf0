#include "quarry/pipeline/device_feed.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device_frames.h"
#include "quarry/base/bounded_queue.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"
#include "quarry/io/buffer.h"

namespace quarry {
namespace {

constexpr unsigned kGatherThreadsMax = 4;  // beyond, memory is the limit

}  // namespace

struct DeviceFeed::Buffers {
  static constexpr size_t kPieces = 2;  // one is filled while the other is read
  struct Piece {
    Buffers* owner = nullptr;
    IoBuffer memory;
    gpu::Pinned pinned;
  };

  uint64_t piece_bytes = 0;
  std::array<Piece, kPieces> pieces;
  BoundedQueue<Piece*> idle{kPieces};
  std::unique_ptr<DeviceFrames> frames;  // goes first: its copies read the pieces
  std::vector<uint32_t> slots;
};

class DeviceFeed::Fed final : public BatchStream {
 public:
  Fed(DeviceFeed& feed, std::unique_ptr<BatchStream> stream) : feed_(feed), stream_(std::move(stream)) {}
  uint64_t batch_count() const override { return stream_->batch_count(); }
  Result<std::unique_ptr<Batch>> Next() override {
    QUARRY_TRY(std::unique_ptr<Batch> batch, stream_->Next());
    if (batch == nullptr || batch->on_device() != nullptr) return batch;
    return feed_.Send(std::move(batch), device_bytes_);
  }
  StreamStats stats() const override {
    StreamStats stats = stream_->stats();
    stats.device_bytes += device_bytes_;
    return stats;
  }

 private:
  DeviceFeed& feed_;
  const std::unique_ptr<BatchStream> stream_;
  uint64_t device_bytes_ = 0;
};

DeviceFeed::DeviceFeed(const DeviceTarget& target, uint64_t bytes_max)
    : target_(target), bytes_max_(bytes_max) {}
DeviceFeed::~DeviceFeed() = default;

std::unique_ptr<BatchStream> DeviceFeed::Feed(std::unique_ptr<BatchStream> stream) {
  return std::make_unique<Fed>(*this, std::move(stream));
}

Status DeviceFeed::Enlarge(const FeatureView& features, uint64_t bytes) {
  buffers_.reset();  // which waits for what is under way
  auto buffers = std::make_unique<Buffers>();
  const auto options_for = [&](uint64_t piece_bytes) {
    return DeviceFramesOptions{
        .device = target_.device,
        .stride = std::max<uint64_t>(sizeof(float), RowStride(features.element_type, features.dim)),
        .element_type = features.element_type,
        .dim = features.dim,
        .piece_bytes = piece_bytes};
  };
  buffers->piece_bytes = std::max(bytes, std::min(bytes + bytes / 4, bytes_max_));
  if (DeviceFrames::DeviceBytes(options_for(buffers->piece_bytes)) > target_.bytes)
    buffers->piece_bytes = bytes;
  if (buffers->piece_bytes > bytes_max_) {
    return MakeStatus(
        Code::kOutOfBudget,
        "a batch on its way to the device takes {} of pinned memory, more than the {} that its stream has",
        FormatBytes(bytes), FormatBytes(bytes_max_));
  }
  const DeviceFramesOptions options = options_for(buffers->piece_bytes);
  if (const uint64_t device_bytes = DeviceFrames::DeviceBytes(options); device_bytes > target_.bytes) {
    return MakeStatus(
        Code::kOutOfBudget,
        "batches on their way take {} of the device's memory, more than the {} given: give at least {}MiB",
        FormatBytes(device_bytes), FormatBytes(target_.bytes), CeilDiv(device_bytes, kMiB));
  }
  for (Buffers::Piece& piece : buffers->pieces) {
    piece.owner = buffers.get();
    QUARRY_TRY(piece.memory, IoBuffer::Allocate(buffers->piece_bytes));
    QUARRY_TRY(piece.pinned,
               gpu::PinMemory(*target_.device, {piece.memory.data(), piece.memory.mapped_bytes()}));
    buffers->idle.Push(&piece);
  }
  QUARRY_TRY(buffers->frames, DeviceFrames::Make(options));
  buffers_ = std::move(buffers);
  return Status::Ok();
}

Result<std::unique_ptr<Batch>> DeviceFeed::Send(std::unique_ptr<Batch> batch, uint64_t& device_bytes) {
  const BatchView& host = batch->view();
  const FeatureView& features = host.features;
  const uint64_t stride = std::max<uint64_t>(sizeof(float), RowStride(features.element_type, features.dim));
  const uint64_t rows = features.dim == 0 ? 0 : host.nodes.size();
  BatchView view = host;
  view.features = {.element_type = features.element_type, .dim = features.dim};
  const PieceForm form = PieceForm::Of(rows, stride, view, {});
  if (buffers_ == nullptr || form.bytes > buffers_->piece_bytes) {
    QUARRY_RETURN_IF_ERROR(Enlarge(features, form.bytes));
  }
  Buffers& buffers = *buffers_;
  // Neither waits for long, as the batches before have been let go; a lost device gives no piece back.
  constexpr std::chrono::milliseconds kBetween(1);
  constexpr uint32_t kLooksBeforeCheck = 100;
  std::optional<Buffers::Piece*> idle = buffers.idle.TryPop();
  for (uint32_t looks = 1; !idle; idle = buffers.idle.TryPop(), ++looks) {
    if (looks % kLooksBeforeCheck == 0) QUARRY_RETURN_IF_ERROR(buffers.frames->Check());
    std::this_thread::sleep_for(kBetween);
  }
  Buffers::Piece* const piece = *idle;
  DeviceFrames::Taken frame = buffers.frames->Take();
  buffers.slots.resize(rows);
  if (rows > 0) {
    std::iota(buffers.slots.begin(), buffers.slots.end(), 0U);
    GatherRows({.base = features.rows.data(), .stride_bytes = features.stride_bytes, .row_bytes = stride},
               features.slots.empty() ? std::span<const uint32_t>(buffers.slots) : features.slots,
               {piece->memory.data(), rows * stride}, std::min(ProcessorCount(), kGatherThreadsMax));
    std::iota(buffers.slots.begin(), buffers.slots.end(), DeviceFrames::FirstSlot(*frame));
  }
  view.features.slots = buffers.slots;
  form.Write(view, {}, piece->memory.data());
  view.features.slots = {};
  const auto read = [](void* context) {
    auto* const sent = static_cast<Buffers::Piece*>(context);
    sent->owner->idle.Push(sent);
  };
  auto sent = buffers.frames->Send(
      std::move(frame),
      {.piece = piece->memory.data(), .form = form, .view = view, .read = read, .context = piece});
  if (!sent.ok()) {
    buffers_.reset();  // what is under way ends, and the next batch begins anew
    return sent.status();
  }
  device_bytes += form.bytes;
  DeviceBatch* const on_device = sent->get();
  struct Held {
    std::unique_ptr<Batch> host;
    std::unique_ptr<DeviceBatch> on_device;
  };
  auto held = std::make_shared<Held>();
  held->host = std::move(batch);
  held->on_device = std::move(sent).value();
  return std::make_unique<Batch>(view, std::move(held), on_device);
}

}  // namespace quarry
