#include "quarry/storage/data_file.h"

#include <algorithm>

#include "quarry/base/units.h"
#include "quarry/storage/scanner.h"

namespace quarry {
namespace {

constexpr uint64_t kFooterBytesMax = uint64_t{1} << 20;

Result<Superblock> ReadSuperblock(IoBackend& backend, const File& file, uint64_t file_bytes) {
  QUARRY_TRY(IoBuffer page, IoBuffer::Allocate(kSuperblockBytes));
  if (file_bytes >= kSuperblockBytes) {
    QUARRY_RETURN_IF_ERROR(backend.ReadAt(file, 0, page.span()));
    return DecodeSuperblock(page.span(), file.path());
  }
  // Too short for a direct read. It is wrong in any case; its first bytes tell how.
  QUARRY_TRY(const File buffered, backend.Open(file.path(), OpenMode::kReadBuffered));
  const std::span<std::byte> bytes = page.span().first(file_bytes);
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(buffered, 0, bytes));
  return DecodeSuperblock(bytes, file.path());
}

Status CheckSuperblock(const DataFile& data, const DataFileExpectation& expected) {
  const Superblock& superblock = data.superblock;
  const std::string& path = data.file.path();
  if (superblock.kind != expected.kind) {
    return MakeStatus(Code::kCorruption, "{}: page 0: file kind {} where the catalog says {}", path,
                      static_cast<uint32_t>(superblock.kind), static_cast<uint32_t>(expected.kind));
  }
  if (!std::equal(superblock.database_id.begin(), superblock.database_id.end(),
                  expected.database_id.begin())) {
    return MakeStatus(Code::kCorruption,
                      "{}: page 0: the file belongs to another database; restore this one's", path);
  }
  if (superblock.generation != expected.generation) {
    return MakeStatus(Code::kCorruption, "{}: page 0: generation {} where the catalog says {}", path,
                      superblock.generation, expected.generation);
  }
  if (data.file_bytes != expected.file_bytes) {
    return MakeStatus(Code::kCorruption, "{}: {} bytes where the catalog says {}: the file is {}", path,
                      data.file_bytes, expected.file_bytes,
                      data.file_bytes < expected.file_bytes ? "truncated" : "longer than was written");
  }
  const uint64_t offset = superblock.footer_offset;
  if (offset % kPageBytes != 0 || offset < kSuperblockBytes || offset > data.file_bytes ||
      superblock.footer_bytes > kFooterBytesMax ||
      offset + RoundUp(superblock.footer_bytes, kPageBytes) != data.file_bytes) {
    return MakeStatus(Code::kCorruption,
                      "{}: page 0: footer of {} bytes at {} does not end the file of {} bytes", path,
                      superblock.footer_bytes, offset, data.file_bytes);
  }
  return Status::Ok();
}

Result<Footer> ReadFooter(IoBackend& backend, const DataFile& data) {
  const Superblock& superblock = data.superblock;
  QUARRY_TRY(IoBuffer pages, IoBuffer::Allocate(RoundUp(superblock.footer_bytes, kPageBytes)));
  QUARRY_RETURN_IF_ERROR(backend.ReadAt(data.file, superblock.footer_offset, pages.span()));
  const std::span<const std::byte> bytes = pages.span().first(superblock.footer_bytes);
  if (const uint64_t computed = Checksum64(bytes); computed != superblock.footer_checksum) {
    return ChecksumFault(data, superblock.footer_offset, "the footer", superblock.footer_checksum, computed);
  }
  return DecodeFooter(bytes, data.file.path());
}

// Sections fill the file between superblock and footer, in order and without gaps, so that everything that is
// not covered by a checksum is padding; and each is covered.
Status CheckSections(const DataFile& data) {
  uint64_t end = kSuperblockBytes;
  for (const Section& section : data.footer.sections) {
    if (section.offset != RoundUp(end, kPageBytes) ||
        section.bytes > data.superblock.footer_offset - section.offset) {
      return MakeStatus(Code::kCorruption, "{}: footer: section \"{}\" at {} with {} bytes leaves its place",
                        data.file.path(), section.name, section.offset, section.bytes);
    }
    end = section.offset + section.bytes;
    if (section.checked_by.empty()) continue;
    const Section* checksums = data.footer.Find(section.checked_by);
    if (checksums == nullptr || !checksums->checked_by.empty()) {
      return MakeStatus(Code::kCorruption, "{}: footer: section \"{}\" has no checksums (\"{}\")",
                        data.file.path(), section.name, section.checked_by);
    }
  }
  if (RoundUp(end, kPageBytes) != data.superblock.footer_offset) {
    return MakeStatus(Code::kCorruption, "{}: footer: the sections end at {}, the footer starts at {}",
                      data.file.path(), end, data.superblock.footer_offset);
  }
  return Status::Ok();
}

}  // namespace

Status ChecksumFault(const DataFile& data, uint64_t offset, std::string_view what, uint64_t stored,
                     uint64_t computed) {
  const FileKind kind = data.superblock.kind;
  std::string_view remedy = "restore the file or import again";
  if (kind == FileKind::kLayout || kind == FileKind::kTrace) remedy = "build the layout again";
  if (kind == FileKind::kPartitioning) remedy = "build the partitioning again";
  return MakeStatus(Code::kCorruption,
                    "{}: page {} (offset {}), {}: checksum {:#x} is stored, the bytes give {:#x}; {}",
                    data.file.path(), offset / kPageBytes, offset, what, stored, computed, remedy);
}

Result<Section> DataFile::Find(std::string_view name, uint64_t bytes) const {
  const Section* section = footer.Find(name);
  if (section == nullptr) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no section \"{}\"", file.path(), name);
  }
  if (section->bytes != bytes) {
    return MakeStatus(Code::kCorruption, "{}: footer: section \"{}\" has {} bytes instead of {}", file.path(),
                      name, section->bytes, bytes);
  }
  return *section;
}

Result<DataFile> OpenDataFile(IoBackend& backend, const std::string& path,
                              const DataFileExpectation& expected) {
  DataFile data;
  Result<File> opened = backend.Open(path, OpenMode::kReadDirect);
  if (opened.status().code() == Code::kNotFound) {
    return MakeStatus(Code::kCorruption, "{}: the catalog names this file, and it is missing: restore it",
                      path);
  }
  QUARRY_RETURN_IF_ERROR(opened.status());
  data.file = std::move(opened).value();
  QUARRY_TRY(data.file_bytes, backend.FileBytes(data.file));
  QUARRY_TRY(data.superblock, ReadSuperblock(backend, data.file, data.file_bytes));
  QUARRY_RETURN_IF_ERROR(CheckSuperblock(data, expected));
  QUARRY_TRY(data.footer, ReadFooter(backend, data));
  QUARRY_RETURN_IF_ERROR(CheckSections(data));
  data.block_bytes = LogicalBlockBytes(data.file);
  return data;
}

Result<std::vector<uint32_t>> LoadChecksums(IoBackend& backend, const DataFile& data,
                                            const Section& section) {
  const Section* found = data.footer.Find(section.checked_by);
  if (found == nullptr || found->bytes % sizeof(uint32_t) != 0) {
    return MakeStatus(Code::kCorruption, "{}: footer: section \"{}\" is no array of checksums",
                      data.file.path(), section.checked_by);
  }
  std::vector<uint32_t> checksums(found->bytes / sizeof(uint32_t));
  const std::span<std::byte> out = std::as_writable_bytes(std::span(checksums));
  QUARRY_TRY(const auto scanner, FileScanner::Make(backend, data.file, found->offset, found->bytes));
  for (uint64_t done = 0; done < out.size();) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    const size_t bytes = std::min<size_t>(piece.size(), out.size() - done);
    std::copy_n(piece.begin(), bytes, out.begin() + static_cast<ptrdiff_t>(done));
    done += bytes;
  }
  if (const uint64_t computed = Checksum64(out); computed != found->checksum) {
    return ChecksumFault(data, found->offset, fmt::format("section \"{}\"", found->name), found->checksum,
                         computed);
  }
  return checksums;
}

Status LoadPages(IoBackend& backend, const DataFile& data, const Section& section,
                 std::span<const uint32_t> checksums, std::span<std::byte> out) {
  if (checksums.size() != CeilDiv(section.bytes, kPageBytes)) {
    return MakeStatus(Code::kCorruption, "{}: footer: section \"{}\" has {} checksums for {} pages",
                      data.file.path(), section.name, checksums.size(), CeilDiv(section.bytes, kPageBytes));
  }
  QUARRY_TRY(const auto scanner, FileScanner::Make(backend, data.file, section.offset, section.bytes));
  uint64_t page = 0;
  for (uint64_t done = 0; done < out.size();) {
    QUARRY_TRY(const std::span<const std::byte> piece, scanner->Next());
    for (size_t at = 0; at < piece.size(); at += kPageBytes, ++page) {
      const uint32_t computed = CellChecksum(piece.subspan(at, kPageBytes), page);
      if (computed == checksums[page]) continue;
      return ChecksumFault(data, section.offset + page * kPageBytes,
                           fmt::format("page {} of section \"{}\"", page, section.name), checksums[page],
                           computed);
    }
    const size_t bytes = std::min<size_t>(piece.size(), out.size() - done);
    std::copy_n(piece.begin(), bytes, out.begin() + static_cast<ptrdiff_t>(done));
    done += bytes;
  }
  return Status::Ok();
}

}  // namespace quarry
