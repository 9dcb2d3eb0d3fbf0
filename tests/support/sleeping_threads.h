// The event that a test of waiting waits for: nothing in this process moves any more. After it, what needs no disk, peer
// or timer will not happen until the test itself does something, however slow the machine is.
#pragma once

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace quarry::testing_util {

// How often each thread but the calling one has left a processor; nothing when one of them runs, could run, or waits
// for a disk.
inline std::optional<std::map<std::string, uint64_t>> SwitchesOfSleepingThreads() {
  constexpr std::string_view kSwitches = "ctxt_switches:";
  const std::string own = std::to_string(gettid());
  std::map<std::string, uint64_t> switches;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", error)) {
    const std::string thread = entry.path().filename();
    if (thread == own) continue;
    std::ifstream file(entry.path() / "status");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("State:") && line.find("S (sleeping)") == std::string::npos) return std::nullopt;
      const size_t at = line.find(kSwitches);
      if (at == std::string::npos) continue;
      uint64_t count = 0;
      const size_t digits = line.find_first_of("0123456789", at);
      if (digits != std::string::npos) std::from_chars(&line[digits], line.data() + line.size(), count);
      switches[thread] += count;
    }
  }
  return switches;
}

// Until all other threads of this process sleep: three looks, a millisecond apart, find the same threads asleep, none of
// which has run in between. (Many more looks would never do under ThreadSanitizer, whose own thread wakes ten times a
// second.) Requests that a kernel works on for a sleeping thread (a socket's other end, a disk), and
// timers, may still wake one: what must have happened is waited for with Eventually.
inline void WaitUntilAllSleep() {
  std::optional<std::map<std::string, uint64_t>> before;
  for (int looks = 0; looks < 2;) {
    auto now = SwitchesOfSleepingThreads();
    looks = now && now == before ? looks + 1 : 0;
    before = std::move(now);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace quarry::testing_util
