// The bytes of .npy files, as NumPy writes them, and of anything that only looks like one.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace quarry {

struct NpyText {
  int version = 1;
  std::string descr = "<i8";
  bool fortran = false;
  std::vector<uint64_t> shape;
};

// The header: magic, version, length, dict padded to a multiple of 64 bytes.
inline std::string NpyHeaderBytes(const NpyText& text) {
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{}), }}", text.descr,
                                 text.fortran ? "True" : "False", fmt::join(text.shape, ", "),
                                 text.shape.size() == 1 ? "," : "");
  const size_t start = text.version == 1 ? 10 : 12;
  dict.resize((start + dict.size() + 1 + 63) / 64 * 64 - start - 1, ' ');
  dict += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(text.version);
  bytes += '\0';
  for (int i = 0; i < (text.version == 1 ? 2 : 4); i++)
    bytes += static_cast<char>(dict.size() >> (8 * i) & 0xff);
  return bytes + dict;
}

template <typename T>
constexpr std::string_view NpyDescr() {
  if constexpr (std::is_same_v<T, bool>) return "|b1";
  if constexpr (std::is_same_v<T, float>) return "<f4";
  if constexpr (std::is_same_v<T, double>) return "<f8";
  if constexpr (std::is_integral_v<T>) {
    constexpr std::string_view kSigned[] = {"|i1", "<i2", "", "<i4", "", "", "", "<i8"};
    constexpr std::string_view kUnsigned[] = {"|u1", "<u2", "", "<u4", "", "", "", "<u8"};
    return (std::is_signed_v<T> ? kSigned : kUnsigned)[sizeof(T) - 1];
  }
}

template <typename T>
std::string RawBytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A whole file. T is an integer, float, double; `descr` overrides the name of its type ("<f2" for uint16_t).
template <typename T>
std::string NpyFile(const std::vector<T>& values, std::vector<uint64_t> shape,
                    std::string_view descr = NpyDescr<T>(), int version = 1) {
  return NpyHeaderBytes({.version = version, .descr = std::string(descr), .shape = std::move(shape)}) +
         RawBytes(values);
}
template <typename T>
std::string NpyVector(const std::vector<T>& values, std::string_view descr = NpyDescr<T>()) {
  return NpyFile(values, {values.size()}, descr);
}

// int64 [2, E] of pairs (source, destination).
inline std::string NpyEdges(const std::vector<std::pair<int64_t, int64_t>>& edges) {
  std::vector<int64_t> ids;
  for (const auto& [source, destination] : edges) ids.push_back(source);
  for (const auto& [source, destination] : edges) ids.push_back(destination);
  return NpyFile(ids, {2, edges.size()});
}

}  // namespace quarry
