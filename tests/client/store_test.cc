// A store is the same whether it is embedded or a server's: every call of client::Store, held against what is
// known of the database.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "client/store_util.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/edges.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kSeed = 4711;

class StoreTest : public testing::TestWithParam<StoreKind> {
 protected:
  static void SetUpTestSuite() { shared_ = new TinyDatabase({.nodes = 600}); }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  // A database that no test changes.
  static const TinyDatabase& shared() { return *shared_; }
  OpenedStore Open(const TinyDatabase& database, const client::OpenOptions& options = {}) {
    return OpenedStore(GetParam(), database.path(), options);
  }

 private:
  static TinyDatabase* shared_;
};
TinyDatabase* StoreTest::shared_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(StoreTest, DescribesWhatTheDatabaseHas) {
  OpenedStore store = Open(shared());
  const auto description = store->Describe();
  ASSERT_OK(description);
  EXPECT_EQ(description->node_count, 600u);
  EXPECT_EQ(description->class_count, 5u);
  std::map<std::string, std::pair<uint64_t, uint64_t>> tables;
  for (const auto& table : description->tables) tables[table.name] = {table.row_count, table.dim};
  EXPECT_EQ(tables["feature"], std::make_pair(uint64_t{600}, uint64_t{128}));
  EXPECT_EQ(tables["label"], std::make_pair(uint64_t{600}, uint64_t{1}));
  ASSERT_EQ(description->topologies.size(), 1u);
  EXPECT_EQ(description->topologies[0].edge_count, shared().graph().Edges().size());
  EXPECT_OK(store->Ping());
  EXPECT_OK(store->Stats());
}

TEST_P(StoreTest, LookupGivesTheRowsOfTheIdsInTheirOrder) {
  OpenedStore store = Open(shared());
  Rng rng(kSeed);
  for (const size_t count : {0, 1, 16, 300, 3000}) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << count << " ids");
    std::vector<NodeId> ids(count);
    for (NodeId& id : ids) id = static_cast<NodeId>(rng.Below(600));
    const auto rows = store->Lookup({.table = "feature", .ids = ids});
    ASSERT_OK(rows);
    ASSERT_EQ((*rows)->count(), count);
    EXPECT_EQ((*rows)->dim(), 128u);
    EXPECT_EQ((*rows)->element_type(), ElementType::kFloat32);
    ASSERT_EQ((*rows)->bytes().size(), count * 512);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(std::ranges::equal((*rows)->bytes().subspan(i * 512, 512), shared().graph().Row(ids[i])));
    }
  }
}

// 300,000 ids are more than a message holds.
TEST_P(StoreTest, LookupsOfAnySizeAreOne) {
  OpenedStore store = Open(shared());
  std::vector<NodeId> ids(300'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<NodeId>(Mix64(i) % 600);
  const auto rows = store->Lookup({.table = "label", .ids = ids});
  ASSERT_OK(rows);
  ASSERT_EQ((*rows)->bytes().size(), ids.size() * 8);
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(At<int64_t>((*rows)->bytes(), i), shared().graph().Label(ids[i])) << "id " << i;
  }
}

TEST_P(StoreTest, SamplesAreThoseOfTheSampler) {
  const std::vector<NodeId> seeds = {3, 599, 17, 100};
  const std::vector<uint32_t> fanouts = {5, 4, 3};
  Block expected;
  {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, shared().path()).value();
    const auto topology = store->OpenTopology("graph").value();
    ASSERT_OK(topology->LoadIndices(*backend, Adjacency::kCsc));
    const auto sampler =
        NeighborSampler::Make({.topology = topology.get()}, {.fanouts = fanouts, .edge_ids = true}).value();
    ASSERT_OK(sampler->Sample(seeds, 77, expected));
  }
  OpenedStore store = Open(shared());
  const auto batch = store->Sample({.seeds = seeds, .fanouts = fanouts, .stream_seed = 77, .edge_ids = true});
  ASSERT_OK(batch);
  const BatchView& view = (*batch)->view();
  EXPECT_TRUE(std::ranges::equal(view.nodes, expected.nodes));
  EXPECT_TRUE(std::ranges::equal(view.hop_offsets, expected.hop_offsets));
  EXPECT_TRUE(std::ranges::equal(view.indptr, expected.indptr));
  EXPECT_TRUE(std::ranges::equal(view.indices, expected.indices));
  EXPECT_TRUE(std::ranges::equal(view.edge_ids, expected.edge_ids));
  EXPECT_THAT(view.features.rows, IsEmpty());
  EXPECT_THAT(view.labels, IsEmpty());
}

TEST_P(StoreTest, SamplesByWeightsAreThoseOfTheSampler) {
  const TinyDatabase database({.nodes = 300, .weighted = true});
  const std::vector<NodeId> seeds = {3, 299, 17, 100};
  const std::vector<uint32_t> fanouts = {3, 2};
  std::vector<Block> expected;
  {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, database.path()).value();
    const auto topology = store->OpenTopology("graph").value();
    ASSERT_OK(topology->LoadIndices(*backend, Adjacency::kCsc));
    ASSERT_OK(topology->LoadWeights(*backend, Adjacency::kCsc));
    for (const bool replace : {false, true}) {
      const RoadSpec spec = {.fanouts = fanouts, .replace = replace, .weighted = true};
      const auto sampler = NeighborSampler::Make({.topology = topology.get()}, spec).value();
      ASSERT_OK(sampler->Sample(seeds, 5, expected.emplace_back()));
    }
  }
  OpenedStore store = Open(database);
  const auto plain = store->Sample({.seeds = seeds, .fanouts = fanouts, .stream_seed = 5});
  ASSERT_OK(plain);
  EXPECT_FALSE(std::ranges::equal((*plain)->view().indices, expected[0].indices));
  for (const bool replace : {false, true}) {
    const auto batch = store->Sample(
        {.seeds = seeds, .fanouts = fanouts, .stream_seed = 5, .replace = replace, .weighted = true});
    ASSERT_OK(batch);
    EXPECT_TRUE(std::ranges::equal((*batch)->view().nodes, expected[replace ? 1 : 0].nodes));
    EXPECT_TRUE(std::ranges::equal((*batch)->view().indices, expected[replace ? 1 : 0].indices));
  }
  const auto again = store->Sample(
      {.seeds = seeds, .fanouts = fanouts, .stream_seed = 5});  // of lists that have weights now
  ASSERT_OK(again);
  EXPECT_TRUE(std::ranges::equal((*again)->view().indices, (*plain)->view().indices));
}

TEST_P(StoreTest, BatchesAreThoseOfTheRoad) {
  const Hashes first = RoadPass(shared().path(), 0);
  const Hashes second = RoadPass(shared().path(), 3);
  const std::vector<NodeId> some = {1, 5, 7, 200, 300};
  const Hashes third = RoadPass(shared().path(), 9, some);
  OpenedStore store = Open(shared());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  EXPECT_EQ((*stream)->feature_dim(), 128u);
  for (const auto& [pass, expected] : {std::pair(uint64_t{0}, first), std::pair(uint64_t{3}, second)}) {
    const auto batches = (*stream)->StartPass({.seeds = Split::kTrain, .pass = pass, .ordered = true});
    ASSERT_OK(batches);
    EXPECT_EQ(*batches, expected.size());
    EXPECT_EQ(DrainPass(**stream), expected);
    EXPECT_EQ((*stream)->Next().value(), nullptr) << "behind the last there is none";
  }
  ASSERT_OK((*stream)->StartPass({.seeds = wire::NodeIds(some), .pass = 9, .ordered = true}));
  EXPECT_EQ(DrainPass(**stream), third);
  const auto stats = (*stream)->Stats();
  ASSERT_OK(stats);
  const auto found = std::ranges::find(stats->counters, "batches", &wire::Counter::name);
  ASSERT_NE(found, stats->counters.end());
  EXPECT_EQ(found->value, static_cast<double>(third.size()));
}

TEST_P(StoreTest, EdgeIdsAreThoseOfTheEdgeList) {
  OpenedStore store = Open(shared());
  ASSERT_OK_AND_ASSIGN(const auto edges, store->ReadEdges("graph", 0, ~uint32_t{0} >> 12));
  for (const bool replace : {false, true}) {
    SCOPED_TRACE(replace);
    ASSERT_OK_AND_ASSIGN(
        const auto stream,
        store->OpenStream(
            {.road = wire::LiveSpec{
                 .fanouts = {4, 3}, .batch_size = 32, .seed = 5, .replace = replace, .edge_ids = true}}));
    ASSERT_OK(stream->StartPass({}));
    uint64_t checked = 0;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
      if (batch == nullptr) break;
      const BatchView& view = batch->view();
      ASSERT_EQ(view.edge_ids.size(), view.indices.size());
      for (uint32_t v = 0; v < view.target_count(); ++v) {
        for (uint32_t e = view.indptr[v]; e < view.indptr[v + 1]; ++e, ++checked) {
          const uint64_t id = view.edge_ids[e];
          ASSERT_LT(id, edges.size() / 3);
          ASSERT_EQ(edges[3 * id], view.nodes[view.indices[e]]) << "source of edge " << id;
          ASSERT_EQ(edges[3 * id + 2], view.nodes[v]) << "destination of edge " << id;
        }
      }
    }
    EXPECT_GT(checked, 1000u);
  }
}

TEST_P(StoreTest, APassThatIsGivenUpLeavesNothingToTheNext) {
  const Hashes expected = RoadPass(shared().path(), 1);
  OpenedStore store = Open(shared());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  for (size_t used = 0; used < 4; ++used) {
    SCOPED_TRACE(testing::Message() << used << " batches used");
    ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 0, .ordered = true}));
    EXPECT_EQ(DrainPass(**stream, used).size(), used);
    ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 1, .ordered = true}));
    EXPECT_EQ(DrainPass(**stream), expected);
  }
}

TEST_P(StoreTest, AStreamSaysWhatItsCallerDidWrong) {
  OpenedStore store = Open(shared());
  auto stream = store->OpenStream(SmallStream());
  ASSERT_OK(stream);
  EXPECT_EQ((*stream)->Next().status().code(), Code::kUsage) << "no pass";
  ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain}));
  std::vector<std::unique_ptr<client::Batch>> held;
  for (uint32_t i = 0; i < (*stream)->slots(); ++i) {
    auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    held.push_back(std::move(batch).value());
  }
  EXPECT_EQ((*stream)->Next().status().code(), Code::kUsage) << "all slots are held";
  EXPECT_EQ((*stream)->StartPass({.seeds = Split::kTrain}).status().code(), Code::kUsage)
      << "batches are held";
  held.clear();
  EXPECT_OK((*stream)->Next());
  EXPECT_OK((*stream)->StartPass({.seeds = Split::kValid}));
}

TEST_P(StoreTest, WhatWasPutIsSeenByWhoComesLater) {
  const TinyDatabase database({.nodes = 200, .dim = 32});
  OpenedStore store = Open(database);
  const auto row_of = [&](NodeId id) {
    const auto rows = store->Lookup({.table = "feature", .ids = std::vector<NodeId>{id}});
    EXPECT_OK(rows);
    return std::vector<std::byte>((*rows)->bytes().begin(), (*rows)->bytes().end());
  };
  auto before = store->TakeSnapshot();
  ASSERT_OK(before);
  const wire::Put put = {
      .tables = {RowsToPut("feature", {7, 8}, {database.graph().Row(100), database.graph().Row(101)}),
                 RowsToPut("label", {7}, {BytesOf(int64_t{4})})}};
  const auto first = store->Put(put);
  ASSERT_OK(first);
  EXPECT_GT(*first, (*before)->timestamp());
  EXPECT_EQ(row_of(7), database.graph().Row(100));
  EXPECT_EQ(row_of(8), database.graph().Row(101));
  const auto label = store->Lookup({.table = "label", .ids = std::vector<NodeId>{7, 9}});
  ASSERT_OK(label);
  EXPECT_EQ(At<int64_t>((*label)->bytes(), 0), 4);
  EXPECT_EQ(At<int64_t>((*label)->bytes(), 1), database.graph().Label(9));

  const auto second = store->Put({.sync = false, .tables = {RowsToPut("feature", {8}, {})}});
  ASSERT_OK(second);
  EXPECT_GT(*second, *first);
  EXPECT_EQ(row_of(8), std::vector<std::byte>(32 * 4)) << "deleted";

  const uint64_t id = (*before)->id();
  const auto old = store->Lookup({.table = "feature", .ids = std::vector<NodeId>{7, 8}, .snapshot = id});
  ASSERT_OK(old);
  EXPECT_TRUE(std::ranges::equal((*old)->bytes().first(128), database.graph().Row(7)));
  EXPECT_TRUE(std::ranges::equal((*old)->bytes().last(128), database.graph().Row(8)));
  wire::OpenStream old_stream = SmallStream();
  old_stream.snapshot = id;
  auto stream = store->OpenStream(old_stream);
  ASSERT_OK(stream);
  EXPECT_EQ((*stream)->timestamp(), (*before)->timestamp());
  ASSERT_OK((*stream)->StartPass({.seeds = wire::NodeIds(std::vector<NodeId>{7, 8})}));
  {
    const auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    const BatchView& view = (*batch)->view();
    const uint32_t at = view.nodes[0] == 7 ? 0 : 1;
    EXPECT_TRUE(std::ranges::equal(std::span(view.features.Row(at), 128), database.graph().Row(7)));
  }
  before->reset();
  EXPECT_EQ(
      store->Lookup({.table = "feature", .ids = std::vector<NodeId>{7}, .snapshot = id}).status().code(),
      Code::kUsage);
}

// 2 MiB of rows do not go into a message.
TEST_P(StoreTest, APutIsAsLargeAsItsMemory) {
  const TinyDatabase database({.nodes = 1000, .dim = 512});
  OpenedStore store = Open(database);
  std::vector<uint64_t> ids(1000);
  std::vector<std::vector<std::byte>> rows;
  for (uint64_t i = 0; i < ids.size(); ++i) {
    ids[i] = i;
    rows.push_back(database.graph().Row(static_cast<NodeId>(999 - i)));
  }
  const auto written = store->Put({.tables = {RowsToPut("feature", ids, rows)}});
  ASSERT_OK(written);
  std::vector<NodeId> nodes(ids.begin(), ids.end());
  const auto read = store->Lookup({.table = "feature", .ids = nodes});
  ASSERT_OK(read);
  for (size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(std::ranges::equal((*read)->bytes().subspan(i * 2048, 2048), rows[i])) << i;
  }
}

// The in-neighbors of each node, as the store gives its edges.
std::vector<std::multiset<NodeId>> ListsIn(client::Store& store) {
  const auto description = store.Describe();
  EXPECT_OK(description);
  std::vector<std::multiset<NodeId>> lists(description->node_count);
  const uint64_t count = description->topologies[0].edge_count;
  const auto edges = store.ReadEdges("graph", 0, count + 1);
  EXPECT_OK(edges);
  if (!edges.ok()) return {};
  EXPECT_EQ(edges->size(), 3 * count);
  for (size_t i = 0; i + 2 < edges->size(); i += 3) lists[(*edges)[i + 2]].insert((*edges)[i]);
  return lists;
}

class StoreGraphTest : public StoreTest {
 protected:
  StoreGraphTest() : lists_(kNodes) {
    for (const Edge& edge : database_.graph().Edges()) Insert(edge);
  }
  void Insert(const Edge& edge) { lists_[edge.destination].insert(static_cast<NodeId>(edge.source)); }
  void Erase(NodeId node) {
    lists_[node].clear();
    for (auto& list : lists_) list.erase(node);
  }
  uint64_t EdgeCount() const {
    uint64_t count = 0;
    for (const auto& list : lists_) count += list.size();
    return count;
  }
  static std::vector<std::byte> RowOf(client::Store& store, NodeId id, uint64_t snapshot = 0) {
    const auto rows =
        store.Lookup({.table = "feature", .ids = std::vector<NodeId>{id}, .snapshot = snapshot});
    EXPECT_OK(rows);
    if (!rows.ok()) return {};
    return {(*rows)->bytes().begin(), (*rows)->bytes().end()};
  }
  static int64_t LabelOf(client::Store& store, NodeId id) {
    const auto rows = store.Lookup({.table = "label", .ids = std::vector<NodeId>{id}});
    EXPECT_OK(rows);
    return rows.ok() ? At<int64_t>((*rows)->bytes(), 0) : -2;
  }

  static constexpr uint64_t kNodes = 200;
  const TinyDatabase database_{{.nodes = kNodes, .dim = 32}};
  const std::vector<std::byte> zeros_ = std::vector<std::byte>(32 * 4);
  std::vector<std::multiset<NodeId>> lists_;  // what there should be
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreGraphTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(StoreGraphTest, AChangeOfTheGraphIsOneCommit) {
  OpenedStore store = Open(database_);
  auto before = store->TakeSnapshot();
  ASSERT_OK(before);
  const std::vector<Edge> edges = {{200, 3}, {201, 200}, {200, 201}, {7, 7}, {7, 7}};
  const auto changed = store->ChangeGraph(
      {.tables = {RowsToPut("feature", {200, 9}, {database_.graph().Row(50), database_.graph().Row(51)}),
                  RowsToPut("label", {201}, {BytesOf(int64_t{4})})},
       .graph = GraphToPut(200, 2, edges, false, {5})});
  ASSERT_OK(changed);
  lists_.resize(202);
  Erase(5);
  for (const Edge& edge : edges) Insert(edge);
  EXPECT_GT(changed->timestamp, (*before)->timestamp());
  EXPECT_EQ(changed->timestamp, store->TakeSnapshot().value()->timestamp());
  EXPECT_EQ(changed->added, 5u);
  EXPECT_EQ(changed->removed, database_.graph().Edges().size() + 5 - EdgeCount());
  EXPECT_EQ(changed->first_node, 200u);
  EXPECT_EQ(changed->nodes_added, 2u);
  EXPECT_EQ(changed->nodes_removed, 1u);
  EXPECT_EQ(changed->node_count, 202u);
  EXPECT_EQ(changed->edge_count, EdgeCount());
  EXPECT_EQ(ListsIn(*store), lists_);
  EXPECT_EQ(RowOf(*store, 200), database_.graph().Row(50));
  EXPECT_EQ(RowOf(*store, 9), database_.graph().Row(51));
  EXPECT_EQ(RowOf(*store, 201), zeros_);
  EXPECT_EQ(RowOf(*store, 5), zeros_);
  EXPECT_EQ(LabelOf(*store, 5), -1);
  EXPECT_EQ(LabelOf(*store, 200), -1);
  EXPECT_EQ(LabelOf(*store, 201), 4);

  // Whoever came before has what there was.
  const uint64_t id = (*before)->id();
  EXPECT_EQ(RowOf(*store, 5, id), database_.graph().Row(5));
  EXPECT_EQ(RowOf(*store, 9, id), database_.graph().Row(9));
  EXPECT_THAT(store->Lookup({.table = "feature", .ids = std::vector<NodeId>{200}, .snapshot = id}),
              IsStatus(Code::kInvalidArgument));

  const uint64_t edges_before = EdgeCount();
  const auto gone = store->ChangeGraph({.graph = GraphToPut(202, 0, {{7, 7}, {199, 201}}, true)});
  ASSERT_OK(gone);
  lists_[7].erase(7);
  EXPECT_EQ(gone->removed, edges_before - EdgeCount()) << "with all parallel copies";
  EXPECT_EQ(gone->absent, 1u);
  EXPECT_EQ(ListsIn(*store), lists_);
}

TEST_P(StoreGraphTest, ARemovedNodeThatIsPutIsANodeAgain) {
  OpenedStore store = Open(database_);
  const NodeId node = database_.graph().SplitNodes(Split::kTrain)[3];
  ASSERT_OK(store->ChangeGraph({.graph = GraphToPut(kNodes, 0, {}, false, {node})}));
  const auto trains_on_it = [&] {
    const auto stream = store->OpenStream(SmallStream());
    EXPECT_OK(stream);
    EXPECT_OK((*stream)->StartPass({}));
    size_t seeds = 0, drawn = 0;
    for (;;) {
      const auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!batch.ok() || *batch == nullptr) break;
      const BatchView& view = (*batch)->view();
      seeds += static_cast<size_t>(std::ranges::count(view.seeds(), node));
      drawn += static_cast<size_t>(std::ranges::count(view.nodes, node));
    }
    return std::pair(seeds, drawn - seeds);
  };
  EXPECT_EQ(trains_on_it(), std::pair(size_t{0}, size_t{0}));
  ASSERT_OK(store->Put({.tables = {RowsToPut("feature", {node}, {database_.graph().Row(77)}),
                                   RowsToPut("label", {node}, {BytesOf(int64_t{2})}),
                                   RowsToPut("split", {node}, {BytesOf(Split::kTrain)})}}));
  EXPECT_EQ(RowOf(*store, node), database_.graph().Row(77));
  EXPECT_EQ(LabelOf(*store, node), 2);
  EXPECT_EQ(trains_on_it(), std::pair(size_t{1}, size_t{0})) << "its edges are gone";
  ASSERT_OK(store->ChangeGraph({.graph = GraphToPut(kNodes, 0, {{7, node}})}));
  Erase(node);
  Insert({7, node});
  EXPECT_EQ(ListsIn(*store), lists_);
}

TEST_P(StoreGraphTest, InPiecesItIsSeenWholeOrNotAtAll) {
  OpenedStore store = Open(database_);
  const wire::PutGraph nodes = {.first_node = kNodes, .nodes = 3};
  const auto row_of = [&](uint64_t node) { return database_.graph().Row(static_cast<NodeId>(node - 100)); };
  for (const bool commits : {false, true}) {
    SCOPED_TRACE(commits);
    auto put = store->BeginPut(nodes);
    ASSERT_OK(put);
    ASSERT_OK((*put)->Change(GraphToPut(kNodes, 3, {{199, 198}}, true, {5, 6})));
    ASSERT_OK((*put)->Change(GraphToPut(kNodes, 3, {{200, 3}, {202, 200}})));
    for (const uint64_t node : {200, 201}) {
      const wire::PutRows rows = RowsToPut("feature", {node}, {row_of(node)});
      ASSERT_OK((*put)->Add({&rows, 1}));
    }
    EXPECT_EQ(ListsIn(*store), lists_) << "until it is committed";
    EXPECT_THAT(store->ChangeGraph({.graph = GraphToPut(kNodes, 0, {{1, 2}})}), IsStatus(Code::kBusy));
    if (!commits) continue;
    ASSERT_OK((*put)->Change(GraphToPut(kNodes, 3, {{201, 201}})));
    const auto committed = (*put)->Commit();
    ASSERT_OK(committed);
    EXPECT_EQ((*put)->changed().timestamp, *committed);
    EXPECT_EQ((*put)->changed().nodes_added, 3u);
    EXPECT_EQ((*put)->changed().nodes_removed, 2u);
    EXPECT_EQ((*put)->changed().added, 3u);
  }
  lists_.resize(203);
  for (const NodeId node : {5, 6}) Erase(node);
  lists_[198].erase(199);
  for (const Edge& edge : std::vector<Edge>{{200, 3}, {202, 200}, {201, 201}}) Insert(edge);
  EXPECT_EQ(ListsIn(*store), lists_);
  EXPECT_EQ(RowOf(*store, 201), row_of(201));
  EXPECT_EQ(RowOf(*store, 202), zeros_);
  auto rows_alone = store->BeginPut();
  ASSERT_OK(rows_alone);
  EXPECT_THAT((*rows_alone)->Change(GraphToPut(203, 0, {{1, 2}})), IsStatus(Code::kUsage));
}

TEST_P(StoreGraphTest, CountsThatCannotBeAreRefused) {
  OpenedStore store = Open(database_);
  EXPECT_THAT(store->ChangeGraph({.graph = wire::PutGraph{.first_node = kNodes, .nodes = uint64_t{1} << 40}})
                  .status(),
              IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(store->ChangeGraph({.graph = wire::PutGraph{.first_node = kNodes, .edges = 3}}).status(),
              IsStatus(Code::kInvalidArgument));
  EXPECT_EQ(ListsIn(*store), lists_);
}

class StoreEmbeddingTest : public StoreTest {
 protected:
  StoreEmbeddingTest() : database_({.nodes = 100, .dim = 8}) {
    const auto backend = MakeDefaultBackend();
    const auto store = quarry::Store::Open(*backend, database_.path()).value();
    const Status made = CreateEmbeddings(*store, "nodes", {.row_count = 100, .dim = 6, .seed = 3});
    EXPECT_OK(made);
  }
  const TinyDatabase database_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreEmbeddingTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(StoreEmbeddingTest, UpdatesHappenUnlessTheirRowsAreStale) {
  const EmbeddingSpec spec = {.row_count = 100, .dim = 6, .seed = 3};
  {
    OpenedStore store = Open(database_);
    const std::vector<uint64_t> ids = {2, 5, 99};
    auto mine = store->ReadEmbeddings("nodes", ids);
    auto theirs = store->ReadEmbeddings("nodes", std::vector<uint64_t>{5, 6});
    ASSERT_TRUE(mine.ok() && theirs.ok()) << mine.status().ToString() << theirs.status().ToString();
    EXPECT_EQ((*mine)->shape().dim, 6u);
    EXPECT_EQ((*mine)->shape().state_dim, spec.state_dim());
    const auto rows = (*mine)->arrays();
    EXPECT_TRUE(std::ranges::equal(rows.ids, ids));
    std::vector<float> fresh(6);
    InitRow(spec, 5, fresh);
    EXPECT_TRUE(std::ranges::equal(rows.values.subspan(6, 6), fresh));
    std::ranges::fill(rows.values, 1.5F);
    std::ranges::fill(rows.state, 0.25F);
    const auto committed =
        store->CommitEmbeddings(std::vector<client::Store::Update>{{"nodes", mine->get()}});
    ASSERT_OK(committed);
    EXPECT_GE(committed->timestamp, 0);
    EXPECT_EQ(committed->stale_rows, 0u);
    const auto stale = store->CommitEmbeddings(std::vector<client::Store::Update>{{"nodes", theirs->get()}});
    ASSERT_OK(stale);
    EXPECT_EQ(stale->timestamp, -1);
    EXPECT_EQ(stale->stale_rows, 1u) << "row 5";
    auto again = store->ReadEmbeddings("nodes", std::vector<uint64_t>{5, 6});
    ASSERT_OK(again);
    EXPECT_EQ((*again)->arrays().timestamps[0], committed->timestamp);
    EXPECT_EQ((*again)->arrays().values[0], 1.5F);
    EXPECT_EQ((*again)->arrays().state[0], 0.25F);
  }
  OpenedStore store = Open(database_);
  auto kept = store->ReadEmbeddings("nodes", std::vector<uint64_t>{99});
  ASSERT_OK(kept);
  EXPECT_EQ((*kept)->arrays().values[5], 1.5F)
      << "a store, or its server, that ends keeps what was committed";
}

std::vector<std::byte> RandomState(uint64_t bytes, uint64_t seed) {
  Rng rng(MixSeed(kSeed, seed));
  std::vector<std::byte> state(bytes);
  for (std::byte& byte : state) byte = static_cast<std::byte>(rng());
  return state;
}

TEST_P(StoreEmbeddingTest, AStateIsThereAsItWasSavedAndTheOneBeforeIsNot) {
  // In a message; in several; more than the session's regions hold.
  for (const uint64_t bytes : {1, 100'000, 3 << 20, 20 << 20}) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", " << bytes << " bytes");
    const std::vector<std::byte> state = RandomState(bytes, bytes);
    const std::string config = "[train]\n" + std::string((32 << 10) - 8, '#');  // as large as one may be
    std::string created;
    {
      OpenedStore store = Open(database_);
      const auto saved =
          store->SaveTraining({.name = "run", .settings = "--seed 3", .config = config, .state = state});
      ASSERT_OK(saved);
      EXPECT_EQ(saved->settings, "--seed 3");
      EXPECT_EQ(saved->timestamp, -1) << "it has no embedding tables";
      created = saved->created_utc;
      const auto read = store->ReadTraining("run");
      ASSERT_OK(read);
      EXPECT_TRUE(read->state == state);
      const auto alone = store->ReadTraining("run", /*with_state=*/false);
      ASSERT_OK(alone);
      EXPECT_THAT(alone->state, IsEmpty());
      EXPECT_EQ(alone->settings, "--seed 3");
      EXPECT_EQ(alone->config, config);
    }
    OpenedStore later = Open(database_);
    const auto read = later->ReadTraining("run");
    ASSERT_OK(read);
    EXPECT_TRUE(read->state == state) << "after a restart, too";
    EXPECT_EQ(read->config, config);
    EXPECT_EQ(read->created_utc, created);
  }
}

// As a trainer of vectors saves where it is, so that both are of one moment.
TEST_P(StoreEmbeddingTest, AStateAndTheEmbeddingsThatBelongToItAreOneCheckpoint) {
  const std::vector<std::byte> state = RandomState(1000, 1);
  int64_t timestamp = 0;
  {
    OpenedStore store = Open(database_);
    auto rows = store->ReadEmbeddings("nodes", std::vector<uint64_t>{7});
    ASSERT_OK(rows);
    std::ranges::fill((*rows)->arrays().values, 2.5F);
    const auto committed =
        store->CommitEmbeddings(std::vector<client::Store::Update>{{"nodes", rows->get()}});
    ASSERT_OK(committed);
    timestamp = committed->timestamp;
    for (int i = 0; i < 2; i++) {  // the second one has nothing new to write
      const auto saved = store->SaveTraining({.name = "run", .state = state, .with_embeddings = true});
      ASSERT_OK(saved);
      EXPECT_EQ(saved->timestamp, timestamp);
    }
  }
  const auto backend = MakeDefaultBackend();
  const auto store = quarry::Store::Open(*backend, database_.path()).value();
  EXPECT_EQ(store->manifest()->FindTraining("run")->timestamp, timestamp);
  EXPECT_EQ(store->manifest()->FindEmbedding("nodes")->timestamp, timestamp);
}

TEST_P(StoreTest, EdgesAreThoseOfTheTopologyInItsOrder) {
  const auto backend = MakeDefaultBackend();
  std::vector<uint32_t> expected;
  {
    const auto store = quarry::Store::Open(*backend, shared().path()).value();
    const auto topology = store->OpenTopology("graph").value();
    ASSERT_OK(topology->LoadIndices(*backend, Adjacency::kCsc));
    const auto indptr = topology->indptr(Adjacency::kCsc);
    for (NodeId node = 0; node < 600; node++) {
      for (uint64_t edge = indptr[node]; edge < indptr[node + 1]; edge++) {
        expected.insert(expected.end(), {topology->indices(Adjacency::kCsc)[edge], 0, node});
      }
    }
  }
  const uint64_t edges = expected.size() / 3;
  OpenedStore store = Open(shared(), {.memory_bytes = 16 * kMiB});
  for (const auto& [first, count] : {std::pair<uint64_t, uint64_t>{0, edges},
                                     {0, edges + 5},
                                     {0, 1},
                                     {17, 100},
                                     {edges - 1, 7},
                                     {edges, 1},
                                     {~uint64_t{0}, 9},
                                     {3, 0}}) {
    SCOPED_TRACE(testing::Message() << count << " edges from " << first);
    const auto given = store->ReadEdges("graph", first, count);
    ASSERT_OK(given);
    const uint64_t begin = std::min(first, edges);
    const uint64_t end = begin + std::min(count, edges - begin);
    EXPECT_EQ(*given, std::vector<uint32_t>(expected.begin() + static_cast<ptrdiff_t>(3 * begin),
                                            expected.begin() + static_cast<ptrdiff_t>(3 * end)));
  }
}

// A graph that edges come to and go from, as commits leave it: by destination, then by source.
class GrowingEdges {
 public:
  explicit GrowingEdges(client::Store& store) : store_(store) {
    const auto all = store.ReadEdges("graph", 0, 1 << 20);
    EXPECT_OK(all);
    for (size_t i = 0; all.ok() && i < all->size(); i += 3) edges_.insert({(*all)[i + 2], (*all)[i]});
  }
  // One edge comes, or goes with its copies.
  void Change(NodeId head, NodeId tail, bool remove) {
    wire::PutGraph graph = {.first_node = 600, .edges = 1, .remove = remove};
    std::vector<std::byte> block(2 * sizeof(NodeId));
    std::memcpy(block.data(), &head, sizeof(head));
    std::memcpy(block.data() + sizeof(head), &tail, sizeof(tail));
    graph.block = std::move(block);
    ASSERT_OK_AND_ASSIGN(const wire::GraphChanged changed, store_.ChangeGraph({.graph = std::move(graph)}));
    if (remove) edges_.erase({tail, head});
    for (uint64_t i = 0; !remove && i < changed.added; ++i) edges_.insert({tail, head});
  }
  uint64_t size() const { return edges_.size(); }
  std::pair<NodeId, NodeId> first() const { return {edges_.begin()->second, edges_.begin()->first}; }
  std::vector<uint32_t> Numbers() const {
    std::vector<uint32_t> numbers;
    for (const auto& [tail, head] : edges_) numbers.insert(numbers.end(), {head, 0, tail});
    return numbers;
  }

 private:
  client::Store& store_;
  std::multiset<std::pair<NodeId, NodeId>> edges_;  // tail, head
};

// The last answer was full, so that a server has closed the list before it is asked for more.
TEST_P(StoreTest, AListOfEdgesThatEndedFullIsNotGoneOnWithByAnother) {
  const TinyDatabase database({.nodes = 600});
  OpenedStore store = Open(database);
  GrowingEdges graph(*store);
  uint64_t list = 0;
  const uint64_t size = graph.size();
  ASSERT_OK_AND_ASSIGN(const auto before, store->ReadEdges("graph", 0, size, &list));
  ASSERT_EQ(before, graph.Numbers());
  ASSERT_NE(list, 0u);
  ASSERT_OK_AND_ASSIGN(const auto none, store->ReadEdges("graph", size, 10, &list));
  EXPECT_THAT(none, IsEmpty());
  graph.Change(3, 599, /*remove=*/false);
  graph.Change(5, 599, /*remove=*/false);
  ASSERT_GT(graph.size(), size);
  const auto more = store->ReadEdges("graph", size, 10, &list);
  EXPECT_EQ(more.status().code(), Code::kBusy);
  EXPECT_THAT(more.status().message(),
              HasSubstr("topology \"graph\": edges came or went, so these are of another list"));
  list = 0;
  ASSERT_OK_AND_ASSIGN(const auto anew, store->ReadEdges("graph", 0, size + 10, &list));
  EXPECT_EQ(anew, graph.Numbers());
}

// What a manifest says of a topology names its list: who has read the one gets the other, or is told.
TEST_P(StoreTest, AListOfEdgesIsTheManifestsOrRefused) {
  const TinyDatabase database({.nodes = 600});
  OpenedStore store = Open(database);
  const auto number = [&] {
    const auto bytes = store->ReadManifest();
    EXPECT_OK(bytes);
    const auto manifest = DecodeManifest(*bytes, "the store");
    EXPECT_OK(manifest);
    return EdgeList::NumberOf(*manifest->FindTopology("graph"));
  };
  GrowingEdges graph(*store);
  uint64_t list = number();
  ASSERT_OK_AND_ASSIGN(const auto before, store->ReadEdges("graph", 0, 1 << 20, &list));
  EXPECT_EQ(before, graph.Numbers());
  EXPECT_EQ(list, number());
  graph.Change(7, 11, /*remove=*/false);
  const auto late = store->ReadEdges("graph", 0, before.size() / 3, &list);
  EXPECT_EQ(late.status().code(), Code::kBusy);
  EXPECT_THAT(late.status().message(), HasSubstr("than the one that was begun: begin again"));
  EXPECT_NE(list, number());
  list = number();
  ASSERT_OK_AND_ASSIGN(const auto after, store->ReadEdges("graph", 0, 1 << 20, &list));
  EXPECT_EQ(after, graph.Numbers());
  ASSERT_OK(store->Maintain(wire::CompactTable{.table = "graph", .topology = true}));
  EXPECT_EQ(list, number());  // the same edges in another file
}

// Pieces of any size, with commits between any two of them: a list that is read to its end is the one that was there when it
// began.
TEST_P(StoreTest, AListOfEdgesIsOfOneCommit) {
  for (uint64_t seed = 1; seed <= Repetitions(4); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TinyDatabase database({.nodes = 600});
    OpenedStore store = Open(database);
    GrowingEdges graph(*store);
    Rng rng(seed);
    for (int round = 0; round < 6; ++round) {
      uint64_t list = 0;
      const std::vector<uint32_t> begun = graph.Numbers();
      const uint64_t size = begun.size() / 3;
      const uint64_t piece = rng.Below(2) == 0 ? size : 1 + rng.Below(size);  // the first one ends full
      std::vector<uint32_t> read;
      bool changed = false;
      while (true) {
        const auto given = store->ReadEdges("graph", read.size() / 3, piece, &list);
        if (!given.ok()) {
          EXPECT_EQ(given.status().code(), Code::kBusy) << given.status().ToString();
          EXPECT_TRUE(changed);
          break;
        }
        read.insert(read.end(), given->begin(), given->end());
        if (given->size() < 3 * piece) {
          EXPECT_EQ(read, begun);
          break;
        }
        if (rng.Below(2) == 0) continue;
        const auto [head, tail] = graph.first();
        if (rng.Below(2) == 0) {
          graph.Change(head, tail, /*remove=*/true);
        } else {
          graph.Change(static_cast<NodeId>(rng.Below(600)), static_cast<NodeId>(rng.Below(600)), false);
        }
        changed = true;
      }
    }
  }
}

TEST_P(StoreTest, ThreadsUseOneStoreAtATime) {
  const TinyDatabase database({.nodes = 400, .dim = 16});
  const Hashes expected = RoadPass(database.path(), 2);
  OpenedStore store = Open(database);
  std::atomic<uint64_t> rows_read{0};
  const auto look_up = [&](uint64_t thread) {
    Rng rng(MixSeed(kSeed, thread));
    for (int round = 0; round < 50; ++round) {
      std::vector<NodeId> ids(1 + rng.Below(200));
      for (NodeId& id : ids) id = 200 + static_cast<NodeId>(rng.Below(200));
      const auto rows = store->Lookup({.table = "feature", .ids = ids});
      ASSERT_OK(rows);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_TRUE(std::ranges::equal((*rows)->bytes().subspan(i * 64, 64), database.graph().Row(ids[i])));
      }
      rows_read += ids.size();
    }
  };
  const auto sample = [&] {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const auto batch = store->Sample({.seeds = {1, 2, 3}, .fanouts = {3, 3}, .stream_seed = seed});
      ASSERT_OK(batch);
    }
  };
  const auto put = [&] {
    for (uint64_t round = 0; round < 20; ++round) {
      const wire::Put request = {
          .sync = false, .tables = {RowsToPut("label", {round}, {BytesOf(static_cast<int64_t>(round % 5))})}};
      ASSERT_OK(store->Put(request));
    }
  };
  auto before = store->TakeSnapshot();
  ASSERT_OK(before);
  wire::OpenStream request = SmallStream();
  request.snapshot = (*before)->id();
  auto stream = store->OpenStream(request);
  ASSERT_OK(stream);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i) threads.emplace_back(look_up, i);
  threads.emplace_back(sample);
  threads.emplace_back(put);
  for (int round = 0; round < 3; ++round) {
    ASSERT_OK((*stream)->StartPass({.seeds = Split::kTrain, .pass = 2, .ordered = true}));
    EXPECT_EQ(DrainPass(**stream), expected);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(rows_read, 0u);
}

TEST_P(StoreTest, MembersOfAGroupShareItsBatchesOrShareThemOut) {
  if (GetParam() == StoreKind::kEmbedded) {
    wire::OpenStream request = SmallStream();
    request.mode = wire::StreamMode::kShared;
    request.group = "all";
    const Status refused = Open(shared())->OpenStream(request).status();
    EXPECT_EQ(refused.code(), Code::kUnsupported);
    EXPECT_THAT(refused.message(), testing::HasSubstr("quarry serve"));
    return;
  }
  const Hashes expected = RoadPass(shared().path(), 4);
  OpenedStore store = Open(shared());
  for (const auto mode : {wire::StreamMode::kShared, wire::StreamMode::kSplit}) {
    SCOPED_TRACE(mode == wire::StreamMode::kShared ? "shared" : "split");
    wire::OpenStream request = SmallStream();
    request.mode = mode;
    request.group = mode == wire::StreamMode::kShared ? "all" : "each";
    request.members = 2;
    std::vector<std::unique_ptr<client::Stream>> streams;
    for (int i = 0; i < 2; ++i) {
      auto stream = store->OpenStream(request);
      ASSERT_OK(stream);
      streams.push_back(std::move(stream).value());
    }
    std::vector<Hashes> seen(2);
    const auto train = [&](size_t member) {
      const auto pass = streams[member]->StartPass({.seeds = Split::kTrain, .pass = 4, .ordered = true});
      ASSERT_OK(pass);
      seen[member] = DrainPass(*streams[member]);
    };
    std::thread other(train, 1);
    train(0);
    other.join();
    if (mode == wire::StreamMode::kShared) {
      EXPECT_EQ(seen[0], expected);
      EXPECT_EQ(seen[1], expected);
    } else {
      EXPECT_GT(seen[0].size(), 0u);
      EXPECT_GT(seen[1].size(), 0u);
      Hashes together = seen[0];
      together.insert(together.end(), seen[1].begin(), seen[1].end());
      std::ranges::sort(together);
      EXPECT_EQ(together, expected);
    }
  }
}

// What a store says to requests that it cannot serve.
std::vector<std::string> Refusals(client::Store& store) {
  const std::vector<NodeId> ids = {1, 2};
  const wire::Range range = {.region = 1, .offset = 0, .bytes = 8};
  std::vector<float> row(128, 1.0F);
  row[3] = INFINITY;
  const auto infinite = std::as_bytes(std::span(row));
  std::vector<Status> statuses = {
      store.Lookup({.table = "nothing", .ids = ids}).status(),
      store.Lookup({.table = "../../x", .ids = ids}).status(),
      store.Lookup({.table = "feature", .ids = std::vector<NodeId>{1, 600}}).status(),
      store.Lookup({.table = "feature", .ids = range}).status(),
      store.Lookup({.table = "feature", .ids = ids, .snapshot = 99}).status(),
      store.Sample({.topology = "nothing", .seeds = {1}, .fanouts = {2}}).status(),
      store.Sample({.seeds = {1}, .fanouts = {0}}).status(),
      store.Sample({.seeds = {1, 1}, .fanouts = {2}}).status(),
      store.Sample({.seeds = {600}, .fanouts = {2}}).status(),
      store.Sample({.seeds = {1}, .fanouts = {2}, .direction = Direction::kOut}).status(),
      store.Sample({.seeds = {1}, .fanouts = {2}, .direction = Direction::kBoth, .edge_ids = true}).status(),
      store.OpenStream({.road = wire::LiveSpec{.direction = Direction::kOut, .edge_ids = true}}).status(),
      store.OpenStream({.road = wire::SuperbatchSpec{.live = {.feature_table = "nothing"}}}).status(),
      store.OpenStream({.road = wire::LiveSpec{.feature_table = "nothing"}}).status(),
      store.OpenStream({.road = wire::LiveSpec{.fanouts = {}}}).status(),
      store.OpenStream({.road = wire::PlannedSpec{.layout = "nothing"}}).status(),
      store.OpenStream({.road = wire::LiveSpec{}, .mode = wire::StreamMode::kShared}).status(),
      store.OpenStream({.road = wire::LiveSpec{}, .snapshot = 99}).status(),
      store.Put({.tables = {}}).status(),
      store.Put({.tables = {RowsToPut("nothing", {1}, {BytesOf(int64_t{1})})}}).status(),
      store.Put({.tables = {RowsToPut("label", {600}, {BytesOf(int64_t{1})})}}).status(),
      store.Put({.tables = {RowsToPut("label", {1}, {BytesOf(int64_t{-5})})}}).status(),
      store.Put({.tables = {RowsToPut("feature", {1}, {BytesOf(int64_t{1})})}}).status(),
      store.Put({.tables = {RowsToPut("feature", {1}, {{infinite.begin(), infinite.end()}})}}).status(),
      store.Put({.tables = {{.table = "label", .rows = 1, .row_bytes = 8, .block = range}}}).status(),
      store.ReadEmbeddings("nothing", std::vector<uint64_t>{1}).status(),
      store.ChangeGraph({.graph = GraphToPut(600, 0, {{1, 600}})}).status(),
      store.ChangeGraph({.graph = GraphToPut(600, 1, {{601, 1}})}).status(),
      store.ChangeGraph({.graph = GraphToPut(599, 1, {{1, 2}})}).status(),
      store.ChangeGraph({.graph = GraphToPut(600, 0, {}, false, {600})}).status(),
      store.ChangeGraph({.graph = GraphToPut(600, 0, {{5, 1}}, false, {5})}).status(),
      store.ChangeGraph({.graph = wire::PutGraph{.topology = "nothing", .first_node = 600, .nodes = 1}})
          .status(),
      store.ChangeGraph({.graph = wire::PutGraph{.first_node = 600, .nodes = 1, .names = {"a"}}}).status(),
      store.ChangeGraph({.graph = wire::PutGraph{.first_node = 600, .nodes = 1, .node_type = "a"}}).status(),
      store.ChangeGraph({.graph = wire::PutGraph{.first_node = 600, .edges = 1, .block = range}}).status(),
      store
          .ChangeGraph(
              {.tables = {RowsToPut("label", {601}, {BytesOf(int64_t{1})})}, .graph = GraphToPut(600, 1, {})})
          .status(),
  };
  const std::byte byte{};
  statuses.push_back(store.ReadTraining("nothing").status());
  statuses.push_back(store.ReadTraining("../../x").status());
  statuses.push_back(store.SaveTraining({.name = "../../x", .state = {&byte, 1}}).status());
  statuses.push_back(store.SaveTraining({.name = "run"}).status());
  statuses.push_back(store.SaveTraining({.name = "run", .state = {&byte, size_t{10} << 30}}).status());
  statuses.push_back(
      store.SaveTraining({.name = "run", .settings = std::string(5000, 'a'), .state = {&byte, 1}}).status());
  statuses.push_back(
      store.SaveTraining({.name = "run", .config = std::string(33'000, 'a'), .state = {&byte, 1}}).status());
  statuses.push_back(store.ReadEdges("nothing", 0, 1).status());
  statuses.push_back(store.ReadEdges("../../x", 0, 1).status());
  for (const wire::MaintenanceTask& task : std::initializer_list<wire::MaintenanceTask>{
           wire::CompactTable{"nothing"}, wire::CompactTable{"../../x"}, wire::RebuildLayout{"nothing"},
           wire::DropLayout{"nothing"}, wire::BuildLayout{.name = "../../x"}, wire::CheckpointDatabase{},
           wire::CreateEmbeddings{"../../x", {.row_count = 1, .dim = 1}}, wire::CreateEmbeddings{"x", {}},
           wire::DropEmbeddings{"nothing"}}) {
    statuses.push_back(store.Maintain(task).status());
  }
  auto stream = store.OpenStream(SmallStream());
  EXPECT_OK(stream);
  statuses.push_back((*stream)->Next().status());
  statuses.push_back((*stream)->StartPass({.seeds = wire::NodeIds(std::vector<NodeId>{600})}).status());
  statuses.push_back((*stream)->StartPass({.seeds = wire::NodeIds(std::vector<NodeId>{5, 5})}).status());
  statuses.push_back((*stream)->StartPass({.seeds = wire::NodeIds(range)}).status());
  statuses.push_back((*stream)->StartPass({.seeds = Split::kNone}).status());
  std::vector<std::string> texts;
  for (const Status& status : statuses) {
    EXPECT_FALSE(status.ok()) << "refusal " << texts.size();
    texts.push_back(status.ToString());
  }
  return texts;
}

TEST_P(StoreTest, RefusalsHaveTheSameCodeAndWords) {
  const TinyDatabase database({.nodes = 600});
  std::vector<std::string> embedded;
  {
    OpenedStore store(StoreKind::kEmbedded, database.path());
    embedded = Refusals(*store);
  }
  OpenedStore store = Open(database);
  const std::vector<std::string> texts = Refusals(*store);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], embedded[i]) << "refusal " << i;
}

TEST(OpenTest, SaysWhyThereIsNoStore) {
  const TemporaryFolder folder("nobody");
  EXPECT_EQ(client::Open(folder / "nothing.db").status().code(), Code::kNotFound);
  EXPECT_EQ(client::Open("unix:" + (folder / "q.sock")).status().code(), Code::kNotFound);
  EXPECT_EQ(client::Open("unix:").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client::Open("unix:" + std::string(200, 'x')).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client::OpenRemote(folder / "q.sock").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client::OpenRemote("unix:q.sock", {.timeout_seconds = 0}).status().code(),
            Code::kInvalidArgument);
}

TEST(OpenTest, ASessionThatCannotHaveItsLeastMemoryIsTold) {
  const TinyDatabase database({.nodes = 50, .dim = 8});
  const TemporaryFolder folder("memory");
  TestServer server(database.path(), folder / "s/q.sock");
  const auto store = client::Open(server.address(), {.memory_bytes = kGiB, .memory_bytes_min = kGiB});
  EXPECT_EQ(store.status().code(), Code::kOutOfBudget) << store.status().ToString();
}

}  // namespace
}  // namespace quarry
