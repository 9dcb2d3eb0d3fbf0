// NamedTensor: a matrix or vector of floats with a name, as weights of a model go in and out of files; and the header of a
// .safetensors file, for writers that put the data behind it themselves.
//
// Plain values; pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quarry {

struct NamedTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> values;  // row-major

  std::string ShapeText() const;  // "[32, 7]"
};

// What stands in front of the tensors' values, which follow one behind the other, little-endian: the length of the text
// (u64), and the text, JSON, padded by blanks to a multiple of 8 (https://huggingface.co/docs/safetensors). `notes` become
// its __metadata__; all of its text is written escaped.
std::vector<std::byte> EncodeSafetensorsHeader(
    std::span<const NamedTensor> tensors,
    std::span<const std::pair<std::string_view, std::string_view>> notes);

}  // namespace quarry
