#include "quarry/storage/table_view.h"

#include <utility>
#include <vector>

namespace quarry {

Result<TableView> TableView::Open(Store& store, TableFiles& files, std::shared_ptr<const Snapshot> snapshot,
                                  const TableRecord& record) {
  TableView view;
  view.record = record;
  QUARRY_TRY(view.file, files.Open(*snapshot, record));
  QUARRY_TRY(view.overlay, store.OpenOverlay(record.name, snapshot));
  view.snapshot = std::move(snapshot);
  return view;
}

Status TableView::Gather(MergedReader& reader, std::span<const uint64_t> rows, const Put& put) const {
  std::vector<uint64_t> touched;
  std::vector<size_t> numbers;  // their positions in `rows`
  std::vector<bool> newer(overlay->empty() ? 0 : rows.size());
  for (size_t i = 0; i < newer.size(); ++i) {
    if (!overlay->Touched(rows[i])) continue;
    touched.push_back(rows[i]);
    numbers.push_back(i);
  }
  if (!touched.empty()) {
    QUARRY_RETURN_IF_ERROR(overlay->Read(touched, [&](size_t i, std::span<const std::byte> value) {
      put(numbers[i], value);
      newer[numbers[i]] = true;
    }));
  }
  numbers.clear();
  std::vector<ByteRange> cells;
  cells.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!newer.empty() && newer[i]) continue;
    cells.push_back(file->CellRange(rows[i]));
    if (!newer.empty()) numbers.push_back(i);
  }
  return reader.Read(file->file(), file->block_bytes(), cells,
                     [&](size_t cell, std::span<const std::byte> bytes) -> Status {
                       const size_t i = newer.empty() ? cell : numbers[cell];
                       QUARRY_TRY(const std::span<const std::byte> row, file->RowIn(rows[i], bytes));
                       put(i, row);
                       return Status::Ok();
                     });
}

}  // namespace quarry
