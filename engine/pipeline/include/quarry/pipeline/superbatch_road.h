// SuperbatchRoad: fresh samples every epoch, planned ahead (Ginex §3.1): while one superbatch trains, the next is sampled
// and planned in the background; and packed (DiskGNN), or its rows are left in the table and read from there by merged
// requests, whichever the cost model finds cheaper for batches that are used once (LayoutSpec::packing may say which).
// Either way the cache is Belady's over the superbatch's known batches.
//
// A superbatch is an epoch, or so many batches of one (LayoutSpec::batches): fewer take less of the disk, and the first
// is there sooner, but a cache that begins empty finds less in them, and packing reads the table for each. An epoch ends
// its last superbatch, which may be short.
//
// A pass over the training nodes is served from the layouts that were built for its number, so it has the
// batches of the live pass of that number; any other pass is sampled live. A layout is dropped when the next
// superbatch begins.
//
// A pass that is stopped while it waits for its layout gives the layout up; it is built anew when the pass is
// started again.
//
// Half of the budget is for building, and half for training.
#pragma once

#include <memory>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/live_road.h"

namespace quarry {

struct SuperbatchRoadOptions {
  // name: of the folders while they are there; batches: of a superbatch. epochs, first_pass and first_batch are the
  // road's.
  LayoutSpec layout;
  LiveRoadOptions live;    // what other passes are sampled with
  uint64_t last_pass = 0;  // no pass is planned ahead that comes later; 0: nobody knows
};

class SuperbatchRoad : public Road {
 public:
  // `store` and `budget` outlive the road. kOutOfBudget states the least memory that will do.
  static Result<std::unique_ptr<SuperbatchRoad>> Open(Store& store, MemoryBudget& budget,
                                                      const SuperbatchRoadOptions& options);
  virtual const LiveRoad& live() const = 0;
  // Seconds that passes waited for their layouts, the first one's included.
  virtual double plan_wait_seconds() const = 0;
  // Superbatches that were packed, and that were not.
  virtual uint64_t packed_superbatches() const = 0;
  virtual uint64_t merged_superbatches() const = 0;
};

}  // namespace quarry
