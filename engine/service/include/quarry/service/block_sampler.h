// BlockSampler: the blocks that clients ask for by themselves (`sample`), from topologies that are opened
// once for all of them: in memory where the server's share of the budget has room for the indices, else from
// disk.
//
// Where fanouts are by type of edges, so are the places of each type in the lists, once for all; and weights, from the first
// draw by them on.
//
// A block depends on seeds, fanouts and stream seed alone. Thread-safe.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/mutex.h"
#include "quarry/base/status.h"
#include "quarry/format/wire_requests.h"
#include "quarry/sampling/block.h"
#include "quarry/sampling/sampler.h"
#include "quarry/sampling/typed_lists.h"
#include "quarry/storage/store.h"

namespace quarry {

class BlockSampler {
 public:
  // `budget`: of what is opened once. Store and budget outlive it.
  BlockSampler(Store& store, MemoryBudget& budget) : store_(store), budget_(budget) {}

  // A block, and what it holds of its session's budget.
  struct Sampled {
    MemoryBudget::Reservation reservation;
    Block block;
  };
  // Reserves from `session` what the block may take at most, before it samples. kNotFound lists what there
  // is, kInvalidArgument names a seed that is no node or given twice, and sides or weights that the topology lacks;
  // kOutOfBudget, kIoError, kCorruption. kUsage and kUnsupported as NeighborSampler::Make, and where all neighbors of
  // nodes are asked for, and one has more than can be drawn.
  Result<Sampled> Sample(const wire::Sample& request, MemoryBudget& session);

 private:
  struct Open {
    MemoryBudget::Reservation reservation;
    std::unique_ptr<Topology> topology;
    uint64_t timestamp = 0;  // of the last commit of edges that it has
    bool in_memory = false;
    bool weighted = false;  // the weights are loaded
    // By direction, 1 + the most neighbors of a node; 0: nobody has asked for all of them yet.
    mutable std::atomic<uint64_t> degrees_max[3] = {};
  };
  struct Typed {
    std::shared_ptr<const Open> open;
    MemoryBudget::Reservation reservation;
    std::unique_ptr<TypedLists> lists;
  };
  // Null where fanouts are not by type.
  Result<std::shared_ptr<const Typed>> TypesOf(const wire::Sample& request,
                                               const std::shared_ptr<const Open>& open);
  Result<std::shared_ptr<const Open>> Find(std::string_view name, bool weighted);
  Result<std::shared_ptr<const Open>> OpenTopology(const Snapshot& snapshot, const TopologyRecord& record,
                                                   bool weighted);

  Store& store_;
  MemoryBudget& budget_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<const Open>, std::less<>> open_ QUARRY_GUARDED_BY(mutex_);
  std::shared_ptr<const Typed> typed_ QUARRY_GUARDED_BY(mutex_);  // null until somebody asks
};

}  // namespace quarry
