// Random feature rows of any type, and lists of neighbors, for tests of kernels.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "quarry/format/batch_view.h"
#include "quarry/format/element_type.h"
#include "support/device_space.h"

namespace quarry::testing_util {

using Random = std::mt19937_64;

inline uint64_t Below(Random& random, uint64_t limit) { return random() % limit; }

inline std::vector<std::byte> RandomBytes(Random& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// `count` of the numbers below `limit`, none twice.
inline std::vector<uint32_t> RandomDistinct(Random& random, uint32_t count, uint32_t limit) {
  std::vector<uint32_t> numbers(limit);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::ranges::shuffle(numbers, random);
  numbers.resize(count);
  return numbers;
}

inline std::vector<uint32_t> Bits(std::span<const float> floats) {
  std::vector<uint32_t> bits;
  bits.reserve(floats.size());
  for (const float value : floats) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

inline constexpr ElementType kFloatTypes[] = {ElementType::kFloat32, ElementType::kFloat16,
                                              ElementType::kBfloat16, ElementType::kInt8};

// Scales as no import makes them, too.
inline float RandomScale(Random& random) {
  constexpr uint32_t kOdd[] = {0x7fc00000, 0xffc12345, 0x7f812345, 0xff800001, 0x7f800000, 0xff800000,
                               0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x7f7fffff, 0x3f800000};
  const uint64_t choice = Below(random, 24);
  if (choice < std::size(kOdd)) return std::bit_cast<float>(kOdd[choice]);
  return std::bit_cast<float>(static_cast<uint32_t>(random()));
}

// Rows with any bits at all, and finite ones in `finite`: what sums of NaNs are is the processor's own.
struct Features {
  Features(Random& random, ElementType element_type, uint32_t dim_of_rows, uint32_t node_count, bool finite)
      : type(element_type), dim(dim_of_rows), nodes(node_count) {
    stride = RowStride(type, dim) + sizeof(float) * Below(random, 5);
    slotted = Below(random, 4) != 0;
    offset = sizeof(float) * Below(random, 3);
    const auto row_count = nodes + static_cast<uint32_t>(Below(random, 10));
    slots = RandomDistinct(random, nodes, row_count);
    rows = RandomBytes(random, row_count * stride);
    for (uint32_t row = 0; row < row_count; ++row) {
      const std::span bytes = std::span(rows).subspan(row * stride, RowBytes(type, dim));
      if (finite) {
        std::vector<float> values(dim);
        std::normal_distribution<float> normal;
        for (float& value : values) value = Below(random, 8) == 0 ? -0.0F : normal(random);
        EncodeRow(type, values, bytes);
      } else if (type == ElementType::kInt8) {
        const float scale = RandomScale(random);
        std::memcpy(&bytes[bytes.size() - sizeof scale], &scale, sizeof scale);
      }
    }
  }
  FeatureView View(const std::byte* at, const uint32_t* slots_at) const {
    return {.rows = {at, rows.size()},
            .stride_bytes = stride,
            .element_type = type,
            .dim = dim,
            .slots = slotted ? std::span(slots_at, nodes) : std::span<const uint32_t>()};
  }
  FeatureView View() const { return View(rows.data(), slots.data()); }
  FeatureView PutOn(DeviceSpace& space) const { return View(space.Put(rows, offset), space.Put(slots)); }
  std::vector<float> Decoded(uint32_t node) const {
    std::vector<float> values(dim);
    DecodeRow(type, {View().Row(node), RowBytes(type, dim)}, values);
    return values;
  }

  ElementType type;
  uint32_t dim, nodes;
  uint64_t stride = 0, offset = 0;
  bool slotted = true;
  std::vector<uint32_t> slots;
  std::vector<std::byte> rows;
};

// Neighbor lists over local ids: none, one, many.
struct Lists {
  Lists(Random& random, uint32_t targets, uint32_t nodes) : indptr(1, 0) {
    for (uint32_t target = 0; target < targets; ++target) {
      const uint64_t kind = Below(random, 8);
      const uint64_t degree = nodes == 0 || kind == 0 ? 0
                              : kind == 1             ? Below(random, 300)
                                                      : Below(random, 12);
      for (uint64_t e = 0; e < degree; ++e) indices.push_back(static_cast<uint32_t>(Below(random, nodes)));
      indptr.push_back(static_cast<uint32_t>(indices.size()));
    }
  }
  std::vector<uint32_t> indptr, indices;
};

}  // namespace quarry::testing_util
