#include "quarry/storage/list_edits.h"

#include <algorithm>
#include <cassert>

namespace quarry {
namespace {

// One list's part of edits.
struct ListPart {
  std::span<const uint32_t> places;
  std::span<const NodeId> neighbors;
  std::span<const float> weights;
  std::span<const uint32_t> relations;
  std::span<const uint32_t> removed;
};

ListPart PartOf(const ListEdits& edits, size_t list) {
  const uint64_t added = list == 0 ? 0 : edits.added_ends[list - 1];
  const uint64_t removed = list == 0 ? 0 : edits.removed_ends[list - 1];
  const uint64_t added_count = edits.added_ends[list] - added;
  return {.places = std::span(edits.places).subspan(added, added_count),
          .neighbors = std::span(edits.neighbors).subspan(added, added_count),
          .weights = edits.weights.empty() ? std::span<const float>()
                                           : std::span(edits.weights).subspan(added, added_count),
          .relations = edits.relations.empty() ? std::span<const uint32_t>()
                                               : std::span(edits.relations).subspan(added, added_count),
          .removed = std::span(edits.removed).subspan(removed, edits.removed_ends[list] - removed)};
}

void EndList(NodeId list, UndoneLists undone, ListEdits& out) {
  const uint64_t added = out.added_ends.empty() ? 0 : out.added_ends.back();
  const uint64_t removed = out.removed_ends.empty() ? 0 : out.removed_ends.back();
  const bool none = out.places.size() == added && out.removed.size() == removed;
  if (none && undone == UndoneLists::kDrop) return;
  out.lists.push_back(list);
  out.added_ends.push_back(out.places.size());
  out.removed_ends.push_back(out.removed.size());
}

void AppendAdded(const ListPart& part, size_t i, uint32_t place, ListEdits& out) {
  out.places.push_back(place);
  out.neighbors.push_back(part.neighbors[i]);
  if (!part.weights.empty()) out.weights.push_back(part.weights[i]);
  if (!part.relations.empty()) out.relations.push_back(part.relations[i]);
}

void Copy(NodeId list, const ListPart& part, UndoneLists undone, ListEdits& out) {
  for (size_t i = 0; i < part.places.size(); ++i) AppendAdded(part, i, part.places[i], out);
  out.removed.insert(out.removed.end(), part.removed.begin(), part.removed.end());
  EndList(list, undone, out);
}

// Walks the list between the two, `older` having made it and `newer` changing it. An edge of it is one that `older`
// added, or one of the list before; it goes or stays.
void ComposeList(NodeId list, const ListPart& older, const ListPart& newer, UndoneLists undone,
                 ListEdits& out) {
  size_t next_added = 0, next_gone = 0;
  uint32_t place = 0;  // in the list between
  size_t old_removed = 0;
  uint32_t before = 0;  // place in the list before of the next edge that it has at `place` or behind
  size_t new_added = 0;
  uint32_t after = 0;  // place in the list after of the next edge that stays
  const auto step_over_removed = [&] {
    for (; old_removed < older.removed.size() && older.removed[old_removed] == before;
         ++old_removed, ++before)
      out.removed.push_back(before);
  };
  const auto step_over_added = [&] {
    for (; new_added < newer.places.size() && newer.places[new_added] == after; ++new_added, ++after)
      AppendAdded(newer, new_added, after, out);
  };
  // Edges between two events are untouched by both, and are stepped over at once.
  while (next_added < older.places.size() || next_gone < newer.removed.size()) {
    const uint32_t added_at = next_added < older.places.size() ? older.places[next_added] : UINT32_MAX;
    const uint32_t gone_at = next_gone < newer.removed.size() ? newer.removed[next_gone] : UINT32_MAX;
    const uint32_t stop = std::min(added_at, gone_at);
    // [place, stop) are edges of the list before that stay.
    for (uint32_t left = stop - place; left > 0;) {
      step_over_removed();
      step_over_added();
      uint32_t run = left;
      if (old_removed < older.removed.size()) run = std::min(run, older.removed[old_removed] - before);
      if (new_added < newer.places.size()) run = std::min(run, newer.places[new_added] - after);
      before += run;
      after += run;
      left -= run;
    }
    place = stop;
    const bool was_added = added_at == stop, goes = gone_at == stop;
    if (was_added && !goes) {
      step_over_added();
      AppendAdded(older, next_added, after++, out);
    } else if (!was_added) {
      step_over_removed();
      out.removed.push_back(before++);
    }
    next_added += was_added ? 1 : 0;
    next_gone += goes ? 1 : 0;
    ++place;
  }
  // Behind the last event, only places are left.
  for (; old_removed < older.removed.size(); ++old_removed) out.removed.push_back(older.removed[old_removed]);
  for (; new_added < newer.places.size(); ++new_added) {
    AppendAdded(newer, new_added, newer.places[new_added], out);
  }
  EndList(list, undone, out);
}

}  // namespace

uint64_t ListEdits::MemoryBytes(uint64_t lists, uint64_t added, uint64_t removed, bool with_relations) {
  const uint64_t added_bytes =
      sizeof(uint32_t) + sizeof(NodeId) + sizeof(float) + (with_relations ? sizeof(uint32_t) : 0);
  return lists * (sizeof(NodeId) + 2 * sizeof(uint64_t)) + added * added_bytes + removed * sizeof(uint32_t);
}

uint64_t ListEdits::memory_bytes() const {
  return MemoryBytes(lists.size(), places.size(), removed.size(), !relations.empty());
}

ListEdits Compose(const ListEdits& older, const ListEdits& newer, UndoneLists undone) {
  ListEdits out;
  out.lists.reserve(older.lists.size() + newer.lists.size());
  out.places.reserve(older.places.size() + newer.places.size());
  out.neighbors.reserve(out.places.capacity());
  if (!older.weights.empty() || !newer.weights.empty()) out.weights.reserve(out.places.capacity());
  if (!older.relations.empty() || !newer.relations.empty()) out.relations.reserve(out.places.capacity());
  out.removed.reserve(older.removed.size() + newer.removed.size());
  size_t i = 0, k = 0;
  while (i < older.lists.size() || k < newer.lists.size()) {
    if (k == newer.lists.size() || (i < older.lists.size() && older.lists[i] < newer.lists[k])) {
      Copy(older.lists[i], PartOf(older, i), undone, out);
      ++i;
    } else if (i == older.lists.size() || newer.lists[k] < older.lists[i]) {
      Copy(newer.lists[k], PartOf(newer, k), undone, out);
      ++k;
    } else {
      ComposeList(older.lists[i], PartOf(older, i), PartOf(newer, k), undone, out);
      ++i;
      ++k;
    }
  }
  return out;
}

bool EdgeEdits::Fit(const ListEdits& edits, std::span<const uint64_t> indptr) {
  for (size_t i = 0; i < edits.lists.size(); ++i) {
    const uint64_t list = edits.lists[i];
    if (list + 1 >= indptr.size() || (i > 0 && list <= edits.lists[i - 1])) return false;
    const ListPart part = PartOf(edits, i);
    const uint64_t before = indptr[list + 1] - indptr[list];
    const auto ascend = [](std::span<const uint32_t> places, uint64_t end) {
      return std::ranges::adjacent_find(places, std::greater_equal<>()) == places.end() &&
             (places.empty() || places.back() < end);
    };
    if (!ascend(part.removed, before)) return false;
    if (!ascend(part.places, before + part.places.size() - part.removed.size())) return false;
  }
  return true;
}

EdgeEdits::EdgeEdits(ListEdits edits, std::span<uint64_t> indptr) {
  added_at_.reserve(edits.places.size());
  removed_.reserve(edits.removed.size());
  uint64_t grown = 0;  // modulo 2^64: edges added so far less those removed
  size_t i = 0;
  uint64_t begin = indptr.front();  // of the list before
  for (uint64_t node = 0; node + 1 < indptr.size(); ++node) {
    if (i < edits.lists.size() && edits.lists[i] == node) {
      const ListPart part = PartOf(edits, i++);
      for (const uint32_t place : part.places) added_at_.push_back(begin + grown + place);
      for (const uint32_t place : part.removed) removed_.push_back(begin + place);
      grown += part.places.size() - part.removed.size();
    }
    begin = indptr[node + 1];
    indptr[node + 1] += grown;
  }
  assert(i == edits.lists.size());
  neighbors_ = std::move(edits.neighbors);
  weights_ = std::move(edits.weights);
  relations_ = std::move(edits.relations);
}

uint64_t EdgeEdits::memory_bytes() const {
  return (added_at_.capacity() + removed_.capacity()) * sizeof(uint64_t) +
         neighbors_.capacity() * sizeof(NodeId) + weights_.capacity() * sizeof(float) +
         relations_.capacity() * sizeof(uint32_t);
}

size_t EdgeEdits::AddedBefore(uint64_t position) const {
  return static_cast<size_t>(std::ranges::lower_bound(added_at_, position) - added_at_.begin());
}

// Removed edge i has removed_[i] - i kept ones before it, which does not fall with i.
size_t EdgeEdits::RemovedBefore(uint64_t kept) const {
  size_t low = 0, high = removed_.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (removed_[middle] - middle <= kept) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

uint64_t EdgeEdits::BaseAt(uint64_t position) const {
  const uint64_t kept = position - AddedBefore(position);
  return kept + RemovedBefore(kept);
}

EdgeEdits::Place EdgeEdits::Find(uint64_t position) const {
  const size_t added = AddedBefore(position);
  if (added < added_at_.size() && added_at_[added] == position) return {.added = true, .index = added};
  const uint64_t kept = position - added;
  return {.added = false, .index = kept + RemovedBefore(kept)};
}

EdgeEdits::Merge::Merge(const EdgeEdits& edits, std::span<const uint32_t> added, uint64_t first, uint64_t end)
    : edits_(edits),
      added_(added),
      end_(end),
      position_(first),
      base_(edits.BaseAt(first)),
      next_added_(edits.AddedBefore(first)),
      next_removed_(edits.RemovedBefore(first - next_added_)) {}

void EdgeEdits::Merge::TakeAdded(std::vector<uint32_t>& out) {
  while (position_ < end_ && next_added_ < edits_.added_at_.size() &&
         edits_.added_at_[next_added_] == position_) {
    out.push_back(added_[next_added_++]);
    ++position_;
  }
}

void EdgeEdits::Merge::Take(std::span<const uint32_t> base, std::vector<uint32_t>& out) {
  while (!base.empty()) {
    TakeAdded(out);
    uint64_t run = base.size();
    if (next_removed_ < edits_.removed_.size()) {
      if (edits_.removed_[next_removed_] == base_) {
        ++next_removed_;
        ++base_;
        base = base.subspan(1);
        continue;
      }
      run = std::min(run, edits_.removed_[next_removed_] - base_);
    }
    if (position_ == end_) return;
    run = std::min(run, end_ - position_);
    if (next_added_ < edits_.added_at_.size()) run = std::min(run, edits_.added_at_[next_added_] - position_);
    out.insert(out.end(), base.begin(), base.begin() + static_cast<std::ptrdiff_t>(run));
    base_ += run;
    position_ += run;
    base = base.subspan(run);
  }
}

void EdgeEdits::Merge::Finish(std::vector<uint32_t>& out) { TakeAdded(out); }

}  // namespace quarry
