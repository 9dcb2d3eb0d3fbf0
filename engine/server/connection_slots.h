// ConnectionSlots: who may be connected. When all places are taken, or those of a user (user_shares.h), a
// client that has opened no session, and waits for nothing, makes room for one that comes: the one that has
// done so the longest, and one of the same user first.
//
// Owned by its caller, which asks the sessions; not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "quarry/base/status.h"
#include "user_shares.h"

namespace quarry {

class ConnectionSlots {
 public:
  using Clock = std::chrono::steady_clock;
  // Since when a connection holds nothing; nothing when it does.
  using SpareSince = std::function<std::optional<Clock::time_point>(uint64_t connection)>;

  ConnectionSlots(uint32_t connections_max, const std::vector<uid_t>& users)
      : shares_(connections_max, users) {}

  // Gives a new connection a place; the one that has to be closed for it, if any, has none any more. kBusy.
  Result<std::optional<uint64_t>> Take(uint64_t connection, uid_t user, const SpareSince& spare_since) {
    std::optional<uint64_t> closed;
    if (shares_.Left(user) == 0) {
      closed = FindSpare(user, true, spare_since);
      if (!closed && shares_.used() == shares_.limit()) closed = FindSpare(user, false, spare_since);
      if (closed) Give(*closed);
    }
    if (shares_.Left(user) == 0) {
      return MakeStatus(Code::kBusy, "{} clients are connected, {} of user {}{}: try again later",
                        shares_.used(), shares_.used(user), user,
                        shares_.used() < shares_.limit() ? ", and the other places are kept for other users"
                                                         : ", and no more are allowed");
    }
    shares_.Take(user, 1);
    users_[connection] = user;
    return closed;
  }
  // Nothing for a connection that has no place.
  void Give(uint64_t connection) {
    const auto found = users_.find(connection);
    if (found == users_.end()) return;
    shares_.Give(found->second, 1);
    users_.erase(found);
  }

 private:
  std::optional<uint64_t> FindSpare(uid_t user, bool own, const SpareSince& spare_since) const {
    std::optional<uint64_t> longest;
    Clock::time_point since;
    for (const auto& [connection, of] : users_) {
      if ((of == user) != own) continue;
      const auto spare = spare_since(connection);
      if (!spare || (longest && *spare >= since)) continue;
      longest = connection;
      since = *spare;
    }
    return longest;
  }

  UserShares shares_;
  std::map<uint64_t, uid_t> users_;  // by connection, for those that have a place
};

}  // namespace quarry
