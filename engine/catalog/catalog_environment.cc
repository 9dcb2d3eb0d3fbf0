#include "catalog_environment.h"

#include <rocksdb/system_clock.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "log_room.h"
#include "table_guard.h"

namespace quarry {
namespace {

// A global, because stores open their catalogs themselves: as a parameter it would pass through every room.
std::atomic<rocksdb::Env*> override_environment{nullptr};

class ImpatientClock final : public rocksdb::SystemClockWrapper {
 public:
  ImpatientClock() : SystemClockWrapper(SystemClock::Default()) {}
  const char* Name() const override { return "ImpatientClock"; }
  void SleepForMicroseconds(int micros) override {
    SystemClockWrapper::SleepForMicroseconds(std::min(micros, 100));
  }
};

// RocksDB also removes and renames files by the environment itself, which is to lead to `files` too.
class TestEnvironment final : public rocksdb::EnvWrapper {
 public:
  explicit TestEnvironment(const std::shared_ptr<rocksdb::FileSystem>& files)
      : EnvWrapper(rocksdb::NewCompositeEnv(files)) {
    file_system_ = files;
    system_clock_ = std::make_shared<ImpatientClock>();
  }
};

}  // namespace

CatalogEnvironmentOverride::CatalogEnvironmentOverride(std::shared_ptr<rocksdb::FileSystem> files)
    : environment_(std::make_unique<TestEnvironment>(WithTableGuard(std::move(files)))) {
  [[maybe_unused]] const rocksdb::Env* const before = override_environment.exchange(environment_.get());
  assert(before == nullptr);
}
CatalogEnvironmentOverride::~CatalogEnvironmentOverride() { override_environment = nullptr; }

rocksdb::Env* CatalogEnvironment() {
  // Never destroyed: RocksDB's threads may outlive the end of main.
  static rocksdb::Env* const own =
      rocksdb::NewCompositeEnv(WithTableGuard(FileSystemWithLogRoom())).release();
  rocksdb::Env* const other = override_environment;
  return other != nullptr ? other : own;
}

bool IsNewOptionsFile(const std::string& path) {
  return path.find("/OPTIONS-") != std::string::npos && path.ends_with(".dbtmp");
}

}  // namespace quarry
