#include "quarry/format/npy_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cassert>
#include <cstring>
#include <string>

namespace quarry {
namespace {

std::string_view NumpyName(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "<f4";
    case ElementType::kFloat16:
      return "<f2";
    case ElementType::kBfloat16:
      return "<u2";
    case ElementType::kInt8:
      return "|i1";
    case ElementType::kUint8:
      return "|u1";
    case ElementType::kInt32:
      return "<i4";
    case ElementType::kInt64:
      return "<i8";
  }
  assert(false && "an element type without a NumPy name");
  return "";
}

}  // namespace

std::vector<std::byte> EncodeNpyHeader(ElementType type, std::span<const uint64_t> shape) {
  assert(shape.size() <= 32);
  // magic | version 1.0 | uint16 length of the rest | a Python dict, spaces, newline
  constexpr char kPrefix[] = "\x93NUMPY\x01\x00";
  constexpr size_t kPrefixBytes = 8;
  constexpr size_t kTextBytes = kNpyHeaderBytes - kPrefixBytes - 2;
  // As NumPy itself writes tuples: (), (5,), (2, 5).
  const std::string extents = fmt::format("{}{}", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", NumpyName(type), extents);
  assert(text.size() < kTextBytes);
  std::vector<std::byte> header(kNpyHeaderBytes, std::byte{' '});
  std::memcpy(header.data(), kPrefix, kPrefixBytes);
  header[kPrefixBytes] = std::byte{kTextBytes & 0xff};
  header[kPrefixBytes + 1] = std::byte{kTextBytes >> 8};
  std::memcpy(header.data() + kPrefixBytes + 2, text.data(), text.size());
  header.back() = std::byte{'\n'};
  return header;
}

}  // namespace quarry
