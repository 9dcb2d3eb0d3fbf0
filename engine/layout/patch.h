// Patching: a layout whose plan still holds, with rows that changed put into it. Pages with changed rows are
// written anew, into the file of the next generation; the others stay where they are, in files that the new
// folder gets by hard links. So what is written is in proportion to what changed. Short gaps between such
// pages are written too, so that reads stay long. Private to this room.
//
//   FindRows -> PlanPatch (or PlanCopy) -> WritePatch -> CommitLayout
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout_place.h"
#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/deltas.h"

namespace quarry {

// The longest gap that is written too. Written once, it costs about what its two requests cost in five
// epochs; beyond it a read gains no bandwidth (coalesce.h).
inline constexpr uint64_t kPatchGapBytes = 256 << 10;

// A row in the regions. Rows of segment caches and of several chunks have several places.
struct RowPlace {
  uint64_t offset = 0;
  uint64_t row = 0;
};

struct FoundRows {
  std::vector<RowPlace> places;  // by offset, each once
  std::vector<MemoryBudget::Reservation> reservations;
};

// Where the regions hold rows that `newer` has: reads and verifies all planned blocks. kOutOfBudget when the
// places do not fit, kCorruption.
Result<FoundRows> FindRows(IoBackend& backend, MemoryBudget& budget, const Layout& layout,
                           const RowOverlay& newer, const ProgressFunction& progress);

struct PageRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// What the next generation of a layout consists of.
struct PatchPlan {
  std::vector<PageRange> written;  // pages of the regions, in order, for its own file
  std::vector<Extent> extents;     // empty: its own file has all of them
  std::vector<LayoutBase> bases;   // that the extents need
  uint64_t file_bytes = 0;         // size of its own file, at most

  uint64_t written_bytes() const;
};

// `places` not empty.
PatchPlan PlanPatch(const Layout& layout, const std::vector<RowPlace>& places);
// All regions in one file again.
PatchPlan PlanCopy(const Layout& layout);

// Writes the files of the next generation to place.building, and returns what the record then says, but for
// its directory. kUnsupported where the file system has no hard links. `progress` gets bytes written.
Result<LayoutRecord> WritePatch(Store& store, MemoryBudget& budget, const LayoutPlace& place,
                                const Layout& layout, const PatchPlan& plan, std::vector<RowPlace> places,
                                const RowOverlay& newer, const ProgressFunction& progress);

}  // namespace quarry
