// RelationScan: relation ids of a topology's in-edges, in the order of its lists, read front to back and verified.
//
// One thread. Store and budget outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/storage/edge_values.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/store.h"

namespace quarry {

class RelationScan {
 public:
  // kCorruption; kOutOfBudget for what reading takes.
  static Result<RelationScan> Open(Store& store, MemoryBudget& budget, const TopologyRecord& record);

  // The ids of the next edges; 0 where there is one relation. kCorruption for an id that the record does not have. REQUIRES:
  // there are so many edges.
  Status Read(std::span<uint32_t> out);

 private:
  std::unique_ptr<EdgeValues> values_;  // null: one relation
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<FileScanner> scanner_;
  std::span<const std::byte> piece_;
  uint64_t next_page_ = 0;
  uint64_t relation_count_ = 1;
};

}  // namespace quarry
