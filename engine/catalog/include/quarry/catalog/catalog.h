// Catalog: the transactional metadata of a database, in RocksDB under DB/catalog.
//
// Column families: `schema`, `manifest`, `delta`, `property`. The manifest is one record, replaced atomically
// and synced: a data file exists for readers once a committed manifest names it (invariant 2). `property`
// maps names to ids and back. RocksDB stays inside this room; its errors come back as Status.
//
// Thread-safe. Owned by the store that opened it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"

namespace quarry {

enum class NameKind : uint8_t { kEntity, kRelation };

// A version of a row of a table: the row as the table encodes it, or (empty) its deletion.
struct RowVersion {
  std::string_view table;
  uint64_t row = 0;
  uint64_t timestamp = 0;  // of the commit; from 1 on
  std::span<const std::byte> value;
  bool deleted() const { return value.empty(); }
};

class Catalog {
 public:
  // Creates DB/catalog; kAlreadyExists when there is one.
  static Result<std::unique_ptr<Catalog>> Create(const std::string& database_path);
  // Opens it; read_only leaves no trace on disk. kNotFound when there is none, kCorruption when RocksDB says
  // so.
  static Result<std::unique_ptr<Catalog>> Open(const std::string& database_path, bool read_only);
  // For a catalog that does not open: makes one in the folder `to_path` (which has none) of all that RocksDB
  // can still read of its files, which stay as they are. Returns the names of those tables of which nothing
  // could be read; newer log records may be lost besides. kCorruption when there is no manifest in what was
  // read.
  static Result<std::vector<std::string>> Salvage(const std::string& database_path,
                                                  const std::string& to_path);
  virtual ~Catalog() = default;

  virtual Result<Manifest> ReadManifest() = 0;
  // Synced. With `folded`, it is remembered in the same write what a generation of a table has changed since
  // the generation before: sets of rows, as the caller encodes them, by the timestamp since which.
  struct FoldedRows {
    struct Change {
      uint64_t since = 0;  // rows with versions newer than this
      std::vector<std::byte> rows;
    };
    std::string_view table;
    uint64_t generation = 0;
    std::vector<Change> changed;
  };
  virtual Status CommitManifest(const Manifest& manifest, const FoldedRows* folded = nullptr) = 0;
  // CommitManifest of one that no longer has the table; what is known of its rows goes in the same write.
  virtual Status CommitDrop(const Manifest& manifest, std::string_view table) = 0;
  // Of these, the set for the newest `since` that is not newer than `timestamp`: all rows that the generation
  // changed after it, and perhaps more.
  virtual Result<std::optional<std::string>> ReadFolded(std::string_view table, uint64_t generation,
                                                        uint64_t timestamp) = 0;

  // Stores names[i] <-> first_id + i, both ways. Not synced: CommitManifest is the barrier.
  virtual Status PutNames(NameKind kind, uint64_t first_id, std::span<const std::string> names) = 0;
  virtual Result<std::optional<uint64_t>> IdOfName(NameKind kind, std::string_view name) = 0;
  virtual Result<std::optional<std::string>> NameOfId(NameKind kind, uint64_t id) = 0;

  // Stores versions, all or none, and remembers the largest timestamp of them. Synced when asked: then they,
  // and whatever was written before, survive a power failure.
  virtual Status PutVersions(std::span<const RowVersion> versions, bool sync) = 0;
  // The largest timestamp ever committed; 0 = none.
  virtual Result<uint64_t> LastTimestamp() = 0;

  // A commit in pieces: versions of one timestamp that is larger than any other, which LastTimestamp stays
  // below until they are published. One such commit at a time; others may come meanwhile.
  virtual Status StageVersions(std::span<const RowVersion> versions) = 0;  // not synced
  virtual Result<std::optional<uint64_t>> StagedTimestamp() = 0;           // when there are any
  virtual Status PublishStaged(uint64_t timestamp) = 0;                    // synced, and they with it
  virtual Status DropStaged() = 0;  // whoever left them; synced. Nothing when there are none

  // Calls visit(i, version) with the newest version of rows[i] that is not newer than `timestamp`, for each
  // row that has one. `rows` ascending. A version is valid during the call.
  virtual Status ReadVersions(std::string_view table, std::span<const uint64_t> rows, uint64_t timestamp,
                              const std::function<Status(size_t, const RowVersion&)>& visit) = 0;
  // Calls visit with every version of the table, by row, the newest of a row first.
  virtual Status ScanVersions(std::string_view table,
                              const std::function<Status(const RowVersion&)>& visit) = 0;

  // Forgets the versions of the table up to `timestamp`. Not synced: what is left of them after a crash can
  // be dropped again.
  virtual Status DropVersions(std::string_view table, uint64_t timestamp) = 0;
  // All of them, at once. REQUIRES: nobody stores one of the table meanwhile.
  virtual Status DropAllVersions(std::string_view table) = 0;

  // Reads every block of the catalog's tables; kCorruption for one that does not hold.
  virtual Status VerifyChecksums() = 0;
  // Checks that ids run from 0 without gaps and that each one's name leads back to it; returns how many there
  // are.
  virtual Result<uint64_t> VerifyNames(NameKind kind) = 0;

  // Makes `to_path`/catalog, which must not exist: a catalog of everything that was written up to some
  // instant of the call, and of nothing later. Tables, which nobody changes, are hard links where the file
  // system can. What is in the folder has yet to be synced. Of a catalog that is open for reading only, its
  // files as they are: REQUIRES that nobody opens it for writing meanwhile.
  virtual Status CopyTo(const std::string& to_path) = 0;

  // Flushes and closes cleanly; the destructor does it too, without telling errors.
  virtual Status Close() = 0;
};

}  // namespace quarry
