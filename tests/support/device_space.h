// DeviceSpace: arrays of a test on a device, as one stream sees them.
//
// On the fake device, whose kernels the processor runs, an array has memory of exactly its size, so that AddressSanitizer
// sees a byte too far. On another it is uploaded.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quarry/gpu/handles.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

class DeviceSpace {
 public:
  enum class Kind { kFake, kGpu };
  // What every test of kernels runs on: the fake device, and a GPU where there is one.
  static std::vector<Kind> Kinds() {
    const auto gpus = gpu::CountDevices();
    if (gpus.ok() && *gpus > 0) return {Kind::kFake, Kind::kGpu};
    return {Kind::kFake};
  }
  static std::string NameOf(const testing::TestParamInfo<Kind>& kind) {
    return kind.param == Kind::kFake ? "Fake" : "Gpu";
  }

  DeviceSpace(Kind kind, uint64_t seed) : fake_(kind == Kind::kFake) {
    if (fake_) {
      device_ = std::make_unique<FakeDevice>(FakeDeviceOptions{.seed = seed});
    } else {
      device_ = ValueOf(gpu::OpenDevice(0));
    }
    stream_ = ValueOf(gpu::MakeStream(*device_));
  }
  ~DeviceSpace() { EXPECT_OK(device_->Synchronize(stream())); }

  gpu::Device& device() { return *device_; }
  gpu::StreamHandle stream() const { return stream_.get(); }

  // The values on the device, `offset_bytes` behind an address of 256 bytes.
  template <typename T>
  T* Put(std::span<const T> values, size_t offset_bytes = 0) {
    std::byte* const memory = Take(values.size_bytes() + offset_bytes) + offset_bytes;
    if (fake_) {
      std::memcpy(memory, values.data(), values.size_bytes());
    } else if (!values.empty()) {
      Page staging(values.size_bytes());
      std::memcpy(staging.data(), values.data(), values.size_bytes());
      const auto pinned = gpu::PinMemory(*device_, staging.span());
      EXPECT_OK(device_->CopyIn(memory, staging.data(), values.size_bytes(), stream()));
      EXPECT_OK(device_->Synchronize(stream()));
    }
    return reinterpret_cast<T*>(memory);
  }
  template <typename T>
  T* Put(const std::vector<T>& values, size_t offset_bytes = 0) {
    return Put(std::span<const T>(values), offset_bytes);
  }

  // `count` values at `from`, once all that was enqueued on the stream is through.
  template <typename T>
  std::vector<T> Get(const T* from, size_t count) {
    std::vector<T> values(count);
    const size_t bytes = count * sizeof(T);
    if (fake_ || count == 0) {
      EXPECT_OK(device_->Synchronize(stream()));
      std::memcpy(values.data(), from, bytes);
      return values;
    }
    Page staging(bytes);
    const auto pinned = gpu::PinMemory(*device_, staging.span());
    EXPECT_OK(device_->CopyOut(staging.data(), reinterpret_cast<const std::byte*>(from), bytes, stream()));
    EXPECT_OK(device_->Synchronize(stream()));
    std::memcpy(values.data(), staging.data(), bytes);
    return values;
  }

 private:
  // Whole pages of the host's.
  class Page {
   public:
    explicit Page(size_t bytes) : bytes_((bytes + 4095) / 4096 * 4096), memory_(Make(bytes_)) {}
    std::byte* data() { return memory_.get(); }
    std::span<std::byte> span() { return {memory_.get(), bytes_}; }

   private:
    struct Delete {
      void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{4096}); }
    };
    static std::byte* Make(size_t bytes) {
      return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{4096}));
    }
    size_t bytes_;
    std::unique_ptr<std::byte, Delete> memory_;
  };
  struct DeleteAligned {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{256}); }
  };

  template <typename T>
  static T ValueOf(Result<T> result) {
    EXPECT_OK(result.status());
    return std::move(*result);
  }

  std::byte* Take(size_t bytes) {
    if (fake_) {
      exact_.emplace_back(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256})));
      return exact_.back().get();
    }
    memory_.push_back(ValueOf(gpu::AllocateMemory(*device_, bytes == 0 ? 1 : bytes)));
    return memory_.back().get().data();
  }

  const bool fake_;
  std::vector<std::unique_ptr<std::byte, DeleteAligned>> exact_;
  std::unique_ptr<gpu::Device> device_;
  std::vector<gpu::Memory> memory_;
  gpu::Stream stream_;
};

}  // namespace quarry::testing_util
