// Which part of a partitioned graph each node belongs to.
#pragma once

#include <cstdint>
#include <vector>

namespace quarry {

// What a partitioner decides and a stored partitioning is made of. Memory: 4 bytes a node.
struct Assignment {
  uint32_t parts = 1;
  std::vector<uint32_t> part_of;  // of each node, in [0, parts)

  // The number of nodes in each part.
  std::vector<uint64_t> Sizes() const;

  bool operator==(const Assignment&) const = default;
};

}  // namespace quarry
