// Folders of DGL's GraphBolt: which are recognised, what is taken of them, and what is refused with which
// words. Beside them what else tells ids: the order of relations, dictionaries of names, and rows with
// scales.
#include "quarry/import/graphbolt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "reader_support.h"
#include "support/array_files.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kMetadata = R"(dataset_name: small
graph:
  nodes:
    - num: 5
  edges:
    - format: csv
      path: edges/all.csv
feature_data:
  - domain: node
    name: feat
    format: numpy
    in_memory: false
    path: data/feat.npy
  - domain: edge
    name: weight
    format: numpy
    path: data/weight.npy
tasks:
  - name: link_prediction
    train_set:
      - data:
          - name: seeds
            format: numpy
            path: set/pairs.npy
  - name: node_classification
    num_classes: 4
    train_set:
      - data:
          - name: seeds
            format: numpy
            path: set/train.npy
          - name: labels
            format: numpy
            path: set/train_labels.npy
    validation_set:
      - data:
          - name: seeds
            format: numpy
            path: set/valid.npy
          - name: labels
            format: numpy
            path: set/valid_labels.npy
)";

// What stands in the metadata, and what shall stand there.
struct Change {
  std::string from, to;
};
void WriteFolder(const TemporaryFolder& folder, const std::optional<Change>& change = {}) {
  std::string metadata = kMetadata;
  if (change.has_value()) {
    const size_t at = metadata.find(change->from);
    ASSERT_NE(at, std::string::npos) << change->from;
    metadata.replace(at, change->from.size(), change->to);
  }
  folder.Write("metadata.yaml", metadata);
  folder.Write("edges/all.csv", "0,1\n4,2\n1,1\n");
  folder.Write("data/feat.npy", NpyFile<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2}));
  folder.Write("set/pairs.npy", NpyFile<int64_t>({0, 1, 4, 2}, {2, 2}));
  folder.Write("set/train.npy", NpyVector<int64_t>({4, 1}));
  folder.Write("set/train_labels.npy", NpyVector<int64_t>({3, 0}));
  folder.Write("set/valid.npy", NpyVector<int32_t>({2}));
  folder.Write("set/valid_labels.npy", NpyVector<int64_t>({2}));
}

TEST(GraphBoltTest, AFolderIsTakenAsItsMetadataSays) {
  const TemporaryFolder folder("gb");
  WriteFolder(folder);
  folder.Write("edges.npy", "not what the metadata names");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.node_count, 5u);
  EXPECT_EQ(dataset.class_count, 4u);
  ASSERT_EQ(dataset.edges.size(), 1u);
  EXPECT_EQ(dataset.edges[0].name, "");
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 1}, {4, 2}, {1, 1}}));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(4, 1));
  EXPECT_THAT(*ReadAll(*dataset.valid), ElementsAre(2));
  EXPECT_EQ(dataset.test, nullptr);
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(-1, 0, 2, -1, 3)) << "-1 in no set";
}

TEST(GraphBoltTest, TypesOfEdgesAreRelationsInTheirOrder) {
  const TemporaryFolder folder("gb");
  folder.Write("metadata.yaml", R"(
graph:
  nodes: [{type: paper, num: 4}]
  edges:
    - {type: "paper:cites:paper", format: numpy, path: cites.npy}
    - {type: "paper:about:paper", format: csv, path: about.csv}
)");
  folder.Write("cites.npy", NpyEdges({{0, 1}, {2, 3}}));
  folder.Write("about.csv", "3,0\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  ASSERT_EQ(dataset.edges.size(), 2u);
  EXPECT_EQ(dataset.edges[0].name, "cites");
  EXPECT_EQ(dataset.edges[1].name, "about");
  EXPECT_EQ(*ReadAll(*dataset.edges[1].reader), (EdgeList{{3, 0}}));
  EXPECT_EQ(dataset.features, nullptr);
  EXPECT_EQ(dataset.labels, nullptr);
  EXPECT_EQ(dataset.train, nullptr);
}

// A feature "label" has the labels of all nodes, also of those in no set.
TEST(GraphBoltTest, LabelsOfAllNodesComeFirst) {
  const TemporaryFolder folder("gb");
  WriteFolder(folder);
  std::string metadata = kMetadata;
  metadata.replace(metadata.find("domain: edge"), 12, "domain: node");
  metadata.replace(metadata.find("name: weight"), 12, "name: label");
  folder.Write("metadata.yaml", metadata);
  folder.Write("data/weight.npy", NpyVector<int64_t>({1, 0, 2, 1, 3}));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(1, 0, 2, 1, 3));
}

TEST(GraphBoltTest, MetadataIsReadAsItIsWritten) {
  GraphBolt graph;
  graph.name = "a \"name\": with signs";
  graph.nodes = {{.type = "node", .count = 7}};
  graph.edges = {{.type = "node:is a:node", .format = "numpy", .path = "edges_0.npy"}};
  graph.features = {{.domain = "node", .type = "node", .name = "feat", .format = "numpy", .path = "x/y.npy"}};
  graph.tasks = {
      {.name = "t",
       .class_count = 3,
       .train = {{.type = "node", .arrays = {{.name = "seeds", .format = "numpy", .path = "s.npy"}}}}}};
  const std::string text = EncodeGraphBolt(graph);
  EXPECT_TRUE(LooksLikeGraphBolt(text));
  ASSERT_OK_AND_ASSIGN(const auto read, DecodeGraphBolt(text, "metadata.yaml"));
  EXPECT_EQ(EncodeGraphBolt(read), text);
  EXPECT_EQ(read.name, graph.name);
  EXPECT_EQ(read.edges[0].type, "node:is a:node");
  EXPECT_EQ(read.tasks[0].class_count, 3u);
  EXPECT_FALSE(LooksLikeGraphBolt("num_nodes: 5\n"));
  EXPECT_FALSE(LooksLikeGraphBolt("graph: ["));
}

// What follows "<folder>/" in the message, which must be all of it.
std::string Refusal(const TemporaryFolder& folder) {
  const Status status = ReadEverything(folder.path(), {});
  EXPECT_FALSE(status.ok());
  std::string message(status.message());
  for (size_t at = 0; (at = message.find(folder.path() + "/")) != std::string::npos;) {
    message.erase(at, folder.path().size() + 1);
  }
  return message;
}

TEST(GraphBoltTest, MetadataThatCannotBeIsRefused) {
  const std::vector<std::pair<Change, std::string>> cases = {
      {{"- num: 5", "- {type: paper, num: 5}\n    - {type: author, num: 2}"},
       "metadata.yaml: the edge type '' is not 'SOURCE:RELATION:DESTINATION'"},
      {{"- num: 5", "- number: 5"}, "metadata.yaml: line 4: 'num' is missing"},
      {{"- num: 5", "- num: five"}, "metadata.yaml: line 4: num is 'five', not a count"},
      {{"  nodes:\n    - num: 5\n", ""}, "metadata.yaml: graph.nodes is missing or empty"},
      {{"format: csv", "format: parquet"},
       "metadata.yaml: edges 'edges/all.csv' is of format 'parquet'; expected numpy, in a file whose name "
       "ends with "
       ".npy"},
      {{"path: edges/all.csv", "path: edges/../../all.csv"},
       "metadata.yaml: line 7: the path 'edges/../../all.csv' leads out of the folder; move the file there"},
      {{"path: edges/all.csv", "path: /etc/passwd"},
       "metadata.yaml: line 7: the path '/etc/passwd' leads out of the folder; move the file there"},
      {{"path: edges/all.csv", "path: [a, b]"}, "metadata.yaml: line 7: 'path' is not a text"},
      {{"path: edges/all.csv", "path: edges/none.csv"},
       "cannot open edges/none.csv: No such file or directory"},
      {{"    - format: csv\n      path: edges/all.csv", "    format: csv"},
       "metadata.yaml: line 6: 'edges' is not a list"},
      {{"format: numpy\n    in_memory", "format: torch\n    in_memory"},
       "metadata.yaml: the feature 'data/feat.npy' is of format torch, which only PyTorch reads; save it "
       "with "
       "numpy.save and say numpy"},
      {{"graph:", "graph_topology: {}\nno_graph:"},
       "metadata.yaml: has no map 'graph'; of a folder that DGL has preprocessed, import the one that it was "
       "made of"},
  };
  for (const auto& [change, words] : cases) {
    const TemporaryFolder folder("gb");
    WriteFolder(folder, change);
    EXPECT_EQ(Refusal(folder), words) << change.to;
  }
}

TEST(GraphBoltTest, ArraysThatCannotBeAreRefused) {
  struct Damage {
    const char* file;
    std::string bytes;
    std::string words;
  };
  const std::vector<Damage> cases = {
      {"data/feat.npy", NpyFile<float>({1, 2}, {1, 2}),
       "data/feat.npy: 1 rows, but there are 5 nodes (metadata.yaml: 5 nodes)"},
      {"data/feat.npy", NpyFile<float>({1, 2, 3, 4, 5}, {5, 1, 1}),
       "data/feat.npy: has shape [5, 1, 1]; expected [N, D]"},
      {"edges/all.csv", "0,1,2\n",
       "edges/all.csv: has three columns; GraphBolt's edges have two, source and destination"},
      {"set/train_labels.npy", NpyVector<int64_t>({1}),
       "set/train_labels.npy: 1 labels, but there are 2 seeds in set/train.npy"},
      {"set/train.npy", NpyVector<int64_t>({4, 5}),
       "set/train.npy: row 1: node id 5 is out of range; there are 5 nodes"},
      {"set/train.npy", NpyVector<int64_t>({4, 2}),
       "metadata.yaml: the sets hold node 2 twice; a node is in one split at most"},
      {"metadata.yaml", "graph:\n  nodes: [{num: 5}]\n  edges: [{format: numpy, path: set/tall.npy}]\n",
       "set/tall.npy: has shape [3, 2]; GraphBolt's edges are [2, E]"},
      {"metadata.yaml",
       "graph:\n  nodes: [{type: a, num: 5}]\n  edges:\n    - {type: 'a:x:b', format: csv, path: "
       "edges/all.csv}\n"
       "    - {type: 'a:x:a', format: csv, path: edges/all.csv}\n",
       "metadata.yaml: the edge type 'a:x:b' is not 'a:RELATION:a'"},
  };
  for (const Damage& damage : cases) {
    const TemporaryFolder folder("gb");
    WriteFolder(folder);
    folder.Write("set/tall.npy", NpyFile<int64_t>({0, 1, 2, 3, 4, 0}, {3, 2}));
    folder.Write(damage.file, damage.bytes);
    EXPECT_EQ(Refusal(folder), damage.words);
  }
}

TEST(GraphBoltTest, LinksThatLeadOutOfTheFolderAreRefusedUnread) {
  const TemporaryFolder elsewhere("elsewhere");
  const std::string secret = elsewhere.Write("secret.npy", "secret,words\n");
  elsewhere.Write("data/feat.npy", NpyFile<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2}));
  for (const char* file : {"edges/all.csv", "data/feat.npy", "set/train.npy", "set/train_labels.npy",
                           "set/pairs.npy", "metadata.yaml", "data"}) {
    SCOPED_TRACE(file);
    const TemporaryFolder folder("gb");
    WriteFolder(folder);
    const std::string target = std::string(file) == "data" ? elsewhere / "data" : secret;
    if (std::string(file) == "metadata.yaml") elsewhere.Write("secret.npy", kMetadata);
    std::filesystem::remove_all(folder / file);
    std::filesystem::create_symlink(target, folder / file);
    const std::string words = Refusal(folder);
    EXPECT_THAT(words, testing::StartsWith(std::string(file) + (target == secret ? "" : "/feat.npy") +
                                           ": a symbolic link leads out of the folder, to " + target));
    EXPECT_THAT(words, testing::Not(HasSubstr("words")));
    elsewhere.Write("secret.npy", "secret,words\n");
  }
  const TemporaryFolder folder("gb");
  WriteFolder(folder);
  std::filesystem::rename(folder / "edges/all.csv", folder / "edges/there.csv");
  std::filesystem::create_symlink("../edges/there.csv", folder / "edges/all.csv");
  EXPECT_OK(OpenDataset(folder.path(), {})) << "within the folder links are followed";
  const TemporaryFolder around("around");
  std::filesystem::create_directory_symlink(folder.path(), around / "link");
  EXPECT_OK(OpenDataset(around / "link", {})) << "to the folder itself, too";
}

TEST(GraphBoltTest, MoreSeedsThanNodesAreRefusedUnread) {
  const TemporaryFolder folder("gb");
  WriteFolder(folder);
  folder.Write("set/train.npy", NpyVector<int64_t>({0, 1, 2, 3, 4, 0}));
  folder.Write("set/train_labels.npy", NpyVector<int64_t>({0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(
      Refusal(folder),
      "set/train.npy: with its 6 seeds the sets hold more than there are nodes, 5; a node is in one split at "
      "most");
}

TEST(MetadataTest, ALinkThatLeadsInACircleIsRefused) {
  for (const char* file : {"metadata.yaml", "edges.npy", "README.txt", "train.txt", "entities.dict"}) {
    SCOPED_TRACE(file);
    const TemporaryFolder folder("set");
    const bool triples = std::string(file) == "train.txt" || std::string(file) == "entities.dict";
    folder.Write(triples ? "train.txt" : "edges.npy", triples ? "a\tlikes\tb\n" : NpyEdges({{0, 1}}));
    std::filesystem::remove(folder / file);
    std::filesystem::create_symlink(file, folder / file);
    const Result<Dataset> dataset = OpenDataset(folder.path(), {});
    EXPECT_EQ(dataset.ok(), std::string(file) == "README.txt") << "which holds a hint at most";
  }
}

TEST(RelationsTest, MetadataMayTellTheirOrder) {
  const TemporaryFolder folder("set");
  folder.Write("edges_a.npy", NpyEdges({{0, 1}}));
  folder.Write("edges_b.csv", "1,0\n");
  folder.Write("metadata.yaml", "relations:\n  - \"b\"\n  - \"a\"\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.edges[0].name, "b");
  EXPECT_EQ(dataset.edges[1].name, "a");
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"relations: [a]\n",
            "metadata.yaml: relations names 1, and 1 of them have files edges_<relation>, of which there are "
            "2"},
           {"relations: [a, c]\n",
            "metadata.yaml: relations names 2, and 1 of them have files edges_<relation>, of which there are "
            "2"},
           {"relations: a\n", "metadata.yaml: line 1: relations is not a list of names"}}) {
    folder.Write("metadata.yaml", text);
    EXPECT_EQ(Refusal(folder), words);
  }
}

TEST(TriplesDictionaryTest, TellsIdsBeforeTheTriplesDo) {
  const TemporaryFolder folder("kg");
  folder.Write("train.txt", "b\tr\tc\nd\ts\tb\n");
  folder.Write("entities.dict", "0\ta\n1\tb\n2\tc\n");
  folder.Write("relations.dict", "0\ts\n1\tr\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_THAT(dataset.entity_names, ElementsAre("a", "b", "c", "d")) << "what is not in it comes behind";
  EXPECT_THAT(dataset.relation_names, ElementsAre("s", "r"));
  EXPECT_EQ(dataset.node_count, 4u);
  for (const auto& [text, words] : std::vector<std::pair<const char*, const char*>>{
           {"0\ta\n2\tb\n", "entities.dict: line 2: '2\tb' is not 1 TAB name"},
           {"a\t0\n", "entities.dict: line 1: 'a\t0' is not 0 TAB name"},
           {"0\ta\n1\ta\n", "entities.dict: line 2: 'a' has the id 0 already"}}) {
    folder.Write("entities.dict", text);
    EXPECT_EQ(Refusal(folder), words);
  }
}

TEST(ScaledRowsTest, Int8FeaturesAreTakenWithTheirScales) {
  const TemporaryFolder folder("set");
  folder.Write("edges.npy", NpyEdges({{0, 1}}));
  folder.Write("features.npy", NpyFile<int8_t>({127, -3, 0, 5, 6, -127}, {2, 3}));
  folder.Write("features_scale.npy", NpyVector<float>({0.5F, 2}));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  ASSERT_EQ(dataset.features->element_type(), ElementType::kInt8);
  const std::string rows = ReadAll(*dataset.features).value();
  std::vector<float> values(3);
  DecodeRow(ElementType::kInt8, std::as_bytes(std::span(rows)).subspan(8), values);
  EXPECT_THAT(values, ElementsAre(10, 12, -254));
  for (const auto& [bytes, words] : std::vector<std::pair<std::string, const char*>>{
           {NpyVector<float>({1}),
            "features_scale.npy: has dtype '<f4' and shape [1]; expected float32 [2], a scale a row"},
           {NpyVector<float>({1, std::numeric_limits<float>::infinity()}),
            "features_scale.npy: row 1: the scale is inf; a scale is a finite number"}}) {
    folder.Write("features_scale.npy", bytes);
    EXPECT_EQ(Refusal(folder), words);
  }
  folder.Write("features.npy", NpyFile<float>({1, 2}, {2, 1}));
  EXPECT_EQ(Refusal(folder),
            "features.npy: has dtype '<f4' and shape [2, 1]; with scales (features_scale.npy) features are "
            "int8 [N, D]");
}

}  // namespace
}  // namespace quarry
