// What the manifest says of a topology (manifest.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quarry {

// Edges that one commit, or several, added to a topology and removed from it: a file of its own, and immutable.
struct TopologyRun {
  std::string file;         // "topology/graph-1-3.qtr"
  uint64_t generation = 1;  // the last part of the file's name
  uint64_t timestamp = 0;   // of the last commit in it
  uint64_t commits = 1;     // in it
  uint64_t edges_before = 0;
  uint64_t added = 0;    // edges
  uint64_t removed = 0;  // edges
  uint64_t lists = 0;    // lists that it changes, of all sides
  uint64_t file_bytes = 0;

  uint64_t edges_after() const { return edges_before + added - removed; }
};

// One topology: a file, and runs over it. Well-known name: "graph".
struct TopologyRecord {
  std::string name;
  std::string file;  // "topology/graph-1.qtp"
  uint64_t generation = 1;
  uint64_t node_count = 0;
  uint64_t edge_count = 0;      // of the file and all runs together
  uint64_t relation_count = 1;  // edge types; 1 = untyped
  bool has_csr = false;
  bool deduplicated = false;  // no list holds a neighbor twice; of a list by relation, by one of them
  bool undirected = false;    // both directions of every edge are stored
  // No two edges have the same nodes and the same relation; records of older databases say it by the two above alone.
  bool distinct = false;
  bool weighted = false;  // every edge has a weight
  bool by_relation =
      false;  // a list has its neighbors by relation, and ascending within one; else by neighbor
  uint64_t file_bytes = 0;
  uint64_t folded = 0;            // the file holds the commits of edges up to this timestamp
  std::vector<TopologyRun> runs;  // what was committed since, in order
  uint64_t added_nodes = 0;  // of node_count: nodes that were added since, which the file has no lists of

  // Whether equal edges, of one relation, are one edge, among those that come, too.
  bool keeps_equal_edges_once() const { return distinct || deduplicated || undirected; }
  uint64_t file_nodes() const { return node_count - added_nodes; }
  uint64_t base_edge_count() const { return runs.empty() ? edge_count : runs.front().edges_before; }
  uint64_t timestamp() const {
    return runs.empty() ? folded : runs.back().timestamp;
  }  // of the last commit of edges
  // Edges added and removed after a timestamp; a run that also has older commits counts whole.
  uint64_t ChangedSince(uint64_t timestamp) const;
};

}  // namespace quarry
