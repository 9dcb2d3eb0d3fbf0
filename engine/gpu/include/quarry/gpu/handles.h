// What is had of a Device, and given back: memory, pinned memory, streams, events. Each is owned by its handle, moves, and
// must go before its Device. Nothing may be enqueued that still needs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "quarry/base/status.h"
#include "quarry/gpu/device.h"

namespace quarry::gpu {

// A value of a device that goes back by `Back`; a failure to give back is dropped, as a device that is lost has nothing.
template <typename Value, typename Back>
class Handle {
 public:
  Handle() = default;
  Handle(Device& device, Value value) : device_(&device), value_(value) {}
  Handle(Handle&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), value_(std::exchange(other.value_, Value{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Handle() {
    if (device_ != nullptr) Back{}(*device_, value_);
  }
  const Value& get() const { return value_; }
  explicit operator bool() const { return device_ != nullptr; }

 private:
  Device* device_ = nullptr;
  Value value_{};
};

namespace back {
struct ToMemory {
  void operator()(Device& device, std::span<std::byte> memory) const {
    static_cast<void>(device.Free(memory.data()));
  }
};
struct ToPageable {
  void operator()(Device& device, std::span<std::byte> memory) const {
    static_cast<void>(device.Unpin(memory.data()));
  }
};
struct ToStreams {
  void operator()(Device& device, StreamHandle stream) const {
    static_cast<void>(device.DestroyStream(stream));
  }
};
struct ToEvents {
  void operator()(Device& device, EventHandle event) const { static_cast<void>(device.DestroyEvent(event)); }
};
}  // namespace back

using Memory =
    Handle<std::span<std::byte>, back::ToMemory>;  // of the device; not for the processor to follow
using Pinned = Handle<std::span<std::byte>, back::ToPageable>;  // the host's, as long as it is pinned
using Stream = Handle<StreamHandle, back::ToStreams>;
using Event = Handle<EventHandle, back::ToEvents>;

inline Result<Memory> AllocateMemory(Device& device, uint64_t bytes) {
  QUARRY_TRY(std::byte* const memory, device.Allocate(bytes));
  return Memory(device, {memory, bytes});
}
inline Result<Pinned> PinMemory(Device& device, std::span<std::byte> host) {
  QUARRY_RETURN_IF_ERROR(device.Pin(host));
  return Pinned(device, host);
}
inline Result<Stream> MakeStream(Device& device) {
  QUARRY_TRY(const StreamHandle stream, device.MakeStream());
  return Stream(device, stream);
}
inline Result<Event> MakeEvent(Device& device, bool timed = false) {
  QUARRY_TRY(const EventHandle event, device.MakeEvent(timed));
  return Event(device, event);
}

}  // namespace quarry::gpu
