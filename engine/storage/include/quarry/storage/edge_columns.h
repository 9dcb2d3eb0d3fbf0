// Reading what the edges of a topology have, as file and runs together have it, where it is not loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/topology.h"

namespace quarry {

// Cuts relation ids to the width that a file gives them (RelationIdBytes).
class RelationNarrower {
 public:
  explicit RelationNarrower(uint64_t relation_count);
  uint64_t width() const { return width_; }
  // Valid until the next call.
  std::span<const std::byte> Narrow(std::span<const uint32_t> relations);

 private:
  const uint64_t width_;
  std::vector<std::byte> bytes_;
};

// A column of the file: its section, how its pages are verified, and what their bytes mean. Checksums of weights and
// relations are its own. REQUIRES: the topology has such a column.
class BaseColumn {
 public:
  static Result<BaseColumn> Open(IoBackend& backend, const Topology& topology, Adjacency side,
                                 EdgeColumn column);
  // What an open one holds.
  static uint64_t ChecksumBytes(const Topology& topology, EdgeColumn column);
  uint64_t offset() const { return offset_; }
  uint64_t value_bytes() const { return value_bytes_; }  // in the file
  uint64_t values_per_page() const { return kPageBytes / value_bytes_; }
  uint64_t bytes() const { return topology_->base_edge_count() * value_bytes_; }
  // Whole pages from `first_page` on; kCorruption names file and page.
  Status VerifyPages(uint64_t first_page, std::span<const std::byte> bytes) const;
  // The values whose bytes these are, of edges from `first` on: in place, or put into `room`. kCorruption for a relation
  // that is not there.
  Result<std::span<const uint32_t>> Values(uint64_t first, std::span<const std::byte> bytes,
                                           std::vector<uint32_t>& room) const;
  std::span<const uint32_t> added() const;  // values of added edges
  const EdgeEdits& edits() const { return topology_->edits(side_); }

 private:
  const Topology* topology_ = nullptr;
  Adjacency side_ = Adjacency::kCsc;
  EdgeColumn column_ = EdgeColumn::kNeighbors;
  uint64_t offset_ = 0;
  uint64_t value_bytes_ = sizeof(uint32_t);
  std::vector<uint32_t> checksums_;  // of weights, and of relations
};

// All values, by position, by large sequential reads. One thread; the topology outlives it. Holds FileScanner's four
// pieces, and where there are runs one more of twice the size. All columns come in equal pieces, of as many edges of the
// file and what runs make of them: `piece_bytes` is of values of four bytes, and where a file has narrower ones its pieces
// are smaller by what it takes to widen them.
class EdgeColumnScanner {
 public:
  static constexpr uint64_t kPieceBytes = 1 << 20;
  static uint64_t MemoryBytes(uint64_t piece_bytes = kPieceBytes) {
    return (FileScanner::kDepth + 2) * piece_bytes;
  }
  static Result<std::unique_ptr<EdgeColumnScanner>> Make(IoBackend& backend, const Topology& topology,
                                                         Adjacency side, EdgeColumn column,
                                                         uint64_t piece_bytes = kPieceBytes);
  // The next values; empty after the last. Neighbors are below the node count. Valid until the next call.
  Result<std::span<const uint32_t>> Next();

 private:
  EdgeColumnScanner(BaseColumn column, uint64_t edge_count) : column_(std::move(column)), left_(edge_count) {}
  Result<std::span<const uint32_t>> NextBase();

  BaseColumn column_;
  std::unique_ptr<FileScanner> scanner_;   // null: the file has no edges
  std::optional<EdgeEdits::Merge> merge_;  // none: there are no runs
  std::vector<uint32_t> merged_, widened_;
  uint64_t base_done_ = 0;  // values of the file that were read
  uint64_t base_count_ = 0;
  uint64_t left_ = 0;  // values that have not been delivered
};

// Values at ascending positions: short lists here and there take a page or two each. Lists that follow each other closely
// are read ahead by a scanner of what is left of the column: one read at a time would wait for each, and beside somebody
// who keeps the device busy it would wait for nearly all the time. One thread; the topology outlives it.
class EdgeColumnReader {
 public:
  static constexpr uint64_t kPieceBytes = 256 << 10;
  // What one holds, but for lists that are longer than a piece.
  static constexpr uint64_t kMemoryBytes = (FileScanner::kDepth + 1) * kPieceBytes;
  static Result<std::unique_ptr<EdgeColumnReader>> Make(IoBackend& backend, const Topology& topology,
                                                        Adjacency side, EdgeColumn column);
  // The values at [first, end), which is in range. Valid until the next call.
  Result<std::span<const uint32_t>> Read(uint64_t first, uint64_t end);

 private:
  EdgeColumnReader(IoBackend& backend, const Topology& topology, BaseColumn column)
      : backend_(backend), topology_(topology), column_(std::move(column)) {}
  uint64_t window_pages() const { return window_.size() / kPageBytes; }
  Status Load(uint64_t first_page, uint64_t page_count);
  Status LoadAlone(uint64_t first_page, uint64_t pages);
  Status LoadAhead(uint64_t first_page, uint64_t page_count);
  Status Keep(std::span<const std::byte> pages, uint64_t kept_bytes);

  IoBackend& backend_;
  const Topology& topology_;
  BaseColumn column_;
  IoBuffer room_;                      // of windows that are no piece of the scanner's
  std::span<const std::byte> window_;  // whole pages, in room_ or a piece; empty: none
  uint64_t window_page_ = 0;
  uint64_t pages_ahead_ = 1;              // doubles while windows follow each other
  std::unique_ptr<FileScanner> scanner_;  // null: windows do not follow each other
  uint64_t scanned_page_ = 0;             // that begins its next piece
  std::vector<uint32_t> values_, widened_;
};

}  // namespace quarry
