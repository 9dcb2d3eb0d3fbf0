// PartedTable: an embedding table larger than memory whose rows lie in parts, some of which are held whole
// (Waleffe §5.2). Batches read and write rows of the held parts alone, so no row is ever waited for, and the
// disk sees large sequential pieces.
//
//   Hold   lets go of the parts that are not asked for, brings in the others, and begins in the background to
//          write back what left and to read what comes next
//
// In the table's file each part begins at a page of its own: row r of part i is record i * stride + r of a
// pooled table (pooled_table.h), so the same code verifies and reads it. Pages are written copy-on-write
// (page_file.h), so a crash at any point leaves the last checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/page_file.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/io/backend.h"

namespace quarry {

// Where the rows of parts lie in a table's file.
struct PartLayout {
  EmbeddingSpec rows;                 // as users see them: row_count is that of all parts
  std::vector<uint64_t> part_starts;  // part i has the rows [part_starts[i], part_starts[i + 1])
  uint64_t stride = 0;                // records from a part's first to the next part's
  uint64_t rows_per_page = 0;
  uint32_t page_bytes = 0;

  uint32_t parts() const { return static_cast<uint32_t>(part_starts.size() - 1); }
  uint32_t PartOf(RowId row) const;
  uint64_t part_rows(uint32_t part) const { return part_starts[part + 1] - part_starts[part]; }
  uint32_t pages_per_part() const { return static_cast<uint32_t>(stride / rows_per_page); }
  uint64_t part_bytes() const { return uint64_t{pages_per_part()} * page_bytes; }
  // The table that the file holds: parts are padded to the largest.
  EmbeddingSpec file_spec() const;
};

// The pages are of up to 1 MiB: what a device reads at full speed one by one. kInvalidArgument for an
// impossible table. REQUIRES: part_starts ascend from 0 to rows.row_count.
Result<PartLayout> LayOutParts(const EmbeddingSpec& rows, std::span<const uint64_t> part_starts);

struct PartedStats {
  uint64_t parts_read = 0, parts_written = 0;  // first touches of a part that nobody has written are reads
  uint64_t pages_read = 0, pages_written = 0;
  double wait_seconds = 0;  // in Hold, for reads and writes
};

// Read and Write: as EmbeddingTable's, for rows of held parts. While none of these calls and no Write is under
// way, Read takes rows of any part, best in ascending order: a page that is not held is read once for all
// rows of it that follow one another. Hold and Flush are one thread's, and nobody reads or writes meanwhile.
class PartedTable : public EmbeddingTable {
 public:
  // What a table with `frames` parts in memory holds, beside its page file.
  static uint64_t Bytes(const PartLayout& layout, uint32_t frames);
  // `frames`: parts that are in memory at most, those included that are being brought in. `file` has pages of
  // layout.file_spec(). kOutOfBudget. Backend, file and budget outlive the table.
  static Result<std::unique_ptr<PartedTable>> Make(IoBackend& backend, PageFile& file, MemoryBudget& budget,
                                                   PartLayout layout, uint32_t frames);

  // Holds `parts` (unique, at most as many as there are frames). `next`: what the next call will ask for, of
  // which as many are prefetched as there are frames for. kIoError, kCorruption; after an error of a write no
  // more is written.
  virtual Status Hold(std::span<const uint32_t> parts, std::span<const uint32_t> next) = 0;
  // Writes what is dirty. The pages are synced with the map (PageFile::WriteMap).
  virtual Status Flush() = 0;
  virtual PartedStats stats() const = 0;
  virtual const PartLayout& layout() const = 0;
};

}  // namespace quarry
