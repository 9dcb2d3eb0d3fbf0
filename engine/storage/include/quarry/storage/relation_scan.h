// RelationScan: relation ids of a topology's in-edges, in the order of its lists, read front to back and verified.
//
// One thread. Backend, topology and budget outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/io/backend.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology.h"

namespace quarry {

class RelationScan {
 public:
  // kCorruption; kOutOfBudget for what reading takes.
  static Result<RelationScan> Open(IoBackend& backend, MemoryBudget& budget, const Topology& topology);

  // The ids of the next edges; 0 where there is one relation. kCorruption for an id that there is not. REQUIRES: there are
  // so many edges.
  Status Read(std::span<uint32_t> out);

 private:
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<EdgeColumnScanner> scanner_;  // null: one relation
  std::span<const uint32_t> piece_;
};

}  // namespace quarry
