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
  static uint64_t Bytes(uint64_t rows, uint32_t dim);
  // `folder` has the file; the caller has reserved Bytes. The backend outlives it.
  static Result<std::unique_ptr<ScratchRows>> Make(IoBackend& backend, const std::string& folder,
                                                   uint64_t rows, uint32_t dim);

  // Appends rows [n, dim]. REQUIRES: no more than there are to be.
  Status Append(std::span<const float> values);
  // Fills `values` with these rows, best ascending: a block is read once for those that follow one another.
  // kCorruption. REQUIRES: all rows are there.
  Status Read(std::span<const RowId> ids, std::span<float> values);

 private:
  ScratchRows(IoBackend& backend, File file, IoBuffer block, uint64_t rows, uint32_t dim);
  Status Write();

  IoBackend& backend_;
  const File file_;
  const uint64_t rows_;
  const uint32_t dim_;
  const uint64_t block_rows_;
  IoBuffer block_;
  uint64_t appended_ = 0;
  uint64_t held_ = ~uint64_t{0};  // number of the block in memory, once rows are read
  std::vector<uint32_t> checksums_;
};

}  // namespace quarry
