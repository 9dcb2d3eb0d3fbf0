// Driver: CUDA's driver, loaded, with its functions found and its errors translated. Private to this room and its tests,
// which put a library of their own in the place of libcuda.so.1.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "driver_api.h"
#include "kernel_image.h"
#include "quarry/base/status.h"
#include "quarry/gpu/device.h"

namespace quarry::gpu {

struct Driver {
  cuda::Api api;

  // What an error of the driver is as a Status; ok for kSuccess. `what` was asked for: "allocate memory". Where memory
  // ran out the caller says more.
  Status Fault(cuda::Error error, std::string_view what) const;
};

// What devices are opened with.
struct DriverSource {
  std::string library = "libcuda.so.1";
  std::span<const std::byte> image = KernelImage();
  std::string pci_folder = "/sys/bus/pci/devices";
};

// kUnsupported where the library is not there, or lacks a function. It stays loaded: the driver has threads.
Result<Driver> LoadDriver(const std::string& library);

// CountDevices and OpenDevice of device.h.
Result<int> CountDevices(const DriverSource& source);
Result<std::unique_ptr<Device>> OpenDevice(const DriverSource& source, int ordinal);

// The link of the device in `folder` (current_link_speed, current_link_width); zeros where the system does not tell.
struct PcieLink {
  unsigned generation = 0, width = 0;
};
PcieLink ReadPcieLink(const std::string& folder);

}  // namespace quarry::gpu
