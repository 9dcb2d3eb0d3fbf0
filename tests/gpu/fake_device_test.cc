// The device of tests: what it may do to whoever enqueues without order, and what it must not to whoever orders.
#include "support/fake_device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "quarry/gpu/handles.h"
#include "quarry/gpu/row_kernels.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::FakeDevice;
using testing_util::FakeDeviceOptions;

struct alignas(4096) Page {
  std::byte bytes[4096];
};

// Numbers go to the device, and back by another stream. Right: what the host wrote comes back, though it writes the next
// number as soon as it may. `ordered`: the second stream waits for the first.
bool CountsRight(uint64_t seed, bool ordered, uint64_t forgets_event = 0) {
  FakeDevice device({.seed = seed, .forgets_event = forgets_event});
  auto in = std::make_unique<Page>(), out = std::make_unique<Page>();
  const auto pinned_in = gpu::PinMemory(device, in->bytes), pinned_out = gpu::PinMemory(device, out->bytes);
  const auto memory = gpu::AllocateMemory(device, 4096);
  const auto there = gpu::MakeStream(device), back = gpu::MakeStream(device);
  const auto arrived = gpu::MakeEvent(device), returned = gpu::MakeEvent(device);
  bool right = true;
  for (unsigned number = 1; number <= 8; ++number) {
    std::memset(in->bytes, static_cast<int>(number), sizeof in->bytes);
    EXPECT_OK(device.CopyIn(memory->get().data(), in->bytes, 4096, there->get()));
    EXPECT_OK(device.Record(arrived->get(), there->get()));
    if (ordered) {
      EXPECT_OK(device.Wait(back->get(), arrived->get()));
    }
    EXPECT_OK(device.CopyOut(out->bytes, memory->get().data(), 4096, back->get()));
    EXPECT_OK(device.Record(returned->get(), back->get()));
    if (ordered) {
      EXPECT_OK(device.Wait(there->get(), returned->get()));
    }
    EXPECT_OK(device.Synchronize(returned->get()));
    right = right && out->bytes[0] == std::byte(number) && out->bytes[4095] == std::byte(number);
    if (!ordered || forgets_event > 0) device.Drain();
  }
  EXPECT_EQ(device.misuses(), "");
  return right;
}

TEST(FakeDeviceTest, WhatEventsOrderIsRightUnderEverySchedule) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) ASSERT_TRUE(CountsRight(seed, /*ordered=*/true)) << seed;
}

TEST(FakeDeviceTest, WhatNoEventOrdersIsWrongUnderSome) {
  uint64_t wrong = 0, wrong_without_waits = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    wrong += CountsRight(seed, /*ordered=*/false) ? 0 : 1;
    wrong_without_waits += CountsRight(seed, /*ordered=*/true, /*forgets_event=*/1) ? 0 : 1;
  }
  EXPECT_GT(wrong, 10u);
  EXPECT_GT(wrong_without_waits, 10u);
}

TEST(FakeDeviceTest, TellsWhatADevicePunishes) {
  FakeDevice device({.memory_bytes = 1 << 16});
  auto host = std::make_unique<Page>();
  {
    ASSERT_OK_AND_ASSIGN(const auto memory, gpu::AllocateMemory(device, 4096));
    ASSERT_OK_AND_ASSIGN(const auto stream, gpu::MakeStream(device));
    EXPECT_OK(device.CopyIn(memory.get().data(), host->bytes, 4096, stream.get()));
    EXPECT_EQ(device.misuses(), "CopyIn of 4096 bytes that are not pinned\n");
    EXPECT_EQ(device.held(), 2u);
    device.Drain();
  }
  EXPECT_EQ(device.held(), 0u);
  EXPECT_THAT(gpu::AllocateMemory(device, 1 << 17).status(), IsStatus(Code::kOutOfBudget));
  EXPECT_EQ(device.counts().host_waits, 0u);
}

TEST(FakeDeviceTest, FailsAtTheCallThatItIsToldOf) {
  FakeDevice device({.fail_at = 2});
  ASSERT_OK_AND_ASSIGN(const auto stream, gpu::MakeStream(device));
  EXPECT_THAT(gpu::MakeStream(device).status(), IsStatus(Code::kIoError));
  EXPECT_OK(gpu::MakeStream(device).status());
  EXPECT_EQ(device.calls(), 3u);
}

}  // namespace
}  // namespace quarry
