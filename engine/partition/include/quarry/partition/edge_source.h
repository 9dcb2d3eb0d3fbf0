// EdgeSource: the edges of a graph, one after the other and as often as they are wanted, for partitioners.
//
// Directions are as the graph has them; partitioners ignore them. An edge may occur more than once, and may
// be a loop. A source belongs to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "quarry/base/budget.h"
#include "quarry/base/progress.h"
#include "quarry/base/status.h"
#include "quarry/format/types.h"
#include "quarry/io/backend.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/topology.h"

namespace quarry {

// An edge as it lies in scratch files: 8 bytes.
struct NodePair {
  NodeId source;
  NodeId destination;
  bool operator==(const NodePair&) const = default;
};
static_assert(sizeof(NodePair) == 8);

class EdgeSource {
 public:
  virtual ~EdgeSource() = default;
  virtual uint64_t node_count() const = 0;
  virtual uint64_t edge_count() const = 0;
  // Goes to the first edge. Called before the first Read.
  virtual Status Rewind() = 0;
  // Fills `out` with the next edges, of which the last call gets what is left; returns how many they are, 0
  // after the last. Ends are below node_count().
  virtual Result<size_t> Read(std::span<NodePair> out) = 0;
};

// Calls take(edge) for every edge, from the first on.
template <typename Take>
Status ForEachEdge(EdgeSource& edges, const Take& take) {
  constexpr size_t kReadEdges = 16384;
  std::vector<NodePair> read(kReadEdges);
  QUARRY_RETURN_IF_ERROR(edges.Rewind());
  while (true) {
    QUARRY_TRY(const size_t count, edges.Read(read));
    if (count == 0) return Status::Ok();
    for (const NodePair& edge : std::span(read).first(count)) take(edge);
  }
}

// Edges that lie in memory, which the caller keeps.
class ArrayEdges final : public EdgeSource {
 public:
  // REQUIRES: every end is below node_count.
  ArrayEdges(uint64_t node_count, std::span<const NodePair> edges) : node_count_(node_count), edges_(edges) {}
  uint64_t node_count() const override { return node_count_; }
  uint64_t edge_count() const override { return edges_.size(); }
  Status Rewind() override {
    next_ = 0;
    return Status::Ok();
  }
  Result<size_t> Read(std::span<NodePair> out) override;

 private:
  const uint64_t node_count_;
  const std::span<const NodePair> edges_;
  uint64_t next_ = 0;
};

// The edges of a topology by destination, then by source, from memory where its indices are loaded, else from
// its file by large reads, every page verified. Backend and topology outlive it.
class TopologyEdges final : public EdgeSource {
 public:
  // Reserves the buffers of reading. kOutOfBudget.
  static Result<std::unique_ptr<TopologyEdges>> Make(IoBackend& backend, const Topology& topology,
                                                     MemoryBudget& budget);
  uint64_t node_count() const override { return topology_.node_count(); }
  uint64_t edge_count() const override { return topology_.edge_count(); }
  Status Rewind() override;
  Result<size_t> Read(std::span<NodePair> out) override;

 private:
  TopologyEdges(IoBackend& backend, const Topology& topology) : backend_(backend), topology_(topology) {}

  IoBackend& backend_;
  const Topology& topology_;
  MemoryBudget::Reservation reservation_;
  std::unique_ptr<EdgeColumnScanner> scanner_;
  std::span<const NodeId> piece_;  // indices that were read and not yet delivered
  uint64_t next_ = 0;              // edge that is delivered next
  NodeId destination_ = 0;
};

// What every partitioner works with. Backend and budget outlive the call that it is handed to.
struct PartitionContext {
  IoBackend& backend;
  MemoryBudget& budget;
  // An existing folder for scratch files, which have no name once they are open.
  std::string scratch_directory;
  ProgressFunction progress = {};

  Status Report(std::string_view phase, uint64_t done, uint64_t total) const {
    return progress ? progress(phase, done, total) : Status::Ok();
  }
};

}  // namespace quarry
