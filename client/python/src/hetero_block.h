// What PyG's HeteroData has of a batch with types: nodes, edges and rows of each type by themselves, ids counted from 0 in
// each. Made without the interpreter's lock, in memory of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings.h"
#include "memory.h"
#include "pyg_block.h"

namespace quarry::python {

// Nodes of one type that follow each other, and where the first of them is among those of the type.
struct TypedRange {
  uint32_t first = 0;
  uint64_t end = 0;
  uint32_t type = 0;
  uint32_t row = 0;
};

// The types of a graph, in the order of the manifest.
struct HeteroTypes {
  std::vector<TypedRange> ranges;               // by ascending node
  std::vector<uint32_t> dims;                   // by type of nodes, of its rows; 0: none
  std::vector<uint32_t> sources, destinations;  // by relation: types of nodes
};

class HeteroBlock {
 public:
  // A block alone: nodes and edges, of seeds of any types. Throws Failure and std::bad_alloc.
  HeteroBlock(const quarry_batch* batch, const HeteroTypes& types);
  // A stream's batch, whose seeds are of one type. `pass` says where they stand. Throws as above.
  HeteroBlock(const quarry_batch* batch, const HeteroTypes& types, uint32_t seed_type, const PygPass& pass);

  // What it has, once, with the lock: "nodes", for each type n_id, x (None without rows) and num_sampled_nodes; "edges", for
  // each relation edge_index, e_id (None where nobody asked) and num_sampled_edges; "y" (None without labels), "input_id"
  // (None of a block alone) and "batch_size" of the seeds.
  nb::dict ToDict();

 private:
  using Int64s = RecycledArray<int64_t, 1>;
  struct Nodes {
    std::vector<uint32_t> positions;  // in the batch
    std::vector<int64_t> ids;         // among the nodes of the type, until n_id has them
    std::vector<uint32_t> by_hop;
    std::optional<Int64s> n_id;
    std::optional<RecycledArray<float, 2>> x;
  };
  struct Edges {
    std::vector<uint32_t> by_hop;
    uint64_t count = 0;
    std::optional<RecycledArray<int64_t, 2>> edge_index;
    std::optional<Int64s> e_id;
  };

  void Sort(const quarry_batch_arrays& arrays, const HeteroTypes& types);
  void SortNodes(const quarry_batch_arrays& arrays, const HeteroTypes& types);
  void SortEdges(const quarry_batch_arrays& arrays);
  void Gather(const quarry_batch* batch, const HeteroTypes& types);

  std::vector<uint32_t> locals_;  // by node of the batch, its place among those of its type
  std::vector<Nodes> nodes_;
  std::vector<Edges> edges_;
  std::optional<Int64s> labels_, seed_positions_;
  uint32_t seed_count_ = 0;
};

}  // namespace quarry::python
