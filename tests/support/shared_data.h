// The real data sets that tests use where they are: archives in ../shared/data beside the repository, or
// where QUARRY_SHARED_DATA points.
//
//   QUARRY_SHARED_SET(folder, "cora");   unpacks it, or skips the test and says why
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "support/temporary_folder.h"

namespace quarry {

// Found from the test binary upwards: a build folder lies in the repository, and ../shared beside that.
inline std::filesystem::path SharedDataFolder() {
  if (const char* stated = std::getenv("QUARRY_SHARED_DATA")) return stated;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error);
  while (folder.has_relative_path()) {
    folder = folder.parent_path();
    const std::filesystem::path found = folder / "shared" / "data";
    if (std::filesystem::exists(found / "unpack", error)) return found;
  }
  return "../shared/data";
}

inline bool HasSharedSet(const std::string& name) {
  std::error_code error;
  return std::filesystem::exists(SharedDataFolder() / "unpack", error) &&
         std::filesystem::exists(SharedDataFolder() / (name + ".tar.xz"), error);
}

// A set's unpacked folder; lives as long as this.
class SharedSet {
 public:
  explicit SharedSet(const std::string& name) : folder_("shared-" + name), path_(folder_ / name) {
    const std::string command =
        "'" + (SharedDataFolder() / "unpack").string() + "' " + name + " '" + folder_.path() + "' >/dev/null";
    unpacked_ = std::system(command.c_str()) == 0;
  }
  bool unpacked() const { return unpacked_; }
  const std::string& path() const { return path_; }

 private:
  TemporaryFolder folder_;
  std::string path_;
  bool unpacked_ = false;
};

}  // namespace quarry

#define QUARRY_SHARED_SET(variable, name)                                        \
  if (!::quarry::HasSharedSet(name)) {                                           \
    GTEST_SKIP() << name << ".tar.xz is not in " << ::quarry::SharedDataFolder() \
                 << " (QUARRY_SHARED_DATA names it)";                            \
  }                                                                              \
  const ::quarry::SharedSet variable(name);                                      \
  ASSERT_TRUE(variable.unpacked()) << "cannot unpack " << (name)
