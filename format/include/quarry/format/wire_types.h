// What the messages of the local protocol are made of (docs/protocol.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "quarry/format/types.h"

namespace quarry::wire {

// Bytes in a region of shared memory.
struct Range {
  uint32_t region = 0;  // from 1
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Range&) const = default;
};

// What a request brings along: in the message, or in a region that the client may write to. The server has
// copied it when it answers; until then the client leaves it as it is.
using Bulk = std::variant<std::vector<std::byte>, Range>;
using NodeIds = std::variant<std::vector<NodeId>, Range>;
using RowIds = std::variant<std::vector<uint64_t>, Range>;

// What a peer can do, as bits; bits that the other does not know are ignored.
inline constexpr uint64_t kSharedMemory = 1;    // maps regions
inline constexpr uint64_t kInline = 2;          // takes bulk data in messages
inline constexpr uint64_t kTrainings = 4;       // SaveTraining, ReadTraining, ReadEdges
inline constexpr uint64_t kSql = 8;             // OpenSql, CloseSql, Query, Fetch, CloseQuery
inline constexpr uint64_t kPutPieces = 16;      // Put::piece, ForgetPut
inline constexpr uint64_t kMaintenance = 32;    // Maintain, ReadManifest
inline constexpr uint64_t kSamplers = 64;       // LiveSpec::sampler, batchDependency, weighted
inline constexpr uint64_t kPutGraph = 128;      // Put::graph
inline constexpr uint64_t kOwnIds = 256;        // batches of parts name nodes as the database does
inline constexpr uint64_t kRanks = 512;         // BuildLayout::ranks, rankPartitioning
inline constexpr uint64_t kRemoveNodes = 1024;  // PutGraph::removed_nodes
// relation_fanouts of Sample and LiveSpec, replace and weighted of Sample, kAllNeighbors of a LiveSpec
inline constexpr uint64_t kTypedDraws = 2048;
inline constexpr uint64_t kRelations = 4096;   // PutGraph::relation
inline constexpr uint64_t kTypedNodes = 8192;  // PutGraph::node_type
inline constexpr uint64_t kEdgeLists = 16384;  // ReadEdges::list, Edges::list
// What every client and server of this version can do; the others depend on what they were built or opened with.
inline constexpr uint64_t kOfThisVersion = kTrainings | kPutPieces | kMaintenance | kSamplers | kPutGraph |
                                           kOwnIds | kRanks | kRemoveNodes | kTypedDraws | kRelations |
                                           kTypedNodes | kEdgeLists;

// Bytes that stay as they are until the client releases them. range.region 0: they lie in no region that the
// client has mapped, and are read with ReadLease.
struct Lease {
  uint64_t id = 0;
  Range range;
  bool operator==(const Lease&) const = default;
};

// What an answer brings along: in the message, or leased.
using Payload = std::variant<std::vector<std::byte>, Lease>;

// Announces shared memory: the descriptors come with the frame, in the order of its regions.
enum class RegionAccess : uint8_t { kClientReads, kClientWrites };
struct Region {
  uint32_t id = 0;
  uint64_t bytes = 0;
  RegionAccess access = RegionAccess::kClientReads;
  bool operator==(const Region&) const = default;
};

// What the server takes.
struct ServerLimits {
  uint32_t message_bytes_max = 1 << 20;
  uint32_t outstanding_max = 64;
  uint32_t ids_max = 1 << 20;
  uint32_t sessions_max = 0;
  uint64_t budget_bytes = 0;  // of all sessions together
  bool operator==(const ServerLimits&) const = default;
};

}  // namespace quarry::wire
