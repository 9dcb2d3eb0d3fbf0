// .safetensors: what is taken, and what a file may do to its reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "quarry/format/named_tensor.h"
#include "quarry/import/tensors.h"
#include "reader_support.h"
#include "support/array_files.h"
#include "support/safetensors_file.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<int64_t> kTensorEdges = {0, 1, 2, 1, 2, 3};  // [2, 3]

TensorBytes EdgeTensor() { return {"edges", "I64", {2, 3}, RawBytes(kTensorEdges)}; }

template <typename T>
void ExpectLabels(const char* dtype, const std::vector<T>& values, const std::vector<int64_t>& expected) {
  SCOPED_TRACE(dtype);
  const TemporaryFolder folder("st");
  ASSERT_OK_AND_ASSIGN(
      auto dataset,
      OpenDataset(
          folder.Write("g.safetensors",
                       SafetensorsFile({{"y", dtype, {values.size()}, RawBytes(values)}, EdgeTensor()})),
          {}));
  EXPECT_EQ(*ReadAll(*dataset.labels), expected);
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(SafetensorsTest, LabelsComeFromEveryType) {
  ExpectLabels<int8_t>("I8", {3, -1, 0, 1}, {3, -1, 0, 1});
  ExpectLabels<uint8_t>("U8", {3, 255, 0, 1}, {3, 255, 0, 1});
  ExpectLabels<int16_t>("I16", {300, -1, 0, 1}, {300, -1, 0, 1});
  ExpectLabels<uint16_t>("U16", {300, 0, 0, 1}, {300, 0, 0, 1});
  ExpectLabels<int32_t>("I32", {70'000, -1, 0, 1}, {70'000, -1, 0, 1});
  ExpectLabels<uint32_t>("U32", {70'000, 0, 0, 1}, {70'000, 0, 0, 1});
  ExpectLabels<int64_t>("I64", {3, -1, 0, 1}, {3, -1, 0, 1});
  ExpectLabels<uint64_t>("U64", {3, 0, 0, 1}, {3, 0, 0, 1});
  ExpectLabels<float>("F32", {3, NAN, 0, 1}, {3, -1, 0, 1});
  ExpectLabels<double>("F64", {3, NAN, 0, 1}, {3, -1, 0, 1});
}

TEST(SafetensorsTest, TensorsAreReadAsTheyAreWritten) {
  const TemporaryFolder folder("st");
  const std::vector<NamedTensor> tensors = {{"layers.0.weight", {2, 3}, {1, -2, 3, 0.1F, NAN, 1e-40F}},
                                            {"a \"name\"", {1}, {-0.0F}},
                                            {"none", {0, 4}, {}},
                                            {"scalar", {}, {7}}};
  const std::pair<std::string_view, std::string_view> notes[] = {{"settings", "--model \"sage\""},
                                                                 {"run", "r"}};
  const std::vector<std::byte> header = EncodeSafetensorsHeader(tensors, notes);
  EXPECT_EQ(header.size() % 8, 0u);
  std::string bytes(reinterpret_cast<const char*>(header.data()), header.size());
  for (const NamedTensor& tensor : tensors) bytes += RawBytes(tensor.values);
  const std::string path = folder.Write("w.safetensors", bytes);
  ASSERT_OK_AND_ASSIGN(const std::vector<NamedTensor> read, ReadTensors(path, 32));
  ASSERT_EQ(read.size(), tensors.size());
  for (const NamedTensor& tensor : tensors) {  // a header's names have no order of their own
    const auto found = std::ranges::find(read, tensor.name, &NamedTensor::name);
    ASSERT_NE(found, read.end()) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(RawBytes(found->values), RawBytes(tensor.values));
  }
  EXPECT_THAT(ReadTensors(path, 31).status(), IsStatus(Code::kOutOfBudget, HasSubstr("w.safetensors")));
  EXPECT_THAT(ReadTensors(folder.Write("w.bin", bytes), 32).status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("w.bin")));
}

TEST(SafetensorsTest, DoublesBecomeFloatsAndAMaskItsNodes) {
  const TemporaryFolder folder("st");
  const std::vector<double> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  ASSERT_OK_AND_ASSIGN(
      auto dataset,
      OpenDataset(folder.Write("g.safetensors",
                               SafetensorsFile({EdgeTensor(),
                                                {"features", "F64", {4, 2}, RawBytes(rows)},
                                                {"train_mask", "BOOL", {4}, std::string("\0\1\0\1", 4)},
                                                {"empty", "F32", {0, 3}, ""}})),
                  {}));
  EXPECT_THAT(*ReadFloats(*dataset.features), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(*ReadAll(*dataset.train), ElementsAre(1, 3));
  EXPECT_EQ(dataset.valid, nullptr);
}

// As Python's library (0.8.0) wrote {"edge_index": int32 [[0, 2], [1, 0]], "x": float16 [[1], [2], [-0.5]]}.
TEST(SafetensorsTest, BytesOfTheLibraryAreRead) {
  const std::string header = R"({"edge_index":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]},)"
                             R"("x":{"dtype":"F16","shape":[3,1],"data_offsets":[16,22]}}     )";
  const std::string data("\0\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0\x00\x3c\x00\x40\x00\xb8", 22);
  const TemporaryFolder folder("st");
  ASSERT_OK_AND_ASSIGN(auto dataset,
                       OpenDataset(folder.Write("g.safetensors", SafetensorsBytes(header, data)), {}));
  EXPECT_EQ(*ReadAll(*dataset.edges[0].reader), (EdgeList{{0, 1}, {2, 0}}));
  EXPECT_EQ(dataset.features->element_type(), ElementType::kFloat16);
  EXPECT_EQ(*ReadAll(*dataset.features), data.substr(16));
}

std::string EdgeHeader(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return fmt::format(R"({{"edges":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
}

TEST(SafetensorsTest, RefusesWhatItCannotTakeAndSaysWhy) {
  const std::string good = SafetensorsFile({EdgeTensor()});
  const std::string data = RawBytes(kTensorEdges);
  const auto of = [&](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return SafetensorsBytes(EdgeHeader(dtype, shape, offsets), data);
  };
  std::string huge = good;
  huge.replace(0, 8, std::string("\0\0\0\6\0\0\0\0", 8));  // 100 MB
  std::string long_header = good;
  long_header[1] = 2;
  const std::string two_places = R"({"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                                 R"("edges":{"dtype":"I64","shape":[2,2],"data_offsets":[8,40]}})";
  const std::string twice = R"({"edges":{"dtype":"I64","shape":[2,3],"data_offsets":[0,48]},)"
                            R"("edges":{"dtype":"I64","shape":[2,3],"data_offsets":[0,48]}})";
  struct Bad {
    const char* what;
    std::string bytes;
    std::vector<const char*> words;
  };
  const std::vector<Bad> cases = {
      {"empty", "", {"0 bytes"}},
      {"cut in the length", good.substr(0, 5), {"5 bytes"}},
      {"header of 100 MB", huge, {"100663296", "the most is 1048576"}},
      {"an .npz by mistake", "PK\x03\x04 and more", {"a zip archive"}},
      {"cut in the header", good.substr(0, 40), {"header of", "40 bytes in all"}},
      {"header beyond the file", long_header, {"header of", "bytes in all"}},
      {"cut in the data", good.substr(0, good.size() - 1), {"truncated", "'edges'", "48", "47"}},
      {"no JSON", SafetensorsBytes("{\"edges\": ", data), {"no JSON"}},
      {"deep JSON", SafetensorsBytes(std::string(100'000, '['), data), {"no JSON"}},
      {"an array", SafetensorsBytes("[1, 2]", data), {"no JSON object"}},
      {"a number for a tensor", SafetensorsBytes(R"({"edges": 7})", data), {"'edges'", "no description"}},
      {"no dtype", of("7", "[2,3]", "[0,48]"), {"'edges'", "dtype"}},
      {"unknown dtype", of("\"F8_E5M2\"", "[2,24]", "[0,48]"), {"edges", "'F8_E5M2'", "BOOL"}},
      {"negative extent", of("\"I64\"", "[-2,3]", "[0,48]"), {"'edges'", "shape"}},
      {"fractional extent", of("\"I64\"", "[2.5,3]", "[0,48]"), {"'edges'", "shape"}},
      {"extent beyond 2^53", of("\"I64\"", "[2,1e300]", "[0,48]"), {"'edges'", "shape"}},
      {"shape beyond 2^62", of("\"I64\"", "[4611686018427387,4096]", "[0,48]"), {"2^62"}},
      {"one offset", of("\"I64\"", "[2,3]", "[0]"), {"'edges'", "data_offsets"}},
      {"offsets in reverse", of("\"I64\"", "[2,3]", "[48,0]"), {"'edges'", "data_offsets"}},
      {"offset beyond the file", of("\"I64\"", "[2,3]", "[8,56]"), {"'edges'", "56", "48"}},
      {"shape and place differ",
       of("\"I64\"", "[2,2]", "[0,48]"),
       {"edges", "48 bytes", "[2, 2]", "takes 32"}},
      {"tensors that overlap", SafetensorsBytes(two_places, data), {"'edges'", "byte 8", "'a'", "16"}},
      {"a name twice", SafetensorsBytes(twice, data), {"'edges' twice"}},
      {"no edges", SafetensorsFile({{"x", "F32", {1, 1}, "1234"}}), {"no edges", "edge_index"}},
      {"float edges", of("\"F64\"", "[2,3]", "[0,48]"), {"edges", "F64", "int64"}},
      {"bfloat16 edges", of("\"BF16\"", "[2,12]", "[0,48]"), {"edges", "BF16", "int64"}},
      {"three columns", of("\"I32\"", "[4,3]", "[0,48]"), {"edges", "[4, 3]"}},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.what);
    const TemporaryFolder folder("bad");
    const Status status = ReadEverything(folder.Write("g.safetensors", bad.bytes), {});
    EXPECT_THAT(status, IsStatus(Code::kInvalidArgument, HasSubstr("g.safetensors")));
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("\n")));
    for (const char* word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(SafetensorsTest, AFileThatIsNamedForFeaturesMustHoldThem) {
  const TemporaryFolder folder("st");
  folder.Write("set/edges.npy", NpyEdges({{0, 1}}));
  const std::string path = folder.Write("g.safetensors", SafetensorsFile({EdgeTensor()}));
  EXPECT_THAT(std::string(OpenDataset(folder / "set", {.features = path}).status().message()),
              testing::AllOf(HasSubstr("g.safetensors"), HasSubstr("no features")));
  EXPECT_THAT(std::string(OpenDataset(folder / "set", {.labels = path}).status().message()),
              testing::AllOf(HasSubstr("g.safetensors"), HasSubstr("'labels', only edges")));
}

TEST(SafetensorsTest, AnyDamageIsAnErrorOrAGraphNeverACrash) {
  const TemporaryFolder folder("fuzz");
  const std::string good = SafetensorsFile(
      {EdgeTensor(), {"x", "F32", {4, 1}, std::string(16, 'x')}, {"y", "I32", {4}, std::string(16, '\0')}});
  size_t failed = 0;
  for (uint64_t seed = 0; seed < 3000; seed++) {
    Rng random(seed);
    std::string bytes = good;
    for (uint64_t i = 0; i <= random.Below(4); i++)
      bytes[random.Below(good.size() - 80)] = static_cast<char>(random());
    if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size()));
    const Status status = ReadEverything(folder.Write("g.safetensors", bytes), {});
    EXPECT_TRUE(status.ok() || !status.message().empty()) << "seed " << seed;
    failed += status.ok() ? 0 : 1;
  }
  EXPECT_GT(failed, 1000u);
}

}  // namespace
}  // namespace quarry
