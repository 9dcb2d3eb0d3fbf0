// A scratch file that is gone with its owner. Private to this room.
#pragma once

#include <filesystem>
#include <string>

namespace quarry {

class ScratchFile {
 public:
  explicit ScratchFile(std::string path) : path_(std::move(path)) {}
  ~ScratchFile() { Remove(); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::string& path() const { return path_; }
  // Once it is open its name is needed no more: so nothing is left of it however the process ends.
  void Remove() const {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  const std::string path_;
};

}  // namespace quarry
