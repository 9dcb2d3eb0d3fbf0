// An embedding table on a buffer pool of its own, in a temporary folder.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "quarry/base/units.h"
#include "quarry/embedding/pooled_table.h"
#include "quarry/io/backend.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry::testing_util {

// File, pool and table; each may be dropped and made anew, as after a crash.
struct PooledTable {
  explicit PooledTable(const EmbeddingSpec& table_spec, uint32_t page_bytes = 4096) : spec(table_spec) {
    const auto found = ShapePooledTable(spec, page_bytes - sizeof(PageHeader));
    EXPECT_OK(found);
    shape = *found;
    file_spec = {
        .path = folder.path() + "/table.qet", .page_bytes = page_bytes, .page_count = shape.page_count};
    auto created = PageFile::Create(*backend, file_spec);
    EXPECT_OK(created);
    file = *std::move(created);
    OpenPool();
  }

  // As few frames as a pool can have: sixteen.
  void OpenPool() {
    auto opened = BufferPool::Make(*backend, *file, budget, {.memory_bytes = BufferPool::BytesMin(*file)},
                                   MakePooledPageInit(spec));
    EXPECT_OK(opened);
    pool = *std::move(opened);
    table = MakePooledEmbeddingTable(spec, shape, *pool);
  }

  void Checkpoint() {
    ASSERT_OK(pool->Flush());
    map = {.path = folder.path() + "/map-" + std::to_string(map.generation + 1),
           .generation = map.generation + 1};
    ASSERT_OK(file->WriteMap(map.path, map.generation));
    file->CommitMap();
  }

  // Drops all that is in memory and opens what the last checkpoint left.
  void Restart() {
    table.reset();
    pool.reset();
    file.reset();
    ASSERT_OK_AND_ASSIGN(auto opened, PageFile::Open(*backend, file_spec, map));
    file = std::move(opened);
    OpenPool();
  }

  const EmbeddingSpec spec;
  TemporaryFolder folder{"pooled"};
  const std::unique_ptr<IoBackend> backend = MakeThreadBackend(2);
  MemoryBudget budget{256 * kMiB};
  PooledTableShape shape;
  PageFileSpec file_spec;
  PageMapName map;
  std::unique_ptr<PageFile> file;
  std::unique_ptr<BufferPool> pool;
  std::unique_ptr<EmbeddingTable> table;
};

}  // namespace quarry::testing_util
