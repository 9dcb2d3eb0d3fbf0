// Databases to query, and what is common to the tests of SQL.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/import.h"
#include "quarry/sql/connection.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// A few edges and their weights.
class WeightedEdgeReader final : public EdgeReader {
 public:
  WeightedEdgeReader(std::vector<Edge> edges, std::vector<float> weights)
      : edges_(std::move(edges)), weights_(std::move(weights)) {}
  Result<size_t> Read(std::span<Edge> out) override {
    if (std::exchange(done_, true)) return size_t{0};
    std::ranges::copy(edges_, out.begin());
    return edges_.size();
  }
  std::optional<uint64_t> count() const override { return edges_.size(); }
  uint64_t bytes_read() const override { return 0; }
  uint64_t bytes_total() const override { return 0; }
  std::string Position(uint64_t edge) const override { return "edge " + std::to_string(edge); }
  bool weighted() const override { return true; }
  std::span<const float> weights() const override { return weights_; }

 private:
  const std::vector<Edge> edges_;
  const std::vector<float> weights_;
  bool done_ = false;
};

// Ten nodes with names, four features each, and a ring of edges "cites" with three "likes" out of node 0,
// which alone have weights: what the scripts in tests/sql/scripts are about.
class TenRows final : public RowReader {
 public:
  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return 4; }
  uint64_t row_count() const override { return 10; }
  Result<size_t> Read(std::span<std::byte> out) override {
    size_t rows = 0;
    for (; next_ < 10 && out.size() >= 16; ++next_, ++rows, out = out.subspan(16)) {
      const auto v = static_cast<float>(next_);
      const float row[] = {v, v / 2, -v, 1};
      std::memcpy(out.data(), row, sizeof(row));
    }
    return rows;
  }
  std::string Position(uint64_t row) const override { return "row " + std::to_string(row); }

 private:
  int next_ = 0;
};

inline Dataset TenNodes() {
  const auto ints = [](std::vector<int64_t> values) {
    return std::make_unique<VectorIntReader>(std::move(values));
  };
  Dataset dataset;
  dataset.source = "memory";
  dataset.node_count = 10;
  dataset.features = std::make_unique<TenRows>();
  std::vector<Edge> ring;
  for (uint64_t v = 0; v < 10; ++v) ring.push_back({v, (v + 1) % 10});
  std::vector<Edge> likes = {{0, 1}, {0, 2}, {0, 3}};
  dataset.edges.push_back(
      {.name = "cites", .path = "memory", .reader = std::make_unique<VectorEdgeReader>(std::move(ring))});
  dataset.edges.push_back(
      {.name = "likes",
       .path = "memory",
       .reader = std::make_unique<WeightedEdgeReader>(std::move(likes), std::vector<float>{0.5, -2, 0.1F})});
  dataset.labels = ints({0, 1, 2, 0, 1, 2, 0, 1, 2, -1});
  dataset.train = ints({0, 1, 2, 3, 4});
  dataset.valid = ints({5, 6});
  dataset.test = ints({7, 8});
  for (int v = 0; v < 9; ++v) dataset.entity_names.push_back("node-" + std::to_string(v));
  dataset.entity_names.emplace_back("O'Neil; DROP \"x\"");
  return dataset;
}

// A store that is open, with its folder, budget and a connection.
class SqlStore {
 public:
  explicit SqlStore(Dataset dataset, const ImportOptions& options = {},
                    std::unique_ptr<IoBackend> backend = MakeDefaultBackend())
      : backend_(std::move(backend)), path_(folder_.path() + "/db") {
    const Status status = ImportDatabase(*backend_, path_, std::move(dataset), options);
    EXPECT_OK(status);
    store_ = Store::Open(*backend_, path_).value();
    connection_ = Connect();
  }
  explicit SqlStore(const TinyGraph& graph, std::unique_ptr<IoBackend> backend = MakeDefaultBackend())
      : SqlStore(TinyDataset(graph), {.both_directions = graph.both_directions, .feature_type = graph.type},
                 std::move(backend)) {}

  std::unique_ptr<sql::Connection> Connect(const sql::ConnectionOptions& options = {}) {
    return sql::Connection::Open(*store_, budget_, options).value();
  }
  const std::string& path() const { return path_; }
  Store& store() { return *store_; }
  MemoryBudget& budget() { return budget_; }
  sql::Connection& sql() { return *connection_; }
  void CloseConnection() { connection_.reset(); }
  void CloseStore() {
    connection_.reset();
    store_.reset();
  }

 private:
  const ScratchFolder folder_{Medium::kMemory};
  const std::unique_ptr<IoBackend> backend_;
  const std::string path_;
  MemoryBudget budget_{256 * kMiB};
  std::unique_ptr<Store> store_;
  std::unique_ptr<sql::Connection> connection_;
};

inline std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

// A line for each row, values separated by "|".
inline Result<std::vector<std::string>> ReadRows(Result<sql::Rows> rows) {
  QUARRY_RETURN_IF_ERROR(rows.status());
  std::vector<std::string> lines;
  while (true) {
    QUARRY_TRY(const bool more, rows->Next());
    if (!more) return lines;
    std::string line;
    for (int i = 0; i < rows->column_count(); ++i) {
      const bool blob = rows->type(i) == sql::Rows::Type::kBlob;
      line += (i > 0 ? "|" : "") + (blob ? Hex(rows->Blob(i)) : std::string(rows->Text(i)));
    }
    lines.push_back(line);
  }
}

// The rows, or (as the only line) the error.
inline std::vector<std::string> Lines(sql::Connection& connection, std::string_view text) {
  auto lines = ReadRows(connection.Query(text));
  if (!lines.ok()) return {lines.status().ToString()};
  return *lines;
}

}  // namespace quarry::testing_util
