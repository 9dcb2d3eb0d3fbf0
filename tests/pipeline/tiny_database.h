// A small database of known content, imported from memory.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/storage/store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// A device whose requests cost nothing, so that small layouts are mended as large ones are.
inline const DeviceRecord kBytesAlone = {.random_reads_per_second = 1e12,
                                         .sequential_bytes_per_second = 1e9,
                                         .write_bytes_per_second = 1e9,
                                         .gather_bytes_per_second = 1e9,
                                         .core = {.checksum_bytes_per_second = 1e9,
                                                  .copy_bytes_per_second = 1e9,
                                                  .decode_bytes_per_second = 1e9,
                                                  .request_seconds = 1e-12}};

// A device that reads and writes in no time: what draws fewer edges is cheaper.
inline const DeviceRecord kDrawsAlone = {.random_reads_per_second = 1e15,
                                         .sequential_bytes_per_second = 1e15,
                                         .write_bytes_per_second = 1e15,
                                         .gather_bytes_per_second = 1e15,
                                         .core = {.checksum_bytes_per_second = 1e15,
                                                  .copy_bytes_per_second = 1e15,
                                                  .decode_bytes_per_second = 1e15,
                                                  .request_seconds = 1e-15}};

struct TinyGraph {
  uint64_t nodes = 600;
  uint64_t dim = 128;
  ElementType type = ElementType::kFloat32;
  uint64_t degree = 6;
  bool labels = true;
  bool splits = true;
  bool both_directions = false;
  uint64_t lonely_from = ~uint64_t{0};  // nodes from here on have no in-neighbors
  uint64_t split_from = 0;              // nodes before this one are in no split
  bool weighted = false;                // edges have the weights of Weight

  // The row of a node as `encoding`, by default as it is stored.
  std::vector<std::byte> Row(NodeId node, std::optional<ElementType> encoding = {}) const {
    std::vector<float> values(dim);
    for (uint64_t j = 0; j < dim; ++j) {
      values[j] = static_cast<float>(Mix64(node * 7919 + j) % 2001) / 1000.0f - 1.0f;
    }
    std::vector<std::byte> row(RowBytes(encoding.value_or(type), dim));
    EncodeRow(encoding.value_or(type), values, row);
    return row;
  }
  int64_t Label(NodeId node) const { return node % 7 == 0 ? -1 : static_cast<int64_t>(node % 5); }
  // Some nodes have many more out-edges than others; every third edge comes from the first 20 nodes.
  std::vector<Edge> Edges() const {
    std::vector<Edge> edges;
    Rng rng(99);
    for (uint64_t v = 0; v < std::min(nodes, lonely_from); ++v) {
      std::set<uint64_t> sources;
      while (sources.size() < std::min(degree + v % 4, nodes)) {
        sources.insert(rng.Below(3) == 0 ? rng.Below(20) : rng.Below(nodes));
      }
      for (const uint64_t source : sources) edges.push_back({source, v});
    }
    return edges;
  }
  // A tenth of the edges have a weight of 0.
  static float Weight(const Edge& edge) {
    return static_cast<float>(Mix64(edge.source * 31 + edge.destination) % 10) / 4;
  }
  // A node's split by its number: 6 of 10 train, 2 valid, 2 test.
  std::vector<NodeId> SplitNodes(Split split) const {
    std::vector<NodeId> out;
    for (uint64_t v = split_from; v < nodes; ++v) {
      const uint64_t part = v % 10;
      const Split own = part < 6 ? Split::kTrain : part < 8 ? Split::kValid : Split::kTest;
      if (own == split) out.push_back(static_cast<NodeId>(v));
    }
    return out;
  }
};

template <typename Reader, typename T>
class VectorReader : public Reader {
 public:
  explicit VectorReader(std::vector<T> values) : values_(std::move(values)) {}
  Result<size_t> Read(std::span<T> out) override {
    const size_t count = std::min(out.size(), values_.size() - next_);
    std::copy_n(values_.begin() + static_cast<ptrdiff_t>(next_), count, out.begin());
    next_ += count;
    return count;
  }
  std::optional<uint64_t> count() const override { return values_.size(); }

 protected:
  std::vector<T> values_;
  size_t next_ = 0;
};

class VectorIntReader final : public VectorReader<IntReader, int64_t> {
 public:
  using VectorReader::VectorReader;
  std::string Position(uint64_t index) const override { return "value " + std::to_string(index); }
};

class VectorEdgeReader final : public VectorReader<EdgeReader, Edge> {
 public:
  using VectorReader::VectorReader;
  // With a weight for each edge.
  VectorEdgeReader(std::vector<Edge> edges, std::vector<float> weights)
      : VectorReader(std::move(edges)), weights_(std::move(weights)) {}
  Result<size_t> Read(std::span<Edge> out) override {
    first_ = next_;
    return VectorReader::Read(out);
  }
  bool weighted() const override { return !weights_.empty(); }
  std::span<const float> weights() const override {
    return weighted() ? std::span(weights_).subspan(first_, next_ - first_) : std::span<const float>();
  }
  uint64_t bytes_read() const override { return next_ * sizeof(Edge); }
  uint64_t bytes_total() const override { return values_.size() * sizeof(Edge); }
  std::string Position(uint64_t edge) const override { return "edge " + std::to_string(edge); }

 private:
  std::vector<float> weights_;
  size_t first_ = 0;  // of those that were read last
};

// Rows as float32: the import converts them.
class TinyRows final : public RowReader {
 public:
  explicit TinyRows(const TinyGraph& graph) : graph_(graph) {}
  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return graph_.dim; }
  uint64_t row_count() const override { return graph_.nodes; }
  Result<size_t> Read(std::span<std::byte> out) override {
    size_t rows = 0;
    while (next_ < graph_.nodes) {
      const std::vector<std::byte> row = graph_.Row(static_cast<NodeId>(next_), element_type());
      if (out.size() < row.size()) break;
      std::memcpy(out.data(), row.data(), row.size());
      out = out.subspan(row.size());
      ++next_;
      ++rows;
    }
    return rows;
  }
  std::string Position(uint64_t row) const override { return "row " + std::to_string(row); }

 private:
  const TinyGraph graph_;
  uint64_t next_ = 0;
};

inline std::unique_ptr<IntReader> SplitReader(const TinyGraph& graph, Split split) {
  const std::vector<NodeId> nodes = graph.SplitNodes(split);
  return std::make_unique<VectorIntReader>(std::vector<int64_t>(nodes.begin(), nodes.end()));
}

inline Dataset TinyDataset(const TinyGraph& graph) {
  Dataset dataset;
  dataset.source = "memory";
  dataset.node_count = graph.nodes;
  dataset.features = std::make_unique<TinyRows>(graph);
  std::vector<Edge> edges = graph.Edges();
  std::vector<float> weights;
  for (const Edge& edge : edges) {
    if (graph.weighted) weights.push_back(TinyGraph::Weight(edge));
  }
  dataset.edges.push_back(
      {.name = "",
       .path = "memory",
       .reader = std::make_unique<VectorEdgeReader>(std::move(edges), std::move(weights))});
  if (graph.labels) {
    std::vector<int64_t> labels;
    for (uint64_t v = 0; v < graph.nodes; ++v) labels.push_back(graph.Label(static_cast<NodeId>(v)));
    dataset.labels = std::make_unique<VectorIntReader>(std::move(labels));
  }
  if (graph.splits) {
    dataset.train = SplitReader(graph, Split::kTrain);
    dataset.valid = SplitReader(graph, Split::kValid);
    dataset.test = SplitReader(graph, Split::kTest);
  }
  return dataset;
}

inline Status ImportTinyGraph(IoBackend& backend, const TinyGraph& graph, const std::string& path) {
  ImportOptions options;
  options.both_directions = graph.both_directions;
  options.feature_type = graph.type;
  return ImportDatabase(backend, path, TinyDataset(graph), options);
}

// The directory of a database that is imported at construction and removed at destruction.
class TinyDatabase {
 public:
  explicit TinyDatabase(const TinyGraph& graph, const std::string& folder = testing::TempDir())
      : graph_(graph) {
    static std::atomic<int> serial{0};
    path_ = folder + "quarry-tiny-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
    const Status status = ImportTinyGraph(*MakeDefaultBackend(), graph, path_);
    EXPECT_OK(status);
  }
  ~TinyDatabase() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TinyDatabase(const TinyDatabase&) = delete;
  TinyDatabase& operator=(const TinyDatabase&) = delete;
  const std::string& path() const { return path_; }
  const TinyGraph& graph() const { return graph_; }

 private:
  const TinyGraph graph_;
  std::string path_;
};

}  // namespace quarry::testing_util
