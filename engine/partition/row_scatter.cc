#include "row_scatter.h"

#include <algorithm>
#include <cstring>

#include "partition_file.h"
#include "quarry/base/trace.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/feature_table.h"

namespace quarry {
namespace {

constexpr uint64_t kScanBytes = 4 * kMiB;  // of the scanner, and of the rows that it fills
constexpr uint64_t kPartBufferBytesMax = 1 * kMiB;
constexpr uint64_t kPartBufferBytesMin = 16 * kKiB;

// The rows of all parts on their way into the section.
class PartWriters {
 public:
  // `buffer`: `bytes` for each part.
  PartWriters(IoBackend& backend, const File& file, uint64_t section_offset,
              const PartitionDirectory& directory, uint64_t row_stride, IoBuffer buffer, uint64_t bytes,
              std::span<uint32_t> checksums)
      : backend_(backend),
        file_(file),
        section_offset_(section_offset),
        buffer_(std::move(buffer)),
        bytes_(bytes),
        checksums_(checksums),
        ends_(directory.parts()) {
    uint64_t offset = 0;
    for (uint32_t part = 0; part < directory.parts(); ++part) {
      ends_[part].offset = offset;
      offset += directory.BytesOf(part, row_stride);
    }
  }

  Status Append(uint32_t part, std::span<const std::byte> row) {
    End& end = ends_[part];
    while (!row.empty()) {
      const size_t take = std::min<size_t>(row.size(), bytes_ - end.buffered);
      std::memcpy(BufferOf(part).data() + end.buffered, row.data(), take);
      end.buffered += take;
      row = row.subspan(take);
      if (end.buffered == bytes_) QUARRY_RETURN_IF_ERROR(Flush(part));
    }
    return Status::Ok();
  }

  Status Finish() {
    for (uint32_t part = 0; part < ends_.size(); ++part) QUARRY_RETURN_IF_ERROR(Flush(part));
    return Status::Ok();
  }

 private:
  struct End {
    uint64_t offset = 0;  // in the section, a whole number of pages
    uint64_t buffered = 0;
  };

  std::span<std::byte> BufferOf(uint32_t part) const { return buffer_.span().subspan(part * bytes_, bytes_); }

  // Writes what is buffered, padded with zeros to whole pages.
  Status Flush(uint32_t part) {
    End& end = ends_[part];
    const std::span<std::byte> pages = BufferOf(part).first(RoundUp(end.buffered, kPageBytes));
    std::memset(pages.data() + end.buffered, 0, pages.size() - end.buffered);
    for (uint64_t at = 0; at < pages.size(); at += kPageBytes) {
      const uint64_t page = (end.offset + at) / kPageBytes;
      checksums_[page] = CellChecksum(pages.subspan(at, kPageBytes), page);
    }
    if (!pages.empty()) {
      QUARRY_RETURN_IF_ERROR(backend_.WriteAt(file_, section_offset_ + end.offset, pages));
    }
    end.offset += pages.size();
    end.buffered = 0;
    return Status::Ok();
  }

  IoBackend& backend_;
  const File& file_;
  const uint64_t section_offset_;
  const IoBuffer buffer_;
  const uint64_t bytes_;
  const std::span<uint32_t> checksums_;
  std::vector<End> ends_;
};

}  // namespace

Status ScatterRows(const RowSource& source, MemoryBudget& budget, const PartitionDirectory& directory,
                   std::span<const NodeId> new_ids, const ProgressFunction& progress,
                   DataFileWriter& writer) {
  const ScopedSpan span("write rows by part");
  IoBackend& backend = source.store.backend();
  const uint64_t section_bytes = directory.OffsetOf(directory.parts(), source.row_stride);
  const uint64_t row_bytes = source.row_bytes;
  const uint64_t parts = directory.parts();
  writer.BeginSection(source.section, DataFileWriter::Cover::kCells, section_bytes);

  const uint64_t batch_rows = std::max<uint64_t>(1, kScanBytes / row_bytes);
  // A group of rows may be larger than the scanner's buffer: four of a mebibyte.
  const uint64_t fixed = section_bytes / kPageBytes * sizeof(uint32_t) + batch_rows * row_bytes +
                         4 * kScanBytes + IoBuffer::MappedBytes(parts * kPartBufferBytesMin);
  QUARRY_TRY(auto reservation, budget.Reserve(fixed, "writing rows by part"));
  QUARRY_TRY(const std::unique_ptr<FeatureTable> table,
             source.store.OpenTable(*source.snapshot, source.record.name));
  QUARRY_TRY(const std::unique_ptr<RowOverlay> newer,
             source.store.OpenOverlay(source.record.name, source.snapshot));
  const std::vector<uint64_t> touched = newer->TouchedRows();
  QUARRY_TRY(
      const auto overlay_reservation,
      budget.Reserve(table->resident_bytes() + newer->resident_bytes() + touched.size() * sizeof(uint64_t),
                     "writing rows by part"));
  // Larger buffers make larger writes; a quarter of the rest leaves room for whoever else is at work.
  const uint64_t part_bytes = std::clamp(RoundDown(budget.available_bytes() / 4 / parts, kPageBytes),
                                         kPartBufferBytesMin, kPartBufferBytesMax);
  const uint64_t buffers = IoBuffer::MappedBytes(parts * part_bytes);
  reservation.Release();
  QUARRY_TRY(reservation, budget.Reserve(fixed + buffers, "writing rows by part"));

  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(parts * part_bytes));
  std::vector<uint32_t> checksums(section_bytes / kPageBytes);
  PartWriters ends(backend, writer.file(), writer.position(), directory, source.row_stride, std::move(buffer),
                   part_bytes, checksums);
  QUARRY_TRY(RowScanner scanner, RowScanner::Make(backend, *table, 0, new_ids.size(), kScanBytes));
  std::vector<std::byte> rows(batch_rows * row_bytes);
  std::vector<std::byte> strided(source.row_stride);
  for (uint64_t first = 0; first < new_ids.size(); first += batch_rows) {
    const uint64_t count = std::min(batch_rows, new_ids.size() - first);
    const std::span<std::byte> batch = std::span(rows).first(count * row_bytes);
    QUARRY_RETURN_IF_ERROR(scanner.Read(batch));
    if (!touched.empty()) QUARRY_RETURN_IF_ERROR(FoldRows(*newer, touched, first, row_bytes, batch));
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(strided.data(), batch.data() + i * row_bytes, row_bytes);
      QUARRY_RETURN_IF_ERROR(ends.Append(directory.PartOf(new_ids[first + i]), strided));
    }
    if (progress) QUARRY_RETURN_IF_ERROR(progress("writing rows", first + count, new_ids.size()));
  }
  QUARRY_RETURN_IF_ERROR(ends.Finish());
  writer.SkipWritten(section_bytes);
  for (const uint32_t checksum : checksums) QUARRY_RETURN_IF_ERROR(writer.AddChecksum(checksum));
  return writer.EndSection();
}

}  // namespace quarry
