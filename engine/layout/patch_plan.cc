#include <algorithm>
#include <utility>

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
    return found_.Add(budget_, {offset, node});
  }

  IoBackend& backend_;
  MemoryBudget& budget_;
  const Layout& layout_;
  const LayoutDirectory& directory_;
  const RowOverlay& newer_;
  BlockFrame frame_;
  FoundRows found_;
};

// The pages that are new and those that rows at `places` touch, and the gaps between them that are written too.
//
// Writing pages rather than whole regions pays when few rows changed: scattered evenly, 20 rows of a million
// are written in 1 MiB where a build writes 1.7 GiB. Whole regions would read no more sequentially, and 20
// rows would touch nearly all of them, since a row is in many chunks. From 1 % of the rows on, nearly every
// page is touched, and a patch becomes a copy of the layout that spares the planning.
std::vector<PageRange> PagesToWrite(std::span<const RegionPart> parts, const std::vector<RowPlace>& places,
                                    uint64_t row_bytes) {
  std::vector<PageRange> ranges;
  const auto add = [&](uint64_t first, uint64_t end) {
    if (ranges.empty() || first > ranges.back().first + ranges.back().count + kPatchGapBytes / kPageBytes) {
      ranges.push_back({first, end - first});
    } else {
      ranges.back().count = std::max(ranges.back().count, end - ranges.back().first);
    }
  };
  auto part = parts.begin();
  const auto add_new_parts_before = [&](uint64_t page) {
    for (; part != parts.end() && part->first_page <= page; ++part) {
      if (part->old_page == RegionPart::kNew) add(part->first_page, part->first_page + part->page_count);
    }
  };
  for (const RowPlace& place : places) {
    add_new_parts_before(place.offset / kPageBytes);
    add(place.offset / kPageBytes, CeilDiv(place.offset + row_bytes, kPageBytes));
  }
  add_new_parts_before(~uint64_t{0});
  return ranges;
}

// Adds what pages [first, end) of the regions, none of them new, are in the layout as it is. Files are numbered from 1: the
// next generation's own is 0.
void AddKept(const Layout& layout, std::span<const RegionPart> parts, uint64_t first, uint64_t end,
             std::vector<Extent>& extents) {
  if (first == end) return;
  const std::span<const Extent> old = layout.extents();
  auto part = std::prev(std::ranges::upper_bound(parts, first, {}, &RegionPart::first_page));
  for (uint64_t page = first; page < end; ++part) {
    const uint64_t part_end = std::min(end, part->first_page + part->page_count);
    const uint64_t moved = part->old_page - part->first_page;  // it may wrap around, and back again
    auto extent = std::prev(std::ranges::upper_bound(old, page + moved, {}, &Extent::first_page));
    for (; page < part_end; ++extent) {
      const uint64_t to = std::min(part_end, extent->first_page + extent->page_count - moved);
      extents.push_back(
          {page, to - page, extent->file + 1, extent->file_page + (page + moved - extent->first_page)});
      page = to;
    }
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

uint64_t FileBytes(const PatchPlan& plan) {
  const LayoutDirectory& directory = plan.directory;
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

Status FoundRows::Add(MemoryBudget& budget, RowPlace place) {
  if (places.size() == reservations.size() * kPlacesAtATime) {
    QUARRY_TRY(MemoryBudget::Reservation more,
               budget.Reserve(kPlacesAtATime * kBytesPerPlace, "the places of changed rows"));
    reservations.push_back(std::move(more));
  }
  places.push_back(place);
  return Status::Ok();
}

Result<FoundRows> FindRows(IoBackend& backend, MemoryBudget& budget, const Layout& layout,
                           const RowOverlay& newer, const ProgressFunction& progress) {
  RowFinder finder(backend, budget, layout, newer);
  return finder.Run(progress);
}

PatchPlan PlanPatch(const Layout& layout, LayoutDirectory directory, std::span<const RegionPart> parts,
                    const std::vector<RowPlace>& places) {
  PatchPlan plan;
  plan.written = PagesToWrite(parts, places, directory.row_bytes);
  uint64_t page = 0;
  uint64_t file_page = 0;
  for (const PageRange& range : plan.written) {
    AddKept(layout, parts, page, range.first, plan.extents);
    plan.extents.push_back({range.first, range.count, 0, file_page});
    page = range.first + range.count;
    file_page += range.count;
  }
  AddKept(layout, parts, page, directory.regions_bytes / kPageBytes, plan.extents);
  plan.bases = KeepUsed(layout.record(), plan.extents);
  if (plan.bases.empty()) return PlanCopy(std::move(directory));
  plan.directory = std::move(directory);
  plan.file_bytes = FileBytes(plan);
  return plan;
}

PatchPlan PlanPatch(const Layout& layout, const std::vector<RowPlace>& places) {
  const RegionPart all = {.page_count = layout.directory().regions_bytes / kPageBytes, .old_page = 0};
  return PlanPatch(layout, layout.directory(), {&all, 1}, places);
}

PatchPlan PlanCopy(LayoutDirectory directory) {
  PatchPlan plan = {.directory = std::move(directory)};
  plan.written = {{0, plan.directory.regions_bytes / kPageBytes}};
  plan.file_bytes = FileBytes(plan);
  return plan;
}

}  // namespace quarry
