// An embedding table on a BufferPool: it may be larger than memory, is written behind, and is exact after a
// restart from a checkpoint of the pool.
//
// A page holds several row records, and no record straddles two pages; page p holds rows [p * n, (p + 1) *
// n). Reads and writes latch the page shared and the row by a striped latch. A page is made by InitRow when
// it is first touched, so creating a table writes nothing, whatever its size.
//
//   shape = ShapePooledTable(spec, page_bytes - sizeof(PageHeader));  PageFile::Create(... shape.page_count)
//   BufferPool::Make(backend, file, budget, options, MakePooledPageInit(spec))
//   MakePooledEmbeddingTable(spec, shape, *pool)
#pragma once

#include <cstdint>
#include <memory>

#include "quarry/base/status.h"
#include "quarry/buffer/buffer_pool.h"
#include "quarry/embedding/embedding_table.h"

namespace quarry {

struct PooledTableShape {
  uint64_t row_bytes = 0;  // a record: timestamp, vector, state
  uint64_t rows_per_page = 0;
  PageNumber page_count = 0;
};

// kInvalidArgument when not even one row fits into a page, or when the table needs more pages than a page
// file can number; the message says what would do.
Result<PooledTableShape> ShapePooledTable(const EmbeddingSpec& spec, uint64_t page_body_bytes);

// Fills pages that were never written, for the pool under the table.
BufferPool::PageInit MakePooledPageInit(const EmbeddingSpec& spec);

// `pool` outlives the table and serves no other. Read and Write pin one page at a time: the pool needs as
// many frames as threads call them at once.
std::unique_ptr<EmbeddingTable> MakePooledEmbeddingTable(const EmbeddingSpec& spec,
                                                         const PooledTableShape& shape, BufferPool& pool);

}  // namespace quarry
