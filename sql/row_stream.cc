#include "row_stream.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/storage/scanner.h"

namespace quarry::sql {
namespace {

constexpr uint64_t kPieceBytes = kMiB;  // piece of a scan
// Where this many pieces in a row are of no use, the scan begins anew behind them: fewer are on their way
// already, or cost less than to wait for the first of new ones.
constexpr uint64_t kSkippedPiecesMin = uint64_t{2} * FileScanner::kDepth;
constexpr uint64_t kBatchBytes = 2 * kMiB;  // rows of a list at a time
constexpr uint64_t kBatchRowsMax = 4096;

// Newest versions of some rows, as the overlay has them.
class ChangedRows {
 public:
  // Takes the place of those before it. `rows` ascending.
  Status Load(const TableView& table, std::vector<uint64_t> rows) {
    const uint64_t row_bytes = table.geometry().row_bytes;
    rows_ = std::move(rows);
    bytes_.resize(rows_.size() * row_bytes);
    found_.assign(rows_.size(), false);
    row_bytes_ = row_bytes;
    if (rows_.empty()) return Status::Ok();
    return table.overlay->Read(rows_, [&](size_t i, std::span<const std::byte> value) {
      std::memcpy(bytes_.data() + i * row_bytes, value.data(), row_bytes);
      found_[i] = true;
    });
  }
  // Empty when the row is as the file has it.
  std::span<const std::byte> Find(uint64_t row) const {
    const auto place = std::ranges::lower_bound(rows_, row);
    if (place == rows_.end() || *place != row) return {};
    const auto i = static_cast<size_t>(place - rows_.begin());
    if (!found_[i]) return {};
    return std::span(bytes_).subspan(i * row_bytes_, row_bytes_);
  }

 private:
  std::vector<uint64_t> rows_;
  std::vector<std::byte> bytes_;
  std::vector<bool> found_;
  uint64_t row_bytes_ = 0;
};

// A range, front to back, in the scanner's own buffer.
class ScanStream final : public RowStream {
 public:
  static Result<std::unique_ptr<RowStream>> Make(Session& session,
                                                 const std::shared_ptr<const TableView>& table,
                                                 uint64_t first, uint64_t count) {
    const FeatureGeometry& geometry = table->geometry();
    // Whole groups, so that no row and no cell straddles two pieces.
    const uint64_t first_group = first / geometry.rows_per_group;
    const uint64_t groups = CeilDiv(first + count, geometry.rows_per_group) - first_group;
    const uint64_t bytes = groups * geometry.group_bytes;
    const uint64_t piece_bytes =
        std::min(std::max(RoundDown(kPieceBytes, geometry.group_bytes), geometry.group_bytes), bytes);
    const uint64_t pieces = std::min<uint64_t>(FileScanner::kDepth, CeilDiv(bytes, piece_bytes));
    std::unique_ptr<ScanStream> stream(new ScanStream(session, table, first, first + count));
    QUARRY_TRY(stream->reservation_,
               session.budget().Reserve(IoBuffer::MappedBytes(pieces * piece_bytes), "scanning a table"));
    stream->piece_bytes_ = piece_bytes;
    stream->end_offset_ = geometry.data_offset + first_group * geometry.group_bytes + bytes;
    return std::unique_ptr<RowStream>(std::move(stream));
  }

  Status Load(uint64_t place) override {
    const FeatureGeometry& geometry = table_->geometry();
    const uint64_t row = row_ = first_ + place;
    const uint64_t offset = geometry.RowOffset(row);
    if (offset >= piece_offset_ + piece_.size()) QUARRY_RETURN_IF_ERROR(LoadPiece(row, offset));
    const uint64_t cell = geometry.CellOfRow(row);
    if (cell >= verified_end_) {
      QUARRY_RETURN_IF_ERROR(table_->file->VerifyCell(
          cell, piece_.subspan(geometry.CellOffset(cell) - piece_offset_, geometry.cell_bytes())));
      verified_end_ = cell + 1;
    }
    bytes_ = piece_.subspan(offset - piece_offset_, geometry.row_bytes);
    if (!table_->overlay->empty() && table_->overlay->Touched(row)) {
      const std::span<const std::byte> changed = changed_.Find(row);
      if (!changed.empty()) bytes_ = changed;
    }
    return Status::Ok();
  }

 private:
  ScanStream(Session& session, std::shared_ptr<const TableView> table, uint64_t first, uint64_t end)
      : RowStream(session, std::move(table)), first_(first), end_(end) {}

  // The piece that holds the row at `offset`, which lies behind the one that is there.
  Status LoadPiece(uint64_t row, uint64_t offset) {
    const ScopedSpan span("read a piece", row);
    const uint64_t skipped_bytes = offset - (piece_offset_ + piece_.size());
    if (scanner_ == nullptr || skipped_bytes >= kSkippedPiecesMin * piece_bytes_) {
      QUARRY_RETURN_IF_ERROR(ScanFrom(row));
    }
    do {
      QUARRY_RETURN_IF_ERROR(session_.Look());
      piece_offset_ += piece_.size();
      QUARRY_TRY(piece_, scanner_->Next());
    } while (offset >= piece_offset_ + piece_.size());
    return LoadChanged(row);
  }

  // Reads ahead from the row's group on. Nothing is read before the first row is known.
  Status ScanFrom(uint64_t row) {
    const FeatureGeometry& geometry = table_->geometry();
    scanner_.reset();  // gives back its memory before the next one takes it
    piece_ = {};
    piece_offset_ = geometry.data_offset + row / geometry.rows_per_group * geometry.group_bytes;
    QUARRY_TRY(scanner_, FileScanner::Make(session_.store().backend(), table_->file->file(), piece_offset_,
                                           end_offset_ - piece_offset_, piece_bytes_));
    return Status::Ok();
  }

  // Loads the changed rows of the piece from `first` on.
  Status LoadChanged(uint64_t first) {
    if (table_->overlay->empty()) return Status::Ok();
    const FeatureGeometry& geometry = table_->geometry();
    const uint64_t piece_end = piece_offset_ + piece_.size();
    std::vector<uint64_t> rows;
    for (uint64_t row = first; row < end_ && geometry.RowOffset(row) < piece_end; ++row) {
      if (table_->overlay->Touched(row)) rows.push_back(row);
    }
    return changed_.Load(*table_, std::move(rows));
  }

  MemoryBudget::Reservation reservation_;
  const uint64_t first_, end_;            // rows
  uint64_t piece_bytes_ = 0;              // constant after Make, as the next
  uint64_t end_offset_ = 0;               // end of the range in the file
  std::unique_ptr<FileScanner> scanner_;  // null before the first row
  std::span<const std::byte> piece_;
  uint64_t piece_offset_ = 0;  // offset of the piece in the file
  uint64_t verified_end_ = 0;  // end of the cells verified so far: a page's rows come one after another
  ChangedRows changed_;
};

// A list, a batch of rows at a time.
class ListStream final : public RowStream {
 public:
  ListStream(Session& session, std::shared_ptr<const TableView> table, IdSet rows)
      : RowStream(session, std::move(table)),
        rows_(std::move(rows)),
        batch_rows_max_(std::clamp<uint64_t>(kBatchBytes / table_->geometry().row_bytes, 1, kBatchRowsMax)) {}

  Status Load(uint64_t place) override {
    if (place >= batch_end_) QUARRY_RETURN_IF_ERROR(LoadBatch(place));
    const uint64_t row_bytes = table_->geometry().row_bytes;
    bytes_ = std::span(batch_).subspan((place - batch_first_) * row_bytes, row_bytes);
    row_ = rows_[place];
    return Status::Ok();
  }

 private:
  Status LoadBatch(uint64_t first) {
    const ScopedSpan span("read a batch of rows", first);
    const FeatureGeometry& geometry = table_->geometry();
    batch_first_ = first;
    batch_end_ = std::min(first + batch_rows_max_, rows_.size());
    batch_.resize((batch_end_ - batch_first_) * geometry.row_bytes);
    std::vector<uint64_t> rows;
    for (uint64_t i = batch_first_; i < batch_end_; ++i) rows.push_back(rows_[i]);
    return table_->Gather(session_.reader(), rows, [&](size_t i, std::span<const std::byte> row) {
      std::memcpy(batch_.data() + i * geometry.row_bytes, row.data(), geometry.row_bytes);
    });
  }

  const IdSet rows_;
  const uint64_t batch_rows_max_;
  uint64_t batch_first_ = 0, batch_end_ = 0;  // places in rows_
  std::vector<std::byte> batch_;
};

}  // namespace

Status RowStream::Read(uint64_t place) {
  if (place + 1 == next_place_) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(Load(place));
  next_place_ = place + 1;
  if (session_.pending().empty()) return Status::Ok();
  const std::span<const std::byte> written = session_.pending().Find(table_->record.name, row_);
  if (!written.empty()) bytes_ = written;
  return Status::Ok();
}

Result<std::unique_ptr<RowStream>> RowStream::Make(Session& session, std::shared_ptr<const TableView> table,
                                                   const IdSet& rows) {
  // Rows behind the file's are found one by one.
  if (!rows.is_list() && rows.size() > 0 && rows[0] + rows.size() <= table->record.file_rows()) {
    return ScanStream::Make(session, table, rows[0], rows.size());
  }
  return std::unique_ptr<RowStream>(std::make_unique<ListStream>(session, std::move(table), rows));
}

double ReadRowsSeconds(const DeviceProfile& profile, const TableRecord& record, double rows, bool scan) {
  const auto bytes = rows * static_cast<double>(RowBytes(record.element_type, record.dim));
  if (scan) return profile.ReadSeconds(static_cast<uint64_t>(bytes), 1);
  return profile.ReadSeconds(static_cast<uint64_t>(bytes), static_cast<uint64_t>(rows));
}

}  // namespace quarry::sql
