// Requests that write rows: of tables, and of embedding tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quarry/format/wire_types.h"

namespace quarry::wire {

// New values of rows of one table, as a row block (wire_batch.h) whose timestamps are those that were read.
struct EmbeddingUpdate {
  std::string table;
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t state_dim = 0;
  Bulk block;
  bool operator==(const EmbeddingUpdate&) const = default;
};

struct CommitEmbeddings {
  uint64_t number = 0;  // of the client's writes, from 1: one that is sent again is done once
  std::vector<EmbeddingUpdate> updates;
  bool operator==(const CommitEmbeddings&) const = default;
};

// Rows to be stored: `rows` ids as uint64, then the rows as the table encodes them.
struct PutRows {
  std::string table;
  uint64_t rows = 0;
  uint32_t row_bytes = 0;  // 0: the rows are deleted
  Bulk block;
  bool operator==(const PutRows&) const = default;
};

// What a put changes of the graph: nodes come behind the last one, with rows among the put's, and edges come or go. For a
// put in pieces the first one says which topology and which nodes, and all may bring names and edges.
struct PutGraph {
  std::string topology = "graph";
  uint64_t first_node = 0;         // of those that are added: the node count so far
  uint64_t nodes = 0;              // that are added
  std::vector<std::string> names;  // of the next of them, where nodes have names
  // Edges, as uint32: all sources, all destinations, and with `weighted` all weights, as float32. Behind them in the block
  // lie the nodes that are removed, as uint32, before edges are added.
  uint64_t edges = 0;
  bool weighted = false;
  bool remove = false;  // they go; those go before any come
  Bulk block;
  uint64_t removed_nodes = 0;
  uint32_t relation = 0;                                     // of all the edges
  std::string node_type;                                     // of all added nodes, where nodes have types
  uint64_t edge_bytes() const { return weighted ? 12 : 8; }  // of each edge
  // What all pieces of a put say alike.
  PutGraph Nodes() const;
  bool operator==(const PutGraph&) const = default;
};

inline PutGraph PutGraph::Nodes() const {
  return {.topology = topology, .first_node = first_node, .nodes = nodes, .node_type = node_type};
}

// What has become of the graph.
struct GraphChanged {
  uint64_t timestamp = 0;
  uint64_t added = 0;       // edges, reverses included; one with a new weight is removed and added
  uint64_t removed = 0;     // the same
  uint64_t present = 0;     // of those to be added were there already
  uint64_t absent = 0;      // of those to be removed were not there
  uint64_t first_node = 0;  // of those that were added
  uint64_t nodes_added = 0;
  uint64_t node_count = 0;  // afterwards
  uint64_t edge_count = 0;  // of the topology afterwards
  uint64_t runs = 0;        // of the topology afterwards
  uint64_t nodes_removed = 0;
  bool operator==(const GraphChanged&) const = default;
};

struct Put {
  uint64_t number = 0;  // as above
  bool sync = true;     // a change of the graph always is
  std::vector<PutRows> tables;
  std::optional<PutGraph> graph;
  // For a commit in pieces: the pieces have one number and come in order, each after the answer to the one
  // before.
  uint64_t piece = 0;  // from 1; 0: all of it
  bool last = false;   // commits all pieces, synced; it may have no tables
  bool operator==(const Put&) const = default;
};

// Drops the pieces, if any came, of a put whose last piece did not come.
struct ForgetPut {
  uint64_t number = 0;
  bool operator==(const ForgetPut&) const = default;
};

}  // namespace quarry::wire
