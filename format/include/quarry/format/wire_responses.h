// What the local server answers: plain values, one struct an answer (docs/protocol.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/format/element_type.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/format/wire_parts.h"
#include "quarry/format/wire_sql.h"
#include "quarry/format/wire_status.h"
#include "quarry/format/wire_training.h"
#include "quarry/format/wire_types.h"
#include "quarry/format/wire_writes.h"

namespace quarry::wire {

// The request failed, and nothing of it happened except what its sentence says.
struct Failure {
  Code code = Code::kInternal;
  std::string message;
  bool operator==(const Failure&) const = default;
};

// Answers what has no result: closing, releasing, ping, cancel.
struct Done {
  bool operator==(const Done&) const = default;
};

struct Welcome {
  uint16_t version = 1;
  uint64_t capabilities = 0;              // of what the client offered
  std::array<std::byte, 16> server_id{};  // random, another after every start of the server
  ServerLimits limits;
  bool operator==(const Welcome&) const = default;
};

struct SessionOpened {
  uint64_t session = 0;
  uint64_t budget_bytes = 0;  // granted
  std::vector<Region> regions;
  bool operator==(const SessionOpened&) const = default;
};

struct TableInfo {
  std::string name;
  ElementType element_type = ElementType::kFloat32;
  uint64_t row_count = 0;
  uint64_t dim = 0;
  uint64_t generation = 1;
  bool operator==(const TableInfo&) const = default;
};

struct TopologyInfo {
  std::string name;
  uint64_t node_count = 0;
  uint64_t edge_count = 0;
  uint64_t relation_count = 1;
  bool has_csr = false;
  bool undirected = false;
  bool deduplicated = false;
  bool weighted = false;
  bool operator==(const TopologyInfo&) const = default;
};

struct LayoutInfo {
  std::string name;
  RoadSpec spec;
  PolicyKind policy = PolicyKind::kBelady;
  uint32_t epochs = 0;
  uint64_t batch_count = 0;
  uint64_t cache_rows = 0;
  uint64_t file_bytes = 0;
  bool servable = false;
  uint64_t batches_per_segment = 0;
  bool operator==(const LayoutInfo&) const = default;
};

struct EmbeddingInfo {
  std::string name;
  uint64_t row_count = 0;
  uint32_t dim = 0;
  uint32_t state_dim = 0;
  ElementType element_type = ElementType::kFloat32;
  uint8_t optimizer = 0;  // as embedding tables number them
  bool operator==(const EmbeddingInfo&) const = default;
};

struct Description {
  std::array<std::byte, 16> database_id{};
  uint64_t node_count = 0;
  uint64_t class_count = 0;
  std::vector<TableInfo> tables;
  std::vector<TopologyInfo> topologies;
  std::vector<LayoutInfo> layouts;
  std::vector<EmbeddingInfo> embeddings;
  ServerLimits limits;
  std::string path;  // the database's folder, as whoever has it open was told, and names it in sentences
  bool operator==(const Description&) const = default;
};

// Answers Lookup: rows as the table encodes them, one behind the other.
struct Rows {
  uint64_t rows = 0;
  ElementType element_type = ElementType::kFloat32;
  uint32_t dim = 0;
  Payload payload;
  bool operator==(const Rows&) const = default;
};

// Answers Sample: a batch (wire_batch.h) without labels and features.
struct Sampled {
  Payload payload;
  bool operator==(const Sampled&) const = default;
};

struct StreamOpened {
  uint64_t stream = 0;
  uint32_t feature_dim = 0;
  uint32_t slots = 0;      // batches that may be leased at a time
  uint64_t timestamp = 0;  // of the snapshot that the stream keeps
  std::vector<Region> regions;
  std::optional<OpenedParts> parts;  // of the partitioned road
  bool operator==(const StreamOpened&) const = default;
};

struct PassStarted {
  uint64_t batches = 0;
  bool operator==(const PassStarted&) const = default;
};

// Answers NextBatch: a batch as wire_batch.h lays it out.
struct Batch {
  uint64_t index = 0;
  Payload payload;
  std::optional<Range> rows;  // where its feature rows lie, when not with it; under the same lease
  bool operator==(const Batch&) const = default;
};

struct PassEnded {
  bool operator==(const PassEnded&) const = default;
};

struct Chunk {
  std::vector<std::byte> bytes;
  bool operator==(const Chunk&) const = default;
};

// Answers ReadEmbeddings: a row block (wire_batch.h).
struct EmbeddingRows {
  uint64_t rows = 0;
  uint32_t dim = 0;
  uint32_t state_dim = 0;
  Payload payload;
  bool operator==(const EmbeddingRows&) const = default;
};

struct EmbeddingsCommitted {
  int64_t timestamp = -1;   // of the updates; -1: none was made, since rows were stale
  uint64_t stale_rows = 0;  // that somebody wrote after they were read
  bool operator==(const EmbeddingsCommitted&) const = default;
};

struct Written {
  uint64_t timestamp = 0;
  bool operator==(const Written&) const = default;
};

struct SnapshotTaken {
  uint64_t snapshot = 0;
  uint64_t timestamp = 0;
  bool operator==(const SnapshotTaken&) const = default;
};

struct Counters {
  std::vector<Counter> counters;
  bool operator==(const Counters&) const = default;
};

// Answers ReadManifest: the manifest, encoded as the catalog has it.
struct ManifestBytes {
  Payload payload;
  bool operator==(const ManifestBytes&) const = default;
};

using Response =
    std::variant<Failure, Done, Welcome, SessionOpened, Description, Rows, Sampled, StreamOpened, PassStarted,
                 Batch, PassEnded, Chunk, EmbeddingRows, EmbeddingsCommitted, Written, SnapshotTaken,
                 Counters, Training, Edges, SqlOpened, Statement, SqlRows, ServerStatus, Progress,
                 MaintenanceReport, ManifestBytes, GraphChanged>;

}  // namespace quarry::wire
