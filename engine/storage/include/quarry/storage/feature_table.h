// FeatureTable: the reader of one .qft file, and its writer.
//
// Reader: opens the file for direct reads, loads and verifies the checksum array (4 bytes a cell, kept
// resident: it is what lets every read be verified), and answers where rows lie. It issues no bulk I/O
// itself: extractors do, with their own rings, and hand the bytes to VerifyCell. All const members are
// thread-safe.
//
// Writer: appends rows in order through one large buffer with direct writes, then writes checksums, footer
// and superblock, and syncs. The file means nothing until the catalog names it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/manifest.h"
#include "quarry/format/superblock.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/storage/data_file.h"

namespace quarry {

class FileScanner;

class FeatureTable {
 public:
  // kCorruption when superblock, footer or checksum section do not verify or contradict `record`.
  static Result<std::unique_ptr<FeatureTable>> Open(IoBackend& backend, const std::string& database_path,
                                                    const TableRecord& record,
                                                    std::span<const std::byte, 16> database_id);
  const FeatureGeometry& geometry() const { return geometry_; }
  const File& file() const { return data_.file; }
  uint32_t block_bytes() const { return data_.block_bytes; }  // the device's logical block: align reads to it
  uint64_t resident_bytes() const { return checksums_.size() * sizeof(uint32_t); }

  // The cell of the row: the bytes that a reader of the row fetches.
  ByteRange CellRange(uint64_t row) const {
    return {geometry_.CellOffset(geometry_.CellOfRow(row)), geometry_.cell_bytes()};
  }
  // Verifies one cell that was read. kCorruption names file, page and rows.
  Status VerifyCell(uint64_t cell, std::span<const std::byte> bytes) const;
  // The row, as encoded, in its cell, which is verified. Errors as VerifyCell's.
  Result<std::span<const std::byte>> RowIn(uint64_t row, std::span<const std::byte> cell) const;

  // Reads rows [first, first + count) into `out` (encoded, row_bytes apart), verified, by large sequential
  // direct reads through an internal buffer of about `buffer_bytes` (more when four groups of rows are
  // larger). For loading small tables whole and for scans. REQUIRES: first + count <= row_count, out.size()
  // == count * row_bytes. Rows behind those of the file come as zeros: an overlay has them.
  Status ReadRows(IoBackend& backend, uint64_t first, uint64_t count, std::span<std::byte> out,
                  uint64_t buffer_bytes = 4 << 20) const;

 private:
  FeatureTable() = default;
  FeatureGeometry geometry_;
  DataFile data_;
  std::vector<uint32_t> checksums_;
};

// Reads rows of a table one after another, verified, ahead of the caller who takes them. Used by one thread;
// the table and the backend outlive it.
class RowScanner {
 public:
  // Makes a scanner of rows [first, end), with a buffer as ReadRows has.
  static Result<RowScanner> Make(IoBackend& backend, const FeatureTable& table, uint64_t first, uint64_t end,
                                 uint64_t buffer_bytes = 4 << 20);
  RowScanner(RowScanner&&) noexcept;
  RowScanner& operator=(RowScanner&&) noexcept;
  ~RowScanner();

  // Reads the next out.size() / row_bytes rows, encoded, row_bytes apart, as ReadRows does. After an error the scanner is of no
  // more use. REQUIRES: that many rows are left.
  Status Read(std::span<std::byte> out);

 private:
  RowScanner(const FeatureTable& table, uint64_t first);

  const FeatureTable* table_;
  std::unique_ptr<FileScanner> scanner_;
  uint64_t row_;
  std::span<const std::byte> piece_;  // bytes of the file from piece_offset_ on
  uint64_t piece_offset_ = 0;
  uint64_t verified_end_ = 0;  // end of the cells verified so far: a page's rows come one after another
};

// "row 7" or "rows 12 to 15": the rows that cell `cell` of such a table covers, for messages.
std::string RowsOfCell(const FeatureGeometry& geometry, uint64_t cell);

class FeatureTableWriter {
 public:
  // `path` must not exist. Rows have the geometry's type, and exactly geometry.row_count of them must be
  // appended.
  static Result<std::unique_ptr<FeatureTableWriter>> Create(IoBackend& backend, const std::string& path,
                                                            const FeatureGeometry& geometry,
                                                            std::span<const std::byte, 16> database_id,
                                                            uint64_t generation);
  // Continues an unfinished file: `rows` rows had been appended when Sync returned `mark`. kCorruption when
  // the file is not what it was then.
  static Result<std::unique_ptr<FeatureTableWriter>> Resume(IoBackend& backend, const std::string& path,
                                                            const FeatureGeometry& geometry,
                                                            std::span<const std::byte, 16> database_id,
                                                            uint64_t generation, uint64_t rows,
                                                            const DataFileWriter::Mark& mark);
  virtual ~FeatureTableWriter() = default;  // the caller removes an unfinished file
  // Appends whole rows, row_bytes apart. kInvalidArgument for more than geometry.row_count in all.
  virtual Status Append(std::span<const std::byte> rows) = 0;
  // Makes the rows so far outlive a crash. REQUIRES: whole groups of rows were appended.
  virtual Result<DataFileWriter::Mark> Sync() = 0;
  // Writes the rest, syncs; returns the file's bytes. kInvalidArgument when rows are missing.
  virtual Result<uint64_t> Finish() = 0;
};

}  // namespace quarry
