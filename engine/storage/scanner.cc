#include "quarry/storage/scanner.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry {

Result<std::unique_ptr<FileScanner>> FileScanner::Make(IoBackend& backend, const File& file, uint64_t offset,
                                                       uint64_t bytes, uint64_t piece_bytes) {
  assert(offset % kPageBytes == 0 && piece_bytes % kPageBytes == 0 && piece_bytes > 0);
  const uint64_t padded_bytes = RoundUp(bytes, kPageBytes);
  piece_bytes = std::min(piece_bytes, std::max(padded_bytes, kPageBytes));
  const uint64_t slots = std::clamp<uint64_t>(CeilDiv(padded_bytes, piece_bytes), 1, kDepth);
  QUARRY_TRY(IoBuffer buffer, IoBuffer::Allocate(slots * piece_bytes));
  QUARRY_TRY(std::unique_ptr<IoRing> ring, IoRing::Make(backend, kDepth));
  std::unique_ptr<FileScanner> scanner(
      new FileScanner(file, std::move(ring), std::move(buffer), offset, offset + padded_bytes, piece_bytes));
  for (uint64_t piece = 0; piece < slots; ++piece) QUARRY_RETURN_IF_ERROR(scanner->Read(piece));
  return scanner;
}

FileScanner::FileScanner(const File& file, std::unique_ptr<IoRing> ring, IoBuffer buffer, uint64_t offset,
                         uint64_t end, uint64_t piece_bytes)
    : file_(file),
      offset_(offset),
      end_(end),
      piece_bytes_(piece_bytes),
      piece_count_(CeilDiv(end - offset, piece_bytes)),
      buffer_(std::move(buffer)),
      ring_(std::move(ring)) {}

FileScanner::~FileScanner() { ring_->Drain(); }

uint32_t FileScanner::PieceBytes(uint64_t piece) const {
  return static_cast<uint32_t>(std::min(piece_bytes_, end_ - offset_ - piece * piece_bytes_));
}

Status FileScanner::Read(uint64_t piece) {
  if (piece >= piece_count_) return Status::Ok();
  const ReadRequest request{.file = &file_,
                            .offset = offset_ + piece * piece_bytes_,
                            .bytes = PieceBytes(piece),
                            .buffer = buffer_.data() + piece % kDepth * piece_bytes_,
                            .user_data = piece};
  return ring_->Submit({&request, 1});
}

Result<std::span<const std::byte>> FileScanner::Next() {
  // The piece handed out last is no longer in use: its slot takes the piece kDepth further on.
  if (next_ > 0) QUARRY_RETURN_IF_ERROR(Read(next_ - 1 + kDepth));
  if (next_ >= piece_count_) {
    next_ = piece_count_ + 1;  // no more reads from here
    return std::span<const std::byte>();
  }
  const uint64_t slot = next_ % kDepth;
  while (!arrived_[slot]) {
    done_.clear();
    QUARRY_RETURN_IF_ERROR(ring_->Wait(done_));
    for (const uint64_t piece : done_) arrived_[piece % kDepth] = true;
  }
  arrived_[slot] = false;
  const std::span<const std::byte> bytes(buffer_.data() + slot * piece_bytes_, PieceBytes(next_));
  ++next_;
  return bytes;
}

}  // namespace quarry
