// The requests of the local protocol about what is built of the data: layouts and partitionings (docs/protocol.md,
// "Maintenance").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quarry/format/partition_method.h"
#include "quarry/format/road_spec.h"

namespace quarry::wire {

// Counters: those of the layout, and of the build; of several, of all of them together.
struct BuildLayout {
  std::string name = "default";
  RoadSpec road;
  uint32_t epochs = 1;
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t disk_bytes = 0;  // 0 = no limit
  uint32_t hash_functions = 8;
  uint32_t threads = 0;  // 0, or more than there are processors: as many
  bool resume = false;   // takes the trace of an interrupted build over
  uint32_t ranks = 0;    // layouts NAME-0of4 to NAME-3of4, one for each of so many trainers; 0: one for all
  std::string rank_partitioning = {};  // whose parts say which trainer has a node; empty: batches in turn
  bool operator==(const BuildLayout&) const = default;
};

// Counters: path (0 record, 1 patch, 2 copy, 3 build), and the figures of the way that was taken; the note
// says why.
struct RebuildLayout {
  std::string name = "default";
  bool full = false;     // builds it, whatever changed
  bool dry_run = false;  // says what would be done
  bool operator==(const RebuildLayout&) const = default;
};

struct DropLayout {
  std::string name = "default";
  bool operator==(const DropLayout&) const = default;
};

// Prices an epoch by each way of reading it. Counters: best and own, the numbers of the cheapest path and of the
// layout's own; paths.N.FIELD: path (as the cost model numbers them), policy, bytes and seconds; levels.N.rows
// and levels.N.served of the cache (0), the segment caches (1) and the chunks (2). The note says why the best is.
struct ExplainLayout {
  std::string name = "default";
  uint64_t epochs = 10;  // over which packing is spread
  bool operator==(const ExplainLayout&) const = default;
};

// Measures the layout's access trace. Counters: batches, nodes, accesses, distinct_rows, input_nodes_mean,
// input_nodes_max; top_shares.P, the share of accesses that go to the P % of nodes that are used most, and
// decile_shares.N to each tenth; hit_ratios.N.cache_rows and hit_ratios.N.POLICY for each size.
inline constexpr uint64_t kTraceSizesMax = 64;
struct TraceLayout {
  std::string name = "default";
  std::vector<uint64_t> cache_bytes;  // the sizes of memory to measure
  bool operator==(const TraceLayout&) const = default;
};

// Cuts a topology into parts and stores them (engine/partition). Counters: parts, nodes, edges, cut_edges, disk_bytes,
// seconds.
struct BuildPartitioning {
  std::string name = "default";
  std::string topology = "graph";
  std::string table = "feature";  // whose rows parts have; of a database without this one: none
  bool rows = true;               // false: edges alone
  PartitionMethod method = PartitionMethod::kGrem;
  uint32_t parts = 0;        // 0: as many as the device reads well, by the graph's size
  double chunk_share = 0.1;  // grem: of the edges, in memory at once
  bool training_first = false;
  uint64_t seed = 0;
  bool operator==(const BuildPartitioning&) const = default;
};

struct DropPartitioning {
  std::string name = "default";
  bool operator==(const DropPartitioning&) const = default;
};

}  // namespace quarry::wire
