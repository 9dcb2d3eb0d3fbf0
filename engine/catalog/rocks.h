// What every file of this room needs of RocksDB: families, options, translated errors. Private to this room.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/file_system.h>
#include <rocksdb/options.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "catalog_listeners.h"
#include "quarry/base/status.h"
#include "replay_guard.h"

namespace quarry {

inline constexpr std::string_view kCatalogFolder = "/catalog";

// The order of an open catalog's handles; `default` is RocksDB's own and stays empty.
enum Family : size_t { kDefault, kSchema, kManifest, kDelta, kProperty, kFamilyCount };
inline constexpr std::string_view kFamilyNames[kFamilyCount] = {"default", "schema", "manifest", "delta",
                                                                "property"};

Status FromRocks(const rocksdb::Status& status, std::string_view what, const std::string& path);

inline rocksdb::Slice ToSlice(std::string_view text) { return {text.data(), text.size()}; }
inline rocksdb::Slice ToSlice(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads that verify the checksums of blocks.
inline rocksdb::ReadOptions VerifiedRead() {
  rocksdb::ReadOptions options;
  options.verify_checksums = true;
  return options;
}

// The file system that catalogs are on: RocksDB's own, unless a test has another in its place.
std::shared_ptr<rocksdb::FileSystem> CatalogFileSystem();

// An open RocksDB with the families in the order of Family, and what it had to say. A resource: moved, and
// closed at the end of its life.
struct OpenDatabase {
  OpenDatabase() = default;
  OpenDatabase(OpenDatabase&&) = default;
  OpenDatabase& operator=(OpenDatabase&& other) noexcept {
    static_cast<void>(Close().ok());
    db = std::move(other.db);
    handles = std::move(other.handles);
    logger = std::move(other.logger);
    errors = std::move(other.errors);
    replay = std::move(other.replay);
    return *this;
  }
  ~OpenDatabase() { static_cast<void>(Close().ok()); }

  std::unique_ptr<rocksdb::DB> db;
  std::vector<rocksdb::ColumnFamilyHandle*> handles;  // owned through db
  std::shared_ptr<OpenLogger> logger;
  std::shared_ptr<ErrorListener> errors;
  std::shared_ptr<ReplayGuard> replay;

  rocksdb::ColumnFamilyHandle* operator[](Family family) const { return handles[family]; }
  // The family's entries, whose status has what RocksDB's own iterator forgets (table_guard.h): used by the thread
  // that made it.
  std::unique_ptr<rocksdb::Iterator> Entries(const rocksdb::ReadOptions& options, Family family) const;
  // Closes it without a flush. Nothing when it is closed.
  rocksdb::Status Close();
};

// Nothing when there is no such key. `what`: "read a name".
Result<std::optional<std::string>> ReadValue(const OpenDatabase& open, const rocksdb::ReadOptions& options,
                                             Family family, std::string_view key, std::string_view what,
                                             const std::string& path);

// kTablesUnread: a reader of what the MANIFEST says, whatever became of the tables that it names.
enum class OpenAs { kReader, kTablesUnread, kWriter, kNew, kRepaired };
Result<OpenDatabase> OpenRocks(const std::string& path, OpenAs as);
// RocksDB's repair of the catalog in the folder `path`, in place; `disk_failed` when it could not read.
Status RepairRocks(const std::string& path, bool& disk_failed);

// kCorruption for an entry of the folder that is no regular file: RocksDB would read a device for ever, and
// wait for a pipe.
Status CheckFiles(const std::string& path);
// kCorruption with what the file is, when it is there and no regular one.
Status CheckRegular(const std::string& path);

}  // namespace quarry
