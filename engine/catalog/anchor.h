// Anchor: what a catalog has promised, outside of RocksDB: the file DB/ANCHOR.
//
//   offset  512 bytes, twice
//        0  "QRYANCHR"
//        8  version (1)
//       16  number of the write, from 1
//       24  id of the catalog
//       32  commits that are synced, and the newest timestamp of them
//       48  entries, and the sum of their hashes, after these commits (ledger.h)
//       64  digest of the manifest
//       72  1 while the catalog is closed, else 0
//       80  digest of CURRENT and of the MANIFEST that it names, while it is closed
//      504  checksum of the bytes before
//
// All numbers are little-endian. Both copies are written in place by one write after every synced commit, and
// that write is not synced itself: what it promises is on disk by then, so it may reach the disk whenever it
// likes, and costs a microsecond. A sector is written whole or not at all, so each copy is whole, and the one
// of the larger number counts. A power failure may leave an older promise, which is true as well. What closes
// and opens a catalog for writing is synced, and so is the promise of a manifest.
//
// Private to this room. One thread at a time.
#pragma once

#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ledger.h"
#include "quarry/base/status.h"

namespace quarry {

inline constexpr std::string_view kAnchorFile = "/ANCHOR";

struct AnchorRecord {
  uint64_t writes = 0;
  uint64_t catalog_id = 0;
  uint64_t commits = 0;
  uint64_t timestamp = 0;
  uint64_t entries = 0;
  uint64_t hashes = 0;
  uint64_t manifest_digest = 0;
  bool closed = false;
  uint64_t files_digest = 0;
};

// What to do about a catalog that does not hold what was promised.
inline constexpr std::string_view kRemedy = "restore a checkpoint, or run `quarry repair`";

// Nothing when the file is missing; kCorruption when neither copy holds.
Result<std::optional<AnchorRecord>> ReadAnchor(const std::string& database_path);
// Makes the file, or replaces it, synced with its folder.
Status CreateAnchor(const std::string& database_path, const AnchorRecord& record);

// The file of a catalog that is open for writing.
class Anchor {
 public:
  static Result<Anchor> Open(const std::string& database_path, const AnchorRecord& record);
  const AnchorRecord& record() const { return record_; }
  // Replaces the record; its number is set here.
  Status Write(const AnchorRecord& record, bool sync);

 private:
  std::string path_;
  std::unique_ptr<rocksdb::FSRandomRWFile> file_;
  AnchorRecord record_;
};

// Over CURRENT and the MANIFEST that it names, in the folder of a catalog that is closed.
Result<uint64_t> DigestOfFiles(const std::string& catalog_path);

}  // namespace quarry
