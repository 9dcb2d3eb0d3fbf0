// The names and widths of a topology file's sections. docs/format.md "Topology".
#pragma once

#include <cstdint>
#include <string_view>

namespace quarry {

// Which way the lists run: in CSC, list v holds the in-neighbors (sources) of v; in CSR its out-neighbors.
enum class Adjacency : uint8_t { kCsc = 0, kCsr = 1 };

// The sections of one side. Each is covered page by page by the section of its name plus "_checksums".
struct TopologySections {
  std::string_view indptr;     // node_count + 1 uint64: list v is indices[indptr[v]..indptr[v+1])
  std::string_view indices;    // edge_count NodeId, ascending within a list
  std::string_view relations;  // edge_count relation ids beside the indices; absent when relation_count is 1
  std::string_view weights;    // edge_count float32, finite, beside the indices; absent without weights
};
constexpr TopologySections SectionsOf(Adjacency side) {
  return side == Adjacency::kCsc
             ? TopologySections{"csc_indptr", "csc_indices", "csc_relations", "csc_weights"}
             : TopologySections{"csr_indptr", "csr_indices", "csr_relations", "csr_weights"};
}

// The sections of one side of a run (TopologyRun), sparse: of lists that it changes. Numbers of `places` and `removed`
// are positions in a list, ascending; those of a list stand together.
struct RunSections {
  std::string_view lists;      // NodeIds, ascending
  std::string_view counts;     // two uint32 of each list: edges added, edges removed
  std::string_view places;     // uint32 of each added edge: where it stands in the list as the run leaves it
  std::string_view indices;    // NodeId of each added edge: the neighbor
  std::string_view weights;    // float32 of each added edge; absent without weights
  std::string_view relations;  // uint32 of each added edge: its relation; absent when relation_count is 1
  std::string_view removed;    // uint32 of each removed edge: where it stood in the list as the run found it
};
constexpr RunSections RunSectionsOf(Adjacency side) {
  return side == Adjacency::kCsc ? RunSections{"csc_lists",   "csc_counts",    "csc_places", "csc_indices",
                                               "csc_weights", "csc_relations", "csc_removed"}
                                 : RunSections{"csr_lists",   "csr_counts",    "csr_places", "csr_indices",
                                               "csr_weights", "csr_relations", "csr_removed"};
}

// Bytes of one relation id: 1, 2 or 4, the least that holds relation_count - 1.
constexpr uint64_t RelationIdBytes(uint64_t relation_count) {
  if (relation_count <= 0x100) return 1;
  return relation_count <= 0x10000 ? 2 : 4;
}

}  // namespace quarry
