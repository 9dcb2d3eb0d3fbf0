#include <algorithm>

#include "patch.h"
#include "quarry/base/progress.h"
#include "quarry/base/units.h"
#include "quarry/layout/planned_block.h"

namespace quarry {
namespace {

constexpr uint64_t kPlacesAtATime = uint64_t{1} << 18;     // that are paid for
constexpr uint64_t kBytesPerPlace = 2 * sizeof(RowPlace);  // while the list grows

class RowFinder {
 public:
  RowFinder(IoBackend& backend, MemoryBudget& budget, const Layout& layout, const RowOverlay& newer)
      : backend_(backend), budget_(budget), layout_(layout), directory_(layout.directory()), newer_(newer) {}

  Result<FoundRows> Run(const ProgressFunction& progress) {
    for (uint64_t i = 0; i < directory_.image_rows; ++i) {
      QUARRY_RETURN_IF_ERROR(Add(directory_.start_nodes[i], i * directory_.row_stride));
    }
    const uint64_t block_bytes_max = RoundUp(directory_.block_bytes_max(), kPageBytes);
    QUARRY_TRY(const IoBuffer block, IoBuffer::Allocate(std::max(block_bytes_max, kPageBytes)));
    for (uint64_t batch = 0; batch < directory_.batches.size(); ++batch) {
      QUARRY_RETURN_IF_ERROR(AddBatch(batch, block));
      if (progress) {
        QUARRY_RETURN_IF_ERROR(progress("finding changed rows", batch + 1, directory_.batches.size()));
      }
    }
    std::ranges::sort(found_.places, {}, &RowPlace::offset);
    // Batches of a segment share its rows.
    std::vector<RowPlace>& places = found_.places;
    const auto same = [](const RowPlace& a, const RowPlace& b) { return a.offset == b.offset; };
    places.erase(std::unique(places.begin(), places.end(), same), places.end());
    return std::move(found_);
  }

 private:
  Status AddBatch(uint64_t batch, const IoBuffer& block) {
    const BatchEntry& entry = directory_.batches[batch];
    const uint64_t stride = directory_.row_stride;
    const std::span<std::byte> pages = block.span().first(RoundUp(entry.block_bytes, kPageBytes));
    QUARRY_RETURN_IF_ERROR(layout_.ReadPages(backend_, entry.offset, pages));
    QUARRY_RETURN_IF_ERROR(DecodeFrame(pages.first(entry.block_bytes), directory_.node_count, frame_));
    if (frame_.chunk_rows != entry.chunk_rows || frame_.segment_places.size() != entry.segment_rows ||
        (entry.segment_rows > 0 && frame_.segment_places.back() >= directory_.segments[entry.segment].rows)) {
      return MakeStatus(Code::kCorruption, "{}: batch {}: its block and the directory contradict each other",
                        layout_.file().path(), batch);
    }
    for (uint64_t row = 0; row < frame_.chunk_rows; ++row) {
      QUARRY_RETURN_IF_ERROR(Add(frame_.nodes[row], entry.offset + pages.size() + row * stride));
    }
    for (size_t i = 0; i < frame_.segment_places.size(); ++i) {
      const uint64_t offset = directory_.segments[entry.segment].offset + frame_.segment_places[i] * stride;
      QUARRY_RETURN_IF_ERROR(Add(frame_.nodes[frame_.chunk_rows + i], offset));
    }
    return Status::Ok();
  }

  Status Add(NodeId node, uint64_t offset) {
    if (!newer_.Touched(node)) return Status::Ok();
    if (found_.places.size() == found_.reservations.size() * kPlacesAtATime) {
      QUARRY_TRY(MemoryBudget::Reservation more,
                 budget_.Reserve(kPlacesAtATime * kBytesPerPlace, "the places of changed rows"));
      found_.reservations.push_back(std::move(more));
    }
    found_.places.push_back({offset, node});
    return Status::Ok();
  }

  IoBackend& backend_;
  MemoryBudget& budget_;
  const Layout& layout_;
  const LayoutDirectory& directory_;
  const RowOverlay& newer_;
  BlockFrame frame_;
  FoundRows found_;
};

// The pages that rows at `places` touch, and the gaps between them that are written too.
//
// Writing pages rather than whole regions pays when few rows changed: scattered evenly, 20 rows of a million
// are written in 1 MiB where a build writes 1.7 GiB. Whole regions would read no more sequentially, and 20
// rows would touch nearly all of them, since a row is in many chunks. From 1 % of the rows on, nearly every
// page is touched, and a patch becomes a copy of the layout that spares the planning.
std::vector<PageRange> TouchedPages(const std::vector<RowPlace>& places, uint64_t row_bytes) {
  std::vector<PageRange> ranges;
  for (const RowPlace& place : places) {
    const uint64_t first = place.offset / kPageBytes;
    const uint64_t end = CeilDiv(place.offset + row_bytes, kPageBytes);
    if (ranges.empty() || first > ranges.back().first + ranges.back().count + kPatchGapBytes / kPageBytes) {
      ranges.push_back({first, end - first});
    } else {
      ranges.back().count = end - ranges.back().first;
    }
  }
  return ranges;
}

// Adds what pages [first, end) of the regions are in the layout as it is. Files are numbered from 1: the next
// generation's own is 0.
void AddKept(const Layout& layout, uint64_t first, uint64_t end, std::vector<Extent>& extents) {
  if (first == end) return;
  const std::span<const Extent> old = layout.extents();
  auto extent = std::prev(std::ranges::upper_bound(old, first, {}, &Extent::first_page));
  for (; extent != old.end() && extent->first_page < end; ++extent) {
    const uint64_t from = std::max(first, extent->first_page);
    const uint64_t to = std::min(end, extent->first_page + extent->page_count);
    extents.push_back({from, to - from, extent->file + 1, extent->file_page + (from - extent->first_page)});
  }
}

// Numbers the files of `extents` anew, by the bases that are left.
std::vector<LayoutBase> KeepUsed(const LayoutRecord& record, std::vector<Extent>& extents) {
  std::vector<LayoutBase> files = {{record.generation, record.file_bytes}};
  files.insert(files.end(), record.bases.begin(), record.bases.end());
  std::vector<uint64_t> number_of(files.size() + 1);
  for (const Extent& extent : extents) number_of[extent.file] = 1;
  number_of[0] = 0;
  std::vector<LayoutBase> kept;
  for (size_t file = 1; file < number_of.size(); ++file) {
    if (number_of[file] == 0) continue;
    kept.push_back(files[file - 1]);
    number_of[file] = kept.size();
  }
  for (Extent& extent : extents) extent.file = number_of[extent.file];
  return kept;
}

uint64_t FileBytes(const Layout& layout, const PatchPlan& plan) {
  const LayoutDirectory& directory = layout.directory();
  const uint64_t slack = 64 * kKiB;  // superblock, footer, the pages that sections fill in part
  const uint64_t regions = plan.written_bytes();
  return regions + regions / kPageBytes * sizeof(uint32_t) + directory.batches.size() * sizeof(BatchEntry) +
         directory.segments.size() * sizeof(SegmentEntry) + plan.extents.size() * sizeof(Extent) +
         (directory.start_nodes.size() + directory.wrap.size()) * sizeof(uint32_t) + slack;
}

}  // namespace

uint64_t PatchPlan::written_bytes() const {
  uint64_t pages = 0;
  for (const PageRange& range : written) pages += range.count;
  return pages * kPageBytes;
}

Result<FoundRows> FindRows(IoBackend& backend, MemoryBudget& budget, const Layout& layout,
                           const RowOverlay& newer, const ProgressFunction& progress) {
  RowFinder finder(backend, budget, layout, newer);
  return finder.Run(progress);
}

PatchPlan PlanPatch(const Layout& layout, const std::vector<RowPlace>& places) {
  PatchPlan plan;
  plan.written = TouchedPages(places, layout.directory().row_bytes);
  uint64_t page = 0;
  uint64_t file_page = 0;
  for (const PageRange& range : plan.written) {
    AddKept(layout, page, range.first, plan.extents);
    plan.extents.push_back({range.first, range.count, 0, file_page});
    page = range.first + range.count;
    file_page += range.count;
  }
  AddKept(layout, page, layout.directory().regions_bytes / kPageBytes, plan.extents);
  plan.bases = KeepUsed(layout.record(), plan.extents);
  if (plan.bases.empty()) return PlanCopy(layout);
  plan.file_bytes = FileBytes(layout, plan);
  return plan;
}

PatchPlan PlanCopy(const Layout& layout) {
  PatchPlan plan;
  plan.written = {{0, layout.directory().regions_bytes / kPageBytes}};
  plan.file_bytes = FileBytes(layout, plan);
  return plan;
}

}  // namespace quarry
