// The driver by dlopen.
#include "kernel_image.h"
#include "quarry/gpu/device.h"

namespace quarry::gpu {

Result<int> CountDevices() { return Status(Code::kUnsupported, "no CUDA driver is loaded yet"); }
Result<std::unique_ptr<Device>> OpenDevice(int /*ordinal*/) { return CountDevices().status(); }

}  // namespace quarry::gpu
