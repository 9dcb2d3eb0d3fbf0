// Changes of one side's lists: sorted keys of edges that go and come, held against the lists that they change. Private to
// this room.
#pragma once

#include <bit>
#include <cstdint>

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

// What is sorted: list, neighbor, whether the edge is added (else removed), whether it is the reverse of one that was
// given, and its weight.
struct ChangeKey {
  NodeId list = 0;
  NodeId neighbor = 0;
  bool add = false;
  bool reverse = false;
  float weight = 0;

  uint128_t Packed() const {
    const uint128_t pair = uint128_t{list} << 32 | neighbor;
    return pair << 64 | uint64_t{add} << 33 | uint64_t{reverse} << 32 | std::bit_cast<uint32_t>(weight);
  }
  static ChangeKey Of(uint128_t key) {
    const auto low = static_cast<uint64_t>(key);
    return {.list = static_cast<NodeId>(key >> 96),
            .neighbor = static_cast<NodeId>(key >> 64),
            .add = (low >> 33 & 1) != 0,
            .reverse = (low >> 32 & 1) != 0,
            .weight = std::bit_cast<float>(static_cast<uint32_t>(low))};
  }
};

// The edits that a side's keys lead to, list after list. Counts edges that are there, or not there, into `report`. One
// thread.
Result<ListEdits> EditsOf(IoBackend& backend, const TopologyRecord& record, const Topology& topology,
                          Adjacency side, ExternalSorter<uint128_t>& sorter, const ProgressFunction& progress,
                          GraphChangeReport& report);

}  // namespace quarry
