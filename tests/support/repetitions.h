// How often tests repeat what they repeat for more certainty: seeds, schedules, combinations of options.
//
// QUARRY_TEST_SEEDS=n   so many of each, for a long look
// QUARRY_TEST_ONE_IN=n  every nth of them: under sanitizers, where each takes three to fifteen times as long
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace quarry::testing_util {

inline uint64_t OneIn() {
  const char* const text = std::getenv("QUARRY_TEST_ONE_IN");
  return text == nullptr ? 1 : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10));
}

// How many, where `normally` so many are enough.
inline uint64_t Repetitions(uint64_t normally) {
  const char* const text = std::getenv("QUARRY_TEST_SEEDS");
  if (text != nullptr) return std::strtoull(text, nullptr, 10);
  return std::max<uint64_t>(1, normally / OneIn());
}

// Which combinations of options are tried: every nth, beginning with `first` (modulo n).
class SomeOf {
 public:
  explicit SomeOf(uint64_t first = 0) : count_(OneIn() - first % OneIn()) {}
  bool TakesNext() { return count_++ % one_in_ == 0; }

 private:
  const uint64_t one_in_ = OneIn();
  uint64_t count_;
};

}  // namespace quarry::testing_util
