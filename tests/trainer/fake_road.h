// A road in memory over a planted-community graph: neighbors mostly share a node's class, while its features
// tell little about it, so what a model learns it learns from the graph.
#pragma once

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/pipeline/batch_stream.h"
#include "quarry/sampling/block.h"

namespace quarry {

struct FakeRoadOptions {
  uint32_t nodes = 2000;
  uint32_t classes = 4;
  uint32_t degree = 10;
  double homophily = 0.9;
  uint32_t dim = 16;
  std::vector<uint32_t> fanouts = {8, 8};
  uint32_t batch_size = 128;
  uint64_t seed = 1;
  uint64_t fail_at_batch = UINT64_MAX;  // of every pass
};

class FakeRoad final : public Road {
 public:
  explicit FakeRoad(const FakeRoadOptions& options) : options_(options), neighbors_(options.nodes) {
    Rng rng(options.seed);
    for (uint32_t v = 0; v < options.nodes; v++)
      labels_.push_back(static_cast<int64_t>(rng.Below(options.classes)));
    for (uint32_t v = 0; v < options.nodes; v++) {
      while (neighbors_[v].size() < options.degree) {
        const auto u = static_cast<NodeId>(rng.Below(options.nodes));
        if (labels_[u] == labels_[v] || rng.Unit() > options.homophily) neighbors_[v].push_back(u);
      }
      for (uint32_t c = 0; c < options.dim; c++) {
        const double signal = c == static_cast<uint32_t>(labels_[v]) ? 0.7 : 0;
        features_.push_back(static_cast<float>(signal + 4 * (rng.Unit() - 0.5)));
      }
    }
    slots_.resize(options.nodes);
    std::iota(slots_.begin(), slots_.end(), 0);
  }

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions pass) override;
  std::span<const int64_t> labels() const override { return labels_; }
  uint32_t feature_dim() const override { return options_.dim; }

  // Half to train, a quarter each to validate and to test.
  std::vector<NodeId> SplitNodes(Split split) const override {
    std::vector<NodeId> nodes;
    for (NodeId v = 0; v < options_.nodes; v++) {
      const Split own = v % 4 < 2 ? Split::kTrain : v % 4 == 2 ? Split::kValid : Split::kTest;
      if (own == split && !(split == Split::kTrain && no_training_nodes)) nodes.push_back(v);
    }
    return nodes;
  }

  // The node and the neighbor of an edge, by the id that batches give it.
  std::pair<NodeId, NodeId> EdgeAt(uint64_t edge) const {
    const auto node = static_cast<NodeId>(edge / options_.degree);
    return {node, neighbors_[node][edge % options_.degree]};
  }
  std::vector<int64_t>& mutable_labels() { return labels_; }
  std::vector<float>& mutable_features() { return features_; }
  bool no_training_nodes = false;
  std::vector<uint64_t> passes;  // that were started
  int streams_open = 0;

 private:
  class FakeBatch;
  class FakeStream;

  const FakeRoadOptions options_;
  std::vector<std::vector<NodeId>> neighbors_;
  std::vector<int64_t> labels_;
  std::vector<float> features_;
  std::vector<uint32_t> slots_;
};

class FakeRoad::FakeBatch {
 public:
  static std::unique_ptr<Batch> Make(const FakeRoad& road, std::span<const NodeId> seeds, uint64_t index,
                                     uint64_t seed) {
    auto made = std::make_shared<const FakeBatch>(road, seeds, seed);
    BatchView view = made->block_.view();
    view.index = index;
    view.labels = made->labels_;
    view.features = {std::as_bytes(std::span(road.features_)), road.options_.dim * sizeof(float),
                     ElementType::kFloat32, road.options_.dim, made->slots_};
    return std::make_unique<Batch>(view, std::move(made));
  }

  FakeBatch(const FakeRoad& road, std::span<const NodeId> seeds, uint64_t seed) {
    Rng rng(seed);
    std::unordered_map<NodeId, uint32_t> local;
    const auto find = [&](NodeId node) {
      const auto [place, fresh] = local.emplace(node, static_cast<uint32_t>(block_.nodes.size()));
      if (fresh) block_.nodes.push_back(node);
      return place->second;
    };
    for (const NodeId seed_node : seeds) find(seed_node);
    block_.hop_offsets.push_back(static_cast<uint32_t>(block_.nodes.size()));
    block_.indptr.push_back(0);
    for (const uint32_t fanout : road.options_.fanouts) {
      for (size_t v = block_.indptr.size() - 1; v < block_.hop_offsets.back(); v++) {
        const NodeId node = block_.nodes[v];
        std::vector<uint32_t> candidates(road.neighbors_[node].size());
        std::iota(candidates.begin(), candidates.end(), 0);
        for (uint32_t k = 0; k < fanout && k < candidates.size(); k++) {
          std::swap(candidates[k], candidates[k + rng.Below(candidates.size() - k)]);
          block_.indices.push_back(find(road.neighbors_[node][candidates[k]]));
          block_.edge_ids.push_back(uint64_t{node} * road.options_.degree + candidates[k]);
        }
        block_.indptr.push_back(static_cast<uint32_t>(block_.indices.size()));
      }
      block_.hop_offsets.push_back(static_cast<uint32_t>(block_.nodes.size()));
    }
    slots_.assign(block_.nodes.begin(), block_.nodes.end());
    for (const NodeId seed_node : seeds) {
      if (!road.labels_.empty()) labels_.push_back(road.labels_[seed_node]);
    }
  }

 private:
  Block block_;
  std::vector<uint32_t> slots_;
  std::vector<int64_t> labels_;
};

class FakeRoad::FakeStream final : public BatchStream {
 public:
  FakeStream(FakeRoad& road, PassOptions pass) : road_(road), pass_(std::move(pass)) {
    road_.streams_open++;
    if (!pass_.shuffle) return;
    Rng rng(MixSeed(road_.options_.seed, pass_.pass));
    for (size_t i = pass_.seeds.size(); i > 1; i--) std::swap(pass_.seeds[i - 1], pass_.seeds[rng.Below(i)]);
  }
  ~FakeStream() override { road_.streams_open--; }
  uint64_t batch_count() const override {
    return (pass_.seeds.size() + road_.options_.batch_size - 1) / road_.options_.batch_size;
  }
  Result<std::unique_ptr<Batch>> Next() override {
    if (next_ == road_.options_.fail_at_batch)
      return MakeStatus(Code::kIoError, "batch {} cannot be read", next_);
    const size_t begin = next_ * road_.options_.batch_size;
    if (begin >= pass_.seeds.size()) return std::unique_ptr<Batch>();
    const size_t count = std::min<size_t>(road_.options_.batch_size, pass_.seeds.size() - begin);
    const uint64_t seed = MixSeed(road_.options_.seed, pass_.pass, next_);
    stats_.batches++;
    return FakeBatch::Make(road_, std::span(pass_.seeds).subspan(begin, count), next_++, seed);
  }
  StreamStats stats() const override { return stats_; }

 private:
  FakeRoad& road_;
  PassOptions pass_;
  uint64_t next_ = 0;
  StreamStats stats_;
};

inline Result<std::unique_ptr<BatchStream>> FakeRoad::StartPass(PassOptions pass) {
  passes.push_back(pass.pass);
  return std::unique_ptr<BatchStream>(std::make_unique<FakeStream>(*this, std::move(pass)));
}

}  // namespace quarry
