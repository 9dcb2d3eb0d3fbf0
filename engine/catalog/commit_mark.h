// A mark that every commit leaves in RocksDB's log, and nowhere else: which commit it is, and up to which one
// all were synced when it was written. When recovery stops at a damaged record, what lies behind it tells
// damage from the torn tail of a crash: a mark there that knows a later commit to be synced. What stays out
// of reach is the last commit before a power failure, damaged before its promise (anchor.h) reached the disk:
// it cannot be told from one that was never finished.
//
//   offset   0  "QRYCOMMT"     8  id of the catalog     16  this commit     24  the last synced one     32
//   checksum
//
// Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quarry/base/status.h"

namespace quarry {

struct CommitMark {
  uint64_t catalog_id = 0;
  uint64_t commit = 0;
  uint64_t synced = 0;
};
std::string EncodeCommitMark(const CommitMark& mark);
// The mark of the commit whose batch is `bytes`: what was added to it last. Nothing when there is none.
std::optional<CommitMark> MarkAtEnd(std::string_view bytes);

// The last commit that any mark of this catalog in the logs of the folder knows to be synced; 0: none.
Result<uint64_t> SyncedByLogs(const std::string& catalog_path, uint64_t catalog_id);

}  // namespace quarry
