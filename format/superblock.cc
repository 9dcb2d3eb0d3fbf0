#include "quarry/format/superblock.h"

#include <algorithm>
#include <cstring>

#include "quarry/format/checksum.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/little_endian.h"

namespace quarry {
namespace {

// Starts with a byte that no text has and ends with a line end, as PNG's does: a transfer that "fixes" either
// shows.
constexpr std::array<char, 8> kSuperblockMagic = {'\x89', 'Q', 'U', 'A', 'R', 'R', 'Y', '\n'};

// Offsets of the fields; docs/format.md has the table. What is between dim and checksum is zero.
constexpr size_t kSuperblockMagicAt = 0;
constexpr size_t kVersionAt = 8;
constexpr size_t kKindAt = 12;
constexpr size_t kDatabaseIdAt = 16;
constexpr size_t kGenerationAt = 32;
constexpr size_t kRowCountAt = 40;
constexpr size_t kDimAt = 48;
constexpr size_t kEdgeCountAt = 56;
constexpr size_t kFooterOffsetAt = 64;
constexpr size_t kFooterBytesAt = 72;
constexpr size_t kFooterChecksumAt = 80;
constexpr size_t kPageBytesAt = 88;
constexpr size_t kElementTypeAt = 92;
constexpr size_t kChecksumAt = kSuperblockBytes - 8;
static_assert(kElementTypeAt < kChecksumAt && kSuperblockBytes == kPageBytes);

bool StartsWith(std::span<const std::byte> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() && std::memcmp(bytes.data(), prefix.data(), prefix.size()) == 0;
}

}  // namespace

std::string_view DescribeForeignBytes(std::span<const std::byte> bytes) {
  using std::string_view_literals::operator""sv;
  struct Known {
    std::string_view prefix;
    std::string_view description;
  };
  static constexpr Known kKnown[] = {
      {"\x89QUARRY\n"sv, "a Quarry data file"},
      {"\x93NUMPY"sv, "a NumPy .npy file"},
      {"PK\x03\x04"sv, "a zip archive (.npz or .zip)"},
      {"\x1f\x8b"sv, "a gzip file"},
      {"\xfd"
       "7zXZ"sv,
       "an xz file"},
      {"\x28\xb5\x2f\xfd"sv, "a zstd file"},
      {"SQLite format 3"sv, "an SQLite database"},
      {"\x89HDF\r\n"sv, "an HDF5 file"},
      {"PAR1"sv, "a Parquet file"},
      {"ARROW1"sv, "an Arrow file"},
      {"\x7f"
       "ELF"sv,
       "an ELF binary"},
  };
  for (const Known& known : kKnown) {
    if (StartsWith(bytes, known.prefix)) return known.description;
  }
  if (bytes.empty()) return "an empty file";
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  if (std::all_of(bytes.begin(), bytes.end(), is_zero)) return "zeros (a file that was never finished)";
  const auto is_text = [](std::byte b) {
    const auto c = std::to_integer<unsigned char>(b);
    return c == '\n' || c == '\r' || c == '\t' || (c >= 0x20 && c < 0x7f);
  };
  if (std::all_of(bytes.begin(), bytes.end(), is_text)) return "a text file";
  return "something that Quarry does not know";
}

std::array<std::byte, kSuperblockBytes> EncodeSuperblock(const Superblock& superblock) {
  std::array<std::byte, kSuperblockBytes> bytes{};
  std::memcpy(&bytes[kSuperblockMagicAt], kSuperblockMagic.data(), kSuperblockMagic.size());
  StoreLittle<uint32_t>(&bytes[kVersionAt], kFormatVersion);
  StoreLittle<uint32_t>(&bytes[kKindAt], static_cast<uint32_t>(superblock.kind));
  std::copy(superblock.database_id.begin(), superblock.database_id.end(), bytes.begin() + kDatabaseIdAt);
  StoreLittle<uint64_t>(&bytes[kGenerationAt], superblock.generation);
  StoreLittle<uint64_t>(&bytes[kRowCountAt], superblock.row_count);
  StoreLittle<uint64_t>(&bytes[kDimAt], superblock.dim);
  StoreLittle<uint64_t>(&bytes[kEdgeCountAt], superblock.edge_count);
  StoreLittle<uint64_t>(&bytes[kFooterOffsetAt], superblock.footer_offset);
  StoreLittle<uint64_t>(&bytes[kFooterBytesAt], superblock.footer_bytes);
  StoreLittle<uint64_t>(&bytes[kFooterChecksumAt], superblock.footer_checksum);
  StoreLittle<uint32_t>(&bytes[kPageBytesAt], kPageBytes);
  bytes[kElementTypeAt] = static_cast<std::byte>(superblock.element_type);
  StoreLittle<uint64_t>(&bytes[kChecksumAt], Checksum64(std::span(bytes).first<kChecksumAt>()));
  return bytes;
}

Result<Superblock> DecodeSuperblock(std::span<const std::byte> bytes, std::string_view path) {
  if (!StartsWith(bytes, {kSuperblockMagic.data(), kSuperblockMagic.size()})) {
    return MakeStatus(Code::kCorruption, "{}: page 0: not a Quarry data file; it looks like {}", path,
                      DescribeForeignBytes(bytes));
  }
  if (bytes.size() < kSuperblockBytes) {
    return MakeStatus(Code::kCorruption,
                      "{}: only {} bytes, less than the {} of a superblock: the file is truncated", path,
                      bytes.size(), kSuperblockBytes);
  }
  const uint64_t stored = LoadLittle<uint64_t>(&bytes[kChecksumAt]);
  const uint64_t computed = Checksum64(bytes.first(kChecksumAt));
  if (stored != computed) {
    return MakeStatus(Code::kCorruption,
                      "{}: page 0: superblock checksum is {:#018x}, its bytes give {:#018x}", path, stored,
                      computed);
  }
  const uint32_t version = LoadLittle<uint32_t>(&bytes[kVersionAt]);
  if (version != kFormatVersion) {
    return MakeStatus(Code::kUnsupported, "{}: format version {}; this Quarry reads version {}: use {}", path,
                      version, kFormatVersion,
                      version > kFormatVersion ? "a newer one" : "the one that wrote it");
  }
  const uint32_t kind = LoadLittle<uint32_t>(&bytes[kKindAt]);
  if (kind < static_cast<uint32_t>(FileKind::kFeatureTable) ||
      kind > static_cast<uint32_t>(FileKind::kTopologyRun)) {
    return MakeStatus(Code::kUnsupported, "{}: offset {}: file kind {} is unknown to this Quarry", path,
                      kKindAt, kind);
  }
  const uint32_t page_bytes = LoadLittle<uint32_t>(&bytes[kPageBytesAt]);
  if (page_bytes != kPageBytes) {
    return MakeStatus(Code::kUnsupported, "{}: offset {}: page size {}; this Quarry reads {}", path,
                      kPageBytesAt, page_bytes, kPageBytes);
  }
  const uint8_t element_type = std::to_integer<uint8_t>(bytes[kElementTypeAt]);
  if (!IsElementType(element_type)) {
    return MakeStatus(Code::kUnsupported, "{}: offset {}: element type {} is unknown to this Quarry", path,
                      kElementTypeAt, element_type);
  }
  Superblock superblock;
  superblock.kind = static_cast<FileKind>(kind);
  std::copy_n(bytes.begin() + kDatabaseIdAt, superblock.database_id.size(), superblock.database_id.begin());
  superblock.generation = LoadLittle<uint64_t>(&bytes[kGenerationAt]);
  superblock.element_type = static_cast<ElementType>(element_type);
  superblock.row_count = LoadLittle<uint64_t>(&bytes[kRowCountAt]);
  superblock.dim = LoadLittle<uint64_t>(&bytes[kDimAt]);
  superblock.edge_count = LoadLittle<uint64_t>(&bytes[kEdgeCountAt]);
  superblock.footer_offset = LoadLittle<uint64_t>(&bytes[kFooterOffsetAt]);
  superblock.footer_bytes = LoadLittle<uint64_t>(&bytes[kFooterBytesAt]);
  superblock.footer_checksum = LoadLittle<uint64_t>(&bytes[kFooterChecksumAt]);
  return superblock;
}

const Section* Footer::Find(std::string_view name) const {
  for (const Section& section : sections) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

}  // namespace quarry
