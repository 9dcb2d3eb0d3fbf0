// How sources are recognised, and how their parts are held against each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "packed_files.h"
#include "reader_support.h"
#include "support/array_files.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 4 nodes with everything.
void WriteSet(const TemporaryFolder& folder) {
  folder.Write("edges.npy", NpyEdges({{0, 1}, {1, 2}, {3, 0}}));
  folder.Write("features.npy", NpyFile<float>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
  folder.Write("labels.npy", NpyVector<int64_t>({0, 1, 0, 1}));
  folder.Write("train_idx.npy", NpyVector<int64_t>({0, 1}));
  folder.Write("valid_idx.npy", NpyVector<int64_t>({2}));
  folder.Write("test_idx.npy", NpyVector<int64_t>({3}));
  folder.Write("train_idx_20.npy", "ignored");
  folder.Write("train_masks.npy", "ignored");
  folder.Write("nodes.txt", "ignored\n");
}

TEST(DatasetTest, AFolderOfArraysIsTakenByItsNames) {
  const TemporaryFolder folder("set");
  WriteSet(folder);
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.source, folder.path());
  EXPECT_EQ(dataset.node_count, 4u);
  EXPECT_EQ(dataset.edges.size(), 1u);
  EXPECT_EQ(dataset.edges[0].name, "");
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(0, 1));
  EXPECT_THAT(*ReadAll(*dataset.valid), ElementsAre(2));
  EXPECT_THAT(*ReadAll(*dataset.test), ElementsAre(3));
  EXPECT_THAT(dataset.features->Position(3), HasSubstr("features.npy: row 3"));
  EXPECT_THAT(dataset.labels->Position(1), HasSubstr("labels.npy: row 1"));
}

// The same matrix with columns first.
template <typename T>
std::string FortranFile(const std::vector<T>& values, uint64_t rows, uint64_t columns) {
  std::vector<T> turned(values.size());
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) turned[c * rows + r] = values[r * columns + c];
  }
  return NpyHeaderBytes({.descr = std::string(NpyDescr<T>()), .fortran = true, .shape = {rows, columns}}) +
         RawBytes(turned);
}

TEST(DatasetTest, MatricesMayHaveColumnsFirst) {
  const TemporaryFolder folder("set");
  const EdgeList edges = {{0, 1}, {1, 2}, {3, 0}};
  SourceHints hints;
  hints.features = folder.Write("f.npy", FortranFile<float>({1, 2, 3, 4, 5, 6, 7, 8}, 4, 2));
  for (const std::string& file :
       {FortranFile<int64_t>({0, 1, 3, 1, 2, 0}, 2, 3), FortranFile<int64_t>({0, 1, 1, 2, 3, 0}, 3, 2)}) {
    folder.Write("set/edges.npy", file);
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder / "set", hints));
    EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), edges);
    EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  }
  // Two by two: sources, then destinations.
  folder.Write("set/edges.npy", FortranFile<int64_t>({0, 1, 2, 3}, 2, 2));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder / "set", {}));
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 2}, {1, 3}}));
}

TEST(DatasetTest, LargeMatricesWithColumnsFirstAreTurnedAPieceAtATime) {
  const TemporaryFolder folder("set");
  constexpr uint64_t kRows = 50'000, kColumns = 67;  // 13 MB
  std::vector<float> values(kRows * kColumns);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(Mix64(i) % 1000003);
  SourceHints hints;
  hints.features = folder.Write("f.npy", FortranFile(values, kRows, kColumns));
  folder.Write("set/edges.npy", NpyEdges({{0, 1}}));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder / "set", hints));
  EXPECT_EQ(*ReadFloats(*dataset.features), values);
}

TEST(DatasetTest, FilesMayBeCalledAsArraysInAnArchive) {
  const TemporaryFolder folder("set");
  folder.Write("edge_index.npy", NpyEdges({{0, 1}, {3, 0}}));
  folder.Write("x.npy", NpyFile<float>({1, 2, 3, 4}, {4, 1}));
  folder.Write("y.npy", NpyVector<int64_t>({0, 1, 0, 1}));
  folder.Write("train_mask.npy", NpyHeaderBytes({.descr = "|b1", .shape = {4}}) + std::string("\0\1\0\1", 4));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 1}, {3, 0}}));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(1, 3));
}

TEST(DatasetTest, WhatIsNotImportedIsListedWithWhatItMayBeMeantAs) {
  const TemporaryFolder folder("set");
  folder.Write("edges.npy", NpyEdges({{0, 1}}));
  for (const char* const name : {"feat.npy", "train.npy", "notes.bin"}) folder.Write(name, "PAR1 and more");
  folder.Write("README.txt", "about");
  testing::internal::CaptureStderr();
  EXPECT_OK(OpenDataset(folder.path(), {}));
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("not imported: feat.npy ("));
  EXPECT_THAT(told, HasSubstr("Parquet"));
  EXPECT_THAT(told, testing::Not(HasSubstr("README")));
  folder.Write("feat.npy", NpyFile<float>({1}, {1, 1}));
  testing::internal::CaptureStderr();
  EXPECT_OK(OpenDataset(folder.path(), {}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("feat.npy (did you mean features.npy?), notes"));
}

TEST(DatasetTest, TextMayNameItsColumnsInEveryFile) {
  const TemporaryFolder folder("set");
  folder.Write("edges.csv", "src,dst\n0,1\n2,0\n");
  folder.Write("features.csv", "height,weight\n1,2\n3,4\n5,6\n");
  folder.Write("labels.csv", "label\n0\n1\n1\n");
  folder.Write("train_idx.csv", "node\n2\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.node_count, 3u);
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(0, 1, 1));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(2));
  // Columns that are numbered, as pandas does it.
  folder.Write("features.csv", "0,1,2\n1,2,3\n4,5,6\n7,8,9\n");
  ASSERT_OK_AND_ASSIGN(dataset, OpenDataset(folder.path(), {}));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));
  // Two columns may be a node's 0 and 1, unless the number of nodes tells.
  folder.Write("features.csv", "0,1\n2,3\n4,5\n");
  ASSERT_OK_AND_ASSIGN(dataset, OpenDataset(folder.path(), {}));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(0, 1, 2, 3, 4, 5));
  folder.Write("features.csv", "0,1\n2,3\n4,5\n6,7\n");
  SourceHints hints;
  hints.node_count = 3;
  ASSERT_OK_AND_ASSIGN(dataset, OpenDataset(folder.path(), hints));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(2, 3, 4, 5, 6, 7));
}

TEST(DatasetTest, FormatsThatAreNotReadSayHowTheyComeIn) {
  const TemporaryFolder folder("set");
  struct Case {
    std::string bytes;
    const char* what;
  };
  const Case cases[] = {{"PAR1\x15", "pandas.read_parquet"},
                        {std::string("ARROW1\0\0", 8), "pandas.read_feather"},
                        {"\x89HDF\r\n\x1a\n", "h5py.File"},
                        {std::string("SQLite format 3\0", 16), "SQLite"},
                        {"\x28\xb5\x2f\xfd", "unzstd"},
                        {std::string("PK\x03\x04"), "zip archive"},
                        {std::string("\x01\x00\x02", 3), "is no text"}};
  for (const Case& bad : cases) {
    const std::string path = folder.Write("edges.csv", bad.bytes);
    const Status status = OpenDataset(path, {}).status();
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr(path), HasSubstr(bad.what)));
    for (const char c : status.message()) EXPECT_GE(c, ' ');
  }
  folder.Write("only/graph.parquet", "PAR1");
  EXPECT_THAT(std::string(OpenDataset(folder / "only", {}).status().message()),
              testing::AllOf(HasSubstr("no edges found in graph.parquet"), HasSubstr("read_parquet")));
}

TEST(DatasetTest, TopologyAloneIsEnough) {
  const TemporaryFolder folder("set");
  folder.Write("edges.tsv.gz", Gzip("0\t1\n"));
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.features, nullptr);
  EXPECT_EQ(dataset.node_count, std::nullopt);
}

TEST(DatasetTest, TypedEdgesAreOneListPerFileByName) {
  const TemporaryFolder folder("set");
  folder.Write("edges_writes.npy", NpyEdges({{0, 1}}));
  folder.Write("edges_cites.csv", "1,2\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  ASSERT_EQ(dataset.edges.size(), 2u);
  EXPECT_EQ(dataset.edges[0].name, "cites");
  EXPECT_EQ(dataset.edges[1].name, "writes");
  folder.Write("edges_cites.npy", NpyEdges({{0, 1}}));
  EXPECT_THAT(std::string(OpenDataset(folder.path(), {}).status().message()),
              HasSubstr("both hold the edges of 'cites'"));
}

TEST(DatasetTest, StatedFilesOverrideTheUsualOnes) {
  const TemporaryFolder folder("set");
  WriteSet(folder);
  SourceHints hints;
  hints.edges = folder.Write("other/e.csv", "2,3\n");
  hints.labels = folder.Write("other/l.csv", "5\n6\n7\n8\n");
  hints.train = folder.Write("other/mask.npy",
                             NpyHeaderBytes({.descr = "|b1", .shape = {4}}) + std::string("\0\0\1\0", 4));
  hints.features = folder.Write("other/f.csv", "1 2 3\n1 2 3\n1 2 3\n1 2 4\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), hints));
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{2, 3}}));
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(2));
  EXPECT_EQ(dataset.features->dim(), 3u);
  hints.labels = folder / "absent.npy";
  EXPECT_THAT(OpenDataset(folder.path(), hints), IsStatus(Code::kNotFound));
}

TEST(DatasetTest, SaysWhatItLookedForWhenThereIsNothing) {
  const TemporaryFolder folder("set");
  EXPECT_THAT(OpenDataset(folder / "absent", {}), IsStatus(Code::kNotFound));
  folder.Write("features.npy", NpyFile<float>({1}, {1, 1}));
  folder.Write("train.txt", "these are words\n");
  const Status status = OpenDataset(folder.path(), {}).status();
  EXPECT_THAT(status, IsStatus(Code::kNotFound));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(folder.path()), HasSubstr("edges.npy"), HasSubstr("raw/edge.csv.gz")));
  EXPECT_THAT(OpenDataset("/dev/null", {}), IsStatus(Code::kInvalidArgument));
}

TEST(DatasetTest, MetadataIsHeldAgainstTheFiles) {
  const TemporaryFolder folder("set");
  WriteSet(folder);
  folder.Write("metadata.yaml",
               "num_nodes: 4\nnum_edges: 3\nfeature_dim: 2\nnum_classes: 9\nseed: 1\nextra: [1, 2]\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_EQ(dataset.class_count, 9u);
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::vector<const char*>>>{
           {"num_nodes: 5\n", {"features.npy", "4 rows", "5 nodes", "metadata.yaml"}},
           {"num_edges: 5\n", {"edges.npy", "3 edges", "num_edges 5"}},
           {"feature_dim: 5\n", {"features.npy", "2 columns", "5 columns"}},
           {"num_nodes: many\n", {"metadata.yaml", "line 1", "num_nodes", "'many'"}},
           {"num_nodes: -4\n", {"metadata.yaml", "'-4'"}},
           {"- 1\n- 2\n", {"metadata.yaml", "map"}},
           {"num_nodes: [\n", {"metadata.yaml", "line"}}}) {
    folder.Write("metadata.yaml", text);
    const Status status = OpenDataset(folder.path(), {}).status();
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument)) << text;
    for (const char* word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(DatasetTest, CountsThatContradictEachOtherAreRefused) {
  struct Case {
    const char* name;
    std::string bytes;
    uint64_t nodes;
    std::vector<const char*> words;
  };
  const std::vector<Case> cases = {
      {"labels.npy",
       NpyVector<int64_t>({0, 1, 0, 1, 0}),
       0,
       {"labels.npy", "5 labels", "4 nodes", "features.npy"}},
      {"labels.npy", NpyVector<int64_t>({0, 1}), 0, {"labels.npy", "2 labels", "4 nodes"}},
      {"features.npy", NpyFile<float>({1, 2}, {2, 1}), 4, {"features.npy", "2 rows", "4 nodes", "--nodes"}},
      {"train_idx.npy",
       NpyHeaderBytes({.descr = "|b1", .shape = {3}}) + "\1\1\1",
       0,
       {"train_idx.npy", "3 items", "4 nodes"}},
      {"features.npy", NpyFile<float>({}, {0, 2}), 0, {"labels.npy", "4 labels", "0 nodes"}},
  };
  for (const Case& bad : cases) {
    const TemporaryFolder folder("set");
    WriteSet(folder);
    folder.Write(bad.name, bad.bytes);
    const Status status = OpenDataset(folder.path(), {.node_count = bad.nodes}).status();
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
    for (const char* word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(DatasetTest, ASetWithoutNodesIsRefused) {
  const TemporaryFolder folder("set");
  folder.Write("edges.npy", NpyFile<int64_t>({}, {2, 0}));
  folder.Write("features.npy", NpyFile<float>({}, {0, 2}));
  EXPECT_THAT(std::string(OpenDataset(folder.path(), {}).status().message()), HasSubstr("no nodes"));
}

}  // namespace
}  // namespace quarry
