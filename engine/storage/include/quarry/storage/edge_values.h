// EdgeValues: the values that a topology file has for each edge beside the indices of a side: relation ids or
// weights. Runs have values of their own (edge_columns.h); graphs of several relations have no runs.
//
// Holds the checksums of their pages; whoever opened it reads the values from file(). Immutable once open:
// any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/store.h"

namespace quarry {

class EdgeValues {
 public:
  // Opens the relation ids, or the weights, of a side's edges in a topology of the store; null where there is
  // one relation, and where edges have no weights. kCorruption, kOutOfBudget. `budget` outlives it.
  static Result<std::unique_ptr<EdgeValues>> OpenRelations(Store& store, MemoryBudget& budget,
                                                           const TopologyRecord& record, Adjacency side);
  static Result<std::unique_ptr<EdgeValues>> OpenWeights(Store& store, MemoryBudget& budget,
                                                         const TopologyRecord& record, Adjacency side);

  // The value of edge i lies at offset() + i * value_bytes() of file(), in 4 KiB pages counted from there.
  const File& file() const { return data_.file; }
  uint32_t block_bytes() const { return data_.block_bytes; }
  uint64_t offset() const { return section_.offset; }
  uint64_t bytes() const { return section_.bytes; }
  uint64_t value_bytes() const { return value_bytes_; }
  std::string_view name() const { return section_.name; }

  // Verifies whole pages from `first_page` on, the last padded with zeros; kCorruption names file and page.
  Status VerifyPages(uint64_t first_page, std::span<const std::byte> bytes) const;

 private:
  EdgeValues() = default;
  static Result<std::unique_ptr<EdgeValues>> Open(Store& store, MemoryBudget& budget,
                                                  const TopologyRecord& record, std::string_view section,
                                                  uint64_t value_bytes);

  MemoryBudget::Reservation reservation_;
  DataFile data_;
  Section section_;
  uint64_t value_bytes_ = 0;
  std::vector<uint32_t> checksums_;
};

}  // namespace quarry
