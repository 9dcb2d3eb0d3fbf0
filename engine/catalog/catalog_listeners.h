// What RocksDB has to say, and who listens. Private to this room.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/listener.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace quarry {

// RocksDB keeps a LOG file otherwise, and writes it in read-only databases too.
class SilentLogger final : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char* /*format*/, va_list /*arguments*/) override {}
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

// RocksDB would write again on its own what a full disk has refused, and be seconds in closing for it.
class NoRetries final : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason /*reason*/, rocksdb::Status /*error*/,
                            bool* retries) override {
    *retries = false;
  }
};

}  // namespace quarry
