// Computation on the processor, where the rows have been read.
#include <algorithm>
#include <vector>

#include "compute_place.h"

namespace quarry {
namespace {

class HostPlace final : public ComputePlace {
 public:
  HostPlace(std::span<EmbeddingTable* const> tables, EmbeddingTask& task, AsyncMode mode) : task_(task) {
    for (const EmbeddingTable* table : tables) {
      element_types_.push_back(table->spec().element_type);
      if (mode == AsyncMode::kOac) caches_.push_back(MakeValidationCache(table->spec()));
    }
  }

  bool has_transfers() const override { return false; }
  Status Transfer(EmbeddingFlight&) override { return Status::Ok(); }
  Status TransferBack(EmbeddingFlight&) override { return Status::Ok(); }
  void Drain() override {}

  Status Compute(EmbeddingFlight& flight) override {
    std::vector<RowBlock>& blocks = flight.item.blocks;
    flight.rows_replaced = 0;
    for (size_t i = 0; i < caches_.size(); ++i) {
      flight.rows_replaced += caches_[i]->Validate(flight.ticket, blocks[i]);
    }
    QUARRY_RETURN_IF_ERROR(task_.Compute(flight.item));
    for (size_t i = 0; i < blocks.size(); ++i) {
      RoundToStored(element_types_[i], blocks[i].values);
      std::fill(blocks[i].timestamps.begin(), blocks[i].timestamps.end(), flight.timestamp);
    }
    for (size_t i = 0; i < caches_.size(); ++i) caches_[i]->Insert(blocks[i]);
    return Status::Ok();
  }

  uint64_t cache_rows() const override {
    uint64_t rows = 0;
    for (const auto& cache : caches_) rows += cache->row_count();
    return rows;
  }
  uint64_t cache_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& cache : caches_) bytes += cache->memory_bytes();
    return bytes;
  }

 private:
  EmbeddingTask& task_;
  std::vector<ElementType> element_types_;                // by table
  std::vector<std::unique_ptr<ValidationCache>> caches_;  // by table; none without OAC
};

}  // namespace

std::unique_ptr<ComputePlace> MakeHostPlace(std::span<EmbeddingTable* const> tables, EmbeddingTask& task,
                                            AsyncMode mode) {
  return std::make_unique<HostPlace>(tables, task, mode);
}

}  // namespace quarry
