// Changes of adjacency lists by positions: what a run (TopologyRun) holds of one side, and several runs made one.
//
//   ListEdits   of lists, one after the other: which positions of a list go, and what comes where. Each run is about the
//               lists as the runs before it leave them, so runs stay as they are when the ones before them are folded
//               into a file, and two that follow each other are one (Compose), without the lists.
//   EdgeEdits   the same by positions among all edges of the side: how a reader of the base file finds an edge.
//
// A value each. Const use is thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/format/types.h"

namespace quarry {

struct ListEdits {
  std::vector<NodeId> lists;           // that change, ascending
  std::vector<uint64_t> added_ends;    // by list: in the three after this
  std::vector<uint32_t> places;        // where an added edge stands in the list afterwards, ascending
  std::vector<NodeId> neighbors;       // of added edges
  std::vector<float> weights;          // of added edges; empty without weights
  std::vector<uint32_t> relations;     // of added edges; empty where there is one relation
  std::vector<uint64_t> removed_ends;  // by list: in `removed`
  std::vector<uint32_t> removed;       // where a removed edge stood in the list before, ascending

  bool empty() const { return lists.empty(); }
  uint64_t memory_bytes() const;
  // What edits of so many edges and lists hold at most, and twice that while they are composed.
  static uint64_t MemoryBytes(uint64_t lists, uint64_t added, uint64_t removed, bool with_relations = false);
};

// What becomes of a list whose edits take each other back: it is no list that changes any more, or one with no edits, for whoever
// asks which lists were changed since some time between the two.
enum class UndoneLists : uint8_t { kDrop, kKeep };

// The edits that lead to the same lists as `older` and then `newer`.
ListEdits Compose(const ListEdits& older, const ListEdits& newer, UndoneLists undone = UndoneLists::kDrop);

class EdgeEdits {
 public:
  EdgeEdits() = default;
  // Turns `indptr`, of the lists before, into that of the lists after, which may be of more nodes: those have an empty
  // list before. REQUIRES: the edits fit the lists (CheckFit).
  EdgeEdits(ListEdits edits, std::span<uint64_t> indptr);

  // Whether positions lie in the lists that `indptr` has, and there are no lists beyond it.
  static bool Fit(const ListEdits& edits, std::span<const uint64_t> indptr);

  bool empty() const { return added_at_.empty() && removed_.empty(); }
  uint64_t memory_bytes() const;
  std::span<const NodeId> neighbors() const { return neighbors_; }    // of added edges
  std::span<const float> weights() const { return weights_; }         // of added edges
  std::span<const uint32_t> relations() const { return relations_; }  // of added edges

  struct Place {
    bool added = false;
    uint64_t index = 0;  // among added edges; else the position in the base file
  };
  // Where the edge at `position`, in the lists as they are now, is found.
  Place Find(uint64_t position) const;

  // Puts together the values of a column (neighbors, weights or relations, four bytes each) at positions [first, end), from those
  // of the base at [BaseAt(first), BaseAt(end)), which come piece by piece.
  class Merge {
   public:
    Merge(const EdgeEdits& edits, std::span<const uint32_t> added, uint64_t first, uint64_t end);
    uint64_t base_position() const { return base_; }  // that comes next
    uint64_t position() const { return position_; }   // that comes next
    // Appends to `out` what the next piece of the base leads to.
    void Take(std::span<const uint32_t> base, std::vector<uint32_t>& out);
    // Behind the last piece.
    void Finish(std::vector<uint32_t>& out);

   private:
    void TakeAdded(std::vector<uint32_t>& out);
    const EdgeEdits& edits_;
    const std::span<const uint32_t> added_;
    const uint64_t end_;
    uint64_t position_, base_;
    size_t next_added_, next_removed_;
  };
  // The first position of the base that is not before `position`.
  uint64_t BaseAt(uint64_t position) const;

 private:
  size_t AddedBefore(uint64_t position) const;
  // Removed edges before the kept one with this number.
  size_t RemovedBefore(uint64_t kept) const;

  std::vector<uint64_t> added_at_;  // positions now, ascending
  std::vector<NodeId> neighbors_;
  std::vector<float> weights_;
  std::vector<uint32_t> relations_;
  std::vector<uint64_t> removed_;  // positions in the base, ascending
};

}  // namespace quarry
