// The catalog's values: what a database consists of. Stored as Cap'n Proto messages (metadata.capnp) under
// the keys named here; encode and decode are pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/device_record.h"
#include "quarry/format/element_type.h"
#include "quarry/format/graph_types.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/topology_record.h"

namespace quarry {

// One table: a file of rows by node. Well-known names: "feature" (training input), "label" (int64 x 1, -1 =
// none), "split" (uint8 x 1, enum Split); "TYPE.feature", whose rows are those of the nodes of a type.
struct TableRecord {
  std::string name;
  std::string file;  // relative to the database, as "features/feature-1.qft"
  uint64_t generation = 1;
  ElementType element_type = ElementType::kFloat32;
  uint64_t row_count = 0;
  uint64_t dim = 0;
  uint64_t file_bytes = 0;
  uint64_t folded = 0;  // the file holds the row versions up to this timestamp
  // Part of row_count: rows of nodes that were added since, which are versions over the file, or zeros where there is none.
  uint64_t added_rows = 0;

  uint64_t file_rows() const { return row_count - added_rows; }
  uint64_t row_stride() const;  // of a row in memory: in whole floats
};

// A file of an earlier generation of a layout, "base-GENERATION.qlc" in its folder.
struct LayoutBase {
  uint64_t generation = 1;
  uint64_t file_bytes = 0;
  friend bool operator==(const LayoutBase&, const LayoutBase&) = default;
};

// The part of a layout's batches that one of several trainers has: batches rank, rank + ranks, ... of each pass, or, by a
// partitioning, those of the training nodes in parts rank, rank + ranks, ...
struct RankShare {
  uint32_t rank = 0;
  uint32_t ranks = 0;             // 0: all batches are one trainer's
  std::string rank_partitioning;  // empty: by batches
  bool operator==(const RankShare&) const = default;
};

// One packed layout: the input rows of planned epochs in the order of their use, derived from one table and
// one topology, disposable (invariant 7).
struct LayoutRecord {
  std::string name;
  std::string directory;  // "layouts/NAME-1", relative to the database; holds layout.qlc and trace.qlt
  uint64_t generation = 1;

  // What it was built from, and the passes that it serves.
  RoadSpec spec;                  // cache_bytes: of cache_rows rows, whole, where they are of one table
  uint64_t table_generation = 1;  // where fanouts are by type, the sum of those of the types' tables
  uint64_t topology_generation = 1;
  uint64_t timestamp = 0;  // the rows are the newest up to it
  PolicyKind policy = PolicyKind::kBelady;
  uint32_t epochs = 0;       // planned
  uint64_t batch_count = 0;  // of all planned epochs
  uint64_t cache_rows = 0;
  uint64_t batches_per_segment = 0;  // 0 = no segment caches
  uint32_t hash_functions = 0;
  uint64_t disk_bytes_max = 0;  // what it was allowed to take; 0 = no limit
  RankShare share;

  // Its trace, and of a patched layout the files that it reads besides its own.
  uint64_t trace_generation = 1;
  std::vector<LayoutBase> bases;

  // Costs: what the plan promises, what training from it took, and what making it took.
  uint64_t file_bytes = 0;      // layout.qlc
  uint64_t trace_bytes = 0;     // trace.qlt
  uint64_t row_bytes_read = 0;  // per planned cycle: chunks, segment caches and blocks
  uint64_t useful_bytes = 0;
  uint64_t accesses = 0;         // rows that the batches of a cycle use
  uint64_t hits = 0;             // of these, found in a cache
  double predicted_seconds = 0;  // per epoch
  double measured_seconds = 0;   // of the last epoch trained from it; 0 = none yet
  uint64_t measured_bytes = 0;
  double plan_seconds = 0;
  uint64_t plan_bytes_written = 0;
  uint64_t plan_bytes_read = 0;
  std::string created_utc;  // RFC 3339

  uint64_t total_bytes() const;  // of all its files
};

// One embedding table: a page file, and its last checkpoint's page map. An earlier one's, the best epoch's, may be kept.
struct EmbeddingRecord {
  std::string name;
  std::string file;  // "embeddings/NAME-1.qet", relative to the database
  uint64_t generation = 1;
  uint32_t page_bytes = 0;
  uint32_t page_count = 0;
  std::string map_file;  // "embeddings/NAME-1-7.qem"; empty before the first checkpoint
  uint64_t map_generation = 0;

  uint64_t row_count = 0;
  uint32_t dim = 0;
  ElementType element_type = ElementType::kFloat32;
  uint8_t optimizer = 0;  // these two as embedding tables number them
  uint8_t init = 0;
  float init_scale = 0;
  uint64_t seed = 0;
  int64_t timestamp = -1;   // of the last checkpoint; -1 = never
  std::string created_utc;  // RFC 3339

  std::string kept_map_file;  // as map_file, and it may be the same; empty where none is kept
  uint64_t kept_map_generation = 0;
  int64_t kept_timestamp = 0;  // of that checkpoint; 0 where none is kept

  std::vector<std::string> files() const;  // each once
};

// The last checkpoint of a training run: what it needs to go on, beside its embedding tables.
struct TrainingRecord {
  std::string name;         // of the run
  std::string file;         // "training/7.qts", relative to the database
  uint64_t generation = 1;  // one more with every checkpoint
  uint64_t file_bytes = 0;
  std::string settings;     // what a run that goes on must have been given again, for people to read too
  int64_t timestamp = -1;   // of the last batch in it
  std::string created_utc;  // RFC 3339
  std::string config;       // what it ran with, as `quarry --config` takes it; empty: nobody said
};

// A stored partitioning: a topology, and a table's rows, cut into parts that are read whole. Derived and
// disposable, as layouts are (invariant 7).
struct PartitioningRecord {
  std::string name;
  std::string directory;  // "partitions/NAME-1" in the database: parts.qpp, and maybe buckets.qpp
  uint64_t generation = 1;
  uint64_t parts_generation = 0;  // of parts.qpp, where it is an earlier one's; 0: generation
  uint64_t buckets_bytes = 0;     // of buckets.qpp: the buckets whose edges changed since; 0: there is none

  // What it was made from.
  std::string topology;
  uint64_t topology_generation = 1;
  std::string table;  // empty: it has no rows
  uint64_t table_generation = 1;
  uint64_t timestamp = 0;  // the rows are the newest up to it
  std::string method;      // the partitioner's name
  uint64_t seed = 0;       // the partitioner's

  uint32_t part_count = 0;
  uint64_t node_count = 0;
  uint64_t edge_count = 0;
  uint64_t cut_edges = 0;  // whose ends lie in different parts
  uint64_t file_bytes = 0;
  double build_seconds = 0;
  std::string created_utc;  // RFC 3339

  uint64_t total_bytes() const { return file_bytes + buckets_bytes; }
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
  std::optional<DeviceRecord> device;
  std::vector<LayoutRecord> layouts;
  std::vector<EmbeddingRecord> embeddings;
  std::vector<TrainingRecord> trainings;
  std::vector<PartitioningRecord> partitionings;
  uint64_t grown = 0;                      // timestamp of the last commit of nodes; 0 = none
  uint64_t nodes_before = 0;               // node count before that commit
  std::vector<NodeTypeRecord> node_types;  // empty: one type; else they have all nodes, in this order
  std::vector<EdgeTypeRecord> edge_types;  // by relation id; empty beside one type of nodes

  const TableRecord* FindTable(std::string_view name) const;                // nullptr when absent
  const TopologyRecord* FindTopology(std::string_view name) const;          // nullptr when absent
  const LayoutRecord* FindLayout(std::string_view name) const;              // nullptr when absent
  const EmbeddingRecord* FindEmbedding(std::string_view name) const;        // nullptr when absent
  const TrainingRecord* FindTraining(std::string_view name) const;          // nullptr when absent
  const PartitioningRecord* FindPartitioning(std::string_view name) const;  // nullptr when absent
};

std::vector<std::byte> EncodeManifest(const Manifest& manifest);
Result<Manifest> DecodeManifest(std::span<const std::byte> bytes, std::string_view path);

}  // namespace quarry
