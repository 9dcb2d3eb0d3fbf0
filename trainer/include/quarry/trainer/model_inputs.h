// ModelInputs: what a model that tells relations apart (ModelSpec::needs_relations) is told of its graph: which nodes have
// rows of how many columns, and of how many kinds edges are. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quarry/format/node_types.h"

namespace quarry {

// A type of nodes.
struct InputType {
  std::string name = {};  // in files of weights; empty where all nodes are of one type
  uint32_t dim = 0;       // columns of their rows; 0: they have none
};

struct ModelInputs {
  std::vector<InputType> types = {};  // empty: all nodes have rows alike
  NodeTypes nodes = {};               // which nodes are of these types; empty where there is one at most
  uint32_t kind_count = 0;            // of edges: how many relations there are
  // The kind of each edge, below kind_count, in the order of the edge ids that batches then have. Null: batches say the
  // relations of their edges themselves (BatchView::relations).
  std::shared_ptr<const std::vector<uint32_t>> kinds = nullptr;

  // The types, or the one of nodes that all have rows of so many columns.
  std::vector<InputType> TypesOr(uint32_t feature_dim) const {
    return types.empty() ? std::vector<InputType>{{.dim = feature_dim}} : types;
  }
};

}  // namespace quarry
