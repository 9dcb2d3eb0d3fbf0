// The driver behind gpu::Device, over a library that stands in for libcuda.so.1.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver.h"
#include "gpu/driver_stand_in.h"
#include "quarry/gpu/device.h"
#include "quarry/gpu/handles.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry::gpu {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::DriverStandIn;

constexpr char kImage[] = "kernels: quarry_other quarry_add_indices";

template <typename Function>
Function StandInSymbol(const char* name) {
  void* const library = dlopen(QUARRY_DRIVER_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
}

class DriverTest : public testing::Test {
 protected:
  void SetUp() override { *stand_in_ = DriverStandIn(); }
  void TearDown() override {
    EXPECT_THAT(stand_in_->broken, IsEmpty());
    EXPECT_EQ(contexts_(), 0);
    for (const auto& [device, count] : stand_in_->retained) EXPECT_EQ(count, 0) << "device " << device;
    EXPECT_EQ(stand_in_->used_bytes, 0);
    EXPECT_TRUE(stand_in_->pinned.empty() && stand_in_->streams.empty() && stand_in_->events.empty() &&
                stand_in_->modules.empty());
  }

  int CallsOf(const std::string& function) const {
    return static_cast<int>(std::count(stand_in_->calls.begin(), stand_in_->calls.end(), function));
  }

  DriverStandIn* const stand_in_ = StandInSymbol<testing_util::StandInFunction>("quarry_stand_in")();
  const testing_util::ContextsFunction contexts_ =
      StandInSymbol<testing_util::ContextsFunction>("quarry_contexts");
  DriverSource source_{.library = QUARRY_DRIVER_STAND_IN, .image = std::as_bytes(std::span(kImage))};
};

// All that a Device does, once; the first error. The result is checked.
Status DoEverything(const DriverSource& source, DeviceCounts* counts = nullptr) {
  QUARRY_TRY(const std::unique_ptr<Device> opened, OpenDevice(source, 1));
  Device& device = *opened;
  std::vector<std::byte> host(4096);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> back(4096);

  QUARRY_TRY(const Memory arena, AllocateMemory(device, host.size()));
  QUARRY_TRY(const Memory other, AllocateMemory(device, host.size()));
  QUARRY_TRY(const Pinned pinned, PinMemory(device, host));
  QUARRY_TRY(std::byte* const mapped, device.MappedAddress(host.data()));
  QUARRY_TRY(const Stream copies, MakeStream(device));
  QUARRY_TRY(const Stream work, MakeStream(device));
  QUARRY_TRY(const Event copied, MakeEvent(device, true));
  QUARRY_TRY(const Event done, MakeEvent(device, true));
  QUARRY_RETURN_IF_ERROR(device.CopyIn(arena.get().data(), host.data(), host.size(), copies.get()));
  QUARRY_RETURN_IF_ERROR(device.Record(copied.get(), copies.get()));
  QUARRY_RETURN_IF_ERROR(device.Wait(work.get(), copied.get()));
  QUARRY_RETURN_IF_ERROR(device.CopyWithin(other.get().data() + 2048, arena.get().data(), 2048, work.get()));
  QUARRY_RETURN_IF_ERROR(device.Fill(other.get().data(), 7, 2048, work.get()));
  const testing_util::AddIndices add{.from = reinterpret_cast<uint32_t*>(mapped),
                                     .to = reinterpret_cast<uint32_t*>(other.get().data()),
                                     .numbers = 256};
  QUARRY_RETURN_IF_ERROR(Run(device, add, work.get()));
  QUARRY_RETURN_IF_ERROR(Run(device, add, work.get()));
  QUARRY_RETURN_IF_ERROR(device.CopyOut(back.data(), other.get().data(), back.size(), work.get()));
  int called = 0;
  QUARRY_RETURN_IF_ERROR(device.CallHost(
      work.get(), [](void* count) { ++*static_cast<int*>(count); }, &called));
  QUARRY_RETURN_IF_ERROR(device.Record(done.get(), work.get()));
  QUARRY_RETURN_IF_ERROR(device.HasHappened(done.get()).status());
  QUARRY_RETURN_IF_ERROR(device.Synchronize(done.get()));
  QUARRY_RETURN_IF_ERROR(device.Synchronize(work.get()));
  QUARRY_TRY(const double seconds, device.SecondsBetween(copied.get(), done.get()));
  QUARRY_RETURN_IF_ERROR(device.FreeBytes().status());
  if (counts != nullptr) *counts = device.counts();

  EXPECT_DOUBLE_EQ(seconds, 1e-3);  // a tick of the stand-in
  EXPECT_EQ(called, 1);
  std::vector<std::byte> expected(4096, std::byte{7});
  for (uint32_t i = 0; i < add.numbers; ++i) {
    uint32_t number = 0;
    std::memcpy(&number, &host[i * sizeof(number)], sizeof(number));
    number += i;
    std::memcpy(&expected[i * sizeof(number)], &number, sizeof(number));
  }
  std::memcpy(&expected[2048], host.data(), 2048);
  EXPECT_EQ(back, expected);
  return Status::Ok();
}

TEST_F(DriverTest, EveryCallDoesWhatItSays) {
  DeviceCounts counts;
  ASSERT_OK(DoEverything(source_, &counts));
  EXPECT_EQ(counts.launches, 2);
  EXPECT_EQ(counts.copies, 3);
  EXPECT_EQ(counts.copied_bytes, 4096 + 2048 + 4096);
  EXPECT_EQ(counts.host_waits, 2);
  EXPECT_EQ(counts.allocations, 2);
  EXPECT_EQ(CallsOf("cuModuleGetFunction"), 1);  // found once
  EXPECT_EQ(stand_in_->pin_flags, 3);            // portable, mapped
  EXPECT_EQ(stand_in_->stream_flags, 1);         // does not wait for the default stream
  EXPECT_EQ(stand_in_->event_flags, 0);          // with its time
}

// Whichever call of the driver fails: one sentence with its name for the error, and all goes back.
TEST_F(DriverTest, EveryFunctionMayFail) {
  ASSERT_OK(DoEverything(source_));
  std::vector<std::string> functions = stand_in_->calls;
  functions.emplace_back("cuCtxPushCurrent_v2");
  std::sort(functions.begin(), functions.end());
  functions.erase(std::unique(functions.begin(), functions.end()), functions.end());
  EXPECT_GT(functions.size(), 30);
  for (const std::string& function : functions) {
    // What gives back fails unheard, and here leaves behind what it was to give back.
    if (function.find("Free") != std::string::npos || function.find("Destroy") != std::string::npos ||
        function.find("Unregister") != std::string::npos || function.find("Unload") != std::string::npos ||
        function.find("Release") != std::string::npos) {
      continue;
    }
    SCOPED_TRACE(function);
    *stand_in_ = DriverStandIn();
    stand_in_->fails[function] = 999;
    EXPECT_THAT(DoEverything(source_),
                IsStatus(Code::kIoError, HasSubstr("CUDA_ERROR_UNKNOWN (999): unknown error")));
    stand_in_->fails[function] = 77;
    EXPECT_THAT(DoEverything(source_), IsStatus(Code::kIoError, HasSubstr("an error without a name (77)")));
    EXPECT_THAT(stand_in_->broken, IsEmpty());
    EXPECT_EQ(contexts_(), 0);
    EXPECT_EQ(stand_in_->used_bytes, 0);
  }
}

TEST_F(DriverTest, FactsAreTheDriversAndTheSystems) {
  const TemporaryFolder folder("pci");
  const std::string bus = folder.path() + "/0000:2c:00.0";  // of device 41, in lower case as in /sys
  std::filesystem::create_directory(bus);
  std::ofstream(bus + "/current_link_speed") << "32.0 GT/s PCIe\n";
  std::ofstream(bus + "/current_link_width") << "16\n";
  source_.pci_folder = folder.path();
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 1));
  const DeviceFacts& facts = device->facts();
  EXPECT_EQ(facts.ordinal, 1);
  EXPECT_EQ(facts.name, "Stand-in 41");
  EXPECT_EQ(facts.bus_id, "0000:2c:00.0");
  EXPECT_EQ(facts.driver, 13000);
  EXPECT_EQ(facts.capability, 93);
  EXPECT_EQ(facts.multiprocessors, 7);
  EXPECT_EQ(facts.memory_bytes, 1 << 20);
  EXPECT_EQ(facts.pcie_generation, 5);
  EXPECT_EQ(facts.pcie_width, 16);

  std::ofstream(bus + "/current_link_speed") << "Unknown\n";
  std::ofstream(bus + "/current_link_width") << "63\n";
  EXPECT_EQ(ReadPcieLink(bus).generation, 0);
  EXPECT_EQ(ReadPcieLink(bus).width, 0);
  std::ofstream(bus + "/current_link_speed") << "2.5 GT/s PCIe\n";
  EXPECT_EQ(ReadPcieLink(bus).generation, 1);
  EXPECT_EQ(ReadPcieLink(folder.path() + "/nowhere").generation, 0);
}

TEST_F(DriverTest, GridsFillTheDeviceAndNoMore) {
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  ASSERT_OK_AND_ASSIGN(const Stream stream, MakeStream(*device));
  const testing_util::AddIndices none{};
  const auto blocks = [&](uint64_t count) {
    stand_in_->blocks = 0;
    EXPECT_OK(device->Launch(kKernelOf<testing_util::AddIndices>, &none, sizeof(none), count, stream.get()));
    return stand_in_->blocks;
  };
  EXPECT_EQ(blocks(0), 0);
  EXPECT_EQ(blocks(1), 1);
  EXPECT_EQ(blocks(256), 1);
  EXPECT_EQ(blocks(257), 2);
  EXPECT_EQ(blocks(uint64_t{1} << 40), 16 * 7);
  EXPECT_EQ(stand_in_->threads, 256);
}

TEST_F(DriverTest, MemoryThatRanOutIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  ASSERT_OK_AND_ASSIGN(const Memory half, AllocateMemory(*device, 512 << 10));
  EXPECT_THAT(device->Allocate(768 << 10),
              IsStatus(Code::kOutOfBudget, AllOf(HasSubstr("device 0 (Stand-in 40)"), HasSubstr("768 KiB"),
                                                 HasSubstr("512 KiB of the device's 1.00 MiB are free"))));
  EXPECT_EQ(device->counts().allocations, 1);
  stand_in_->fails["cuMemHostRegister_v2"] = 2;
  std::vector<std::byte> host(4096);
  EXPECT_THAT(device->Pin(host),
              IsStatus(Code::kOutOfBudget, HasSubstr("pins no 4.00 KiB of the host's memory")));
  stand_in_->fails["cuStreamCreate"] = 2;
  EXPECT_THAT(device->MakeStream(), IsStatus(Code::kOutOfBudget, HasSubstr("make a stream: no memory left")));
}

TEST_F(DriverTest, WhatIsWrongHasTheDriversName) {
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  EXPECT_THAT(device->Free(nullptr),
              IsStatus(Code::kIoError,
                       HasSubstr("device 0 (Stand-in 40): free memory: CUDA_ERROR_INVALID_VALUE (1)")));
  EXPECT_THAT(device->Record({}, {}), IsStatus(Code::kIoError, HasSubstr("CUDA_ERROR_INVALID_HANDLE")));
  ASSERT_OK_AND_ASSIGN(const Event event, MakeEvent(*device));
  EXPECT_EQ(stand_in_->event_flags, 2);
  ASSERT_OK_AND_ASSIGN(const bool happened, device->HasHappened(event.get()));
  EXPECT_TRUE(happened);
  stand_in_->events_happen = false;
  ASSERT_OK_AND_ASSIGN(const bool not_yet, device->HasHappened(event.get()));
  EXPECT_FALSE(not_yet);
}

TEST_F(DriverTest, KernelsThatTheImageLacksAreNamed) {
  static constexpr char kOthers[] = "kernels: quarry_other";
  source_.image = std::as_bytes(std::span(kOthers));
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  ASSERT_OK_AND_ASSIGN(const Stream stream, MakeStream(*device));
  EXPECT_THAT(gpu::Run(*device, testing_util::AddIndices{.numbers = 1}, stream.get()),
              IsStatus(Code::kInternal, HasSubstr("quarry_add_indices")));
  EXPECT_EQ(device->counts().launches, 0);
}

TEST_F(DriverTest, ImagesThatTheDeviceCannotRunAreUnsupported) {
  for (const int error : {209, 218, 222}) {
    stand_in_->fails["cuModuleLoadData"] = error;
    EXPECT_THAT(OpenDevice(source_, 0),
                IsStatus(Code::kUnsupported,
                         HasSubstr("of sm_93 with a driver of CUDA 13.0 runs none of this build's kernels")));
  }
}

// A library's context that is current stays so, and threads need none.
TEST_F(DriverTest, AnyThreadMayCall) {
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  const auto push = StandInSymbol<testing_util::PushFunction>("quarry_push");
  std::thread([&] {
    EXPECT_OK(device->FreeBytes());
    int other = 0;
    push(&other);
    EXPECT_OK(device->FreeBytes());
    EXPECT_EQ(contexts_(), 1);
  }).join();
}

TEST_F(DriverTest, OrdinalsAreCounted) {
  ASSERT_OK_AND_ASSIGN(const int count, CountDevices(source_));
  EXPECT_EQ(count, 2);
  EXPECT_THAT(OpenDevice(source_, 2),
              IsStatus(Code::kNotFound, "there is no device 2: the driver has devices 0 to 1"));
  EXPECT_THAT(OpenDevice(source_, -1), IsStatus(Code::kNotFound));
  stand_in_->device_count = 1;
  EXPECT_THAT(OpenDevice(source_, 1),
              IsStatus(Code::kNotFound, "there is no device 1: the driver has device 0 alone"));
  stand_in_->device_count = 0;  // the driver is there, and says so by an error
  ASSERT_OK_AND_ASSIGN(const int none, CountDevices(source_));
  EXPECT_EQ(none, 0);
  EXPECT_THAT(OpenDevice(source_, 0), IsStatus(Code::kNotFound, "there is no device 0: the driver has none"));
}

TEST_F(DriverTest, AChildOfForkIsToldWhy) {
  ASSERT_OK_AND_ASSIGN(const auto device, OpenDevice(source_, 0));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto says_why = [](const Status& status) {
      return status.code() == Code::kIoError &&
             status.message().find("forked from one that had started CUDA") != std::string_view::npos;
    };
    _exit(says_why(device->FreeBytes().status()) && says_why(CountDevices(source_).status()) &&
                  says_why(OpenDevice(source_, 0).status())
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(DriverTest, WithoutADriverItIsOneSentence) {
  source_.library = "libquarry_is_not_there.so.1";
  const auto is_sentence =
      IsStatus(Code::kUnsupported, AllOf(HasSubstr("no CUDA driver: libquarry_is_not_there.so.1"),
                                         HasSubstr("No such file or directory")));
  EXPECT_THAT(CountDevices(source_), is_sentence);
  EXPECT_THAT(OpenDevice(source_, 0), is_sentence);
  source_.library = "libm.so.6";
  EXPECT_THAT(CountDevices(source_), IsStatus(Code::kUnsupported, HasSubstr("libm.so.6 has no cuInit")));
}

TEST_F(DriverTest, WithoutKernelsItIsOneSentence) {
  source_.image = {};
  EXPECT_THAT(OpenDevice(source_, 0), IsStatus(Code::kUnsupported, HasSubstr("this build has no kernels")));
}

// This machine's: devices, or why there are none.
TEST_F(DriverTest, TheSystemsDriverIsAsked) {
  const Result<int> count = CountDevices();
  if (!count.ok()) {
    EXPECT_THAT(count, AnyOf(IsStatus(Code::kUnsupported, AnyOf(HasSubstr("no CUDA driver: libcuda.so.1"),
                                                                HasSubstr("this build has no kernels"))),
                             IsStatus(Code::kIoError)));
    EXPECT_EQ(OpenDevice(0).status().message(), count.status().message());
  }
}

#if defined(QUARRY_DRIVER_STUB)
// The toolkit's library to link with has the names of the real one, and its functions refuse.
TEST_F(DriverTest, TheToolkitsStubHasEveryName) {
  EXPECT_OK(LoadDriver(QUARRY_DRIVER_STUB));
  EXPECT_THAT(CountDevices({.library = QUARRY_DRIVER_STUB, .image = source_.image}),
              IsStatus(Code::kIoError, HasSubstr("(34)")));
}
#endif

}  // namespace
}  // namespace quarry::gpu
