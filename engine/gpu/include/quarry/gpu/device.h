// Device: a GPU as Quarry uses one, a table of the driver's functions. OpenDevice finds the driver when it is asked for
// one (dlopen of libcuda.so.1), so one binary runs with and without CUDA; tests have a device of their own
// (tests/support/fake_device.h).
//
// Work is enqueued on streams and ordered by events alone. What is enqueued reads and writes host memory later, when its
// turn comes: memory that a copy or kernel still needs is not written, freed or unpinned before an event says that it is
// through. No call but Synchronize waits for the device.
//
// Every call: any thread, whatever context is current there. kOutOfBudget when the device has no memory left (how much was
// asked for and how much is free is named), kIoError with the driver's name for what else it refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "quarry/base/status.h"
#include "quarry/gpu/kernel.h"

namespace quarry::gpu {

// A stream of the driver's (CUstream); null is the legacy default stream. Those of others, PyTorch's, are taken as they are.
struct StreamHandle {
  void* raw = nullptr;
  bool operator==(const StreamHandle&) const = default;
};
struct EventHandle {
  void* raw = nullptr;
  bool operator==(const EventHandle&) const = default;
};

struct DeviceFacts {
  int ordinal = 0;
  std::string name;         // "NVIDIA H100 80GB HBM3"
  std::string bus_id;       // PCI, "0000:1b:00.0"
  unsigned driver = 0;      // the newest CUDA that the driver runs: 13000
  unsigned capability = 0;  // 90: sm_90
  unsigned multiprocessors = 0;
  uint64_t memory_bytes = 0;
  // The link's, as the system tells; 0: it does not.
  unsigned pcie_generation = 0, pcie_width = 0;
};

// What was asked of a device so far. A batch that waits for the device on the host is one too many.
struct DeviceCounts {
  uint64_t launches = 0, copies = 0, copied_bytes = 0;
  uint64_t host_waits = 0;  // calls of Synchronize
  uint64_t allocations = 0, frees = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceFacts& facts() const = 0;
  virtual DeviceCounts counts() const = 0;
  virtual Result<uint64_t> FreeBytes() = 0;

  // ---- memory: use Memory and Pinned of handles.h

  virtual Result<std::byte*> Allocate(uint64_t bytes) = 0;
  virtual Status Free(std::byte* memory) = 0;
  // Pins host memory: copies of it then go at the link's speed, beside the processor. Whole pages, pinned once.
  virtual Status Pin(std::span<std::byte> host) = 0;
  virtual Status Unpin(std::byte* host) = 0;
  // Where kernels find pinned memory.
  virtual Result<std::byte*> MappedAddress(std::byte* host) = 0;

  // ---- order

  virtual Result<StreamHandle> MakeStream() = 0;
  virtual Status DestroyStream(StreamHandle stream) = 0;
  virtual Result<EventHandle> MakeEvent(bool timed) = 0;
  virtual Status DestroyEvent(EventHandle event) = 0;
  // The event happens when all that was enqueued on the stream before is through.
  virtual Status Record(EventHandle event, StreamHandle stream) = 0;
  // What is enqueued on the stream afterwards waits for the event's last Record before this call; for nothing without one.
  virtual Status Wait(StreamHandle stream, EventHandle event) = 0;
  virtual Result<bool> HasHappened(EventHandle event) = 0;
  // `call` runs on a thread of the driver's in the stream's order. It must not call the device.
  virtual Status CallHost(StreamHandle stream, void (*call)(void*), void* context) = 0;
  virtual Status Synchronize(EventHandle event) = 0;
  virtual Status Synchronize(StreamHandle stream) = 0;
  // Between two timed events that have happened.
  virtual Result<double> SecondsBetween(EventHandle from, EventHandle to) = 0;

  // ---- work

  // Host memory is pinned, or the call may wait.
  virtual Status CopyIn(std::byte* device, const std::byte* host, uint64_t bytes, StreamHandle stream) = 0;
  virtual Status CopyOut(std::byte* host, const std::byte* device, uint64_t bytes, StreamHandle stream) = 0;
  virtual Status CopyWithin(std::byte* to, const std::byte* from, uint64_t bytes, StreamHandle stream) = 0;
  virtual Status Fill(std::byte* device, uint8_t value, uint64_t bytes, StreamHandle stream) = 0;
  // Use Run. Copies the struct.
  virtual Status Launch(const Kernel& kernel, const void* body, size_t body_bytes, uint64_t count,
                        StreamHandle stream) = 0;
};

// Every index of the kernel, on the stream.
template <typename Body>
Status Run(Device& device, const Body& body, StreamHandle stream) {
  static_assert(std::is_trivially_copyable_v<Body>);
  if (body.count() == 0) return Status::Ok();
  return device.Launch(kKernelOf<Body>, &body, sizeof(Body), body.count(), stream);
}

// How many devices the driver has. kUnsupported where there is no driver, or this build has no kernels: the sentence says
// which. Nothing is loaded into a process that does not ask.
Result<int> CountDevices();
// The device's primary context, which PyTorch uses too, is held until the Device goes. kUnsupported as above, kNotFound
// for another ordinal.
Result<std::unique_ptr<Device>> OpenDevice(int ordinal);

}  // namespace quarry::gpu
