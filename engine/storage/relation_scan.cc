#include "quarry/storage/relation_scan.h"

#include <algorithm>
#include <cassert>

#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr uint64_t kScanPieceBytes = 64 * kKiB;

}  // namespace

Result<RelationScan> RelationScan::Open(IoBackend& backend, MemoryBudget& budget, const Topology& topology) {
  RelationScan scan;
  if (topology.relation_count() <= 1) return scan;
  QUARRY_TRY(scan.reservation_,
             budget.Reserve(IoBuffer::MappedBytes(EdgeColumnScanner::MemoryBytes(kScanPieceBytes)) +
                                BaseColumn::ChecksumBytes(topology, EdgeColumn::kRelations),
                            "reading the relations of a topology"));
  QUARRY_TRY(scan.scanner_, EdgeColumnScanner::Make(backend, topology, Adjacency::kCsc,
                                                    EdgeColumn::kRelations, kScanPieceBytes));
  return scan;
}

Status RelationScan::Read(std::span<uint32_t> out) {
  if (scanner_ == nullptr) std::ranges::fill(out, 0);
  while (scanner_ != nullptr && !out.empty()) {
    if (piece_.empty()) {
      QUARRY_TRY(piece_, scanner_->Next());
      assert(!piece_.empty());
    }
    const size_t count = std::min(piece_.size(), out.size());
    std::ranges::copy(piece_.first(count), out.begin());
    piece_ = piece_.subspan(count);
    out = out.subspan(count);
  }
  return Status::Ok();
}

}  // namespace quarry
