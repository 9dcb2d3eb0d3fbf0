// The environment of RocksDB, and what tests put in its place. Private to this room.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>

namespace quarry {

// RocksDB's own with room in logs (log_room.h) and a guard before tables (table_guard.h); a test may have another
// file system behind that guard.
rocksdb::Env* CatalogEnvironment();

// Catalogs that are opened while it lives have `files` for their file system; and they do not sleep, which
// RocksDB does for a second after each flush that failed. One at a time in a process.
class CatalogEnvironmentOverride {
 public:
  explicit CatalogEnvironmentOverride(std::shared_ptr<rocksdb::FileSystem> files);
  ~CatalogEnvironmentOverride();
  CatalogEnvironmentOverride(const CatalogEnvironmentOverride&) = delete;
  CatalogEnvironmentOverride& operator=(const CatalogEnvironmentOverride&) = delete;

 private:
  const std::unique_ptr<rocksdb::Env> environment_;
};

// RocksDB writes its options down at every open, which takes half of the time, and can do without.
bool IsNewOptionsFile(const std::string& path);

}  // namespace quarry
