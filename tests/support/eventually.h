// Waiting for what other threads or processes bring about.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace quarry::testing_util {

// True once `holds` is, within so many seconds: where nothing else is said, nearly those of ctest.
inline bool Eventually(const std::function<bool()>& holds, double seconds = 100) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace quarry::testing_util
