// The requests and answers of the local protocol that keep a database in order: checks, compactions, copies,
// exports, layouts, what is removed (docs/protocol.md, "Maintenance").
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quarry/format/embedding_spec.h"
#include "quarry/format/partition_method.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/wire_status.h"

namespace quarry {

enum class ExportFormat : uint8_t {
  kNpy,        // a folder of arrays, or of triples where nodes have names
  kCsv,        // the same as text
  kGraphBolt,  // an OnDiskDataset of DGL: arrays, and a metadata.yaml that says what they are
};
template <>
struct EnumNames<ExportFormat> {
  static constexpr std::string_view kWhat = "format of exports";
  static constexpr std::string_view kNames[] = {"npy", "csv", "graphbolt"};
};

}  // namespace quarry

namespace quarry::wire {

// Looks at what the manifest does not say. Counters: timestamp, of the newest commit; changed_rows.TABLE and
// changed_rows_bytes.TABLE, which is the memory that the set of them takes; disk_bytes.embeddings.TABLE and
// disk_bytes.catalog; of a database with splits splits.NAME, its nodes.
struct InspectDatabase {
  bool operator==(const InspectDatabase&) const = default;
};

// Reads every byte of the database. Counters: faults, files, bytes.
struct VerifyDatabase {
  bool operator==(const VerifyDatabase&) const = default;
};

// Counters: rows_changed, rows, bytes, timestamp, generation, resumed_row, seconds; of a topology runs, edges_added,
// edges_removed, edges, bytes, timestamp, generation, seconds.
struct CompactTable {
  std::string table;
  bool dry_run = false;   // says what would be done
  bool topology = false;  // `table` names one
  bool operator==(const CompactTable&) const = default;
};

// Counters: timestamp, files_linked, files_reflinked, files_copied, bytes, bytes_copied, seconds.
struct CheckpointDatabase {
  std::string path;  // of the folder to make; to a server: from the root on
  bool operator==(const CheckpointDatabase&) const = default;
};

// The parts that the database does not have are left out. Counters: timestamp, up to which all that was committed
// is in it, files, bytes, seconds. Notes: options with which `quarry import` makes an equal database.
struct ExportDatabase {
  std::string path;  // of the folder to make; to a server: from the root on
  ExportFormat format = ExportFormat::kNpy;
  std::string table = "feature";  // its rows are the features
  bool topology = true;
  bool features = true;
  bool labels = true;
  bool split = true;
  bool embeddings = false;  // all embedding tables, which no import takes
  bool operator==(const ExportDatabase&) const = default;
};

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

// Counters: random_reads_per_second and the other rates; measured_now, and where that is 1 row_read_bytes, and
// random_reads_of_N for requests of N bytes.
struct CalibrateDevice {
  bool force = false;  // measures again
  bool operator==(const CalibrateDevice&) const = default;
};

struct CreateEmbeddings {
  std::string table;
  EmbeddingSpec spec;
  bool operator==(const CreateEmbeddings&) const = default;
};

struct DropEmbeddings {
  std::string table;
  bool operator==(const DropEmbeddings&) const = default;
};

struct DropTraining {
  std::string name;
  bool operator==(const DropTraining&) const = default;
};

struct DropTable {
  std::string table;
  bool operator==(const DropTable&) const = default;
};

// Makes a table of a row of zeros for each node.
struct CreateTable {
  std::string table;
  ElementType element_type = ElementType::kFloat32;
  uint64_t dim = 0;
  bool operator==(const CreateTable&) const = default;
};

using MaintenanceTask =
    std::variant<VerifyDatabase, CompactTable, CheckpointDatabase, BuildLayout, RebuildLayout, DropLayout,
                 CalibrateDevice, CreateEmbeddings, DropEmbeddings, DropTraining, DropTable, InspectDatabase,
                 ExportDatabase, ExplainLayout, TraceLayout, CreateTable, BuildPartitioning,
                 DropPartitioning>;

struct Maintain {
  MaintenanceTask task;
  bool operator==(const Maintain&) const = default;
};

// Comes any number of times before the answer to Maintain. Items or bytes; total 0 = unknown.
struct Progress {
  std::string phase;
  uint64_t done = 0;
  uint64_t total = 0;
  bool operator==(const Progress&) const = default;
};

// What a fault is of, as the engine's Damage numbers kinds.
struct Damage {
  uint8_t kind = 0;
  std::string name;
  uint64_t first_row = 0;
  uint64_t row_count = 0;  // 0: something other than rows
  bool operator==(const Damage&) const = default;
};

// Answers Maintain. A server drops the last faults, notes and damages where a message has no room for them; the
// counter `faults` has the number of all.
struct MaintenanceReport {
  std::vector<Counter> counters;
  std::vector<std::string> faults;  // of VerifyDatabase, in words
  std::vector<std::string> notes;
  std::vector<Damage> damages;
  bool operator==(const MaintenanceReport&) const = default;
};

// The catalog's manifest (docs/format.md).
struct ReadManifest {
  bool operator==(const ReadManifest&) const = default;
};

}  // namespace quarry::wire
