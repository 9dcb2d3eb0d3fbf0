// Every call of a Device, and its errors, provoked.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/device_checks.h"
#include "quarry/base/units.h"
#include "quarry/gpu/handles.h"

namespace quarry::testing_util {
namespace {

using gpu::AllocateMemory, gpu::MakeEvent, gpu::MakeStream, gpu::PinMemory;

struct alignas(4096) Page {
  std::byte bytes[4096];
};

std::span<std::byte> BytesOf(std::vector<Page>& pages) {
  return {pages.front().bytes, pages.size() * sizeof(Page)};
}

Status Refused(const Status& status, Code code, const char* what) {
  if (status.code() == code && !status.message().empty()) return Status::Ok();
  return MakeStatus(Code::kInternal, "{}: expected '{}', got '{}'", what, CodeName(code), status.ToString());
}

QUARRY_DEVICE_CHECK(CopiesInWithinAndOut) {
  gpu::Device& device = context.device;
  std::vector<Page> from(64), to(64);
  Rng random = context.random();
  for (Page& page : from) {
    for (std::byte& byte : page.bytes) byte = static_cast<std::byte>(random());
  }
  QUARRY_TRY(const auto pinned_from, PinMemory(device, BytesOf(from)));
  QUARRY_TRY(const auto pinned_to, PinMemory(device, BytesOf(to)));
  const uint64_t bytes = BytesOf(from).size();
  QUARRY_TRY(const auto one, AllocateMemory(device, bytes));
  QUARRY_TRY(const auto other, AllocateMemory(device, bytes));
  const Finish finish(device, context.stream);
  QUARRY_RETURN_IF_ERROR(device.CopyIn(one.get().data(), from.front().bytes, bytes, context.stream));
  QUARRY_RETURN_IF_ERROR(device.CopyWithin(other.get().data(), one.get().data(), bytes, context.stream));
  QUARRY_RETURN_IF_ERROR(device.Fill(other.get().data() + 100, 0xa5, 1000, context.stream));
  QUARRY_RETURN_IF_ERROR(device.CopyOut(to.front().bytes, other.get().data(), bytes, context.stream));
  QUARRY_RETURN_IF_ERROR(device.Synchronize(context.stream));
  std::memset(from.front().bytes + 100, 0xa5, 1000);
  QUARRY_EXPECT_THAT(std::memcmp(from.front().bytes, to.front().bytes, bytes) == 0,
                     "bytes changed on the way");
  return Status::Ok();
}

// A copy on one stream, and on another one that waits for it; the host is called in order.
QUARRY_DEVICE_CHECK(EventsOrderStreams) {
  gpu::Device& device = context.device;
  std::vector<Page> host(2048);  // 8 MiB: longer on its way than what overtakes it
  std::memset(host.front().bytes, 0x5a, BytesOf(host).size());
  QUARRY_TRY(const auto pinned, PinMemory(device, BytesOf(host)));
  QUARRY_TRY(const auto memory, AllocateMemory(device, BytesOf(host).size()));
  QUARRY_TRY(const auto copies, MakeStream(device));
  QUARRY_TRY(const auto work, MakeStream(device));
  QUARRY_TRY(const auto started, MakeEvent(device, true));
  QUARRY_TRY(const auto copied, MakeEvent(device, true));
  QUARRY_TRY(const auto done, MakeEvent(device));
  std::vector<Page> back(1);
  QUARRY_TRY(const auto pinned_back, PinMemory(device, BytesOf(back)));
  const auto before = device.counts();
  std::atomic<uint64_t> calls = 0;
  const Finish finish_copies(device, copies.get()), finish_work(device, work.get());
  QUARRY_RETURN_IF_ERROR(device.Record(started.get(), copies.get()));
  QUARRY_RETURN_IF_ERROR(
      device.CopyIn(memory.get().data(), host.front().bytes, memory.get().size(), copies.get()));
  QUARRY_RETURN_IF_ERROR(device.CallHost(
      copies.get(), [](void* count) { ++*static_cast<std::atomic<uint64_t>*>(count); }, &calls));
  QUARRY_RETURN_IF_ERROR(device.Record(copied.get(), copies.get()));
  QUARRY_RETURN_IF_ERROR(device.Wait(work.get(), copied.get()));
  QUARRY_RETURN_IF_ERROR(device.CopyOut(back.front().bytes,
                                        memory.get().data() + memory.get().size() - sizeof(Page),
                                        sizeof(Page), work.get()));
  QUARRY_RETURN_IF_ERROR(device.Record(done.get(), work.get()));
  QUARRY_RETURN_IF_ERROR(device.Synchronize(done.get()));
  QUARRY_EXPECT_THAT(calls == 1, "the host was not called before what was ordered after it");
  QUARRY_EXPECT_THAT(back.front().bytes[4095] == std::byte{0x5a},
                     "a stream overtook the event that it waits for");
  QUARRY_TRY(const bool happened, device.HasHappened(copied.get()));
  QUARRY_EXPECT_THAT(happened, "an event before one that has happened");
  QUARRY_TRY(const double seconds, device.SecondsBetween(started.get(), copied.get()));
  QUARRY_EXPECT_THAT(seconds > 0 && seconds < 10, fmt::format("{} s for 8 MiB", seconds));
  const auto after = device.counts();
  QUARRY_EXPECT_THAT(after.host_waits == before.host_waits + 1, "waits of the host are counted");
  QUARRY_EXPECT_THAT(after.copies == before.copies + 2, "copies are counted");
  QUARRY_EXPECT_THAT(after.copied_bytes == before.copied_bytes + memory.get().size() + sizeof(Page),
                     "so are bytes");
  return Status::Ok();
}

QUARRY_DEVICE_CHECK(MemoryThatRanOutIsSaid) {
  gpu::Device& device = context.device;
  QUARRY_TRY(const uint64_t free_bytes, device.FreeBytes());
  QUARRY_EXPECT_THAT(free_bytes <= device.facts().memory_bytes, "more is free than there is");
  const auto refused = device.Allocate(2 * device.facts().memory_bytes);
  QUARRY_RETURN_IF_ERROR(Refused(refused.status(), Code::kOutOfBudget, "twice the device's memory"));
  QUARRY_EXPECT_THAT(refused.status().message().find("free") != std::string::npos,
                     refused.status().ToString());
  QUARRY_TRY(const auto memory, AllocateMemory(device, kMiB));  // and the next one is had
  return Status::Ok();
}

QUARRY_DEVICE_CHECK(PinnedMemoryIsMapped) {
  gpu::Device& device = context.device;
  std::vector<Page> host(4);
  QUARRY_TRY(const auto pinned, PinMemory(device, BytesOf(host)));
  QUARRY_TRY(std::byte* const mapped, device.MappedAddress(host[1].bytes));
  QUARRY_TRY(std::byte* const first, device.MappedAddress(host[0].bytes));
  QUARRY_EXPECT_THAT(mapped == first + sizeof(Page), "addresses within a range go together");
  return Status::Ok();
}

// A kernel that kernels.cu does not list.
struct Absent {
  static constexpr char kName[] = "quarry_no_such_kernel";
  uint64_t count() const { return 1; }
  void operator()(uint64_t) const {}
};

// What a driver refuses and survives. A handle that was given back is not among it: CUDA promises nothing of it.
QUARRY_DEVICE_CHECK(MisuseIsRefused) {
  if (!context.real) return Status::Ok();
  gpu::Device& device = context.device;
  QUARRY_TRY(std::byte* const memory, device.Allocate(kMiB));
  QUARRY_RETURN_IF_ERROR(device.Free(memory));
  QUARRY_RETURN_IF_ERROR(Refused(device.Free(memory), Code::kIoError, "memory given back twice"));
  std::vector<Page> host(1);
  QUARRY_RETURN_IF_ERROR(
      Refused(device.Unpin(host.front().bytes), Code::kIoError, "unpinned what was not pinned"));
  QUARRY_TRY(const auto pinned, PinMemory(device, BytesOf(host)));
  QUARRY_RETURN_IF_ERROR(Refused(device.Pin(BytesOf(host)), Code::kIoError, "pinned twice"));
  QUARRY_TRY(const auto untimed, MakeEvent(device, false));
  QUARRY_RETURN_IF_ERROR(device.Record(untimed.get(), context.stream));
  QUARRY_RETURN_IF_ERROR(device.Synchronize(untimed.get()));
  QUARRY_RETURN_IF_ERROR(Refused(device.SecondsBetween(untimed.get(), untimed.get()).status(), Code::kIoError,
                                 "the time of events without one"));
  QUARRY_RETURN_IF_ERROR(Refused(device.Record({}, context.stream), Code::kIoError, "no event"));
  QUARRY_RETURN_IF_ERROR(
      Refused(gpu::Run(device, Absent(), context.stream), Code::kInternal, "a kernel that the image lacks"));
  // The device goes on.
  QUARRY_TRY(const auto after, AllocateMemory(device, kMiB));
  QUARRY_RETURN_IF_ERROR(device.Fill(after.get().data(), 1, kMiB, context.stream));
  return device.Synchronize(context.stream);
}

QUARRY_DEVICE_CHECK(OrdinalsEnd) {
  if (!context.real) return Status::Ok();
  QUARRY_TRY(const int count, gpu::CountDevices());
  QUARRY_EXPECT_THAT(count > context.device.facts().ordinal, "the device is counted");
  QUARRY_RETURN_IF_ERROR(Refused(gpu::OpenDevice(count).status(), Code::kNotFound, "an ordinal too high"));
  return Refused(gpu::OpenDevice(-1).status(), Code::kNotFound, "a negative ordinal");
}

}  // namespace
}  // namespace quarry::testing_util
