// How much of a layout the graph has outgrown: whose sampled neighborhoods of its planned batches hold a node whose list of
// neighbors has changed since, so that they would be drawn anew, perhaps otherwise.
//
// A seed's neighborhood has changed when the list of the seed, or of any node that was drawn for it before the last hop, is
// one that a run of edges since the layout changes, or that a compaction has folded into the topology's file since
// (storage/folded_lists.h): the blocks of the layout are read, one after the other, and beside one of them only a bit for each
// node is held. A run that has older commits, too (runs are merged), counts whole. Where a compaction of before such lists were
// remembered has folded edits since, nothing is counted.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/store.h"

namespace quarry {

struct ChangedSeeds {
  bool known = true;   // false: which lists were folded since is not, and the rest is 0
  uint64_t lists = 0;  // that changed, of the sides that are drawn from
  // Over all planned epochs: a seed counts in each.
  uint64_t seeds = 0;
  uint64_t seeds_changed = 0;
  std::vector<uint64_t> batches;  // with such a seed, ascending
  // Input nodes of these that may be others once they are drawn anew: what changed lists gave, and what was found through that,
  // as much as nodes of that hop brought along in the mean.
  uint64_t rows_redrawn = 0;
  // By slot of the cache's image: whether the row is there again when the cycle begins anew. The plan leaves out rows that it has
  // no use for; a batch that is planned anew may have one in the first cycle, and would not find it in the next.
  std::vector<bool> image_lasts;
};

// As of `snapshot`. kOutOfBudget; kCorruption of layout or runs; kCancelled when `progress` says so.
Result<ChangedSeeds> CountChangedSeeds(Store& store, MemoryBudget& budget, const Layout& layout,
                                       const Snapshot& snapshot, const ProgressFunction& progress);

}  // namespace quarry
