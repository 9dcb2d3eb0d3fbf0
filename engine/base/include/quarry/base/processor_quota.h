// The processor time that a process may use under its cgroups. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace quarry {

// The smallest quota (cpu.max of cgroup v2) of the process's own group and the groups above it, in
// processors, rounded up and at least 1; nothing where there is no quota. `membership` lists the groups of
// the process, one "0::/path" a line, and `root` is where they are mounted: arguments for tests alone.
std::optional<unsigned> ProcessorQuota(const std::string& membership = "/proc/self/cgroup",
                                       const std::string& root = "/sys/fs/cgroup");

}  // namespace quarry
