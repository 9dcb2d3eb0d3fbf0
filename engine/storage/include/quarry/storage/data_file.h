// DataFile and DataFileWriter: what feature tables and topologies have in common on disk.
//
//   superblock | section | its checksums | section | its checksums | ... | footer      (docs/format.md)
//
// Every part starts at a page; the rest of a part's last page is zero. A section is covered page by page (or,
// where its writer says so, cell by cell) by 32-bit checksums in the section "<name>_checksums" behind it,
// and that one as a whole by a 64-bit checksum in the footer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/checksum.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/superblock.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry {

inline constexpr std::string_view kChecksumsSuffix = "_checksums";

// An open file whose superblock and footer verify: each section lies inside the file, page-aligned, without
// gap or overlap, and has its checksums. A resource, moved but not copied; const use is thread-safe.
struct DataFile {
  File file;  // for direct reads
  uint32_t block_bytes = kPageBytes;
  uint64_t file_bytes = 0;
  Superblock superblock;
  Footer footer;

  // The section, which must have `bytes` bytes; kCorruption when it is absent or has another size.
  Result<Section> Find(std::string_view name, uint64_t bytes) const;
};

// What the catalog says about a file; the file must agree.
struct DataFileExpectation {
  FileKind kind = FileKind::kFeatureTable;
  std::span<const std::byte, 16> database_id;
  uint64_t generation = 1;
  uint64_t file_bytes = 0;
};

// kCorruption when the file is missing or truncated, is no Quarry file or another database's, or its metadata
// do not verify.
Result<DataFile> OpenDataFile(IoBackend& backend, const std::string& path,
                              const DataFileExpectation& expected);

// Reads the checksums that cover `section`, verified.
Result<std::vector<uint32_t>> LoadChecksums(IoBackend& backend, const DataFile& data, const Section& section);

// Reads the bytes of a section that is covered page by page, verified against its `checksums`, into `out`.
// REQUIRES: out.size() == section.bytes
Status LoadPages(IoBackend& backend, const DataFile& data, const Section& section,
                 std::span<const uint32_t> checksums, std::span<std::byte> out);

// The fault of a cell whose bytes do not match the stored checksum, and what to do about it; `what` names its
// contents ("rows 12 to 15").
Status ChecksumFault(const DataFile& data, uint64_t offset, std::string_view what, uint64_t stored,
                     uint64_t computed);

// Writes one data file front to back with large direct writes. Used by one thread. On any error, or when the
// writer is dropped unfinished, the caller removes the file.
//
//   Create -> { BeginSection -> Append* -> EndSection }* -> Finish
class DataFileWriter {
 public:
  enum class Cover {
    kPages,  // the writer computes a checksum per page
    kCells,  // the caller hands over one per cell, with AddChecksum, in order
  };

  // How much of the open section is on disk for good; those before it are, too.
  struct Mark {
    uint64_t section_bytes = 0;
    uint64_t checksum_count = 0;
    uint64_t checksums_digest = 0;  // digest of those checksums, as Sync computes it
  };

  // kAlreadyExists when there is such a file. Holds buffer_bytes (a multiple of the page), 256 KiB for
  // checksums, and 4 bytes per page of a section of unknown size while that section is open.
  static Result<std::unique_ptr<DataFileWriter>> Create(IoBackend& backend, const std::string& path,
                                                        uint64_t buffer_bytes = 4 << 20);
  // Opens an unfinished file to continue a section, behind those that SkipWritten passes over: BeginSection, then Continue.
  static Result<std::unique_ptr<DataFileWriter>> Reopen(IoBackend& backend, const std::string& path,
                                                        uint64_t buffer_bytes = 4 << 20);
  DataFileWriter(const DataFileWriter&) = delete;
  DataFileWriter& operator=(const DataFileWriter&) = delete;

  // A section whose size is known beforehand (section_bytes) has its checksums streamed; 0 = unknown.
  void BeginSection(std::string_view name, Cover cover, uint64_t section_bytes = 0);
  Status Append(std::span<const std::byte> bytes);
  Status AppendZeros(uint64_t bytes);
  Status AddChecksum(uint32_t checksum);
  // Counts `bytes` (whole pages) that the caller writes itself, to file() at position(), into the open
  // section: for sections that are not written front to back. Their checksums come through AddChecksum.
  // REQUIRES: a section of Cover::kCells whose size was given.
  void SkipWritten(uint64_t bytes);
  Status EndSection();

  // Writes what was appended to the open section, and syncs the file. REQUIRES: its size was
  // given, and what was appended are whole pages.
  Result<Mark> Sync();
  // Restores the section that has just begun to what it was at the mark, and reads its checksums. kCorruption
  // when they are not those of the mark.
  Status Continue(const Mark& mark);

  const File& file() const { return file_; }
  // Where the next byte goes. REQUIRES: a section has just begun, or nothing was appended since SkipWritten.
  uint64_t position() const { return position_; }

  // Writes footer and superblock (whose footer fields it fills in) and syncs the file and its folder. Returns
  // the file's bytes.
  Result<uint64_t> Finish(Superblock superblock);

 private:
  static Result<std::unique_ptr<DataFileWriter>> Open(IoBackend& backend, const std::string& path,
                                                      OpenMode mode, uint64_t buffer_bytes);
  DataFileWriter(IoBackend& backend, File file, IoBuffer buffer, IoBuffer checksums);
  Status FlushBuffer();
  Status WritePages(std::span<const std::byte> pages);
  Status FlushChecksums(uint64_t checksums_offset);
  // Both require a section whose size was given.
  uint64_t checksums_offset() const;
  uint64_t ChecksumsDigest() const;

  IoBackend& backend_;
  File file_;
  Footer footer_;
  uint64_t position_ = kSuperblockBytes;  // where buffer_ goes; a multiple of the page
  IoBuffer buffer_;
  size_t buffered_bytes_ = 0;

  // The open section:
  Section section_;
  Cover cover_ = Cover::kPages;
  uint64_t planned_bytes_ = 0;
  IoBuffer checksums_;
  size_t checksum_count_ = 0;  // in checksums_
  uint64_t checksums_flushed_bytes_ = 0;
  Checksum64Stream checksums_digest_;
};

}  // namespace quarry
