// Published sets: how they are recognised, what is said of what stays out, and damage of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "reader_support.h"
#include "support/file_text.h"
#include "support/published_sets.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

const SmallGraph& Graph() {
  static const SmallGraph graph = RandomSmallGraph(2);
  return graph;
}
uint64_t Nodes() { return Graph().nodes; }

struct Damage {
  const char* what;
  std::function<void(const TemporaryFolder&)> apply;
  std::vector<std::string> words;  // in the message
  SourceHints hints{};
  Code code = Code::kInvalidArgument;
};

void Remove(const TemporaryFolder& folder, const char* name) {
  EXPECT_TRUE(std::filesystem::remove(folder / name)) << name;
}
void CutByOne(const TemporaryFolder& folder, const char* name) {
  std::filesystem::resize_file(folder / name, std::filesystem::file_size(folder / name) - 1);
}

void ExpectRefused(const std::function<void(const TemporaryFolder&)>& write, const SourceHints& hints,
                   const std::vector<Damage>& damages) {
  {
    const TemporaryFolder folder("whole");
    write(folder);
    const Status status = ReadEverything(folder.path(), hints);
    EXPECT_OK(status);
  }
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.what);
    const TemporaryFolder folder("damaged");
    write(folder);
    damage.apply(folder);
    SourceHints merged = hints;
    if (!damage.hints.raw_type.empty()) merged.raw_type = damage.hints.raw_type;
    if (damage.hints.feature_dim != 0) merged.feature_dim = damage.hints.feature_dim;
    if (damage.hints.node_count != 0) merged.node_count = damage.hints.node_count;
    const Status status = ReadEverything(folder.path(), merged);
    EXPECT_EQ(status.code(), damage.code) << status.ToString();
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("\n")));
    for (const std::string& word : damage.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(PublishedSetsTest, DamagedPapers100MIsRefused) {
  const auto with = [](const char* key, std::string bytes) {
    return [=](const TemporaryFolder& folder) {
      NpzMembers members = Papers100MMembers(Graph());
      std::erase_if(members, [&](const auto& member) { return member.first == key; });
      if (!bytes.empty()) members.emplace_back(key, bytes);
      WriteNpz(folder, "raw/data.npz", members, false);
    };
  };
  const std::vector<float> rows(Nodes() * 2 - 2);
  ExpectRefused(
      [](const TemporaryFolder& folder) { WritePapers100M(folder, Graph(), false); }, {},
      {{"cut off",
        [](const auto& folder) { CutByOne(folder, "raw/data.npz"); },
        {"data.npz", "copy it anew"}},
       {"no edges", with("edge_index", ""), {"data.npz", "no edges"}},
       {"no number of nodes", with("num_nodes_list", ""), {"data.npz", "'num_nodes_list'", "edge_index"}},
       {"two graphs",
        with("num_nodes_list", NpyVector<int64_t>({3, 4})),
        {"data.npz: num_nodes_list", "several graphs"},
        {},
        Code::kUnsupported},
       {"no graph", with("num_nodes_list", NpyVector<int64_t>({})), {"num_nodes_list", "no node count"}},
       {"features of fewer nodes",
        with("node_feat", NpyFile(rows, {Nodes() - 1, 2})),
        {"data.npz", fmt::format("{} rows", Nodes() - 1), fmt::format("{} nodes", Nodes())}},
       {"features of integers",
        with("node_feat", NpyFile(std::vector<int32_t>(Nodes()), {Nodes(), 1})),
        {"data.npz: node_feat", "<i4"}},
       {"edges in a row",
        with("edge_index", NpyVector<int64_t>({1, 2, 3})),
        {"data.npz: edge_index", "[3]", "[2, E]"}},
       {"labels under another name",
        [](const auto& folder) {
          WriteNpz(folder, "raw/node-label.npz", {{"topic", NpyVector<int64_t>({1})}}, false);
        },
        {"node-label.npz", "no array 'labels', only topic"}},
       {"labels of fewer nodes",
        [](const auto& folder) {
          WriteNpz(folder, "raw/node-label.npz", {{"node_label", NpyVector<float>({1})}}, false);
        },
        {"node-label.npz", "1 labels"}},
       {"a word in a split",
        [](const auto& folder) { folder.Write("split/time/valid.csv.gz", Gzip("1\nx\n")); },
        {"valid.csv.gz: line 2", "'x'"}},
       {"several types of nodes",
        [](const auto& folder) { folder.Write("raw/edge_index_dict.npz", "?"); },
        {"raw/", "several types", "triples"},
        {},
        Code::kUnsupported}});
}

TEST(PublishedSetsTest, DamagedMag240MIsRefused) {
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteMag240M(folder, Graph()); }, {},
      {{"no citations",
        [](const auto& folder) { Remove(folder, "processed/paper___cites___paper/edge_index.npy"); },
        {"processed", "no edges", "paper___cites___paper/edge_index.npy"},
        {},
        Code::kNotFound},
       {"features cut off",
        [](const auto& folder) { CutByOne(folder, "processed/paper/node_feat.npy"); },
        {"node_feat.npy", "truncated"}},
       {"features without a header",
        [](const auto& folder) {
          folder.Write("processed/paper/node_feat.npy", std::string("\x01\x02\x03\x04", 4));
        },
        {"node_feat.npy", "no .npy header", "01 02 03 04", "--nodes, --dim and --dtype"}},
       {"labels of fewer nodes",
        [](const auto& folder) {
          folder.Write("processed/paper/node_label.npy", NpyVector<float>({1, 2}));
        },
        {"node_label.npy", "2 labels"}},
       {"labels of halves",
        [](const auto& folder) {
          folder.Write("processed/paper/node_label.npy", NpyVector(std::vector<uint16_t>(Nodes()), "<f2"));
        },
        {"node_label.npy", "<f2"}},
       {"float edges",
        [](const auto& folder) {
          folder.Write("processed/paper___cites___paper/edge_index.npy", NpyFile<float>({1, 2}, {2, 1}));
        },
        {"edge_index.npy", "<f4"}}});
}

TEST(PublishedSetsTest, DamagedIgbIsRefused) {
  const TemporaryFolder labels("labels");
  const std::vector<float> values = Graph().FloatLabels();
  const SourceHints hints{.node_count = Nodes(),
                          .feature_dim = SmallGraph::kDim,
                          .raw_type = "float32",
                          .labels = labels.Write("node_label_2K.npy", RawBytes(values))};
  const auto as_it_is = [](const TemporaryFolder&) {};
  const std::string has = fmt::format("has {} bytes", Nodes() * SmallGraph::kDim * 4);
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteIgb(folder, Graph(), true); }, hints,
      {{"fewer nodes", as_it_is, {"node_feat.npy", has, "--nodes, --dim and --dtype"}, {.node_count = 7}},
       {"fewer columns", as_it_is, {"node_feat.npy", has, "5]"}, {.feature_dim = 5}},
       {"narrower type", as_it_is, {"node_feat.npy", has, "'float16'"}, {.raw_type = "float16"}},
       {"unknown type", as_it_is, {"--dtype int4", "bfloat16"}, {.raw_type = "int4"}, Code::kUsage},
       {"shape beyond 2^62", as_it_is, {"node_feat.npy", "2^62"}, {.feature_dim = uint64_t{1} << 61}},
       {"features cut off",
        [](const auto& folder) { CutByOne(folder, "processed/paper/node_feat.npy"); },
        {"node_feat.npy", "takes"}},
       {"labels cut off",
        [&](const auto&) { labels.Write("node_label_2K.npy", RawBytes(values).substr(1)); },
        {"node_label_2K.npy", fmt::format("has {} bytes", Nodes() * 4 - 1), "--nodes"}}});
}

TEST(PublishedSetsTest, IgbAsksWhichLabelsAreMeant) {
  const TemporaryFolder folder("igb");
  WriteIgb(folder, Graph(), false);
  const Status status = OpenDataset(folder.path(), {}).status();
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(
      std::string(status.message()),
      testing::AllOf(HasSubstr("node_label_19.npy"), HasSubstr("node_label_2K.npy"), HasSubstr("--labels")));
  Remove(folder, "processed/paper/node_label_19.npy");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(*ReadAll(*dataset.labels), std::vector<int64_t>(Nodes(), 2));
}

TEST(PublishedSetsTest, HeaderlessFeaturesHaveTheTypeThatIsStated) {
  const TemporaryFolder folder("raw");
  folder.Write("edges.npy", NpyEdges({{0, 1}}));
  const std::string bytes = RawBytes(std::vector<double>{1, 2, 3, 4});
  folder.Write("features.npy", bytes);
  for (const auto& [type, dim, element] : {std::tuple("float64", 2u, ElementType::kFloat32),
                                           {"float32", 4u, ElementType::kFloat32},
                                           {"float16", 8u, ElementType::kFloat16},
                                           {"bfloat16", 8u, ElementType::kBfloat16}}) {
    SCOPED_TRACE(type);
    ASSERT_OK_AND_ASSIGN(auto dataset,
                         OpenDataset(folder.path(), {.node_count = 2, .feature_dim = dim, .raw_type = type}));
    EXPECT_EQ(dataset.features->element_type(), element);
    EXPECT_EQ(dataset.features->dim(), dim);
    if (dim == 2) {
      EXPECT_EQ(*ReadFloats(*dataset.features), (std::vector<float>{1, 2, 3, 4}));
    } else {
      EXPECT_EQ(*ReadAll(*dataset.features), bytes);
    }
  }
}

TEST(PublishedSetsTest, DamagedMariusFoldersAreRefused) {
  const std::string yaml = MariusYaml(Graph(), Graph().edges.size(), 17, 2, -1, -1);
  const auto stating = [&](const std::string& line, const std::string& other) {
    std::string text = yaml;
    text.replace(text.find(line), line.size(), other);
    return [text](const TemporaryFolder& folder) { folder.Write("dataset.yaml", text); };
  };
  const auto edge = [](const char* file, int32_t source, int32_t relation, int32_t destination) {
    return [=](const TemporaryFolder& folder) {
      std::vector<int32_t> ids = FlatEdges<int32_t>(Graph().valid, true);
      ids[9] = source;
      ids[10] = relation;
      ids[11] = destination;
      folder.Write(file, RawBytes(ids));
    };
  };
  const char* const kValid = "edges/validation_edges.bin";
  const std::string nodes = fmt::format("there are {} nodes, 0 to {}", Nodes(), Nodes() - 1);
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteMariusLinks<int32_t>(folder, Graph(), true); }, {},
      {{"no counts",
        [](const auto& folder) { Remove(folder, "dataset.yaml"); },
        {"dataset.yaml"},
        {},
        Code::kNotFound},
       {"no training edges",
        [](const auto& folder) { Remove(folder, "edges/train_edges.bin"); },
        {"edges/train_edges.bin"},
        {},
        Code::kNotFound},
       {"no number of nodes", stating("num_nodes", "some_nodes"), {"dataset.yaml", "num_nodes"}},
       {"no number of edges", stating("num_edges: 200", "num_edges: -1"), {"dataset.yaml", "num_edges"}},
       {"a word for a number",
        stating("num_edges: 200", "num_edges: many"),
        {"line 2", "num_edges", "'many'"}},
       {"no map", [](const auto& folder) { folder.Write("dataset.yaml", "- 1\n"); }, {"dataset.yaml", "map"}},
       {"too many edges stated",
        stating("num_edges: 200", "num_edges: 201"),
        {"train_edges.bin", "2400 bytes", "201 edges", "dataset.yaml"}},
       {"too few edges to test",
        stating("num_test: 2", "num_test: 3"),
        {"test_edges.bin", "has 24 bytes", "[3, 3]", "takes 36", "dataset.yaml"}},
       {"no edges to validate are stated, and half a one is there",
        [&](const auto& folder) {
          stating("num_valid: 17", "num_valid: -1")(folder);
          CutByOne(folder, kValid);
        },
        {"validation_edges.bin", "has 203 bytes", "[16, 3]"}},
       {"training edges cut off",
        [](const auto& folder) { CutByOne(folder, "edges/train_edges.bin"); },
        {"train_edges.bin", "2399 bytes"}},
       {"fewer relations",
        stating("num_relations: 5", "num_relations: 4"),
        {"train_edges.bin: edge 0", "relation 4", "0 to 3"}},
       {"no relations", stating("num_relations: 5", "num_relations: 0"), {"train_edges.bin", "0 of them"}},
       {"relations without end",
        stating("num_relations: 5", "num_relations: 1000000000"),
        {"train_edges.bin", "1000000000", "1048576"}},
       {"fewer nodes",
        stating(fmt::format("num_nodes: {}", Nodes()), "num_nodes: 2"),
        {"train_edges.bin: edge", "there are 2 nodes, 0 to 1"}},
       {"source out of range",
        edge(kValid, static_cast<int32_t>(Nodes()), 0, 0),
        {"validation_edges.bin: edge 3", fmt::format("node id {}", Nodes()), nodes}},
       {"negative destination",
        edge(kValid, 0, 0, -4),
        {"validation_edges.bin: edge 3", "node id -4", nodes}},
       {"negative relation",
        edge(kValid, 0, -1, 0),
        {"validation_edges.bin: edge 3", "relation -1", "0 to 4"}}});
}

TEST(PublishedSetsTest, DamagedMariusNodesAreRefused) {
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteMariusNodes(folder, Graph()); }, {},
      {{"features cut off",
        [](const auto& folder) { CutByOne(folder, "nodes/features.bin"); },
        {"features.bin", "takes", "dataset.yaml"}},
       {"labels cut off",
        [](const auto& folder) { CutByOne(folder, "nodes/labels.bin"); },
        {"labels.bin", "takes", "dataset.yaml"}},
       {"a split cut off",
        [](const auto& folder) { CutByOne(folder, "nodes/validation_nodes.bin"); },
        {"validation_nodes.bin", "takes", "dataset.yaml"}},
       {"features without a dimension",
        [](const auto& folder) { folder.Write("dataset.yaml", MariusYaml(Graph(), 1, 1, 1, -1, -1)); },
        {"dataset.yaml", "node_feature_dim"}}});
}

TEST(PublishedSetsTest, MariusIntegersMayBeWideAndItsFeaturesOlder) {
  const TemporaryFolder folder("marius");
  WriteMariusNodes(folder, Graph());
  folder.Write("nodes/labels.bin", RawBytes(Graph().labels));
  folder.Write("edges/train_edges.bin", RawBytes(FlatEdges<int64_t>(Graph().edges, false)));
  std::string yaml = testing_util::FileText(folder / "dataset.yaml");
  yaml.replace(yaml.find("node_feature_dim"), 16, "feature_dim");
  folder.Write("dataset.yaml", yaml);
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.features->dim(), SmallGraph::kDim);
  EXPECT_EQ(dataset.class_count, 7u);
  EXPECT_EQ(*ReadAll(*dataset.labels), Graph().labels);
  EXPECT_EQ(ReadAll(*dataset.edges[0].reader)->size(), Graph().edges.size());
}

TEST(PublishedSetsTest, MariusLabelsThatWereCastFromNaNAreNone) {
  const TemporaryFolder folder("marius");
  WriteMariusNodes(folder, Graph());
  std::vector<int32_t> labels(Graph().labels.begin(), Graph().labels.end());
  std::replace(labels.begin(), labels.end(), -1, std::numeric_limits<int32_t>::min());
  folder.Write("nodes/labels.bin", RawBytes(labels));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(*ReadAll(*dataset.labels), Graph().labels);
}

TEST(PublishedSetsTest, DamagedOgbLinkSetsAreRefused) {
  const auto split = [](const char* name, NpzMembers members) {
    return [=](const TemporaryFolder& folder) { WriteNpz(folder, name, members, true); };
  };
  NpzMembers short_relations = TripleMembers(Graph().valid);
  short_relations[1].second = NpyVector<int64_t>({1, 2, 3});
  NpzMembers short_tails = TripleMembers(Graph().valid);
  short_tails[2].second = NpyVector<int64_t>({1, 2, 3});
  NpzMembers no_tails = TripleMembers(Graph().valid);
  no_tails.erase(no_tails.begin() + 2);
  NpzMembers many_relations = TripleMembers(Graph().valid);
  many_relations[1].second = NpyVector(std::vector<int64_t>(17, 1 << 20));
  const auto torch_split = [](const TorchArray& array) {
    return [=](const TemporaryFolder& folder) { folder.Write("split/time/valid.pt", TorchFile({array})); };
  };
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteOgbLinks(folder, Graph(), true); }, {},
      {{"a split of other keys",
        split("split/time/valid.npz", {{"ids", NpyVector<int64_t>({1})}}),
        {"valid.npz", "head and tail", "edge_index"}},
       {"heads without tails",
        split("split/time/valid.npz", no_tails),
        {"valid.npz", "'tail'", "head, relation"}},
       {"fewer tails than heads",
        split("split/time/valid.npz", short_tails),
        {"valid.npz: tail", "[3]", "[17]"}},
       {"fewer relations than heads",
        split("split/time/valid.npz", short_relations),
        {"valid.npz: head: edge 3", "no relation"}},
       {"relations without end",
        split("split/time/valid.npz", many_relations),
        {"valid.npz: head: edge 0", "relation 1048576", "0 to 1048575"}},
       {"a torch file of other keys", torch_split({"ids", {1}, {1}}), {"valid.pt", "head and tail"}},
       {"a torch file of an edge that is negative",
        [](const auto& folder) {
          folder.Write("split/time/valid.pt",
                       TorchFile({{"head", {2}, {3, -4}}, {"relation", {2}, {0, 0}}, {"tail", {2}, {3, 4}}}));
        },
        {"valid.pt: head: edge 1", "-4"}},
       {"a torch file without relations",
        torch_split({"edge", {1, 2}, {3, 4}}),
        {"valid.pt", "no relations", "train.pt"}},
       {"a torch file cut off",
        [](const auto& folder) { CutByOne(folder, "split/time/test.pt"); },
        {"test.pt: offset", "cut off"}},
       {"something else by that name",
        [](const auto& folder) { folder.Write("split/time/test.pt", "<html>"); },
        {"test.pt", "torch.save", "plain text"}},
       {"a split without relations",
        [](const auto& folder) { folder.Write("split/time/test.npy", NpyEdgePairs(Graph().valid)); },
        {"test.npy", "no relations", "train.pt"}},
       {"text, which has no relations",
        [](const auto& folder) { folder.Write("split/time/test.csv", "1,2\n"); },
        {"test.csv", "no relations", "train.pt"}},
       {"two splits",
        [](const auto& folder) { folder.Write("split/random/train.pt", "a pickle"); },
        {"2 splits"}},
       {"types of nodes",
        [](const auto& folder) { folder.Write("raw/triplet-type-list.csv.gz", Gzip("a,b,c\n")); },
        {"raw/", "several types"},
        {},
        Code::kUnsupported}});
}

TEST(PublishedSetsTest, DamagedEdgesOfOgbLinkSetsWithoutSplitsAreRefused) {
  ExpectRefused(
      [](const TemporaryFolder& folder) {
        WriteOgbLinks(folder, Graph(), true);
        std::filesystem::remove_all(folder / "split");
      },
      {},
      {{"a relation too few",
        [](const auto& folder) { folder.Write("raw/edge_reltype.csv.gz", Gzip("1\n2\n")); },
        {"edge.csv.gz: line 3", "no relation", "2 of them"}},
       {"a relation too many",
        [](const auto& folder) {
          folder.Write("raw/edge_reltype.csv.gz", Gzip(Lines(std::vector<int>(201, 4))));
        },
        {"edge_reltype.csv.gz: line 201", "beyond the 200 edges"}},
       {"a word for a relation",
        [](const auto& folder) { folder.Write("raw/edge_reltype.csv.gz", Gzip("1\nx\n")); },
        {"edge_reltype.csv.gz: line 2", "'x'"}},
       {"edges cut off",
        [](const auto& folder) { CutByOne(folder, "raw/edge.csv.gz"); },
        {"edge.csv.gz", "cut off"}},
       {"no number of nodes",
        [](const auto& folder) { Remove(folder, "raw/num-node-list.csv.gz"); },
        {"edge.csv.gz", "--nodes"}},
       {"an edge of a node that is not there",
        [](const auto& folder) { folder.Write("raw/edge.csv.gz", Gzip("0,1\n999,1\n")); },
        {"edge.csv.gz: line 2", "node id 999"}}});
}

TEST(PublishedSetsTest, DamagedSplitsOfMag240MAreRefused) {
  const auto splits = [](const std::vector<TorchArray>& arrays) {
    return [=](const TemporaryFolder& folder) { folder.Write("split_dict.pt", TorchFile(arrays)); };
  };
  const TorchArray train{"train", {1}, {0}}, valid{"valid", {1}, {1}}, test{"test", {1}, {2}};
  ExpectRefused(
      [](const TemporaryFolder& folder) { WriteMag240M(folder, Graph()); }, {},
      {{"no validation", splits({train, test}), {"split_dict.pt", "only train, test"}},
       {"a matrix", splits({{"train", {1, 2}, {0, 1}}, valid, test}), {"split_dict.pt: train", "[1, 2]"}},
       {"cut off",
        [](const auto& folder) { CutByOne(folder, "split_dict.pt"); },
        {"split_dict.pt: offset", "cut off"}}});
}

TEST(PublishedSetsTest, WhatStaysOutIsSaidOnStderr) {
  const TemporaryFolder ogb("ogb");
  WriteOgbLinks(ogb, Graph(), false);
  const TemporaryFolder mag("mag");
  WriteMag240M(mag, Graph());
  testing::internal::CaptureStderr();
  EXPECT_OK(OpenDataset(ogb.path(), {}));
  EXPECT_OK(OpenDataset(mag.path(), {}));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(HasSubstr("edge_year.csv.gz: edges are"), HasSubstr("without author___writes___paper")));
}

}  // namespace
}  // namespace quarry
