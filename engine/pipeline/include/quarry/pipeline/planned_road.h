// PlannedRoad: batches from a layout (DiskGNN §4, §5.3): everything that a batch needs lies in one run of the
// file, in the order in which it is needed, and every address is known.
//
//   loader    reads block and chunk of the next batches, by large direct requests, into frames
//   assembler verifies both, decodes the block, and reads the batch's rows of its segment's cache (of the
//             table, where rows are not packed)
//   Next      applies the changes of the batch before to the cache, and hands out the next
//
// Cache and frames are one array of rows, so a row's slot says where it lies, and rows are used where the
// device put them: only rows that enter the cache, and rows of segment caches, are ever copied.
//
// The layout holds rows as they were when it was built; newer rows of the road's snapshot are put over them
// as they arrive, so a layout serves writes that came after it.
//
// A layout of one trainer among several (BuildRankLayouts) serves a pass over the training nodes by the trainer's batches,
// and other passes by its share of their seeds.
//
// A pass over the layout's seeds is served from it, whatever its number: planned epochs follow each other and
// begin again. Any other pass (validation, test) is sampled live: packing its rows would double the layout
// for passes that read them once an epoch. A pass that was given up before its end, or whose cycle cannot be
// continued, makes the next one begin the cycle anew with the cache image.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/pipeline/device_target.h"
#include "quarry/pipeline/live_road.h"

namespace quarry {

struct PlannedRoadOptions {
  std::string layout = "default";
  std::optional<LayoutRecord> record;  // a layout that the catalog does not name; then `layout` is unused
  unsigned io_depth = 16;              // requests of up to 1 MiB in flight
  // Batches at any stage; 0 = four, or as many as the budget allows, at least two. 1 does one stage after the
  // other, for comparison.
  unsigned frame_count = 0;
  bool tells_plan = true;  // as LiveRoadOptions
  // What the road sees while it is open; null: everything committed when it is opened.
  std::shared_ptr<const Snapshot> snapshot;
  // The live road for passes over other seeds, on what the budget has left; empty: such passes are refused. They are
  // refused as well, and Serves says so, where files are in an object store (quarry/objects/thin_database.h).
  std::optional<LiveRoadOptions> live;
  // Batches of passes over the layout's seeds go to this device, and as much of the cache as it has room for lies there;
  // those of other passes lie in memory.
  DeviceTarget device;
};

struct PlannedRoadPlan {
  uint64_t fixed_bytes = 0;  // directory, checksums, labels, block decoder
  uint64_t cache_bytes = 0;
  uint64_t frame_bytes = 0;  // for each frame: rows, block, its decoded form
  uint32_t frame_count = 0;
  // On the device, if there is one: of the cache's slots, and all that is taken there.
  uint64_t device_slots = 0, device_bytes = 0;
  uint64_t total_bytes() const { return fixed_bytes + cache_bytes + frame_bytes * frame_count; }
  std::string ToString() const;  // one line
};

class PlannedRoad : public Road {
 public:
  // `store` and `budget` outlive the road. As Layout::Open; kOutOfBudget states the least memory that will
  // do.
  static Result<std::unique_ptr<PlannedRoad>> Open(Store& store, MemoryBudget& budget,
                                                   const PlannedRoadOptions& options);
  // What the road of such a layout takes at most, with as few frames as it can have, when its batches have up to
  // `batch_nodes_max` input nodes, over so many training nodes: for whoever asks before the layout is built.
  // REQUIRES: the manifest has the layout's table and topology.
  static uint64_t LeastBytes(const Manifest& manifest, const LayoutSpec& spec, uint64_t train_nodes,
                             uint64_t batch_nodes_max);
  virtual const PlannedRoadPlan& plan() const = 0;
  virtual const Layout& layout() const = 0;
  virtual const LiveRoad* live() const = 0;  // null without one
};

}  // namespace quarry
