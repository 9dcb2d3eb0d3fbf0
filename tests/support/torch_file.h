// The bytes of .pt files: what torch.save wrote before 1.6 of a dict of NumPy's integers, and of anything
// that only looks like one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/array_files.h"

namespace quarry {

// A pickle between what torch writes before it and behind it. `keys`: a pickle too, of the storages' keys.
inline std::string LegacyTorchFile(std::string_view pickle, std::string_view keys = "\x80\x02].",
                                   std::string_view storages = "") {
  using std::literals::operator""s;
  std::string bytes = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s;
  bytes += "\x80\x02M\xe9\x03."s;
  bytes += "\x80\x02}X\x0d\0\0\0little_endian\x88s."s;
  return bytes.append(pickle).append(keys).append(storages);
}

inline std::string PickledText(std::string_view text) {
  return "X" + RawBytes(std::vector<uint32_t>{static_cast<uint32_t>(text.size())}) + std::string(text);
}
inline std::string PickledInt(uint64_t value) { return "\x8a\x08" + RawBytes(std::vector<uint64_t>{value}); }
// Bytes by protocol 2: a text of the code points 0 to 255.
inline std::string PickledBytes(std::string_view bytes) {
  std::string text;
  for (const char letter : bytes) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80) text += static_cast<char>(0xc0 | byte >> 6);
    text += static_cast<char>(byte < 0x80 ? byte : 0x80 | (byte & 0x3f));
  }
  return "c_codecs\nencode\n" + PickledText(text) + PickledText("latin1") + "\x86R";
}

struct TorchArray {
  std::string key;
  std::vector<uint64_t> shape;
  std::vector<int64_t> values;
};

inline std::string PickledArray(const TorchArray& array) {
  using std::literals::operator""s;
  std::string bytes =
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"s + PickledBytes("b") + "\x87R(K\1("s;
  for (const uint64_t extent : array.shape) bytes += PickledInt(extent);
  bytes += "tcnumpy\ndtype\n"s + PickledText("i8") + "\x89\x88\x87R(K\3"s + PickledText("<");
  bytes += "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"s;
  return bytes + PickledBytes(RawBytes(array.values)) + "tb";
}

inline std::string TorchFile(const std::vector<TorchArray>& arrays) {
  std::string pickle = "\x80\x02}(";
  for (const TorchArray& array : arrays) pickle += PickledText(array.key) + PickledArray(array);
  return LegacyTorchFile(pickle + "u.");
}

}  // namespace quarry
