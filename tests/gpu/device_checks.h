// Checks of a device: each is a function that gives the first thing that is not as it should be. gpu_device_check runs all
// of them on a GPU; gpu_checks_test runs the same ones on the fake device under many seeds. A source adds its own by
// QUARRY_DEVICE_CHECK, and is listed in CMakeLists.txt (QUARRY_DEVICE_CHECKS).
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/status.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"
#include "support/fake_device.h"

namespace quarry::testing_util {

struct DeviceCheckContext {
  gpu::Device& device;
  gpu::StreamHandle stream;
  uint64_t seed = 1;
  uint64_t size = 1000;  // rows, elements: about so many
  bool real = true;      // false: the fake device, which bears no misuse

  Rng random() const { return Rng(seed); }
};

using DeviceCheckFunction = Status (*)(DeviceCheckContext&);
struct DeviceCheck {
  const char* name = nullptr;
  DeviceCheckFunction run = nullptr;
};

// All of the program's, in the order of their sources.
std::vector<DeviceCheck>& DeviceChecks();

struct RegisterDeviceCheck {
  RegisterDeviceCheck(const char* name, DeviceCheckFunction run) { DeviceChecks().push_back({name, run}); }
};

// QUARRY_DEVICE_CHECK(GatherOfEmptyRows) { QUARRY_TRY(...); return Status::Ok(); }    with `context`
#define QUARRY_DEVICE_CHECK(name)                         \
  Status name(DeviceCheckContext& context);               \
  const RegisterDeviceCheck kRegister##name(#name, name); \
  Status name([[maybe_unused]] DeviceCheckContext& context)

// A check fails with this. `what` is a sentence.
#define QUARRY_EXPECT_THAT(condition, what) \
  if (!(condition)) return MakeStatus(Code::kInternal, "{}: {}", #condition, what)

// The end of a scope waits for the stream, as what is enqueued there needs the scope's memory, also when a check fails.
class Finish {
 public:
  Finish(gpu::Device& device, gpu::StreamHandle stream) : device_(device), stream_(stream) {}
  Finish(const Finish&) = delete;
  Finish& operator=(const Finish&) = delete;
  ~Finish() { static_cast<void>(device_.Synchronize(stream_)); }

 private:
  gpu::Device& device_;
  const gpu::StreamHandle stream_;
};

// Arrays that are alike in the host's memory and in the device's: what is enqueued on the device, and on the fake one, whose
// kernels the processor runs, must leave them alike.
//
//   Twins twins(context);
//   QUARRY_TRY(const auto from, twins.Add(std::vector<uint32_t>{1, 2, 3}));
//   QUARRY_TRY(const auto to, twins.Add(std::vector<uint32_t>(3)));
//   QUARRY_RETURN_IF_ERROR(twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) {
//     return gpu::Run(device, AddOne{at(from), at(to), 3}, stream);
//   }));
//   return twins.Compare();         what the processor made of an array: twins.host(to)
class Twins {
 public:
  template <typename T>
  struct Array {
    size_t index = 0, size = 0;
  };

  explicit Twins(DeviceCheckContext& context) : context_(context), finish_(context.device, context.stream) {}

  template <typename T>
  Result<Array<T>> Add(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    Both& both = arrays_.emplace_back();
    both.host.resize(values.size() * sizeof(T));
    std::memcpy(both.host.data(), values.data(), both.host.size());
    QUARRY_RETURN_IF_ERROR(Place(both));
    return Array<T>{arrays_.size() - 1, values.size()};
  }
  template <typename T>
  std::span<const T> host(Array<T> array) const {
    return {reinterpret_cast<const T*>(arrays_[array.index].host.data()), array.size};
  }

  // `enqueue` gets a device, its stream, and at(array): the array's pointer there.
  template <typename Enqueue>
  Status RunBoth(const Enqueue& enqueue) {
    QUARRY_RETURN_IF_ERROR(enqueue(context_.device, context_.stream, [this](auto array) {
      return Pointer(array, arrays_[array.index].device.get().data());
    }));
    FakeDevice processor;
    QUARRY_TRY(const gpu::Stream stream, gpu::MakeStream(processor));
    QUARRY_RETURN_IF_ERROR(enqueue(static_cast<gpu::Device&>(processor), stream.get(), [this](auto array) {
      return Pointer(array, arrays_[array.index].host.data());
    }));
    return processor.Synchronize(stream.get());
  }
  // The first byte that differs.
  Status Compare();

 private:
  struct Both {
    std::vector<std::byte> host;
    gpu::Memory device;
  };
  template <typename T>
  static T* Pointer(Array<T> /*array*/, std::byte* bytes) {
    return reinterpret_cast<T*>(bytes);
  }
  Status Place(Both& both);
  Status Fetch(size_t index, std::span<std::byte> to);

  DeviceCheckContext& context_;
  std::vector<Both> arrays_;
  const Finish finish_;
};

}  // namespace quarry::testing_util
