// Session::Sql: SQL, on threads of its own: a statement may take long, and cannot be done in pieces.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "session_bulk.h"

namespace quarry {

class Session::Sql final : Part {
 public:
  explicit Sql(Session& session) : Part(session) {}
  void On(uint64_t id, const wire::OpenSql& request);
  void On(uint64_t id, const wire::CloseSql& request);
  void On(uint64_t id, const wire::Query& request);
  void On(uint64_t id, const wire::Fetch& request);
  void On(uint64_t id, const wire::CloseQuery& request);
  void End();

 private:
  struct Hold;
  template <typename T>
  void WorkSql(uint64_t id, const std::shared_ptr<Hold>& hold, std::function<Result<T>()> work,
               std::function<void(Result<T>)> then);
  Result<std::shared_ptr<Hold>> FindSql(uint64_t connection) const;
  // On workers, one at a time for each hold.
  Result<wire::Statement> DoQuery(Hold& hold, uint64_t id, const wire::Query& request);
  Result<wire::Response> DoFetch(Hold& hold, const wire::Fetch& request);
  void Close(std::function<void()> close);

  uint64_t made_ = 0;     // connections and cursors
  uint64_t at_work_ = 0;  // statements, and closings behind them, that the workers have not come back with
  std::map<uint64_t, std::shared_ptr<Hold>> connections_;
  std::map<uint64_t, std::shared_ptr<Hold>> cursors_;  // the connection of each
};

}  // namespace quarry
