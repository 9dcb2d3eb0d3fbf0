// Every kernel, compiled for devices: one image with code for sm_80, sm_90, and PTX for what comes after
// (engine/gpu/CMakeLists.txt), which Device::Launch finds functions in by name.
#include "quarry/gpu/row_kernels.h"

namespace quarry::gpu {
namespace {

template <typename Body>
__device__ __forceinline__ void Every(const Body& body) {
  const uint64_t count = body.count(), step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

}  // namespace

#define QUARRY_KERNEL(name, Body) \
  extern "C" __global__ void __launch_bounds__(256) name(const Body body) { Every(body); }

QUARRY_KERNEL(quarry_gather_rows, GatherRows)

}  // namespace quarry::gpu
