// Published sets and .safetensors files, imported: all that was written to them is in the database.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "quarry/import/import.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/store.h"
#include "storage/store_rows.h"
#include "support/published_sets.h"
#include "support/safetensors_file.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using TypedEdges = std::vector<SmallGraph::TypedEdge>;
using Triples = std::vector<std::tuple<int64_t, int64_t, int64_t>>;  // head, relation, tail

// Sorted, with relation 0 for all unless `typed`.
Triples Expected(const TypedEdges& edges, bool typed) {
  Triples triples;
  for (const auto& edge : edges)
    triples.emplace_back(edge.source, typed ? edge.relation : 0, edge.destination);
  std::sort(triples.begin(), triples.end());
  return triples;
}

class ImportSetsTest : public testing::Test {
 protected:
  // The database of the source; faults fail the test.
  std::unique_ptr<Store> ImportFrom(const std::string& source, const SourceHints& hints = {},
                                    const ImportOptions& options = {}) {
    const std::string path = folder_ / fmt::format("{}.db", count_++);
    auto dataset = OpenDataset(source, hints);
    EXPECT_OK(dataset);
    if (!dataset.ok()) return nullptr;
    const Status status = ImportDatabase(*backend_, path, std::move(*dataset), options);
    EXPECT_OK(status);
    auto store = Store::Open(*backend_, path);
    EXPECT_OK(store);
    if (!store.ok()) return nullptr;
    EXPECT_EQ(testing_util::FaultsIn(**store), "");
    return std::move(*store);
  }
  std::unique_ptr<Store> Import(const SourceHints& hints = {}, const ImportOptions& options = {}) {
    return ImportFrom(set_.path(), hints, options);
  }

  Triples Edges(Store& store, std::string_view topology) {
    MemoryBudget budget(64 << 20);
    const auto edges = EdgeList::Open(store, budget, topology);
    EXPECT_OK(edges);
    if (!edges.ok()) return {};
    std::vector<Triple> read((*edges)->size());
    (*edges)->Read(0, read);
    Triples triples;
    for (const Triple& triple : read) triples.emplace_back(triple.head, triple.relation, triple.tail);
    std::sort(triples.begin(), triples.end());
    return triples;
  }

  // All rows of a table, one after another.
  template <typename T>
  std::vector<T> Values(Store& store, const std::string& table) {
    std::vector<T> values;
    for (const auto& row : testing_util::RowsNow(store, table)) {
      const size_t first = values.size();
      values.resize(first + row.size() / sizeof(T));
      std::memcpy(values.data() + first, row.data(), row.size());
    }
    return values;
  }

  void ExpectSplits(Store& store, const SmallGraph& graph) {
    std::vector<uint8_t> expected(graph.nodes);
    for (size_t i = 0; i < 3; i++) {
      for (const int32_t node : graph.splits[i])
        expected[static_cast<size_t>(node)] = static_cast<uint8_t>(i + 1);
    }
    EXPECT_EQ(Values<uint8_t>(store, "split"), expected);
  }

  const SmallGraph graph_ = RandomSmallGraph(1);
  const TemporaryFolder set_{"set"};
  const TemporaryFolder folder_{"import"};
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
  int count_ = 0;
};

TEST_F(ImportSetsTest, Papers100MComesOutOfItsArchives) {
  for (const bool deflate : {false, true}) {
    WritePapers100M(set_, graph_, deflate);
    const auto store = Import();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->manifest()->node_count, graph_.nodes);
    EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
    EXPECT_EQ(Values<float>(*store, "feature"), graph_.features);
    EXPECT_EQ(Values<int64_t>(*store, "label"), graph_.labels);
    ExpectSplits(*store, graph_);
  }
}

TEST_F(ImportSetsTest, Mag240MComesInByItsPapersAndItsSplitsOrThoseThatAreStated) {
  WriteMag240M(set_, graph_);
  auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->FindTable("feature")->element_type, ElementType::kFloat16);
  EXPECT_EQ(Values<uint16_t>(*store, "feature"), graph_.halves);
  EXPECT_EQ(Values<int64_t>(*store, "label"), graph_.labels);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
  ExpectSplits(*store, graph_);

  SmallGraph mine = graph_;
  std::swap(mine.splits[0], mine.splits[1]);
  store = Import({.train = set_.Write("mine/train.npy", NpyVector(mine.splits[0])),
                  .valid = set_.Write("mine/valid.npy", NpyVector(mine.splits[1])),
                  .test = set_.Write("mine/test.npy", NpyVector(mine.splits[2]))});
  ASSERT_NE(store, nullptr);
  ExpectSplits(*store, mine);
}

TEST_F(ImportSetsTest, IgbComesInWithAndWithoutHeaders) {
  for (const bool headerless : {false, true}) {
    SCOPED_TRACE(headerless);
    WriteIgb(set_, graph_, headerless);
    SourceHints hints{.labels = set_ / "processed/paper/node_label_19.npy"};
    if (headerless) {
      hints.node_count = graph_.nodes;
      hints.feature_dim = SmallGraph::kDim;
      hints.raw_type = "float32";
    }
    const auto store = Import(hints);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->manifest()->node_count, graph_.nodes);
    EXPECT_EQ(Values<float>(*store, "feature"), graph_.features);
    EXPECT_EQ(Values<int64_t>(*store, "label"), graph_.labels);
    EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
  }
}

TEST_F(ImportSetsTest, MariusFoldersForNodesComeInWhole) {
  WriteMariusNodes(set_, graph_);
  const auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->node_count, graph_.nodes);
  EXPECT_EQ(Values<float>(*store, "feature"), graph_.features);
  EXPECT_EQ(Values<int64_t>(*store, "label"), graph_.labels);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
  ExpectSplits(*store, graph_);
}

TEST_F(ImportSetsTest, MariusFoldersForLinksKeepTheirPartsAndRelations) {
  for (const bool typed : {false, true}) {
    SCOPED_TRACE(typed);
    typed ? WriteMariusLinks<int32_t>(set_, graph_, typed) : WriteMariusLinks<int64_t>(set_, graph_, typed);
    const auto store = Import();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->manifest()->FindTopology("graph")->relation_count, typed ? 5u : 1u);
    EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, typed));
    EXPECT_EQ(Edges(*store, "valid"), Expected(graph_.valid, typed));
    EXPECT_EQ(Edges(*store, "test"), Expected(graph_.test, typed));
  }
}

TEST_F(ImportSetsTest, LinksWithoutRelationsHaveReversesOfARelationOfTheirOwn) {
  WriteMariusLinks<int32_t>(set_, graph_, false);
  const auto store = Import({}, {.add_reverse = true});
  ASSERT_NE(store, nullptr);
  TypedEdges both = graph_.test;
  for (auto& edge : both) edge.relation = 0;
  for (const auto& edge : graph_.test) both.push_back({edge.destination, 1, edge.source});
  EXPECT_EQ(Edges(*store, "test"), Expected(both, true));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kRelation, "edge_reverse"), 1u);
}

TEST_F(ImportSetsTest, OgbLinkSetsComeInAsTheyAreDownloaded) {
  for (const bool typed : {false, true}) {
    SCOPED_TRACE(typed);
    WriteOgbLinks(set_, graph_, typed);
    const auto store = Import();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->manifest()->node_count, graph_.nodes);
    EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, typed));
    EXPECT_EQ(Edges(*store, "valid"), Expected(graph_.valid, typed));
    EXPECT_EQ(Edges(*store, "test"), Expected(graph_.test, typed));  // two edges: pairs, not rows
  }
}

TEST_F(ImportSetsTest, OgbLinkSplitsThatWereSavedAsArraysGoFirst) {
  WriteOgbLinks(set_, graph_, false);
  set_.Write("split/time/valid.csv.gz", Gzip(EdgeLines(graph_.test)));
  set_.Write("split/time/test.npy", NpyEdgePairs(graph_.valid));
  const auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
  EXPECT_EQ(Edges(*store, "valid"), Expected(graph_.test, false));
  EXPECT_EQ(Edges(*store, "test"), Expected(graph_.valid, false));
}

TEST_F(ImportSetsTest, OgbLinkSetsTakeTheKeysThatTheirPicklesHave) {
  WriteOgbLinks(set_, graph_, false);
  WriteNpz(set_, "split/time/train.npz", {{"edge", NpyEdgePairs(graph_.valid)}}, true);
  WriteNpz(set_, "split/time/valid.npz",
           {{"source_node", NpyVector(Column<int64_t>(graph_.test, &SmallGraph::TypedEdge::source))},
            {"target_node", NpyVector(Column<int64_t>(graph_.test, &SmallGraph::TypedEdge::destination))},
            {"target_node_neg", NpyFile(std::vector<int64_t>(6), {2, 3})}},
           true);
  const auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.valid, false));
  EXPECT_EQ(Edges(*store, "valid"), Expected(graph_.test, false));
  EXPECT_EQ(Edges(*store, "test"), Expected(graph_.test, false));
}

TEST_F(ImportSetsTest, OgbLinkSetsWithRelationsAreTriples) {
  WriteOgbLinks(set_, graph_, true);
  WriteNpz(set_, "split/time/valid.npz", TripleMembers(graph_.valid), true);
  const std::vector<int64_t> test = FlatEdges<int64_t>(graph_.edges, true);
  set_.Write("split/time/test.npy", NpyFile(test, {graph_.edges.size(), 3}));
  const auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->FindTopology("graph")->relation_count, 5u);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, true));
  EXPECT_EQ(Edges(*store, "valid"), Expected(graph_.valid, true));
  EXPECT_EQ(Edges(*store, "test"), Expected(graph_.edges, true));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kRelation, "4"), 4u);
}

TEST_F(ImportSetsTest, TriplesHaveFeaturesWhereADictionaryNumbersTheirNodes) {
  set_.Write("train.txt", "c\tr\ta\n");
  set_.Write("features.npy", NpyFile<float>({1, 2, 3}, {3, 1}));
  set_.Write("labels.npy", NpyVector<int64_t>({0, 1, -1}));
  set_.Write("train_idx.npy", NpyVector<int64_t>({1}));
  auto store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->tables.size(), 0u);
  set_.Write("entities.dict", "0\ta\n1\tb\n2\tc\n");
  store = Import();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(Edges(*store, "graph"), (Triples{{2, 0, 0}}));
  EXPECT_EQ(Values<float>(*store, "feature"), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Values<int64_t>(*store, "label"), (std::vector<int64_t>{0, 1, -1}));
  EXPECT_EQ(Values<uint8_t>(*store, "split"), (std::vector<uint8_t>{0, 1, 0}));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kEntity, "b"), 1u);
}

TEST_F(ImportSetsTest, ASafetensorsFileHoldsAGraph) {
  std::string mask(graph_.nodes, '\0');
  for (const int32_t node : graph_.splits[1]) mask[static_cast<size_t>(node)] = 1;
  const std::vector<int32_t> labels(graph_.labels.begin(), graph_.labels.end());
  const std::vector<int64_t> pairs = FlatEdges<int64_t>(graph_.edges, false);
  const std::string path = set_.Write(
      "graph.safetensors",
      SafetensorsFile({{"x", "F32", {graph_.nodes, SmallGraph::kDim}, RawBytes(graph_.features)},
                       {"edge_index", "I64", {graph_.edges.size(), 2}, RawBytes(pairs)},
                       {"y", "I32", {graph_.nodes}, RawBytes(labels)},
                       {"edge_attr", "F8_E4M3", {3}, "???"},
                       {"train_idx", "I32", {graph_.splits[0].size()}, RawBytes(graph_.splits[0])},
                       {"val_mask", "BOOL", {graph_.nodes}, mask},
                       {"test_idx", "I32", {graph_.splits[2].size()}, RawBytes(graph_.splits[2])}}));
  const auto store = ImportFrom(path);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->node_count, graph_.nodes);
  EXPECT_EQ(Values<float>(*store, "feature"), graph_.features);
  EXPECT_EQ(Values<int64_t>(*store, "label"), graph_.labels);
  EXPECT_EQ(Edges(*store, "graph"), Expected(graph_.edges, false));
  ExpectSplits(*store, graph_);
}

TEST_F(ImportSetsTest, SafetensorsGiveFeaturesToAnotherGraph) {
  set_.Write("edges.npy", NpyEdgePairs(graph_.edges));
  for (const auto& [dtype, type] :
       {std::pair("F16", ElementType::kFloat16), std::pair("BF16", ElementType::kBfloat16)}) {
    const std::string path = set_.Write(
        "rows.safetensors",
        SafetensorsFile({{"features", dtype, {graph_.nodes, SmallGraph::kDim}, RawBytes(graph_.halves)}}));
    const auto store = Import({.features = path});
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->manifest()->FindTable("feature")->element_type, type);
    EXPECT_EQ(Values<uint16_t>(*store, "feature"), graph_.halves);
  }
}

}  // namespace
}  // namespace quarry
