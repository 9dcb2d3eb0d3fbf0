// The bytes of .safetensors files.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quarry {

struct TensorBytes {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<uint64_t> shape;
  std::string bytes;
};

// A header, and what lies behind it.
inline std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; i++) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

// As the library writes it: in the order given, without gaps, the header padded by blanks to a multiple of 8.
inline std::string SafetensorsFile(const std::vector<TensorBytes>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const TensorBytes& tensor : tensors) {
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                          tensor.dtype, fmt::join(tensor.shape, ","), data.size(),
                          data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return SafetensorsBytes(header, data);
}

}  // namespace quarry
