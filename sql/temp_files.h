// TempFiles: SQLite's temporary files of one connection, which sorts and joins beyond its caches go to, with
// an account of what they take. Private to this room.
//
// A layer over SQLite's own VFS: files grow as that does it, once the account allows it. The layer belongs
// to one connection, is used by the thread that has it, and outlives the connection.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "quarry/base/status.h"

namespace quarry::sql {

class TempFiles {
 public:
  // Asked before files grow by this many bytes; told, by a negative number, when they shrink.
  using Account = std::function<Status(int64_t bytes)>;

  // kInternal when SQLite has no VFS of its own.
  static Result<std::unique_ptr<TempFiles>> Make(Account account);
  ~TempFiles();
  TempFiles(const TempFiles&) = delete;
  TempFiles& operator=(const TempFiles&) = delete;

  const char* vfs_name() const { return name_.c_str(); }
  // Why a write was refused since the last call; OK when none was.
  Status TakeFault();

 private:
  struct Vfs;
  TempFiles(Account account, sqlite3_vfs& below);

  const Account account_;
  const std::string name_;
  sqlite3_vfs vfs_;
  Status fault_;
};

}  // namespace quarry::sql
