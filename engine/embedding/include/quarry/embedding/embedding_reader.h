// EmbeddingReader: rows of an embedding table as its last checkpoint has them, for readers that do not train.
//
// Reads page by page and writes nothing: it does not even remove the leftovers that opening a table for
// training removes. One thread; store and budget outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/buffer/page_file.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/embedding/pooled_table.h"
#include "quarry/format/manifest.h"
#include "quarry/io/buffer.h"
#include "quarry/storage/store.h"

namespace quarry {

class EmbeddingReader {
 public:
  // Holds the page map, and a page. kNotFound; kBusy while the table is open for training, which overwrites
  // pages of earlier checkpoints; kCorruption; kUnsupported for a table of a later Quarry.
  static Result<std::unique_ptr<EmbeddingReader>> Open(Store& store, MemoryBudget& budget,
                                                       std::string_view name);

  const EmbeddingRecord& record() const { return record_; }
  // Decodes the vector of `row` into `values` (dim), and returns its timestamp: kNeverWritten for a row that
  // still has what InitRow gave it. Successive rows of one page read it once. kCorruption names the page.
  // REQUIRES: row < row_count.
  Result<int64_t> Read(RowId row, std::span<float> values);

 private:
  EmbeddingReader(const EmbeddingRecord& record, const EmbeddingSpec& spec, const PooledTableShape& shape)
      : record_(record), spec_(spec), shape_(shape) {}

  const EmbeddingRecord record_;
  const EmbeddingSpec spec_;
  const PooledTableShape shape_;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<PageFile> file_;
  IoBuffer page_;
  PageNumber page_number_ = PageFile::kPageCountMax;  // the page in page_; none yet
};

}  // namespace quarry
