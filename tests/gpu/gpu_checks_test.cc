// The checks of devices, on the fake one: what they say of a real device is right here under every schedule.
#include <gtest/gtest.h>

#include "gpu/device_checks.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {
namespace {

TEST(GpuChecks, HoldOnTheFakeDevice) {
  ASSERT_FALSE(DeviceChecks().empty());
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    for (const DeviceCheck& check : DeviceChecks()) {
      SCOPED_TRACE(testing::Message() << check.name << ", seed " << seed);
      FakeDevice device({.seed = seed});
      ASSERT_OK_AND_ASSIGN(const gpu::Stream stream, gpu::MakeStream(device));
      DeviceCheckContext context{
          .device = device, .stream = stream.get(), .seed = seed, .size = 40, .real = false};
      EXPECT_OK(check.run(context));
      device.Drain();
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(device.held(), 1);  // the stream
    }
  }
}

// The status of the check on a fake device that fails one call (0: none), which is to have everything back in the end.
Status RunFailing(const DeviceCheck& check, uint64_t fail_at, uint64_t* calls) {
  FakeDevice device({.seed = fail_at + 1, .fail_at = fail_at});
  const auto stream = gpu::MakeStream(device);
  if (!stream.ok()) return stream.status();
  DeviceCheckContext context{.device = device, .stream = stream->get(), .seed = 1, .size = 40, .real = false};
  Status status = check.run(context);
  *calls = device.calls();
  device.Drain();
  EXPECT_EQ(device.held(), 1) << check.name << ", call " << fail_at;
  return status;
}

// A call that a device refuses comes back as an error, and nothing stays. Waits at the end of scopes fail unheard.
TEST(GpuChecks, FailWhereTheDeviceFails) {
  for (const DeviceCheck& check : DeviceChecks()) {
    uint64_t calls = 0, ignored = 0, heard = 0;
    ASSERT_OK(RunFailing(check, 0, &calls));
    const uint64_t step = calls / 50 + 1;
    for (uint64_t fail_at = 1; fail_at <= calls; fail_at += step) {
      if (!RunFailing(check, fail_at, &ignored).ok()) ++heard;
    }
    EXPECT_GT(heard, 0) << check.name;
  }
}

}  // namespace
}  // namespace quarry::testing_util
