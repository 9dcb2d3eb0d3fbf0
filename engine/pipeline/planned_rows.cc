// PlannedStream: rows of a batch that did not come with its chunk, and what those that did lack.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "planned_stream.h"
#include "quarry/base/trace.h"

namespace quarry {
namespace {

constexpr unsigned kSegmentDepth = 64;

}  // namespace

// What did not come with the chunk.
Status PlannedStream::ReadRows(PlannedFrame& frame) {
  const ScopedSpan span("read rows", frame.number);
  if (!directory_.packed) return ReadTableRows(frame.planned.frame_nodes, frame.places);
  if (!frame.planned.segment_places.empty()) QUARRY_RETURN_IF_ERROR(ReadSegmentRows(frame));
  return CompleteRows(frame.planned.frame_nodes, frame.places);
}

// What the layout's rows of `nodes`, in these places, lack: columns that are joined, and what is newer.
Status PlannedStream::CompleteRows(std::span<const NodeId> nodes, std::span<const uint32_t> places) {
  const JoinedColumns* const joined = state_.rows->joined();
  for (uint32_t i = 0; joined != nullptr && i < nodes.size(); ++i) {
    joined->Write(nodes[i], state_.Row(places[i]) + directory_.row_bytes);
  }
  for (const RowSource& source : state_.rows->sources()) {
    if (!source.overlay->empty()) QUARRY_RETURN_IF_ERROR(CompleteRowsOf(source, nodes, places));
  }
  return Status::Ok();
}

Status PlannedStream::CompleteRowsOf(const RowSource& source, std::span<const NodeId> nodes,
                                     std::span<const uint32_t> places) {
  std::vector<std::pair<uint64_t, uint32_t>> touched;  // row, place
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const auto range = std::ranges::upper_bound(source.nodes, uint64_t{nodes[i]}, {}, &NodeTypes::Range::end);
    if (range == source.nodes.end() || nodes[i] < range->first) continue;
    if (const uint64_t row = range->RowOf(nodes[i]); source.overlay->Touched(row)) {
      touched.emplace_back(row, places[i]);
    }
  }
  std::ranges::sort(touched);
  std::vector<uint64_t> rows;
  rows.reserve(touched.size());
  for (const auto& [row, place] : touched) rows.push_back(row);
  return source.overlay->Read(rows, [&](size_t i, std::span<const std::byte> value) {
    std::memcpy(state_.Row(touched[i].second), value.data(), value.size());
  });
}

// Rows that are not packed, into these places, by merged requests in the order of the tables.
Status PlannedStream::ReadTableRows(std::span<const NodeId> nodes, std::span<const uint32_t> places) {
  table_positions_.resize(nodes.size());
  std::iota(table_positions_.begin(), table_positions_.end(), 0U);
  LoadStats load;
  const Status status = state_.extractor->Load({state_.arena.data(), directory_.row_stride, {}}, nodes,
                                               places, table_positions_, cancelled_, load);
  MutexLock lock(mutex_);
  stats_.feature_bytes_read += load.bytes;
  stats_.read_requests += load.requests;
  return status;
}

// Rows of the segment's cache: its pages by merged requests, each row verified and copied to its frame row.
//
// One ring of this depth reads them, where DiskGNN has four threads with a ring each: one ring reaches 0.9 of
// fio's request rate (docs/benchmarks.md).
Status PlannedStream::ReadSegmentRows(PlannedFrame& frame) {
  const BatchEntry& entry = directory_.batches[frame.number];
  const SegmentEntry& segment = directory_.segments[entry.segment];
  const std::vector<uint32_t>& places = frame.planned.segment_places;
  if (places.back() >= segment.rows) {
    return MakeStatus(Code::kCorruption, "{}: batch {} wants row {} of a segment of {}",
                      state_.layout->file().path(), frame.number, places.back(), segment.rows);
  }
  if (segment_ring_ == nullptr) {
    QUARRY_TRY(segment_ring_, IoRing::Make(*state_.backend, kSegmentDepth));
  }
  const uint64_t stride = directory_.row_stride;
  reads_.clear();
  PlanSegmentReads(segment.offset, stride, places, state_.gap_bytes_max, ranges_, reads_);
  uint64_t largest = 0, bytes = 0;
  for (const MergedRead& read : reads_) {
    largest = std::max<uint64_t>(largest, read.bytes);
    bytes += read.bytes;
  }
  const uint64_t pieces = state_.staging.size() / largest;
  if (pieces == 0) {
    return MakeStatus(Code::kInternal, "a read of {} bytes exceeds the staging of {}", largest,
                      state_.staging.size());
  }
  std::vector<uint32_t> idle, read_of(pieces), parts_left(pieces);
  for (uint32_t piece = 0; piece < pieces; ++piece) idle.push_back(piece);
  std::vector<uint64_t> done;
  // A read of a patched layout may consist of several parts.
  const auto submit = [&](const MergedRead& read, uint32_t piece) -> Status {
    std::byte* const to = state_.staging.data() + piece * largest;
    for (uint64_t at = 0; at < read.bytes; ++parts_left[piece]) {
      const Layout::Part part = state_.layout->Locate(read.offset + at, read.bytes - at);
      const ReadRequest request{part.file, part.offset, static_cast<uint32_t>(part.bytes), to + at, piece};
      QUARRY_RETURN_IF_ERROR(segment_ring_->Submit({&request, 1}));
      at += part.bytes;
    }
    return Status::Ok();
  };
  const auto run = [&]() -> Status {
    for (size_t next = 0; next < reads_.size() || segment_ring_->pending() > 0;) {
      if (cancelled_) return Status(Code::kCancelled, "the stream was given up");
      for (; next < reads_.size() && !idle.empty(); ++next) {
        const uint32_t piece = idle.back();
        idle.pop_back();
        read_of[piece] = static_cast<uint32_t>(next);
        QUARRY_RETURN_IF_ERROR(submit(reads_[next], piece));
      }
      done.clear();
      QUARRY_RETURN_IF_ERROR(segment_ring_->Wait(done));
      for (const uint64_t piece : done) {
        if (--parts_left[piece] > 0) continue;
        const MergedRead& read = reads_[read_of[piece]];
        const std::byte* const from = state_.staging.data() + piece * largest;
        QUARRY_RETURN_IF_ERROR(state_.layout->VerifyPages(read.offset, {from, read.bytes}));
        for (uint32_t i = read.first; i < read.first + read.count; ++i) {
          const uint64_t offset = segment.offset + places[i] * stride - read.offset;
          std::memcpy(frame.rows + (frame.planned.chunk_rows + uint64_t{i}) * stride, from + offset, stride);
        }
        idle.push_back(static_cast<uint32_t>(piece));
      }
    }
    return Status::Ok();
  };
  const Status status = run();
  if (!status.ok()) {
    segment_ring_->Drain();
    segment_ring_.reset();
  }
  MutexLock lock(mutex_);
  stats_.feature_bytes_read += bytes;
  stats_.read_requests += reads_.size();
  return status;
}

}  // namespace quarry
