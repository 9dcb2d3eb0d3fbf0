// Layout: a materialized training plan over a feature table: what an index is to a relational table. Derived
// data: it can always be built again (invariant 7).
//
//   layouts/NAME-<gen>/layout.qlc   regions: cache image | segment caches | block and chunk of each batch
//                                   directory: where each region lies, and what the plan promises
//   layouts/NAME-<gen>/trace.qlt    the access trace that it was planned on
//
// A patched layout (rebuild.h) has pieces of its regions in its own file and the others in files of earlier
// generations. A region keeps its offset; Locate says where a range of it lies.
//
// Every batch's region is its planned block (planned_block.h) and then its chunk, so that one sequential read
// brings both; the rows of chunk, segment cache and image stand `row_stride` bytes apart, as the feature
// buffer holds them, so that they land by DMA where the batch uses them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/cache/cache_policy.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/road_spec.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/layout_directory.h"
#include "quarry/layout/planned_block.h"
#include "quarry/layout/trace.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/layout_files.h"
#include "quarry/storage/store.h"

namespace quarry {

struct LayoutSpec {
  std::string name = "default";  // letters, digits, - and _
  RoadSpec road;
  uint32_t epochs = 1;      // planned; training repeats them
  uint64_t first_pass = 1;  // the live pass whose batches the first planned epoch has
  // A superbatch is a part of a pass: so many batches from the first one on, or as many as there are; 0: the whole pass.
  // Only a layout that is read once (cyclic is false) and has one epoch may have a part.
  uint64_t first_batch = 0, batches = 0;
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t disk_bytes = 0;  // the most that the layout may take; 0 = no limit
  uint32_t hash_functions = 8;
  bool cyclic = true;  // else it is read once, front to back (superbatches)
  Packing packing = Packing::kAlways;
  RankShare share = {};  // of one trainer among several; disk_bytes is then its own
  // The snapshot whose labels and splits say which nodes are trained on, and whose rows are packed; null:
  // everything committed so far.
  std::shared_ptr<const Snapshot> snapshot;
  unsigned threads = 1;

  // Batches of the layout, at most, when so many nodes are trained on.
  uint64_t BatchCount(uint64_t train_nodes) const {
    const uint64_t pass = CeilDiv(train_nodes, uint64_t{road.batch_size});
    return batches > 0 ? std::min(batches, pass) : epochs * pass;
  }
};

// The device as `quarry calibrate` measured it, or the default.
DeviceProfile ProfileOf(const Manifest& manifest);

// Names a set of seeds, whatever their order.
uint64_t HashSeeds(std::span<const NodeId> seeds);

// An open layout. Const use is thread-safe.
class Layout {
 public:
  // kNotFound lists what there is; kUnsupported when it is not servable; kCorruption. Must not outlive the
  // store.
  static Result<std::unique_ptr<Layout>> Open(Store& store, std::string_view name);
  // Opens a layout that the catalog does not name (BuildPassingLayout).
  static Result<std::unique_ptr<Layout>> Open(Store& store, const LayoutRecord& record);

  const LayoutRecord& record() const { return record_; }
  const LayoutDirectory& directory() const { return directory_; }
  const File& file() const { return files_[0].data.file; }
  std::span<const Extent> extents() const { return extents_; }  // all of the regions, in order

  // Returns where the first contiguous part of [offset, offset + bytes) of the regions lies. REQUIRES: offset
  // is a multiple of the page, bytes > 0, and the range lies in the regions.
  struct Part {
    const File* file = nullptr;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;
  };
  Part Locate(uint64_t offset, uint64_t bytes) const;
  // Verifies whole pages that were read from `offset` (a multiple of the page) of the regions.
  Status VerifyPages(uint64_t offset, std::span<const std::byte> pages) const;
  // Reads whole pages from `offset` on, and verifies them.
  Status ReadPages(IoBackend& backend, uint64_t offset, std::span<std::byte> pages) const;
  uint64_t resident_bytes() const;
  Result<std::unique_ptr<Trace>> OpenTrace(Store& store) const;

 private:
  // A file with regions.
  struct RegionFile {
    DataFile data;
    Section regions;
    std::vector<uint32_t> checksums;
  };
  Layout() = default;
  static Result<RegionFile> OpenFile(Store& store, const LayoutFile& file);
  Status CheckExtents() const;
  const Extent& ExtentOf(uint64_t page) const;

  LayoutRecord record_;
  LayoutDirectory directory_;
  std::vector<RegionFile> files_;
  std::vector<Extent> extents_;
};

// Figures of a build, for reports and benchmarks.
struct BuildReport {
  TraceSummary trace;
  double sample_seconds = 0;
  double plan_seconds = 0;  // simulation, segments, encoding
  double pack_seconds = 0;
  double pack_read_seconds = 0;
  double segment_search_seconds = 0;
  uint64_t blocks_bytes = 0;  // encoded
  uint64_t sequences = 0;     // sequences of a proximity order
  bool resumed = false;       // the trace of an interrupted build was taken over
  bool packed = true;
  // The two prices that Packing::kCheaper chose between, for one epoch; 0 when there was no choice.
  double packed_seconds = 0;  // the table read, chunks written and read
  double merged_seconds = 0;  // the rows read from the table by merged requests
};

// The most edges that a batch of so many input nodes may have.
uint64_t BatchEdgesMax(const RoadSpec& spec, uint64_t batch_nodes_max, uint64_t edge_count);

// What BuildLayout takes at most, once it has sampled, for so many batches in all of up to `batch_nodes_max` input
// nodes. REQUIRES: the manifest has the spec's table and topology.
uint64_t BuildBytesMax(const Manifest& manifest, const LayoutSpec& spec, uint64_t batches,
                       uint64_t batch_nodes_max);

// Builds the layout, and names it in the catalog once it is whole: a crash at any instant leaves the database
// as it was, plus a folder layouts/NAME.building that the next build of the name removes, or takes its trace
// from when `resume` is set. A layout of the same name is replaced; its files go after the commit.
//
// Holds at most what `budget` has left. kUsage for an impossible spec, kOutOfBudget and kNoSpace with the
// least that would do, kCancelled when `progress` says so.
Result<LayoutRecord> BuildLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec, bool resume,
                                 const ProgressFunction& progress, BuildReport* report = nullptr);

// Builds a layout for each of `ranks` trainers that learn one model together, in one pass over topology and table, and
// names all of them at once: RankLayoutName(spec.name, r, ranks). spec.share says by what training nodes are divided, and
// spec.disk_bytes is the most that all may take. Each is a layout by itself, with the trainer's own cache; a batch of a
// rank is batch number `its own number * ranks + rank` of the pass, sampled as that one is, so that all layouts together
// have the batches of one for a single trainer (by a partitioning: its seeds, in other batches). What a killed build left
// is removed by the next. kUsage for more ranks than a pass has batches, and for superbatches.
Result<std::vector<LayoutRecord>> BuildRankLayouts(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                                   uint32_t ranks, const ProgressFunction& progress,
                                                   BuildReport* report = nullptr);
std::string RankLayoutName(std::string_view name, uint32_t rank, uint32_t ranks);  // "NAME-0of4"

// Builds a layout that the catalog never names, in PassingFolder(NAME), for one use: the caller removes the
// folder, or, if it is killed, whoever opens the database next. Reads the store and changes nothing of it, so
// it may run beside training.
Result<LayoutRecord> BuildPassingLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                        const ProgressFunction& progress, BuildReport* report = nullptr);

// kUnsupported for hops that take all neighbors.
Status CheckPlannable(const RoadSpec& road);

// True when no edges were committed since the layout was built from them: an edge id is of the same edge then. A compaction
// commits none.
bool HasEdgesOf(const TopologyRecord& topology, const LayoutRecord& record);

// True when the database still has the table's file and the edges that the layout was built from.
bool IsFresh(const Manifest& manifest, const LayoutRecord& record);

// True when the layout can still be served: topology and table are the same or later generations. Changed rows are then
// read from the table; the batches have the edges that there were when they were planned, and where they say which these are,
// there must be no others.
bool IsServable(const Manifest& manifest, const LayoutRecord& record);

// True when `record` is what building `spec` would give, from the data as they are.
bool IsLayoutOf(const Manifest& manifest, const LayoutRecord& record, const LayoutSpec& spec);

// Removes a layout from the catalog, then its files, and what an interrupted build of the name left.
// kNotFound lists what there is.
Status DropLayout(Store& store, std::string_view name);

}  // namespace quarry
