// Atomic operations of kernels: std::atomic_ref on the processor, the device's own there, both without order: what one
// launch writes, the next one of its stream sees. Only sums and minima of integers: they do not depend on the order.
#pragma once

#include <cstdint>

#include "quarry/gpu/kernel.h"

#if !defined(__CUDA_ARCH__)
#include <atomic>
#endif

namespace quarry::gpu {

// `*at` becomes `desired` where it is `expected`. What it was comes back.
QUARRY_ON_DEVICE inline uint64_t AtomicCompareExchange(uint64_t* at, uint64_t expected, uint64_t desired) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(reinterpret_cast<unsigned long long*>(at), expected, desired);
#else
  std::atomic_ref<uint64_t>(*at).compare_exchange_strong(expected, desired, std::memory_order_relaxed);
  return expected;
#endif
}

// `*at` becomes `desired`. What it was comes back.
QUARRY_ON_DEVICE inline uint32_t AtomicExchange(uint32_t* at, uint32_t desired) {
#if defined(__CUDA_ARCH__)
  return atomicExch(at, desired);
#else
  return std::atomic_ref<uint32_t>(*at).exchange(desired, std::memory_order_relaxed);
#endif
}

// `*at` becomes the smaller of the two.
QUARRY_ON_DEVICE inline void AtomicMin(uint32_t* at, uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMin(at, value);
#else
  std::atomic_ref<uint32_t> cell(*at);
  for (uint32_t there = cell.load(std::memory_order_relaxed);
       value < there && !cell.compare_exchange_weak(there, value, std::memory_order_relaxed);) {
  }
#endif
}

// What `*at` was comes back.
QUARRY_ON_DEVICE inline uint64_t AtomicAdd(uint64_t* at, uint64_t value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), value);
#else
  return std::atomic_ref<uint64_t>(*at).fetch_add(value, std::memory_order_relaxed);
#endif
}

}  // namespace quarry::gpu
