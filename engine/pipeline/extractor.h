// Extractor: reads the missing rows of a batch from disk into their slots (GNNDrive §4.2, asynchronous
// two-phase extraction: device -> staging -> slot).
//
// Rows are read in the order of the file, neighbouring ones by one request where bridging the gap is cheaper
// than another request (coalesce.h). Requests stream through one ring: while some are in flight, rows that
// have arrived are verified and copied into their slots.
//
// Rows of several tables, of a type of nodes each, are read table by table.
//
// One thread at a time. The tables outlive it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "device_rows.h"
#include "quarry/base/status.h"
#include "quarry/cache/feature_buffer.h"
#include "quarry/io/buffer.h"
#include "quarry/io/coalesce.h"
#include "quarry/io/ring.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/storage/row_sources.h"
#include "staging_ring.h"

namespace quarry {

struct ExtractorOptions {
  // Rows that are newer than the table; outlives the extractor. Null: none.
  const RowOverlay* overlay = nullptr;
  // Columns that every row is given behind the table's; outlives the extractor. Null: none.
  const JoinedColumns* joined = nullptr;
  unsigned io_depth = 64;
  uint64_t staging_bytes = 16 << 20;
  DeviceProfile device;
};

struct LoadStats {
  uint64_t requests = 0;
  uint64_t bytes = 0;         // gaps and block rounding included
  uint64_t useful_bytes = 0;  // of the rows that were asked for
};

// Where rows go: row `slot` at base + slot * row_stride.
struct RowTarget {
  std::byte* base = nullptr;
  uint64_t row_stride = 0;
  // Told of slots that have arrived, in portions; may be empty.
  std::function<void(std::span<const uint32_t>)> arrived;
  // Instead of base: slots of a device. A row has arrived there once it is enqueued, since whatever reads it is enqueued
  // behind it.
  DeviceRows* on_device = nullptr;

  // Rows that the buffer waits for, announced to it with FinishLoad. `on_device`: where they are, unless here.
  static RowTarget In(FeatureBuffer& buffer, DeviceRows* on_device = nullptr);
};

class Extractor {
 public:
  // The least staging that one request of this table needs.
  static uint64_t StagingBytesMin(const FeatureTable& table);
  static uint64_t StagingBytesMin(const RowSources& rows);
  // What an extractor holds beside its staging while it loads batches of up to `batch_nodes_max` input nodes.
  static uint64_t ScratchBytes(uint64_t batch_nodes_max);
  static uint64_t ScratchBytes(uint64_t batch_nodes_max, const RowSources& rows);
  static Result<std::unique_ptr<Extractor>> Make(IoBackend& backend, const FeatureTable& table,
                                                 const ExtractorOptions& options);
  // The same of the tables of a road, with their own overlays and what they join. Nodes without a row have whatever is in
  // their slots.
  static Result<std::unique_ptr<Extractor>> Make(IoBackend& backend, const RowSources& rows,
                                                 const ExtractorOptions& options);

  // Loads the row of nodes[p], as the overlay or else the table has it, into slots[p] of `target` for each p
  // in `misses`; `stats` is added to. kCorruption for a cell whose checksum does not hold, kIoError,
  // kCancelled soon after `cancelled` is set. After an error no read is in flight, and the slots that had not
  // been announced hold anything.
  Status Load(const RowTarget& target, std::span<const NodeId> nodes, std::span<const uint32_t> slots,
              std::span<const uint32_t> misses, const std::atomic<bool>& cancelled, LoadStats& stats);

 private:
  // A merged read in flight: which rows (by position in keys_) it brings, and where to.
  struct Flight {
    uint64_t offset;
    uint32_t bytes;
    uint32_t first;
    uint32_t count;
    StagingRing::Piece piece;
  };

  // A table, and the nodes whose rows it has.
  struct Part {
    std::vector<NodeTypes::Range> nodes;  // ascending
    const FeatureTable* table;
    const RowOverlay* overlay;
  };

  Extractor(IoBackend& backend, std::vector<Part> parts, std::vector<NodeTypes::Range> without_rows,
            uint64_t node_count, const ExtractorOptions& options, IoBuffer staging)
      : backend_(backend),
        parts_(std::move(parts)),
        without_rows_(std::move(without_rows)),
        node_count_(node_count),
        options_(options),
        staging_(std::move(staging)),
        staging_ring_(staging_.size()) {}

  static Result<std::unique_ptr<Extractor>> MakeOf(IoBackend& backend, std::vector<Part> parts,
                                                   std::vector<NodeTypes::Range> without_rows,
                                                   uint64_t node_count, const ExtractorOptions& options);
  Status LoadParts(const RowTarget& target, const std::atomic<bool>& cancelled, LoadStats& stats);
  Status LoadPart(const Part& part, const RowTarget& target, const std::atomic<bool>& cancelled,
                  LoadStats& stats);
  Status TakeOverlaid(const RowTarget& target);
  Status LoadSorted(const RowTarget& target, const std::atomic<bool>& cancelled, LoadStats& stats);
  void PlanWindow();
  Status SubmitWhileRoom(LoadStats& stats);
  Status CopyRows(const Flight& flight, const RowTarget& target);
  Result<std::byte*> Place(uint32_t slot, const RowTarget& target);
  void PutRow(uint64_t row, const std::byte* from, std::byte* to) const;
  Status Deliver(const RowTarget& target);

  IoBackend& backend_;
  const std::vector<Part> parts_;
  const std::vector<NodeTypes::Range> without_rows_;  // nodes of no part, ascending
  const uint64_t node_count_;
  const ExtractorOptions options_;
  const IoBuffer staging_;
  StagingRing staging_ring_;
  std::unique_ptr<IoRing> ring_;  // made anew after an error

  const FeatureTable* table_ = nullptr;  // whose rows are being read
  const RowOverlay* overlay_ = nullptr;  // and what is newer; null: nothing
  std::vector<uint64_t> keys_;           // row << 32 | slot, ascending
  std::vector<uint64_t> all_keys_;       // node << 32 | slot, where there are several tables
  std::vector<uint64_t> sort_scratch_;
  size_t planned_keys_ = 0;  // keys_[0, planned_keys_) have requests in reads_
  std::vector<ByteRange> ranges_;
  std::vector<MergedRead> reads_;  // reads of the current window; `first` counts from window_begin_
  size_t window_begin_ = 0;
  size_t next_read_ = 0;
  std::vector<Flight> flights_;  // by user_data
  std::vector<uint32_t> idle_flights_;
  std::vector<ReadRequest> submits_;
  std::vector<uint64_t> done_;
  std::vector<uint32_t> loaded_;      // slots copied, not yet announced
  DeviceRows::Piece piece_;           // with their rows, where these go to a device
  std::vector<uint64_t> touched_;     // rows that the overlay may have
  std::vector<size_t> touched_keys_;  // where they are in keys_
};

}  // namespace quarry
