// Reading what the edges of a topology have, as file and runs together have it, where it is not loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/topology.h"

namespace quarry {

// A column of the file: its section, and how its pages are verified. Weights' checksums are its own.
class BaseColumn {
 public:
  static Result<BaseColumn> Open(IoBackend& backend, const Topology& topology, Adjacency side,
                                 EdgeColumn column);
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return topology_->base_edge_count() * sizeof(uint32_t); }
  // Whole pages from `first_page` on; kCorruption names file and page.
  Status VerifyPages(uint64_t first_page, std::span<const std::byte> bytes) const;
  std::span<const uint32_t> added() const;  // values of added edges
  const EdgeEdits& edits() const { return topology_->edits(side_); }

 private:
  const Topology* topology_ = nullptr;
  Adjacency side_ = Adjacency::kCsc;
  EdgeColumn column_ = EdgeColumn::kNeighbors;
  uint64_t offset_ = 0;
  std::vector<uint32_t> checksums_;  // of weights
};

// All values, by position, by large sequential reads. One thread; the topology outlives it. Holds FileScanner's four
// pieces, and where there are runs one more of twice the size.
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
  std::vector<uint32_t> merged_;
  uint64_t base_done_ = 0;  // values of the file that were read
  uint64_t base_count_ = 0;
  uint64_t left_ = 0;  // values that have not been delivered
};

// Values at ascending positions: short lists here and there take a page or two each. One thread; the topology
// outlives it.
class EdgeColumnReader {
 public:
  static Result<std::unique_ptr<EdgeColumnReader>> Make(IoBackend& backend, const Topology& topology,
                                                        Adjacency side, EdgeColumn column);
  // The values at [first, end), which is in range. Valid until the next call.
  Result<std::span<const uint32_t>> Read(uint64_t first, uint64_t end);

 private:
  EdgeColumnReader(IoBackend& backend, const Topology& topology, BaseColumn column)
      : backend_(backend), topology_(topology), column_(std::move(column)) {}
  Status Load(uint64_t first_page, uint64_t page_count);

  IoBackend& backend_;
  const Topology& topology_;
  BaseColumn column_;
  IoBuffer window_;
  uint64_t window_page_ = 0, window_pages_ = 0;
  uint64_t pages_ahead_ = 1;  // doubles while windows follow each other
  std::vector<uint32_t> values_;
};

}  // namespace quarry
