// SqlMemory: what the SQL engine may hold for all SQL connections of a server together. It is part of what
// sessions share, and taken only while there is a connection: a server that nobody asks for SQL has all of it
// for its sessions. SQLite has one limit for the process: one client may take from the others what they would
// have sorted with, but none takes anything from the trainers.
//
//   nothing -> a grant, of which the engine is told [Take, by the first] -> nothing [the last share dies]
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include "admission.h"
#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/server/sql_runner.h"

namespace quarry {

class SqlMemory {
 public:
  // `budget_bytes`: of the server, in all. `runner`: null where there is no SQL. `granted` and `admission`
  // are of what sessions share, and outlive this object and its shares.
  SqlMemory(uint64_t budget_bytes, MemoryBudget& granted, Admission& admission,
            std::shared_ptr<SqlRunner> runner);

  // A connection holds one as long as it lives.
  using Share = std::shared_ptr<const MemoryBudget>;
  // kOutOfBudget says the least that has to be free.
  Result<Share> Take();

 private:
  const uint64_t bytes_;
  MemoryBudget& granted_;
  Admission& admission_;
  const std::shared_ptr<SqlRunner> runner_;
  Mutex mutex_;
  std::weak_ptr<const MemoryBudget> taken_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
