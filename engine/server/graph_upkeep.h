// GraphUpkeep: folds runs of edges into the files of their topologies, beside whoever reads them, once they slow sampling
// down beyond a bound: as measured where samples are drawn, else as predicted (storage/growth_cost.h).
//
//   Start -> waiting --[a tick: none is dear, or the turn is another's]--> waiting
//                    --[a tick: one is dear]--> folding [the maintainers' thread] --> waiting
//
// One topology at a time, in the turn of maintenance tasks, with memory of what is open for all sessions. What failed is
// told once, and tried again when edges have come or gone since. Start on any thread; ticks run on the I/O threads.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <string>

#include "server_core.h"

namespace quarry {

class GraphUpkeep {
 public:
  // The core outlives it. REQUIRES: slowdown_max > 1.
  GraphUpkeep(ServerCore& core, double slowdown_max);
  void Start() { Wait(); }
  // A fold that is under way ends soon, and leaves what can be gone on with. REQUIRES: afterwards the maintainers are
  // stopped, then the event loop, and then this goes.
  void Stop() { stopping_ = true; }

 private:
  void Wait();
  void Look();
  void Fold(const std::string& topology);

  ServerCore& core_;
  const double slowdown_max_;
  std::atomic<bool> stopping_ = false;
  Counter& folded_;
  Counter& folded_bytes_;
  Counter& failed_;
  boost::asio::steady_timer timer_;  // armed by Start, then by what it set off: one of them at a time
  // By topology, of whoever ticks or folds: as of which commit folding failed, and why.
  struct Failure {
    uint64_t timestamp = 0;
    std::string why;
  };
  std::map<std::string, Failure> failures_;
};

}  // namespace quarry
