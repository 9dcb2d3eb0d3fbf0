#include "side_change.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quarry/storage/edge_columns.h"

namespace quarry {
namespace {

// Reads sorted keys one by one.
class ChangeKeys {
 public:
  ChangeKeys(ExternalSorter<uint128_t>& sorter, bool by_relation)
      : sorter_(sorter), by_relation_(by_relation), keys_(kChangeBatch) {}
  // The next one, which stays the next; none at the end.
  Result<const ChangeKey*> Look() {
    if (known_) return &next_;
    if (at_ == count_) {
      QUARRY_TRY(count_, sorter_.Read(keys_));
      at_ = 0;
      if (count_ == 0) return nullptr;
    }
    next_ = ChangeKey::Of(keys_[at_++], by_relation_);
    known_ = true;
    return &next_;
  }
  void Pass() { known_ = false; }

 private:
  ExternalSorter<uint128_t>& sorter_;
  const bool by_relation_;
  std::vector<uint128_t> keys_;
  size_t at_ = 0, count_ = 0;
  ChangeKey next_;
  bool known_ = false;
};

// What happens to the edges of a list that have one neighbor and one relation.
struct PairChange {
  bool remove = false;
  std::vector<float> weights;  // of edges to be added, ascending by their bits
};

// Changes of one side, list after list.
class SideChange {
 public:
  SideChange(const TopologyRecord& record, const Topology& topology, Adjacency side,
             GraphChangeReport& report, std::span<int64_t> type_edges)
      : record_(record),
        topology_(topology),
        side_(side),
        report_(report),
        single_(record.keeps_equal_edges_once()),
        type_edges_(side == Adjacency::kCsc ? type_edges : std::span<int64_t>()) {}

  Result<ListEdits> Make(IoBackend& backend, ExternalSorter<uint128_t>& sorter,
                         const ProgressFunction& progress) {
    QUARRY_RETURN_IF_ERROR(sorter.Finish());
    QUARRY_TRY(neighbors_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kNeighbors));
    if (record_.weighted) {
      QUARRY_TRY(weights_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kWeights));
    }
    if (record_.relation_count > 1) {
      QUARRY_TRY(relations_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kRelations));
    }
    ChangeKeys keys(sorter, record_.by_relation);
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr) break;
      if (progress && edits_.lists.size() % kChangeBatch == 0) {
        QUARRY_RETURN_IF_ERROR(progress("changing lists", key->list, topology_.node_count()));
      }
      QUARRY_RETURN_IF_ERROR(ChangeList(key->list, keys));
    }
    return std::move(edits_);
  }

 private:
  Status ChangeList(NodeId list, ChangeKeys& keys) {
    const std::span<const uint64_t> indptr = topology_.indptr(side_);
    QUARRY_TRY(old_, neighbors_->Read(indptr[list], indptr[list + 1]));
    if (weights_ != nullptr) {
      QUARRY_TRY(old_weights_, weights_->Read(indptr[list], indptr[list + 1]));
    }
    if (relations_ != nullptr) {
      QUARRY_TRY(old_relations_, relations_->Read(indptr[list], indptr[list + 1]));
    }
    const size_t added_before = edits_.places.size(), removed_before = edits_.removed.size();
    list_added_ = list_removed_ = 0;
    size_t at = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != list) break;
      neighbor_ = key->neighbor;
      relation_ = key->relation;
      const uint64_t place = ChangeKey::Place(neighbor_, relation_, record_.by_relation);
      QUARRY_TRY(const PairChange change, TakePair(keys));
      const size_t first = FirstFrom(at, place), end = FirstFrom(first, place + 1);
      single_ ? ChangeSingle(change, first, end) : ChangeParallel(change, first, end);
      at = end;
    }
    if (old_.size() + list_added_ > std::numeric_limits<uint32_t>::max()) {
      return MakeStatus(Code::kUnsupported,
                        "the list of node {} would have {} edges, which no run can number", list,
                        old_.size() + list_added_);
    }
    if (edits_.places.size() == added_before && edits_.removed.size() == removed_before) return Status::Ok();
    edits_.lists.push_back(list);
    edits_.added_ends.push_back(edits_.places.size());
    edits_.removed_ends.push_back(edits_.removed.size());
    return Status::Ok();
  }

  // The first old edge from `at` on that does not stand before `place`.
  size_t FirstFrom(size_t at, uint64_t place) const {
    size_t end = old_.size();
    while (at < end) {
      const size_t middle = at + (end - at) / 2;
      const uint32_t relation = old_relations_.empty() ? 0 : old_relations_[middle];
      if (ChangeKey::Place(old_[middle], relation, record_.by_relation) < place) {
        at = middle + 1;
      } else {
        end = middle;
      }
    }
    return at;
  }

  // The keys of one pair of nodes and one relation, which come next. Reverses come behind the edges that were given, and
  // count where there are none of those.
  Result<PairChange> TakePair(ChangeKeys& keys) {
    QUARRY_TRY(const ChangeKey* first, keys.Look());
    const ChangeKey pair = *first;
    PairChange change;
    std::optional<bool> reverse;
    double sum = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != pair.list || key->neighbor != pair.neighbor ||
          key->relation != pair.relation) {
        break;
      }
      if (!key->add) change.remove = true;
      if (key->add && key->reverse == reverse.value_or(key->reverse)) {
        reverse = key->reverse;
        sum += double{key->weight};
        change.weights.push_back(key->weight);
      }
      keys.Pass();
    }
    if (!single_ || change.weights.empty()) return change;
    change.weights = {static_cast<float>(sum)};
    if (std::isfinite(change.weights[0])) return change;
    return MakeStatus(
        Code::kInvalidArgument,
        "the weights of the edges between node {} and node {} add up to {}, which float32 cannot hold",
        pair.neighbor, pair.list, sum);
  }

  void RemoveOld(size_t place) {
    edits_.removed.push_back(static_cast<uint32_t>(place));
    ++list_removed_;
    if (!type_edges_.empty()) --type_edges_[relation_];
  }
  // Before the old edge at `place`, or behind the last.
  void AddBefore(size_t place, float weight) {
    edits_.places.push_back(static_cast<uint32_t>(place - list_removed_ + list_added_++));
    edits_.neighbors.push_back(neighbor_);
    if (record_.weighted) edits_.weights.push_back(weight);
    if (record_.relation_count > 1) edits_.relations.push_back(relation_);
    if (!type_edges_.empty()) ++type_edges_[relation_];
  }
  uint32_t OldWeightBits(size_t place) const { return old_weights_[place]; }

  void ChangeSingle(const PairChange& change, size_t first, size_t end) {
    const bool there = first < end, add = !change.weights.empty();
    if (side_ == Adjacency::kCsc) {
      report_.absent += change.remove && !there ? 1 : 0;
      report_.present += add && there && !change.remove ? 1 : 0;
    }
    const bool same =
        there && add &&
        (!record_.weighted || OldWeightBits(first) == std::bit_cast<uint32_t>(change.weights[0]));
    if (same || (!add && !change.remove)) return;
    if (there) RemoveOld(first);
    if (add) AddBefore(end, change.weights[0]);
  }

  // Equal edges lie in the order of the bits of their weights, as imports sort them.
  void ChangeParallel(const PairChange& change, size_t first, size_t end) {
    if (side_ == Adjacency::kCsc && change.remove && first == end) ++report_.absent;
    size_t place = first;
    if (change.remove) {
      for (; place < end; ++place) RemoveOld(place);
    }
    for (const float weight : change.weights) {
      while (place < end && (!record_.weighted || OldWeightBits(place) <= std::bit_cast<uint32_t>(weight)))
        ++place;
      AddBefore(place, weight);
    }
  }

  const TopologyRecord& record_;
  const Topology& topology_;
  const Adjacency side_;
  GraphChangeReport& report_;
  const bool single_;  // equal edges of one relation are kept once
  const std::span<int64_t> type_edges_;
  std::unique_ptr<EdgeColumnReader> neighbors_, weights_, relations_;
  std::span<const uint32_t> old_, old_weights_, old_relations_;  // the list as it is
  NodeId neighbor_ = 0;                                          // whose edges change, and their relation
  uint32_t relation_ = 0;
  size_t list_added_ = 0, list_removed_ = 0;
  ListEdits edits_;
};

}  // namespace

Result<ListEdits> EditsOf(IoBackend& backend, const TopologyRecord& record, const Topology& topology,
                          Adjacency side, ExternalSorter<uint128_t>& sorter, const ProgressFunction& progress,
                          GraphChangeReport& report, std::span<int64_t> type_edges) {
  return SideChange(record, topology, side, report, type_edges).Make(backend, sorter, progress);
}

}  // namespace quarry
