// LiveDevice: what a live road has on a device (GNNDrive §4.2): the rows of its feature buffer, whose account the host keeps,
// and the frames of its batches. Private to this room.
//
// Everything goes over on one stream: rows as extractors bring them (device_rows.h), then the arrays of the batch that they
// are for, and the event that its gather waits for. So "loaded" means enqueued, for rows that batches share as well. The way
// back is one wait: once a batch was written, that stream waits for its gather before anything takes the slots that the
// batch lets go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device_frames.h"
#include "device_rows.h"
#include "pinned_pieces.h"
#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"

namespace quarry {

struct LiveDeviceOptions {
  DeviceFramesOptions frames;  // cached_rows: slots of the feature buffer; pieces have no rows
  size_t row_pieces = 2;
};

class LiveDevice {
 public:
  static uint64_t PinnedBytes(const LiveDeviceOptions& options);
  static uint64_t DeviceBytes(const LiveDeviceOptions& options);
  static Result<std::unique_ptr<LiveDevice>> Make(const LiveDeviceOptions& options);

  DeviceRows& rows() { return *rows_; }
  // Waits until one is free; null once cancelled. REQUIRES, lest batches wait for each other: taken in the order in which
  // batches are admitted to the feature buffer.
  DeviceFrames::Taken TakeFrame() { return frames_->Take(); }
  // Enqueues the arrays of a batch whose rows were loaded; features.slots are its rows'. kInternal for a batch larger than
  // the frames.
  Result<std::unique_ptr<DeviceBatch>> Send(DeviceFrames::Taken frame, const BatchView& view);

  uint64_t sent_bytes() const { return rows_->sent_bytes() + arrays_bytes_; }  // so far, of rows and arrays

  void Cancel();
  // Before a pass, behind Cancel or an error: what was under way is waited for.
  void Restart();

 private:
  class Sent;

  explicit LiveDevice(const LiveDeviceOptions& options) : options_(options) {}

  const LiveDeviceOptions options_;
  std::unique_ptr<PinnedPieces> arrays_;
  std::atomic<uint64_t> arrays_bytes_{0};  // that were sent
  std::unique_ptr<DeviceRows> rows_;
  std::unique_ptr<DeviceFrames> frames_;  // goes first, and waits for the copies of all of it
};

}  // namespace quarry
