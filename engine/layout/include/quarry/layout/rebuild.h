// Rebuilding a layout: it then holds the newest rows again, and training reads none of them beside it.
//
// While the batches are the same (training nodes, specification, and the lists of neighbors that they draw from), so is the plan, and only
// values of rows have changed. Where some draw from lists that changed, these alone can be planned anew. The cheapest
// sufficient way is taken:
//
//   record   none of the changed rows is in the layout, or it is not packed: the catalog alone changes
//   patch    the pages of the layout that hold changed rows are written anew, the others stay in their files
//   copy     as a patch, all pages: when patches would leave too much behind, or exceed the disk budget
//   mend     batches that draw from changed lists are sampled, planned and packed anew, the others keep their bytes
//   build    everything anew: when the batches are others, the layout is damaged, or it is cheaper (mend_price.h)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/store.h"

namespace quarry {

// In the order of reports, which have the number.
enum class RebuildPath : uint8_t { kRecord, kPatch, kCopy, kBuild, kMend };

std::string_view RebuildPathName(RebuildPath path);  // "record", "patch", "copy", "build", "mend"

struct RebuildOptions {
  bool full = false;     // build it, whatever changed
  bool dry_run = false;  // say what would be done, and do nothing
  unsigned threads = 1;  // for a build
};

struct RebuildReport {
  RebuildPath path = RebuildPath::kBuild;
  std::string why;            // half a sentence, for people
  uint64_t rows_changed = 0;  // rows of the table that changed since the layout's rows
  uint64_t places = 0;        // in the layout, that hold one of them
  // Where edges came or went since: how many of the planned seeds, in how many batches, draw from lists that changed.
  uint64_t seeds_changed = 0;
  uint64_t batches_changed = 0;
  double find_seconds = 0;  // time it took to find these
  // Predicted. Patching (or copying) goes by the device's rates, 0 when it cannot be done; building by what
  // it took the last time.
  double patch_seconds = 0;
  double build_seconds = 0;
  // Where batches draw from changed lists: predicted by counts and rates, the price of mending these, and of building, which
  // it is held against.
  double mend_seconds = 0;
  double anew_seconds = 0;
  uint64_t patch_bytes = 0;  // written
  uint64_t build_bytes = 0;
  // Time that the rebuild took, finding the places included; 0 after a dry run.
  double seconds = 0;
  uint64_t bytes_written = 0;
  uint64_t batches_sampled = 0;  // anew
  uint64_t rows_read = 0;        // of the table, to be packed
  BuildReport build;             // filled for RebuildPath::kBuild
};

// Returns the new record, or, after a dry run, the old one. Until the catalog names the new layout the old
// one stands and serves; a crash leaves what BuildLayout leaves. Holds the places and values of the changed
// rows; where `budget` has no room for them, builds. As BuildLayout: kNotFound, kOutOfBudget, kNoSpace,
// kCancelled.
Result<LayoutRecord> RebuildLayout(Store& store, MemoryBudget& budget, std::string_view name,
                                   const RebuildOptions& options, const ProgressFunction& progress,
                                   RebuildReport* report = nullptr);

}  // namespace quarry
