// Layout: a materialized training plan over a feature table: what an index is to a relational table. Derived
// data: it can always be built again (invariant 7).
//
//   layouts/NAME-<gen>/layout.qlc   regions: cache image | segment caches | block and chunk of each batch
//                                   directory: where each region lies, and what the plan promises
//   layouts/NAME-<gen>/trace.qlt    the access trace that it was planned on
//
// Every batch's region is its planned block (planned_block.h) and then its chunk, so that one sequential read
// brings both; the rows of chunk, segment cache and image stand `row_stride` bytes apart, as the feature
// buffer holds them, so that they land by DMA where the batch uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/cache/cache_policy.h"
#include "quarry/format/feature_table.h"
#include "quarry/io/coalesce.h"
#include "quarry/layout/planned_block.h"
#include "quarry/layout/trace.h"
#include "quarry/sampling/seed_order.h"
#include "quarry/storage/store.h"

namespace quarry {

// Whether the rows that a batch misses are copied into the layout, or stay in the table, from where merged
// requests read them.
enum class Packing : uint8_t {
  kAlways,
  kNever,    // the blocks alone: Belady over the known batches without packing (Ginex)
  kCheaper,  // what reads and writes for less seconds, when the layout is used for one epoch
};

struct LayoutSpec {
  std::string name = "default";  // letters, digits, - and _
  std::string feature_table = "feature";
  std::string topology = "graph";
  Direction direction = Direction::kIn;
  std::vector<uint32_t> fanouts = {10, 10};
  uint32_t batch_size = 1024;
  uint64_t seed = 0;
  uint32_t epochs = 1;      // planned; training repeats them
  uint64_t first_pass = 1;  // the live pass whose batches the first planned epoch has
  PolicyKind policy = PolicyKind::kBelady;
  SeedOrder order = SeedOrder::kRandom;
  uint64_t cache_bytes = 0;  // rows that stay in memory between batches
  uint64_t gpu_cache_bytes =
      0;                    // and on the GPU: the rows used most often; in memory too where there is none
  uint64_t disk_bytes = 0;  // the most that the layout may take; 0 = no limit
  uint32_t hash_functions = 8;
  bool cyclic = true;  // else it is read once, front to back (superbatches)
  Packing packing = Packing::kAlways;
  // Whose labels and splits say which nodes are trained on, and whose base file is packed; null: as they are
  // now.
  std::shared_ptr<const Snapshot> snapshot;
  unsigned threads = 1;
};

// Where one batch lies: offsets in the section of regions.
struct BatchEntry {
  uint64_t offset = 0;  // of the block, page-aligned; the chunk follows at the next page
  uint64_t block_bytes = 0;
  uint64_t chunk_rows = 0;  // in the chunk, or in the table when rows are not packed
  uint64_t segment_rows = 0;
  uint64_t segment = 0;  // whose cache it reads; meaningless without segment rows
  uint64_t nodes = 0;    // input nodes
  uint64_t edges = 0;
  uint64_t misses = 0;  // rows that are not in the cache: useful bytes / row bytes
};

struct SegmentEntry {
  uint64_t offset = 0;
  uint64_t rows = 0;
};

struct LayoutDirectory {
  uint64_t row_bytes = 0;
  uint64_t row_stride = 0;
  uint64_t node_count = 0;
  uint64_t cache_slots = 0;  // of both levels
  uint64_t gpu_slots = 0;    // the first of them
  bool packed = true;        // else chunks and cache image are read from the table
  uint64_t batches_per_epoch = 0;
  uint64_t seed_hash = 0;   // HashSeeds of the nodes that an epoch trains on
  uint64_t image_rows = 0;  // slot i of the image holds start_nodes[i]; it lies at offset 0
  uint64_t regions_bytes = 0;
  std::vector<BatchEntry> batches;
  std::vector<SegmentEntry> segments;
  std::vector<NodeId> start_nodes;
  std::vector<uint32_t> wrap;  // by slot of the image: the slot of the same row after the last batch

  uint64_t chunk_bytes(const BatchEntry& batch) const {  // in the file, whole pages
    return packed ? RoundUp(batch.chunk_rows * row_stride, kPageBytes) : 0;
  }
  uint64_t image_bytes() const { return packed ? RoundUp(image_rows * row_stride, kPageBytes) : 0; }

  // Maxima over the batches, for sizing buffers.
  uint64_t frame_rows_max() const;
  uint64_t nodes_max() const;
  uint64_t edges_max() const;
  uint64_t block_bytes_max() const;
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
  // One that the catalog does not name (BuildPassingLayout).
  static Result<std::unique_ptr<Layout>> Open(Store& store, const LayoutRecord& record);

  const LayoutRecord& record() const { return record_; }
  const LayoutDirectory& directory() const { return directory_; }
  const File& file() const { return data_.file; }
  uint64_t regions_offset() const { return regions_offset_; }  // of the section, in the file
  // Verifies whole pages that were read from `offset` (a multiple of the page) of the regions.
  Status VerifyPages(uint64_t offset, std::span<const std::byte> pages) const;
  uint64_t resident_bytes() const;
  Result<std::unique_ptr<Trace>> OpenTrace(Store& store) const;

 private:
  Layout() = default;
  LayoutRecord record_;
  LayoutDirectory directory_;
  DataFile data_;
  uint64_t regions_offset_ = 0;
  std::vector<uint32_t> checksums_;
};

// What building went through, for reports and benchmarks.
struct BuildReport {
  TraceSummary trace;
  double sample_seconds = 0;
  double plan_seconds = 0;  // simulation, segments, encoding
  double pack_seconds = 0;
  double pack_read_seconds = 0;
  double segment_search_seconds = 0;
  uint64_t blocks_bytes = 0;  // encoded
  uint64_t sequences = 0;     // of a proximity order
  bool resumed = false;       // the trace of an interrupted build was taken over
  bool packed = true;
  // What the choice of Packing::kCheaper was between, for one epoch; 0 when there was none.
  double packed_seconds = 0;  // the table read, chunks written and read
  double merged_seconds = 0;  // the rows read from the table by merged requests
};

// Builds the layout, and names it in the catalog once it is whole: a crash at any instant leaves the database
// as it was, plus a folder layouts/NAME.building that the next build of the name removes, or takes its trace
// from when `resume` is set. A layout of the same name is replaced; its files go after the commit.
//
// Holds what `budget` has left, at most. kUsage for a spec that cannot be, kOutOfBudget and kNoSpace with the
// least that would do, kCancelled when `progress` says so.
Result<LayoutRecord> BuildLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec, bool resume,
                                 const ProgressFunction& progress, BuildReport* report = nullptr);

// Builds a layout that the catalog never names, in layouts/NAME.building, for one use: the caller removes the
// folder. Reads the store and changes nothing of it, so it may run beside training.
Result<LayoutRecord> BuildPassingLayout(Store& store, MemoryBudget& budget, const LayoutSpec& spec,
                                        const ProgressFunction& progress, BuildReport* report = nullptr);

// True when the database still has the table and the topology that the layout was built from.
bool IsFresh(const Manifest& manifest, const LayoutRecord& record);

// True when the layout can still be served: the same topology, and the same table or a later generation of
// it, whose changed rows are then read from there.
bool IsServable(const Manifest& manifest, const LayoutRecord& record);

// True when `record` is what building `spec` would give, from the data as they are.
bool IsLayoutOf(const Manifest& manifest, const LayoutRecord& record, const LayoutSpec& spec);

// Removes a layout from the catalog, then its files, and what an interrupted build of the name left.
// kNotFound lists what there is.
Status DropLayout(Store& store, std::string_view name);

}  // namespace quarry
