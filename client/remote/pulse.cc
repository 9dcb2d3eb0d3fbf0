#include "pulse.h"

#include <utility>

namespace quarry::client {

// The patience counts from the first attempt to send the ping: a server that takes no more requests gives no
// answer either, and one that lives soon makes room.
bool Pulse::Beats() {
  if (!HasPassed(due_)) return true;
  if (!end_) end_ = DeadlineIn(patience_seconds_);
  if (ping_ == nullptr) {
    Result<Connection::Ticket> sent = connection_.TrySend(wire::Ping{}, *end_);
    if (sent.ok()) ping_ = std::move(sent).value();
  } else if (connection_.Wait(ping_, Clock::now()).ok()) {
    ping_.reset();
    end_.reset();
    due_ = DeadlineIn(kPauseSeconds);
    return true;
  }
  return !HasPassed(*end_);
}

}  // namespace quarry::client
