#include "quarry/storage/relation_scan.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kRelationPieceBytes = 64 * kKiB;

}  // namespace

Result<RelationScan> RelationScan::Open(Store& store, MemoryBudget& budget, const TopologyRecord& record) {
  RelationScan scan;
  scan.relation_count_ = record.relation_count;
  QUARRY_TRY(scan.values_, EdgeValues::OpenRelations(store, budget, record, Adjacency::kCsc));
  if (scan.values_ == nullptr) return scan;
  QUARRY_TRY(scan.reservation_,
             budget.Reserve(IoBuffer::MappedBytes(FileScanner::kDepth * kRelationPieceBytes),
                            "reading the relations of a topology"));
  QUARRY_TRY(scan.scanner_, FileScanner::Make(store.backend(), scan.values_->file(), scan.values_->offset(),
                                              scan.values_->bytes(), kRelationPieceBytes));
  return scan;
}

Status RelationScan::Read(std::span<uint32_t> out) {
  std::ranges::fill(out, 0);
  if (values_ == nullptr) return Status::Ok();
  const uint64_t width = values_->value_bytes();
  for (uint32_t& relation : out) {
    if (piece_.empty()) {
      QUARRY_TRY(piece_, scanner_->Next());
      QUARRY_RETURN_IF_ERROR(values_->VerifyPages(next_page_, piece_));
      next_page_ += piece_.size() / kPageBytes;
    }
    std::memcpy(&relation, piece_.data(), width);
    piece_ = piece_.subspan(width);
    if (relation >= relation_count_) {
      return MakeStatus(Code::kCorruption, "{}: {}: relation {}, and there are {}", values_->file().path(),
                        values_->name(), relation, relation_count_);
    }
  }
  return Status::Ok();
}

}  // namespace quarry
