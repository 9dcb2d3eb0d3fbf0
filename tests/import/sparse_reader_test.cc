// .npz archives and sparse matrices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "packed_files.h"
#include "reader_support.h"
#include "support/array_files.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

struct Sparse {
  std::vector<int64_t> indptr{0};
  std::vector<int32_t> indices;
  std::vector<float> data;
  uint64_t columns = 0;

  uint64_t rows() const { return indptr.size() - 1; }
  std::vector<float> Dense() const {
    std::vector<float> dense(rows() * columns);
    for (uint64_t row = 0; row < rows(); row++) {
      for (int64_t i = indptr[row]; i < indptr[row + 1]; i++) {
        dense[row * columns + static_cast<uint64_t>(indices[static_cast<size_t>(i)])] +=
            data[static_cast<size_t>(i)];
      }
    }
    return dense;
  }
  EdgeList Edges() const {
    EdgeList edges;
    for (uint64_t row = 0; row < rows(); row++) {
      for (int64_t i = indptr[row]; i < indptr[row + 1]; i++) {
        edges.emplace_back(row, indices[static_cast<size_t>(i)]);
      }
    }
    return edges;
  }
  NpzMembers Members(const std::string& prefix, uint64_t shape_columns) const {
    return {{prefix + "indptr", NpyVector(indptr)},
            {prefix + "indices", NpyVector(indices)},
            {prefix + "data", NpyVector(data)},
            {prefix + "shape",
             NpyVector<int64_t>({static_cast<int64_t>(rows()), static_cast<int64_t>(shape_columns)})},
            {prefix + "format", NpyHeaderBytes({.descr = "|S3", .shape = {}}) + "csr"}};
  }
};

// Some rows are empty, and some name a column twice.
Sparse RandomSparse(uint64_t seed, uint64_t rows, uint64_t columns) {
  Rng random(seed);
  Sparse sparse{.columns = columns};
  for (uint64_t row = 0; row < rows; row++) {
    for (uint64_t i = random.Below(8); i > 0; i--) {
      sparse.indices.push_back(static_cast<int32_t>(random.Below(columns)));
      sparse.data.push_back(static_cast<float>(random.Below(100)));
    }
    sparse.indptr.push_back(static_cast<int64_t>(sparse.indices.size()));
  }
  return sparse;
}

void WriteCsrFiles(const TemporaryFolder& folder, const Sparse& sparse) {
  folder.Write("features_indptr.npy", NpyVector(sparse.indptr));
  folder.Write("features_indices.npy", NpyVector(sparse.indices));
  folder.Write("features_data.npy", NpyVector(sparse.data));
}

TEST(SparseReaderTest, ThreeFilesBecomeDenseRows) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const TemporaryFolder folder("csr");
    const Sparse sparse = RandomSparse(seed, seed * 9'000, 50);
    folder.Write("edges.npy", NpyEdges({{0, 1}}));
    WriteCsrFiles(folder, sparse);
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {.feature_dim = 50}));
    EXPECT_EQ(dataset.features->dim(), 50u);
    EXPECT_EQ(dataset.features->row_count(), sparse.rows());
    EXPECT_TRUE(*ReadFloats(*dataset.features) == sparse.Dense());
  }
}

TEST(SparseReaderTest, TheNumberOfColumnsComesFromWhoeverStatesItFirst) {
  const TemporaryFolder folder("csr");
  Sparse sparse{.indptr = {0, 1, 2}, .indices = {0, 3}, .data = {1, 2}, .columns = 4};
  folder.Write("edges.npy", NpyEdges({{0, 1}}));
  WriteCsrFiles(folder, sparse);
  const auto columns = [&](const SourceHints& hints) {
    return OpenDataset(folder.path(), hints)->features->dim();
  };
  EXPECT_EQ(columns({}), 4u);  // 1 + the largest index
  folder.Write("README.txt", "A set. MD = 3, N = 2, D = 6, D = 7.\n");
  EXPECT_EQ(columns({}), 6u);
  folder.Write("metadata.yaml", "feature_dim: 8\n");
  EXPECT_EQ(columns({}), 8u);
  EXPECT_THAT(std::string(OpenDataset(folder.path(), {.feature_dim = 9}).status().message()),
              HasSubstr("8 columns"));
  std::filesystem::remove(folder / "metadata.yaml");
  EXPECT_EQ(columns({.feature_dim = 9}), 9u);
}

TEST(SparseReaderTest, RefusesMatricesThatContradictThemselves) {
  const Sparse good{.indptr = {0, 1, 2}, .indices = {0, 3}, .data = {1, 2}, .columns = 4};
  struct Case {
    const char* what;
    Sparse sparse;
    std::vector<const char*> words;
  };
  const std::vector<Case> cases = {
      {"starts above 0",
       {.indptr = {1, 1, 2}, .indices = {0, 3}, .data = {1, 2}},
       {"indptr", "starts with 1"}},
      {"falls", {.indptr = {0, 2, 1}, .indices = {0, 3}, .data = {1, 2}}, {"indptr", "row 1"}},
      {"ends too early",
       {.indptr = {0, 1, 1}, .indices = {0, 3}, .data = {1, 2}},
       {"indptr", "row 1", "of 2"}},
      {"ends too late", {.indptr = {0, 1, 9}, .indices = {0, 3}, .data = {1, 2}}, {"indptr", "row 1", "9"}},
      {"no rows", {.indptr = {0}, .indices = {0, 3}, .data = {1, 2}}, {"no rows"}},
      {"column too large",
       {.indptr = {0, 1, 2}, .indices = {0, 4}, .data = {1, 2}},
       {"row 1", "column 4", "--dim"}},
      {"negative column", {.indptr = {0, 1, 2}, .indices = {0, -4}, .data = {1, 2}}, {"entry 1", "-4"}},
      {"values missing", {.indptr = {0, 1, 2}, .indices = {0, 3}, .data = {1}}, {"features_data", "[1]"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    const TemporaryFolder folder("csr");
    folder.Write("edges.npy", NpyEdges({{0, 1}}));
    WriteCsrFiles(folder, bad.sparse);
    const Status status = ReadEverything(folder.path(), {.feature_dim = 4});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
    for (const char* word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
  const TemporaryFolder folder("csr");
  folder.Write("edges.npy", NpyEdges({{0, 1}}));
  WriteCsrFiles(folder, good);
  EXPECT_OK(ReadEverything(folder.path(), {.feature_dim = 4}));
}

TEST(NpzReaderTest, OneArchiveHoldsAWholeSet) {
  for (const bool deflate : {false, true}) {
    SCOPED_TRACE(deflate);
    const TemporaryFolder folder("npz");
    Rng random(5);
    EdgeList edges(90'000);
    for (auto& [source, destination] : edges)
      source = static_cast<int64_t>(random.Below(1000)), destination = 7;
    std::vector<float> features(1000 * 3);
    for (float& value : features) value = static_cast<float>(random.Unit());
    std::vector<int64_t> labels(1000, 2);
    const std::string path = WriteNpz(
        folder, "set.npz",
        {{"edges", NpyEdges(edges)},
         {"features", NpyFile(features, {1000, 3})},
         {"labels", NpyVector(labels)},
         {"train_idx", NpyVector<int64_t>({5, 6})},
         {"val_mask", NpyHeaderBytes({.descr = "|b1", .shape = {1000}}) + std::string(999, '\0') + '\1'},
         {"names", NpyHeaderBytes({.descr = "|O", .shape = {1}}) + "pickle"}},
        deflate);
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(path, {}));
    EXPECT_TRUE(*ReadAll(*dataset.edges[0].reader) == edges);
    EXPECT_EQ(*ReadFloats(*dataset.features), features);
    EXPECT_EQ(*ReadAll(*dataset.labels), labels);
    EXPECT_EQ(*ReadAll(*dataset.train), (std::vector<int64_t>{5, 6}));
    EXPECT_EQ(*ReadAll(*dataset.valid), (std::vector<int64_t>{999}));
    EXPECT_EQ(dataset.test, nullptr);
    EXPECT_EQ(dataset.node_count, 1000u);
  }
}

TEST(NpzReaderTest, ScipysMatrixIsAnAdjacencyAsSourceAndFeaturesInAFolder) {
  for (const bool deflate : {false, true}) {
    const TemporaryFolder folder("npz");
    const Sparse sparse = RandomSparse(8, 2000, 2000);
    const std::string path = WriteNpz(folder, "features.npz", sparse.Members("", 2000), deflate);
    ASSERT_OK_AND_ASSIGN(auto graph, OpenDataset(path, {}));
    EXPECT_EQ(graph.node_count, 2000u);
    EXPECT_EQ(graph.features, nullptr);
    EXPECT_TRUE(*ReadAll(*graph.edges[0].reader) == sparse.Edges());

    folder.Write("edges.npy", NpyEdges({{0, 1}}));
    ASSERT_OK_AND_ASSIGN(auto set, OpenDataset(folder.path(), {}));
    EXPECT_TRUE(*ReadFloats(*set.features) == sparse.Dense());
  }
}

TEST(NpzReaderTest, RefusesDamagedAndForeignArchives) {
  const TemporaryFolder folder("npz");
  const Sparse sparse = RandomSparse(8, 500, 500);
  const auto expect = [&](const std::string& path, const char* word) {
    const Status status = ReadEverything(path, {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, testing::AllOf(HasSubstr(".npz"), HasSubstr(word))));
  };
  expect(folder.Write("a.npz", "plain words"), "plain text");
  NpzMembers csc = sparse.Members("", 500);
  csc[4].second = NpyHeaderBytes({.descr = "<U3", .shape = {}}) + std::string("c\0\0\0s\0\0\0c\0\0\0", 12);
  expect(WriteNpz(folder, "b.npz", csc, false), "csc");
  expect(WriteNpz(folder, "c.npz", sparse.Members("", 501), false), "square");
  expect(WriteNpz(folder, "d.npz", {{"weights", NpyVector<float>({1})}}, false), "no edges");
  const std::string whole = testing_util::FileText(WriteNpz(folder, "e.npz", sparse.Members("", 500), true));
  expect(folder.Write("f.npz", whole.substr(0, whole.size() / 2)), "cut off");
  // One bit of an id, so that only the archive's CRC can tell.
  std::string flipped = testing_util::FileText(
      WriteNpz(folder, "g.npz", {{"edges", NpyEdges({{0, 1}, {1, 2}, {4, 3}})}}, false));
  flipped[flipped.find("\x93NUMPY") + NpyHeaderBytes({.shape = {2, 3}}).size() + 16] ^= 1;
  expect(folder.Write("g.npz", flipped), "damaged");
}

}  // namespace
}  // namespace quarry
