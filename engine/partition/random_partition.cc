#include "random_partition.h"

#include <utility>

#include "quarry/base/random.h"

namespace quarry {

Assignment PartitionAtRandom(uint64_t node_count, uint32_t parts, uint64_t seed) {
  Assignment assignment{.parts = parts, .part_of = std::vector<uint32_t>(node_count)};
  std::vector<uint32_t>& part_of = assignment.part_of;
  for (uint64_t v = 0; v < node_count; ++v) part_of[v] = static_cast<uint32_t>(v % parts);
  Rng rng(MixSeed(seed, 0x7a));
  for (uint64_t i = node_count; i > 1; --i) std::swap(part_of[i - 1], part_of[rng.Below(i)]);
  return assignment;
}

}  // namespace quarry
