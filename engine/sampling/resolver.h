// Resolver: turns drawn positions of neighbor lists into the neighbors that stand there; from memory or from
// disk.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/base/status.h"
#include "quarry/sampling/sampler.h"

namespace quarry {

// A position is an index into the indices of one side of the topology; this bit tells the second side of a
// sampler that goes both ways (CSR) from the first.
inline constexpr uint64_t kSecondSide = uint64_t{1} << 63;

// What is resolved at a time: the positions drawn for some nodes of the frontier.
struct PositionTile {
  std::span<const NodeId> nodes;
  std::span<const uint32_t> ends;  // by node, in `positions`, plus `first_end`
  uint32_t first_end = 0;
  std::span<uint64_t> positions;  // grouped by node and side
};

// One thread.
class Resolver {
 public:
  virtual ~Resolver() = default;
  // Writes one neighbor per position; may destroy the positions. REQUIRES: at most tile_positions_max() of
  // them.
  virtual Status Resolve(const PositionTile& tile, NodeId* neighbors, SamplerStats& stats) = 0;
  virtual uint64_t tile_positions_max() const = 0;
  virtual uint64_t memory_bytes() const = 0;
};

std::unique_ptr<Resolver> MakeMemoryResolver(const NeighborSource& source);
// Positions are those of nodes' lists strung together.
std::unique_ptr<Resolver> MakeListsResolver(const PiecedLists& lists);
Result<std::unique_ptr<Resolver>> MakeDiskResolver(const NeighborSource& source);

// What the resolver of such a source holds at most, for hops of at most positions_max.
uint64_t DiskResolverBytesMax(const NeighborSource& source, uint64_t positions_max);

inline constexpr uint64_t kMemoryTilePositions = 4096;
inline constexpr uint64_t kDiskTilePositions = uint64_t{1} << 20;

}  // namespace quarry
