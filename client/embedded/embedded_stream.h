// Streams of this process. Private to this library.
#pragma once

#include <memory>

#include "quarry/client/store.h"
#include "quarry/pipeline/device_target.h"
#include "quarry/service/road_opener.h"

namespace quarry::client {

struct OpenedDevice {
  std::unique_ptr<gpu::Device> device;  // null: memory
  DeviceTarget target;
};
Result<OpenedDevice> OpenDeviceOf(const StreamDevice& device);

// The road is this stream's alone, and its batches are given out in place: one at a time.
std::unique_ptr<Stream> MakeRoadStream(OpenedRoad opened, OpenedDevice device);

}  // namespace quarry::client
