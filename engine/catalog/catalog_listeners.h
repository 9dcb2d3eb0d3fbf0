// What RocksDB has to say, and who listens. Private to this room.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/listener.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "quarry/base/mutex.h"
#include "table_guard.h"

namespace quarry {

// Hears what RocksDB leaves out when it opens a database: recovery stops at a damaged record of the log and
// says so here alone. RocksDB's own logger would write a file LOG, in databases that are only read too.
class OpenLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::array<char, 512> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    const char* const said = std::strstr(line.data(), "dropping ");
    if (said == nullptr) return;
    MutexLock lock(mutex_);
    if (dropped_.empty()) dropped_ = said;
  }
  // "dropping 4711 bytes; Corruption: checksum mismatch"; empty: nothing was left out.
  std::string dropped() const {
    MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  mutable Mutex mutex_;
  std::string dropped_ QUARRY_GUARDED_BY(mutex_);
};

// RocksDB's repair goes on without what it cannot read, and says so here alone.
class RepairLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    std::array<char, 1024> line{};
    std::vsnprintf(line.data(), line.size(), format, arguments);
    if (std::strstr(line.data(), "IO error") != nullptr) disk_failed_ = true;
  }
  bool disk_failed() const { return disk_failed_; }

 private:
  std::atomic<bool> disk_failed_{false};
};

// Hears which operation of the disk failed: after a failed sync of the log or the MANIFEST nobody knows what
// is on disk, while whatever else fails can be tried again. Also keeps RocksDB from trying on its own: it
// would write again what a full disk has refused, and be seconds in closing for it.
class ErrorListener final : public rocksdb::EventListener {
 public:
  // Both are called in the thread that compacts (table_guard.h); not the second one where the database is being closed.
  void OnCompactionBegin(rocksdb::DB* db, const rocksdb::CompactionJobInfo& /*job*/) override {
    SetCompactedByThread(db->GetName());
  }
  void OnCompactionCompleted(rocksdb::DB* /*db*/, const rocksdb::CompactionJobInfo& /*job*/) override {
    SetCompactedByThread("");
  }
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* retries) override {
    *retries = false;
  }
  bool ShouldBeNotifiedOnFileIO() override { return true; }
  void OnIOError(const rocksdb::IOErrorInfo& info) override {
    const bool sync = info.operation == rocksdb::FileOperationType::kSync ||
                      info.operation == rocksdb::FileOperationType::kFsync ||
                      info.operation == rocksdb::FileOperationType::kRangeSync;
    // A table whose sync failed is written again from the log.
    if (sync && !std::string_view(info.file_path).ends_with(".sst")) sync_failed_ = true;
  }
  bool sync_failed() const { return sync_failed_; }

 private:
  std::atomic<bool> sync_failed_{false};
};

}  // namespace quarry
