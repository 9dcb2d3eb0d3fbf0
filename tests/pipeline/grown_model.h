// A graph that nodes and edges are added to and removed from, at random, and the model in memory that it is held against.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/tiny_database.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/put.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/topology_compaction.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

// What the database should have: by node, and by pair of nodes.
struct GrownModel {
  uint64_t dim = 0;
  std::vector<std::vector<float>> rows;
  std::vector<int64_t> labels;
  std::vector<uint8_t> splits;
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> edges;  // {destination, source}: how many

  explicit GrownModel(const TinyGraph& graph) : dim(graph.dim) {
    for (NodeId node = 0; node < graph.nodes; ++node) {
      const std::vector<std::byte> row = graph.Row(node, ElementType::kFloat32);
      std::vector<float> values(dim);
      std::memcpy(values.data(), row.data(), row.size());
      Append(std::move(values), graph.Label(node), Split::kNone);
    }
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
      for (const NodeId node : graph.SplitNodes(split)) splits[node] = static_cast<uint8_t>(split);
    }
    for (const Edge& edge : graph.Edges()) ++edges[{edge.destination, edge.source}];
  }
  uint64_t nodes() const { return rows.size(); }
  void Append(std::vector<float> row, int64_t label, Split split) {
    rows.push_back(std::move(row));
    labels.push_back(label);
    splits.push_back(static_cast<uint8_t>(split));
  }
  std::vector<Edge> AllEdges() const {
    std::vector<Edge> all;
    for (const auto& [ends, count] : edges) all.insert(all.end(), count, {ends.second, ends.first});
    return all;
  }
  std::vector<int64_t> NodesOf(Split split) const {
    std::vector<int64_t> found;
    for (size_t node = 0; node < splits.size(); ++node) {
      if (splits[node] == static_cast<uint8_t>(split)) found.push_back(static_cast<int64_t>(node));
    }
    return found;
  }
};

class ModelRows final : public RowReader {
 public:
  ModelRows(std::vector<std::vector<float>> rows, uint64_t dim) : rows_(std::move(rows)), dim_(dim) {}
  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return rows_.size(); }
  Result<size_t> Read(std::span<std::byte> out) override {
    const size_t row_bytes = dim_ * sizeof(float);
    size_t count = 0;
    for (; next_ < rows_.size() && out.size() >= row_bytes; ++count, out = out.subspan(row_bytes)) {
      std::memcpy(out.data(), rows_[next_++].data(), row_bytes);
    }
    return count;
  }
  std::string Position(uint64_t row) const override { return "row " + std::to_string(row); }

 private:
  const std::vector<std::vector<float>> rows_;
  const uint64_t dim_;
  size_t next_ = 0;
};

inline Status ImportModel(IoBackend& backend, const std::string& path, const GrownModel& model, bool csr) {
  Dataset dataset;
  dataset.source = "memory";
  dataset.node_count = model.nodes();
  dataset.features = std::make_unique<ModelRows>(model.rows, model.dim);
  dataset.labels = std::make_unique<VectorIntReader>(model.labels);
  dataset.train = std::make_unique<VectorIntReader>(model.NodesOf(Split::kTrain));
  dataset.valid = std::make_unique<VectorIntReader>(model.NodesOf(Split::kValid));
  dataset.test = std::make_unique<VectorIntReader>(model.NodesOf(Split::kTest));
  dataset.edges.push_back(
      {.name = "", .path = "memory", .reader = std::make_unique<VectorEdgeReader>(model.AllEdges())});
  ImportOptions options;
  options.both_directions = csr;
  return ImportDatabase(backend, path, std::move(dataset), options);
}

class GrownGraph : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/db"; }

  void Make(uint64_t dim, bool csr, uint64_t seed) {
    const TinyGraph graph{.nodes = 130, .dim = dim, .degree = 3, .both_directions = csr};
    csr_ = csr;
    rng_ = Rng(seed);
    held_.clear();
    store_.reset();
    std::filesystem::remove_all(path());
    model_.emplace(graph);
    ASSERT_OK(ImportModel(*backend_, path(), *model_, csr));
    Open();
  }
  void Open() {
    held_.clear();
    store_.reset();
    auto store = Store::Open(*backend_, path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }

  // Some nodes that were there.
  std::set<uint64_t> SomeToGo() {
    std::set<uint64_t> gone;
    for (uint64_t i = rng_.Below(3) == 0 ? 1 + rng_.Below(4) : 0; i > 0; --i) {
      gone.insert(rng_.Below(model_->nodes()));
    }
    return gone;
  }
  void Clear(const std::set<uint64_t>& gone) {
    for (const uint64_t node : gone) {
      std::ranges::fill(model_->rows[node], 0.0f);
      model_->labels[node] = -1;
      model_->splits[node] = static_cast<uint8_t>(Split::kNone);
    }
    std::erase_if(model_->edges, [&](const auto& edge) {
      return gone.contains(edge.first.first) || gone.contains(edge.first.second);
    });
  }

  // What a commit has besides nodes that come.
  struct Growth {
    bool edges_come = true, edges_go = true, nodes_go = true, a_row_changes = true;
  };
  // Nodes with some of what nodes can have, edges among all nodes, and a row of an old one; other nodes go: one commit.
  void Grow(uint64_t nodes, const Growth& growth) {
    auto change =
        GraphChange::Create(*store_, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    EXPECT_EQ((*change)->first_node(), model_->nodes());
    const bool with_rows = rng_.Below(3) > 0, with_labels = rng_.Below(3) > 0;
    const auto split = static_cast<Split>(rng_.Below(4));
    const uint64_t first = model_->nodes();
    const std::set<uint64_t> gone = growth.nodes_go ? SomeToGo() : std::set<uint64_t>();
    const std::vector<NodeId> ids(gone.begin(), gone.end());
    ASSERT_OK((*change)->RemoveNodes(ids));
    for (uint64_t i = 0; i < nodes; ++i) {
      std::vector<float> row(model_->dim, 0.0f);
      for (float& value : row) value = with_rows ? static_cast<float>(rng_.Below(1000)) : 0.0f;
      model_->Append(std::move(row), with_labels ? static_cast<int64_t>(rng_.Below(9)) - 1 : -1, split);
    }
    if (nodes > 0) {
      ModelRows rows({model_->rows.begin() + static_cast<ptrdiff_t>(first), model_->rows.end()}, model_->dim);
      VectorIntReader labels({model_->labels.begin() + static_cast<ptrdiff_t>(first), model_->labels.end()});
      // Commits of a node or two at a time.
      ASSERT_OK(PutAdded(**change,
                         {.features = with_rows ? &rows : nullptr,
                          .labels = with_labels ? &labels : nullptr,
                          .split = split},
                         {.memory_bytes = rng_.Below(2) == 0 ? 8 << 10 : kMiB}));
    }
    if (growth.a_row_changes && rng_.Below(3) == 0) {
      const uint64_t row = rng_.Below(first);
      std::ranges::fill(model_->rows[row], static_cast<float>(rng_.Below(1000)));
      WriteBatch batch;
      batch.Put("feature", row, std::as_bytes(std::span(model_->rows[row])));
      ASSERT_OK((*change)->Put(batch));
    }
    std::vector<Edge> removed, added;
    for (uint64_t i = growth.edges_go ? rng_.Below(4) : 0; i > 0; --i) {
      auto edge = model_->edges.begin();
      std::advance(edge, rng_.Below(model_->edges.size()));
      removed.push_back({edge->first.second, edge->first.first});
      model_->edges.erase(edge);
    }
    for (uint64_t i = growth.edges_come ? rng_.Below(30) : 0; i > 0; --i) {
      const auto node = [&] {
        return nodes > 0 && rng_.Below(2) == 0 ? first + rng_.Below(nodes) : rng_.Below(model_->nodes());
      };
      const Edge edge{node(), node()};
      if (gone.contains(edge.source) || gone.contains(edge.destination)) continue;
      added.push_back(edge);
      ++model_->edges[{added.back().destination, added.back().source}];
    }
    ASSERT_OK((*change)->Remove(removed));
    ASSERT_OK((*change)->Add(added));
    const auto done = (*change)->Commit();
    ASSERT_OK(done);
    Clear(gone);
    EXPECT_EQ(done->nodes_added, nodes);
    EXPECT_EQ(done->nodes_removed, gone.size());
    EXPECT_EQ(done->edge_count, model_->AllEdges().size());
    EXPECT_EQ(done->node_count, model_->nodes());
    if (nodes > 0) {
      EXPECT_EQ(done->first_node, first);
    }
  }

  void Grow(uint64_t nodes) { Grow(nodes, Growth()); }

  void Put() {
    WriteBatch batch;
    for (uint64_t i = 1 + rng_.Below(5); i > 0; --i) {
      const uint64_t node = rng_.Below(model_->nodes());
      std::ranges::fill(model_->rows[node], static_cast<float>(rng_.Below(1000)));
      batch.Put("feature", node, std::as_bytes(std::span(model_->rows[node])));
      model_->labels[node] = static_cast<int64_t>(rng_.Below(5));
      batch.SetLabel(static_cast<NodeId>(node), model_->labels[node]);
    }
    ASSERT_OK(store_->Write(batch));
  }

  void Compact(bool all) {
    for (const char* const table : {"feature", "label", "split"}) {
      if (!all && rng_.Below(2) == 0) continue;
      ASSERT_OK(CompactTable(*store_, budget_, table, false, {}));
    }
    if (!all && rng_.Below(2) == 0) return;
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  }

  struct Held {
    std::shared_ptr<const Snapshot> snapshot;
    GrownModel model;
  };
  void Hold() {
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    held_.push_back({*snapshot, *model_});
  }

  ScratchFolder folder_{Medium::kMemory};
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  bool csr_ = false;
  Rng rng_{0};
  std::unique_ptr<Store> store_;
  std::optional<GrownModel> model_;
  std::vector<Held> held_;
};

}  // namespace quarry::testing_util
