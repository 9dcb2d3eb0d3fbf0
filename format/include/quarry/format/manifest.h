// The catalog's values: what a database consists of. Stored as Cap'n Proto messages (metadata.capnp) under
// the keys named here; encode and decode are pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"

namespace quarry {

// One table: a file of rows by node. Well-known names: "feature" (training input), "label" (int64 x 1, -1 =
// none), "split" (uint8 x 1, enum Split).
struct TableRecord {
  std::string name;
  std::string file;  // relative to the database, as "features/feature-1.qft"
  uint64_t generation = 1;
  ElementType element_type = ElementType::kFloat32;
  uint64_t row_count = 0;
  uint64_t dim = 0;
  uint64_t file_bytes = 0;
};

// One topology file. Well-known name: "graph".
struct TopologyRecord {
  std::string name;
  std::string file;  // "topology/graph-1.qtp"
  uint64_t generation = 1;
  uint64_t node_count = 0;
  uint64_t edge_count = 0;
  uint64_t relation_count = 1;  // edge types; 1 = untyped
  bool has_csr = false;
  bool deduplicated = false;  // no list holds a neighbor twice
  bool undirected = false;    // both directions of every edge are stored
  uint64_t file_bytes = 0;
};

// Everything a reader needs to open a database; replaced atomically as one catalog record.
struct Manifest {
  std::array<std::byte, 16> database_id{};
  uint64_t node_count = 0;
  uint64_t class_count = 0;  // 1 + the largest label; 0 = no labels
  std::string source;        // where it was imported from, for people
  std::string created_utc;   // RFC 3339
  std::vector<TableRecord> tables;
  std::vector<TopologyRecord> topologies;
  bool has_entity_names = false;    // the property family maps names <-> node ids
  bool has_relation_names = false;  // and names <-> relation ids

  const TableRecord* FindTable(std::string_view name) const;        // nullptr when absent
  const TopologyRecord* FindTopology(std::string_view name) const;  // nullptr when absent
};

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, std::string_view path);

}  // namespace quarry
