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
#include "quarry/format/dataset.h"
#include "quarry/storage/data_file.h"
#include "quarry/storage/scanner.h"
#include "quarry/storage/store.h"

namespace quarry {

// An open topology, and the relation ids beside its edges, where it has several relations.
struct EdgeFile {
  // Holds indptr and the checksums of pages. kNotFound, kCorruption, kOutOfBudget.
  static Result<EdgeFile> Open(Store& store, MemoryBudget& budget, std::string_view name);

  TopologyRecord record;
  MemoryBudget::Reservation reservation;
  std::unique_ptr<Topology> topology;
  DataFile relations;  // of the rest: only with several relations
  Section relation_section;
  std::vector<uint32_t> relation_checksums;
};

class EdgeScan {
 public:
  // What buffers take, for whoever reserves it.
  static constexpr uint64_t kMemoryBytes = 16 << 20;

  // `with_heads`: else all heads are 0, and sources are not read. `file` outlives it.
  static Result<std::unique_ptr<EdgeScan>> Open(Store& store, MemoryBudget& budget, const EdgeFile& file,
                                                bool with_heads = true);
  // The next edges; empty after the last. Valid until the next call.
  Result<std::span<const Triple>> Next();
  uint64_t done() const { return next_; }  // edges

 private:
  explicit EdgeScan(const EdgeFile& file) : file_(file) {}
  Status ReadHeads(std::span<Triple> edges);
  Status ReadRelations(std::span<Triple> edges);
  void SetTails(std::span<Triple> edges);

  const EdgeFile& file_;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<FileScanner> heads_;      // null: not asked for
  std::unique_ptr<FileScanner> relations_;  // null: one relation
  std::vector<Triple> edges_;
  uint64_t next_ = 0;
  NodeId tail_ = 0;  // of the edge `next_`, or before it
};

}  // namespace quarry
