// The first 4 KiB of every data file, and the footer at its end. Byte layouts: docs/format.md.
//
// A data file is: superblock | sections (each page-aligned) | footer. The superblock is written last, after
// the footer is known; the file counts only once the catalog names it (invariant 2). The footer is a Cap'n
// Proto message (metadata.capnp: Footer) listing the sections with offset, length and checksum.
//
// Encode and decode are pure functions over bytes. Decode errors are kCorruption and name `path`, the offset
// and the value; a wrong magic says what the file looks like instead.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"

namespace quarry {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr size_t kSuperblockBytes = 4096;

enum class FileKind : uint32_t {
  kFeatureTable = 1,
  kTopology = 2,
  kLayout = 3,
  kTrace = 4,
  kPageFile = 5,  // these two have slots and map pages instead of sections and a footer
  kPageMap = 6,
  kTraining = 7,
  kPartitioning = 8,
  kTopologyRun = 9,
};

struct Superblock {
  FileKind kind = FileKind::kFeatureTable;
  std::array<std::byte, 16> database_id{};  // random, made at import; equal in every file of a database
  uint64_t generation = 1;
  ElementType element_type = ElementType::kFloat32;  // features only
  uint64_t row_count = 0;                            // nodes; records, pages
  uint64_t dim = 0;                                  // elements per row; bytes per page; 0 for topology
  uint64_t edge_count = 0;                           // topology only
  uint64_t footer_offset = 0;
  uint64_t footer_bytes = 0;
  uint64_t footer_checksum = 0;  // Checksum64 of the footer's bytes
};

// "a NumPy .npy file", "a gzip file", "zeros (a file that was never finished)": what a file that starts with
// `bytes` looks like, for messages about files that are not Quarry's.
std::string_view DescribeForeignBytes(std::span<const std::byte> bytes);

std::array<std::byte, kSuperblockBytes> EncodeSuperblock(const Superblock& superblock);
Result<Superblock> DecodeSuperblock(std::span<const std::byte> bytes, std::string_view path);

// One section of a file. Sections are covered page by page (feature rows cell by cell) by an array of 32-bit
// checksums in the section that `checked_by` names; checksum arrays themselves by `checksum`, Checksum64 of
// their bytes.
struct Section {
  std::string name;  // "rows", "rows_checksums", "csc_indptr", "csc_indptr_checksums", "csc_indices", ...
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  std::string checked_by;  // empty for checksum arrays
};

struct Footer {
  std::vector<Section> sections;
  const Section* Find(std::string_view name) const;  // nullptr when absent; valid while the footer is
};

std::vector<std::byte> EncodeFooter(const Footer& footer);
Result<Footer> DecodeFooter(std::span<const std::byte> bytes, std::string_view path);

}  // namespace quarry
