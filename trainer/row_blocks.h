// RowBlocks: what a layer of a whole graph is given, as float32 rows that are read block by block: features of a snapshot,
// or what the layer before wrote.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/deltas.h"
#include "quarry/storage/feature_table.h"
#include "quarry/trainer/train.h"
#include "scratch_rows.h"

namespace quarry {

class RowBlocks {
 public:
  virtual ~RowBlocks() = default;
  virtual uint64_t block_rows() const = 0;
  virtual uint64_t bytes() const = 0;       // of all rows, once
  virtual uint64_t read_bytes() const = 0;  // so far
  // Fills `rows` with those from `first` on; the caller is going to go on from there to row `end`. kCorruption.
  virtual Status Read(uint64_t first, uint64_t end, std::span<float> rows) = 0;
};

class FeatureBlocks final : public RowBlocks {
 public:
  // As read at a time: whole groups of rows.
  static uint64_t BlockRows(const FeatureGeometry& geometry, uint64_t block_bytes);
  // Held beside the caller's rows, the open table not among it.
  static uint64_t Bytes(const FeatureGeometry& geometry, uint64_t block_bytes);

  // Table and overlay outlive it.
  static Result<std::unique_ptr<RowBlocks>> Make(IoBackend& backend, const FeatureTable& table,
                                                 const RowOverlay& overlay, RowNorm norm,
                                                 uint64_t block_bytes);

  uint64_t block_rows() const override { return block_rows_; }
  uint64_t bytes() const override { return table_.geometry().data_bytes(); }
  uint64_t read_bytes() const override { return read_bytes_; }
  Status Read(uint64_t first, uint64_t end, std::span<float> rows) override;

 private:
  FeatureBlocks(IoBackend& backend, const FeatureTable& table, const RowOverlay& overlay, RowNorm norm,
                uint64_t block_rows, IoBuffer encoded);

  IoBackend& backend_;
  const FeatureTable& table_;
  const RowOverlay& overlay_;
  const RowNorm norm_;
  const uint64_t block_rows_;
  const std::vector<uint64_t> touched_;
  IoBuffer encoded_;  // a block
  std::optional<RowScanner> scanner_;
  uint64_t next_ = 0, scanned_end_ = 0;  // rows: the scanner's next one, and its end
  uint64_t read_bytes_ = 0;
};

class ScratchBlocks final : public RowBlocks {
 public:
  ScratchBlocks(std::unique_ptr<ScratchRows> rows, uint64_t block_rows)
      : rows_(std::move(rows)), block_rows_(block_rows) {}

  uint64_t block_rows() const override { return block_rows_; }
  uint64_t bytes() const override { return rows_->written_bytes(); }
  uint64_t read_bytes() const override { return rows_->read_bytes(); }
  Status Read(uint64_t first, uint64_t /*end*/, std::span<float> rows) override {
    return rows_->Read(RowId{first}, rows);
  }

 private:
  const std::unique_ptr<ScratchRows> rows_;
  const uint64_t block_rows_;
};

}  // namespace quarry
