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
// So many edges ahead a neighbor is expected to be looked up: a join takes a microsecond for them, and memory a
// tenth of it.
constexpr uint64_t kExpectedAhead = 8;

}  // namespace

template <typename Function>
Status EdgeReader::ForEachPart(Function&& function) {
  QUARRY_RETURN_IF_ERROR(function(neighbors_));
  if (has_relations_) QUARRY_RETURN_IF_ERROR(function(relations_));
  return has_weights_ ? function(weights_) : Status::Ok();
}

Result<std::unique_ptr<EdgeReader>> EdgeReader::Open(Session& session, Adjacency side, EdgeParts parts) {
  QUARRY_TRY(const Topology* const topology, session.OpenTopology());
  std::unique_ptr<EdgeReader> reader(new EdgeReader(session, *topology, side));
  QUARRY_TRY(reader->by_relation_, session.TellsRelationsApart());
  const auto use_values = [](const EdgeValues* values, Part& part) {
    if (values == nullptr) return false;
    part.entry_bytes = values->value_bytes();
    part.section = {.file = &values->file(),
                    .block_bytes = values->block_bytes(),
                    .offset = values->offset(),
                    .bytes = RoundUp(values->bytes(), kPageBytes),
                    .verify = [values](uint64_t page, std::span<const std::byte> bytes) {
                      return values->VerifyPages(page, bytes);
                    }};
    return true;
  };
  if (parts.relations) {
    QUARRY_TRY(const EdgeValues* const relations, session.OpenRelations(side));
    reader->has_relations_ = use_values(relations, reader->relations_);
  }
  if (parts.weights) {
    QUARRY_TRY(const EdgeValues* const weights, session.OpenWeights(side));
    reader->has_weights_ = use_values(weights, reader->weights_);
  }
  reader->neighbors_.entry_bytes = sizeof(NodeId);
  reader->neighbors_.section = {
      .file = &topology->file(),
      .block_bytes = topology->block_bytes(),
      .offset = topology->indices_offset(side),
      .bytes = RoundUp(topology->BaseIndicesBytes(), kPageBytes),
      .verify = [topology, side](uint64_t page, std::span<const std::byte> bytes) -> Status {
        for (; !bytes.empty(); ++page, bytes = bytes.subspan(kPageBytes)) {
          QUARRY_RETURN_IF_ERROR(topology->VerifyIndexPage(side, page, bytes.first(kPageBytes)));
        }
        return Status::Ok();
      }};
  if (topology->edits(side).empty()) return reader;
  QUARRY_TRY(reader->neighbors_.edited,
             EdgeColumnReader::Make(session.store().backend(), *topology, side, EdgeColumn::kNeighbors));
  if (reader->has_relations_) {
    reader->relations_.entry_bytes = sizeof(uint32_t);
    QUARRY_TRY(reader->relations_.edited,
               EdgeColumnReader::Make(session.store().backend(), *topology, side, EdgeColumn::kRelations));
  }
  if (reader->has_weights_) {
    QUARRY_TRY(reader->weights_.edited,
               EdgeColumnReader::Make(session.store().backend(), *topology, side, EdgeColumn::kWeights));
  }
  return reader;
}

Result<std::unique_ptr<EdgeReader>> EdgeReader::Make(Session& session, Adjacency side, IdSet owners,
                                                     EdgeParts parts) {
  QUARRY_TRY(std::unique_ptr<EdgeReader> reader, Open(session, side, parts));
  reader->owners_ = std::move(owners);
  // A batch may begin and end within a page, and its last list may be as long as all of them.
  const uint64_t bytes = (kBatchPagesMax + kBatchEdgesMax * sizeof(NodeId) / kPageBytes + 2) * kPageBytes;
  const int sections = 1 + (reader->has_relations_ ? 1 : 0) + (reader->has_weights_ ? 1 : 0);
  const uint64_t edited_bytes = reader->neighbors_.edited != nullptr ? EdgeColumnReader::kMemoryBytes : 0;
  QUARRY_TRY(
      reader->reservation_,
      session.budget().Reserve(static_cast<uint64_t>(sections) * (bytes + edited_bytes), "reading edges"));
  return reader;
}

Result<std::unique_ptr<EdgeReader>> EdgeReader::MakeLookup(Session& session, Adjacency side,
                                                           EdgeParts parts) {
  QUARRY_TRY(std::unique_ptr<EdgeReader> reader, Open(session, side, parts));
  // Pages that are kept are those of the file.
  if (reader->neighbors_.edited != nullptr) return std::unique_ptr<EdgeReader>();
  bool has_room = true;
  int id = side == Adjacency::kCsc ? 0 : 3;  // of the part's pages in the session
  QUARRY_RETURN_IF_ERROR(reader->ForEachPart([&](Part& part) -> Status {
    const int part_id = &part == &reader->neighbors_ ? 0 : &part == &reader->relations_ ? 1 : 2;
    QUARRY_TRY(part.cache, session.OpenPages(id + part_id, part.section));
    has_room &= part.cache != nullptr;
    return Status::Ok();
  }));
  if (!has_room) reader.reset();
  if (reader != nullptr) reader->is_lookup_ = true;
  return reader;
}

void EdgeReader::Seek(uint64_t owner) {
  owners_ = IdSet::Range(owner, owner + 1);
  edge_ = stop_ = indptr_[owner];
  list_end_ = indptr_[owner + 1];
  neighbor_ = kNoNode;
}

void EdgeReader::SeekNone() { edge_ = stop_ = list_end_ = 0; }

void EdgeReader::PlanBatch() {
  constexpr uint64_t kEdgesPerPage = kPageBytes / sizeof(NodeId);
  runs_.clear();
  uint64_t edges = 0, pages = 0;
  while (planned_owner_ < owners_.size() && edges < kBatchEdgesMax && pages < kBatchPagesMax) {
    const uint64_t id = owners_[planned_owner_];
    const uint64_t first = std::max(planned_edge_, indptr_[id]);
    const uint64_t end = std::min(indptr_[id + 1], first + kBatchEdgesMax - edges);
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
    if (end == indptr_[id + 1]) {
      ++planned_owner_;
      planned_edge_ = 0;
    }
  }
}

Status EdgeReader::LoadEdited(Part& part) {
  part.places.clear();
  part.bytes.clear();
  for (const Run& run : runs_) {
    QUARRY_TRY(const std::span<const uint32_t> values, part.edited->Read(run.first, run.end));
    part.places.push_back(part.bytes.size() / part.entry_bytes);
    const auto bytes = std::as_bytes(values);
    part.bytes.insert(part.bytes.end(), bytes.begin(), bytes.end());
  }
  return Status::Ok();
}

Status EdgeReader::LoadPages(Part& part) {
  if (part.edited != nullptr) return LoadEdited(part);
  const uint64_t entries_per_page = kPageBytes / part.entry_bytes;
  part.places.clear();
  std::vector<uint64_t> numbers;  // page numbers, in order
  for (const Run& run : runs_) {
    const uint64_t first = run.first / entries_per_page;
    const uint64_t last = (run.end - 1) / entries_per_page;
    const bool shared = !numbers.empty() && numbers.back() == first;  // two runs may meet on a page
    const uint64_t at = numbers.size() - (shared ? 1 : 0);
    part.places.push_back(at * entries_per_page + run.first % entries_per_page);
    for (uint64_t page = shared ? first + 1 : first; page <= last; ++page) numbers.push_back(page);
  }
  part.bytes.resize(numbers.size() * kPageBytes);
  std::vector<ByteRange> ranges;
  std::vector<size_t> firsts;  // each range's first page, in `numbers`
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool follows = i > 0 && numbers[i] == numbers[i - 1] + 1;
    if (follows && ranges.back().bytes < kRangePages * kPageBytes) {
      ranges.back().bytes += kPageBytes;
    } else {
      ranges.push_back({part.section.offset + numbers[i] * kPageBytes, kPageBytes});
      firsts.push_back(i);
    }
  }
  const PageSection& section = part.section;
  return session_.reader().Read(
      *section.file, section.block_bytes, ranges, [&](size_t i, std::span<const std::byte> bytes) -> Status {
        QUARRY_RETURN_IF_ERROR(section.verify(numbers[firsts[i]], bytes));
        std::memcpy(part.bytes.data() + firsts[i] * kPageBytes, bytes.data(), bytes.size());
        return Status::Ok();
      });
}

Status EdgeReader::LoadBatch() {
  QUARRY_RETURN_IF_ERROR(session_.Look());
  PlanBatch();
  run_ = 0;
  if (runs_.empty()) return Status::Ok();
  return ForEachPart([this](Part& part) { return LoadPages(part); });
}

Result<bool> EdgeReader::NextRun() {
  if (runs_.empty() || ++run_ == runs_.size()) {
    QUARRY_RETURN_IF_ERROR(LoadBatch());
    if (runs_.empty()) return false;
  }
  edge_ = runs_[run_].first;
  stop_ = known_end_ = runs_[run_].end;
  QUARRY_RETURN_IF_ERROR(ForEachPart([this](Part& part) {
    part.at = part.bytes.data() + part.places[run_] * part.entry_bytes;
    return Status::Ok();
  }));
  return true;
}

// Goes on in the list as far as the pieces reach that have its next edge.
Status EdgeReader::FindPieces() {
  stop_ = list_end_;
  return ForEachPart([this](Part& part) -> Status {
    if (edge_ < part.piece_edges.first || edge_ >= part.piece_edges.end) {
      const uint64_t per_piece = PageCache::kPieceBytes / part.entry_bytes;
      const uint64_t number = edge_ / per_piece;
      QUARRY_TRY(part.piece, part.cache->Get(session_.reader(), number));
      part.piece_edges = {number * per_piece, (number + 1) * per_piece};
    }
    part.at = part.piece.get() + (edge_ - part.piece_edges.first) * part.entry_bytes;
    stop_ = std::min(stop_, part.piece_edges.end);
    return Status::Ok();
  });
}

Result<bool> EdgeReader::NextStretch() {
  if (!is_lookup_) return NextRun();
  if (edge_ == list_end_) return false;
  QUARRY_RETURN_IF_ERROR(FindPieces());
  known_end_ = std::min(neighbors_.piece_edges.end, topology_.edge_count());
  return true;
}

Result<bool> EdgeReader::Next() {
  if (edge_ == stop_) {
    QUARRY_TRY(const bool more, NextStretch());
    if (!more) return false;
  }
  const NodeId last_neighbor = neighbor_;
  const uint64_t last_owner = owner_;
  const uint32_t last_relation = relation_;
  while (edge_ >= indptr_[owners_[owner_] + 1]) ++owner_;
  const auto take = [](Part& part, void* value) {
    std::memcpy(value, part.at, part.entry_bytes);
    part.at += part.entry_bytes;
  };
  std::memcpy(&neighbor_, neighbors_.at, sizeof(NodeId));
  if (edge_ + kExpectedAhead < known_end_) {
    NodeId expected = 0;
    std::memcpy(&expected, neighbors_.at + kExpectedAhead * sizeof(NodeId), sizeof(NodeId));
    session_.ExpectNode(expected);
  }
  neighbors_.at += sizeof(NodeId);
  relation_ = 0;  // its upper bytes
  if (has_relations_) take(relations_, &relation_);
  if (has_weights_) take(weights_, &weight_.emplace());
  const bool same =
      owner_ == last_owner && neighbor_ == last_neighbor && (!by_relation_ || relation_ == last_relation);
  ordinal_ = same ? ordinal_ + 1 : 0;
  ++edge_;
  return true;
}

}  // namespace quarry::sql
