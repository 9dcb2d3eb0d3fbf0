// Stores of both kinds over one small database, and what is in it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/client/store.h"
#include "quarry/format/checksum.h"
#include "quarry/served_sql.h"
#include "quarry/server/server.h"
#include "quarry/storage/store.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry::testing_util {

// A server of this process.
class TestServer {
 public:
  TestServer(const std::string& database, std::string socket, uint64_t memory_bytes = 640 * kMiB)
      : database_(database), socket_(std::move(socket)), memory_bytes_(memory_bytes) {
    Start();
  }
  void Start() {
    backend_ = MakeDefaultBackend();
    ASSERT_OK_AND_ASSIGN(auto store, quarry::Store::Open(*backend_, database_));
    store_ = std::move(store);
    budget_ = std::make_unique<MemoryBudget>(memory_bytes_);
    ASSERT_OK_AND_ASSIGN(auto server, Server::Start(*store_, *budget_,
                                                    {.socket_path = socket_, .sql = MakeSqlRunner(*store_)}));
    server_ = std::move(server);
  }
  void Stop() {
    if (server_ == nullptr) return;
    const Status stopped = server_->Stop();
    EXPECT_OK(stopped);
    server_.reset();
    budget_.reset();
    store_.reset();
    backend_.reset();
  }
  ~TestServer() { Stop(); }
  std::string address() const { return "unix:" + socket_; }
  quarry::Store& store() { return *store_; }
  MemoryBudget& budget() { return *budget_; }

 private:
  const std::string database_;
  const std::string socket_;
  const uint64_t memory_bytes_;
  std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<quarry::Store> store_;
  std::unique_ptr<MemoryBudget> budget_;
  std::unique_ptr<Server> server_;
};

enum class StoreKind { kEmbedded, kRemote, kInline };

inline std::string NameOf(StoreKind kind) {
  return kind == StoreKind::kEmbedded ? "embedded" : kind == StoreKind::kRemote ? "remote" : "inline";
}

// An open store, with the server behind it where it is remote.
class OpenedStore {
 public:
  OpenedStore(StoreKind kind, const std::string& database, client::OpenOptions options = {})
      : folder_("store") {
    options.inline_only = kind == StoreKind::kInline;
    if (options.memory_bytes == 0) options.memory_bytes = 128 * kMiB;
    if (kind != StoreKind::kEmbedded) server_.emplace(database, folder_ / "socket/q.sock");
    auto store = client::Open(kind == StoreKind::kEmbedded ? database : server_->address(), options);
    EXPECT_OK(store);
    if (store.ok()) store_ = std::move(store).value();
  }
  client::Store* operator->() { return store_.get(); }
  client::Store& operator*() { return *store_; }

 private:
  const TemporaryFolder folder_;
  std::optional<TestServer> server_;
  std::unique_ptr<client::Store> store_;
};

using Hashes = std::vector<std::pair<uint64_t, uint64_t>>;

// The rest of a pass; expects no error.
inline Hashes DrainPass(client::Stream& stream, size_t batches_max = ~size_t{0}) {
  Hashes hashes;
  while (hashes.size() < batches_max) {
    auto batch = stream.Next();
    EXPECT_OK(batch);
    if (!batch.ok() || *batch == nullptr) break;
    hashes.emplace_back((*batch)->index(), HashBatch((*batch)->view()));
  }
  return hashes;
}

// The live road that SmallOptions (pass_util.h) describes.
inline wire::OpenStream SmallStream() {
  return {.road = wire::LiveSpec{.fanouts = {4, 3}, .batch_size = 32, .seed = 5}};
}

// What a road of its own gives for the same passes. Nobody else has the database open.
inline Hashes RoadPass(const std::string& database, uint64_t pass, std::vector<NodeId> seeds = {}) {
  OpenRoad road(database, SmallOptions());
  EXPECT_OK(road.status);
  if (seeds.empty()) seeds = road.road->TrainNodes();
  return RunPass(*road.road, {.seeds = std::move(seeds), .pass = pass, .ordered = true});
}

template <typename T>
T At(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Rows to put: ids, then the bytes of each.
inline wire::PutRows RowsToPut(const std::string& table, const std::vector<uint64_t>& ids,
                               const std::vector<std::vector<std::byte>>& rows) {
  const auto id_bytes = std::as_bytes(std::span(ids));
  std::vector<std::byte> block(id_bytes.begin(), id_bytes.end());
  for (const auto& row : rows) block.insert(block.end(), row.begin(), row.end());
  const auto row_bytes = static_cast<uint32_t>(rows.empty() ? 0 : rows.front().size());
  return {.table = table, .rows = ids.size(), .row_bytes = row_bytes, .block = std::move(block)};
}

// A change of the graph: its edges come, or go, and so do nodes.
inline wire::PutGraph GraphToPut(uint64_t first_node, uint64_t nodes, const std::vector<Edge>& edges,
                                 bool remove = false, const std::vector<NodeId>& removed_nodes = {}) {
  std::vector<uint32_t> words;
  for (const Edge& edge : edges) words.push_back(static_cast<uint32_t>(edge.source));
  for (const Edge& edge : edges) words.push_back(static_cast<uint32_t>(edge.destination));
  words.insert(words.end(), removed_nodes.begin(), removed_nodes.end());
  const auto bytes = std::as_bytes(std::span(words));
  return {.first_node = first_node,
          .nodes = nodes,
          .edges = edges.size(),
          .remove = remove,
          .block = std::vector<std::byte>(bytes.begin(), bytes.end()),
          .removed_nodes = removed_nodes.size()};
}

template <typename T>
std::vector<std::byte> BytesOf(const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

}  // namespace quarry::testing_util
