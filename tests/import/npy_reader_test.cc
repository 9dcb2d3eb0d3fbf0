#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reader_support.h"
#include "support/array_files.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::HasSubstr;

EdgeList RandomEdges(uint64_t seed, size_t count, uint64_t node_count) {
  Rng random(seed);
  EdgeList edges(count);
  for (auto& [source, destination] : edges) {
    source = static_cast<int64_t>(random.Below(node_count));
    destination = static_cast<int64_t>(random.Below(node_count));
  }
  return edges;
}

template <typename T>
std::string EdgeFile(const EdgeList& edges, bool rows, int version) {
  std::vector<T> ids;
  if (rows) {
    for (const auto& [source, destination] : edges) ids.push_back(static_cast<T>(source));
    for (const auto& [source, destination] : edges) ids.push_back(static_cast<T>(destination));
    return NpyFile(ids, {2, edges.size()}, NpyDescr<T>(), version);
  }
  for (const auto& [source, destination] : edges) {
    ids.push_back(static_cast<T>(source));
    ids.push_back(static_cast<T>(destination));
  }
  return NpyFile(ids, {edges.size(), 2}, NpyDescr<T>(), version);
}

template <typename T>
void ExpectEdgesComeBack(const TemporaryFolder& folder, uint64_t node_count) {
  for (const uint64_t seed : {1, 2, 3}) {
    const size_t count = seed == 1 ? 3 : seed * 25'001;
    for (const bool rows : {true, false}) {
      for (const int version : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} seed {} rows {} version {}", NpyDescr<T>(), seed, rows, version));
        const EdgeList edges = RandomEdges(seed, count, node_count);
        const std::string path = folder.Write("e.npy", EdgeFile<T>(edges, rows, version));
        ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(path, {}));
        ASSERT_EQ(dataset.edges.size(), 1u);
        EXPECT_EQ(dataset.edges[0].reader->count(), count);
        EXPECT_EQ(dataset.node_count, std::nullopt);
        ASSERT_OK_AND_ASSIGN(const auto read, ReadAll(*dataset.edges[0].reader, seed));
        EXPECT_TRUE(read == edges);
        EXPECT_EQ(dataset.edges[0].reader->bytes_read(), dataset.edges[0].reader->bytes_total());
      }
    }
  }
}

TEST(NpyReaderTest, EdgesComeBackFromEveryIntegerTypeLayoutAndVersion) {
  const TemporaryFolder folder("npy");
  ExpectEdgesComeBack<int8_t>(folder, 100);
  ExpectEdgesComeBack<uint8_t>(folder, 256);
  ExpectEdgesComeBack<int16_t>(folder, 30'000);
  ExpectEdgesComeBack<uint16_t>(folder, 65'536);
  ExpectEdgesComeBack<int32_t>(folder, uint64_t{1} << 31);
  ExpectEdgesComeBack<uint32_t>(folder, uint64_t{1} << 32);
  ExpectEdgesComeBack<int64_t>(folder, uint64_t{1} << 40);
  ExpectEdgesComeBack<uint64_t>(folder, uint64_t{1} << 40);
}

TEST(NpyReaderTest, TwoByTwoIsTakenAsSourcesThenDestinations) {
  const TemporaryFolder folder("npy");
  ASSERT_OK_AND_ASSIGN(auto dataset,
                       OpenDataset(folder.Write("e.npy", NpyFile<int64_t>({1, 2, 3, 4}, {2, 2})), {}));
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{1, 3}, {2, 4}}));
}

TEST(NpyReaderTest, NoEdgesAreAnEmptyList) {
  const TemporaryFolder folder("npy");
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{2, 0}, {0, 2}}) {
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenDataset(folder.Write("e.npy", NpyFile<int64_t>({}, shape)), {}));
    EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), EdgeList());
  }
}

// A folder with two edges and one more file.
Result<Dataset> OpenWith(const TemporaryFolder& folder, std::string_view name, std::string_view bytes,
                         const SourceHints& hints = {}) {
  folder.Write("edges.npy", NpyEdges({{0, 1}, {1, 2}}));
  folder.Write(name, bytes);
  return OpenDataset(folder.path(), hints);
}

TEST(NpyReaderTest, FeaturesKeepTheirTypeAndFloat64BecomesFloat32) {
  const TemporaryFolder folder("npy");
  Rng random(7);
  std::vector<double> wide(300 * 11);
  for (double& value : wide) value = random.Unit() * 10 - 5;
  const std::vector<float> narrow(wide.begin(), wide.end());
  std::vector<uint16_t> halves(wide.size());
  for (uint16_t& half : halves) half = static_cast<uint16_t>(random());

  auto dataset = OpenWith(folder, "features.npy", NpyFile(narrow, {300, 11}));
  ASSERT_OK(dataset);
  EXPECT_EQ(dataset->features->element_type(), ElementType::kFloat32);
  EXPECT_EQ(dataset->features->dim(), 11u);
  EXPECT_EQ(dataset->features->row_count(), 300u);
  EXPECT_EQ(dataset->node_count, 300u);
  EXPECT_EQ(*ReadFloats(*dataset->features), narrow);

  dataset = OpenWith(folder, "features.npy", NpyFile(wide, {300, 11}));
  EXPECT_EQ(dataset->features->element_type(), ElementType::kFloat32);
  EXPECT_EQ(*ReadFloats(*dataset->features), narrow);

  dataset = OpenWith(folder, "features.npy", NpyFile(halves, {300, 11}, "<f2"));
  EXPECT_EQ(dataset->features->element_type(), ElementType::kFloat16);
  EXPECT_EQ(*ReadAll(*dataset->features), RawBytes(halves));

  dataset = OpenWith(folder, "features.npy", NpyFile(halves, {300, 11}), {.u2_is_bfloat16 = true});
  EXPECT_EQ(dataset->features->element_type(), ElementType::kBfloat16);
  EXPECT_EQ(*ReadAll(*dataset->features), RawBytes(halves));
}

template <typename T>
void ExpectLabels(const TemporaryFolder& folder, const std::vector<T>& values,
                  const std::vector<int64_t>& expected) {
  SCOPED_TRACE(NpyDescr<T>());
  for (const std::vector<uint64_t>& shape : {std::vector<uint64_t>{values.size()}, {values.size(), 1}}) {
    ASSERT_OK_AND_ASSIGN(auto dataset, OpenWith(folder, "labels.npy", NpyFile(values, shape)));
    EXPECT_EQ(*ReadAll(*dataset.labels), expected);
    EXPECT_EQ(dataset.node_count, values.size());
  }
}

TEST(NpyReaderTest, LabelsComeFromEveryTypeAndNaNMeansNone) {
  const TemporaryFolder folder("npy");
  ExpectLabels<int8_t>(folder, {3, -1, 127}, {3, -1, 127});
  ExpectLabels<uint8_t>(folder, {3, 0, 255}, {3, 0, 255});
  ExpectLabels<int16_t>(folder, {3, -1, 300}, {3, -1, 300});
  ExpectLabels<uint16_t>(folder, {3, 0, 65'535}, {3, 0, 65'535});
  ExpectLabels<int32_t>(folder, {3, -1, 70'000}, {3, -1, 70'000});
  ExpectLabels<uint32_t>(folder, {3, 0, 70'000}, {3, 0, 70'000});
  ExpectLabels<int64_t>(folder, {3, -1, 1}, {3, -1, 1});
  ExpectLabels<uint64_t>(folder, {3, 0, 1}, {3, 0, 1});
  ExpectLabels<float>(folder, {3, NAN, 1}, {3, -1, 1});
  ExpectLabels<double>(folder, {3, NAN, 1}, {3, -1, 1});
}

TEST(NpyReaderTest, AMaskYieldsTheNumbersOfItsTrueItems) {
  const TemporaryFolder folder("npy");
  Rng random(3);
  std::string mask(200'000, '\0');
  std::vector<int64_t> expected;
  for (size_t i = 0; i < mask.size(); i++) {
    if (random.Below(3) != 0) continue;
    mask[i] = 1;
    expected.push_back(static_cast<int64_t>(i));
  }
  ASSERT_OK_AND_ASSIGN(auto dataset, OpenWith(folder, "train_mask.npy",
                                              NpyHeaderBytes({.descr = "|b1", .shape = {mask.size()}}) + mask,
                                              {.node_count = mask.size()}));
  EXPECT_EQ(*ReadAll(*dataset.train), expected);
}

struct BadFile {
  const char* what;
  const char* name;
  std::string bytes;
  std::vector<std::string> words;
};

TEST(NpyReaderTest, RefusesWhatItCannotTakeAndSaysWhy) {
  const std::string good = NpyEdges({{0, 1}, {1, 2}, {2, 0}});
  const std::string header = NpyHeaderBytes({.shape = {2, 3}});
  std::string wrong_dict = good;
  wrong_dict.replace(wrong_dict.find("'shape'"), 7, "'shave'");
  const std::vector<BadFile> cases = {
      {"wrong magic", "edges.npy", "not numpy at all", {"edges.npy", "plain text"}},
      {"zip by mistake", "edges.npy", std::string("PK\x03\x04", 4) + good, {"edges.npy", "zip archive"}},
      {"empty", "edges.npy", "", {"edges.npy", "empty"}},
      {"cut in the magic", "edges.npy", good.substr(0, 8), {"edges.npy", "8 bytes"}},
      {"cut in the header", "edges.npy", good.substr(0, 40), {"edges.npy", "header"}},
      {"cut in the data", "edges.npy", good.substr(0, good.size() - 1), {"edges.npy", "truncated", "[2, 3]"}},
      {"version 9", "edges.npy", NpyFile<int64_t>({}, {2, 0}, "<i8", 9), {"edges.npy", "version 9"}},
      {"no shape", "edges.npy", wrong_dict, {"edges.npy", "'shape'"}},
      {"Fortran order of three extents",
       "edges.npy",
       NpyHeaderBytes({.fortran = true, .shape = {2, 3, 2}}) + RawBytes(std::vector<int64_t>(12)),
       {"edges.npy", "Fortran", "ascontiguousarray"}},
      {"big-endian",
       "edges.npy",
       NpyFile<int64_t>({0, 0}, {2, 1}, ">i8"),
       {"edges.npy", ">i8", "big-endian"}},
      {"pickled objects", "edges.npy", NpyFile<int64_t>({0, 0}, {2, 1}, "|O"), {"edges.npy", "pickled"}},
      {"complex numbers", "edges.npy", NpyFile<int64_t>({0, 0}, {1, 1}, "<c16"), {"edges.npy", "<c16"}},
      {"float ids", "edges.npy", NpyFile<double>({0, NAN}, {2, 1}), {"edges.npy", "<f8", "NaN"}},
      {"one column", "edges.npy", NpyFile<int64_t>({0, 1, 2}, {3, 1}), {"edges.npy", "[3, 1]", "[2, E]"}},
      {"three columns",
       "edges.npy",
       NpyFile<int64_t>(std::vector<int64_t>(12), {4, 3}),
       {"edges.npy", "[4, 3]"}},
      {"negative id", "edges.npy", NpyEdges({{0, 1}, {1, -7}}), {"edges.npy", "edge 1", "-7"}},
      {"negative id in pairs", "edges.npy", NpyFile<int32_t>({0, 1, 2, 3, -9, 4}, {3, 2}), {"edge 2", "-9"}},
      {"id beyond 2^63", "edges.npy", NpyFile<uint64_t>({0, ~uint64_t{0}}, {2, 1}), {"18446744073709551615"}},
      {"shape beyond 2^62", "edges.npy", NpyHeaderBytes({.shape = {2, uint64_t{1} << 62}}), {"2^62"}},
      {"integer features",
       "features.npy",
       NpyFile<int64_t>({1, 2}, {2, 1}),
       {"features.npy", "<i8", "float32"}},
      {"u2 features", "features.npy", NpyFile<uint16_t>({1, 2}, {2, 1}), {"features.npy", "--bf16"}},
      {"3-dimensional features",
       "features.npy",
       NpyFile<float>({1, 2}, {2, 1, 1}),
       {"features.npy", "[2, 1, 1]"}},
      {"features without columns", "features.npy", NpyFile<float>({}, {2, 0}), {"features.npy", "[2, 0]"}},
      {"several labels a node",
       "labels.npy",
       NpyFile<int64_t>({1, 2, 3, 4}, {2, 2}),
       {"labels.npy", "[2, 2]"}},
      {"fractional label", "labels.npy", NpyVector<float>({1, 0.5f}), {"labels.npy", "element 1", "0.5"}},
      {"float split", "train_idx.npy", NpyVector<float>({1}), {"train_idx.npy", "<f4"}},
  };
  for (const BadFile& bad : cases) {
    SCOPED_TRACE(bad.what);
    const TemporaryFolder folder("bad");
    folder.Write("edges.npy", good);
    folder.Write(bad.name, bad.bytes);
    const Status status = ReadEverything(folder.path(), {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
    for (const std::string& word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(NpyReaderTest, AnyDamageToAHeaderIsAnErrorOrAnArrayNeverACrash) {
  const TemporaryFolder folder("fuzz");
  const std::string good = NpyEdges({{0, 1}, {1, 2}, {2, 0}});
  for (uint64_t seed = 0; seed < 2000; seed++) {
    Rng random(seed);
    std::string bytes = good;
    for (uint64_t i = 0; i <= random.Below(4); i++) bytes[random.Below(128)] = static_cast<char>(random());
    if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size()));
    const Status status = ReadEverything(folder.Write("e.npy", bytes), {});
    EXPECT_TRUE(status.ok() || !status.message().empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace quarry
