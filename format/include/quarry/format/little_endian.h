// Little-endian integers at any address.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>

namespace quarry {

// Arrays of indices and rows go to disk as they lie in memory.
static_assert(std::endian::native == std::endian::little,
              "Quarry's files are little-endian, and so must the CPU be");

template <std::unsigned_integral T>
T LoadLittle(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <std::unsigned_integral T>
void StoreLittle(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace quarry
