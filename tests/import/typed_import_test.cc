// Graphs with types of nodes and edges: what an import makes of a folder for each, and every refusal by its words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/store.h"
#include "storage/store_rows.h"
#include "support/published_sets.h"
#include "support/status_matchers.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using EdgesByType = std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>;

class TypedImport : public testing::Test {
 protected:
  Status Import(const ImportOptions& options = {}, const SourceHints& hints = {}) {
    std::filesystem::remove_all(database_);
    QUARRY_TRY(Dataset dataset, OpenDataset(set_.path(), hints));
    return ImportDatabase(*backend_, database_, std::move(dataset), options);
  }
  std::unique_ptr<Store> Opened() {
    auto store = Store::Open(*backend_, database_);
    EXPECT_OK(store);
    EXPECT_EQ(testing_util::FaultsIn(**store), "");
    return std::move(store).value();
  }

  // The edges of the graph as ids of their types; that lists are by relation is checked as they are read.
  static EdgesByType EdgesOf(Store& store) {
    MemoryBudget budget(64 << 20);
    const auto edges = EdgeList::Open(store, budget, "graph");
    EXPECT_OK(edges);
    std::vector<Triple> read((*edges)->size());
    (*edges)->Read(0, read);
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    EdgesByType by_type;
    for (size_t i = 0; i < read.size(); ++i) {
      const EdgeTypeRecord& type = manifest->edge_types[read[i].relation];
      by_type[EdgeTypeName(manifest->node_types, type)].emplace_back(
          read[i].head - manifest->node_types[type.source].first,
          read[i].tail - manifest->node_types[type.destination].first);
      if (i == 0) continue;
      const auto place = [](const Triple& edge) { return std::tuple(edge.tail, edge.relation, edge.head); };
      EXPECT_LE(place(read[i - 1]), place(read[i]));
    }
    for (auto& [name, pairs] : by_type) std::ranges::sort(pairs);
    return by_type;
  }

  const TemporaryFolder set_{"typed-set"};
  const TemporaryFolder folder_{"typed-import"};
  const std::string database_ = folder_ / "typed.db";
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
};

template <typename T>
std::vector<T> ValuesOf(Store& store, const std::string& table) {
  std::vector<T> values;
  for (const auto& row : testing_util::RowsNow(store, table)) {
    const size_t first = values.size();
    values.resize(first + row.size() / sizeof(T));
    std::memcpy(values.data() + first, row.data(), row.size());
  }
  return values;
}

// Holds a database against the set, whose types may stand in another order there.
void ExpectDatabase(Store& store, const TypedSet& set, const EdgesByType& edges) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  ASSERT_EQ(manifest->node_count, set.node_count());
  ASSERT_EQ(manifest->node_types.size(), set.nodes.size());
  std::vector<int64_t> labels;
  std::vector<uint8_t> splits(set.node_count());
  for (const NodeTypeRecord& type : manifest->node_types) {
    const auto found = std::ranges::find(set.nodes, type.name, &TypedSet::Nodes::name);
    ASSERT_NE(found, set.nodes.end()) << type.name;
    const TypedSet::Nodes& expected = *found;
    const auto t = static_cast<size_t>(found - set.nodes.begin());
    EXPECT_EQ(std::tuple(type.first, type.count), std::tuple(labels.size(), expected.count));
    EXPECT_EQ(type.feature_table, expected.dim == 0 ? "" : expected.name + ".feature");
    EXPECT_EQ(type.class_count, expected.labels ? 3 + 4 * t : 0);
    for (size_t i = 0; i < 3; ++i) {
      for (const int64_t node : expected.splits[i]) {
        splits[type.first + static_cast<uint64_t>(node)] = static_cast<uint8_t>(i + 1);
      }
    }
    std::vector<float> rows;
    for (uint64_t node = 0; node < expected.count; ++node) {
      labels.push_back(expected.labels ? set.Label(t, node) : -1);
      for (uint64_t j = 0; j < expected.dim; ++j) rows.push_back(set.Feature(t, node, j));
    }
    if (expected.dim > 0) {
      EXPECT_EQ(ValuesOf<float>(store, type.feature_table), rows);
    }
  }
  EXPECT_EQ(ValuesOf<int64_t>(store, "label"), labels);
  EXPECT_EQ(ValuesOf<uint8_t>(store, "split"), splits);
  EdgesByType expected;
  for (const TypedSet::Edges& type : set.edges) {
    auto& pairs = expected[set.EdgeName(type)];
    pairs = type.pairs;
    std::ranges::sort(pairs);
  }
  EXPECT_EQ(edges, expected);
  for (const EdgeTypeRecord& type : manifest->edge_types) {
    EXPECT_EQ(type.edge_count, expected.at(EdgeTypeName(manifest->node_types, type)).size());
  }
}

TEST_F(TypedImport, TakesAFolderForEachTypeWhole) {
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const TypedSet set = RandomTypedSet(seed);
    set.WriteTo(set_);
    ASSERT_OK(Import());
    const auto store = Opened();
    ExpectDatabase(*store, set, EdgesOf(*store));
    for (size_t t = 0; t < set.nodes.size(); ++t)
      EXPECT_EQ(store->manifest()->node_types[t].name, set.nodes[t].name);
  }
}

// Targets are one table of all nodes, NaN where a type has none.
TEST_F(TypedImport, TargetsOfTypesAreOneTable) {
  const TypedSet set = RandomTypedSet(3, 50);
  set.WriteTo(set_);
  const auto write = [&](size_t type, uint64_t columns, uint64_t rows) {
    std::vector<float> values(rows * columns);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(type * 1000 + i) / 8;
    set_.Write(set.nodes[type].name + "/targets.npy", NpyFile(values, {rows, columns}));
    return values;
  };
  std::vector<float> expected(set.nodes[0].count * 3, std::numeric_limits<float>::quiet_NaN());
  for (const size_t type : {1, 2}) {
    const std::vector<float> values = write(type, 3, set.nodes[type].count);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  ASSERT_OK(Import());
  {
    const auto store = Opened();
    const std::vector<float> found = ValuesOf<float>(*store, "target");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))) << i;
    }
  }
  write(2, 2, set.nodes[2].count);
  EXPECT_THAT(Import(), IsStatus(Code::kInvalidArgument,
                                 HasSubstr("targets of type 'field-of_study' are 2 x float32, those of type "
                                           "'author' 3 x float32")));
  write(2, 3, set.nodes[2].count - 1);
  EXPECT_THAT(Import(), IsStatus(Code::kInvalidArgument, HasSubstr("targets.npy: 5 rows, but there are 6")));
  EXPECT_FALSE(std::filesystem::exists(database_));
}

template <typename T>
std::string TextOf(const std::vector<T>& values, size_t columns = 1) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    text += fmt::format("{}{}", values[i], (i + 1) % columns == 0 ? "\n" : ",");
  }
  return text;
}

// ogbn-mag's folder, by the names that OGB documents for heterogeneous graphs.
TEST_F(TypedImport, TakesOgbsFolderWithTypes) {
  const TypedSet set = RandomTypedSet(7, 120);
  const std::string raw = "raw/";
  std::string names, counts, triplets;
  for (size_t t = 0; t < set.nodes.size(); ++t) {
    const TypedSet::Nodes& type = set.nodes[t];
    names += (t == 0 ? "" : ",") + type.name;
    counts += fmt::format("{}{}", t == 0 ? "" : ",", type.count);
    std::vector<float> rows;
    std::string labels;
    for (uint64_t node = 0; node < type.count; ++node) {
      for (uint64_t j = 0; j < type.dim; ++j) rows.push_back(set.Feature(t, node, j));
      labels += set.Label(t, node) < 0 ? "nan\n" : fmt::format("{}\n", set.Label(t, node));
    }
    if (type.dim > 0) {
      set_.Write(raw + "node-feat/" + type.name + "/node-feat.csv.gz", Gzip(TextOf(rows, type.dim)));
    }
    if (type.labels) set_.Write(raw + "node-label/" + type.name + "/node-label.csv.gz", Gzip(labels));
    constexpr const char* kSplits[] = {"train", "valid", "test"};
    for (size_t i = 0; i < 3; ++i) {
      if (type.splits[i].empty()) continue;
      set_.Write(fmt::format("split/time/{}/{}.csv.gz", type.name, kSplits[i]), Gzip(TextOf(type.splits[i])));
    }
  }
  for (const TypedSet::Edges& type : set.edges) {
    triplets +=
        fmt::format("{},{},{}\n", set.nodes[type.source].name, type.name, set.nodes[type.destination].name);
    std::string lines;
    for (const auto& [source, destination] : type.pairs) lines += fmt::format("{},{}\n", source, destination);
    set_.Write(fmt::format("{}relations/{}___{}___{}/edge.csv.gz", raw, set.nodes[type.source].name,
                           type.name, set.nodes[type.destination].name),
               Gzip(lines));
  }
  set_.Write(raw + "triplet-type-list.csv.gz", Gzip(triplets));
  set_.Write(raw + "num-node-dict.csv.gz", Gzip(names + "\n" + counts + "\n"));
  ASSERT_OK(Import());
  {
    const auto store = Opened();
    ExpectDatabase(*store, set, EdgesOf(*store));
  }
  set_.Write(raw + "num-node-dict.csv.gz", Gzip("paper,author\n5\n"));
  EXPECT_THAT(Import(), IsStatus(Code::kInvalidArgument,
                                 HasSubstr("a line of types of nodes and one of their counts")));
  std::filesystem::remove(set_ / "raw/num-node-dict.csv.gz");
  EXPECT_THAT(Import(), IsStatus(Code::kNotFound, HasSubstr("num-node-dict.csv.gz")));
}

// MAG240M's folder: no type but papers has anything of its own, and splits lie beside processed/.
TEST_F(TypedImport, TakesAllTypesOfMag240MWhenAsked) {
  TypedSet set = RandomTypedSet(8, 90);
  for (TypedSet::Nodes& type : set.nodes) {
    if (type.name != "paper")
      type.dim = 0, type.labels = false, type.splits[0] = type.splits[1] = type.splits[2] = {};
  }
  set.edges.erase(set.edges.begin() + 2);
  std::vector<uint64_t> largest(set.nodes.size());
  for (const TypedSet::Edges& type : set.edges) {
    set_.Write(fmt::format("processed/{}___{}___{}/edge_index.npy", set.nodes[type.source].name, type.name,
                           set.nodes[type.destination].name),
               NpyEdges(type.pairs));
    for (const auto& [source, destination] : type.pairs) {
      largest[type.source] = std::max(largest[type.source], static_cast<uint64_t>(source));
      largest[type.destination] = std::max(largest[type.destination], static_cast<uint64_t>(destination));
    }
  }
  uint64_t first = set.nodes[0].count;
  for (size_t t = 1; t < set.nodes.size(); ++t) {
    set.nodes[t].count = largest[t] + 1;
    set.nodes[t].first = first;
    first += set.nodes[t].count;
  }
  std::vector<float> rows;
  std::vector<double> labels;
  for (uint64_t node = 0; node < set.nodes[0].count; ++node) {
    for (uint64_t j = 0; j < set.nodes[0].dim; ++j) rows.push_back(set.Feature(0, node, j));
    labels.push_back(set.Label(0, node) < 0 ? NAN : static_cast<double>(set.Label(0, node)));
  }
  set_.Write("processed/paper/node_feat.npy", NpyFile(rows, {set.nodes[0].count, set.nodes[0].dim}));
  set_.Write("processed/paper/node_label.npy", NpyVector(labels));
  std::vector<TorchArray> splits;
  for (const auto& [name, i] : {std::pair("train", 0), {"valid", 1}, {"test-whole", 2}}) {
    splits.push_back({name, {set.nodes[0].splits[i].size()}, set.nodes[0].splits[i]});
  }
  set_.Write("split_dict.pt", TorchFile(splits));
  ASSERT_OK(Import({}, {.types = true}));
  {
    const auto store = Opened();
    ExpectDatabase(*store, set, EdgesOf(*store));
  }
  ASSERT_OK(Import());  // papers alone
  EXPECT_TRUE(Opened()->manifest()->node_types.empty());
  EXPECT_EQ(Opened()->manifest()->node_count, set.nodes[0].count);
}

TEST_F(TypedImport, AddsReversedTypes) {
  const TypedSet set = RandomTypedSet(3, 50);
  set.WriteTo(set_);
  ASSERT_OK(Import({.add_reverse = true, .both_directions = true, .deduplicate = true}));
  EdgesByType expected;
  for (const TypedSet::Edges& type : set.edges) {
    auto pairs = type.pairs;
    std::ranges::sort(pairs);
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    expected[set.EdgeName(type)] = pairs;
    for (auto& [source, destination] : pairs) std::swap(source, destination);
    std::ranges::sort(pairs);
    expected[set.nodes[type.destination].name + ":" + type.name + "_reverse:" + set.nodes[type.source].name] =
        pairs;
  }
  const auto store = Opened();
  EXPECT_EQ(EdgesOf(*store), expected);
  for (const EdgeTypeRecord& type : store->manifest()->edge_types) {
    EXPECT_EQ(type.edge_count, expected.at(EdgeTypeName(store->manifest()->node_types, type)).size());
  }
}

// Types without a folder, as MAG240M's authors, have as many nodes as their edges tell.
TEST_F(TypedImport, CountsNodesByTheirEdges) {
  const TypedSet set = RandomTypedSet(6, 60);
  set.WriteTo(set_);
  std::filesystem::remove_all(set_ / "field-of_study");
  int64_t largest = 0;
  for (const auto& [source, destination] : set.edges.back().pairs) largest = std::max(largest, destination);
  ASSERT_OK(Import());
  const auto store = Opened();
  const NodeTypeRecord& type = store->manifest()->node_types.back();
  EXPECT_EQ(std::tuple(type.name, type.count),
            std::tuple("field-of_study", static_cast<uint64_t>(largest) + 1));
}

TEST_F(TypedImport, RefusesWhatDoesNotFit) {
  const TypedSet set = RandomTypedSet(4, 50);
  const auto refusal = [&](const ImportOptions& options = {}, const SourceHints& hints = {}) {
    const Status status = Import(options, hints);
    EXPECT_FALSE(std::filesystem::exists(database_));
    set.WriteTo(set_);
    return status;
  };
  set.WriteTo(set_);
  EXPECT_THAT(refusal({.undirected = true}), IsStatus(Code::kUsage, HasSubstr("--add-reverse")));
  EXPECT_THAT(refusal({.relabel = true}), IsStatus(Code::kUnsupported, HasSubstr("2 types have labels")));
  EXPECT_THAT(refusal({}, {.node_count = 7}),
              IsStatus(Code::kUsage, HasSubstr("--nodes is of a graph of one type")));
  set_.Write("author__writes__paper/edges.npy", NpyFile<int64_t>({0, 26, 3, 4}, {2, 2}));
  EXPECT_THAT(refusal(),
              IsStatus(Code::kInvalidArgument,
                       HasSubstr("source 26 is out of range; there are 26 nodes of type 'author'")));
  set_.Write("paper/train_idx.npy", NpyFile<int64_t>({50}, {1}));
  EXPECT_THAT(refusal(),
              IsStatus(Code::kInvalidArgument,
                       HasSubstr("node id 50 is out of range; there are 50 nodes of type 'paper'")));
  set_.Write("author/labels.npy", NpyFile<int64_t>({1, 2}, {2}));
  EXPECT_THAT(refusal(), IsStatus(Code::kInvalidArgument, HasSubstr("2 labels, but there are 26")));
  set_.Write("field-of_study/metadata.yaml", "feature_dim: 3\n");
  set_.Write("paper__has_topic__field-of_study/edges.npy", NpyFile<int64_t>({0, 1'000'000'000}, {2, 1}));
  EXPECT_THAT(refusal(),
              IsStatus(Code::kInvalidArgument, HasSubstr("id 1000000000 makes 1000000001 nodes of type")));
  EXPECT_THAT(refusal({}, {.types = true}),
              IsStatus(Code::kUsage, HasSubstr("--types is for MAG240M and IGB")));
  set_.Write("metadata.yaml", "node_types: [paper, author]\n");
  EXPECT_THAT(refusal(), IsStatus(Code::kInvalidArgument, HasSubstr("node_types names 2")));
  set_.Write("venue__hosts__paper/edges.npy", NpyFile<int64_t>({0, 1}, {2, 1}));
  EXPECT_THAT(refusal(), IsStatus(Code::kInvalidArgument,
                                  HasSubstr("node_types names 3, of which 3 are there; there are 4")));
  std::filesystem::remove_all(set_ / "venue__hosts__paper");
  set_.Write("author__wri tes__paper/edges.npy", NpyFile<int64_t>({0, 1}, {2, 1}));
  set_.Write("metadata.yaml", "{}\n");
  EXPECT_THAT(refusal(),
              IsStatus(Code::kInvalidArgument, HasSubstr("'wri tes' cannot be the name of a type")));
  std::filesystem::remove_all(set_ / "author__wri tes__paper");
  EXPECT_OK(Import());
}

}  // namespace
}  // namespace quarry
