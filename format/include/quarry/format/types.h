// The words that every room shares: node ids and edges.
#pragma once

#include <cstdint>

namespace quarry {

// A node's dense id, 0-based. An element of tensors (indices, input nodes, labels' positions), so a plain
// 32-bit integer and no wrapper: arrays of it are read from disk and handed to kernels as they are. Databases
// hold at most kNodeCountMax nodes, 15 times more than any published training graph; importers refuse more.
// 64 bits would double the topology and the sampler's traffic.
using NodeId = uint32_t;
inline constexpr uint64_t kNodeCountMax = 0xfffffffe;
inline constexpr NodeId kNoNode = 0xffffffff;

// A directed edge as importers see it: with 64-bit ids, before they are known to be in range.
struct Edge {
  uint64_t source;
  uint64_t destination;
};

// An edge with a relation, as it is stored.
struct Triple {
  NodeId head;
  uint32_t relation;
  NodeId tail;
};

// Labels are less than this: class ids are 32-bit in the trainer, and no classifier has more outputs.
inline constexpr int64_t kLabelMax = int64_t{1} << 31;

// The split that a node belongs to.
enum class Split : uint8_t { kNone = 0, kTrain = 1, kValid = 2, kTest = 3 };

}  // namespace quarry
