// Whether a sanitizer watches the rooms that a test runs.
#pragma once

// Its runtime's, where one is linked. The test itself may be compiled without.
extern "C" {
void __asan_init() __attribute__((weak));
void __tsan_init() __attribute__((weak));
}

namespace quarry::testing_util {

// Figures of time and memory mean nothing then.
inline bool IsInstrumented() { return __asan_init != nullptr || __tsan_init != nullptr; }

}  // namespace quarry::testing_util
