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

// A call that a device refuses comes back as an error, and nothing stays. Waits at the end of scopes fail unheard.
TEST(GpuChecks, FailWhereTheDeviceFails) {
  for (const DeviceCheck& check : DeviceChecks()) {
    uint64_t heard = 0;
    for (uint64_t fail_at = 1;; ++fail_at) {
      SCOPED_TRACE(testing::Message() << check.name << ", call " << fail_at);
      ASSERT_LT(fail_at, 1000);
      FakeDevice device({.seed = fail_at, .fail_at = fail_at + 1});
      ASSERT_OK_AND_ASSIGN(const gpu::Stream stream, gpu::MakeStream(device));  // its first call
      DeviceCheckContext context{
          .device = device, .stream = stream.get(), .seed = 1, .size = 40, .real = false};
      const Status status = check.run(context);
      const bool reached = device.calls() >= fail_at + 1;
      if (!status.ok()) ++heard;
      device.Drain();
      EXPECT_EQ(device.held(), 1);
      if (!reached) {
        EXPECT_OK(status);
        EXPECT_EQ(heard > 0, fail_at > 1) << check.name;
        break;
      }
    }
  }
}

}  // namespace
}  // namespace quarry::testing_util
