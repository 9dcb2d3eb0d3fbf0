#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "quarry/base/units.h"
#include "quarry/format/topology.h"
#include "quarry/format/types.h"
#include "verify_scan.h"

namespace quarry {
namespace {

PageScan::Describe ElementsOf(const Section& section, uint64_t element_bytes) {
  return [name = section.name, element_bytes, count = section.bytes / element_bytes](uint64_t page) {
    const uint64_t per_page = kPageBytes / element_bytes;
    return fmt::format("{} {} to {}", name, page * per_page, std::min((page + 1) * per_page, count) - 1);
  };
}

template <typename T>
T ElementAt(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Checks that indptr starts at 0, never falls, and ends at edge_count. False when there was a fault.
Result<bool> VerifyIndptr(Verification& run, const DataFile& data, const Section& section,
                          uint64_t edge_count) {
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, ElementsOf(section, sizeof(uint64_t))));
  bool sound = true;
  uint64_t last = 0;
  uint64_t index = 0;
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) break;
    sound = sound && piece.sound;
    for (size_t i = 0; sound && i < piece.bytes.size() / sizeof(uint64_t); ++i, ++index) {
      const uint64_t value = ElementAt<uint64_t>(piece.bytes, i);
      if (value < last || (index == 0 && value != 0)) {
        AddFault(run, "{}: {}[{}] = {}, where {} comes before it", data.file.path(), section.name, index,
                 value, index == 0 ? "0" : std::to_string(last));
        sound = false;
      }
      last = value;
    }
  }
  if (sound && last != edge_count) {
    AddFault(run, "{}: {} ends with {}, and there are {} edges", data.file.path(), section.name, last,
             edge_count);
    return false;
  }
  return sound;
}

// The ends of the lists, in order, from an indptr that is known to be sound.
class ListEnds {
 public:
  static Result<ListEnds> Make(IoBackend& backend, const DataFile& data, const Section& indptr) {
    ListEnds ends;
    QUARRY_TRY(ends.scanner_, FileScanner::Make(backend, data.file, indptr.offset, indptr.bytes));
    QUARRY_RETURN_IF_ERROR(ends.Next().status());  // the 0 at which the first list starts
    return ends;
  }
  Result<uint64_t> Next() {
    if (piece_.empty()) {
      QUARRY_TRY(piece_, scanner_->Next());
    }
    const uint64_t value = ElementAt<uint64_t>(piece_, 0);
    piece_ = piece_.subspan(sizeof(uint64_t));
    return value;
  }

 private:
  std::unique_ptr<FileScanner> scanner_;
  std::span<const std::byte> piece_;
};

// The relations of edges, in order, from a section whose checksums somebody else verifies.
class RelationIds {
 public:
  static Result<RelationIds> Make(IoBackend& backend, const DataFile& data, const Section& section,
                                  uint64_t id_bytes) {
    RelationIds ids;
    ids.id_bytes_ = id_bytes;
    QUARRY_TRY(ids.scanner_, FileScanner::Make(backend, data.file, section.offset, section.bytes));
    return ids;
  }
  Result<uint32_t> Next() {
    if (piece_.empty()) {
      QUARRY_TRY(piece_, scanner_->Next());
    }
    uint32_t relation = 0;
    std::memcpy(&relation, piece_.data(), id_bytes_);
    piece_ = piece_.subspan(id_bytes_);
    return relation;
  }

 private:
  std::unique_ptr<FileScanner> scanner_;
  std::span<const std::byte> piece_;
  uint64_t id_bytes_ = 0;
};

// Walks lists and indices side by side; where relations tell which edges are equal, or stand in lists, relations as well.
class ListWalk {
 public:
  ListWalk(Verification& run, const DataFile& data, const TopologyRecord& record, std::string name,
           ListEnds ends, std::optional<RelationIds> relations)
      : run_(run),
        data_(data),
        record_(record),
        name_(std::move(name)),
        ends_(std::move(ends)),
        relations_(std::move(relations)) {}

  // `sound` = the bytes are what was written; otherwise only the place in the lists moves on.
  Status Walk(std::span<const std::byte> indices, bool sound) {
    const size_t count = indices.size() / sizeof(NodeId);
    for (size_t i = 0; i < count;) {
      while (edge_ >= list_end_) {
        QUARRY_TRY(list_end_, ends_.Next());
        ++list_count_;
        previous_ = 0;
        previous_relation_ = 0;
        list_start_ = edge_;
      }
      const size_t end = i + std::min<uint64_t>(count - i, list_end_ - edge_);
      QUARRY_RETURN_IF_ERROR(
          WalkList(indices.subspan(i * sizeof(NodeId), (end - i) * sizeof(NodeId)), sound));
      edge_ += end - i;
      i = end;
    }
    return Status::Ok();
  }

 private:
  // Part of one list: ascending, strictly so where equal edges are one, and in range; by relation, relations ascend, and
  // neighbors within one; else relations among the edges of one neighbor.
  Status WalkList(std::span<const std::byte> indices, bool sound) {
    for (size_t i = 0; i < indices.size() / sizeof(NodeId); ++i) {
      uint32_t relation = 0;
      if (relations_) {
        QUARRY_TRY(relation, relations_->Next());
      }
      if (!sound) continue;
      if (record_.by_relation && relation < previous_relation_) [[unlikely]] {
        AddFault(run_, "{}: edge {} in the list of node {} is of relation {} after {}: lists are by relation",
                 data_.file.path(), edge_ + i, Node(), relation, previous_relation_);
      }
      const bool first = edge_ + i == list_start_ || (record_.by_relation && relation != previous_relation_);
      const bool once =
          record_.deduplicated || (record_.distinct && relations_ && relation <= previous_relation_);
      previous_relation_ = relation;
      const NodeId index = ElementAt<NodeId>(indices, i);
      if (index >= record_.node_count) [[unlikely]] {
        AddFault(run_, "{}: {}[{}] of node {} is {}, and there are {} nodes", data_.file.path(), name_,
                 edge_ + i, Node(), index, record_.node_count);
      } else if (!first && (index < previous_ || (index == previous_ && once))) [[unlikely]] {
        AddFault(run_, "{}: {}[{}] of node {} is {} after {}: lists ascend{}", data_.file.path(), name_,
                 edge_ + i, Node(), index, previous_, once ? " without duplicates" : "");
      }
      previous_ = index;
    }
    return Status::Ok();
  }
  uint64_t Node() const { return list_count_ - 1; }

  Verification& run_;
  const DataFile& data_;
  const TopologyRecord& record_;
  const std::string name_;
  ListEnds ends_;
  std::optional<RelationIds> relations_;
  uint64_t list_count_ = 0;  // lists begun
  uint64_t list_start_ = 0;
  uint64_t list_end_ = 0;
  uint64_t edge_ = 0;
  NodeId previous_ = 0;
  uint32_t previous_relation_ = 0;
};

// Reads a section of which only the checksums are to be checked.
Status VerifyPages(Verification& run, const DataFile& data, const Section& section, uint64_t element_bytes) {
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, ElementsOf(section, element_bytes)));
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) return Status::Ok();
  }
}

Status VerifyIndices(Verification& run, const DataFile& data, const TopologyRecord& record,
                     const TopologySections& names, const Section& section, const Section& indptr) {
  QUARRY_TRY(ListEnds ends, ListEnds::Make(run.backend(), data, indptr));
  const uint64_t id_bytes = RelationIdBytes(record.relation_count);
  std::optional<RelationIds> ids;
  if ((record.by_relation || record.distinct) && record.relation_count > 1) {
    const auto relations = data.Find(names.relations, record.edge_count * id_bytes);
    if (!relations.ok())
      return VerifyPages(run, data, section, sizeof(NodeId));  // who reads relations says so
    QUARRY_TRY(ids, RelationIds::Make(run.backend(), data, *relations, id_bytes));
  }
  ListWalk walk(run, data, record, section.name, std::move(ends), std::move(ids));
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, ElementsOf(section, sizeof(NodeId))));
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) return Status::Ok();
    QUARRY_RETURN_IF_ERROR(walk.Walk(piece.bytes, piece.sound));
  }
}

Status VerifyRelations(Verification& run, const DataFile& data, const Section& section,
                       uint64_t relation_count) {
  const uint64_t id_bytes = RelationIdBytes(relation_count);
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, ElementsOf(section, id_bytes)));
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) return Status::Ok();
    for (size_t i = 0; piece.sound && i < piece.bytes.size() / id_bytes; ++i) {
      uint32_t relation = 0;
      std::memcpy(&relation, piece.bytes.data() + i * id_bytes, id_bytes);
      if (relation < relation_count) [[likely]] {
        continue;
      }
      AddFault(run, "{}: {}[{}] = {}, and there are {} relations", data.file.path(), section.name,
               piece.offset / id_bytes + i, relation, relation_count);
    }
  }
}

Status VerifyWeights(Verification& run, const DataFile& data, const Section& section) {
  QUARRY_TRY(PageScan scan, PageScan::Make(run, data, section, ElementsOf(section, sizeof(float))));
  while (true) {
    QUARRY_TRY(const PageScan::Piece piece, scan.Next());
    if (piece.bytes.empty()) return Status::Ok();
    for (size_t i = 0; piece.sound && i < piece.bytes.size() / sizeof(float); ++i) {
      const auto weight = ElementAt<float>(piece.bytes, i);
      if (std::isfinite(weight)) [[likely]] {
        continue;
      }
      AddFault(run, "{}: {}[{}] is {}, and weights are finite", data.file.path(), section.name,
               piece.offset / sizeof(float) + i, weight);
    }
  }
}

// Each of these notes what it finds, and goes on to the next.
Status VerifySide(Verification& run, const DataFile& data, const TopologyRecord& record, Adjacency side) {
  const TopologySections names = SectionsOf(side);
  const auto indptr = data.Find(names.indptr, (record.node_count + 1) * sizeof(uint64_t));
  const auto indices = data.Find(names.indices, record.edge_count * sizeof(NodeId));
  QUARRY_RETURN_IF_ERROR(run.Note(indptr.status()));
  QUARRY_RETURN_IF_ERROR(run.Note(indices.status()));
  bool sound = false;
  if (indptr.ok()) {
    QUARRY_TRY(sound, VerifyIndptr(run, data, *indptr, record.edge_count));
  }
  if (indices.ok()) {
    // Without a sound indptr nobody knows where lists end.
    QUARRY_RETURN_IF_ERROR(sound ? VerifyIndices(run, data, record, names, *indices, *indptr)
                                 : VerifyPages(run, data, *indices, sizeof(NodeId)));
  }
  if (record.relation_count > 1) {
    const auto relations =
        data.Find(names.relations, record.edge_count * RelationIdBytes(record.relation_count));
    QUARRY_RETURN_IF_ERROR(relations.ok() ? VerifyRelations(run, data, *relations, record.relation_count)
                                          : run.Note(relations.status()));
  }
  if (!record.weighted) return Status::Ok();
  const auto weights = data.Find(names.weights, record.edge_count * sizeof(float));
  return weights.ok() ? VerifyWeights(run, data, *weights) : run.Note(weights.status());
}

}  // namespace

Status VerifyRun(Verification& run, const DataFile& data) {
  for (const Section& section : data.footer.sections) {
    if (!section.checked_by.empty()) {
      QUARRY_RETURN_IF_ERROR(VerifyPages(run, data, section, sizeof(uint32_t)));
    }
  }
  return Status::Ok();
}

Status VerifyTopology(Verification& run, const DataFile& data, const TopologyRecord& record) {
  QUARRY_RETURN_IF_ERROR(VerifySide(run, data, record, Adjacency::kCsc));
  if (record.has_csr) QUARRY_RETURN_IF_ERROR(VerifySide(run, data, record, Adjacency::kCsr));
  return Status::Ok();
}

}  // namespace quarry
