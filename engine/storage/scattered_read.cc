#include "scattered_read.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "merged_read.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"

namespace quarry {

Status ReadScattered(IoBackend& backend, const FeatureTable& table, std::span<const uint64_t> rows,
                     const std::function<void(size_t, std::span<const std::byte>)>& put) {
  if (rows.empty()) return Status::Ok();
  std::vector<ByteRange> cells;
  cells.reserve(rows.size());
  for (const uint64_t row : rows) cells.push_back(table.CellRange(row));
  std::vector<MergedRead> reads;
  Coalesce(cells, {.block_bytes = table.block_bytes()}, reads);
  QUARRY_TRY(const IoBuffer staging,
             IoBuffer::Allocate(std::min<size_t>(kMergedReadDepth, reads.size()) * MergedReadBytes(reads)));
  QUARRY_TRY(const std::unique_ptr<IoRing> ring, IoRing::Make(backend, kMergedReadDepth));
  const auto take = [&](size_t i, std::span<const std::byte> cell) -> Status {
    QUARRY_TRY(const std::span<const std::byte> row, table.RowIn(rows[i], cell));
    put(i, row);
    return Status::Ok();
  };
  const Status status = ReadMerged(*ring, table.file(), cells, reads, staging.span(), take);
  ring->Drain();
  return status;
}

}  // namespace quarry
