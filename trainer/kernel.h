// How the trainer's kernels reach the vector units of the machine that they run on.
#pragma once

#include <cstdint>

// One body, compiled for AVX-512, AVX2 + FMA and the baseline, and chosen when the program is loaded.
// Sanitizers run before the loader's choice can, so they get the baseline.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define QUARRY_KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define QUARRY_KERNEL
#endif
// What a kernel calls must be inlined into each of its clones, or it runs as baseline code.
#define QUARRY_INLINE inline __attribute__((always_inline))

namespace quarry {

// Partial sums that make one vector's lanes: without them GCC keeps the order of additions, and so leaves a
// sum scalar.
inline constexpr uint32_t kLanes = 16;

}  // namespace quarry
