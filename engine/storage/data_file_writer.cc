#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <filesystem>

#include "quarry/base/units.h"
#include "quarry/storage/data_file.h"

namespace quarry {
namespace {

constexpr size_t kChecksumsBufferBytes = 256 * kKiB;

}  // namespace

Result<std::unique_ptr<DataFileWriter>> DataFileWriter::Create(IoBackend& backend, const std::string& path,
                                                               uint64_t buffer_bytes) {
  return Open(backend, path, OpenMode::kCreateDirect, buffer_bytes);
}

Result<std::unique_ptr<DataFileWriter>> DataFileWriter::Reopen(IoBackend& backend, const std::string& path,
                                                               uint64_t buffer_bytes) {
  return Open(backend, path, OpenMode::kReadWriteDirect, buffer_bytes);
}

Result<std::unique_ptr<DataFileWriter>> DataFileWriter::Open(IoBackend& backend, const std::string& path,
                                                             OpenMode mode, uint64_t buffer_bytes) {
  assert(buffer_bytes > 0 && buffer_bytes % kPageBytes == 0);
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(buffer_bytes));
  QUARRY_TRY(IoBuffer checksums, IoBuffer::Allocate(kChecksumsBufferBytes));
  QUARRY_TRY(File file, backend.Open(path, mode));
  return std::unique_ptr<DataFileWriter>(
      new DataFileWriter(backend, std::move(file), std::move(buffer), std::move(checksums)));
}

DataFileWriter::DataFileWriter(IoBackend& backend, File file, IoBuffer buffer, IoBuffer checksums)
    : backend_(backend),
      file_(std::move(file)),
      buffer_(std::move(buffer)),
      checksums_(std::move(checksums)) {}

void DataFileWriter::BeginSection(std::string_view name, Cover cover, uint64_t section_bytes) {
  assert(section_.name.empty() && buffered_bytes_ == 0);
  section_ = Section{.name = std::string(name), .offset = position_};
  section_.checked_by = section_.name + std::string(kChecksumsSuffix);
  cover_ = cover;
  planned_bytes_ = section_bytes;
  checksum_count_ = 0;
  checksums_flushed_bytes_ = 0;
  checksums_digest_ = Checksum64Stream();
}

Status DataFileWriter::Append(std::span<const std::byte> bytes) {
  section_.bytes += bytes.size();
  // Whole pages that lie as the disk wants them need no copy.
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kPageBytes == 0;
  while (aligned && buffered_bytes_ == 0 && bytes.size() >= buffer_.size()) {
    QUARRY_RETURN_IF_ERROR(WritePages(bytes.first(buffer_.size())));
    bytes = bytes.subspan(buffer_.size());
  }
  while (!bytes.empty()) {
    const size_t take = std::min(bytes.size(), buffer_.size() - buffered_bytes_);
    std::memcpy(buffer_.data() + buffered_bytes_, bytes.data(), take);
    buffered_bytes_ += take;
    bytes = bytes.subspan(take);
    if (buffered_bytes_ == buffer_.size()) QUARRY_RETURN_IF_ERROR(FlushBuffer());
  }
  return Status::Ok();
}

Status DataFileWriter::AppendZeros(uint64_t bytes) {
  section_.bytes += bytes;
  while (bytes > 0) {
    const size_t take = std::min<uint64_t>(bytes, buffer_.size() - buffered_bytes_);
    std::memset(buffer_.data() + buffered_bytes_, 0, take);
    buffered_bytes_ += take;
    bytes -= take;
    if (buffered_bytes_ == buffer_.size()) QUARRY_RETURN_IF_ERROR(FlushBuffer());
  }
  return Status::Ok();
}

void DataFileWriter::SkipWritten(uint64_t bytes) {
  assert(cover_ == Cover::kCells && planned_bytes_ > 0 && buffered_bytes_ == 0 && bytes % kPageBytes == 0);
  section_.bytes += bytes;
  position_ += bytes;
}

Status DataFileWriter::AddChecksum(uint32_t checksum) {
  if ((checksum_count_ + 1) * sizeof(uint32_t) > checksums_.size()) {
    if (planned_bytes_ > 0) {
      QUARRY_RETURN_IF_ERROR(FlushChecksums(checksums_offset()));
    } else {  // their place is known only once the section has ended
      QUARRY_TRY(IoBuffer larger, IoBuffer::Allocate(checksums_.size() * 2));
      std::memcpy(larger.data(), checksums_.data(), checksums_.size());
      checksums_ = std::move(larger);
    }
  }
  std::memcpy(checksums_.data() + checksum_count_ * sizeof(uint32_t), &checksum, sizeof(uint32_t));
  ++checksum_count_;
  return Status::Ok();
}

// Writes what is buffered, padded with zeros to whole pages.
Status DataFileWriter::FlushBuffer() {
  const size_t padded_bytes = RoundUp(buffered_bytes_, kPageBytes);
  std::memset(buffer_.data() + buffered_bytes_, 0, padded_bytes - buffered_bytes_);
  QUARRY_RETURN_IF_ERROR(WritePages(buffer_.span().first(padded_bytes)));
  buffered_bytes_ = 0;
  return Status::Ok();
}

Status DataFileWriter::WritePages(std::span<const std::byte> pages) {
  if (!section_.name.empty() && cover_ == Cover::kPages) {
    uint64_t page = (position_ - section_.offset) / kPageBytes;
    for (size_t at = 0; at < pages.size(); at += kPageBytes, ++page) {
      QUARRY_RETURN_IF_ERROR(AddChecksum(CellChecksum(pages.subspan(at, kPageBytes), page)));
    }
  }
  if (!pages.empty()) QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, position_, pages));
  position_ += pages.size();
  return Status::Ok();
}

// REQUIRES: checksums_ is full, or these are the last.
Status DataFileWriter::FlushChecksums(uint64_t checksums_offset) {
  const size_t bytes = checksum_count_ * sizeof(uint32_t);
  const size_t padded_bytes = RoundUp(bytes, kPageBytes);
  checksums_digest_.Update(checksums_.span().first(bytes));
  std::memset(checksums_.data() + bytes, 0, padded_bytes - bytes);
  if (bytes > 0) {
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, checksums_offset + checksums_flushed_bytes_,
                                            checksums_.span().first(padded_bytes)));
  }
  checksums_flushed_bytes_ += bytes;
  checksum_count_ = 0;
  return Status::Ok();
}

uint64_t DataFileWriter::checksums_offset() const {
  return section_.offset + RoundUp(planned_bytes_, kPageBytes);
}

// The digest of all checksums of the open section so far: those that were written for good, and the others.
uint64_t DataFileWriter::ChecksumsDigest() const {
  const std::array<uint64_t, 2> parts = {
      checksums_digest_.Digest(), Checksum64(checksums_.span().first(checksum_count_ * sizeof(uint32_t)))};
  return Checksum64(std::as_bytes(std::span(parts)));
}

Result<DataFileWriter::Mark> DataFileWriter::Sync() {
  assert(planned_bytes_ > 0 && buffered_bytes_ % kPageBytes == 0);
  QUARRY_RETURN_IF_ERROR(FlushBuffer());
  // Checksums that do not fill their buffer are written too, and written again with those that follow.
  const size_t bytes = checksum_count_ * sizeof(uint32_t);
  const size_t padded_bytes = RoundUp(bytes, kPageBytes);
  std::memset(checksums_.data() + bytes, 0, padded_bytes - bytes);
  if (bytes > 0) {
    QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, checksums_offset() + checksums_flushed_bytes_,
                                            checksums_.span().first(padded_bytes)));
  }
  QUARRY_RETURN_IF_ERROR(backend_.SyncFile(file_));
  return Mark{section_.bytes, (checksums_flushed_bytes_ + bytes) / sizeof(uint32_t), ChecksumsDigest()};
}

Status DataFileWriter::Continue(const Mark& mark) {
  assert(planned_bytes_ > 0 && section_.bytes == 0);
  uint64_t left = mark.checksum_count * sizeof(uint32_t);
  while (left > 0) {
    const uint64_t bytes = std::min<uint64_t>(checksums_.size(), left);
    QUARRY_RETURN_IF_ERROR(backend_.ReadAt(file_, checksums_offset() + checksums_flushed_bytes_,
                                           checksums_.span().first(RoundUp(bytes, kPageBytes))));
    left -= bytes;
    if (left == 0) {  // the last ones wait in the buffer, as they did
      checksum_count_ = bytes / sizeof(uint32_t);
    } else {
      checksums_digest_.Update(checksums_.span());
      checksums_flushed_bytes_ += bytes;
    }
  }
  if (ChecksumsDigest() != mark.checksums_digest) {
    return MakeStatus(Code::kCorruption, "{}: its {} checksums are not those that were synced", file_.path(),
                      mark.checksum_count);
  }
  section_.bytes = mark.section_bytes;
  position_ += mark.section_bytes;
  return Status::Ok();
}

Status DataFileWriter::EndSection() {
  assert(!section_.name.empty());
  QUARRY_RETURN_IF_ERROR(FlushBuffer());
  assert(planned_bytes_ == 0 || planned_bytes_ == section_.bytes);
  QUARRY_RETURN_IF_ERROR(FlushChecksums(position_));
  const Section checksums{.name = section_.checked_by,
                          .offset = position_,
                          .bytes = checksums_flushed_bytes_,
                          .checksum = checksums_digest_.Digest()};
  footer_.sections.push_back(std::move(section_));
  footer_.sections.push_back(checksums);
  position_ += RoundUp(checksums_flushed_bytes_, kPageBytes);
  section_ = Section();
  return Status::Ok();
}

Result<uint64_t> DataFileWriter::Finish(Superblock superblock) {
  assert(section_.name.empty());
  const std::vector<std::byte> footer = EncodeFooter(footer_);
  superblock.footer_offset = position_;
  superblock.footer_bytes = footer.size();
  superblock.footer_checksum = Checksum64(footer);
  QUARRY_RETURN_IF_ERROR(Append(footer));
  QUARRY_RETURN_IF_ERROR(FlushBuffer());
  const uint64_t file_bytes = position_;
  const auto page = EncodeSuperblock(superblock);
  std::copy(page.begin(), page.end(), buffer_.data());
  QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, 0, buffer_.span().first(page.size())));
  QUARRY_RETURN_IF_ERROR(backend_.SyncFile(file_));
  const std::string folder = std::filesystem::path(file_.path()).parent_path().string();
  QUARRY_RETURN_IF_ERROR(backend_.SyncDirectory(folder.empty() ? "." : folder));
  return file_bytes;
}

}  // namespace quarry
