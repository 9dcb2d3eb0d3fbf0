#include "quarry/base/process_limits.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

namespace quarry {
namespace {

namespace fs = std::filesystem;

// "max", and a missing file: nothing.
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// The least of what the group and those above it leave.
uint64_t LeftIn(const std::string& root, std::string group) {
  uint64_t left = UINT64_MAX;
  if (group == "/") group.clear();
  while (true) {
    const std::optional<uint64_t> most = ReadNumber(root + group + "/pids.max");
    const uint64_t there = ReadNumber(root + group + "/pids.current").value_or(0);
    if (most) left = std::min(left, *most - std::min(*most, there));
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) return left;
    group.resize(slash);
  }
}

uint64_t LeftInGroups(const std::string& membership, const std::string& root) {
  uint64_t left = UINT64_MAX;
  std::ifstream groups(membership);
  for (std::string line; std::getline(groups, line);) {  // "8:pids:/path" (v1) or "0::/path" (v2)
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") left = std::min(left, LeftIn(root, line.substr(second + 1)));
    if (controllers.find(",pids,") != std::string::npos) {
      left = std::min(left, LeftIn(root + "/pids", line.substr(second + 1)));
    }
  }
  return left;
}

uint64_t ThreadsOf(const std::string& process) {
  std::ifstream status(process + "/status");
  constexpr std::string_view kKey = "Threads:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(kKey)) return std::stoull(line.substr(kKey.size()));
  }
  return 0;  // it has ended
}

uint64_t ThreadsOfUser() {
  uint64_t threads = 0;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    struct stat about {};
    if (std::isdigit(static_cast<unsigned char>(path.back())) == 0 || stat(path.c_str(), &about) != 0)
      continue;
    if (about.st_uid == getuid()) threads += ThreadsOf(path);
  }
  return threads;
}

}  // namespace

uint64_t DescriptorsLimit() {
  rlimit limit{};
  const bool limited = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? limit.rlim_cur : UINT64_MAX;
}

uint64_t DescriptorsLeft() {
  const uint64_t limit = DescriptorsLimit();
  if (limit == UINT64_MAX) return limit;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;  // not even one to count them with
  uint64_t there = 0;
  while (const dirent* const entry = readdir(folder)) {
    if (std::isdigit(static_cast<unsigned char>(entry->d_name[0])) == 0) continue;
    const int descriptor = std::atoi(entry->d_name);
    // The limit is of their numbers: one that was inherited from beyond it takes no place.
    if (descriptor != dirfd(folder) && static_cast<uint64_t>(descriptor) < limit) ++there;
  }
  closedir(folder);
  return limit - std::min(limit, there);
}

uint64_t ThreadsLeft(const std::string& membership, const std::string& root) {
  uint64_t left = LeftInGroups(membership, root);
  rlimit limit{};
  const bool limited =
      getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!limited) return left;
  return std::min<uint64_t>(left, limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, ThreadsOfUser()));
}

uint64_t AddressSpaceLeft() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  const uint64_t pages =
      ReadNumber("/proc/self/statm").value_or(0);  // the first of its numbers: all that is mapped
  const uint64_t mapped = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, mapped);
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));  // where it is refused, the soft one holds
}

}  // namespace quarry
