// Damage for tests: changes one byte of a file, and where a log of the catalog ends.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "support/file_text.h"

namespace quarry::testing_util {

inline void FlipByte(const std::string& path, uint64_t offset, char mask = 0x10) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ mask));
  EXPECT_TRUE(file.good()) << path;
}

// Up to the end of the last commit, which is its mark's (commit_mark.h): a log has room behind it.
inline uint64_t UsedLogBytes(const std::string& path) {
  const std::string bytes = FileText(path);
  const size_t mark = bytes.rfind("QRYCOMMT");
  return mark == std::string::npos ? 0 : mark + 40;
}

}  // namespace quarry::testing_util
