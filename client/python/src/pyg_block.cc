#include "pyg_block.h"

#include <algorithm>

namespace quarry::python {
namespace {

quarry_batch_arrays ArraysOf(const quarry_batch* batch) {
  quarry_batch_arrays arrays{};
  Check(quarry_batch_get(batch, &arrays, sizeof arrays));
  return arrays;
}

RecycledArray<int64_t, 1> Int64sOf(const auto* from, size_t count) {
  RecycledArray<int64_t, 1> made({count});
  std::copy_n(from, count, made.data());
  return made;
}

}  // namespace

PygBlock::PygBlock(const quarry_batch* batch, const PygPass& pass)
    : edge_index_({2, ArraysOf(batch).edge_count}), n_id_({ArraysOf(batch).node_count}) {
  const quarry_batch_arrays arrays = ArraysOf(batch);
  WriteEdges(arrays);
  std::copy_n(arrays.nodes, arrays.node_count, n_id_.data());
  if (!pass.sorted.empty()) WritePositions(arrays, pass);
  if (arrays.labels != nullptr) labels_ = Int64sOf(arrays.labels, arrays.seed_count);
  if (arrays.edge_ids != nullptr) edge_ids_ = Int64sOf(arrays.edge_ids, arrays.edge_count);
  nodes_.push_back(arrays.hop_offsets[0]);
  uint32_t from = 0;
  for (uint32_t hop = 0; hop < arrays.hop_count; ++hop) {
    const uint32_t to = arrays.hop_offsets[hop];
    nodes_.push_back(arrays.hop_offsets[hop + 1] - to);
    edges_.push_back(arrays.indptr[to] - arrays.indptr[from]);
    from = to;
  }
}

void PygBlock::Gather(const quarry_batch* batch) {
  const quarry_batch_arrays arrays = ArraysOf(batch);
  if (arrays.dim == 0) return;
  x_.emplace(std::array<size_t, 2>{arrays.node_count, arrays.dim});
  Check(quarry_batch_gather(batch, QUARRY_FLOAT32, x_->data(), /*out_stride_bytes=*/0, /*threads=*/0));
}

void PygBlock::WriteEdges(const quarry_batch_arrays& arrays) {
  int64_t* const rows = edge_index_.data();
  int64_t* const cols = rows + arrays.edge_count;
  std::copy_n(arrays.indices, arrays.edge_count, rows);
  for (uint32_t target = 0; target < arrays.target_count; ++target) {
    std::fill(cols + arrays.indptr[target], cols + arrays.indptr[target + 1], int64_t{target});
  }
}

void PygBlock::WritePositions(const quarry_batch_arrays& arrays, const PygPass& pass) {
  positions_.emplace(std::array<size_t, 1>{arrays.seed_count});
  // A binary search of all seeds at once: their loads of a step do not wait for each other.
  int64_t* const at = positions_->data();
  std::fill_n(at, arrays.seed_count, 0);
  for (size_t left = pass.sorted.size(); left > 1; left -= left / 2) {
    const auto half = static_cast<int64_t>(left / 2);
    const uint32_t* const last = pass.sorted.data() + half - 1;
    for (uint32_t i = 0; i < arrays.seed_count; ++i) at[i] += last[at[i]] < arrays.nodes[i] ? half : 0;
  }
  if (pass.order.empty()) return;
  for (uint32_t i = 0; i < arrays.seed_count; ++i) at[i] = pass.order[static_cast<size_t>(at[i])];
}

nb::tuple PygBlock::ToPython(bool dlpack) && {
  nb::list nodes, edges;
  for (const uint32_t count : nodes_) nodes.append(count);
  for (const uint32_t count : edges_) edges.append(count);
  const auto whole = [dlpack](auto& array) -> nb::object {
    return dlpack ? std::move(array).template ToPython<>() : std::move(array).template ToPython<nb::numpy>();
  };
  const auto array = [&whole](auto& owned) -> nb::object { return owned ? whole(*owned) : nb::none(); };
  return nb::make_tuple(whole(edge_index_), whole(n_id_), array(positions_), array(labels_), array(edge_ids_),
                        nodes, edges, array(x_));
}

void Preparation::Run(const quarry_batch* batch, void* preparation) noexcept {
  auto& self = *static_cast<Preparation*>(preparation);
  self.made_ = nullptr;
  self.error_ = nullptr;
  try {
    self.made_ = std::make_unique<PygBlock>(batch, *self.pass_);
  } catch (...) {
    self.error_ = std::current_exception();
  }
}

std::unique_ptr<PygBlock> Preparation::Take() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  return std::move(made_);
}

}  // namespace quarry::python
