// BatchView: a mini-batch as all who read one see it: kernels, clients, the C interface, whichever road made
// it and wherever its arrays lie. Batch: a view, and what keeps it valid.
//
// A view is a value that owns nothing: it is valid as long as the Batch, or the Block
// (quarry/sampling/block.h), that it was made of. Read-only; any thread may read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "quarry/format/device_batch.h"
#include "quarry/format/element_type.h"
#include "quarry/format/types.h"

namespace quarry {

// From one encoded row to the next in memory that kernels read: rows begin at whole floats.
inline uint64_t RowStride(ElementType type, uint64_t dim) {
  return (RowBytes(type, dim) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

// The input features of a block, in place and encoded. Nothing was copied; a kernel gathers and decodes as it
// aggregates. Empty where there are none: dim is 0 then.
struct FeatureView {
  std::span<const std::byte> rows = {};  // [row_count() x stride_bytes]
  uint64_t stride_bytes = 0;             // from one row to the next
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
  std::span<const uint32_t> slots = {};  // by node: its row; empty: node i has row i

  uint64_t row_count() const { return stride_bytes == 0 ? 0 : rows.size() / stride_bytes; }
  // The row of node `i` of the block.
  const std::byte* Row(size_t i) const { return rows.data() + (slots.empty() ? i : slots[i]) * stride_bytes; }
};

// What the rows of nodes of one type are like, at the places that FeatureView has for all nodes.
struct TypeRows {
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;  // 0: nodes of the type have none
};

// The sampled graph in DENSE form (quarry/sampling/block.h says how nodes are numbered), and what belongs to
// its nodes. Local ids index `nodes`.
struct BatchView {
  uint64_t index = 0;                          // position in the pass
  uint32_t seed_count = 0;                     // hop_offsets[0]
  std::span<const NodeId> nodes = {};          // input nodes, unique; the seeds first
  std::span<const uint32_t> hop_offsets = {};  // [hops + 1]: nodes known after hop h
  std::span<const uint32_t> indptr = {};       // [targets + 1]: sampled neighbors of nodes[v]
  std::span<const uint32_t> indices = {};      // [edges]: local ids of the neighbors
  std::span<const uint64_t> edge_ids = {};  // [edges], or none: positions among the in-neighbors of all nodes
  std::span<const uint16_t> relations = {};  // [edges], where fanouts are by type of edges: each one's type
  std::span<const int64_t> labels = {};      // [seeds], or none; -1 = unlabelled
  FeatureView features = {};
  // By type, where rows are of several tables: features has no dim then, and rows may take several of its places.
  std::span<const TypeRows> type_rows = {};

  uint32_t hops() const { return static_cast<uint32_t>(hop_offsets.size()) - 1; }
  // Nodes with a list of neighbors: those known after hop hops - 1.
  uint32_t target_count() const { return static_cast<uint32_t>(indptr.size()) - 1; }
  std::span<const NodeId> seeds() const { return nodes.first(seed_count); }
};

// A mini-batch in somebody's hands: what its view shows stays until it dies, which must be before the stream
// that gave it does, and before the next one is asked for, unless the stream allows more.
class Batch {
 public:
  // `hold` keeps the arrays of the view, and `on_device`, and lets go of them when it dies.
  Batch(const BatchView& view, std::shared_ptr<const void> hold, DeviceBatch* on_device = nullptr)
      : view_(view), hold_(std::move(hold)), on_device_(on_device) {}
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  uint64_t index() const { return view_.index; }
  const BatchView& view() const { return view_; }
  // Where batches go to a device, whose views have no rows; else null.
  DeviceBatch* on_device() const { return on_device_; }

 private:
  const BatchView view_;
  const std::shared_ptr<const void> hold_;
  DeviceBatch* const on_device_;
};

}  // namespace quarry
