// Changes of one side's lists: sorted keys of edges that go and come, held against the lists that they change. Private to
// this room.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/topology.h"
#include "quarry/format/topology_record.h"
#include "quarry/format/types.h"
#include "quarry/import/external_sort.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/list_edits.h"
#include "quarry/storage/topology.h"

namespace quarry {

inline constexpr size_t kChangeBatch = 16 << 10;  // keys, edges or names at a time

inline constexpr unsigned kChangeRelationBits = 30;

// What is sorted: list, neighbor and relation, or relation and neighbor where lists are by relation, whether the edge is
// added (else removed), whether it is the reverse of one that was given, and its weight.
struct ChangeKey {
  NodeId list = 0;
  NodeId neighbor = 0;
  uint32_t relation = 0;  // of kChangeRelationBits
  bool add = false;
  bool reverse = false;
  float weight = 0;

  // Where the edge stands in a list.
  static constexpr uint64_t Place(NodeId neighbor, uint32_t relation, bool by_relation) {
    return by_relation ? uint64_t{relation} << 32 | neighbor
                       : uint64_t{neighbor} << kChangeRelationBits | relation;
  }
  uint128_t Packed(bool by_relation) const {
    const uint128_t edge =
        uint128_t{list} << (32 + kChangeRelationBits) | Place(neighbor, relation, by_relation);
    return edge << 34 | uint64_t{add} << 33 | uint64_t{reverse} << 32 | std::bit_cast<uint32_t>(weight);
  }
  static ChangeKey Of(uint128_t key, bool by_relation) {
    constexpr uint32_t kRelationMask = (uint32_t{1} << kChangeRelationBits) - 1;
    const auto low = static_cast<uint64_t>(key), place = static_cast<uint64_t>(key >> 34);
    return {.list = static_cast<NodeId>(key >> 96),
            .neighbor = static_cast<NodeId>(by_relation ? place : place >> kChangeRelationBits),
            .relation = static_cast<uint32_t>(by_relation ? place >> 32 : place) & kRelationMask,
            .add = (low >> 33 & 1) != 0,
            .reverse = (low >> 32 & 1) != 0,
            .weight = std::bit_cast<float>(static_cast<uint32_t>(low))};
  }
};

// The edits that a side's keys lead to, list after list. Of in-neighbors, counts edges that are there, or not there, into
// `report`, and those that come and go into `type_edges`, by relation, unless that is empty. One thread.
Result<ListEdits> EditsOf(IoBackend& backend, const TopologyRecord& record, const Topology& topology,
                          Adjacency side, ExternalSorter<uint128_t>& sorter, const ProgressFunction& progress,
                          GraphChangeReport& report, std::span<int64_t> type_edges);

}  // namespace quarry
