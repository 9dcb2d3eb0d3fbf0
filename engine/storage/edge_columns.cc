#include "quarry/storage/edge_columns.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string_view>
#include <utility>

#include "quarry/format/checksum.h"
#include "quarry/format/topology.h"

namespace quarry {
namespace {

constexpr uint64_t kPagesAheadMax = EdgeColumnReader::kPieceBytes / kPageBytes;

uint64_t ValueBytes(const Topology& topology, EdgeColumn column) {
  return column == EdgeColumn::kRelations ? RelationIdBytes(topology.relation_count()) : sizeof(uint32_t);
}

std::string_view SectionOf(Adjacency side, EdgeColumn column) {
  const TopologySections sections = SectionsOf(side);
  return column == EdgeColumn::kWeights ? sections.weights : sections.relations;
}

}  // namespace

RelationNarrower::RelationNarrower(uint64_t relation_count) : width_(RelationIdBytes(relation_count)) {}

// The CPU is little-endian, so that the low bytes come first.
std::span<const std::byte> RelationNarrower::Narrow(std::span<const uint32_t> relations) {
  bytes_.resize(relations.size() * width_);
  for (size_t i = 0; i < relations.size(); i++) std::memcpy(&bytes_[i * width_], &relations[i], width_);
  return bytes_;
}

uint64_t BaseColumn::ChecksumBytes(const Topology& topology, EdgeColumn column) {
  if (column == EdgeColumn::kNeighbors) return 0;  // the topology has them
  return CeilDiv(topology.base_edge_count() * ValueBytes(topology, column), kPageBytes) * sizeof(uint32_t);
}

Result<BaseColumn> BaseColumn::Open(IoBackend& backend, const Topology& topology, Adjacency side,
                                    EdgeColumn column) {
  BaseColumn opened;
  opened.topology_ = &topology;
  opened.side_ = side;
  opened.column_ = column;
  opened.value_bytes_ = ValueBytes(topology, column);
  opened.offset_ = topology.indices_offset(side);
  if (column == EdgeColumn::kNeighbors) return opened;
  QUARRY_TRY(const Section section, topology.data().Find(SectionOf(side, column), opened.bytes()));
  QUARRY_TRY(opened.checksums_, LoadChecksums(backend, topology.data(), section));
  opened.offset_ = section.offset;
  if (opened.checksums_.size() == CeilDiv(section.bytes, kPageBytes)) return opened;
  return MakeStatus(Code::kCorruption, "{}: footer: {} checksums for {} bytes of {}", topology.file().path(),
                    opened.checksums_.size(), section.bytes, section.name);
}

Status BaseColumn::VerifyPages(uint64_t page, std::span<const std::byte> bytes) const {
  for (; !bytes.empty(); ++page, bytes = bytes.subspan(kPageBytes)) {
    const std::span<const std::byte> one = bytes.first(kPageBytes);
    if (column_ == EdgeColumn::kNeighbors) {
      QUARRY_RETURN_IF_ERROR(topology_->VerifyIndexPage(side_, page, one));
      continue;
    }
    const uint32_t computed = CellChecksum(one, page);
    if (computed == checksums_[page]) continue;
    return ChecksumFault(topology_->data(), offset_ + page * kPageBytes,
                         fmt::format("page {} of {}", page, SectionOf(side_, column_)), checksums_[page],
                         computed);
  }
  return Status::Ok();
}

Result<std::span<const uint32_t>> BaseColumn::Values(uint64_t first, std::span<const std::byte> bytes,
                                                     std::vector<uint32_t>& room) const {
  const uint64_t count = bytes.size() / value_bytes_;
  std::span<const uint32_t> values(reinterpret_cast<const uint32_t*>(bytes.data()), count);
  if (column_ != EdgeColumn::kRelations) return values;
  if (value_bytes_ < sizeof(uint32_t)) {
    room.assign(count, 0);  // the upper bytes
    for (uint64_t i = 0; i < count; ++i) {
      std::memcpy(&room[i], bytes.data() + i * value_bytes_, value_bytes_);
    }
    values = room;
  }
  const auto strange = std::ranges::find_if(
      values, [&](uint32_t relation) { return relation >= topology_->relation_count(); });
  if (strange == values.end()) return values;
  return MakeStatus(Code::kCorruption, "{}: {}[{}] = {}, and there are {} relations",
                    topology_->file().path(), SectionOf(side_, column_),
                    first + static_cast<uint64_t>(strange - values.begin()), *strange,
                    topology_->relation_count());
}

std::span<const uint32_t> BaseColumn::added() const {
  if (column_ == EdgeColumn::kNeighbors) return edits().neighbors();
  if (column_ == EdgeColumn::kRelations) return edits().relations();
  const std::span<const float> weights = edits().weights();
  return {reinterpret_cast<const uint32_t*>(weights.data()), weights.size()};
}

Result<std::unique_ptr<EdgeColumnScanner>> EdgeColumnScanner::Make(IoBackend& backend,
                                                                   const Topology& topology, Adjacency side,
                                                                   EdgeColumn column, uint64_t piece_bytes) {
  QUARRY_TRY(BaseColumn base, BaseColumn::Open(backend, topology, side, column));
  std::unique_ptr<EdgeColumnScanner> made(new EdgeColumnScanner(std::move(base), topology.edge_count()));
  made->base_count_ = topology.base_edge_count();
  if (made->base_count_ > 0) {
    // Pieces of fewer bytes than a page would have no place in the file: those are of more edges than other columns' are.
    const uint64_t bytes = std::max(kPageBytes, piece_bytes / sizeof(uint32_t) * made->column_.value_bytes());
    QUARRY_TRY(made->scanner_, FileScanner::Make(backend, topology.file(), made->column_.offset(),
                                                 made->column_.bytes(), RoundUp(bytes, kPageBytes)));
  }
  if (!topology.edits(side).empty()) {
    made->merge_.emplace(topology.edits(side), made->column_.added(), 0, topology.edge_count());
  }
  return made;
}

// Empty behind the last.
Result<std::span<const uint32_t>> EdgeColumnScanner::NextBase() {
  if (base_done_ == base_count_) return std::span<const uint32_t>();
  QUARRY_TRY(const std::span<const std::byte> bytes, scanner_->Next());
  QUARRY_RETURN_IF_ERROR(column_.VerifyPages(base_done_ / column_.values_per_page(), bytes));
  const uint64_t count = std::min(bytes.size() / column_.value_bytes(), base_count_ - base_done_);
  const uint64_t first = std::exchange(base_done_, base_done_ + count);
  return column_.Values(first, bytes.first(count * column_.value_bytes()), widened_);
}

Result<std::span<const uint32_t>> EdgeColumnScanner::Next() {
  if (left_ == 0) return std::span<const uint32_t>();
  if (!merge_) {
    QUARRY_TRY(const std::span<const uint32_t> values, NextBase());
    left_ -= values.size();
    return values;
  }
  merged_.clear();
  while (merged_.empty()) {
    const uint64_t before = base_done_;
    QUARRY_TRY(std::span<const uint32_t> values, NextBase());
    if (values.empty()) {
      merge_->Finish(merged_);
      break;
    }
    const uint64_t skipped = merge_->base_position() - before;  // removed at the very front
    if (skipped < values.size()) merge_->Take(values.subspan(skipped), merged_);
  }
  left_ -= merged_.size();
  return std::span<const uint32_t>(merged_);
}

Result<std::unique_ptr<EdgeColumnReader>> EdgeColumnReader::Make(IoBackend& backend, const Topology& topology,
                                                                 Adjacency side, EdgeColumn column) {
  QUARRY_TRY(BaseColumn base, BaseColumn::Open(backend, topology, side, column));
  return std::unique_ptr<EdgeColumnReader>(new EdgeColumnReader(backend, topology, std::move(base)));
}

Status EdgeColumnReader::Load(uint64_t first_page, uint64_t page_count) {
  const uint64_t pages_end = CeilDiv(column_.bytes(), kPageBytes);
  // A window that follows the one before it closely is read further. What is skipped is no more than is read ahead.
  const bool follows = !window_.empty() && first_page >= window_page_ &&
                       first_page <= window_page_ + window_pages() + std::max<uint64_t>(2, pages_ahead_);
  pages_ahead_ = follows ? std::min(2 * pages_ahead_, kPagesAheadMax) : 1;
  if (!follows) scanner_.reset();
  if (scanner_ == nullptr && pages_ahead_ == kPagesAheadMax && first_page + kPagesAheadMax < pages_end) {
    const uint64_t from = std::max(first_page, window_page_ + window_pages());
    QUARRY_TRY(scanner_, FileScanner::Make(backend_, topology_.file(), column_.offset() + from * kPageBytes,
                                           (pages_end - from) * kPageBytes, kPieceBytes));
    scanned_page_ = from;
  }
  if (scanner_ != nullptr) return LoadAhead(first_page, page_count);
  return LoadAlone(first_page, std::min(std::max(page_count, pages_ahead_), pages_end - first_page));
}

Status EdgeColumnReader::LoadAlone(uint64_t first_page, uint64_t pages) {
  window_ = {};
  if (room_.size() < pages * kPageBytes) {
    QUARRY_TRY(room_, IoBuffer::Allocate(pages * kPageBytes));
  }
  const std::span<std::byte> bytes = room_.span().first(pages * kPageBytes);
  QUARRY_RETURN_IF_ERROR(
      backend_.ReadAt(topology_.file(), column_.offset() + first_page * kPageBytes, bytes));
  QUARRY_RETURN_IF_ERROR(column_.VerifyPages(first_page, bytes));
  window_ = bytes;
  window_page_ = first_page;
  return Status::Ok();
}

// Pages behind those that are kept, the first bytes of room_.
Status EdgeColumnReader::Keep(std::span<const std::byte> pages, uint64_t kept_bytes) {
  const uint64_t bytes = kept_bytes + pages.size();
  if (room_.size() < bytes) {
    QUARRY_TRY(IoBuffer larger, IoBuffer::Allocate(std::max(bytes, 2 * kPieceBytes)));
    std::memcpy(larger.data(), room_.data(), kept_bytes);
    if (!pages.empty()) std::memcpy(larger.data() + kept_bytes, pages.data(), pages.size());
    room_ = std::move(larger);
  } else if (!pages.empty()) {
    std::memmove(room_.data() + kept_bytes, pages.data(), pages.size());
  }
  return Status::Ok();
}

// A list that lies across pieces is put together in room_; the others are read where the scanner has them.
Status EdgeColumnReader::LoadAhead(uint64_t first_page, uint64_t page_count) {
  uint64_t kept = 0;  // pages from first_page on, in room_
  if (first_page >= window_page_ && first_page < window_page_ + window_pages()) {
    const std::span<const std::byte> rest = window_.subspan((first_page - window_page_) * kPageBytes);
    QUARRY_RETURN_IF_ERROR(Keep(rest, 0));
    kept = rest.size() / kPageBytes;
  }
  window_ = {};
  while (kept < page_count) {
    QUARRY_TRY(std::span<const std::byte> piece, scanner_->Next());
    assert(!piece.empty());
    const uint64_t begin = std::exchange(scanned_page_, scanned_page_ + piece.size() / kPageBytes);
    if (scanned_page_ <= first_page) continue;
    QUARRY_RETURN_IF_ERROR(column_.VerifyPages(begin, piece));
    if (kept == 0 && first_page + page_count <= scanned_page_) {
      window_ = piece;
      window_page_ = begin;
      return Status::Ok();
    }
    const uint64_t skipped = begin < first_page ? first_page - begin : 0;
    QUARRY_RETURN_IF_ERROR(Keep(piece.subspan(skipped * kPageBytes), kept * kPageBytes));
    kept = scanned_page_ - first_page;
  }
  window_ = room_.span().first(kept * kPageBytes);
  window_page_ = first_page;
  return Status::Ok();
}

Result<std::span<const uint32_t>> EdgeColumnReader::Read(uint64_t first, uint64_t end) {
  const EdgeEdits& edits = column_.edits();
  values_.clear();
  if (first == end) return std::span<const uint32_t>();
  const uint64_t base_first = edits.BaseAt(first),
                 base_end = std::min(edits.BaseAt(end), topology_.base_edge_count());
  std::span<const uint32_t> base;
  if (base_first < base_end) {
    const uint64_t per_page = column_.values_per_page();
    const uint64_t first_page = base_first / per_page, end_page = CeilDiv(base_end, per_page);
    if (first_page < window_page_ || end_page > window_page_ + window_pages()) {
      QUARRY_RETURN_IF_ERROR(Load(first_page, end_page - first_page));
    }
    const uint64_t width = column_.value_bytes();
    QUARRY_TRY(base, column_.Values(base_first,
                                    window_.subspan((base_first - window_page_ * per_page) * width,
                                                    (base_end - base_first) * width),
                                    widened_));
  }
  if (edits.empty()) return base;
  EdgeEdits::Merge merge(edits, column_.added(), first, end);
  merge.Take(base, values_);
  merge.Finish(values_);
  assert(values_.size() == end - first);
  return std::span<const uint32_t>(values_);
}

}  // namespace quarry
