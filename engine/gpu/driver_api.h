// The functions of CUDA's driver that Quarry calls, as libcuda.so.1 exports them for CUDA 12 and 13. Declared here, so that
// nothing of CUDA is needed to build; tests/gpu/driver_api_test.cc holds them against the toolkit's cuda.h where there is
// one. Private to this room.
#pragma once

#include <cstddef>

namespace quarry::gpu::cuda {

using Error = int;                   // CUresult
using Ordinal = int;                 // CUdevice
using Address = unsigned long long;  // CUdeviceptr
using Context = struct ContextState*;
using Module = struct ModuleState*;
using Function = struct FunctionState*;
using Stream = void*;  // as StreamHandle and EventHandle hold them
using Event = void*;
using HostCall = void (*)(void*);

// CUresult: those that are told apart.
inline constexpr Error kSuccess = 0, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100,
                       kNoBinaryForGpu = 209, kInvalidPtx = 218, kUnsupportedPtxVersion = 222,
                       kNotFound = 500, kNotReady = 600;
// CUdevice_attribute
inline constexpr int kMultiprocessorCount = 16, kCapabilityMajor = 75, kCapabilityMinor = 76;
inline constexpr unsigned kNonBlocking = 1;               // CUstream_flags
inline constexpr unsigned kDisableTiming = 2;             // CUevent_flags
inline constexpr unsigned kPortable = 1, kDeviceMap = 2;  // CU_MEMHOSTREGISTER_*

// X(name, arguments), each returning an Error. What cuda.h renames to _v2 is named so here.
#define QUARRY_DRIVER_FUNCTIONS(X)                                                                      \
  X(cuInit, (unsigned flags))                                                                           \
  X(cuDriverGetVersion, (int* version))                                                                 \
  X(cuGetErrorName, (Error error, const char** name))                                                   \
  X(cuGetErrorString, (Error error, const char** text))                                                 \
  X(cuDeviceGetCount, (int* count))                                                                     \
  X(cuDeviceGet, (Ordinal * device, int ordinal))                                                       \
  X(cuDeviceGetName, (char* name, int name_bytes, Ordinal device))                                      \
  X(cuDeviceGetPCIBusId, (char* id, int id_bytes, Ordinal device))                                      \
  X(cuDeviceGetAttribute, (int* value, int attribute, Ordinal device))                                  \
  X(cuDeviceTotalMem_v2, (size_t * bytes, Ordinal device))                                              \
  X(cuDevicePrimaryCtxRetain, (Context * context, Ordinal device))                                      \
  X(cuDevicePrimaryCtxRelease_v2, (Ordinal device))                                                     \
  X(cuCtxPushCurrent_v2, (Context context))                                                             \
  X(cuCtxPopCurrent_v2, (Context * context))                                                            \
  X(cuModuleLoadData, (Module * module, const void* image))                                             \
  X(cuModuleGetFunction, (Function * function, Module module, const char* name))                        \
  X(cuModuleUnload, (Module module))                                                                    \
  X(cuLaunchKernel, (Function function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,        \
                     unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes, \
                     Stream stream, void** arguments, void** extra))                                    \
  X(cuLaunchHostFunc, (Stream stream, HostCall call, void* context))                                    \
  X(cuMemGetInfo_v2, (size_t * free_bytes, size_t * all_bytes))                                         \
  X(cuMemAlloc_v2, (Address * memory, size_t bytes))                                                    \
  X(cuMemFree_v2, (Address memory))                                                                     \
  X(cuMemHostRegister_v2, (void* host, size_t bytes, unsigned flags))                                   \
  X(cuMemHostUnregister, (void* host))                                                                  \
  X(cuMemHostGetDevicePointer_v2, (Address * mapped, void* host, unsigned flags))                       \
  X(cuMemcpyHtoDAsync_v2, (Address to, const void* from, size_t bytes, Stream stream))                  \
  X(cuMemcpyDtoHAsync_v2, (void* to, Address from, size_t bytes, Stream stream))                        \
  X(cuMemcpyDtoDAsync_v2, (Address to, Address from, size_t bytes, Stream stream))                      \
  X(cuMemsetD8Async, (Address memory, unsigned char value, size_t bytes, Stream stream))                \
  X(cuStreamCreate, (Stream * stream, unsigned flags))                                                  \
  X(cuStreamDestroy_v2, (Stream stream))                                                                \
  X(cuStreamSynchronize, (Stream stream))                                                               \
  X(cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                                    \
  X(cuEventCreate, (Event * event, unsigned flags))                                                     \
  X(cuEventDestroy_v2, (Event event))                                                                   \
  X(cuEventRecord, (Event event, Stream stream))                                                        \
  X(cuEventQuery, (Event event))                                                                        \
  X(cuEventSynchronize, (Event event))                                                                  \
  X(cuEventElapsedTime, (float* milliseconds, Event from, Event to))

struct Api {
#define QUARRY_DRIVER_POINTER(name, arguments) Error(*name) arguments = nullptr;
  QUARRY_DRIVER_FUNCTIONS(QUARRY_DRIVER_POINTER)
#undef QUARRY_DRIVER_POINTER
};

}  // namespace quarry::gpu::cuda
