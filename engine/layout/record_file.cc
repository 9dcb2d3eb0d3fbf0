#include "record_file.h"

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr std::string_view kRecords = "records";
constexpr std::string_view kIndex = "index";

}  // namespace

Result<std::unique_ptr<RecordWriter>> RecordWriter::Create(IoBackend& backend, const std::string& path) {
  QUARRY_TRY(std::unique_ptr<DataFileWriter> writer, DataFileWriter::Create(backend, path));
  writer->BeginSection(kRecords, DataFileWriter::Cover::kPages);
  return std::unique_ptr<RecordWriter>(new RecordWriter(std::move(writer)));
}

Status RecordWriter::Append(std::initializer_list<std::span<const std::byte>> parts) {
  uint64_t bytes = 0;
  for (const std::span<const std::byte> part : parts) {
    QUARRY_RETURN_IF_ERROR(writer_->Append(part));
    bytes += part.size();
  }
  const uint64_t padded_bytes = RoundUp(bytes, kPageBytes);
  QUARRY_RETURN_IF_ERROR(writer_->AppendZeros(padded_bytes - bytes));
  index_.push_back(position_);
  index_.push_back(bytes);
  position_ += padded_bytes;
  return Status::Ok();
}

Result<uint64_t> RecordWriter::Finish(const DatabaseId& database_id, uint64_t generation) {
  QUARRY_RETURN_IF_ERROR(writer_->EndSection());
  writer_->BeginSection(kIndex, DataFileWriter::Cover::kPages);
  QUARRY_RETURN_IF_ERROR(writer_->Append(BytesOf(index_)));
  QUARRY_RETURN_IF_ERROR(writer_->EndSection());
  return writer_->Finish({.kind = FileKind::kTrace,
                          .database_id = database_id,
                          .generation = generation,
                          .row_count = index_.size() / 2});
}

Result<std::unique_ptr<RecordFile>> RecordFile::Open(IoBackend& backend, const std::string& path,
                                                     const DatabaseId& database_id, uint64_t generation,
                                                     uint64_t file_bytes) {
  std::unique_ptr<RecordFile> file(new RecordFile(backend));
  QUARRY_TRY(file->data_, OpenDataFile(backend, path,
                                       {.kind = FileKind::kTrace,
                                        .database_id = database_id,
                                        .generation = generation,
                                        .file_bytes = file_bytes}));
  const DataFile& data = file->data_;
  QUARRY_TRY(const Section index, data.Find(kIndex, data.superblock.row_count * 2 * sizeof(uint64_t)));
  QUARRY_TRY(const std::vector<uint32_t> index_checksums, LoadChecksums(backend, data, index));
  file->index_.resize(data.superblock.row_count * 2);
  QUARRY_RETURN_IF_ERROR(
      LoadPages(backend, data, index, index_checksums, std::as_writable_bytes(std::span(file->index_))));
  const Section* records = data.footer.Find(kRecords);
  if (records == nullptr) {
    return MakeStatus(Code::kCorruption, "{}: footer: there is no section \"{}\"", path, kRecords);
  }
  file->records_ = *records;
  QUARRY_TRY(file->checksums_, LoadChecksums(backend, data, *records));
  for (uint64_t r = 0; r < file->size(); ++r) {
    const uint64_t offset = file->index_[2 * r];
    if (offset % kPageBytes != 0 || offset > records->bytes || file->bytes(r) > records->bytes - offset) {
      return MakeStatus(Code::kCorruption, "{}: record {} at {} with {} bytes leaves the section of {}", path,
                        r, offset, file->bytes(r), records->bytes);
    }
  }
  if (file->checksums_.size() != CeilDiv(records->bytes, kPageBytes)) {
    return MakeStatus(Code::kCorruption, "{}: {} checksums for {} bytes of records", path,
                      file->checksums_.size(), records->bytes);
  }
  return file;
}

Result<std::span<const std::byte>> RecordFile::Read(uint64_t record, uint64_t first, uint64_t count,
                                                    IoBuffer& buffer) const {
  if (count == 0) return std::span<const std::byte>();
  const uint64_t begin = RoundDown(first, kPageBytes);
  const uint64_t bytes = RoundUp(first + count, kPageBytes) - begin;
  if (buffer.size() < bytes) {
    QUARRY_TRY(buffer, IoBuffer::Allocate(bytes + bytes / 4));
  }
  const uint64_t offset = index_[2 * record] + begin;
  const std::span<std::byte> pages = buffer.span().first(bytes);
  QUARRY_RETURN_IF_ERROR(backend_.ReadAt(data_.file, records_.offset + offset, pages));
  for (uint64_t at = 0; at < bytes; at += kPageBytes) {
    const uint64_t page = (offset + at) / kPageBytes;
    const uint32_t computed = CellChecksum(pages.subspan(at, kPageBytes), page);
    if (computed == checksums_[page]) continue;
    return ChecksumFault(data_, records_.offset + offset + at, fmt::format("record {}", record),
                         checksums_[page], computed);
  }
  return pages.subspan(first - begin, count);
}

}  // namespace quarry
