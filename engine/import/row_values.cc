#include "row_values.h"

#include <cassert>
#include <cstring>

namespace quarry {
namespace {

// A float is NaN or infinite when its exponent is all ones.
template <typename Bits>
std::optional<uint64_t> FindExponent(std::span<const std::byte> elements, Bits exponent) {
  constexpr size_t kBlock = 1024;
  const size_t count = elements.size() / sizeof(Bits);
  const auto* const bits = reinterpret_cast<const Bits*>(elements.data());
  for (size_t first = 0; first < count; first += kBlock) {
    const size_t end = first + std::min(kBlock, count - first);
    Bits found = 0;
    for (size_t i = first; i < end; i++) found |= static_cast<Bits>((bits[i] & exponent) == exponent);
    for (size_t i = first; found != 0 && i < end; i++) {
      if ((bits[i] & exponent) == exponent) return i;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<uint64_t> FindNonFinite(ElementType type, std::span<const std::byte> elements) {
  switch (type) {
    case ElementType::kFloat32:
      return FindExponent<uint32_t>(elements, 0x7f800000);
    case ElementType::kFloat16:
      return FindExponent<uint16_t>(elements, 0x7c00);
    case ElementType::kBfloat16:
      return FindExponent<uint16_t>(elements, 0x7f80);
    default:
      assert(false && "not a float type");
      return std::nullopt;
  }
}

}  // namespace quarry
