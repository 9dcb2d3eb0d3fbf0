// Weights of edges: where they are looked for, and what is refused with which words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "packed_files.h"
#include "reader_support.h"
#include "support/array_files.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The weights of the edges of a source, read two at a time; empty where it has none.
std::vector<float> WeightsOf(const std::string& path, const SourceHints& hints = {}) {
  auto dataset = OpenDataset(path, hints);
  EXPECT_OK(dataset);
  std::vector<float> weights;
  for (const EdgeInput& input : dataset->edges) {
    std::vector<Edge> batch(2);
    for (size_t n = 1; n > 0;) {
      const auto read = input.reader->Read(batch);
      EXPECT_OK(read);
      n = read.ok() ? *read : 0;
      EXPECT_EQ(input.reader->weights().size(), input.reader->weighted() ? n : 0);
      weights.insert(weights.end(), input.reader->weights().begin(), input.reader->weights().end());
    }
  }
  return weights;
}

const std::string kEdges = NpyEdges({{0, 1}, {1, 2}, {2, 0}});

TEST(EdgeWeightsTest, ATextHasThemInItsThirdColumn) {
  const TemporaryFolder folder("weights");
  EXPECT_THAT(WeightsOf(folder.Write("e.csv", "0,1,0.5\n1,2,-3\n2,0,1e-3\n")), ElementsAre(0.5, -3, 1e-3f));
  EXPECT_THAT(WeightsOf(folder.Write("e.tsv", "src\tdst\tweight\n0\t1\t7\n \"1\"\t2 \t 8 \n")),
              ElementsAre(7, 8));
  EXPECT_THAT(WeightsOf(folder.Write("e.txt", "# a b c\n0  1  2\n\n1 2 \"3\"\n")), ElementsAre(2, 3));
  EXPECT_THAT(WeightsOf(folder.Write("e.csv.gz", Gzip("0,1,16777217\n"))), ElementsAre(16777216));
  EXPECT_THAT(WeightsOf(folder.Write("e.csv", "0,1\n")), ElementsAre());
}

TEST(EdgeWeightsTest, AFolderHasThemBesideItsEdges) {
  const TemporaryFolder folder("weights");
  folder.Write("edges.npy", kEdges);
  EXPECT_THAT(WeightsOf(folder.path()), ElementsAre());
  for (const std::string& weights :
       {NpyVector<float>({1, 2, 3}), NpyVector<double>({1, 2, 3}), NpyVector<int64_t>({1, 2, 3}),
        NpyVector<uint8_t>({1, 2, 3}), NpyFile<float>({1, 2, 3}, {3, 1})}) {
    folder.Write("edge_weights.npy", weights);
    EXPECT_THAT(WeightsOf(folder.path()), ElementsAre(1, 2, 3));
  }
  EXPECT_THAT(WeightsOf(folder / "edges.npy"), ElementsAre(1, 2, 3)) << "also of a file by itself";
  folder.Write("others.npy", kEdges);
  EXPECT_THAT(WeightsOf(folder.path(), {.edges = folder / "others.npy"}), ElementsAre());
}

TEST(EdgeWeightsTest, EachRelationHasItsOwn) {
  const TemporaryFolder folder("weights");
  folder.Write("edges_b.c.npy", kEdges);
  folder.Write("edges_a.csv.gz", Gzip("1,1\n"));
  folder.Write("edge_weights_b.c.csv", "4\n5\n\n6\n");
  EXPECT_THAT(WeightsOf(folder.path()), ElementsAre(4, 5, 6));
}

TEST(EdgeWeightsTest, OgbFoldersHaveThemInAFileOfTheirOwn) {
  const TemporaryFolder folder("weights");
  folder.Write("raw/edge.csv.gz", Gzip("0,1\n1,2\n"));
  folder.Write("raw/edge_weight.csv.gz", Gzip("2\n0.5\n"));
  folder.Write("raw/edge_year.csv.gz", Gzip("2001\n2002\n"));
  folder.Write("raw/num-node-list.csv.gz", Gzip("3\n"));
  EXPECT_THAT(WeightsOf(folder.path()), ElementsAre(2, 0.5));
}

TEST(EdgeWeightsTest, OgbSplitsHaveThemBesideTheirEdges) {
  const TemporaryFolder folder("weights");
  folder.Write("raw/edge.csv.gz", Gzip("0,1\n"));
  folder.Write("raw/num-node-list.csv.gz", Gzip("3\n"));
  folder.Write("split/time/valid.csv", "0,2\n");
  std::filesystem::create_directories(folder / "split/time");
  WriteNpz(
      folder, "split/time/train.npz",
      {{"edge", NpyFile<int64_t>({0, 1, 1, 2, 0, 2}, {3, 2})}, {"weight", NpyVector<int64_t>({3, 1, 2})}},
      true);
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  std::vector<Triple> batch(5);
  ASSERT_EQ(*dataset.train_triples->Read(batch), 3u);
  EXPECT_THAT(dataset.train_triples->weights(), ElementsAre(3, 1, 2));
  EXPECT_FALSE(dataset.valid_triples->weighted());
}

TEST(EdgeWeightsTest, ArchivesHaveThemUnderTheirName) {
  const TemporaryFolder folder("weights");
  const std::string path = WriteNpz(
      folder, "a.npz", {{"edge_index", kEdges}, {"edge_weight", NpyVector<float>({0.5, 1, 2})}}, false);
  EXPECT_THAT(WeightsOf(path), ElementsAre(0.5, 1, 2));
}

TEST(EdgeWeightsTest, ASparseMatrixHasThemWhereNotAllItsValuesAreOnes) {
  const TemporaryFolder folder("weights");
  const auto write = [&](const std::vector<double>& values) {
    return WriteNpz(folder, "adj.npz",
                    {{"indptr", NpyVector<int32_t>({0, 2, 3})},
                     {"indices", NpyVector<int32_t>({0, 1, 0})},
                     {"data", NpyVector(values)}},
                    false);
  };
  EXPECT_THAT(WeightsOf(write({1, 1, 1})), ElementsAre());
  EXPECT_THAT(WeightsOf(write({1, 1, 0.5})), ElementsAre(1, 1, 0.5));
  EXPECT_THAT(std::string(ReadEverything(write({1, 2}), {}).message()),
              HasSubstr("adj.npz: data: 2 weights for 3 edges"));
}

TEST(EdgeWeightsTest, GraphBoltFoldersHaveThemAmongTheGraphsFeatures) {
  const TemporaryFolder folder("weights");
  folder.Write("edges.npy", kEdges);
  folder.Write("probability.npy", NpyVector<float>({0.5, 1, 2}));
  const auto metadata = [&](const std::string& name) {
    folder.Write("metadata.yaml",
                 "graph:\n  nodes: [{num: 3}]\n  edges: [{format: numpy, path: edges.npy}]\n  feature_data: "
                 "[{domain: edge, name: " +
                     name + ", format: numpy, path: probability.npy}]\n");
    return folder.path();
  };
  EXPECT_THAT(WeightsOf(metadata("weight")), ElementsAre(0.5, 1, 2));
  EXPECT_THAT(WeightsOf(metadata("year")), ElementsAre());
}

TEST(EdgeWeightsTest, WhatAreNoWeightsIsRefusedWithItsPlace) {
  struct Case {
    const char* file;
    std::string bytes;
    const char* words;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases = {
      {"edge_weights.npy", NpyVector<double>({1, 2, kNan}), "edge_weights.npy: row 2: nan is not a weight"},
      {"edge_weights.npy", NpyVector<double>({1, -1e39, 2}), "edge_weights.npy: row 1: -inf is not a weight"},
      {"edge_weights.npy", NpyVector<float>({1, 2}), "edge_weights.npy: 2 weights for 3 edges"},
      {"edge_weights.npy", NpyFile<float>({1, 2, 3, 4, 5, 6}, {3, 2}), "has shape [3, 2]; expected [E]"},
      {"edge_weights.npy", NpyFile<uint16_t>({1, 2, 3}, {3}, "<f2"), "dtype '<f2'"},
      {"edge_weights.csv", "1\n2\ninf\n", "edge_weights.csv: line 3: 'inf' is not a weight"},
      {"edge_weights.csv", "1\n2,5\n3\n", "edge_weights.csv: line 2: '2,5' is not a weight"},
      {"edge_weights.csv", "1\n2\n", "edges.npy: edge 2: has no weight; "},
      {"edge_weights.csv", "1\n2\n3\n4\n", "edge_weights.csv: holds a weight beyond the 3 edges"},
      {"edge_weights.csv.gz", "1\n", "edges.npy: edge 1: has no weight; "},
  };
  for (const Case& bad : cases) {
    const TemporaryFolder folder("weights");
    folder.Write("edges.npy", kEdges);
    folder.Write(bad.file, bad.bytes);
    const Status status = ReadEverything(folder.path(), {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr(bad.words)));
  }
  const TemporaryFolder folder("weights");
  folder.Write("edges.csv", "0,1,2\n");
  folder.Write("edge_weights.csv", "2\n");
  EXPECT_THAT(std::string(ReadEverything(folder.path(), {}).message()),
              HasSubstr("edge_weights.csv: holds weights of edges that have weights already"));
}

}  // namespace
}  // namespace quarry
