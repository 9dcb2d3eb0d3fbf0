// The live road of a graph with types: each node's row is of its type's table, each edge of the type that it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "pipeline/pass_util.h"
#include "quarry/format/fanouts.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/sampling/sampler.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::OpenRoad;

class TypedRoad : public testing::Test {
 protected:
  void SetUp() override {
    set_.WriteTo(source_);
    auto dataset = OpenDataset(source_.path(), {});
    ASSERT_OK(dataset);
    ASSERT_OK(ImportDatabase(*backend_, database_, std::move(*dataset), {}));
    for (const TypedSet::Edges& type : set_.edges) {
      auto& pairs = pairs_.emplace_back();
      for (const auto& [source, destination] : type.pairs) {
        pairs.emplace(static_cast<uint64_t>(source) + set_.nodes[type.source].first,
                      static_cast<uint64_t>(destination) + set_.nodes[type.destination].first);
      }
    }
  }

  static LiveRoadOptions Options(
      LiveRoadOptions::TopologyPlacement placement = LiveRoadOptions::TopologyPlacement::kAuto) {
    LiveRoadOptions options = testing_util::SmallOptions();
    options.spec.relation_fanouts = {2, 3, 1, 2, 4,   // to papers: 2 + 3 + 1
                                     0, 2, 0, 3, 1};  // to papers: 2, to authors: 3
    options.spec.fanouts = {6, 3};
    options.spec.edge_ids = true;
    options.sampler_threads = 2;
    options.extractor_threads = 2;
    options.topology_placement = placement;
    return options;
  }

  size_t TypeOf(uint64_t node) const {
    size_t type = 0;
    while (node >= set_.nodes[type].first + set_.nodes[type].count) ++type;
    return type;
  }

  // Every row, label and edge of a batch; `changed` has rows that are 0.5 throughout.
  void ExpectBatch(const BatchView& batch, const std::set<uint64_t>& changed) const {
    ASSERT_EQ(batch.type_rows.size(), set_.nodes.size());
    EXPECT_EQ(batch.features.dim, 0);
    for (size_t i = 0; i < batch.nodes.size(); ++i) {
      const size_t type = TypeOf(batch.nodes[i]);
      const TypedSet::Nodes& nodes = set_.nodes[type];
      ASSERT_EQ(batch.type_rows[type].dim, nodes.dim);
      std::vector<float> row(nodes.dim), expected(nodes.dim);
      if (nodes.dim > 0) std::memcpy(row.data(), batch.features.Row(i), nodes.dim * sizeof(float));
      for (uint64_t j = 0; j < nodes.dim; ++j) {
        expected[j] =
            changed.contains(batch.nodes[i]) ? 0.5f : set_.Feature(type, batch.nodes[i] - nodes.first, j);
      }
      ASSERT_EQ(row, expected) << "node " << batch.nodes[i];
    }
    for (uint32_t i = 0; i < batch.seed_count; ++i) {
      const size_t type = TypeOf(batch.nodes[i]);
      const uint64_t node = batch.nodes[i] - set_.nodes[type].first;
      EXPECT_EQ(batch.labels[i], set_.nodes[type].labels ? set_.Label(type, node) : -1);
    }
    ASSERT_EQ(batch.relations.size(), batch.indices.size());
    for (uint32_t v = 0; v < batch.target_count(); ++v) {
      for (uint32_t e = batch.indptr[v]; e < batch.indptr[v + 1]; ++e) {
        EXPECT_TRUE(pairs_[batch.relations[e]].contains({batch.nodes[batch.indices[e]], batch.nodes[v]}));
      }
    }
  }

  // A pass in order; what it sampled, as one number.
  uint64_t ExpectPass(Road& road, std::vector<NodeId> seeds, const std::set<uint64_t>& changed = {}) const {
    std::set<NodeId> left(seeds.begin(), seeds.end());
    auto stream = road.StartPass({.seeds = std::move(seeds), .pass = 2, .ordered = true});
    EXPECT_OK(stream);
    uint64_t hash = 0;
    while (stream.ok()) {
      auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) break;
      const BatchView& view = (*batch)->view();
      ExpectBatch(view, changed);
      for (const NodeId seed : view.seeds()) EXPECT_EQ(left.erase(seed), 1);
      hash = MixSeed(hash, Checksum64(std::as_bytes(view.nodes)), Checksum64(std::as_bytes(view.relations)));
    }
    EXPECT_TRUE(left.empty());
    return hash;
  }

  std::vector<NodeId> NodesOf(size_t type) const {
    std::vector<NodeId> nodes(set_.nodes[type].count);
    std::iota(nodes.begin(), nodes.end(), static_cast<NodeId>(set_.nodes[type].first));
    return nodes;
  }

  const TypedSet set_ = RandomTypedSet(9);
  const TemporaryFolder source_{"typed-road-set"};
  const TemporaryFolder folder_{"typed-road"};
  const std::string database_ = folder_ / "typed.db";
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
  std::vector<std::set<std::pair<uint64_t, uint64_t>>> pairs_;  // by relation
};

TEST_F(TypedRoad, HasRowsAndEdgesOfTheirTypes) {
  using ListPlace = LiveRoadOptions::TopologyPlacement;
  std::set<uint64_t> hashes;
  for (const ListPlace placement : {ListPlace::kMemory, ListPlace::kDisk}) {
    for (const uint64_t cache_bytes : {uint64_t{0}, uint64_t{20'000}, 64 * kMiB}) {
      LiveRoadOptions options = Options(placement);
      options.spec.cache_bytes = cache_bytes;
      const OpenRoad opened(database_, options);
      ASSERT_OK(opened.status);
      EXPECT_EQ(opened.road->plan().topology_in_memory, placement == ListPlace::kMemory);
      hashes.insert(ExpectPass(*opened.road, opened.road->SplitNodes(Split::kTrain)));
      ExpectPass(*opened.road, NodesOf(1));
      ExpectPass(*opened.road, NodesOf(2));
    }
  }
  EXPECT_EQ(hashes.size(), 1) << "batches depend on where lists lie, or on the cache";
}

// All neighbors by a type: each edge of the type into a node, once. The least memory that is stated is enough.
TEST_F(TypedRoad, TakesAllNeighborsOfAType) {
  LiveRoadOptions options = Options();
  options.spec.fanouts = {kAllNeighbors, kAllNeighbors};
  options.spec.relation_fanouts = {
      kAllNeighbors, 3, kAllNeighbors, kAllNeighbors, 0, kAllNeighbors, kAllNeighbors, 0, kAllNeighbors, 1};
  uint64_t least_bytes = 0;
  {
    OpenRoad opened(database_, options);
    ASSERT_OK(opened.status);
    least_bytes = opened.road->NeedWith(0).least_bytes;
  }
  EXPECT_EQ(OpenRoad(database_, options, least_bytes - 1).status.code(), Code::kOutOfBudget);
  OpenRoad opened(database_, options, least_bytes);
  ASSERT_OK(opened.status);
  for (const size_t type : {0, 1, 2}) ExpectPass(*opened.road, NodesOf(type));
  auto stream = opened.road->StartPass({.seeds = NodesOf(0), .ordered = true});
  ASSERT_OK(stream);
  while (true) {
    auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    if (*batch == nullptr) break;
    const BatchView& view = (*batch)->view();
    EXPECT_EQ(std::set<uint64_t>(view.edge_ids.begin(), view.edge_ids.end()).size(), view.edge_ids.size());
    for (uint32_t v = 0; v < view.target_count(); ++v) {
      const size_t hop = v < view.hop_offsets[0] ? 0 : 1;
      std::vector<std::set<uint64_t>> found(set_.edges.size());
      for (uint32_t e = view.indptr[v]; e < view.indptr[v + 1]; ++e)
        found[view.relations[e]].insert(view.nodes[view.indices[e]]);
      for (size_t r = 0; r < set_.edges.size(); ++r) {
        if (options.spec.relation_fanouts[hop * set_.edges.size() + r] != kAllNeighbors) continue;
        std::set<uint64_t> expected;
        for (const auto& [source, destination] : pairs_[r])
          if (destination == view.nodes[v]) expected.insert(source);
        ASSERT_EQ(found[r], expected) << "node " << view.nodes[v] << ", edges of type " << r;
      }
    }
  }
}

// Rows of a type's table are counted from the type's first node, in what is newer as in the file.
TEST_F(TypedRoad, HasTheNewestRows) {
  OpenRoad opened(database_, Options());
  ASSERT_OK(opened.status);
  std::set<uint64_t> changed;
  WriteBatch batch;
  for (const size_t type : {0, 1}) {
    std::vector<float> row(set_.nodes[type].dim, 0.5f);
    for (uint64_t node = type; node < set_.nodes[type].count; node += 3) {
      batch.Put(set_.nodes[type].name + ".feature", node, std::as_bytes(std::span(row)));
      changed.insert(set_.nodes[type].first + node);
    }
  }
  ASSERT_OK(opened.store->Write(batch));
  ExpectPass(*opened.road, NodesOf(0));  // which was opened before
  opened.Reopen(Options());
  ASSERT_OK(opened.status);
  ExpectPass(*opened.road, NodesOf(0), changed);
}

// The least that is stated is enough, to the byte, and one less is refused.
TEST_F(TypedRoad, StatesTheLeastMemory) {
  LiveRoadNeed need;
  {
    OpenRoad opened(database_, Options());
    ASSERT_OK(opened.status);
    need = opened.road->NeedWith(0);
  }
  {
    const OpenRoad least(database_, Options(), need.least_bytes);
    ASSERT_OK(least.status);
    ExpectPass(*least.road, NodesOf(0));
  }
  const OpenRoad less(database_, Options(), need.least_bytes - 1);
  EXPECT_EQ(less.status.code(), Code::kOutOfBudget);
}

TEST_F(TypedRoad, CountsBytesOfTheRowsThatWereRead) {
  const OpenRoad opened(database_, Options());
  ASSERT_OK(opened.status);
  auto stream = opened.road->StartPass({.seeds = NodesOf(0), .ordered = true});
  ASSERT_OK(stream);
  std::set<NodeId> nodes;
  uint64_t bytes = 0;
  while (true) {
    auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    if (*batch == nullptr) break;
    for (const NodeId node : (*batch)->view().nodes) bytes += set_.nodes[TypeOf(node)].dim * sizeof(float);
  }
  const StreamStats stats = (*stream)->stats();
  EXPECT_LE(stats.bytes_useful, bytes);
  EXPECT_GT(stats.bytes_useful, 0);
  EXPECT_GE(stats.feature_bytes_read, 1);
}

TEST_F(TypedRoad, RefusesFanoutsOfOtherGraphs) {
  LiveRoadOptions options = Options();
  options.spec.relation_fanouts.pop_back();
  EXPECT_THAT(OpenRoad(database_, options).status,
              IsStatus(Code::kUsage, HasSubstr("2 hops of 5 types take 10")));
  options = Options();
  options.spec.direction = Direction::kOut;
  EXPECT_FALSE(OpenRoad(database_, options).status.ok());
  options = Options();
  options.spec.relation_fanouts.clear();  // of one type: there is no table for all nodes
  EXPECT_THAT(OpenRoad(database_, options).status,
              IsStatus(Code::kNotFound, HasSubstr("paper.feature, author.feature")));
}

}  // namespace
}  // namespace quarry
