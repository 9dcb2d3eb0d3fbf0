// EdgeScan: all edges of a topology, by ascending destination, then source, by large sequential reads.
// Private to this room; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/store.h"

namespace quarry {

// An open topology.
struct EdgeFile {
  // Holds indptr and the checksums of pages. kNotFound, kCorruption, kOutOfBudget.
  static Result<EdgeFile> Open(Store& store, MemoryBudget& budget, const Snapshot& snapshot,
                               std::string_view name);

  TopologyRecord record;
  MemoryBudget::Reservation reservation;
  std::unique_ptr<Topology> topology;
};

class EdgeScan {
 public:
  // What buffers take, for whoever reserves it.
  static constexpr uint64_t kMemoryBytes = 20 << 20;

  // `with_heads`: else all heads are 0, and neither sources nor weights are read. `file` outlives it.
  static Result<std::unique_ptr<EdgeScan>> Open(Store& store, MemoryBudget& budget, const EdgeFile& file,
                                                bool with_heads = true);
  // The next edges; empty after the last. Valid until the next call.
  Result<std::span<const Triple>> Next();
  // The weights of the edges that Next has returned last; empty where they are not read, or there are none.
  std::span<const float> weights() const { return weight_values_; }
  uint64_t done() const { return next_; }  // edges

 private:
  explicit EdgeScan(const EdgeFile& file) : file_(file) {}
  Status ReadHeads();
  Status ReadRelations();
  Status ReadWeights();
  void SetTails(std::span<Triple> edges);

  const EdgeFile& file_;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<EdgeColumnScanner> heads_;      // null: not asked for
  std::unique_ptr<EdgeColumnScanner> relations_;  // null: one relation
  std::unique_ptr<EdgeColumnScanner> weights_;    // null: not asked for, or there are none
  std::vector<Triple> edges_;
  std::vector<float> weight_values_;
  uint64_t next_ = 0;
  NodeId tail_ = 0;  // tail of the edge `next_`, or before it
};

}  // namespace quarry
