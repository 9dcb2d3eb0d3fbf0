// SuperbatchRoad: fresh samples every epoch, each planned ahead (Ginex §3.1): while one epoch trains, the
// next is sampled and planned in the background; and packed (DiskGNN), or its rows are left in the table and
// read from there by merged requests, whichever the cost model finds cheaper for an epoch that is used once
// (LayoutSpec::packing may say which). Either way the cache is Belady's over the epoch's known batches.
//
// A pass over the training nodes is served from the layout that was built for its number, so it has the
// batches of the live pass of that number; any other pass is sampled live. A layout is dropped when the next
// pass begins.
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
  LayoutSpec layout;     // name: of the folders while they are there; epochs and first_pass are the road's
  LiveRoadOptions live;  // what other passes are sampled with
};

class SuperbatchRoad : public Road {
 public:
  // `store` and `budget` outlive the road. kOutOfBudget states the least memory that will do.
  static Result<std::unique_ptr<SuperbatchRoad>> Open(Store& store, MemoryBudget& budget,
                                                      const SuperbatchRoadOptions& options);
  virtual const LiveRoad& live() const = 0;
  // Seconds that passes waited for their layout, the first one's included.
  virtual double plan_wait_seconds() const = 0;
  // Passes over the training nodes that were packed, and that were not.
  virtual uint64_t packed_passes() const = 0;
  virtual uint64_t merged_passes() const = 0;
};

}  // namespace quarry
