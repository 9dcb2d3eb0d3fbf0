#include "live_device.h"

#include <utility>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr size_t kArrayPieces = 2;  // one is written while the other is read

DeviceRowsOptions RowsOf(const LiveDeviceOptions& options) {
  return {.device = options.frames.device, .stride = options.frames.stride, .pieces = options.row_pieces};
}

}  // namespace

// Slots that it reads are taken anew only behind it.
class LiveDevice::Sent final : public DeviceBatch {
 public:
  Sent(DeviceRows& rows, std::unique_ptr<DeviceBatch> batch) : rows_(rows), batch_(std::move(batch)) {}
  Status WriteTo(const DeviceOutputs& outputs, void* stream) override {
    const Status written = batch_->WriteTo(outputs, stream);
    const Status behind = rows_.StayBehind({stream});  // also where some of it was refused
    return written.ok() ? behind : written;
  }

 private:
  DeviceRows& rows_;
  const std::unique_ptr<DeviceBatch> batch_;
};

uint64_t LiveDevice::PinnedBytes(const LiveDeviceOptions& options) {
  return DeviceRows::PinnedBytes(options.frames.stride, options.row_pieces) +
         PinnedPieces::MemoryBytes(options.frames.piece_bytes, kArrayPieces);
}
uint64_t LiveDevice::DeviceBytes(const LiveDeviceOptions& options) {
  return DeviceFrames::DeviceBytes(options.frames) +
         DeviceRows::DeviceBytes(options.frames.stride, options.row_pieces);
}

Result<std::unique_ptr<LiveDevice>> LiveDevice::Make(const LiveDeviceOptions& options) {
  std::unique_ptr<LiveDevice> made(new LiveDevice(options));
  QUARRY_TRY(made->arrays_,
             PinnedPieces::Make(*options.frames.device, options.frames.piece_bytes, kArrayPieces));
  QUARRY_TRY(made->frames_, DeviceFrames::Make(options.frames));
  DeviceRowsOptions rows = RowsOf(options);
  rows.stream = made->frames_->copies();
  rows.slots = made->frames_->slots();
  QUARRY_TRY(made->rows_, DeviceRows::Make(rows));
  return made;
}

Result<std::unique_ptr<DeviceBatch>> LiveDevice::Send(DeviceFrames::Taken frame, const BatchView& view) {
  const PieceForm form = PieceForm::Of(0, options_.frames.stride, view, {});
  if (form.bytes > options_.frames.piece_bytes) {
    return MakeStatus(
        Code::kOutOfBudget,
        "batch {} takes {} of the device's memory, more than the {} that the probed batches let expect: use "
        "smaller batches or fanouts",
        view.index, FormatBytes(form.bytes), FormatBytes(options_.frames.piece_bytes));
  }
  QUARRY_TRY(PinnedPieces::Taken taken, arrays_->Take());
  form.Write(view, {}, taken->bytes);
  PinnedPieces::Piece* const piece = PinnedPieces::SendOff(std::move(taken));
  auto sent = frames_->Send(
      std::move(frame),
      {.piece = piece->bytes, .form = form, .view = view, .read = PinnedPieces::Read, .context = piece});
  if (!sent.ok()) {
    arrays_->Break(sent.status());
    return sent.status();
  }
  arrays_bytes_ += form.bytes;
  return std::unique_ptr<DeviceBatch>(std::make_unique<Sent>(*rows_, std::move(sent).value()));
}

void LiveDevice::Cancel() {
  rows_->Cancel();
  arrays_->Cancel();
  frames_->Cancel();
}

void LiveDevice::Restart() {
  if (!arrays_->broken().ok()) frames_->Quiesce();
  rows_->Restart();
  arrays_->Restart();
  frames_->Restart();
}

}  // namespace quarry
