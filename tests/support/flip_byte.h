// Damage for tests: changes one byte of a file.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace quarry::testing_util {

inline void FlipByte(const std::string& path, uint64_t offset, char mask = 0x10) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ mask));
  EXPECT_TRUE(file.good()) << path;
}

}  // namespace quarry::testing_util
