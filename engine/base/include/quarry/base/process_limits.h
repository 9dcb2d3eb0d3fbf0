// How many descriptors, threads and bytes of address space the system lets this process have. All functions
// are thread-safe; another process of the same user or cgroup may meanwhile take what they report as left.
#pragma once

#include <cstdint>
#include <string>

namespace quarry {

// The soft RLIMIT_NOFILE. UINT64_MAX: no limit.
uint64_t DescriptorsLimit();
// Descriptors that may still be opened: that limit less those that are open.
uint64_t DescriptorsLeft();

// Threads that may still be started under RLIMIT_NPROC, which counts all threads of the user and does not
// apply to root, and under pids.max of the process's cgroups (v1 and v2). UINT64_MAX: no limit. `membership`
// lists the groups of the process, and `root` is where they are mounted: arguments for tests alone.
uint64_t ThreadsLeft(const std::string& membership = "/proc/self/cgroup",
                     const std::string& root = "/sys/fs/cgroup");

// Bytes that may still be mapped: the soft RLIMIT_AS less what is mapped now. UINT64_MAX: no limit.
uint64_t AddressSpaceLeft();

// Raises the soft RLIMIT_NOFILE to the hard one. For a program's main: a library leaves its host's limits
// alone.
void RaiseDescriptorLimit();

}  // namespace quarry
