// What the runs of a topology cost whoever samples from it, and so whether folding them pays: a function of the catalog's
// record and the device's rates, which reads nothing.
//
// Lists that are loaded are merged once, when the graph is opened, and drawn from as ever. From lists on the disk each draw is
// searched for among the edits, which takes longer the more of them there are; how many runs they came in shows at opening
// alone, where runs are composed one after the other.
#pragma once

#include <cstdint>

#include "quarry/format/device_record.h"
#include "quarry/format/topology_record.h"

namespace quarry {

struct RunsPrice {
  // Seconds of reading, composing and merging runs, each time that the graph is opened and loaded; and what of it the device takes, and
  // what merging does, which lists on the disk are spared.
  double open_seconds = 0, open_disk_seconds = 0, merge_seconds = 0;
  double draw_seconds = 0;  // of finding a neighbor that is drawn from lists on the disk
  // Times what an epoch without runs takes, one that opens the graph and draws as many neighbors as it has edges.
  double loaded_slowdown = 1;
  double disk_slowdown = 1;          // each draw reads a page, in merged requests
  double edited_share = 0;           // edges added and removed, beside all edges
  double read_amplification = 1;     // bytes of file and runs, beside those of a file of the same edges
  double bytes_per_edited_edge = 0;  // of runs
  double fold_seconds = 0;           // of reading file and runs, and writing the file anew

  double slowdown() const { return loaded_slowdown > disk_slowdown ? loaded_slowdown : disk_slowdown; }
};

// REQUIRES: rates above 0, as DeviceOf gives them.
RunsPrice PriceRuns(const TopologyRecord& topology, const DeviceRecord& device);

// The slowdown beyond which whoever compacts by himself folds runs, if nothing else is said.
inline constexpr double kSlowdownMax = 1.3;

// Whether the runs slow sampling down by more than `slowdown_max`. Never where the file has everything.
bool PaysToFold(const TopologyRecord& topology, const DeviceRecord& device, double slowdown_max);

}  // namespace quarry
