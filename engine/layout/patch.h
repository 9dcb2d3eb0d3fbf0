// Patching: a layout with rows that changed put into it, or with batches that were planned anew (mend.h). Pages with changed
// rows, and those of such batches, are written into the file of the next generation; the others stay where they are, in files
// that the new folder gets by hard links. So what is written is in proportion to what changed. Short gaps between such
// pages are written too, so that reads stay long. Private to this room.
//
//   FindRows -> PlanPatch (or PlanCopy) -> WritePatch -> CommitLayout
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
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
  // kOutOfBudget.
  Status Add(MemoryBudget& budget, RowPlace place);
};

// Where the regions hold rows that `newer` has: reads and verifies all planned blocks. kOutOfBudget when the
// places do not fit, kCorruption.
Result<FoundRows> FindRows(IoBackend& backend, MemoryBudget& budget, const Layout& layout,
                           const RowOverlay& newer, const ProgressFunction& progress);

struct PageRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// Pages of the next generation's regions: those of the layout from `old_page` on, or such as are made anew.
struct RegionPart {
  static constexpr uint64_t kNew = ~uint64_t{0};
  uint64_t first_page = 0;
  uint64_t page_count = 0;
  uint64_t old_page = kNew;
};

// What the next generation of a layout consists of.
struct PatchPlan {
  LayoutDirectory directory;
  bool keeps_trace = true;         // else the trace is in the folder already
  std::vector<PageRange> written;  // pages of the regions, in order, for its own file
  std::vector<Extent> extents;     // empty: its own file has all of them
  std::vector<LayoutBase> bases;   // that the extents need
  uint64_t file_bytes = 0;         // size of its own file, at most

  uint64_t written_bytes() const;
};

// `parts` are all of the regions that `directory` says, in order; `places`, by offset, lie in these. Parts that are new, or
// places, there must be.
PatchPlan PlanPatch(const Layout& layout, LayoutDirectory directory, std::span<const RegionPart> parts,
                    const std::vector<RowPlace>& places);
// The plan is the layout's own.
PatchPlan PlanPatch(const Layout& layout, const std::vector<RowPlace>& places);
// All regions in one file again.
PatchPlan PlanCopy(LayoutDirectory directory);

// Reads whole pages of the next generation's regions from `offset` on, as they are without changed rows.
using ReadRegions = std::function<Status(uint64_t offset, std::span<std::byte> pages)>;

// Writes the files of the next generation to place.building, a folder without files of these names, and returns what the
// record then says, but for its directory. Calls `read` for what the plan writes, front to back. kUnsupported where the
// file system has no hard links. `progress` gets bytes written.
Result<LayoutRecord> WritePatch(Store& store, MemoryBudget& budget, const LayoutPlace& place,
                                const LayoutRecord& old, const PatchPlan& plan, const ReadRegions& read,
                                std::vector<RowPlace> places, const RowOverlay& newer,
                                const ProgressFunction& progress);

}  // namespace quarry
