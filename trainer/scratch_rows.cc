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

uint64_t BytesOfBlock(uint64_t rows, uint32_t dim, uint64_t block_bytes) {
  const uint64_t held = std::min(std::max<uint64_t>(rows, 1), ScratchRows::BlockRows(dim, block_bytes));
  return RoundUp(held * dim * sizeof(float), kPageBytes);
}

}  // namespace

uint64_t ScratchRows::BlockRows(uint32_t dim, uint64_t block_bytes) {
  return std::max<uint64_t>(1, block_bytes / (uint64_t{dim} * sizeof(float)));
}

uint64_t ScratchRows::Bytes(uint64_t rows, uint32_t dim, uint64_t block_bytes) {
  return IoBuffer::MappedBytes(BytesOfBlock(rows, dim, block_bytes)) +
         CeilDiv(rows, BlockRows(dim, block_bytes)) * sizeof(uint32_t);
}

ScratchRows::ScratchRows(IoBackend& backend, File file, IoBuffer block, uint64_t rows, uint32_t dim,
                         uint64_t block_rows)
    : backend_(backend),
      file_(std::move(file)),
      rows_(rows),
      dim_(dim),
      block_rows_(block_rows),
      block_(std::move(block)) {
  checksums_.reserve(CeilDiv(rows, block_rows_));
}

Result<std::unique_ptr<ScratchRows>> ScratchRows::Make(IoBackend& backend, const std::string& folder,
                                                       uint64_t rows, uint32_t dim, uint64_t block_bytes) {
  QUARRY_TRY(File file, OpenScratchFile(backend, folder + "/rows"));
  QUARRY_TRY(IoBuffer block, IoBuffer::Allocate(BytesOfBlock(rows, dim, block_bytes)));
  return std::unique_ptr<ScratchRows>(
      new ScratchRows(backend, std::move(file), std::move(block), rows, dim, BlockRows(dim, block_bytes)));
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

Status ScratchRows::Hold(uint64_t number) {
  assert(appended_ == rows_);
  if (number == held_) return Status::Ok();
  held_ = ~uint64_t{0};
  const uint64_t offset = number * block_.size();
  QUARRY_RETURN_IF_ERROR(backend_.ReadAt(file_, offset, block_.span()));
  read_bytes_ += block_.size();
  if (CellChecksum(block_.span(), number) != checksums_[number]) {
    return MakeStatus(Code::kCorruption, "{}: bytes [{}, {}) are not what was written there", file_.path(),
                      offset, offset + block_.size());
  }
  held_ = number;
  return Status::Ok();
}

Status ScratchRows::Read(std::span<const RowId> ids, std::span<float> values) {
  for (size_t i = 0; i < ids.size(); i++)
    QUARRY_RETURN_IF_ERROR(Read(ids[i], values.subspan(i * dim_, dim_)));
  return Status::Ok();
}

Status ScratchRows::Read(RowId first, std::span<float> values) {
  const auto* const block = reinterpret_cast<const float*>(block_.data());
  while (!values.empty()) {
    QUARRY_RETURN_IF_ERROR(Hold(first / block_rows_));
    const uint64_t at = first % block_rows_;
    const uint64_t count = std::min(values.size() / dim_, block_rows_ - at);
    std::copy_n(block + at * dim_, count * dim_, values.begin());
    values = values.subspan(count * dim_);
    first += count;
  }
  return Status::Ok();
}

}  // namespace quarry
