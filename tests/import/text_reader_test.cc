// Edge lists, triples and OGB's folders.
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

TEST(TextEdgesTest, EverySeparatorWithAndWithoutHeaderPlainAndGzip) {
  const TemporaryFolder folder("text");
  Rng random(1);
  EdgeList edges(2'000);
  for (auto& [source, destination] : edges) {
    source = static_cast<int64_t>(random.Below(uint64_t{1} << 33));
    destination = static_cast<int64_t>(random.Below(10));
  }
  for (const std::string separator : {",", ";", "\t", " ", ", ", " , ", "   "}) {
    const std::vector<std::string> starts = {"", "source" + separator + "target\n",
                                             "# Nodes: 5 Edges: 6\n\n# FromNodeId\tToNodeId\n",
                                             "%%MatrixMarket\n", "\xef\xbb\xbf"};
    for (const std::string& start : starts) {
      for (const std::string end : {"\n", "\r\n"}) {
        std::string text = start;
        for (const auto& [source, destination] : edges) {
          text += fmt::format("{}{}{}{}", source, separator, destination, end);
        }
        for (const bool gzip : {false, true}) {
          SCOPED_TRACE(fmt::format("separator '{}' start '{}' CRLF {} gzip {}", separator, start,
                                   end == "\r\n", gzip));
          const std::string path = folder.Write(gzip ? "e.csv.gz" : "e.csv", gzip ? Gzip(text) : text);
          ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(path, {}));
          ASSERT_OK_AND_ASSIGN(const auto read, ReadAll(*dataset.edges[0].reader));
          ASSERT_TRUE(read == edges);
        }
      }
    }
  }
}

TEST(TextEdgesTest, TheLastLineNeedsNoEndAndCommentsMayStandBetween) {
  const TemporaryFolder folder("text");
  auto dataset = OpenDataset(folder.Write("e.txt", "# a\n1 2\n\n# b\n\"3\" 4\n5\t6"), {});
  ASSERT_OK(dataset);
  std::vector<Edge> batch(10);
  ASSERT_EQ(*dataset->edges[0].reader->Read(batch), 3u);
  EXPECT_EQ(batch[1].source, 3u);
  EXPECT_EQ(batch[2].destination, 6u);
  EXPECT_THAT(dataset->edges[0].reader->Position(1), HasSubstr("e.txt: line 5"));
  EXPECT_THAT(dataset->edges[0].reader->Position(2), HasSubstr("e.txt: line 6"));
  EXPECT_EQ(*dataset->edges[0].reader->Read(batch), 0u);
}

TEST(TextEdgesTest, AnEmptyFileIsAnEmptyList) {
  const TemporaryFolder folder("text");
  for (const char* text : {"", "\n\n", "# nothing\n"}) {
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.Write("e.csv", text), {}));
    EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), EdgeList());
  }
}

TEST(TextEdgesTest, RefusesWhatIsNoEdgeListAndNamesTheLine) {
  struct Case {
    const char* what;
    std::string text;
    std::vector<const char*> words;
  };
  const std::string packed = Gzip(std::string(50'000, '7'));
  const std::vector<Case> cases = {
      {"four columns", "1,2,0.5,7\n", {"line 1", "4 columns", "1,2,0.5,7"}},
      {"three columns below a header of two", "src,dst\n1,2\n1,2,3\n", {"line 3", "3 columns"}},
      {"two columns below a header of three", "src,dst,weight\n1,2\n", {"line 2", "2 columns", "weight"}},
      {"a weight for some", "1,2,3\n1,2\n", {"line 2", "2 columns", "'1,2'"}},
      {"NaN weight", "0,1,1\n2,3,nan\n", {"line 2", "'nan' is not a weight"}},
      {"infinite weight", "0,1,-inf\n", {"line 1", "'-inf' is not a weight"}},
      {"weight beyond float32", "0 1 1e39\n", {"line 1", "'1e39' is not a weight"}},
      {"a word for a weight", "0\t1\theavy\n", {"line 1", "'heavy' is not a weight"}},
      {"no weight", "0,1,\n", {"line 1", "'' is not a weight"}},
      {"a weight and more", "0,1,2x\n", {"line 1", "'2x' is not a weight"}},
      {"a matrix", "%%MatrixMarket matrix coordinate\n%\n3 3 2\n1 2\n", {"MatrixMarket"}},
      {"three blanks apart", "1 2\n1 2 3\n", {"line 2", "3 columns"}},
      {"one column", "1,2\n17\n", {"line 2", "1 column "}},
      {"NaN id", "0,1\n2,nan\n", {"line 2", "'nan'"}},
      {"NaN ids in the first line", "nan,nan\n", {"line 1", "'nan'"}},
      {"fraction", "0,1\n0,1.5\n", {"line 2", "'1.5'"}},
      {"negative", "0,1\n\n-3,1\n", {"line 3", "-3"}},
      {"beyond 2^63", "0,99999999999999999999\n", {"line 1", "99999999999999999999"}},
      {"missing id", "0,\n", {"line 1", "''"}},
      {"another header", "0,1\nsrc,dst\n", {"line 2", "'src'"}},
      {"binary", std::string("\x00\x01\x02\xff", 4), {"is no text"}},
      {"endless line", std::string(3 << 20, '1'), {"line 1", "longer than"}},
      {"gzip cut off", packed.substr(0, packed.size() / 2), {"cut off"}},
      {"gzip damaged", packed.substr(0, 20) + std::string(30, 'x') + packed.substr(30), {"damaged"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.what);
    const TemporaryFolder folder("text");
    const Status status = ReadEverything(folder.Write("edges.csv", bad.text), {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr("edges.csv")));
    for (const char* word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(TriplesTest, NamesGetDenseIdsInOrderOfFirstAppearanceOverAllFiles) {
  const TemporaryFolder folder("kg");
  folder.Write("train.txt", "rome\tin\titaly\r\nparis\tin\tfrance\r\nrome\tnear\tostia\r\n");
  folder.Write("valid.txt", "ostia\tin\titaly\n");
  folder.Write("test.txt", "lyon\tpart of\tfrance\n");
  folder.Write("entities.txt", "ignored\n");
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path(), {}));
  EXPECT_THAT(dataset.entity_names, ElementsAre("rome", "italy", "paris", "france", "ostia", "lyon"));
  EXPECT_THAT(dataset.relation_names, ElementsAre("in", "near", "part of"));
  EXPECT_EQ(dataset.node_count, 6u);
  std::vector<Triple> batch(10);
  ASSERT_EQ(*dataset.train_triples->Read(batch), 3u);
  EXPECT_EQ(dataset.train_triples->count(), 3u);
  EXPECT_EQ(batch[2].head, 0u);
  EXPECT_EQ(batch[2].relation, 1u);
  EXPECT_EQ(batch[2].tail, 4u);
  ASSERT_EQ(*dataset.test_triples->Read(batch), 1u);
  EXPECT_EQ(batch[0].head, 5u);
  EXPECT_EQ(batch[0].relation, 2u);
  EXPECT_EQ(*dataset.test_triples->Read(batch), 0u);
}

TEST(TriplesTest, RefusesLinesThatAreNoTriples) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::vector<const char*>>>{
           {"a\tr\tb\na\tr\n", {"line 2", "'a\tr'"}},
           {"a\tr\tb\na\tr\tb\tc\n", {"line 2", "head TAB relation TAB tail"}},
           {"a\tr\tb\t1\na\tr\tb\n", {"line 2", "tail TAB weight"}},
           {"a\tr\tb\t1\na\tr\tb\tnan\n", {"line 2", "'nan' is not a weight"}},
           {"a\tr\tb\na\t\tb\n", {"line 2", "empty name"}}}) {
    const TemporaryFolder folder("kg");
    folder.Write("train.txt", text);
    const Status status = ReadEverything(folder.path(), {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
    for (const char* word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

void WriteOgb(const TemporaryFolder& folder) {
  folder.Write("raw/edge.csv.gz", Gzip("0,1\n1,2\n3,0\n"));
  folder.Write("raw/num-node-list.csv.gz", Gzip("4\n"));
  folder.Write("raw/num-edge-list.csv.gz", Gzip("3\n"));
  folder.Write("raw/node-feat.csv.gz", Gzip("0.5,1\n-2,3e-2\n0,0\n7,8\n"));
  folder.Write("raw/node-label.csv.gz", Gzip("1.0\nnan\n0\n2\n"));
  folder.Write("split/time/train.csv.gz", Gzip("0\n3\n"));
  folder.Write("split/time/valid.csv.gz", Gzip("1\n"));
  folder.Write("split/time/test.csv.gz", Gzip("2\n"));
}

TEST(OgbTest, AFolderComesInWhole) {
  const TemporaryFolder folder("ogb");
  WriteOgb(folder);
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.path() + "/", {}));
  EXPECT_EQ(dataset.node_count, 4u);
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 1}, {1, 2}, {3, 0}}));
  EXPECT_EQ(dataset.features->dim(), 2u);
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(0.5f, 1, -2, 3e-2f, 0, 0, 7, 8));
  EXPECT_THAT(*ReadAll(*dataset.labels), ElementsAre(1, -1, 0, 2));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(0, 3));
  EXPECT_THAT(*ReadAll(*dataset.valid), ElementsAre(1));
  EXPECT_THAT(*ReadAll(*dataset.test), ElementsAre(2));
}

TEST(OgbTest, RefusesFoldersThatContradictThemselves) {
  struct Case {
    const char* name;
    const char* text;
    std::vector<const char*> words;
  };
  const std::vector<Case> cases = {
      {"raw/node-feat.csv.gz", "0.5,1\n-2\n0,0\n7,8\n", {"node-feat", "line 2", "1 columns"}},
      {"raw/node-feat.csv.gz", "0.5,1\n-2,x\n0,0\n7,8\n", {"node-feat", "line 2", "column 1", "'x'"}},
      {"raw/node-feat.csv.gz", "0.5,1\n-2,1\n0,0\n", {"node-feat", "3 rows", "4"}},
      {"raw/node-feat.csv.gz", "1\n2\n3\n4\n5\n", {"node-feat", "line 5", "beyond the 4"}},
      {"raw/node-label.csv.gz", "1\n2\n3\n4\n5\n", {"node-label", "5 labels", "4 nodes", "num-node-list"}},
      {"raw/node-label.csv.gz", "1\n2\n0.5\n4\n", {"node-label", "line 3", "'0.5'"}},
      {"raw/num-node-list.csv.gz", "4\n4\n", {"several graphs"}},
      {"raw/num-node-list.csv.gz", "many\n", {"num-node-list", "line 1"}},
      {"split/time/train.csv.gz", "0\nnan\n", {"train.csv.gz", "line 2", "'nan'"}},
      {"split/random/train.csv.gz", "0\n", {"2 splits", "--train"}},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.text);
    const TemporaryFolder folder("ogb");
    WriteOgb(folder);
    folder.Write(bad.name, Gzip(bad.text));
    const Status status = ReadEverything(folder.path(), {});
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(ExitCode(status.code()), 1) << status.ToString();
    for (const char* word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

}  // namespace
}  // namespace quarry
