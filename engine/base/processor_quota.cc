#include "quarry/base/processor_quota.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace quarry {
namespace {

// "200000 100000": microseconds of every period; "max 100000", and a missing file, for no quota.
std::optional<unsigned> ReadQuota(const std::string& path) {
  std::ifstream file(path);
  uint64_t quota = 0, period = 0;
  if (!(file >> quota >> period) || period == 0) return std::nullopt;
  const uint64_t processors = quota / period + (quota % period != 0 ? 1 : 0);
  return static_cast<unsigned>(std::clamp<uint64_t>(processors, 1, UINT32_MAX));
}

}  // namespace

std::optional<unsigned> ProcessorQuota(const std::string& membership, const std::string& root) {
  std::ifstream groups(membership);
  std::optional<unsigned> least;
  for (std::string line; std::getline(groups, line);) {
    constexpr std::string_view kVersion2 = "0::";
    if (!line.starts_with(kVersion2)) continue;
    std::string group = line.substr(kVersion2.size());
    if (group == "/") group.clear();
    while (true) {
      const std::optional<unsigned> quota = ReadQuota(root + group + "/cpu.max");
      if (quota) least = std::min(least.value_or(*quota), *quota);
      const size_t slash = group.find_last_of('/');
      if (slash == std::string::npos) break;
      group.resize(slash);
    }
  }
  return least;
}

}  // namespace quarry
