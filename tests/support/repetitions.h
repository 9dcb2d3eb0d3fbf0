// How often tests repeat what they repeat for more certainty: seeds, schedules, combinations of options.
//
// QUARRY_TEST_SEEDS=n            so many of each, for a long look
// QUARRY_TEST_ONE_IN=n           every nth of them: under sanitizers, where each takes three to fifteen times as long
// QUARRY_TEST_ALL_REPETITIONS=1  also of what there is much of (a thousand schedules of a device), all: in `.ci/run`
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace quarry::testing_util {

// `quickly`: of what there is much of, every so-manyth, unless all are asked for.
inline uint64_t OneIn(uint64_t quickly = 1) {
  const char* const text = std::getenv("QUARRY_TEST_ONE_IN");
  const uint64_t share = std::getenv("QUARRY_TEST_ALL_REPETITIONS") == nullptr ? quickly : 1;
  return share * (text == nullptr ? 1 : std::max<uint64_t>(1, std::strtoull(text, nullptr, 10)));
}

// How many, where `normally` so many are enough.
inline uint64_t Repetitions(uint64_t normally, uint64_t quickly = 1) {
  const char* const text = std::getenv("QUARRY_TEST_SEEDS");
  if (text != nullptr) return std::strtoull(text, nullptr, 10);
  return std::max<uint64_t>(1, normally / OneIn(quickly));
}

// Which combinations of options are tried: every nth, beginning with `first` (modulo n).
class SomeOf {
 public:
  explicit SomeOf(uint64_t first = 0, uint64_t quickly = 1)
      : one_in_(OneIn(quickly)), count_(one_in_ - first % one_in_) {}
  bool TakesNext() { return count_++ % one_in_ == 0; }

 private:
  const uint64_t one_in_;
  uint64_t count_;
};

}  // namespace quarry::testing_util
