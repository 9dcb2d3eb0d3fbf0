// RangeEdges: the edges of a range of nodes, read front to back and sorted by the block in which the row of their other end
// lies, so that blocks can pass by once.
//
// Within a block the edges of each side of the topology keep the order of the file: by node, then by other end. One thread
// at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/road_spec.h"
#include "quarry/io/backend.h"
#include "quarry/storage/topology.h"

namespace quarry {

class RangeEdges {
 public:
  // Held of an edge, and of a block beside them.
  static constexpr uint64_t kEdgeBytes = 3 * sizeof(uint32_t);
  static constexpr uint64_t kBlockBytes = 2 * 2 * sizeof(uint64_t);
  static constexpr uint64_t kScanBytes = uint64_t{4} << 20;

  // Edges [begin, end) of a side.
  struct Piece {
    Adjacency side = Adjacency::kCsc;
    uint64_t begin = 0, end = 0;
  };

  // Topology and backend outlive it.
  RangeEdges(IoBackend& backend, const Topology& topology, Direction direction, uint64_t block_rows);

  std::span<const Adjacency> sides() const { return sides_; }
  uint64_t ListSize(NodeId node) const;
  uint64_t CountEdges(uint64_t first, uint64_t end) const;  // of nodes [first, end), of all sides
  // Those edges, in pieces that have `edges_max` together at most.
  std::vector<std::vector<Piece>> Sweeps(uint64_t first, uint64_t end, uint64_t edges_max) const;
  // Reads pieces of nodes from `first_node` on. kCorruption.
  Status Load(uint64_t first_node, std::span<const Piece> pieces);

  void Release();  // gives back what Load holds

  // Edges of a block, of one side. Those of a node follow one another.
  struct Bucket {
    std::span<const uint32_t> nodes;    // from first_node on
    std::span<const uint32_t> sources;  // number in the block
  };
  Bucket Of(uint64_t block, size_t side) const;
  bool Has(uint64_t block) const;

  // Fills `out` with other ends from `begin` on.
  Status Read(Adjacency side, uint64_t begin, std::span<NodeId> out);
  uint64_t read_bytes() const { return read_bytes_; }

 private:
  Status ReadEdited(Adjacency side, uint64_t begin, std::span<NodeId> out);
  void Sort(uint64_t first_node, std::span<const Piece> pieces);

  IoBackend& backend_;
  const Topology& topology_;
  const std::span<const Adjacency> sides_;
  const uint64_t block_rows_, block_count_;
  std::vector<NodeId> read_;
  std::vector<uint32_t> nodes_, sources_;
  std::vector<uint64_t> offsets_;  // by block and side
  uint64_t read_bytes_ = 0;
};

}  // namespace quarry
