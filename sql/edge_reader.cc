#include "edge_reader.h"

#include <algorithm>
#include <cstring>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"

namespace quarry::sql {
namespace {

constexpr uint64_t kBatchEdgesMax = 256 << 10;
constexpr uint64_t kBatchPagesMax = 1024;  // short, scattered lists take a page each
constexpr uint64_t kRangePages = 64;       // read as one range

}  // namespace

Result<std::unique_ptr<EdgeReader>> EdgeReader::Make(Session& session, Adjacency side, IdSet owners,
                                                     EdgeParts parts) {
  QUARRY_TRY(const Topology* const topology, session.OpenTopology());
  std::unique_ptr<EdgeReader> reader(new EdgeReader(session, *topology, side, std::move(owners)));
  if (parts.relations) {
    QUARRY_TRY(reader->relations_, session.OpenRelations(side));
  }
  if (parts.weights) {
    QUARRY_TRY(reader->weights_, session.OpenWeights(side));
  }
  // A batch may begin and end within a page, and its last list may be as long as all of them.
  const uint64_t bytes = (kBatchPagesMax + kBatchEdgesMax * sizeof(NodeId) / kPageBytes + 2) * kPageBytes;
  const int sections = 1 + (reader->relations_ != nullptr ? 1 : 0) + (reader->weights_ != nullptr ? 1 : 0);
  QUARRY_TRY(reader->reservation_,
             session.budget().Reserve(static_cast<uint64_t>(sections) * bytes, "reading edges"));
  reader->indices_.file = &topology->file();
  reader->indices_.block_bytes = topology->block_bytes();
  reader->indices_.offset = topology->indices_offset(side);
  reader->indices_.entry_bytes = sizeof(NodeId);
  return reader;
}

void EdgeReader::PlanBatch() {
  const std::span<const uint64_t> indptr = topology_.indptr(side_);
  constexpr uint64_t kEdgesPerPage = kPageBytes / sizeof(NodeId);
  runs_.clear();
  uint64_t edges = 0, pages = 0;
  while (planned_owner_ < owners_.size() && edges < kBatchEdgesMax && pages < kBatchPagesMax) {
    const uint64_t id = owners_[planned_owner_];
    const uint64_t first = std::max(planned_edge_, indptr[id]);
    const uint64_t end = std::min(indptr[id + 1], first + kBatchEdgesMax - edges);
    if (first < end) {
      pages += (end - 1) / kEdgesPerPage - first / kEdgesPerPage;
      if (!runs_.empty() && runs_.back().end == first) {
        runs_.back().end = end;
      } else {
        runs_.push_back({first, end});
        ++pages;
      }
      edges += end - first;
    }
    planned_edge_ = end;
    if (end == indptr[id + 1]) {
      ++planned_owner_;
      planned_edge_ = 0;
    }
  }
}

Status EdgeReader::LoadPages(Pages& pages, const Verify& verify) {
  const uint64_t entries_per_page = kPageBytes / pages.entry_bytes;
  pages.places.clear();
  std::vector<uint64_t> numbers;  // page numbers, in order
  for (const Run& run : runs_) {
    const uint64_t first = run.first / entries_per_page;
    const uint64_t last = (run.end - 1) / entries_per_page;
    const bool shared = !numbers.empty() && numbers.back() == first;  // two runs may meet on a page
    const uint64_t at = numbers.size() - (shared ? 1 : 0);
    pages.places.push_back(at * entries_per_page + run.first % entries_per_page);
    for (uint64_t page = shared ? first + 1 : first; page <= last; ++page) numbers.push_back(page);
  }
  pages.bytes.resize(numbers.size() * kPageBytes);
  std::vector<ByteRange> ranges;
  std::vector<size_t> firsts;  // each range's first page, in `numbers`
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool follows = i > 0 && numbers[i] == numbers[i - 1] + 1;
    if (follows && ranges.back().bytes < kRangePages * kPageBytes) {
      ranges.back().bytes += kPageBytes;
    } else {
      ranges.push_back({pages.offset + numbers[i] * kPageBytes, kPageBytes});
      firsts.push_back(i);
    }
  }
  return session_.reader().Read(
      *pages.file, pages.block_bytes, ranges, [&](size_t i, std::span<const std::byte> bytes) -> Status {
        QUARRY_RETURN_IF_ERROR(verify(numbers[firsts[i]], bytes));
        std::memcpy(pages.bytes.data() + firsts[i] * kPageBytes, bytes.data(), bytes.size());
        return Status::Ok();
      });
}

Status EdgeReader::LoadValues(const EdgeValues& values, Pages& pages) {
  pages.file = &values.file();
  pages.block_bytes = values.block_bytes();
  pages.offset = values.offset();
  pages.entry_bytes = values.value_bytes();
  return LoadPages(pages, [&values](uint64_t first_page, std::span<const std::byte> bytes) {
    return values.VerifyPages(first_page, bytes);
  });
}

Status EdgeReader::LoadBatch() {
  QUARRY_RETURN_IF_ERROR(session_.Look());
  PlanBatch();
  run_ = 0;
  if (runs_.empty()) return Status::Ok();
  edge_ = runs_.front().first;
  QUARRY_RETURN_IF_ERROR(LoadPages(indices_, [&](uint64_t page, std::span<const std::byte> bytes) -> Status {
    for (; !bytes.empty(); ++page, bytes = bytes.subspan(kPageBytes)) {
      QUARRY_RETURN_IF_ERROR(topology_.VerifyIndexPage(side_, page, bytes.first(kPageBytes)));
    }
    return Status::Ok();
  }));
  if (relations_ != nullptr) QUARRY_RETURN_IF_ERROR(LoadValues(*relations_, relation_pages_));
  return weights_ != nullptr ? LoadValues(*weights_, weight_pages_) : Status::Ok();
}

Result<bool> EdgeReader::Next() {
  if (run_ == runs_.size()) {
    QUARRY_RETURN_IF_ERROR(LoadBatch());
    if (runs_.empty()) return false;
  }
  const std::span<const uint64_t> indptr = topology_.indptr(side_);
  const NodeId last_neighbor = neighbor_;
  const uint64_t last_owner = owner_;
  while (edge_ >= indptr[owners_[owner_] + 1]) ++owner_;
  const uint64_t in_run = edge_ - runs_[run_].first;
  const auto take = [&](const Pages& pages, void* value) {
    std::memcpy(value, pages.bytes.data() + (pages.places[run_] + in_run) * pages.entry_bytes,
                pages.entry_bytes);
  };
  take(indices_, &neighbor_);
  relation_ = 0;  // its upper bytes
  if (relations_ != nullptr) take(relation_pages_, &relation_);
  if (weights_ != nullptr) take(weight_pages_, &weight_.emplace());
  ordinal_ = owner_ == last_owner && neighbor_ == last_neighbor ? ordinal_ + 1 : 0;
  if (++edge_ == runs_[run_].end && ++run_ < runs_.size()) edge_ = runs_[run_].first;
  return true;
}

}  // namespace quarry::sql
