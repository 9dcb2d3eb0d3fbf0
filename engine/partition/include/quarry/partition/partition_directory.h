// What the file of a partitioning says about its parts: where each of them and each bucket of edges lies.
// Values; docs/format.md "Partitioning" has them as bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "quarry/base/units.h"
#include "quarry/format/feature_table.h"
#include "quarry/format/topology.h"
#include "quarry/format/types.h"
#include "quarry/partition/edge_bucket.h"

namespace quarry {

// Where the edges from one part to another lie.
struct BucketEntry {
  uint64_t offset = 0;  // in the section of buckets, a whole number of pages
  uint64_t edges = 0;
  uint64_t in_lists = 0;   // nodes of the destination part with in-neighbors
  uint64_t out_lists = 0;  // nodes of the source part with out-neighbors
};

// Labelled nodes of a part in the splits: training, validation, test.
struct SplitCounts {
  uint64_t nodes[3] = {0, 0, 0};
  uint64_t of(Split split) const { return split == Split::kNone ? 0 : nodes[static_cast<size_t>(split) - 1]; }
};

// The label that classes are counted by, whose node may be the one that has a wrong label.
struct LargestLabel {
  NodeId node = 0;  // as the database numbers it: the first that has it
  int64_t label = -1;
  int64_t next = -1;  // the largest of the others; -1: there is none
};

// 40 bytes a bucket and part: the index of p^2 buckets stays resident, and nothing of a node or an edge.
struct PartitionDirectory {
  uint64_t relation_count = 1;
  uint64_t row_bytes = 0;             // of an encoded row; 0: the partitioning has no rows
  uint64_t row_stride = 0;            // of two rows of a part, as batches have them
  uint64_t buckets_bytes = 0;         // of the section of buckets
  std::vector<uint64_t> part_starts;  // part i has the new ids [part_starts[i], part_starts[i + 1])
  std::vector<BucketEntry> buckets;   // by source part * p + destination part
  // About labels and splits, which lie beside the rows; empty and 0 where the database had none.
  std::vector<SplitCounts> splits;  // by part; validation and test nodes count without a label, too
  uint32_t class_count = 0;         // 1 + the largest label, or kClassesMax

  // No model tells so many classes apart: of labels that no counter of classes holds.
  static constexpr uint32_t kClassesMax = ~uint32_t{0};

  bool has_labels() const { return !splits.empty(); }
  uint64_t NodesIn(Split split) const;
  // k of Algorithm 7: the training nodes lie in the parts [0, k).
  uint32_t training_parts() const;

  uint32_t parts() const { return static_cast<uint32_t>(part_starts.size() - 1); }
  uint64_t node_count() const { return part_starts.back(); }
  uint64_t part_nodes(uint32_t part) const { return part_starts[part + 1] - part_starts[part]; }
  uint32_t PartOf(NodeId new_id) const {
    return static_cast<uint32_t>(std::ranges::upper_bound(part_starts, new_id) - part_starts.begin() - 1);
  }
  const BucketEntry& bucket(uint32_t source, uint32_t destination) const {
    return buckets[size_t{source} * parts() + destination];
  }

  // Whole pages that are read for a part's rows, and where they begin in the section of rows.
  uint64_t part_bytes(uint32_t part) const { return RoundUp(part_nodes(part) * row_stride, kPageBytes); }
  uint64_t part_offset(uint32_t part) const { return OffsetOf(part, row_stride); }
  uint64_t rows_bytes() const { return part_offset(parts()); }
  // The same of any section that has a value of this many bytes for each node, part by part: labels and splits.
  uint64_t OffsetOf(uint32_t part, uint64_t value_bytes) const;
  uint64_t BytesOf(uint32_t part, uint64_t value_bytes) const {
    return RoundUp(part_nodes(part) * value_bytes, kPageBytes);
  }
  // Old ids lie one behind the other, and a part's begin within a page: the whole pages that have them.
  uint64_t ids_offset(uint32_t part) const {
    return RoundDown(part_starts[part] * sizeof(NodeId), kPageBytes);
  }
  uint64_t ids_bytes(uint32_t part) const {
    const uint64_t end = RoundUp(part_starts[part + 1] * sizeof(NodeId), kPageBytes);
    return part_nodes(part) == 0 ? 0 : end - ids_offset(part);
  }
  // Rows of several parts lie in one piece of memory, each in a frame of whole rows and whole pages.
  uint64_t row_frame_bytes() const;
  // The same of a bucket, which begins at its entry's offset.
  uint64_t bucket_bytes(uint32_t source, uint32_t destination) const;
  BucketShape in_shape(uint32_t source, uint32_t destination) const;
  BucketShape out_shape(uint32_t source, uint32_t destination) const;

  // By part, and by bucket as `buckets` are: for CostOf and EdgePermutationBias (policy.h).
  std::vector<uint64_t> PartBytes() const;
  std::vector<uint64_t> BucketBytes() const;
  std::vector<uint64_t> BucketEdges() const;
  uint64_t CutEdges() const;  // whose ends lie in different parts
  uint64_t resident_bytes() const {
    return part_starts.size() * sizeof(uint64_t) + buckets.size() * sizeof(BucketEntry);
  }
};

}  // namespace quarry
