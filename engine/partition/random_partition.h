// Parts at random: what every other partitioner is measured against. Private to this room.
#pragma once

#include <cstdint>

#include "quarry/partition/assignment.h"

namespace quarry {

// Sizes differ by one node at most. One seed gives one result.
Assignment PartitionAtRandom(uint64_t node_count, uint32_t parts, uint64_t seed);

}  // namespace quarry
