#include "gpu/device_checks.h"

#include <algorithm>
#include <memory>
#include <new>

namespace quarry::testing_util {

std::vector<DeviceCheck>& DeviceChecks() {
  static std::vector<DeviceCheck> checks;
  return checks;
}

namespace {

// Through pinned memory of its own, as roads copy.
struct Staging {
  struct FreeAligned {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte, FreeAligned> memory;
  gpu::Pinned pinned;
};

Result<Staging> MakeStaging(gpu::Device& device, uint64_t bytes) {
  Staging staging;
  const uint64_t whole = (std::max<uint64_t>(bytes, 1) + 4095) / 4096 * 4096;
  staging.memory.reset(static_cast<std::byte*>(::operator new (whole, std::align_val_t{4096})));
  QUARRY_TRY(staging.pinned, gpu::PinMemory(device, {staging.memory.get(), whole}));
  return staging;
}

}  // namespace

Status Twins::Place(Both& both) {
  if (both.host.empty()) return Status::Ok();
  QUARRY_TRY(both.device, gpu::AllocateMemory(context_.device, both.host.size()));
  QUARRY_TRY(const Staging staging, MakeStaging(context_.device, both.host.size()));
  const Finish finish(context_.device, context_.stream);
  std::copy(both.host.begin(), both.host.end(), staging.memory.get());
  QUARRY_RETURN_IF_ERROR(context_.device.CopyIn(both.device.get().data(), staging.memory.get(),
                                                both.host.size(), context_.stream));
  return context_.device.Synchronize(context_.stream);
}

Status Twins::Fetch(size_t index, std::span<std::byte> to) {
  if (to.empty()) return Status::Ok();
  QUARRY_TRY(const Staging staging, MakeStaging(context_.device, to.size()));
  const Finish finish(context_.device, context_.stream);
  QUARRY_RETURN_IF_ERROR(context_.device.CopyOut(staging.memory.get(), arrays_[index].device.get().data(),
                                                 to.size(), context_.stream));
  QUARRY_RETURN_IF_ERROR(context_.device.Synchronize(context_.stream));
  std::copy_n(staging.memory.get(), to.size(), to.begin());
  return Status::Ok();
}

Status Twins::Compare() {
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const std::vector<std::byte>& host = arrays_[i].host;
    std::vector<std::byte> device(host.size());
    QUARRY_RETURN_IF_ERROR(Fetch(i, device));
    const auto differs = std::mismatch(host.begin(), host.end(), device.begin());
    if (differs.first != host.end()) {
      return MakeStatus(Code::kInternal,
                        "seed {}: array {}, byte {} of {}: the device has {:#04x}, the processor {:#04x}",
                        context_.seed, i, differs.first - host.begin(), host.size(),
                        static_cast<unsigned>(*differs.second), static_cast<unsigned>(*differs.first));
    }
  }
  return Status::Ok();
}

}  // namespace quarry::testing_util
