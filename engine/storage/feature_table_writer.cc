#include <algorithm>
#include <cassert>

#include "quarry/format/checksum.h"
#include "quarry/storage/feature_table.h"

namespace quarry {
namespace {

class FeatureTableWriterImpl final : public FeatureTableWriter {
 public:
  FeatureTableWriterImpl(std::unique_ptr<DataFileWriter> file, std::string path,
                         const FeatureGeometry& geometry, std::span<const std::byte, 16> database_id,
                         uint64_t generation)
      : file_(std::move(file)), path_(std::move(path)), geometry_(geometry) {
    superblock_.kind = FileKind::kFeatureTable;
    std::copy(database_id.begin(), database_id.end(), superblock_.database_id.begin());
    superblock_.generation = generation;
    superblock_.element_type = geometry.element_type;
    superblock_.row_count = geometry.row_count;
    superblock_.dim = geometry.dim;
    file_->BeginSection(
        "rows", geometry.cell_is_row() ? DataFileWriter::Cover::kCells : DataFileWriter::Cover::kPages,
        geometry.data_bytes());
  }

  Status Continue(uint64_t rows, const DataFileWriter::Mark& mark) {
    const uint64_t bytes = rows / geometry_.rows_per_group * geometry_.group_bytes;
    const uint64_t checksums = geometry_.cell_is_row() ? rows : bytes / kPageBytes;
    if (rows > geometry_.row_count || rows % geometry_.rows_per_group != 0 || mark.section_bytes != bytes ||
        mark.checksum_count != checksums) {
      return MakeStatus(Code::kCorruption, "{}: {} rows cannot be {} bytes with {} checksums", path_, rows,
                        mark.section_bytes, mark.checksum_count);
    }
    next_row_ = rows;
    return file_->Continue(mark);
  }

  Status Append(std::span<const std::byte> rows) override {
    assert(rows.size() % geometry_.row_bytes == 0);
    const uint64_t count = rows.size() / geometry_.row_bytes;
    if (count > geometry_.row_count - next_row_) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} rows given, the table was made for {}", path_,
                        next_row_ + count, geometry_.row_count);
    }
    if (geometry_.cell_is_row()) {
      for (uint64_t i = 0; i < count; ++i) {
        const auto row = rows.subspan(i * geometry_.row_bytes, geometry_.row_bytes);
        QUARRY_RETURN_IF_ERROR(file_->AddChecksum(CellChecksum(row, next_row_ + i)));
      }
    }
    while (!rows.empty()) {
      const uint64_t taken = TakenInARun(rows.size() / geometry_.row_bytes);
      QUARRY_RETURN_IF_ERROR(file_->Append(rows.first(taken * geometry_.row_bytes)));
      rows = rows.subspan(taken * geometry_.row_bytes);
      next_row_ += taken;
      QUARRY_RETURN_IF_ERROR(Pad());
    }
    return Status::Ok();
  }

  Result<DataFileWriter::Mark> Sync() override {
    assert(next_row_ % geometry_.rows_per_group == 0);
    return file_->Sync();
  }

  Result<uint64_t> Finish() override {
    if (next_row_ != geometry_.row_count) {
      return MakeStatus(Code::kInvalidArgument, "{}: {} rows given, the table was made for {}", path_,
                        next_row_, geometry_.row_count);
    }
    QUARRY_RETURN_IF_ERROR(file_->EndSection());
    return file_->Finish(superblock_);
  }

 private:
  // How many of the next `count` rows lie on disk as they lie in memory: back to back, within a group where
  // groups are padded.
  uint64_t TakenInARun(uint64_t count) const {
    if (geometry_.stride_bytes != geometry_.row_bytes) return 1;
    if (geometry_.rows_per_group * geometry_.row_bytes == geometry_.group_bytes) return count;
    return std::min(count, geometry_.rows_per_group - next_row_ % geometry_.rows_per_group);
  }

  // Zeros from the end of the row before next_row_ to next_row_'s own place, or to the end of the last row's
  // group.
  Status Pad() {
    const uint64_t row_end = geometry_.RowOffset(next_row_ - 1) + geometry_.row_bytes;
    const uint64_t next_start =
        next_row_ < geometry_.row_count ? geometry_.RowOffset(next_row_) : geometry_.data_end();
    return file_->AppendZeros(next_start - row_end);
  }

  const std::unique_ptr<DataFileWriter> file_;
  const std::string path_;
  const FeatureGeometry geometry_;
  Superblock superblock_;
  uint64_t next_row_ = 0;
};

}  // namespace

Result<std::unique_ptr<FeatureTableWriter>> FeatureTableWriter::Create(
    IoBackend& backend, const std::string& path, const FeatureGeometry& geometry,
    std::span<const std::byte, 16> database_id, uint64_t generation) {
  QUARRY_TRY(auto file, DataFileWriter::Create(backend, path));
  return std::unique_ptr<FeatureTableWriter>(
      new FeatureTableWriterImpl(std::move(file), path, geometry, database_id, generation));
}

Result<std::unique_ptr<FeatureTableWriter>> FeatureTableWriter::Resume(
    IoBackend& backend, const std::string& path, const FeatureGeometry& geometry,
    std::span<const std::byte, 16> database_id, uint64_t generation, uint64_t rows,
    const DataFileWriter::Mark& mark) {
  QUARRY_TRY(auto file, DataFileWriter::Reopen(backend, path));
  auto writer =
      std::make_unique<FeatureTableWriterImpl>(std::move(file), path, geometry, database_id, generation);
  QUARRY_RETURN_IF_ERROR(writer->Continue(rows, mark));
  return std::unique_ptr<FeatureTableWriter>(std::move(writer));
}

}  // namespace quarry
