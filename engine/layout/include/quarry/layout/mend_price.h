// Whether a layout of an older graph is mended or built anew: a function of counts and the device's rates, which reads
// nothing.
//
// Mending draws the touched batches again and leaves all others, and the changes of the cache, as they were planned. It
// reads every block, for what the cache holds, and writes the touched batches and the trace; building reads lists and table
// whole and writes everything. What mending costs later is that rows which the old batches did not have are read with each
// epoch, where a new plan would have some of them in the cache: a few epochs of that count against it.
#pragma once

#include <cstdint>

#include "quarry/format/device_record.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/layout.h"

namespace quarry {

struct MendCounts {
  uint64_t nodes = 0;  // of the graph
  uint64_t batches_touched = 0;
  uint64_t edges = 0, edges_touched = 0;  // sampled: of all batches, of those touched
  uint64_t nodes_touched = 0;             // input nodes of the touched batches
  uint64_t rows_redrawn = 0;              // of these, that are others than before, by estimate
  uint64_t row_bytes = 0;                 // as the layout holds rows
  uint64_t blocks_bytes = 0;              // of all batches
  uint64_t touched_bytes = 0;             // blocks and chunks of the touched batches
  uint64_t regions_bytes = 0;
  uint64_t trace_bytes = 0;
  uint64_t lists_bytes = 0;  // of neighbors, in the graph's file
  uint64_t table_bytes = 0;  // that packing reads; 0 = rows are not packed
};

// The counts of an open layout whose graph has changed so. REQUIRES: `manifest` has the layout's table and topology.
MendCounts MendCountsOf(const Layout& layout, const Manifest& manifest, const ChangedSeeds& changed);

struct MendPrice {
  double mend_seconds = 0;
  double build_seconds = 0;
  double epoch_seconds = 0;  // that an epoch reads longer after mending
  bool lists_in_memory =
      true;  // while touched batches are sampled: all lists are read rather than pages of some

  static constexpr double kEpochs =
      5;  // that count; the same number that gaps of patches are worth (patch.h)
  bool mends() const { return mend_seconds + kEpochs * epoch_seconds < build_seconds; }
};

// REQUIRES: rates above 0, as DeviceOf gives them.
MendPrice PriceMend(const MendCounts& counts, const DeviceRecord& device);

}  // namespace quarry
