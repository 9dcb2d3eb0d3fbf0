// Files of torch.save: what torch itself wrote (data/make_torch_files.py), and damage of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "array_archive.h"
#include "packed_files.h"
#include "reader_support.h"
#include "support/file_text.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/torch_file.h"

namespace quarry {
namespace {

using std::literals::operator""s;
using testing::HasSubstr;

std::string Data(std::string_view name) { return fmt::format("{}/{}.pt", QUARRY_TORCH_FILES, name); }

// As torch wrote them.
const char* const kForms[] = {"legacy2",     "legacy3",     "legacy4",        "legacy5",
                              "zip2",        "zip3",        "zip4",           "zip5",
                              "zip2_numpy2", "zip5_numpy2", "legacy2_numpy2", "legacy5_numpy2"};

std::string Bytes(const NpyArray& array) {
  std::string bytes(array.header.data_bytes(), '\0');
  auto source = array.open(0);
  EXPECT_OK(source);
  const auto got = (*source)->Read(std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(got.ok() && *got == bytes.size()) << array.name << got.status().ToString();
  return bytes;
}

template <typename T>
void ExpectArray(const ArrayArchive& archive, const char* key, const std::vector<T>& values,
                 const std::vector<uint64_t>& shape) {
  SCOPED_TRACE(key);
  ASSERT_OK_AND_ASSIGN(const auto array, archive.Open(key));
  EXPECT_EQ(array.header.shape, shape);
  ASSERT_EQ(array.header.type.bytes, sizeof(T));
  const std::string bytes = Bytes(array);
  EXPECT_EQ(bytes, RawBytes(values));
  // A cursor may begin anywhere.
  for (size_t item = 1; item < values.size(); item += 1 + values.size() / 50) {
    std::string rest(bytes.size() - item * sizeof(T), '\0');
    ASSERT_OK_AND_ASSIGN(auto source, array.open(item * sizeof(T)));
    EXPECT_EQ(*source->Read(std::as_writable_bytes(std::span(rest))), rest.size());
    EXPECT_EQ(rest, bytes.substr(item * sizeof(T))) << "from item " << item;
  }
}

void ExpectNoArray(const ArrayArchive& archive, const char* key, const char* word) {
  const auto array = archive.Open(key);
  EXPECT_THAT(array, IsStatus(Code::kInvalidArgument)) << key;
  EXPECT_THAT(std::string(array.status().message()),
              testing::AllOf(HasSubstr(archive.path + ": " + key), HasSubstr(word)));
}

class TorchFormTest : public testing::TestWithParam<const char*> {};

TEST_P(TorchFormTest, ArraysOfNumPyAreRead) {
  ASSERT_OK_AND_ASSIGN(const auto archive, OpenTorchFile(Data(GetParam())));
  const std::vector<int64_t> edge = {0, 1, 200, 40000, int64_t{1} << 40, 3};
  ExpectArray<int64_t>(archive, "edge", edge, {3, 2});
  ExpectArray<int64_t>(archive, "edge_by_columns", edge, {3, 2});
  ExpectArray<float>(archive, "weight", {0.5, -2}, {2});
  ExpectArray<int32_t>(archive, "year", {-1, 2017}, {2});
  ExpectArray<int16_t>(archive, "negative", {-1, -300, 7, 8}, {2, 2});
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>(i);
  ExpectArray<uint8_t>(archive, "bytes", bytes, {256});
  ExpectArray<uint8_t>(archive, "mask", {1, 0, 1}, {3});
  EXPECT_EQ(archive.Open("mask")->header.type.kind, 'b');
  ExpectArray<int64_t>(archive, "empty", {}, {0, 2});
  ExpectArray<int64_t>(archive, "scalar", {-300}, {});
  ExpectNoArray(archive, "big_endian", "big-endian");
  ExpectNoArray(archive, "wide_by_columns", "columns first");
}

// Longer than what is kept in memory.
TEST_P(TorchFormTest, LongArraysAreReadFromTheirPlaceInTheFile) {
  ASSERT_OK_AND_ASSIGN(const auto archive, OpenTorchFile(Data(GetParam())));
  std::vector<uint16_t> values(2200);
  for (size_t i = 0; i < values.size(); i++) values[i] = static_cast<uint16_t>(i * 29);
  ExpectArray<uint16_t>(archive, "long", values, {2200});
  std::vector<int32_t> pairs(1200);
  for (size_t i = 0; i < pairs.size(); i++) pairs[i] = static_cast<int32_t>(i) * 7919;
  ExpectArray<int32_t>(archive, "long_by_columns", pairs, {600, 2});
}

TEST_P(TorchFormTest, TensorsAreRead) {
  ASSERT_OK_AND_ASSIGN(const auto archive, OpenTorchFile(Data(GetParam())));
  const std::vector<int64_t> edge = {0, 1, 200, 40000, int64_t{1} << 40, 3};
  ExpectArray<int64_t>(archive, "tensor", edge, {3, 2});
  ExpectArray<int64_t>(archive, "tensor_by_columns", edge, {3, 2});
  ExpectArray<int64_t>(archive, "part", {4, 5, 6}, {3});
  ExpectArray<int64_t>(archive, "column", {1, 7, 2, 8, 3, 9}, {3, 2});
  ExpectArray<uint8_t>(archive, "tensor_mask", {1, 0, 1}, {3});
  ExpectArray<uint8_t>(archive, "tensor_bytes", {1, 255}, {2});
  ExpectArray<float>(archive, "float", {0.5, -2}, {2});
  ExpectArray<double>(archive, "double", {0.5, -2}, {2});
  ExpectArray<uint16_t>(archive, "half", {0x3800, 0xc000}, {2});
  ExpectArray<uint16_t>(archive, "bfloat16", {0x3f00, 0xc000}, {2});
  EXPECT_EQ(archive.Open("bfloat16")->header.type.kind, 'B');
  ExpectArray<int64_t>(archive, "no_elements", {}, {0, 2});
  ExpectNoArray(archive, "every_other", "side by side");
}

TEST_P(TorchFormTest, IntegersAreReadAndWhatIsNoArrayIsRefusedWhereItIsAskedFor) {
  ASSERT_OK_AND_ASSIGN(const auto archive, OpenTorchFile(Data(GetParam())));
  ExpectArray<int64_t>(archive, "count", {7}, {});
  ExpectArray<int64_t>(archive, "large", {int64_t{1} << 40}, {});
  ExpectArray<int64_t>(archive, "list", {5, -6, -(int64_t{1} << 33)}, {3});
  ExpectNoArray(archive, "ragged", "item 1 is no integer");
  for (const char* key : {"name", "none", "fraction"}) ExpectNoArray(archive, key, "is no array");
}

INSTANTIATE_TEST_SUITE_P(Written, TorchFormTest, testing::ValuesIn(kForms),
                         [](const auto& form) { return std::string(form.param); });

TEST(TorchReaderTest, AFileHoldsAGraph) {
  for (const char* name : {"graph_legacy", "graph_zip", "pyg_data", "pyg_data_legacy", "pyg_dataset"}) {
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(auto graph, OpenDataset(Data(name), {}));
    EXPECT_EQ(*ReadAll(*graph.edges[0].reader), (EdgeList{{0, 1}, {1, 3}, {4, 2}}));
    EXPECT_EQ(graph.features->dim(), 2u);
    EXPECT_EQ(*ReadFloats(*graph.features), (std::vector<float>{0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5}));
    EXPECT_EQ(*ReadAll(*graph.labels), (std::vector<int64_t>{1, 0, 1, 2, 0}));
    EXPECT_EQ(*ReadAll(*graph.train), (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(*ReadAll(*graph.valid), (std::vector<int64_t>{2}));
    EXPECT_EQ(*ReadAll(*graph.test), (std::vector<int64_t>{4}));
  }
}

// Opens every array of the file and reads it. Whatever it holds, the messages are whole.
Status ReadWhole(const std::string& path) {
  QUARRY_TRY(const ArrayArchive archive, OpenTorchFile(path));
  for (const auto& member : archive.members) {
    QUARRY_TRY(const NpyArray array, member.open());
    QUARRY_TRY(const auto source, array.open(0));
    std::vector<std::byte> bytes(1000);
    for (uint64_t done = 0; done < array.header.data_bytes();) {
      const uint64_t part = std::min<uint64_t>(bytes.size(), array.header.data_bytes() - done);
      QUARRY_TRY(const size_t got, source->Read(std::span(bytes).first(part)));
      if (got < part) return MakeStatus(Code::kInvalidArgument, "{}: ends early", array.name);
      done += got;
    }
  }
  return Status::Ok();
}

void ExpectSentence(const Status& status, const std::string& path) {
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument,
                               testing::AllOf(HasSubstr(path), testing::Not(HasSubstr("\n")))));
}

TEST(TorchReaderTest, FilesThatAreCutOffAreRefusedWhereverTheyEnd) {
  const TemporaryFolder folder("torch");
  for (const char* name : {"legacy5", "graph_legacy", "graph_zip", "pyg_data", "tensor"}) {
    SCOPED_TRACE(name);
    const std::string path = folder.Write(fmt::format("{}.pt", name), testing_util::FileText(Data(name)));
    for (uint64_t bytes = std::filesystem::file_size(path); bytes-- > 0;) {
      std::filesystem::resize_file(path, bytes);
      const Status status = OpenTorchFile(path).status();
      ASSERT_FALSE(status.ok()) << bytes << " bytes";
      ExpectSentence(status, path);
    }
  }
}

TEST(TorchReaderTest, FilesWithBitsFlippedAreReadOrRefused) {
  const TemporaryFolder folder("torch");
  constexpr uint64_t kSeed = 20240229;
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  Rng random(kSeed);
  size_t refused = 0, rounds = 0;
  for (const char* name : {"graph_legacy", "graph_zip", "pyg_data", "legacy2", "legacy5", "zip5"}) {
    const std::string whole = testing_util::FileText(Data(name));
    for (size_t i = 0; i < 600; i++, rounds++) {
      std::string bytes = whole;
      for (uint64_t flips = 1 + random.Below(3); flips > 0; flips--)
        bytes[random.Below(bytes.size())] ^= static_cast<char>(1 << random.Below(8));
      const std::string path = folder.Write(fmt::format("{}.pt", name), bytes);
      const Status status = ReadWhole(path);
      if (!status.ok()) ExpectSentence(status, path);
      refused += status.ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, rounds / 10);
}

struct Hostile {
  const char* what;
  std::string bytes;
  std::vector<std::string> words;
};

void ExpectRefused(const std::vector<Hostile>& files) {
  const TemporaryFolder folder("torch");
  for (const Hostile& file : files) {
    SCOPED_TRACE(file.what);
    const std::string path = folder.Write("x.pt", file.bytes);
    const Status status = ReadWhole(path);
    ASSERT_FALSE(status.ok());
    ExpectSentence(status, path);
    for (const std::string& word : file.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

// Where the dict's pickle begins, behind its PROTO.
const size_t kBody = LegacyTorchFile("").size() - 4 + 2;
std::string At(size_t offset) { return fmt::format("offset {}:", kBody + offset); }
std::string Body(const std::string& body) { return LegacyTorchFile("\x80\x02" + body); }

TEST(TorchReaderTest, PicklesThatDoMoreThanHoldArraysAreRefused) {
  ExpectRefused(
      {{"a call", Body("cos\nsystem\nX\2\0\0\0ls\x85R."s), {At(0), "os.system", "runs no code"}},
       {"a call by protocol 4", Body("\x8c\2os\x8c\6system\x93."s), {At(12), "os.system"}},
       {"a name without end", Body("c" + std::string(300, 'a')), {At(0), "more than 256 bytes"}},
       {"a name with a line within", Body("\x8c\3a\nb\x8c\1c\x93."s), {"a?b.c"}},
       {"an instance", Body("(ios\nsystem\n."s), {At(1), "0x69"}},
       {"a reduction by text", Body("X\1\0\0\0a)R."s), {At(7), "no function"}},
       {"a call of a call", Body("c_codecs\nencode\n)R)R."s), {"no function"}},
       {"a call without arguments", Body("c_codecs\nencode\nNR."s), {"no function"}},
       {"a state of a number", Body("K\1Nb."s), {"takes none"}},
       {"a storage by text", Body("X\1\0\0\0aQ."s), {"persistent id"}},
       {"a storage that is none", Body("N\x85Q."s), {"no storage"}},
       {"an instance of a function", Body("ccollections\nOrderedDict\n)\x81."s), {"an instance"}},
       {"an object without a state", Body("ctorch_geometric.data.data\nData\n)\x81."s), {"no dict"}},
       {"an object that is its own state", Body("ctorch_geometric.a\nB\n)\x81q\1h\1b."s), {"no dict"}},
       {"an extension", Body("\x82\1."s), {At(0), "0x82"}},
       {"protocol 0", LegacyTorchFile("(dp0\n."), {"0x64"}},
       {"protocol 9", LegacyTorchFile("\x80\x09}."), {"protocol 9"}},
       {"a module",
        testing_util::FileText(Data("code")),
        {"data.pkl: offset", "torch.nn.modules.linear.Linear"}},
       {"parameters", testing_util::FileText(Data("parameters")), {"data.pkl: offset", "list or dict"}},
       {"a tensor alone", testing_util::FileText(Data("tensor")), {"no dict"}}});
}

TEST(TorchReaderTest, GraphsOfPyTorchGeometricThatAreNotOneGraphOfOneTypeAreRefused) {
  EXPECT_THAT(OpenTorchFile(Data("pyg_many")), IsStatus(Code::kUnsupported, HasSubstr("dataset[0]")));
  for (const char* name : {"pyg_hetero", "pyg_hetero_dataset"}) {
    EXPECT_THAT(OpenTorchFile(Data(name)), IsStatus(Code::kUnsupported, HasSubstr("to_homogeneous"))) << name;
  }
}

TEST(TorchReaderTest, PicklesThatAreNoPicklesAreRefused) {
  const std::string deep(100000, ']');
  ExpectRefused(
      {{"an empty stack", Body("."s), {At(0), "0 values"}},
       {"two values", Body("NN."s), {"2 values"}},
       {"a tuple of nothing", Body("\x85."s), {At(0), "takes more"}},
       {"a tuple beyond a mark", Body("N(\x85."s), {At(2), "takes more"}},
       {"a tuple without a mark", Body("Nt."s), {"takes more"}},
       {"items of nothing", Body("(u."s), {"list or dict"}},
       {"items of a number", Body("K\1(u."s), {"list or dict"}},
       {"a key without a value", Body("}(Nu."s), {"list or dict"}},
       {"a mark that stays", Body("}(."s), {"stops"}},
       {"a memo of nothing", Body("q\0."s), {"takes more"}},
       {"a memo out of range", Body("h\7."s), {At(0), "value 7"}},
       {"a memo far out of range", Body("j\xff\xff\xff\xff."s), {"value 4294967295"}},
       {"a text of 4 GB", Body("X\xff\xff\xff\xff."s), {"4294967295", "are left"}},
       {"a text of 2^64 bytes", Body("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s), {"18446744073709551615"}},
       {"bytes of 2^63", Body("\x8e\0\0\0\0\0\0\0\x80."s), {"9223372036854775808"}},
       {"a frame of 2^40", Body("\x95\0\0\0\0\0\1\0\0."s), {"1099511627776"}},
       {"lists without end", Body(deep + deep + "."), {"2097152 bytes"}},
       {"marks without end", Body(std::string(300000, '(')), {"2097152 bytes"}},
       {"copies without end", Body("]qh" + std::string(300000, 'h') + "."), {"2097152 bytes"}}});
}

TEST(TorchReaderTest, NestingIsNoMatter) {
  const TemporaryFolder folder("torch");
  // A list in a list in a list, and one that holds itself.
  const std::string deep = std::string(10000, ']') + std::string(9999, 'a');
  const std::string path =
      folder.Write("deep.pt", Body("}" + PickledText("deep") + deep + "s" + PickledText("self") +
                                   "]q\1h\1as"s + PickledText("n") + "K\5s."s));
  ASSERT_OK_AND_ASSIGN(const auto archive, OpenTorchFile(path));
  ExpectArray<int64_t>(archive, "n", {5}, {});
  ExpectNoArray(archive, "deep", "item 0");
  ExpectNoArray(archive, "self", "item 0");
}

std::string Changed(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

TEST(TorchReaderTest, ArraysThatAreNoneAreRefused) {
  const std::string whole = TorchFile({{"edge", {2, 2}, {1, 2, 3, 200}}});
  const auto dtype = [&](std::string_view text) {
    return Changed(whole, PickledText("i8"), PickledText(text));
  };
  const std::string dict = "\x80\x02}" + PickledText("a");
  ExpectRefused(
      {{"more rows", Changed(whole, PickledInt(2), PickledInt(3)), {"x.pt: edge", "[3, 2]", "48 bytes"}},
       {"rows without end",
        Changed(whole, PickledInt(2), PickledInt(uint64_t{1} << 62)),
        {"x.pt: edge", "2^62"}},
       {"fewer rows", Changed(whole, PickledInt(2), PickledInt(1)), {"x.pt: edge", "16 bytes", "33"}},
       {"negative rows", Changed(whole, PickledInt(2), PickledInt(~uint64_t{0})), {"no readable shape"}},
       {"objects", dtype("O"), {"x.pt: edge"}},
       {"structures", dtype("V8"), {"x.pt: edge", "V8"}},
       {"complex numbers", dtype("c8"), {"x.pt: edge", "c8"}},
       {"big-endian", Changed(whole, PickledText("<"), PickledText(">")), {"big-endian"}},
       {"another encoding", Changed(whole, "\xc3\x88", "\xe2\x82"), {"no bytes"}},
       {"half a code point", Changed(whole, "\xc3\x88", "a\xc3"), {"no bytes"}},
       {"one byte too few", Changed(whole, "\xc3\x88", "a\1"), {"goes on behind"}},
       {"no state",
        LegacyTorchFile(dict + "cnumpy.core.multiarray\n_reconstruct\n)Rs."),
        {"no readable state"}},
       {"a name twice", Body("}" + PickledText("a") + "Ns" + PickledText("a") + "Ns."), {"item 1"}},
       {"a number for a name", Body("}K\1Ns."s), {"item 0"}},
       {"no dict", Body("]."), {"no dict"}}});
}

TEST(TorchReaderTest, TensorsThatAreNoneAreRefused) {
  const std::string rebuild = "ctorch._utils\n_rebuild_tensor_v2\n((" + PickledText("storage") +
                              "ctorch\nLongStorage\n" + PickledText("k") + PickledText("cpu");
  const auto file = [&](const std::string& count, const std::string& view, const std::string& offset,
                        const std::string& extent, const std::string& stride) {
    return "\x80\x02}" + PickledText("t") + rebuild + count + view + "tQ" + offset + extent + "\x85" +
           stride +
           "\x85\x89"
           "ccollections\nOrderedDict\n)RtRs.";
  };
  const std::string keys = "\x80\x02]" + PickledText("k") + "a.";
  const std::string storage = RawBytes<int64_t>({4, 10, 11, 12, 13});
  // Three of the storage's four elements, from the second on.
  const auto with = [&](const std::string& offset, const std::string& extent, const std::string& stride) {
    return LegacyTorchFile(file("K\4", "N", offset, extent, stride), keys, storage);
  };
  const TemporaryFolder folder("torch");
  ASSERT_OK_AND_ASSIGN(const auto archive,
                       OpenTorchFile(folder.Write("whole.pt", with("K\1", "K\3", "K\1"))));
  ExpectArray<int64_t>(archive, "t", {11, 12, 13}, {3});
  const std::string good = file("K\4", "N", "K\1", "K\3", "K\1");
  ExpectRefused(
      {{"beyond its storage", with("K\2", "K\3", "K\1"), {"x.pt: t", "beyond the 4"}},
       {"far beyond its storage", with(PickledInt(uint64_t{1} << 62), "K\3", "K\1"), {"beyond the 4"}},
       {"elements without end", with("K\1", PickledInt(uint64_t{1} << 58), "K\1"), {"beyond the 4"}},
       {"a negative offset", with(PickledInt(~uint64_t{0}), "K\3", "K\1"), {"no readable elements"}},
       {"strides of 2", with("K\1", "K\2", "K\2"), {"side by side"}},
       {"a part of another storage",
        LegacyTorchFile(file("K\4", "N\x85", "K\1", "K\3", "K\1"), keys, storage),
        {"storage of their own"}},
       {"a storage of 2^61 elements",
        LegacyTorchFile(file(PickledInt(uint64_t{1} << 61), "N", "K\1", "K\3", "K\1"), keys, storage),
        {"2^62"}},
       {"a storage of other size",
        LegacyTorchFile(file("K\3", "N", "K\1", "K\2", "K\1"), keys, storage),
        {"storage 'k' has 4 elements, stated are 3"}},
       {"a storage that is not listed", LegacyTorchFile(good), {"storage 'k' of 32 bytes"}},
       {"a storage of no tensor",
        LegacyTorchFile("\x80\x02}.", keys, storage),
        {"storage 'k' is of no tensor"}},
       {"a storage cut off", LegacyTorchFile(good, keys, storage.substr(0, 39)), {"31 bytes are left"}},
       {"something behind the storages", LegacyTorchFile(good, keys, storage + "x"), {"1 bytes behind"}},
       {"keys that are no list", LegacyTorchFile(good, "\x80\x02N.", storage), {"no list of keys"}}});
}

TEST(TorchReaderTest, OtherFilesAreNamedForWhatTheyAre) {
  const TemporaryFolder npz("npz");
  WriteNpz(npz, "x.npz", {{"edge", NpyVector<int64_t>({1})}}, false);
  const std::string whole = TorchFile({{"edge", {1, 2}, {1, 2}}});
  ExpectRefused({{"nothing", "", {"an empty file"}},
                 {"text", "0,1\n", {"plain text"}},
                 {"another zip archive", testing_util::FileText(npz / "x.npz"), {"no data.pkl"}},
                 {"another pickle", "\x80\x02}.", {"magic number"}},
                 {"a later version", Changed(whole, "M\xe9\3"s, "M\xea\3"s), {"other than 1001"}},
                 {"a big-endian system", Changed(whole, "\x88s."s, "\x89s."s), {"byte order"}},
                 {"a zip archive that ends", "PK\3\4", {"cut off or damaged"}}});
}

}  // namespace
}  // namespace quarry
