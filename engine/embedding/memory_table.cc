#include <algorithm>
#include <memory>
#include <utility>

#include "quarry/embedding/embedding_table.h"
#include "quarry/io/buffer.h"
#include "row_record.h"

namespace quarry {
namespace {

class MemoryEmbeddingTable final : public EmbeddingTable {
 public:
  // `records` holds all rows.
  MemoryEmbeddingTable(const RowRecord& record, IoBuffer records)
      : record_(record), records_(std::move(records)) {
    record_.Init(0, records_.span());
  }

  const EmbeddingSpec& spec() const override { return record_.spec(); }

  Status Read(RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    block.Resize(spec());
    for (size_t i = 0; i < block.ids.size(); ++i) {
      MutexLock lock(latches_.Of(block.ids[i]));
      record_.Load(Record(block.ids[i]), block, i);
    }
    return Status();
  }

  Status Write(const RowBlock& block) override {
    QUARRY_RETURN_IF_ERROR(CheckRowIds(spec(), block.ids));
    for (size_t i = 0; i < block.ids.size(); ++i) {
      std::byte* const record = Record(block.ids[i]);
      MutexLock lock(latches_.Of(block.ids[i]));
      if (block.timestamps[i] > RowRecord::Timestamp(record)) record_.Store(block, i, record);
    }
    return Status();
  }

  Status Prefetch(std::span<const RowId>) override { return Status(); }

 private:
  std::byte* Record(RowId row) { return records_.data() + row * record_.bytes(); }

  const RowRecord record_;
  const IoBuffer records_;  // in huge pages: rows are scattered. Each is guarded by its latch
  RowLatches latches_;
};

}  // namespace

std::unique_ptr<EmbeddingTable> MakeMemoryEmbeddingTable(const EmbeddingSpec& spec) {
  const RowRecord record(spec);
  Result<IoBuffer> records = IoBuffer::Allocate(std::max<uint64_t>(1, spec.row_count * record.bytes()));
  if (!records.ok()) return nullptr;
  return std::make_unique<MemoryEmbeddingTable>(record, *std::move(records));
}

}  // namespace quarry
