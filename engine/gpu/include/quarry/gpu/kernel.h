// Kernel: a function over indices that runs on a device and, the same source, on the processor.
//
// A kernel is a struct of plain values (pointers into device memory, sizes) with
//   static constexpr ... kName         its name, unique: a char[], or a KernelName
//   uint64_t count() const             how many indices there are
//   void operator()(uint64_t) const    the work of one index, in no order, beside all others
// and, where an index alone would leave memory waiting,
//   static constexpr unsigned kUnroll  how many indices a thread takes at once: first, first + step, ...
//   template <unsigned kCount> void Several(uint64_t first, uint64_t step) const
//                                      the work of so many: all that they read is asked for before any is written
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

// The name of a kernel for a type and a width: "quarry_decode_float16_by_4".
class KernelName {
 public:
  constexpr KernelName(const char* stem, const char* type, unsigned width) {
    Append(stem);
    Append(type);
    Append("_by_");
    if (width >= 10) text_[size_++] = static_cast<char>('0' + width / 10);
    text_[size_++] = static_cast<char>('0' + width % 10);
  }
  constexpr operator const char*() const { return text_; }  // NOLINT(google-explicit-constructor)

 private:
  constexpr void Append(const char* part) {
    while (*part != 0) text_[size_++] = *part++;
  }
  char text_[48] = {};
  unsigned size_ = 0;
};

// Indices that a thread takes at once.
template <typename Body>
inline constexpr unsigned kUnrollOf = [] {
  if constexpr (requires { Body::kUnroll; }) {
    return Body::kUnroll;
  } else {
    return 1U;
  }
}();

// Indices first, first + step, ... below `end`, at most kUnrollOf of them.
template <typename Body>
QUARRY_ON_DEVICE inline void RunThread(const Body& body, uint64_t first, uint64_t step, uint64_t end) {
  constexpr unsigned kUnroll = kUnrollOf<Body>;
  if constexpr (kUnroll > 1) {
    if (first + (kUnroll - 1) * step < end) return body.template Several<kUnroll>(first, step);
  }
  for (unsigned k = 0; k < kUnroll && first < end; ++k, first += step) body(first);
}

template <typename Body>
inline constexpr Kernel kKernelOf = {Body::kName, [](const void* kernel, uint64_t begin, uint64_t end) {
                                       const Body& body = *static_cast<const Body*>(kernel);
                                       for (uint64_t i = begin; i < end; i += kUnrollOf<Body>) {
                                         RunThread(body, i, 1, end);
                                       }
                                     }};

}  // namespace quarry::gpu
