// Catalog: the transactional metadata of a database, in RocksDB under DB/catalog.
//
// Column families: `schema`, `manifest`, `delta`, `property`. The manifest is one record, replaced atomically
// and synced: a data file exists for readers once a committed manifest names it (invariant 2). `property`
// maps names to ids and back. RocksDB stays inside this room; its errors come back as Status.
//
// A catalog proves itself when it is opened: every commit counts and hashes all entries (a ledger, in
// `schema`), and DB/ANCHOR, outside of RocksDB, says which commits are synced. So a log or MANIFEST that lost
// its end, which RocksDB takes for a crash, is kCorruption here, with a message that says what is missing.
//
// A write that fails makes the catalog open itself anew before the next one: a full disk or a lack of
// descriptors stops writes for as long as it lasts, and readers never. Only after a failed sync of its log or
// MANIFEST, when nobody knows what is on disk, all writes are refused until the process opens it again.
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
  uint64_t timestamp = 0;  // the commit's, from 1 on
  std::span<const std::byte> value;
  bool deleted() const { return value.empty(); }
};

// Rows of a table that may be older than what was committed. An empty table stands for names and for what
// compactions folded.
struct Doubt {
  std::string table;
  uint64_t first_row = 0;
  uint64_t row_count = 0;
};

// What Catalog::Salvage could make of a catalog that does not open.
struct SalvagedCatalog {
  std::vector<std::string> lost_tables;  // RocksDB's files of which nothing could be read
  std::vector<Doubt> doubts;             // empty: every commit is proven to be there
  uint64_t timestamp = 0;                // the newest commit in it
};

class Catalog {
 public:
  // Creates DB/catalog and DB/ANCHOR; kAlreadyExists when there is one.
  static Result<std::unique_ptr<Catalog>> Create(const std::string& database_path);
  // Opens it; read_only leaves no trace on disk. kNotFound when there is none, kCorruption when RocksDB says
  // so or commits are missing. `anchored` is false for a database from before there were anchors, which
  // proves nothing until it is opened for writing: that makes its ledger and its anchor. REQUIRES, for
  // writing: it was opened read-only before, under the same LOCK, since RocksDB removes files that a damaged
  // MANIFEST does not name.
  static Result<std::unique_ptr<Catalog>> Open(const std::string& database_path, bool read_only,
                                               bool anchored = true);
  // For a catalog that does not open: makes a new one in the folder `to_path` (which has none), with an
  // anchor of its own, from whatever RocksDB can still read of the old files, which stay as they are. Rows
  // that cannot be proven to be the newest are kept as doubts. kCorruption when what was read holds no
  // manifest.
  static Result<SalvagedCatalog> Salvage(const std::string& database_path, const std::string& to_path);
  virtual ~Catalog() = default;

  virtual Result<Manifest> ReadManifest() = 0;
  // Replaces the manifest, synced. With `folded`, the same write remembers which rows a generation of a table
  // has changed since the generation before: sets of rows, as the caller encodes them, by the timestamp since
  // which they changed.
  struct FoldedRows {
    struct Change {
      uint64_t since = 0;  // rows with versions newer than this
      std::vector<std::byte> rows;
    };
    std::string_view table;
    uint64_t generation = 0;
    std::vector<Change> changed;
    bool alone = false;  // nobody asks for what earlier generations have remembered: it goes
  };
  // With `published`, the versions staged under this timestamp are published in the same write (PublishStaged).
  virtual Status CommitManifest(const Manifest& manifest, const FoldedRows* folded = nullptr,
                                std::optional<uint64_t> published = {}) = 0;
  // As CommitManifest, for a manifest that no longer has the table; the versions of its rows go in the same
  // write.
  virtual Status CommitDrop(const Manifest& manifest, std::string_view table) = 0;
  // The folded set with the newest `since` that is not newer than `timestamp`: all rows that the generation
  // changed after it, and perhaps more.
  virtual Result<std::optional<std::string>> ReadFolded(std::string_view table, uint64_t generation,
                                                        uint64_t timestamp) = 0;

  // Stores names[i] <-> first_id + i, both ways, each once. Not synced: CommitManifest is the barrier.
  virtual Status PutNames(NameKind kind, uint64_t first_id, std::span<const std::string> names) = 0;
  // Forgets the names of ids from `first_id` on. Not synced: names that a crash brings back can be dropped again.
  virtual Status DropNames(NameKind kind, uint64_t first_id) = 0;
  virtual Result<std::optional<uint64_t>> IdOfName(NameKind kind, std::string_view name) = 0;
  virtual Result<std::optional<std::string>> NameOfId(NameKind kind, uint64_t id) = 0;

  // Stores versions, all or none, and remembers the largest timestamp of them. The later of two versions of a
  // row and timestamp counts; no timestamp comes in two calls. With `sync`, these and all earlier writes
  // survive a power failure.
  virtual Status PutVersions(std::span<const RowVersion> versions, bool sync) = 0;
  // The largest timestamp ever committed; 0 = none.
  virtual Result<uint64_t> LastTimestamp() = 0;

  // A commit in pieces: versions of one timestamp that is larger than any other, which LastTimestamp stays
  // below until they are published. One such commit at a time; others may come meanwhile. Not synced.
  // Versions of rows that this commit has staged before replace those: `again` says whether versions[i] may
  // be one.
  virtual Status StageVersions(std::span<const RowVersion> versions,
                               const std::function<bool(size_t)>& again) = 0;
  virtual Result<std::optional<uint64_t>> StagedTimestamp() = 0;  // nothing when no versions are staged
  virtual Status PublishStaged(uint64_t timestamp) = 0;           // synced, and they with it
  virtual Status DropStaged() = 0;  // whoever left them; synced. Nothing when there are none

  // Calls visit(i, version) with the newest version of rows[i] that is not newer than `timestamp`, for each
  // row that has one. `rows` ascend. A version is valid during the call.
  virtual Status ReadVersions(std::string_view table, std::span<const uint64_t> rows, uint64_t timestamp,
                              const std::function<Status(size_t, const RowVersion&)>& visit) = 0;
  // Calls visit with every version of the table, by row, the newest of a row first.
  virtual Status ScanVersions(std::string_view table,
                              const std::function<Status(const RowVersion&)>& visit) = 0;

  // Forgets the versions of the table up to `timestamp`. Not synced: versions that a crash brings back can be
  // dropped again.
  virtual Status DropVersions(std::string_view table, uint64_t timestamp) = 0;
  // Forgets all versions of the table at once. REQUIRES: nobody stores one meanwhile.
  virtual Status DropAllVersions(std::string_view table) = 0;

  // Reads every block of the catalog's tables; kCorruption for one that does not hold.
  virtual Status VerifyChecksums() = 0;
  // Counts and hashes all entries anew, and returns what differs from the ledger, together with what an
  // earlier Salvage could not prove. Nothing for a catalog without a ledger.
  virtual Result<std::vector<Doubt>> FindDoubts() = 0;
  // Takes what is there as complete: the caller accepts that rows may be old. Synced.
  virtual Status AcceptDoubts() = 0;
  // Checks that ids run from 0 without gaps and that each one's name leads back to it; returns how many there
  // are.
  virtual Result<uint64_t> VerifyNames(NameKind kind) = 0;

  // Makes `to_path`/catalog and its anchor, which must not exist: a catalog of everything that was written up
  // to some instant of the call, and of nothing later. Tables, which nobody changes, are hard links where the
  // file system can. What is in the folder has yet to be synced. A catalog that is open for reading only is
  // copied with its files as they are: REQUIRES that nobody opens it for writing meanwhile.
  virtual Status CopyTo(const std::string& to_path) = 0;

  // After a write that failed: opens itself anew, so that it is known what of the write is there and the next
  // one can go on. Returns the error that stands in the way, while there is one; does nothing when no write
  // failed. Writes do it themselves; a caller that keeps in memory what was committed calls it first and
  // reads that again.
  virtual Status Recover() = 0;

  // Flushes and closes cleanly; the destructor does so too, without reporting errors.
  virtual Status Close() = 0;
};

}  // namespace quarry
