// Mending: the batches of a layout whose samples the graph has outgrown are drawn and encoded anew, and all others stay as they
// are, byte for byte. Private to this room.
//
// What a batch finds in the cache follows from what all batches before it put there, so a batch cannot be planned by itself;
// but it can be fitted to a plan that stands. A mended batch leaves the cache as the batch before it did: what that one
// admitted enters the same slots, as a carried row where the new sample has no use for it (planned_block.h). What the cache
// holds when the batch comes it may use, and what its segment's cache had for it; its other rows go to its chunk. So no other
// batch notices. What is lost is the best choice of what to keep, by as much as the new samples are others (mend_price.h).
//
//   Make -> MovePlaces -> PlanPatch (patch.h) -> WriteTrace -> WritePatch with Read -> Describe
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout_place.h"
#include "patch.h"
#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/layout.h"
#include "quarry/layout/planned_block.h"
#include "quarry/storage/merged_reader.h"
#include "quarry/storage/table_files.h"
#include "quarry/storage/table_view.h"
#include "record_file.h"

namespace quarry {

// One thread, but for sampling.
class Mend {
 public:
  // Samples the touched batches and encodes them, into scratch files of place.building, an empty folder. `spec` is what the
  // layout was built with, with the snapshot that it is to be of. All that is passed outlives the mend, and the layout
  // stays as it is. kUnsupported where the plan does not fit the snapshot any more; kOutOfBudget, kCorruption,
  // kCancelled.
  static Result<std::unique_ptr<Mend>> Make(Store& store, MemoryBudget& budget, const Layout& layout,
                                            const LayoutSpec& spec, const LayoutPlace& place,
                                            const ChangedSeeds& changed, bool lists_in_memory,
                                            const ProgressFunction& progress);

  // The mended layout's.
  const LayoutDirectory& directory() const { return directory_; }
  std::span<const RegionPart> parts() const { return parts_; }

  // `found` of the layout become those of the mended one: places in mended batches go, and those that their new chunks have
  // of rows in `newer` come. kOutOfBudget.
  Status MovePlaces(const RowOverlay& newer, FoundRows& found) const;
  // Writes the trace of the mended layout to place.building.
  Status WriteTrace();
  // As ReadRegions; `offset` ascends from call to call.
  Status Read(uint64_t offset, std::span<std::byte> pages);
  // Sets what the plan promises, and the trace.
  void Describe(LayoutRecord& record) const;
  Status RemoveScratch() const;

  uint64_t rows_read() const { return rows_read_; }  // from the table, for chunks

 private:
  Mend(Store& store, MemoryBudget& budget, const Layout& layout, const LayoutSpec& spec,
       const LayoutPlace& place, const ChangedSeeds& changed)
      : store_(store), budget_(budget), layout_(layout), spec_(spec), place_(place), changed_(changed) {}
  Status Sample(bool lists_in_memory, const ProgressFunction& progress);
  Status Encode(const ProgressFunction& progress);
  Status EncodeBatch(uint64_t number, const TraceBatch& drawn, const PlannedBlock& old,
                     std::span<const uint32_t> slot_of);
  Status ReadOldBlock(uint64_t batch, std::span<std::byte> pages) const;
  void PlaceRegions();
  void AddPart(uint64_t first_page, uint64_t page_count, uint64_t old_page);
  Status OpenTable();
  Status Assemble(uint64_t number);
  Status AddSegmentReads(std::span<const uint32_t> places);
  uint64_t RegionBytes(const LayoutDirectory& directory, uint64_t batch) const {
    const BatchEntry& entry = directory.batches[batch];
    return RoundUp(entry.block_bytes, kPageBytes) + directory.chunk_bytes(entry);
  }
  std::string Path(std::string_view file) const { return place_.building + "/" + std::string(file); }

  Store& store_;
  MemoryBudget& budget_;
  const Layout& layout_;
  const LayoutSpec& spec_;
  const LayoutPlace& place_;
  const ChangedSeeds& changed_;
  TraceSummary drawn_summary_;
  std::unique_ptr<RecordFile> drawn_, blocks_, encoded_;  // by number among the touched batches
  LayoutDirectory directory_;
  std::vector<RegionPart> parts_;
  uint64_t trace_bytes_ = 0;

  // While batches are encoded.
  BlockEncoder encoder_;
  std::unique_ptr<RecordWriter> encoded_writer_;
  std::vector<uint32_t> segment_places_;  // by node, kNoSlot for all between two batches; empty: no segments
  IoBuffer blocks_buffer_;
  std::vector<std::byte> bytes_;
  uint64_t old_accesses_ = 0, old_hits_ = 0, new_accesses_ = 0, new_hits_ = 0;  // of touched batches
  uint64_t segment_bytes_ = 0, segment_requests_ = 0;  // that all batches read of segments

  // While regions are written.
  MemoryBudget::Reservation reservation_, overlay_reservation_;
  std::unique_ptr<TableFiles> files_;
  std::unique_ptr<TableView> table_;
  std::unique_ptr<MergedReader> reader_;
  IoBuffer region_, old_region_, encoded_buffer_;
  size_t assembled_ = ~size_t{0};  // whose region is in region_
  uint64_t rows_read_ = 0;
};

}  // namespace quarry
