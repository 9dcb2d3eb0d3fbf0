// Pulse: tells a caller who waits long for one answer whether the server is still alive. Private to this
// library.
//
// A server answers a ping at once, whatever else it works on; one that is stopped, or hangs, does not. One
// thread.
#pragma once

#include <optional>

#include "connection.h"

namespace quarry::client {

class Pulse {
 public:
  // `patience_seconds`: how long a ping may stay without an answer. The connection outlives this.
  Pulse(Connection& connection, double patience_seconds)
      : connection_(connection), patience_seconds_(patience_seconds) {}

  // To be called now and then. False: the server has not answered in time.
  bool Beats();

 private:
  static constexpr double kPauseSeconds = 1;  // between an answer and the next ping

  Connection& connection_;
  const double patience_seconds_;
  Deadline due_ = DeadlineIn(kPauseSeconds);  // when the next ping is to be sent
  std::optional<Deadline> end_;               // when the ping under way must be answered
  Connection::Ticket ping_;                   // null: none is under way
};

}  // namespace quarry::client
