// What a client asks of the local server: plain values, one struct a request. docs/protocol.md says what each
// does, what answers it and when it may be asked; numbers and lists are bounded there and by wire::Limits.
//
// Names are of letters, digits, - and _, and no longer than 64: they name what the server has, never a path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "quarry/format/fanouts.h"
#include "quarry/format/road_spec.h"
#include "quarry/format/types.h"
#include "quarry/format/wire_maintenance.h"
#include "quarry/format/wire_sql.h"
#include "quarry/format/wire_training.h"
#include "quarry/format/wire_types.h"
#include "quarry/format/wire_writes.h"

namespace quarry::wire {

struct Hello {
  uint16_t version_min = 1, version_max = 1;  // of the protocol
  uint64_t capabilities = kSharedMemory | kInline;
  uint32_t message_bytes_max = 1 << 20;  // the largest message that the client takes
  bool operator==(const Hello&) const = default;
};

struct OpenSession {
  std::array<std::byte, 16> client_id{};  // random, the same in every session of a client: names its retries
  uint64_t budget_bytes = 0;              // asked of the server's memory
  uint64_t budget_bytes_min = 0;          // with less, rather none
  uint32_t wait_ms = 0;                   // for others to leave, at most
  bool operator==(const OpenSession&) const = default;
};

struct Describe {
  bool operator==(const Describe&) const = default;
};

struct Lookup {
  std::string table;
  NodeIds ids;            // in any order, repeated or not
  uint64_t snapshot = 0;  // 0 = as things are
  bool operator==(const Lookup&) const = default;
};

struct Sample {
  std::string topology = "graph";
  std::vector<NodeId> seeds;  // unique
  std::vector<uint32_t> fanouts;
  Direction direction = Direction::kIn;
  uint64_t stream_seed = 0;
  bool edge_ids = false;  // along kIn
  bool replace = false;   // as RoadSpec has it, and the next ones
  std::vector<uint32_t> relation_fanouts = {};
  bool weighted = false;
  bool operator==(const Sample&) const = default;
};

using LiveSpec = RoadSpec;

struct PlannedSpec {
  std::string layout = "default";
  std::optional<LiveSpec> live;  // what passes over other seeds are sampled with
  bool operator==(const PlannedSpec&) const = default;
};

struct SuperbatchSpec {
  LiveSpec live;
  PolicyKind policy = PolicyKind::kBelady;
  Packing packing = Packing::kCheaper;
  uint64_t disk_bytes = 0;  // 0 = no limit
  bool operator==(const SuperbatchSpec&) const = default;
};

// Node classification part by part. `live` says what batches are; its cache does not count.
struct PartitionedSpec {
  LiveSpec live;
  std::string partitioning = "default";
  uint32_t buffer = 0;   // parts that are held at once; 0 = as many as the session's budget has room for
  uint32_t logical = 0;  // logical parts; 0 = as many as there are parts
  bool operator==(const PartitionedSpec&) const = default;
};

enum class StreamMode : uint8_t {
  kExclusive,  // batches are this client's alone
  kShared,     // every member of the group gets every batch, which is made once
  kSplit,      // every batch goes to one member
};

struct OpenStream {
  std::variant<LiveSpec, PlannedSpec, SuperbatchSpec, PartitionedSpec> road;
  StreamMode mode = StreamMode::kExclusive;
  std::string group;      // shared and split: who takes part
  uint32_t members = 1;   // a pass begins when so many have started it
  uint64_t snapshot = 0;  // 0 = as things are
  bool operator==(const OpenStream&) const = default;
};

struct StartPass {
  uint64_t stream = 0;
  // Each used once. kTrain: those of the split with a label, where nodes have labels; the other splits: all of them.
  std::variant<Split, NodeIds> seeds = Split::kTrain;
  bool shuffle = true;
  uint64_t pass = 0;
  bool ordered = false;
  bool operator==(const StartPass&) const = default;
};

struct NextBatch {
  uint64_t stream = 0;
  bool operator==(const NextBatch&) const = default;
};

struct CloseStream {
  uint64_t stream = 0;
  bool operator==(const CloseStream&) const = default;
};

struct ReleaseLeases {
  std::vector<uint64_t> leases;
  bool operator==(const ReleaseLeases&) const = default;
};

// For clients without shared memory: a piece of what is leased.
struct ReadLease {
  uint64_t lease = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;  // the answer may have fewer
  bool operator==(const ReadLease&) const = default;
};

struct ReadEmbeddings {
  std::string table;
  RowIds ids;  // ascending, unique
  bool operator==(const ReadEmbeddings&) const = default;
};

struct TakeSnapshot {
  bool operator==(const TakeSnapshot&) const = default;
};

struct ReleaseSnapshot {
  uint64_t snapshot = 0;
  bool operator==(const ReleaseSnapshot&) const = default;
};

struct Stats {
  uint64_t stream = 0;  // 0 = the counters of the server
  bool operator==(const Stats&) const = default;
};

// Counters, sessions and streams of the server.
struct GetStatus {
  bool operator==(const GetStatus&) const = default;
};

struct Ping {
  bool operator==(const Ping&) const = default;
};

struct Cancel {
  uint64_t request = 0;
  bool operator==(const Cancel&) const = default;
};

using Request =
    std::variant<Hello, OpenSession, Describe, Lookup, Sample, OpenStream, StartPass, NextBatch, CloseStream,
                 ReleaseLeases, ReadLease, ReadEmbeddings, CommitEmbeddings, Put, TakeSnapshot,
                 ReleaseSnapshot, Stats, Ping, Cancel, SaveTraining, ReadTraining, ReadEdges, OpenSql,
                 CloseSql, Query, Fetch, CloseQuery, ForgetPut, GetStatus, Maintain, ReadManifest>;

}  // namespace quarry::wire
