// GraphChange: edges that are added to a topology and removed from it, as one commit.
//
// Add and Remove in any order, then Commit once: what is removed goes first, and then what is added comes. They are sorted
// outside of memory and held against the lists that they change, which are read in order, so that a run (TopologyRun) has
// the positions of what goes and comes.
//
// In a topology that keeps equal edges once, an edge that is there already stays as it is, or gets the new weight; several
// that are added at once are one with the sum of their weights, as in an import. In another one each is one more. A
// removed edge goes with all its parallel copies, and one that is not there is counted. In an undirected topology the
// reverse of each goes and comes, too. Lists stay as an import of all the edges has them.
//
// Owned and used by one thread; after an error only its destructor may be called.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/import/dataset.h"
#include "quarry/storage/store.h"

namespace quarry {

// Opens a file of edges (OpenDataset) that has one list of them, with the weights of a file where weights_path names one.
Result<std::unique_ptr<EdgeReader>> OpenEdgeFile(const std::string& path,
                                                 const std::string& weights_path = "");

struct GraphChangeOptions {
  std::string topology = "graph";
  uint64_t memory_bytes = 256 << 20;  // of the budget, for sorting; at least kGraphChangeBytesMin
  ProgressFunction progress;
};
inline constexpr uint64_t kGraphChangeBytesMin = 8 << 20;

struct GraphChangeReport {
  uint64_t added = 0;    // edges, reverses included; one with a new weight is removed and added
  uint64_t removed = 0;  // the same
  uint64_t present = 0;  // of those to be added were there already
  uint64_t absent = 0;   // of those to be removed were not there
  uint64_t timestamp = 0;
  uint64_t edge_count = 0;  // of the topology afterwards
  uint64_t runs = 0;        // of the topology afterwards
};

class GraphChange {
 public:
  // kNotFound; kUnsupported of a topology of several relations; kBusy beside another one; kOutOfBudget.
  static Result<std::unique_ptr<GraphChange>> Create(Store& store, MemoryBudget& budget,
                                                     const GraphChangeOptions& options);
  virtual ~GraphChange() = default;
  // `weights` has one for each edge; empty = 1 each, where the topology has weights. REQUIRES: nodes are there, and
  // weights are only given where the topology has some.
  virtual Status Add(std::span<const Edge> edges, std::span<const float> weights = {}) = 0;
  virtual Status Remove(std::span<const Edge> edges) = 0;
  // All edges of a source; kInvalidArgument names the place of one whose node is not there, or that there are weights
  // where the topology has none.
  Status AddAll(EdgeReader& edges);
  Status RemoveAll(EdgeReader& edges);
  // Durable when it returns. Nothing is committed where nothing changes: the timestamp is then that of the last
  // commit of edges. More runs than kTopologyRunsMax are merged. kCancelled, kNoSpace, kCorruption; kInvalidArgument when a sum of
  // weights exceeds float32.
  virtual Result<GraphChangeReport> Commit() = 0;

 protected:
  virtual const TopologyRecord& topology() const = 0;
  virtual const GraphChangeOptions& options() const = 0;

 private:
  template <typename Take>
  Status TakeAll(EdgeReader& edges, const Take& take);
};

}  // namespace quarry
