// The requests and answers of the local protocol that keep a database in order: checks, compactions, copies,
// layouts, embedding tables (docs/protocol.md, "Maintenance").
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quarry/format/embedding_spec.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/wire_status.h"

namespace quarry::wire {

// Reads every byte of the database. Counters: faults, files, bytes.
struct VerifyDatabase {
  bool operator==(const VerifyDatabase&) const = default;
};

// Counters: rows_changed, rows, bytes, timestamp, generation, resumed_row, seconds.
struct CompactTable {
  std::string table;
  bool dry_run = false;  // says what would be done
  bool operator==(const CompactTable&) const = default;
};

// Counters: timestamp, files_linked, files_reflinked, files_copied, bytes, bytes_copied, seconds.
struct CheckpointDatabase {
  std::string path;  // of the folder to make; to a server: from the root on
  bool operator==(const CheckpointDatabase&) const = default;
};

// Counters: those of the layout, and of the build.
struct BuildLayout {
  std::string name = "default";
  RoadSpec road;
  uint32_t epochs = 1;
  PolicyKind policy = PolicyKind::kBelady;
  uint64_t disk_bytes = 0;  // 0 = no limit
  uint32_t hash_functions = 8;
  uint32_t threads = 0;  // 0, or more than there are processors: as many
  bool resume = false;   // takes the trace of an interrupted build over
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

using MaintenanceTask =
    std::variant<VerifyDatabase, CompactTable, CheckpointDatabase, BuildLayout, RebuildLayout, DropLayout,
                 CalibrateDevice, CreateEmbeddings, DropEmbeddings>;

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
