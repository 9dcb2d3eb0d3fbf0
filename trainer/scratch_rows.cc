#include "scratch_rows.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/scratch_file.h"

namespace quarry {
namespace {

// What a device reads at full speed one by one.
constexpr uint64_t kBlockBytes = 1 * kMiB;

uint64_t RowsOfBlock(uint32_t dim) {
  return std::max<uint64_t>(1, kBlockBytes / (uint64_t{dim} * sizeof(float)));
}
uint64_t BytesOfBlock(uint64_t rows, uint32_t dim) {
  const uint64_t held = std::min(std::max<uint64_t>(rows, 1), RowsOfBlock(dim));
  return RoundUp(held * dim * sizeof(float), kPageBytes);
}

}  // namespace

uint64_t ScratchRows::Bytes(uint64_t rows, uint32_t dim) {
  return IoBuffer::MappedBytes(BytesOfBlock(rows, dim)) + CeilDiv(rows, RowsOfBlock(dim)) * sizeof(uint32_t);
}

ScratchRows::ScratchRows(IoBackend& backend, File file, IoBuffer block, uint64_t rows, uint32_t dim)
    : backend_(backend),
      file_(std::move(file)),
      rows_(rows),
      dim_(dim),
      block_rows_(RowsOfBlock(dim)),
      block_(std::move(block)) {
  checksums_.reserve(CeilDiv(rows, block_rows_));
}

Result<std::unique_ptr<ScratchRows>> ScratchRows::Make(IoBackend& backend, const std::string& folder,
                                                       uint64_t rows, uint32_t dim) {
  QUARRY_TRY(File file, OpenScratchFile(backend, folder + "/rows"));
  QUARRY_TRY(IoBuffer block, IoBuffer::Allocate(BytesOfBlock(rows, dim)));
  return std::unique_ptr<ScratchRows>(new ScratchRows(backend, std::move(file), std::move(block), rows, dim));
}

Status ScratchRows::Append(std::span<const float> values) {
  assert(values.size() % dim_ == 0 && appended_ + values.size() / dim_ <= rows_);
  auto* const block = reinterpret_cast<float*>(block_.data());
  while (!values.empty()) {
    const uint64_t begun = appended_ % block_rows_;
    const uint64_t count = std::min(values.size() / dim_, block_rows_ - begun);
    std::ranges::copy(values.first(count * dim_), block + begun * dim_);
    values = values.subspan(count * dim_);
    appended_ += count;
    if (appended_ % block_rows_ == 0 || appended_ == rows_) QUARRY_RETURN_IF_ERROR(Write());
  }
  return Status::Ok();
}

Status ScratchRows::Write() {
  const uint64_t number = checksums_.size();
  checksums_.push_back(CellChecksum(block_.span(), number));
  return backend_.WriteAt(file_, number * block_.size(), block_.span());
}

Status ScratchRows::Read(std::span<const RowId> ids, std::span<float> values) {
  assert(appended_ == rows_);
  const auto* const block = reinterpret_cast<const float*>(block_.data());
  for (size_t i = 0; i < ids.size(); i++) {
    const uint64_t number = ids[i] / block_rows_;
    if (number != held_) {
      held_ = ~uint64_t{0};
      const uint64_t offset = number * block_.size();
      QUARRY_RETURN_IF_ERROR(backend_.ReadAt(file_, offset, block_.span()));
      if (CellChecksum(block_.span(), number) != checksums_[number]) {
        return MakeStatus(Code::kCorruption, "{}: bytes [{}, {}) are not what was written there",
                          file_.path(), offset, offset + block_.size());
      }
      held_ = number;
    }
    const std::span row(block + ids[i] % block_rows_ * dim_, dim_);
    std::ranges::copy(row, values.begin() + static_cast<ptrdiff_t>(i * dim_));
  }
  return Status::Ok();
}

}  // namespace quarry
