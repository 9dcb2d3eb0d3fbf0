// SuperbatchRoad: fresh samples every epoch, each planned and packed ahead (Ginex §3.1 with DiskGNN's
// packing): while one epoch trains, the next is sampled, planned and packed in the background.
//
// A pass over the training nodes is served from the layout that was built for its number, so it has the
// batches of the live pass of that number; any other pass is sampled live. A layout is dropped when the next
// pass begins. Packing reads the table once and writes the chunks: worth it when training an epoch takes
// longer.
//
// Of the budget, half is for building and half for training.
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
};

}  // namespace quarry
