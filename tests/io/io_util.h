// What the tests of this room share: a scratch folder, files of known content, the three backends.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/io/backend.h"

namespace quarry::testing_util {

class ScratchFolder {
 public:
  ScratchFolder() {
    static std::atomic<int> serial{0};
    path_ = testing::TempDir() + "quarry-io-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline std::vector<std::byte> RandomBytes(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
  return bytes;
}

inline void WriteFile(const std::string& path, const std::vector<std::byte>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

// The parameter of tests that every backend must pass; null where the kernel has no io_uring (they skip).
inline std::unique_ptr<IoBackend> MakeBackend(std::string_view name) {
  if (name == "threads") return MakeThreadBackend(4);
  auto uring = MakeUringBackend();
  return uring.ok() ? std::move(uring).value() : nullptr;
}

inline std::string NameOfParameter(const testing::TestParamInfo<const char*>& info) { return info.param; }

// For the output of a child process in a death test: exactly one line holds `text`.
inline bool HasOneLineWith(const std::string& output, std::string_view text) {
  const size_t first = output.find(text);
  return first != std::string::npos && output.find(text, first + 1) == std::string::npos;
}

}  // namespace quarry::testing_util
