// How far a compaction has come, beside the file that it writes: so that one that was interrupted goes on.
//
//   features/NAME-<gen>.qft        rows of the next generation, [0, rows) of them on disk for good
//   features/NAME-<gen>.progress   which, and as of when
//   topology/NAME-<gen>.qtp        likewise edges of a topology: whole sections, and so much of the next one
//   topology/NAME-<gen>.progress   which, and of which graph
//
// A record is written after its rows or edges are synced, to another name, and renamed: whichever record there is
// tells the truth. It means nothing once table or topology has another generation than the one before <gen>.
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
  uint64_t timestamp = 0;   // the rows are the newest up to it; the edges those of commits up to it
  uint64_t rows = 0;        // whole groups; of a topology, values in columns of edges
  // A topology's: its graph, and the sections before the one that the mark is in, with a digest of their checksums.
  uint64_t node_count = 0;
  uint64_t edge_count = 0;
  uint64_t finished = 0;
  uint64_t finished_digest = 0;
  DataFileWriter::Mark mark;
};

// Relative to the database.
struct CompactionFiles {
  CompactionFiles(const TableRecord& table);        // NOLINT: a table names them
  CompactionFiles(const TopologyRecord& topology);  // NOLINT
  uint64_t generation = 0;                          // the next
  std::string rows;                                 // the file that is written
  std::string progress;
};

// kNotFound when there is none; kCorruption when it, or the file beside it, does not hold: IsUseless. Others
// say that it could not be read.
Result<CompactionProgress> ReadCompactionProgress(IoBackend& backend, const std::string& database_path,
                                                  const std::array<std::byte, 16>& database_id,
                                                  const CompactionFiles& files);
inline bool IsUseless(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption;
}
Status WriteCompactionProgress(IoBackend& backend, const std::string& database_path,
                               const std::array<std::byte, 16>& database_id, const CompactionFiles& files,
                               const CompactionProgress& progress);

// True for files of a compaction, "features/..." or "topology/...", of which nothing can go on. REQUIRES: nobody names
// `file`.
bool IsDeadCompactionFile(IoBackend& backend, const std::string& database_path, const Manifest& manifest,
                          const CompactionFiles& files, const std::string& file);

}  // namespace quarry
