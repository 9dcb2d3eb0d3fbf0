#include "driver.h"

#include <dlfcn.h>

#include <array>
#include <fstream>

namespace quarry::gpu {

Status Driver::Fault(cuda::Error error, std::string_view what) const {
  if (error == cuda::kSuccess) return Status::Ok();
  const char *name = nullptr, *text = nullptr;
  if (api.cuGetErrorName(error, &name) != cuda::kSuccess || name == nullptr) name = "an error without a name";
  if (api.cuGetErrorString(error, &text) != cuda::kSuccess || text == nullptr) text = "no description";
  const Code code = error == cuda::kOutOfMemory ? Code::kOutOfBudget : Code::kIoError;
  // After cuInit this has one cause: a child of fork has the driver's memory, but none of its threads.
  if (error == cuda::kNotInitialized) {
    return MakeStatus(
        code,
        "{}: {}: this process was forked from one that had started CUDA, which no child of it can use; "
        "start it by exec (Python's multiprocessing: spawn)",
        what, name);
  }
  return MakeStatus(code, "{}: {} ({}): {}", what, name, error, text);
}

Result<Driver> LoadDriver(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = dlerror();
    return MakeStatus(Code::kUnsupported, "no CUDA driver: {}", reason != nullptr ? reason : library);
  }
  Driver driver;
  const char* missing = nullptr;
#define QUARRY_FIND_FUNCTION(name, arguments)                                         \
  driver.api.name = reinterpret_cast<cuda::Error(*) arguments>(dlsym(handle, #name)); \
  if (driver.api.name == nullptr && missing == nullptr) missing = #name;
  using namespace cuda;  // NOLINT: the names of the list's types
  QUARRY_DRIVER_FUNCTIONS(QUARRY_FIND_FUNCTION)
#undef QUARRY_FIND_FUNCTION
  if (missing != nullptr) {
    return MakeStatus(Code::kUnsupported, "{} has no {}: Quarry needs the driver of CUDA 12 or later",
                      library, missing);
  }
  return driver;
}

PcieLink ReadPcieLink(const std::string& folder) {
  PcieLink link;
  double transfers = 0;  // giga-transfers a second of a lane: "32.0 GT/s PCIe"
  std::ifstream(folder + "/current_link_speed") >> transfers;
  unsigned width = 0;
  std::ifstream(folder + "/current_link_width") >> width;
  constexpr std::array kTransfers = {2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  for (size_t i = 0; i < kTransfers.size(); ++i) {
    if (transfers == kTransfers[i]) link.generation = static_cast<unsigned>(i + 1);
  }
  if (width <= 32) link.width = width;  // a device that fell off the bus tells 63
  return link;
}

Result<int> CountDevices() { return CountDevices(DriverSource()); }
Result<std::unique_ptr<Device>> OpenDevice(int ordinal) { return OpenDevice(DriverSource(), ordinal); }

}  // namespace quarry::gpu
