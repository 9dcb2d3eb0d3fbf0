// EdgeBucket: the edges from one part of a partitioned graph to another as they lie in memory and on disk: by
// destination (CSC) and by source (CSR), so that a sampler reads a node's in- and out-lists as the union of
// buckets and nothing is built anew when a part is swapped (the paper sorts all edges in memory, §5.2).
//
// Nodes are numbered within their part, from 0. Most nodes have no edge to most parts, so lists are kept for
// those that have one alone: by a bit for each node and the number of lists before each word of them, or,
// where that is smaller, by their numbers, ascending. docs/format.md "Partitioning" has the bytes.
//
// Views of memory that others own; const use is thread-safe.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/topology.h"

namespace quarry {

// One side of a bucket.
struct BucketShape {
  uint64_t node_count = 0;  // of the part whose nodes have the lists
  uint64_t list_count = 0;  // nodes with a list
  uint64_t edge_count = 0;
  uint64_t relation_bytes = 0;  // of one relation id beside each neighbor; 0: none

  bool by_bits() const;    // whether lists are found by a bit for each node
  uint64_t bytes() const;  // a multiple of 8; 0 without edges
};

class BucketLists {
 public:
  BucketLists() = default;
  // REQUIRES: `bytes` are shape.bytes() at a multiple of 8, as EncodeLists wrote them.
  BucketLists(const BucketShape& shape, const std::byte* bytes);

  const BucketShape& shape() const { return shape_; }
  // Neighbors of a node in the other part, ascending; empty where it has none. REQUIRES: node < node_count.
  std::span<const uint32_t> Neighbors(uint32_t node) const {
    const uint64_t list = ListOf(node);
    if (list == kNoList) return {};
    return neighbors_.subspan(starts_[list], starts_[list + 1] - starts_[list]);
  }
  // The number within the bucket of the first edge of a node that has some.
  uint32_t FirstEdge(uint32_t node) const { return starts_[ListOf(node)]; }
  // REQUIRES: there are relation ids.
  uint32_t Relation(uint64_t edge) const;
  // Calls visit(node, first_edge, neighbors) for each node with a list, ascending.
  template <typename Visit>
  void ForEachList(const Visit& visit) const;

  // kCorruption names what does not fit together; `other_count`: nodes of the other part. `where` begins the
  // message.
  Status Check(uint64_t other_count, uint64_t relation_count, std::string_view where) const;

 private:
  static constexpr uint64_t kNoList = ~uint64_t{0};
  uint64_t ListOf(uint32_t node) const;
  std::span<const uint32_t> List(uint64_t list) const {
    return neighbors_.subspan(starts_[list], starts_[list + 1] - starts_[list]);
  }

  BucketShape shape_;
  std::span<const uint64_t> bits_;   // by 64 nodes
  std::span<const uint32_t> ranks_;  // lists before them
  std::span<const uint32_t> nodes_;  // or the nodes
  std::span<const uint32_t> starts_;
  std::span<const uint32_t> neighbors_;
  const std::byte* relations_ = nullptr;
};

struct EdgeBucket {
  BucketLists in;   // CSC: lists of nodes of the destination part; relations lie here
  BucketLists out;  // CSR: lists of nodes of the source part
};

// An edge within a bucket, as keys that sort: the node with the list, and its neighbor.
constexpr uint64_t LocalEdge(uint32_t node, uint32_t neighbor) { return uint64_t{node} << 32 | neighbor; }

// Appends one side to `out`, whose size is a multiple of 8, and returns its shape. `edges` ascend; `relations`
// are beside them, or there are none.
BucketShape EncodeLists(std::span<const uint64_t> edges, std::span<const uint32_t> relations,
                        uint64_t relation_bytes, uint64_t node_count, std::vector<std::byte>& out);

inline uint64_t BucketLists::ListOf(uint32_t node) const {
  if (!bits_.empty()) {
    const uint64_t word = bits_[node / 64];
    const uint64_t bit = uint64_t{1} << (node % 64);
    if ((word & bit) == 0) return kNoList;
    return ranks_[node / 64] + static_cast<uint64_t>(std::popcount(word & (bit - 1)));
  }
  const auto found = std::ranges::lower_bound(nodes_, node);
  return found == nodes_.end() || *found != node ? kNoList : static_cast<uint64_t>(found - nodes_.begin());
}

template <typename Visit>
void BucketLists::ForEachList(const Visit& visit) const {
  for (uint64_t list = 0; list < nodes_.size(); ++list) visit(nodes_[list], starts_[list], List(list));
  uint64_t list = 0;
  for (uint64_t i = 0; i < bits_.size(); ++i) {
    for (uint64_t word = bits_[i]; word != 0; word &= word - 1, ++list) {
      visit(static_cast<uint32_t>(i * 64 + static_cast<uint64_t>(std::countr_zero(word))), starts_[list],
            List(list));
    }
  }
}

}  // namespace quarry
