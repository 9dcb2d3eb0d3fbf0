// UserShares: how much of a thing that a server has a limit of (memory, connections) each user may take.
//
// With one user, all of it. With several, half of it is kept for them in equal parts, and the other half goes
// to whoever comes first: so nobody can keep another user out, and a user who is there alone may have more
// than half.
//
// A value that belongs to its caller; not thread-safe.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace quarry {

class UserShares {
 public:
  // For what is not a user's, but taken of the whole as well.
  static constexpr uid_t kNobody = static_cast<uid_t>(-1);

  UserShares(uint64_t limit, const std::vector<uid_t>& users) : limit_(limit) {
    for (const uid_t user : users) used_[user] = 0;
    kept_ = used_.size() < 2 ? 0 : limit / 2 / used_.size();
  }

  // What the user may take now.
  uint64_t Left(uid_t user) const {
    uint64_t gone = total_;
    for (const auto& [other, used] : used_) {
      if (other != user && used < kept_) gone += kept_ - used;
    }
    return limit_ - std::min(limit_, gone);
  }
  // What is kept for the user and not taken: no other user can be in its way.
  uint64_t KeptLeft(uid_t user) const {
    const auto found = used_.find(user);
    return found == used_.end() ? 0 : kept_ - std::min(kept_, found->second);
  }
  uint64_t used(uid_t user) const {
    const auto found = used_.find(user);
    return found == used_.end() ? 0 : found->second;
  }
  uint64_t used() const { return total_; }
  uint64_t limit() const { return limit_; }
  bool several() const { return kept_ > 0; }

  void Take(uid_t user, uint64_t amount) {
    total_ += amount;
    if (const auto found = used_.find(user); found != used_.end()) found->second += amount;
  }
  // REQUIRES: it was taken.
  void Give(uid_t user, uint64_t amount) {
    total_ -= amount;
    if (const auto found = used_.find(user); found != used_.end()) found->second -= amount;
  }

 private:
  const uint64_t limit_;
  uint64_t kept_ = 0;  // for each
  uint64_t total_ = 0;
  std::map<uid_t, uint64_t> used_;
};

}  // namespace quarry
