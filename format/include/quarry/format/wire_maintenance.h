// The requests and answers of the local protocol that keep a database in order: checks, compactions, copies,
// exports, layouts, what is removed (docs/protocol.md, "Maintenance").
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quarry/format/embedding_spec.h"
#include "quarry/format/wire_derived.h"
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
// disk_bytes.catalog; splits.NAME, nodes of each; growth.TOPOLOGY.FIGURE of GrowthCost; nodes_of_runs.TOPOLOGY.I.
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
