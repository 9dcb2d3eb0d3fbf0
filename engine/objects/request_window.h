// RequestWindow: how many requests to have in flight, and how long to wait for one. Private to this room; a value,
// used by one thread, told the time by its caller.
//
// A store answers after a delay that does not shrink, so throughput is requests in flight × bytes ÷ delay until the
// bandwidth is used up. The window begins at 32 and doubles as long as a window's worth of answers brings in a quarter
// more bytes a second than the best before, or brings in no less than requests in flight ÷ delay says. Then it is what
// bandwidth × delay asks for, half as much again for answers that differ in delay, and looks again every 16 windows.
//
// The deadline is TCP's (RFC 6298) over seconds per MiB begun: four times (smoothed mean + 4 deviations), since a
// request that is replaced too early costs its bytes twice; doubled for every attempt.
#pragma once

#include <cstdint>

namespace quarry {

class RequestWindow {
 public:
  struct Limits {
    unsigned requests_max = 64;
    double first_seconds = 10;  // the deadline before any answer came
    double deadline_min_seconds = 2;
    double deadline_max_seconds = 60;
  };
  explicit RequestWindow(const Limits& limits);

  unsigned size() const { return size_; }
  // An answer came whole. `first_byte` and `seconds` since its request was sent; `filled`: the window was full then.
  void Answered(double now, double first_byte, double seconds, uint64_t bytes, bool filled);
  // The store asked for fewer requests.
  void SlowDown();
  double DeadlineSeconds(uint64_t bytes, unsigned attempt) const;
  double bytes_per_second() const { return best_; }  // the best so far

 private:
  void EndRound(double now);

  const Limits limits_;
  unsigned size_;
  // The round: so many answers as the window has places.
  double round_start_ = -1;
  uint64_t round_bytes_ = 0;
  unsigned round_answers_ = 0;
  double round_delay_ = 0;  // the least time to the first byte
  double best_ = 0;         // bytes per second of a round
  unsigned flat_rounds_ = 0;
  unsigned settled_rounds_ = 0;                 // since the window found its size; 0: it has not
  double cost_mean_ = -1, cost_deviation_ = 0;  // seconds per MiB begun; -1: no answer yet
};

}  // namespace quarry
