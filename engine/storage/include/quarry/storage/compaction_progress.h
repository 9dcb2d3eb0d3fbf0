// How far a compaction has come, beside the file that it writes: so that one that was interrupted goes on.
//
//
//   features/NAME-<gen>.qft        rows of the next generation, [0, rows) of them on disk for good
//   features/NAME-<gen>.progress   which, and as of when
//
// A record is written after its rows are synced, to another name, and renamed: whichever record there is
// tells the truth. It means nothing once the table has another generation than the one before <gen>.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "quarry/base/status.h"
#include "quarry/format/manifest.h"
#include "quarry/io/backend.h"
#include "quarry/storage/data_file.h"

namespace quarry {

struct CompactionProgress {
  uint64_t generation = 0;  // generation of the file that is written
  uint64_t timestamp = 0;   // the rows are the newest up to it
  uint64_t rows = 0;        // whole groups
  DataFileWriter::Mark mark;
};

// Relative to the database.
struct CompactionFiles {
  explicit CompactionFiles(const TableRecord& table);
  std::string rows;
  std::string progress;
};

// kNotFound when there is none; kCorruption when it, or the file beside it, does not hold: IsUseless. Others
// say that it could not be read.
Result<CompactionProgress> ReadCompactionProgress(IoBackend& backend, const std::string& database_path,
                                                  const std::array<std::byte, 16>& database_id,
                                                  const TableRecord& table);
inline bool IsUseless(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption;
}
Status WriteCompactionProgress(IoBackend& backend, const std::string& database_path,
                               const std::array<std::byte, 16>& database_id, const TableRecord& table,
                               const CompactionProgress& progress);

// True for files of a compaction of the table, "features/...", of which nothing can go on.
bool IsDeadCompactionFile(IoBackend& backend, const std::string& database_path, const Manifest& manifest,
                          const TableRecord& table, const std::string& file);

}  // namespace quarry
