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
  explicit ChangeKeys(ExternalSorter<uint128_t>& sorter) : sorter_(sorter), keys_(kChangeBatch) {}
  // The next one, which stays the next; none at the end.
  Result<const ChangeKey*> Look() {
    if (known_) return &next_;
    if (at_ == count_) {
      QUARRY_TRY(count_, sorter_.Read(keys_));
      at_ = 0;
      if (count_ == 0) return nullptr;
    }
    next_ = ChangeKey::Of(keys_[at_++]);
    known_ = true;
    return &next_;
  }
  void Pass() { known_ = false; }

 private:
  ExternalSorter<uint128_t>& sorter_;
  std::vector<uint128_t> keys_;
  size_t at_ = 0, count_ = 0;
  ChangeKey next_;
  bool known_ = false;
};

// What happens to the edges of a list that have one neighbor.
struct PairChange {
  bool remove = false;
  std::vector<float> weights;  // of edges to be added, ascending by their bits
};

// Changes of one side, list after list.
class SideChange {
 public:
  SideChange(const TopologyRecord& record, const Topology& topology, Adjacency side,
             GraphChangeReport& report)
      : record_(record), topology_(topology), side_(side), report_(report) {}

  Result<ListEdits> Make(IoBackend& backend, ExternalSorter<uint128_t>& sorter,
                         const ProgressFunction& progress) {
    QUARRY_RETURN_IF_ERROR(sorter.Finish());
    QUARRY_TRY(neighbors_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kNeighbors));
    if (record_.weighted) {
      QUARRY_TRY(weights_, EdgeColumnReader::Make(backend, topology_, side_, EdgeColumn::kWeights));
    }
    ChangeKeys keys(sorter);
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
    const size_t added_before = edits_.places.size(), removed_before = edits_.removed.size();
    list_added_ = list_removed_ = 0;
    size_t at = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != list) break;
      const NodeId neighbor = key->neighbor;
      QUARRY_TRY(const PairChange change, TakePair(keys));
      const auto from = old_.begin() + static_cast<std::ptrdiff_t>(at);
      const auto first = static_cast<size_t>(std::lower_bound(from, old_.end(), neighbor) - old_.begin());
      const auto end = static_cast<size_t>(std::upper_bound(from, old_.end(), neighbor) - old_.begin());
      record_.deduplicated ? ChangeSingle(neighbor, change, first, end)
                           : ChangeParallel(neighbor, change, first, end);
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

  // The keys of one pair of nodes, which come next. Reverses come behind the edges that were given, and count where there
  // are none of those.
  Result<PairChange> TakePair(ChangeKeys& keys) {
    QUARRY_TRY(const ChangeKey* first, keys.Look());
    const ChangeKey pair = *first;
    PairChange change;
    std::optional<bool> reverse;
    double sum = 0;
    while (true) {
      QUARRY_TRY(const ChangeKey* const key, keys.Look());
      if (key == nullptr || key->list != pair.list || key->neighbor != pair.neighbor) break;
      if (!key->add) change.remove = true;
      if (key->add && key->reverse == reverse.value_or(key->reverse)) {
        reverse = key->reverse;
        sum += double{key->weight};
        change.weights.push_back(key->weight);
      }
      keys.Pass();
    }
    if (!record_.deduplicated || change.weights.empty()) return change;
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
  }
  // Before the old edge at `place`, or behind the last.
  void AddBefore(size_t place, NodeId neighbor, float weight) {
    edits_.places.push_back(static_cast<uint32_t>(place - list_removed_ + list_added_++));
    edits_.neighbors.push_back(neighbor);
    if (record_.weighted) edits_.weights.push_back(weight);
  }
  uint32_t OldWeightBits(size_t place) const { return old_weights_[place]; }

  void ChangeSingle(NodeId neighbor, const PairChange& change, size_t first, size_t end) {
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
    if (add) AddBefore(end, neighbor, change.weights[0]);
  }

  // Equal edges lie in the order of the bits of their weights, as imports sort them.
  void ChangeParallel(NodeId neighbor, const PairChange& change, size_t first, size_t end) {
    if (side_ == Adjacency::kCsc && change.remove && first == end) ++report_.absent;
    size_t place = first;
    if (change.remove) {
      for (; place < end; ++place) RemoveOld(place);
    }
    for (const float weight : change.weights) {
      while (place < end && (!record_.weighted || OldWeightBits(place) <= std::bit_cast<uint32_t>(weight)))
        ++place;
      AddBefore(place, neighbor, weight);
    }
  }

  const TopologyRecord& record_;
  const Topology& topology_;
  const Adjacency side_;
  GraphChangeReport& report_;
  std::unique_ptr<EdgeColumnReader> neighbors_, weights_;
  std::span<const uint32_t> old_, old_weights_;  // the list as it is
  size_t list_added_ = 0, list_removed_ = 0;
  ListEdits edits_;
};

}  // namespace

Result<ListEdits> EditsOf(IoBackend& backend, const TopologyRecord& record, const Topology& topology,
                          Adjacency side, ExternalSorter<uint128_t>& sorter, const ProgressFunction& progress,
                          GraphChangeReport& report) {
  return SideChange(record, topology, side, report).Make(backend, sorter, progress);
}

}  // namespace quarry
