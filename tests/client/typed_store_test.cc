// Batches and blocks by types of nodes and edges, and of all neighbors: a server's are those of the database, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "client/store_util.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "support/status_matchers.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has

constexpr uint32_t kAll = kAllNeighbors;

// What a batch has, and the bytes of each node's row.
struct Had {
  uint64_t index = 0;
  std::vector<NodeId> nodes;
  std::vector<uint32_t> hop_offsets, indptr, indices;
  std::vector<uint64_t> edge_ids;
  std::vector<uint16_t> relations;
  std::vector<int64_t> labels;
  std::vector<std::pair<ElementType, uint32_t>> type_rows;
  std::vector<std::vector<std::byte>> rows;
  bool operator==(const Had&) const = default;
};

class TypedStoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    set_.WriteTo(source_);
    const auto backend = MakeDefaultBackend();
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(source_.path(), {}));
    ASSERT_OK(ImportDatabase(*backend, database_, std::move(dataset), {}));
  }

  Had HadBy(const BatchView& view) const {
    const auto copy = [](const auto& from, auto& to) { to.assign(from.begin(), from.end()); };
    Had had{.index = view.index};
    copy(view.nodes, had.nodes);
    copy(view.hop_offsets, had.hop_offsets);
    copy(view.indptr, had.indptr);
    copy(view.indices, had.indices);
    copy(view.edge_ids, had.edge_ids);
    copy(view.relations, had.relations);
    copy(view.labels, had.labels);
    for (const TypeRows& rows : view.type_rows) had.type_rows.emplace_back(rows.element_type, rows.dim);
    for (size_t i = 0; i < view.nodes.size() && !view.type_rows.empty(); ++i) {
      size_t type = 0;
      while (view.nodes[i] >= set_.nodes[type].first + set_.nodes[type].count) ++type;
      const TypeRows& rows = view.type_rows[type];
      const uint64_t bytes = rows.dim == 0 ? 0 : RowBytes(rows.element_type, rows.dim);
      EXPECT_EQ(rows.dim, set_.nodes[type].dim);
      had.rows.emplace_back(view.features.Row(i), view.features.Row(i) + bytes);
    }
    return had;
  }

  // All passes that the test asks for.
  std::vector<Had> Passes(client::Store& store, const wire::LiveSpec& spec) const {
    std::vector<Had> passes;
    const auto stream = store.OpenStream({.road = spec});
    EXPECT_OK(stream);
    std::vector<wire::StartPass> asked = {{.seeds = Split::kTrain, .pass = 3}};
    for (const TypedSet::Nodes& type : set_.nodes) {
      std::vector<NodeId> nodes(type.count);
      std::iota(nodes.begin(), nodes.end(), static_cast<NodeId>(type.first));
      asked.push_back({.seeds = wire::NodeIds(nodes)});
    }
    for (wire::StartPass& pass : asked) {
      pass.ordered = true;
      if (!stream.ok()) break;
      EXPECT_OK((*stream)->StartPass(pass));
      while (true) {
        const auto batch = (*stream)->Next();
        EXPECT_OK(batch);
        if (!batch.ok() || *batch == nullptr) break;
        passes.push_back(HadBy((*batch)->view()));
      }
    }
    return passes;
  }

  const TypedSet set_ = RandomTypedSet(12, 150);
  const TemporaryFolder source_{"typed-store-set"};
  const TemporaryFolder folder_{"typed-store"};
  const std::string database_ = folder_ / "typed.db";
};

INSTANTIATE_TEST_SUITE_P(Kinds, TypedStoreTest, testing::Values(StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(TypedStoreTest, BatchesAreThoseOfTheDatabase) {
  const wire::LiveSpec specs[] = {
      {.fanouts = {6, 3},
       .batch_size = 32,
       .seed = 5,
       .edge_ids = true,
       .relation_fanouts = {2, 3, 1, 2, 4, 0, 2, 0, 3, 1}},
      {.fanouts = {6, 3},
       .batch_size = 32,
       .seed = 5,
       .replace = true,
       .relation_fanouts = {2, 3, 1, 2, 4, 0, 2, 0, 3, 1}},
      {.fanouts = {kAll, 5},
       .batch_size = 7,
       .edge_ids = true,
       .relation_fanouts = {kAll, kAll, 0, kAll, 2, 1, 2, 2, 5, 5}},
      {.feature_table = "", .fanouts = {kAll, 2}, .batch_size = 32, .edge_ids = true}};
  for (const wire::LiveSpec& spec : specs) {
    std::vector<Had> expected;
    {
      OpenedStore embedded(StoreKind::kEmbedded, database_);
      expected = Passes(*embedded, spec);
    }
    OpenedStore store(GetParam(), database_);
    const std::vector<Had> had = Passes(*store, spec);
    ASSERT_EQ(had.size(), expected.size());
    for (size_t i = 0; i < had.size(); ++i) {
      ASSERT_EQ(had[i], expected[i]) << "batch " << i;
      EXPECT_EQ(had[i].relations.size(), spec.relation_fanouts.empty() ? 0 : had[i].indices.size());
    }
    EXPECT_GT(had.size(), 10u);
  }
}

TEST_P(TypedStoreTest, BlocksAreThoseOfTheDatabase) {
  const auto first = static_cast<NodeId>(set_.nodes[1].first);
  const wire::Sample samples[] = {
      {.seeds = {3, first, 7},
       .fanouts = {6},
       .stream_seed = 4,
       .edge_ids = true,
       .relation_fanouts = {2, 3, 1, 2, 4}},
      {.seeds = {3, first + 2},
       .fanouts = {kAll, kAll},
       .edge_ids = true,
       .relation_fanouts = {kAll, kAll, kAll, kAll, kAll, 2, 0, 1, kAll, 4}},
      {.seeds = {first}, .fanouts = {9}, .replace = true, .relation_fanouts = {0, 0, 0, 9, 0}}};
  std::vector<Had> expected;
  const auto ask = [&](client::Store& store) {
    std::vector<Had> had;
    for (const wire::Sample& sample : samples) {
      const auto block = store.Sample(sample);
      EXPECT_OK(block);
      if (block.ok()) had.push_back(HadBy((*block)->view()));
    }
    return had;
  };
  {
    OpenedStore embedded(StoreKind::kEmbedded, database_);
    expected = ask(*embedded);
  }
  ASSERT_EQ(expected.size(), std::size(samples));
  OpenedStore store(GetParam(), database_);
  EXPECT_EQ(ask(*store), expected);
}

TEST_P(TypedStoreTest, RefusalsHaveTheSameCodeAndWords) {
  const auto refusals = [](client::Store& store) {
    const auto open = [&](wire::LiveSpec spec) {
      return store.OpenStream({.road = std::move(spec)}).status();
    };
    const Status statuses[] = {
        open({.fanouts = {6}, .relation_fanouts = {1}}),
        open({.fanouts = {kAll}, .replace = true, .relation_fanouts = {kAll, 0, 0, 0, 0}}),
        open({.direction = Direction::kOut, .fanouts = {5}, .relation_fanouts = {1, 1, 1, 1, 1}}),
        open({.fanouts = {2000}}),
        store.OpenStream({.road = wire::SuperbatchSpec{.live = {.fanouts = {kAll}}}}).status(),
        store.Sample({.seeds = {1}, .fanouts = {2}, .relation_fanouts = {1}}).status(),
        store.Sample({.seeds = {1}, .fanouts = {kAll}, .replace = true}).status()};
    std::vector<std::string> texts;
    for (const Status& status : statuses) {
      EXPECT_FALSE(status.ok()) << "refusal " << texts.size();
      texts.push_back(status.ToString());
    }
    return texts;
  };
  std::vector<std::string> expected;
  {
    OpenedStore embedded(StoreKind::kEmbedded, database_);
    expected = refusals(*embedded);
  }
  OpenedStore store(GetParam(), database_);
  EXPECT_EQ(refusals(*store), expected);
}

}  // namespace
}  // namespace quarry
