// Which lists of neighbors compactions have put into a topology's file, and since when they changed. Once runs are folded
// nothing else tells it, and layouts ask (engine/layout, changed_seeds.h): so it is remembered for each layout that there is
// when the fold begins, by its timestamp, beside the rows that compactions of tables remember.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/catalog/catalog.h"
#include "quarry/format/topology.h"
#include "quarry/format/topology_record.h"
#include "quarry/format/types.h"
#include "quarry/storage/store.h"

namespace quarry {

// The lists that `runs` of a topology, which have been folded into its generation, change: since each time that a layout of it has,
// and whenever.
class FoldedLists {
 public:
  static Result<FoldedLists> Of(Store& store, const TopologyRecord& topology, uint64_t generation);
  // Valid while this is.
  Catalog::FoldedRows rows() const { return {name_, generation_, changed_, alone_}; }

 private:
  std::string name_;
  uint64_t generation_ = 0;
  bool alone_ = false;  // no layout asks for what earlier generations have remembered
  std::vector<Catalog::FoldedRows::Change> changed_;
};

// Calls take(list) for each list of these sides that was folded into the topology's file, since it was as of `timestamp`, and
// perhaps for others; some come several times. False where it is not known.
Result<bool> ForEachFoldedList(Store& store, const TopologyRecord& topology, std::span<const Adjacency> sides,
                               uint64_t timestamp, const std::function<void(NodeId)>& take);

}  // namespace quarry
