#include "quarry/embedding/pooled_table.h"

#include <utility>

#include "quarry/base/units.h"
#include "quarry/buffer/page_file.h"
#include "row_record.h"

namespace quarry {
namespace {

class PooledEmbeddingTable final : public EmbeddingTable {
 public:
  PooledEmbeddingTable(const EmbeddingSpec& spec, const PooledTableShape& shape, BufferPool& pool)
      : record_(spec), rows_per_page_(shape.rows_per_page), pool_(pool) {}

  const EmbeddingSpec& spec() const override { return record_.spec(); }

  Status Read(RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    block.Resize(spec());
    return ForEachPage(block.ids, [&](PageGuard& page, size_t begin, size_t end) {
      const std::byte* const body = page.body().data();
      for (size_t i = begin; i < end; ++i) {
        MutexLock lock(latches_.Of(block.ids[i]));
        record_.Load(body + Offset(block.ids[i]), block, i);
      }
    });
  }

  Status Write(const RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    return ForEachPage(block.ids, [&](PageGuard& page, size_t begin, size_t end) {
      std::byte* const body = page.shared_mutable_body().data();
      for (size_t i = begin; i < end; ++i) {
        std::byte* const record = body + Offset(block.ids[i]);
        MutexLock lock(latches_.Of(block.ids[i]));
        if (block.timestamps[i] > RowRecord::Timestamp(record)) record_.Store(block, i, record);
      }
    });
  }

  Status Prefetch(std::span<const RowId> ids) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), ids));
    std::vector<PageNumber> pages;
    for (const RowId row : ids) {
      if (pages.empty() || pages.back() != PageOf(row)) pages.push_back(PageOf(row));
    }
    return pool_.Prefetch(pages);
  }

 private:
  PageNumber PageOf(RowId row) const { return static_cast<PageNumber>(row / rows_per_page_); }
  uint64_t Offset(RowId row) const { return row % rows_per_page_ * record_.bytes(); }

  // Calls visit(page, begin, end) for each page that holds rows of `ids`, with the range of them that it
  // holds.
  template <typename Visit>
  Status ForEachPage(std::span<const RowId> ids, const Visit& visit) {
    for (size_t begin = 0; begin < ids.size();) {
      const PageNumber number = PageOf(ids[begin]);
      size_t end = begin + 1;
      while (end < ids.size() && PageOf(ids[end]) == number) ++end;
      QUARRY_TRY(PageGuard page, pool_.Pin(number, LatchMode::kShared));
      visit(page, begin, end);
      begin = end;
    }
    return Status();
  }

  const RowRecord record_;
  const uint64_t rows_per_page_;
  BufferPool& pool_;
  RowLatches latches_;
};

}  // namespace

Result<PooledTableShape> ShapePooledTable(const EmbeddingSpec& spec, uint64_t page_body_bytes) {
  const uint64_t row_bytes = RowRecord(spec).bytes();
  if (row_bytes > page_body_bytes) {
    return MakeStatus(Code::kInvalidArgument,
                      "an embedding row with its optimizer state has {} bytes and a page holds {}: choose a "
                      "larger page",
                      row_bytes, page_body_bytes);
  }
  const uint64_t rows_per_page = page_body_bytes / row_bytes;
  const uint64_t page_count = CeilDiv(spec.row_count, rows_per_page);
  if (page_count > PageFile::kPageCountMax) {
    return MakeStatus(Code::kInvalidArgument,
                      "{} embedding rows need {} pages and a page file has at most {}: choose a larger page",
                      spec.row_count, page_count, PageFile::kPageCountMax);
  }
  return PooledTableShape{row_bytes, rows_per_page, static_cast<PageNumber>(page_count)};
}

BufferPool::PageInit MakePooledPageInit(const EmbeddingSpec& spec) {
  return [record = RowRecord(spec)](PageNumber page, std::span<std::byte> body) {
    const RowId first = body.size() / record.bytes() * page;
    record.Init(first, body);
  };
}

std::unique_ptr<EmbeddingTable> MakePooledEmbeddingTable(const EmbeddingSpec& spec,
                                                         const PooledTableShape& shape, BufferPool& pool) {
  return std::make_unique<PooledEmbeddingTable>(spec, shape, pool);
}

}  // namespace quarry
