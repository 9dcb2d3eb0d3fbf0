#include "quarry/base/process.h"

#include <sched.h>
#include <unistd.h>
#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "quarry/base/processor_quota.h"

namespace quarry {
namespace {

// The value in bytes of a "VmHWM:   123 kB" line of /proc/self/status.
uint64_t StatusBytes(const char* key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind(key, 0) == 0) return std::stoull(line.substr(std::strlen(key))) * 1024;
  }
  return 0;
}

uint64_t ReadLimit(const std::string& path) {
  std::ifstream file(path);
  uint64_t limit = 0;
  return file >> limit ? limit : UINT64_MAX;  // "max" and a missing file both mean no limit
}

// The least limit on the way from the process's own group up to the root of its hierarchy.
uint64_t LeastLimitUpwards(const std::string& root, std::string group, const char* file) {
  uint64_t least = UINT64_MAX;
  while (true) {
    least = std::min(least, ReadLimit(root + group + "/" + file));
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

uint64_t CgroupLimitBytes() {
  uint64_t least = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {  // "4:memory:/path" (v1) or "0::/path" (v2)
    std::istringstream fields(line);
    std::string id, controllers, path;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (path == "/") path.clear();
    if (controllers.find("memory") != std::string::npos) {
      least = std::min(least, LeastLimitUpwards("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"));
    } else if (controllers.empty()) {
      least = std::min(least, LeastLimitUpwards("/sys/fs/cgroup", path, "memory.max"));
    }
  }
  return least;
}

}  // namespace

uint64_t PeakRssBytes() { return StatusBytes("VmHWM:"); }

uint64_t CurrentRssBytes() { return StatusBytes("VmRSS:"); }

uint64_t MemoryLimitBytes() {
  const uint64_t physical =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(physical, CgroupLimitBytes());
}

unsigned ProcessorCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const auto processors = static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
  return std::min(processors, ProcessorQuota().value_or(processors));
}

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string UtcNow() {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

}  // namespace quarry
