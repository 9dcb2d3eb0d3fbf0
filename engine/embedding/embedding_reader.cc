#include "quarry/embedding/embedding_reader.h"

#include <sys/file.h>

#include <cassert>
#include <cerrno>

#include "embedding_files.h"
#include "quarry/format/element_type.h"
#include "row_record.h"

namespace quarry {

Result<std::unique_ptr<EmbeddingReader>> EmbeddingReader::Open(Store& store, MemoryBudget& budget,
                                                               std::string_view name) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const EmbeddingRecord* const record = manifest->FindEmbedding(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: there is no embedding table \"{}\"", store.path(), name);
  }
  QUARRY_TRY(const EmbeddingFiles files, FilesOf(store, *record));
  std::unique_ptr<EmbeddingReader> reader(new EmbeddingReader(*record, files.spec, files.shape));
  auto file = PageFile::Open(store.backend(), files.pages, files.map);
  if (!file.ok()) return MissingIsCorruption(file.status());
  reader->file_ = std::move(file).value();
  // Who trains holds it alone (StoredEmbeddings::Open).
  if (flock(reader->file_->file().descriptor(), LOCK_SH | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock", files.pages.path);
    return MakeStatus(Code::kBusy, "{}: embedding table \"{}\" is being trained", files.pages.path, name);
  }
  const uint64_t page_bytes = record->page_bytes;
  QUARRY_TRY(reader->reservation_,
             budget.Reserve(reader->file_->memory_bytes() + IoBuffer::MappedBytes(page_bytes),
                            "reading embedding table \"" + record->name + "\""));
  QUARRY_TRY(reader->page_, IoBuffer::Allocate(page_bytes));
  return reader;
}

Result<int64_t> EmbeddingReader::Read(RowId row, std::span<float> values) {
  assert(row < record_.row_count && values.size() == record_.dim);
  const auto page = static_cast<PageNumber>(row / shape_.rows_per_page);
  if (file_->entry(page).slot == kNoPageSlot) {
    InitRow(spec_, row, values);
    RoundToStored(spec_.element_type, values);
    return kNeverWritten;
  }
  if (page != page_number_) {
    page_number_ = PageFile::kPageCountMax;
    QUARRY_RETURN_IF_ERROR(file_->Read(page, page_.span().first(record_.page_bytes)));
    page_number_ = page;
  }
  const std::byte* const bytes =
      page_.data() + sizeof(PageHeader) + row % shape_.rows_per_page * shape_.row_bytes;
  RowRecord(spec_).DecodeVector(bytes, values);
  return RowRecord::Timestamp(bytes);
}

}  // namespace quarry
