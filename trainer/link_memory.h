// What link prediction holds, in bytes.
#pragma once

#include "quarry/partition/partition_directory.h"
#include "quarry/trainer/link_train.h"

namespace quarry {

struct LinkCounts {
  uint64_t nodes = 0, relations = 0;
  uint64_t train_edges = 0, edges = 0;  // `edges`: training, validation and test edges together
  uint64_t known_edges = 0;             // those that filtered rankings leave out, held-out ones included
  // A run by parts has them: its encoder draws a fanout of each side, and neither all edges nor their order are in memory.
  const PartitionDirectory* parts = nullptr;
};

LinkCounts CountsOf(const LinkData& data);
// As far as a database tells: what is held out of its training edges counts as if it were not.
LinkCounts CountsOf(const Manifest& manifest);

// The vectors of nodes and relations as tables.
EmbeddingSpec NodeTableSpec(const LinkTrainOptions& options, uint64_t node_count);
EmbeddingSpec RelationTableSpec(const LinkTrainOptions& options, uint64_t relation_count);

// Features of so many nodes, which their data holds; 0 where vectors are learned.
uint64_t LinkFeatureBytes(const LinkTrainOptions& options, uint64_t nodes);
// A table in memory, and both of them; of features, what is known of their rows.
uint64_t TableBytes(const EmbeddingSpec& spec);
uint64_t LinkTableBytes(const LinkTrainOptions& options, const LinkCounts& counts);
// A copy of the nodes' vectors in memory, which training with patience keeps of the best epoch where it has no
// checkpoints; 0 without.
uint64_t LinkCopyBytes(const LinkTrainOptions& options, const LinkCounts& counts);
// One of the tables, which the caller has paid for. kOutOfBudget where the system refuses the memory all the same.
Result<std::unique_ptr<EmbeddingTable>> MakeMemoryTable(const EmbeddingSpec& spec);

// What a buffer pool over a stored table (SmallestPageBytes a page) takes: with the fewest frames that
// training with this many workers can do with, and with one for every page.
struct PoolBytes {
  uint64_t least = 0, most = 0;
};
PoolBytes StoredPoolBytes(const EmbeddingSpec& spec, unsigned workers);

// Rows that are read at a time where all are.
inline constexpr uint64_t kReadRows = 1024;

// All else that training and ranking hold, beside the edges.
uint64_t LinkWorkBytes(const LinkTrainOptions& options, const LinkCounts& counts);

}  // namespace quarry
