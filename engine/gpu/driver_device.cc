// The Device of a driver. Every call makes the primary context current and restores what was, so any thread may call.
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "driver.h"
#include "quarry/base/mutex.h"
#include "quarry/base/units.h"

namespace quarry::gpu {
namespace {

constexpr unsigned kThreadsOfBlock = 256;  // as kernels.cu bounds kernels
// Blocks that fill a multiprocessor twice over; kernels stride, so more would only be started and ended.
constexpr uint64_t kBlocksOfMultiprocessor = 16;

cuda::Address AddressOf(const std::byte* device) { return reinterpret_cast<uintptr_t>(device); }
std::byte* PointerTo(cuda::Address address) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}

class DriverDevice final : public Device {
 public:
  DriverDevice(Driver driver, DeviceFacts facts) : driver_(driver), facts_(std::move(facts)) {}
  ~DriverDevice() override {
    if (module_ != nullptr) static_cast<void>(Ask(api().cuModuleUnload, module_));
    if (context_ != nullptr) api().cuDevicePrimaryCtxRelease_v2(device_);
  }

  Status Start(cuda::Ordinal device, const void* image) {
    device_ = device;
    QUARRY_RETURN_IF_ERROR(
        Told(api().cuDevicePrimaryCtxRetain(&context_, device), "take its primary context"));
    const cuda::Error error = Ask(api().cuModuleLoadData, &module_, image);
    if (error == cuda::kNoBinaryForGpu || error == cuda::kInvalidPtx ||
        error == cuda::kUnsupportedPtxVersion) {
      return MakeStatus(
          Code::kUnsupported,
          "{} of sm_{} with a driver of CUDA {}.{} runs none of this build's kernels, which are for "
          "sm_80 and later and for the CUDA that compiled them: {}",
          Name(), facts_.capability, facts_.driver / 1000, facts_.driver % 1000 / 10,
          driver_.Fault(error, "load kernels").message());
    }
    return Told(error, "load kernels");
  }

  const DeviceFacts& facts() const override { return facts_; }
  DeviceCounts counts() const override {
    return {.launches = launches_,
            .copies = copies_,
            .copied_bytes = copied_bytes_,
            .host_waits = host_waits_,
            .allocations = allocations_,
            .frees = frees_};
  }
  Result<uint64_t> FreeBytes() override {
    size_t free_bytes = 0, all_bytes = 0;
    QUARRY_RETURN_IF_ERROR(Told(Ask(api().cuMemGetInfo_v2, &free_bytes, &all_bytes), "ask for free memory"));
    return uint64_t{free_bytes};
  }

  Result<std::byte*> Allocate(uint64_t bytes) override {
    cuda::Address memory = 0;
    QUARRY_RETURN_IF_ERROR(Told(Ask(api().cuMemAlloc_v2, &memory, bytes), "allocate memory", bytes));
    ++allocations_;
    return PointerTo(memory);
  }
  Status Free(std::byte* memory) override {
    QUARRY_RETURN_IF_ERROR(Told(Ask(api().cuMemFree_v2, AddressOf(memory)), "free memory"));
    ++frees_;
    return Status::Ok();
  }
  Status Pin(std::span<std::byte> host) override {
    const cuda::Error error =
        Ask(api().cuMemHostRegister_v2, host.data(), host.size(), cuda::kPortable | cuda::kDeviceMap);
    if (error != cuda::kOutOfMemory) return Told(error, "pin memory of the host");
    return MakeStatus(Code::kOutOfBudget, "{}: the system pins no {} of the host's memory for it", Name(),
                      FormatBytes(host.size()));
  }
  Status Unpin(std::byte* host) override {
    return Told(Ask(api().cuMemHostUnregister, host), "unpin memory of the host");
  }
  Result<std::byte*> MappedAddress(std::byte* host) override {
    cuda::Address mapped = 0;
    QUARRY_RETURN_IF_ERROR(
        Told(Ask(api().cuMemHostGetDevicePointer_v2, &mapped, host, 0U), "find pinned memory of the host"));
    return PointerTo(mapped);
  }

  Result<StreamHandle> MakeStream() override {
    StreamHandle stream;
    QUARRY_RETURN_IF_ERROR(Told(Ask(api().cuStreamCreate, &stream.raw, cuda::kNonBlocking), "make a stream"));
    return stream;
  }
  Status DestroyStream(StreamHandle stream) override {
    return Told(Ask(api().cuStreamDestroy_v2, stream.raw), "destroy a stream");
  }
  Result<EventHandle> MakeEvent(bool timed) override {
    EventHandle event;
    QUARRY_RETURN_IF_ERROR(
        Told(Ask(api().cuEventCreate, &event.raw, timed ? 0U : cuda::kDisableTiming), "make an event"));
    return event;
  }
  Status DestroyEvent(EventHandle event) override {
    return Told(Ask(api().cuEventDestroy_v2, event.raw), "destroy an event");
  }
  Status Record(EventHandle event, StreamHandle stream) override {
    return Told(Ask(api().cuEventRecord, event.raw, stream.raw), "record an event");
  }
  Status Wait(StreamHandle stream, EventHandle event) override {
    return Told(Ask(api().cuStreamWaitEvent, stream.raw, event.raw, 0U), "let a stream wait for an event");
  }
  Result<bool> HasHappened(EventHandle event) override {
    const cuda::Error error = Ask(api().cuEventQuery, event.raw);
    if (error == cuda::kNotReady) return false;
    QUARRY_RETURN_IF_ERROR(Told(error, "look at an event"));
    return true;
  }
  Status CallHost(StreamHandle stream, void (*call)(void*), void* context) override {
    return Told(Ask(api().cuLaunchHostFunc, stream.raw, call, context), "enqueue a call of the host");
  }
  Status Synchronize(EventHandle event) override {
    ++host_waits_;
    return Told(Ask(api().cuEventSynchronize, event.raw), "wait for an event");
  }
  Status Synchronize(StreamHandle stream) override {
    ++host_waits_;
    return Told(Ask(api().cuStreamSynchronize, stream.raw), "wait for a stream");
  }
  Result<double> SecondsBetween(EventHandle from, EventHandle to) override {
    float milliseconds = 0;
    QUARRY_RETURN_IF_ERROR(
        Told(Ask(api().cuEventElapsedTime, &milliseconds, from.raw, to.raw), "time two events"));
    return milliseconds * 1e-3;
  }

  Status CopyIn(std::byte* device, const std::byte* host, uint64_t bytes, StreamHandle stream) override {
    return Copied(Ask(api().cuMemcpyHtoDAsync_v2, AddressOf(device), host, bytes, stream.raw), "copy in",
                  bytes);
  }
  Status CopyOut(std::byte* host, const std::byte* device, uint64_t bytes, StreamHandle stream) override {
    return Copied(Ask(api().cuMemcpyDtoHAsync_v2, host, AddressOf(device), bytes, stream.raw), "copy out",
                  bytes);
  }
  Status CopyWithin(std::byte* to, const std::byte* from, uint64_t bytes, StreamHandle stream) override {
    return Copied(Ask(api().cuMemcpyDtoDAsync_v2, AddressOf(to), AddressOf(from), bytes, stream.raw),
                  "copy within", bytes);
  }
  Status Fill(std::byte* device, uint8_t value, uint64_t bytes, StreamHandle stream) override {
    return Told(Ask(api().cuMemsetD8Async, AddressOf(device), value, bytes, stream.raw), "fill memory");
  }

  Status Launch(const Kernel& kernel, const void* body, size_t /*body_bytes*/, uint64_t count,
                StreamHandle stream) override {
    if (count == 0) return Status::Ok();
    QUARRY_TRY(const cuda::Function function, Find(kernel.name));
    const uint64_t blocks = std::min(CeilDiv(count, kThreadsOfBlock),
                                     kBlocksOfMultiprocessor * std::max(facts_.multiprocessors, 1U));
    // The driver copies the struct, whose size it knows from the image, before the call returns.
    std::array<void*, 1> arguments = {const_cast<void*>(body)};
    QUARRY_RETURN_IF_ERROR(Told(Ask(api().cuLaunchKernel, function, static_cast<unsigned>(blocks), 1U, 1U,
                                    kThreadsOfBlock, 1U, 1U, 0U, stream.raw, arguments.data(), nullptr),
                                kernel.name));
    ++launches_;
    return Status::Ok();
  }

 private:
  const cuda::Api& api() const { return driver_.api; }
  std::string Name() const { return fmt::format("device {} ({})", facts_.ordinal, facts_.name); }

  // The function's answer, with the context current.
  template <typename... Parameters, typename... Arguments>
  cuda::Error Ask(cuda::Error (*function)(Parameters...), Arguments... arguments) {
    if (const cuda::Error error = api().cuCtxPushCurrent_v2(context_); error != cuda::kSuccess) return error;
    const cuda::Error answer = function(static_cast<Parameters>(arguments)...);
    cuda::Context popped = nullptr;
    const cuda::Error error = api().cuCtxPopCurrent_v2(&popped);
    return answer != cuda::kSuccess ? answer : error;
  }

  // `bytes`: that were asked for, if memory was.
  Status Told(cuda::Error error, const char* what, uint64_t bytes = 0) {
    if (error == cuda::kSuccess) return Status::Ok();
    if (error != cuda::kOutOfMemory) return driver_.Fault(error, fmt::format("{}: {}", Name(), what));
    size_t free_bytes = 0, all_bytes = 0;
    static_cast<void>(Ask(api().cuMemGetInfo_v2, &free_bytes, &all_bytes));
    return MakeStatus(Code::kOutOfBudget, "{}: {}: no memory left{}: {} of the device's {} are free", Name(),
                      what, bytes == 0 ? "" : fmt::format(" for {}", FormatBytes(bytes)),
                      FormatBytes(free_bytes), FormatBytes(all_bytes));
  }

  Status Copied(cuda::Error error, const char* what, uint64_t bytes) {
    QUARRY_RETURN_IF_ERROR(Told(error, what));
    ++copies_;
    copied_bytes_ += bytes;
    return Status::Ok();
  }

  Result<cuda::Function> Find(const char* name) {
    const MutexLock lock(mutex_);
    if (const auto found = functions_.find(name); found != functions_.end()) return found->second;
    cuda::Function function = nullptr;
    const cuda::Error error = Ask(api().cuModuleGetFunction, &function, module_, name);
    if (error == cuda::kNotFound) {
      return MakeStatus(Code::kInternal,
                        "the kernel {} is not in this build's image: kernels.cu does not list it", name);
    }
    QUARRY_RETURN_IF_ERROR(Told(error, name));
    functions_.emplace(name, function);
    return function;
  }

  const Driver driver_;
  const DeviceFacts facts_;
  cuda::Ordinal device_ = 0;
  cuda::Context context_ = nullptr;
  cuda::Module module_ = nullptr;

  std::atomic<uint64_t> launches_ = 0, copies_ = 0, copied_bytes_ = 0, host_waits_ = 0, allocations_ = 0,
                        frees_ = 0;

  Mutex mutex_;
  std::map<std::string, cuda::Function, std::less<>> functions_ QUARRY_GUARDED_BY(mutex_);
};

// The driver, started, and how many devices it has.
struct Started {
  Driver driver;
  int devices = 0;
};
Result<Started> Start(const DriverSource& source) {
  QUARRY_TRY(const Driver driver, LoadDriver(source.library));
  if (source.image.empty()) {
    return Status(Code::kUnsupported,
                  "this build has no kernels for devices: there was no nvcc when it was built");
  }
  Started started{.driver = driver};
  cuda::Error error = driver.api.cuInit(0);
  if (error == cuda::kSuccess) error = driver.api.cuDeviceGetCount(&started.devices);
  if (error == cuda::kNoDevice) return Started{.driver = driver};
  QUARRY_RETURN_IF_ERROR(driver.Fault(error, "start CUDA"));
  return started;
}

Result<DeviceFacts> ReadFacts(const Driver& driver, cuda::Ordinal device, int ordinal,
                              const std::string& pci_folder) {
  DeviceFacts facts{.ordinal = ordinal};
  std::array<char, 256> name{};
  std::array<char, 32> bus_id{};
  int version = 0, multiprocessors = 0, major = 0, minor = 0;
  size_t memory_bytes = 0;
  const cuda::Api& api = driver.api;
  for (const cuda::Error error :
       {api.cuDriverGetVersion(&version), api.cuDeviceGetName(name.data(), name.size() - 1, device),
        api.cuDeviceGetPCIBusId(bus_id.data(), bus_id.size() - 1, device),
        api.cuDeviceGetAttribute(&multiprocessors, cuda::kMultiprocessorCount, device),
        api.cuDeviceGetAttribute(&major, cuda::kCapabilityMajor, device),
        api.cuDeviceGetAttribute(&minor, cuda::kCapabilityMinor, device),
        api.cuDeviceTotalMem_v2(&memory_bytes, device)}) {
    QUARRY_RETURN_IF_ERROR(driver.Fault(error, fmt::format("describe device {}", ordinal)));
  }
  facts.name = name.data();
  facts.bus_id = bus_id.data();
  for (char& c : facts.bus_id)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));  // as in /sys
  facts.driver = static_cast<unsigned>(version);
  facts.capability = static_cast<unsigned>(10 * major + minor);
  facts.multiprocessors = static_cast<unsigned>(multiprocessors);
  facts.memory_bytes = memory_bytes;
  const PcieLink link = ReadPcieLink(pci_folder + "/" + facts.bus_id);
  facts.pcie_generation = link.generation;
  facts.pcie_width = link.width;
  return facts;
}

}  // namespace

Result<int> CountDevices(const DriverSource& source) {
  QUARRY_TRY(const Started started, Start(source));
  return started.devices;
}

Result<std::unique_ptr<Device>> OpenDevice(const DriverSource& source, int ordinal) {
  QUARRY_TRY(const Started started, Start(source));
  if (ordinal < 0 || ordinal >= started.devices) {
    return MakeStatus(Code::kNotFound, "there is no device {}: the driver has {}", ordinal,
                      started.devices == 0   ? "none"
                      : started.devices == 1 ? "device 0 alone"
                                             : fmt::format("devices 0 to {}", started.devices - 1));
  }
  cuda::Ordinal raw = 0;
  QUARRY_RETURN_IF_ERROR(started.driver.Fault(started.driver.api.cuDeviceGet(&raw, ordinal),
                                              fmt::format("find device {}", ordinal)));
  QUARRY_TRY(DeviceFacts facts, ReadFacts(started.driver, raw, ordinal, source.pci_folder));
  auto device = std::make_unique<DriverDevice>(started.driver, std::move(facts));
  QUARRY_RETURN_IF_ERROR(device->Start(raw, source.image.data()));
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace quarry::gpu
