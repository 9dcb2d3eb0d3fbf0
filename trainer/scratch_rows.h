// ScratchRows: rows of floats that are written front to back, once, and then read, in a file without a name. What is held
// is one block of them and a checksum of each.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/io/backend.h"
#include "quarry/io/buffer.h"

namespace quarry {

class ScratchRows {
 public:
  // What a device reads at full speed one by one.
  static constexpr uint64_t kBlockBytes = uint64_t{1} << 20;
  static uint64_t BlockRows(uint32_t dim, uint64_t block_bytes = kBlockBytes);
  static uint64_t Bytes(uint64_t rows, uint32_t dim, uint64_t block_bytes = kBlockBytes);
  // `folder` has the file; the caller has reserved Bytes. The backend outlives it.
  static Result<std::unique_ptr<ScratchRows>> Make(IoBackend& backend, const std::string& folder,
                                                   uint64_t rows, uint32_t dim,
                                                   uint64_t block_bytes = kBlockBytes);

  // Appends rows [n, dim]. REQUIRES: no more than there are to be.
  Status Append(std::span<const float> values);
  // Fills `values` with these rows, best ascending: a block is read once for those that follow one another.
  // kCorruption. REQUIRES: all rows are there.
  Status Read(std::span<const RowId> ids, std::span<float> values);
  // Fills `values` with rows from `first` on.
  Status Read(RowId first, std::span<float> values);

  uint64_t read_bytes() const { return read_bytes_; }
  uint64_t written_bytes() const { return checksums_.size() * block_.size(); }

 private:
  ScratchRows(IoBackend& backend, File file, IoBuffer block, uint64_t rows, uint32_t dim,
              uint64_t block_rows);
  Status Write();
  Status Hold(uint64_t number);  // reads the block, unless it is held

  IoBackend& backend_;
  const File file_;
  const uint64_t rows_;
  const uint32_t dim_;
  const uint64_t block_rows_;
  IoBuffer block_;
  uint64_t appended_ = 0, read_bytes_ = 0;
  uint64_t held_ = ~uint64_t{0};  // number of the block in memory, once rows are read
  std::vector<uint32_t> checksums_;
};

}  // namespace quarry
