// What clients do before they are killed (Zygote::Deed); false when something of it failed.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fault_util.h"
#include "quarry/format/wire_batch.h"

namespace quarry::testing_util::deeds {

// The connection of the client that this process is: it lasts as long as the process.
inline WirePeer& Peer(const std::string& socket) {
  static WirePeer peer(socket);
  return peer;
}

inline bool Open(WirePeer& peer) { return peer.Open(8 * kMiB, wire::kSharedMemory, 7).ok(); }

inline bool AskForBatches(const std::string& socket, const wire::OpenStream& request) {
  WirePeer& peer = Peer(socket);
  if (!Open(peer)) return false;
  const auto opened = peer.OpenStream(request);
  if (!opened.ok()) return false;
  if (!peer.CallFor<wire::PassStarted>(wire::StartPass{.stream = opened->stream}).ok()) return false;
  for (uint32_t i = 0; i <= opened->slots; ++i) peer.Send(wire::NextBatch{opened->stream});
  return true;
}

inline bool Stream(const std::string& socket, uint64_t /*round*/) {
  return AskForBatches(socket, {.road = FaultRoad()});
}

// Batches by the partitioning "default".
inline bool StreamParts(const std::string& socket, uint64_t /*round*/) {
  return AskForBatches(socket, {.road = wire::PartitionedSpec{.live = FaultRoad(), .buffer = 3}});
}

inline bool HoldLeases(const std::string& socket, uint64_t round) {
  if (!Stream(socket, round)) return false;
  WirePeer& peer = Peer(socket);
  if (!peer.CallFor<wire::SnapshotTaken>(wire::TakeSnapshot{}).ok()) return false;
  const auto rows = peer.CallFor<wire::Rows>(wire::Lookup{"feature", std::vector<NodeId>(300, 5)});
  return rows.ok() && std::holds_alternative<wire::Lease>(rows->payload);
}

inline std::vector<std::byte> PutBlock(NodeId row, uint64_t round, uint64_t dim) {
  std::vector<std::byte> block(8 + dim * 4);
  block[0] = static_cast<std::byte>(row & 0xff);
  block[1] = static_cast<std::byte>(row >> 8);
  std::vector<float> values(dim, static_cast<float>(round));
  std::memcpy(&block[8], values.data(), dim * 4);
  return block;
}

inline bool Put(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  if (!Open(peer)) return false;
  wire::PutRows rows = {.table = "feature", .rows = 1, .row_bytes = 128 * 4};
  for (NodeId row = 0; row < 4; ++row) {
    rows.block = PutBlock(row, round, 128);
    peer.Send(wire::Put{.number = 4 * round + row + 1, .tables = {rows}});
  }
  return true;
}

inline bool Commit(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  if (!Open(peer)) return false;
  const auto read =
      peer.CallFor<wire::EmbeddingRows>(wire::ReadEmbeddings{"nodes", std::vector<uint64_t>{1, 2}});
  if (!read.ok()) return false;
  auto block = peer.Take(read->payload);
  if (!block.ok()) return false;
  const auto arrays = wire::OpenRowBlock(std::span(*block), {2, 16, 16});
  std::ranges::fill(arrays->values, static_cast<float>(round));
  peer.Send(wire::CommitEmbeddings{round + 1'000'000, {{"nodes", 2, 16, 16, *block}}});
  return true;
}

// A put of all rows that are written to, in the region for uploads, and half of a large message behind it.
inline bool Upload(const std::string& socket, uint64_t round) {
  constexpr uint64_t kDim = 128;
  WirePeer& peer = Peer(socket);
  if (!peer.Hello().ok()) return false;
  const auto opened = peer.OpenSession({.budget_bytes = 8 * kMiB});
  if (!opened.ok()) return false;
  const auto region =
      std::ranges::find(opened->regions, wire::RegionAccess::kClientWrites, &wire::Region::access);
  std::vector<uint64_t> ids(kUntouched);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  const std::vector<float> values(kUntouched * kDim, static_cast<float>(round));
  const std::span<std::byte> memory = peer.region(region->id);
  const uint64_t bytes = ids.size() * 8 + values.size() * 4;
  std::memcpy(memory.data(), ids.data(), ids.size() * 8);
  std::memcpy(memory.data() + ids.size() * 8, values.data(), values.size() * 4);
  peer.Send(wire::Put{.number = round + 1,
                      .tables = {{.table = "feature",
                                  .rows = kUntouched,
                                  .row_bytes = kDim * 4,
                                  .block = wire::Range{region->id, 0, bytes}}}});
  const std::vector<std::byte> piece(900 << 10);
  const auto frame = wire::EncodeRequest(
      99, wire::SaveTraining{.name = "large", .state_bytes = piece.size(), .piece = piece});
  return peer.SendBytes(std::span(*frame).first(frame->size() / 2));
}

inline constexpr NodeId kPiecesRows = 200;  // from the first on, in four pieces

// Three pieces of four of a put in pieces; then half of the last one, or all of it. The client before it may
// have gone just now, and its pieces with it: within 2 s.
inline bool PutPieces(const std::string& socket, uint64_t round) {
  constexpr uint64_t kDim = 128;
  WirePeer& peer = Peer(socket);
  if (!Open(peer)) return false;
  wire::Put put = {.number = round + 1, .tables = {{.table = "feature", .row_bytes = kDim * 4}}};
  wire::PutRows& rows = put.tables[0];
  rows.rows = kPiecesRows / 4;
  const auto next = [&] {
    const NodeId first = static_cast<NodeId>(put.piece++ * rows.rows);
    std::vector<uint64_t> ids(rows.rows);
    std::iota(ids.begin(), ids.end(), uint64_t{first});
    const std::vector<float> values(rows.rows * kDim, static_cast<float>(round));
    std::vector<std::byte> block(ids.size() * 8 + values.size() * 4);
    std::memcpy(block.data(), ids.data(), ids.size() * 8);
    std::memcpy(&block[ids.size() * 8], values.data(), values.size() * 4);
    rows.block = std::move(block);
  };
  next();
  if (!Eventually([&] { return peer.CallFor<wire::Done>(put).ok(); })) return false;
  for (int i = 0; i < 2; ++i) {
    next();
    if (!peer.CallFor<wire::Done>(put).ok()) return false;
  }
  next();
  put.last = true;
  const auto frame = wire::EncodeRequest(99, put);
  return peer.SendBytes(std::span(*frame).first(round % 2 == 0 ? frame->size() : frame->size() / 2));
}

// ---- changes of the graph

inline constexpr uint64_t kGrownAtOnce = 4;

// Nodes come that nobody trains on, with rows and labels of the round, in a ring, and one of the old nodes leads to each: so
// a whole change can be told from a part of it.
inline std::vector<Edge> GrownEdges(uint64_t first_node) {
  std::vector<Edge> edges;
  for (uint64_t i = 0; i < kGrownAtOnce; ++i) {
    edges.push_back({first_node + (i + 1) % kGrownAtOnce, first_node + i});
    edges.push_back({i, first_node + i});
  }
  return edges;
}
inline std::vector<wire::PutRows> GrownRows(uint64_t first_node, uint64_t round) {
  constexpr uint64_t kDim = 128;
  std::vector<uint64_t> ids(kGrownAtOnce);
  std::iota(ids.begin(), ids.end(), first_node);
  const std::vector<float> values(kGrownAtOnce * kDim, static_cast<float>(round));
  const std::vector<int64_t> labels(kGrownAtOnce, static_cast<int64_t>(round % 5));
  const auto block = [&](const auto& rows) {
    std::vector<std::byte> bytes(ids.size() * 8 + rows.size() * sizeof(rows[0]));
    std::memcpy(bytes.data(), ids.data(), ids.size() * 8);
    std::memcpy(&bytes[ids.size() * 8], rows.data(), rows.size() * sizeof(rows[0]));
    return bytes;
  };
  return {{.table = "feature", .rows = kGrownAtOnce, .row_bytes = kDim * 4, .block = block(values)},
          {.table = "label", .rows = kGrownAtOnce, .row_bytes = 8, .block = block(labels)}};
}
// REQUIRES: edges to be added.
inline void PutEdges(wire::PutGraph& graph, std::span<const Edge> edges) {
  std::vector<uint32_t> ends;
  for (const Edge& edge : edges) ends.push_back(static_cast<uint32_t>(edge.source));
  for (const Edge& edge : edges) ends.push_back(static_cast<uint32_t>(edge.destination));
  const auto bytes = std::as_bytes(std::span(ends));
  graph.edges = edges.size();
  graph.block = std::vector<std::byte>(bytes.begin(), bytes.end());
}
inline uint64_t NodeCount(WirePeer& peer) {
  const auto description = peer.CallFor<wire::Description>(wire::Describe{});
  return description.ok() ? description->node_count : 0;
}

// All of a change in one put, which is committed, or about to be.
inline bool Grow(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  if (!peer.Open(32 * kMiB, wire::kSharedMemory, 7, /*wait_ms=*/10'000).ok()) return false;
  const uint64_t first_node = NodeCount(peer);
  wire::Put put = {.number = round + 1,
                   .tables = GrownRows(first_node, round),
                   .graph = wire::PutGraph{.first_node = first_node, .nodes = kGrownAtOnce}};
  PutEdges(*put.graph, GrownEdges(first_node));
  return peer.Send(99, put);
}

// Nodes and half of the edges; then half of the last piece, or all of it. The client before it may be about to commit, or
// have gone just now, and its pieces with it.
inline bool GrowInPieces(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  if (!peer.Open(32 * kMiB, wire::kSharedMemory, 7, /*wait_ms=*/10'000).ok()) return false;
  wire::Put put = {.number = round + 1};
  uint64_t first_node = 0;
  const auto begin = [&] {
    first_node = NodeCount(peer);
    put.piece = 1;
    put.tables = GrownRows(first_node, round);
    put.graph = wire::PutGraph{.first_node = first_node, .nodes = kGrownAtOnce};
    return peer.CallFor<wire::Done>(put).ok();
  };
  if (!Eventually(begin)) return false;
  const std::vector<Edge> edges = GrownEdges(first_node);
  put.tables.clear();
  ++put.piece;
  PutEdges(*put.graph, std::span(edges).first(edges.size() / 2));
  if (!peer.CallFor<wire::Done>(put).ok()) return false;
  ++put.piece;
  PutEdges(*put.graph, std::span(edges).subspan(edges.size() / 2));
  put.last = true;
  const auto frame = wire::EncodeRequest(99, put);
  return peer.SendBytes(std::span(*frame).first(round % 2 == 0 ? frame->size() : frame->size() / 2));
}

// Three pieces of four of a training's state; then half of the fourth, or all of it.
inline bool SaveTraining(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  if (!Open(peer)) return false;
  const std::vector<std::byte> piece(256 << 10, static_cast<std::byte>(round));
  wire::SaveTraining request = {
      .name = "run", .settings = "x", .state_bytes = 4 * piece.size(), .piece = piece};
  for (int i = 0; i < 3; ++i, request.offset += piece.size()) {
    if (!peer.CallFor<wire::Done>(request).ok()) return false;
  }
  const auto frame = wire::EncodeRequest(99, request);
  return peer.SendBytes(std::span(*frame).first(round % 2 == 0 ? frame->size() : frame->size() / 2));
}

// ---- SQL

// A cursor over a statement of which nothing has run; 0 when there is none.
inline uint64_t SqlCursorOf(WirePeer& peer, uint64_t connection, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  const auto statement = peer.CallFor<wire::Statement>(
      wire::Query{.connection = connection, .text = std::vector<std::byte>(bytes.begin(), bytes.end())});
  return statement.ok() ? statement->cursor : 0;
}

// 0 when there is none. One that writes has memory for what a transaction may hold; it waits for those before
// to leave.
inline uint64_t SqlConnectionOf(WirePeer& peer, bool write) {
  const uint64_t bytes = (write ? 140 : 16) * kMiB;
  if (!peer.Hello(wire::kInline | wire::kSql).ok()) return 0;
  if (!peer.OpenSession({.budget_bytes = bytes, .budget_bytes_min = bytes, .wait_ms = 10'000}).ok()) return 0;
  const auto opened = peer.CallFor<wire::SqlOpened>(wire::OpenSql{.write = write});
  return opened.ok() ? opened->connection : 0;
}

// It has had some rows, and asks for more.
inline bool HoldCursor(const std::string& socket, uint64_t /*round*/) {
  WirePeer& peer = Peer(socket);
  const uint64_t connection = SqlConnectionOf(peer, false);
  const uint64_t cursor =
      SqlCursorOf(peer, connection, "SELECT a.id, b.label FROM nodes a, nodes b, nodes c");
  const auto page = peer.CallFor<wire::SqlRows>(wire::Fetch{cursor});
  if (!page.ok() || page->last) return false;
  peer.Send(wire::Fetch{cursor});
  return true;
}

// For longer than anybody waits.
inline bool RunStatement(const std::string& socket, uint64_t /*round*/) {
  WirePeer& peer = Peer(socket);
  const uint64_t connection = SqlConnectionOf(peer, false);
  const uint64_t cursor =
      SqlCursorOf(peer, connection,
                  "SELECT count(*) FROM nodes a, nodes b, nodes c WHERE a.label + b.label + c.label = 99");
  peer.Send(wire::Fetch{cursor});
  return cursor != 0;
}

inline constexpr int64_t kLabelWritten = 1000;
inline constexpr NodeId kLabelsWritten = 100;  // of the first nodes

// A transaction that has written, which every other client is about to commit.
inline bool HoldTransaction(const std::string& socket, uint64_t round) {
  WirePeer& peer = Peer(socket);
  const uint64_t connection = SqlConnectionOf(peer, true);
  for (const std::string& text :
       {std::string("BEGIN"),
        fmt::format("UPDATE nodes SET label = {} WHERE id < {}", kLabelWritten, kLabelsWritten)}) {
    if (!peer.CallFor<wire::SqlRows>(wire::Fetch{SqlCursorOf(peer, connection, text)}).ok()) return false;
  }
  if (round % 2 == 0) return true;
  peer.Send(wire::Fetch{SqlCursorOf(peer, connection, "COMMIT")});
  return true;
}

// ---- groups

// A member of a group of two, by number: it has asked for batches, and releases none.
template <wire::StreamMode kMode>
bool JoinGroup(const std::string& socket, uint64_t number) {
  WirePeer& peer = Peer(socket);
  if (!peer.Open(2 * kMiB, wire::kSharedMemory, static_cast<uint8_t>(1 + number)).ok()) return false;
  const auto opened = peer.OpenStream(
      {.road = FaultRoad(), .mode = kMode, .group = fmt::format("group-{}", number), .members = 2});
  if (!opened.ok()) return false;
  peer.Send(wire::StartPass{.stream = opened->stream});
  for (uint32_t i = 0; i < opened->slots; ++i) peer.Send(wire::NextBatch{opened->stream});
  return true;
}

}  // namespace quarry::testing_util::deeds
