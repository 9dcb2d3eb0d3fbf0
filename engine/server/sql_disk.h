// SqlDisk: what the temporary files of SQL may take of the disk: all of them together, those of a user
// (user_shares.h), and those of a connection, which has a quarter at most, since four statements run at a
// time.
//
// Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "user_shares.h"

namespace quarry {

class SqlDisk {
 public:
  SqlDisk(uint64_t bytes, const std::vector<uid_t>& users) : shares_(bytes, users) {}

  // What one connection has; it gives back what it has not when it dies.
  class Part {
   public:
    Part(SqlDisk& disk, uid_t user) : disk_(disk), user_(user) {}
    ~Part() { static_cast<void>(Change(-static_cast<int64_t>(used_))); }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    // Files grow or shrink by this many bytes. kNoSpace when they may not grow.
    Status Change(int64_t bytes) {
      MutexLock lock(disk_.mutex_);
      const auto amount = static_cast<uint64_t>(bytes < 0 ? -bytes : bytes);
      if (bytes < 0) {
        disk_.shares_.Give(user_, amount);
        used_ -= amount;
        return Status::Ok();
      }
      const uint64_t most = disk_.shares_.limit() / 4;
      if (used_ + amount > most || amount > disk_.shares_.Left(user_)) {
        return MakeStatus(
            Code::kNoSpace,
            "the statement's temporary files have {}, and {} more are not to be had: a connection "
            "may have {}, all clients together {} (quarry serve --sql-temp), of which {} are left",
            FormatBytes(used_), FormatBytes(amount), FormatBytes(most), FormatBytes(disk_.shares_.limit()),
            FormatBytes(disk_.shares_.Left(user_)));
      }
      disk_.shares_.Take(user_, amount);
      used_ += amount;
      return Status::Ok();
    }

   private:
    SqlDisk& disk_;
    const uid_t user_;
    uint64_t used_ = 0;
  };

 private:
  Mutex mutex_;
  UserShares shares_ QUARRY_GUARDED_BY(mutex_);
};

}  // namespace quarry
