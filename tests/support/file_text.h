// FileText: the bytes of a whole file.
#pragma once

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

namespace quarry::testing_util {

// Empty where there is none. Not byte by byte through a stream's iterators: unoptimized and under a sanitizer that takes
// seconds for the megabytes that some tests compare.
inline std::string FileText(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> piece;
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
  }
  return text;
}

}  // namespace quarry::testing_util
