#include "driver_stand_in.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "driver_api.h"

using namespace quarry::gpu::cuda;  // NOLINT: the driver's own names are declared with these types
using quarry::testing_util::DriverStandIn;

namespace {

constexpr Error kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kAlreadyRegistered = 712,
                kNotRegistered = 713;

DriverStandIn state;
pid_t started_by = 0;
thread_local std::vector<void*> contexts;
uint64_t clock_ticks = 0;

struct EventState {
  uint64_t at = 0;
};

void* ContextOf(Ordinal device) { return reinterpret_cast<void*>(0x1000 + static_cast<uintptr_t>(device)); }

Error Broken(const char* function, const char* rule, Error error) {
  state.broken.push_back(std::string(function) + ": " + rule);
  return error;
}

// What every function begins with. `needs_context`: the primary context of a device must be current.
Error Enter(const char* function, bool needs_context) {
  state.calls.emplace_back(function);
  if (const auto found = state.fails.find(function); found != state.fails.end()) return found->second;
  if (started_by == 0 && std::strcmp(function, "cuInit") != 0)
    return Broken(function, "before cuInit", kNotInitialized);
  if (started_by != 0 && started_by != getpid()) return kNotInitialized;
  if (needs_context && contexts.empty()) return Broken(function, "no context is current", kInvalidContext);
  return kSuccess;
}

#define ENTER(needs_context)                                                                 \
  do {                                                                                       \
    if (const Error error = Enter(__func__, needs_context); error != kSuccess) return error; \
  } while (false)

bool Holds(const std::map<const std::byte*, uint64_t>& ranges, const void* begin, uint64_t bytes) {
  const auto* const at = static_cast<const std::byte*>(begin);
  auto after = ranges.upper_bound(at);
  if (after == ranges.begin()) return false;
  --after;
  return at + bytes <= after->first + after->second;
}

void* Pointer(Address address) { return reinterpret_cast<void*>(address); }

}  // namespace

extern "C" {

DriverStandIn* quarry_stand_in() { return &state; }
size_t quarry_contexts() { return contexts.size(); }
void quarry_push(void* context) { contexts.push_back(context); }

Error cuInit(unsigned flags) {
  ENTER(false);
  if (flags != 0) return Broken(__func__, "flags", kInvalidValue);
  if (state.device_count == 0) return kNoDevice;
  if (started_by == 0) started_by = getpid();
  return kSuccess;
}
Error cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = 13000;
  return kSuccess;
}
Error cuGetErrorName(Error error, const char** name) {
  *name = error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kNotInitialized ? "CUDA_ERROR_NOT_INITIALIZED"
          : error == kInvalidValue   ? "CUDA_ERROR_INVALID_VALUE"
          : error == kInvalidHandle  ? "CUDA_ERROR_INVALID_HANDLE"
          : error == 999             ? "CUDA_ERROR_UNKNOWN"
                                     : nullptr;
  return *name == nullptr ? kInvalidValue : kSuccess;
}
Error cuGetErrorString(Error error, const char** text) {
  *text = error == 999 ? "unknown error" : nullptr;
  return *text == nullptr ? kInvalidValue : kSuccess;
}
Error cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = state.device_count;
  return kSuccess;
}
// Devices differ from their ordinals here, so that one cannot be given for the other.
Error cuDeviceGet(Ordinal* device, int ordinal) {
  ENTER(false);
  *device = 40 + ordinal;
  return kSuccess;
}
Error cuDeviceGetName(char* name, int name_bytes, Ordinal device) {
  ENTER(false);
  std::snprintf(name, static_cast<size_t>(name_bytes), "Stand-in %d", device);
  return kSuccess;
}
Error cuDeviceGetPCIBusId(char* id, int id_bytes, Ordinal device) {
  ENTER(false);
  std::snprintf(id, static_cast<size_t>(id_bytes), "0000:%02X:00.0", device + 3);
  return kSuccess;
}
Error cuDeviceGetAttribute(int* value, int attribute, Ordinal device) {
  ENTER(false);
  if (device < 40) return Broken(__func__, "an ordinal for a device", kInvalidValue);
  *value = attribute == 16 ? 7 : attribute == 75 ? 9 : attribute == 76 ? 3 : -1;
  return kSuccess;
}
Error cuDeviceTotalMem_v2(size_t* bytes, Ordinal) {
  ENTER(false);
  *bytes = state.memory_bytes;
  return kSuccess;
}

Error cuDevicePrimaryCtxRetain(Context* context, Ordinal device) {
  ENTER(false);
  ++state.retained[device];
  *context = static_cast<Context>(ContextOf(device));
  return kSuccess;
}
Error cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  ENTER(false);
  if (state.retained[device] == 0) return Broken(__func__, "not retained", kInvalidContext);
  if (--state.retained[device] == 0 &&
      !(state.memory.empty() && state.pinned.empty() && state.streams.empty() && state.events.empty() &&
        state.modules.empty())) {
    return Broken(__func__, "handles outlive their context", kInvalidContext);
  }
  return kSuccess;
}
Error cuCtxPushCurrent_v2(Context context) {
  if (const auto found = state.fails.find(__func__); found != state.fails.end()) return found->second;
  if (started_by != getpid()) return kNotInitialized;
  const Ordinal device = static_cast<Ordinal>(reinterpret_cast<uintptr_t>(context) - 0x1000);
  if (state.retained[device] == 0) return Broken(__func__, "a context that is not retained", kInvalidContext);
  contexts.push_back(context);
  return kSuccess;
}
Error cuCtxPopCurrent_v2(Context* context) {
  if (contexts.empty()) return Broken(__func__, "none is current", kInvalidContext);
  *context = static_cast<Context>(contexts.back());
  contexts.pop_back();
  return kSuccess;
}

// An image is a text, "kernels: name name".
Error cuModuleLoadData(Module* module, const void* image) {
  ENTER(true);
  if (std::strncmp(static_cast<const char*>(image), "kernels:", 8) != 0) return kInvalidValue;
  auto* const text = new std::string(static_cast<const char*>(image) + 8);
  state.modules.insert(text);
  *module = reinterpret_cast<Module>(text);
  return kSuccess;
}
Error cuModuleGetFunction(Function* function, Module module, const char* name) {
  ENTER(true);
  if (!state.modules.contains(module)) return Broken(__func__, "no module", kInvalidHandle);
  const std::string& names = *reinterpret_cast<std::string*>(module);
  if ((names + " ").find(" " + std::string(name) + " ") == std::string::npos) return kNotFound;
  *function = reinterpret_cast<Function>(module);
  return kSuccess;
}
Error cuModuleUnload(Module module) {
  ENTER(true);
  if (state.modules.erase(module) == 0) return Broken(__func__, "no module", kInvalidHandle);
  delete reinterpret_cast<std::string*>(module);
  return kSuccess;
}
Error cuLaunchKernel(Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                     Stream stream, void** arguments, void** extra) {
  ENTER(true);
  if (!state.modules.contains(function)) return Broken(__func__, "no function", kInvalidHandle);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  if (blocks_x == 0 || blocks_y != 1 || blocks_z != 1 || threads_y != 1 || threads_z != 1 ||
      shared_bytes != 0 || extra != nullptr) {
    return Broken(__func__, "a grid of one dimension", kInvalidValue);
  }
  state.blocks = blocks_x;
  state.threads = threads_x;
  quarry::testing_util::AddIndices body{};
  std::memcpy(&body, arguments[0], sizeof(body));
  for (uint64_t i = 0; i < body.count(); ++i) body(i);
  return kSuccess;
}
Error cuLaunchHostFunc(Stream stream, HostCall call, void* context) {
  ENTER(true);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  call(context);
  return kSuccess;
}

Error cuMemGetInfo_v2(size_t* free_bytes, size_t* all_bytes) {
  ENTER(true);
  *free_bytes = state.memory_bytes - state.used_bytes;
  *all_bytes = state.memory_bytes;
  return kSuccess;
}
Error cuMemAlloc_v2(Address* memory, size_t bytes) {
  ENTER(true);
  if (bytes > state.memory_bytes - state.used_bytes) return kOutOfMemory;
  auto* const begin = static_cast<std::byte*>(std::calloc(bytes, 1));
  state.memory[begin] = bytes;
  state.used_bytes += bytes;
  *memory = reinterpret_cast<Address>(begin);
  return kSuccess;
}
Error cuMemFree_v2(Address memory) {
  ENTER(true);
  const auto found = state.memory.find(static_cast<std::byte*>(Pointer(memory)));
  if (found == state.memory.end()) return kInvalidValue;
  state.used_bytes -= found->second;
  state.memory.erase(found);
  std::free(Pointer(memory));
  return kSuccess;
}
Error cuMemHostRegister_v2(void* host, size_t bytes, unsigned flags) {
  ENTER(true);
  if (!state.pinned.emplace(static_cast<std::byte*>(host), bytes).second) return kAlreadyRegistered;
  state.pin_flags = flags;
  return kSuccess;
}
Error cuMemHostUnregister(void* host) {
  ENTER(true);
  return state.pinned.erase(static_cast<std::byte*>(host)) == 1 ? kSuccess : kNotRegistered;
}
Error cuMemHostGetDevicePointer_v2(Address* mapped, void* host, unsigned flags) {
  ENTER(true);
  if (flags != 0) return Broken(__func__, "flags", kInvalidValue);
  if (!Holds(state.pinned, host, 1)) return kNotRegistered;
  *mapped = reinterpret_cast<Address>(host);
  return kSuccess;
}
Error cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream stream) {
  ENTER(true);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  if (!Holds(state.memory, Pointer(to), bytes))
    return Broken(__func__, "no memory of the device", kInvalidValue);
  std::memcpy(Pointer(to), from, bytes);
  return kSuccess;
}
Error cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream stream) {
  ENTER(true);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  if (!Holds(state.memory, Pointer(from), bytes))
    return Broken(__func__, "no memory of the device", kInvalidValue);
  std::memcpy(to, Pointer(from), bytes);
  return kSuccess;
}
Error cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream stream) {
  ENTER(true);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  if (!Holds(state.memory, Pointer(to), bytes) || !Holds(state.memory, Pointer(from), bytes)) {
    return Broken(__func__, "no memory of the device", kInvalidValue);
  }
  std::memmove(Pointer(to), Pointer(from), bytes);
  return kSuccess;
}
Error cuMemsetD8Async(Address memory, unsigned char value, size_t bytes, Stream stream) {
  ENTER(true);
  if (stream != nullptr && !state.streams.contains(stream))
    return Broken(__func__, "no stream", kInvalidHandle);
  if (!Holds(state.memory, Pointer(memory), bytes))
    return Broken(__func__, "no memory of the device", kInvalidValue);
  std::memset(Pointer(memory), value, bytes);
  return kSuccess;
}

Error cuStreamCreate(Stream* stream, unsigned flags) {
  ENTER(true);
  state.stream_flags = flags;
  state.streams.insert(*stream = new char);
  return kSuccess;
}
Error cuStreamDestroy_v2(Stream stream) {
  ENTER(true);
  if (state.streams.erase(stream) == 0) return kInvalidHandle;
  delete static_cast<char*>(stream);
  return kSuccess;
}
Error cuStreamSynchronize(Stream stream) {
  ENTER(true);
  return stream == nullptr || state.streams.contains(stream) ? kSuccess : kInvalidHandle;
}
Error cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  ENTER(true);
  if (flags != 0) return Broken(__func__, "flags", kInvalidValue);
  return state.streams.contains(stream) && state.events.contains(event) ? kSuccess : kInvalidHandle;
}
Error cuEventCreate(Event* event, unsigned flags) {
  ENTER(true);
  state.event_flags = flags;
  state.events.insert(*event = new EventState);
  return kSuccess;
}
Error cuEventDestroy_v2(Event event) {
  ENTER(true);
  if (state.events.erase(event) == 0) return kInvalidHandle;
  delete static_cast<EventState*>(event);
  return kSuccess;
}
Error cuEventRecord(Event event, Stream stream) {
  ENTER(true);
  if (!state.events.contains(event) || !state.streams.contains(stream)) return kInvalidHandle;
  static_cast<EventState*>(event)->at = ++clock_ticks;
  return kSuccess;
}
Error cuEventQuery(Event event) {
  ENTER(true);
  if (!state.events.contains(event)) return kInvalidHandle;
  return state.events_happen ? kSuccess : kNotReady;
}
Error cuEventSynchronize(Event event) {
  ENTER(true);
  return state.events.contains(event) ? kSuccess : kInvalidHandle;
}
Error cuEventElapsedTime(float* milliseconds, Event from, Event to) {
  ENTER(true);
  if (!state.events.contains(from) || !state.events.contains(to)) return kInvalidHandle;
  *milliseconds = static_cast<float>(static_cast<EventState*>(to)->at - static_cast<EventState*>(from)->at);
  return kSuccess;
}
}

// Each has the type that the driver's table declares.
#define QUARRY_SAME_TYPE(name, arguments) \
  static_assert(std::is_same_v<decltype(&::name), Error(*) arguments>);
QUARRY_DRIVER_FUNCTIONS(QUARRY_SAME_TYPE)
