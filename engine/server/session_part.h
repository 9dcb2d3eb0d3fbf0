// Session::Part: what the parts of a session have in common: they answer, and have work done, through the session.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "session.h"

namespace quarry {

class Session::Part {
 public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

 protected:
  explicit Part(Session& session) : session_(session), core_(session.core_) {}
  ~Part() = default;

  void Reply(uint64_t id, const Result<wire::Response>& result, std::vector<File> files = {}) {
    session_.Reply(id, result, std::move(files));
  }
  template <typename T>
  void Work(Workers& workers, uint64_t id, std::function<Result<T>(const Task&)> work,
            std::function<void(Result<T>)> then) {
    session_.Work<T>(workers, id, std::move(work), std::move(then));
  }
  template <typename T>
  std::function<void(Result<T>)> OnStrand(std::function<void(const Result<T>&)> handler) {
    return session_.OnStrand<T>(std::move(handler));
  }

  // Null when it has been answered meanwhile.
  Pending* Find(uint64_t id) const {
    const auto found = session_.pending_.find(id);
    return found == session_.pending_.end() ? nullptr : &found->second;
  }
  // What makes an answer come soon when the client cancels the request.
  void OnCancel(uint64_t id, std::function<void()> cancel) const {
    if (Pending* const pending = Find(id)) pending->cancel = std::move(cancel);
  }
  bool is_open() const { return session_.state_ == State::kOpen; }
  SessionId session_id() const { return session_.id_; }
  uid_t user() const { return session_.peer_.uid; }
  SessionMemory& budget() const { return *session_.budget_; }
  Bulk& bulk() const { return *session_.bulk_; }

  Session& session_;
  ServerCore& core_;
};

}  // namespace quarry
