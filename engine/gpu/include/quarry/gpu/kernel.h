// Kernel: a function over indices that runs on a device and, the same source, on the processor.
//
// A kernel is a struct of plain values (pointers into device memory, sizes) with
//   static constexpr char kName[]      its name, unique
//   uint64_t count() const             how many indices there are
//   void operator()(uint64_t) const    the work of one index, in no order, beside all others
// nvcc compiles it for devices (kernels.cu lists all of them), and Run hands it to a Device. A device of tests runs it on
// the processor, so that sanitizers see every access and results can be compared bit by bit. Whatever one index writes, no
// other reads or writes within a launch, but by the functions of atomic.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#define QUARRY_ON_DEVICE __host__ __device__
#else
#define QUARRY_ON_DEVICE
#endif

namespace quarry::gpu {

// A kernel as Device::Launch takes it.
struct Kernel {
  const char* name = nullptr;
  // Indices [begin, end) on the processor. `kernel` is the struct.
  void (*run)(const void* kernel, uint64_t begin, uint64_t end) = nullptr;
};

template <typename Body>
inline constexpr Kernel kKernelOf = {Body::kName, [](const void* kernel, uint64_t begin, uint64_t end) {
                                       const Body& body = *static_cast<const Body*>(kernel);
                                       for (uint64_t i = begin; i < end; ++i) body(i);
                                     }};

}  // namespace quarry::gpu
