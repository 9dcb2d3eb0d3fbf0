// StoreLock: the exclusive claim of one process on a database (flock on DB/LOCK). Private to this room.
#pragma once

#include <string>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"

namespace quarry {

class StoreLock {
 public:
  // kBusy, naming the holder, when another Store has it. A database in a read-only folder can be locked too;
  // its LOCK then names no holder.
  static Result<StoreLock> Acquire(const std::string& database_path);

 private:
  explicit StoreLock(File file) : file_(std::move(file)) {}
  File file_;  // closing it gives the lock back, as the death of the process does
};

}  // namespace quarry
