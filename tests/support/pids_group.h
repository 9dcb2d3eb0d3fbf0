// A cgroup whose processes and threads are limited, where this machine lets a test make one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace quarry {

class PidsGroup {
 public:
  explicit PidsGroup(uint64_t pids_max) {
    namespace fs = std::filesystem;
    static int serial = 0;
    const std::string root = fs::exists("/sys/fs/cgroup/pids") ? "/sys/fs/cgroup/pids" : "/sys/fs/cgroup";
    path_ = root + "/quarry-test-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
    std::error_code error;
    fs::create_directory(path_, error);
    std::ofstream limit(path_ + "/pids.max");
    made_ = static_cast<bool>(limit << pids_max << std::flush);
  }
  PidsGroup(const PidsGroup&) = delete;
  PidsGroup& operator=(const PidsGroup&) = delete;
  ~PidsGroup() {  // its processes have ended
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  // Not: why a test that needs one is skipped.
  bool made() const { return made_; }
  // Moves the calling process there.
  bool Enter() const {
    return static_cast<bool>(std::ofstream(path_ + "/cgroup.procs") << getpid() << std::flush);
  }

 private:
  std::string path_;
  bool made_ = false;
};

inline constexpr const char* kNoPidsGroup = "no cgroup that limits processes can be made here";

}  // namespace quarry
