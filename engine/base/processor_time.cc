#include "quarry/base/processor_time.h"

#include <ctime>

namespace quarry {
namespace {

double SecondsOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

double ThreadProcessorSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }
double ProcessProcessorSeconds() { return SecondsOf(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace quarry
