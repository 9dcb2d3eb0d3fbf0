// What link prediction holds, in bytes.
#pragma once

#include "quarry/trainer/link_train.h"

namespace quarry {

struct LinkCounts {
  uint64_t nodes = 0, relations = 0;
  uint64_t train_edges = 0, edges = 0;  // `edges`: training, validation and test edges together
};

// The vectors of nodes and relations as tables.
EmbeddingSpec NodeTableSpec(const LinkTrainOptions& options, uint64_t node_count);
EmbeddingSpec RelationTableSpec(const LinkTrainOptions& options, uint64_t relation_count);

// While a topology is read, beside the edges that come of it.
uint64_t TopologyReadBytes(const TopologyRecord& record);

// Both tables, in memory.
uint64_t LinkTableBytes(const LinkTrainOptions& options, const LinkCounts& counts);

// All else that training and ranking hold, beside the edges.
uint64_t LinkWorkBytes(const LinkTrainOptions& options, const LinkCounts& counts);

}  // namespace quarry
