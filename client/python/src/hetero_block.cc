#include "hetero_block.h"

#include <algorithm>
#include <string>

namespace quarry::python {

HeteroBlock::HeteroBlock(const quarry_batch* batch, const HeteroTypes& types)
    : nodes_(types.dims.size()), edges_(types.sources.size()) {
  quarry_batch_arrays arrays{};
  Check(quarry_batch_get(batch, &arrays, sizeof arrays));
  Sort(arrays, types);
}

HeteroBlock::HeteroBlock(const quarry_batch* batch, const HeteroTypes& types, uint32_t seed_type,
                         const PygPass& pass)
    : nodes_(types.dims.size()), edges_(types.sources.size()) {
  quarry_batch_arrays arrays{};
  Check(quarry_batch_get(batch, &arrays, sizeof arrays));
  Sort(arrays, types);
  if (nodes_[seed_type].by_hop[0] != seed_count_) {
    throw Failure{QUARRY_USAGE, "the seeds of this batch are of several types"};
  }
  Gather(batch, types);
  if (arrays.labels != nullptr) {
    labels_.emplace(std::array<size_t, 1>{seed_count_});
    std::copy_n(arrays.labels, seed_count_, labels_->data());
  }
  seed_positions_.emplace(std::array<size_t, 1>{seed_count_});
  WriteSeedPositions(arrays, pass, seed_positions_->data());
}

void HeteroBlock::Sort(const quarry_batch_arrays& arrays, const HeteroTypes& types) {
  if (arrays.relations == nullptr && arrays.edge_count > 0) {
    throw Failure{QUARRY_USAGE, "this batch does not say which types its edges have"};
  }
  const uint16_t* const relations_end = arrays.relations + arrays.edge_count;
  if (std::any_of(arrays.relations, relations_end, [&](uint16_t r) { return r >= edges_.size(); })) {
    throw Failure{QUARRY_USAGE,
                  "this batch has edges of a type that was not there when its types were asked for"};
  }
  seed_count_ = arrays.seed_count;
  SortNodes(arrays, types);
  SortEdges(arrays);
}

// Nodes of a type stand in the order of the batch: those of a hop together, the seeds first.
void HeteroBlock::SortNodes(const quarry_batch_arrays& arrays, const HeteroTypes& types) {
  for (Nodes& nodes : nodes_) nodes.by_hop.resize(arrays.hop_count + 1);
  locals_.resize(arrays.node_count);
  uint32_t node = 0;
  for (uint32_t hop = 0; hop <= arrays.hop_count; ++hop) {
    for (; node < arrays.hop_offsets[hop]; ++node) {
      const uint32_t id = arrays.nodes[node];
      const auto after =
          std::upper_bound(types.ranges.begin(), types.ranges.end(), id,
                           [](uint32_t wanted, const TypedRange& range) { return wanted < range.first; });
      if (after == types.ranges.begin() || id >= (after - 1)->end) {
        throw Failure{QUARRY_USAGE,
                      "this batch has nodes that were added after its types were asked for: make what "
                      "loads it anew"};
      }
      const TypedRange& range = *(after - 1);
      Nodes& nodes = nodes_[range.type];
      nodes.ids.push_back(int64_t{range.row} + (id - range.first));
      locals_[node] = static_cast<uint32_t>(nodes.positions.size());
      nodes.positions.push_back(node);
      ++nodes.by_hop[hop];
    }
  }
  for (Nodes& nodes : nodes_) {
    nodes.n_id.emplace(std::array<size_t, 1>{nodes.ids.size()});
    std::copy(nodes.ids.begin(), nodes.ids.end(), nodes.n_id->data());
    nodes.ids = {};
  }
}

void HeteroBlock::SortEdges(const quarry_batch_arrays& arrays) {
  for (Edges& edges : edges_) edges.by_hop.resize(arrays.hop_count);
  for (uint32_t hop = 0, from = 0; hop < arrays.hop_count; from = arrays.hop_offsets[hop++]) {
    for (uint32_t edge = arrays.indptr[from]; edge < arrays.indptr[arrays.hop_offsets[hop]]; ++edge) {
      Edges& edges = edges_[arrays.relations[edge]];
      ++edges.by_hop[hop];
      ++edges.count;
    }
  }
  std::vector<int64_t*> next, next_ids;
  for (Edges& edges : edges_) {
    edges.edge_index.emplace(std::array<size_t, 2>{2, edges.count});
    next.push_back(edges.edge_index->data());
    if (arrays.edge_ids != nullptr) edges.e_id.emplace(std::array<size_t, 1>{edges.count});
    next_ids.push_back(edges.e_id ? edges.e_id->data() : nullptr);
  }
  for (uint32_t target = 0; target < arrays.target_count; ++target) {
    for (uint32_t edge = arrays.indptr[target]; edge < arrays.indptr[target + 1]; ++edge) {
      const uint16_t relation = arrays.relations[edge];
      int64_t*& at = next[relation];
      at[0] = locals_[arrays.indices[edge]];
      at[edges_[relation].count] = locals_[target];
      ++at;
      if (arrays.edge_ids != nullptr) *next_ids[relation]++ = static_cast<int64_t>(arrays.edge_ids[edge]);
    }
  }
}

void HeteroBlock::Gather(const quarry_batch* batch, const HeteroTypes& types) {
  for (uint32_t type = 0; type < nodes_.size(); ++type) {
    Nodes& nodes = nodes_[type];
    if (types.dims[type] == 0) continue;
    nodes.x.emplace(std::array<size_t, 2>{nodes.positions.size(), types.dims[type]});
    Check(quarry_batch_gather_type(batch, type, nodes.positions.data(), nodes.positions.size(),
                                   QUARRY_FLOAT32, nodes.x->data(), /*out_stride_bytes=*/0, /*threads=*/0));
  }
}

nb::dict HeteroBlock::ToDict() {
  const auto array = [](auto& owned) -> nb::object {
    return owned ? std::move(*owned).ToNumpy() : nb::none();
  };
  const auto list = [](const std::vector<uint32_t>& counts) {
    nb::list made;
    for (const uint32_t count : counts) made.append(count);
    return made;
  };
  nb::list nodes, edges;
  for (Nodes& of_type : nodes_)
    nodes.append(nb::make_tuple(array(of_type.n_id), array(of_type.x), list(of_type.by_hop)));
  for (Edges& of_type : edges_) {
    edges.append(nb::make_tuple(array(of_type.edge_index), array(of_type.e_id), list(of_type.by_hop)));
  }
  nb::dict made;
  made["nodes"] = nodes;
  made["edges"] = edges;
  made["y"] = array(labels_);
  made["input_id"] = array(seed_positions_);
  made["batch_size"] = nb::int_(seed_count_);
  return made;
}

}  // namespace quarry::python
