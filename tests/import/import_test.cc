// ImportDatabase: what comes in is what lies in the database, and nothing is left of an import that failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/import/import.h"
#include "quarry/storage/edge_values.h"
#include "quarry/storage/store.h"
#include "quarry/verify/verify.h"
#include "support/array_files.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kNodes = 4;

void WriteNamedSet(const TemporaryFolder& folder) {
  folder.Write("set/edges.npy", NpyEdges({{0, 1}, {1, 2}, {3, 0}, {0, 2}, {0, 1}}));
  folder.Write("set/features.npy", NpyFile<float>({1, 2, 3, 4, 5, 6, 7, 8}, {kNodes, 2}));
  folder.Write("set/labels.npy", NpyVector<int64_t>({0, 2, -1, 1}));
  folder.Write("set/train_idx.npy", NpyVector<int64_t>({3, 1}));
  folder.Write("set/valid_idx.npy", NpyVector<int64_t>({0}));
  folder.Write("set/test_idx.npy", NpyVector<int64_t>({}));
}

Status Import(IoBackend& backend, const std::string& database, const std::string& source,
              const ImportOptions& options = {}, const SourceHints& hints = {}) {
  QUARRY_TRY(Dataset dataset, OpenDataset(source, hints));
  return ImportDatabase(backend, database, std::move(dataset), options);
}

// Neither a database nor a trace of one.
void ExpectNothing(const std::string& database) {
  EXPECT_FALSE(fs::exists(database));
  EXPECT_FALSE(fs::exists(database + ".importing"));
}

std::vector<std::byte> ReadTable(Store& store, std::string_view name) {
  const auto table = store.OpenTable(name);
  EXPECT_OK(table);
  const FeatureGeometry& geometry = (*table)->geometry();
  std::vector<std::byte> rows(geometry.row_count * geometry.row_bytes);
  EXPECT_OK((*table)->ReadRows(store.backend(), 0, geometry.row_count, rows));
  return rows;
}
template <typename T>
std::vector<T> ReadValues(Store& store, std::string_view name) {
  const std::vector<std::byte> rows = ReadTable(store, name);
  std::vector<T> values(rows.size() / sizeof(T));
  std::memcpy(values.data(), rows.data(), rows.size());
  return values;
}

using Lists = std::vector<std::vector<NodeId>>;
Lists ReadLists(Store& store, std::string_view name, Adjacency side = Adjacency::kCsc) {
  const auto topology = store.OpenTopology(name);
  EXPECT_OK(topology);
  EXPECT_OK((*topology)->LoadIndices(store.backend(), side));
  const auto indptr = (*topology)->indptr(side);
  const auto indices = (*topology)->indices(side);
  Lists lists((*topology)->node_count());
  for (size_t v = 0; v < lists.size(); v++) {
    for (uint64_t i = indptr[v]; i < indptr[v + 1]; i++) lists[v].push_back(indices[i]);
  }
  return lists;
}

void ExpectSound(Store& store) {
  ASSERT_OK_AND_ASSIGN(const auto report, VerifyStore(store, {}));
  for (const Status& fault : report.faults) ADD_FAILURE() << fault.ToString();
}

class ImportTest : public testing::Test {
 protected:
  std::unique_ptr<Store> OpenSound() {
    auto store = Store::Open(*backend_, database_);
    EXPECT_OK(store);
    if (!store.ok()) return nullptr;
    ExpectSound(**store);
    return std::move(*store);
  }

  const TemporaryFolder folder_{"import"};
  const std::string database_ = folder_ / "graph.db";
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
};

TEST_F(ImportTest, WhatComesInIsWhatLiesInTheDatabase) {
  WriteNamedSet(folder_);
  const Status status = Import(*backend_, database_ + "//", folder_ / "set", {.both_directions = true});
  ASSERT_OK(status);
  EXPECT_FALSE(fs::exists(database_ + ".importing"));
  const auto store = OpenSound();
  ASSERT_NE(store, nullptr);
  const std::shared_ptr<const Manifest> manifest = store->manifest();
  EXPECT_EQ(manifest->node_count, kNodes);
  EXPECT_EQ(manifest->class_count, 3u);
  EXPECT_EQ(manifest->source, folder_ / "set");
  EXPECT_EQ(manifest->created_utc.size(), std::strlen("2026-01-01T00:00:00Z"));
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{3}, {0, 0}, {0, 1}, {}}));
  EXPECT_EQ(ReadLists(*store, "graph", Adjacency::kCsr), (Lists{{1, 1, 2}, {2}, {}, {0}}));
  EXPECT_THAT(ReadValues<float>(*store, "feature"), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(ReadValues<int64_t>(*store, "label"), ElementsAre(0, 2, -1, 1));
  EXPECT_THAT(ReadValues<uint8_t>(*store, "split"), ElementsAre(2, 1, 0, 1));
}

TEST_F(ImportTest, LabelsThatLookLikeCodesAreRefusedOrNumbered) {
  WriteNamedSet(folder_);
  folder_.Write("set/labels.npy", NpyVector<int64_t>({700'000'000, 5, -1, 700'000'000}));
  const Status refused = Import(*backend_, database_, folder_ / "set");
  EXPECT_THAT(refused, IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("labels.npy: row 0: the label is 700000000"),
                             HasSubstr("700000001 classes, of 2 different labels"), HasSubstr("--relabel")));
  ExpectNothing(database_);
  // Beyond what a label may be, too.
  folder_.Write("set/labels.npy", NpyVector<int64_t>({700'000'000, 5, -1, int64_t{1} << 60}));
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.relabel = true}));
  const auto store = OpenSound();
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->manifest()->class_count, 3u);
  EXPECT_THAT(ReadValues<int64_t>(*store, "label"), ElementsAre(1, 0, -1, 2));
  EXPECT_THAT(ReadValues<int64_t>(*store, "label_code"), ElementsAre(5, 700'000'000, int64_t{1} << 60));
}

TEST_F(ImportTest, ClassesWithoutNodesAreNoCodes) {
  WriteNamedSet(folder_);
  folder_.Write("set/labels.npy", NpyVector<int64_t>({0, 999, -1, 3}));
  ASSERT_OK(Import(*backend_, database_, folder_ / "set"));
  EXPECT_EQ(OpenSound()->manifest()->class_count, 1000u);
}

TEST_F(ImportTest, TwoDatabasesHaveTwoIds) {
  WriteNamedSet(folder_);
  ASSERT_OK(Import(*backend_, database_, folder_ / "set"));
  ASSERT_OK(Import(*backend_, folder_ / "b.db", folder_ / "set"));
  const auto other = Store::Open(*backend_, folder_ / "b.db");
  EXPECT_NE(OpenSound()->manifest()->database_id, (*other)->manifest()->database_id);
}

TEST_F(ImportTest, UndirectedStoresBothDirectionsOnce) {
  WriteNamedSet(folder_);
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.undirected = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{1, 2, 3}, {0, 2}, {0, 1}, {0}}));
  EXPECT_TRUE(store->manifest()->topologies[0].undirected);
}

TEST_F(ImportTest, ReverseEdgesAreARelationOfTheirOwn) {
  WriteNamedSet(folder_);
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.add_reverse = true, .deduplicate = true}));
  const auto store = OpenSound();
  EXPECT_EQ(store->manifest()->topologies[0].relation_count, 2u);
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{1, 2, 3}, {0, 2}, {0, 1}, {0}}));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kRelation, "edge"), 0u);
  EXPECT_EQ(**store->catalog()->NameOfId(NameKind::kRelation, 1), "edge_reverse");
}

// The weights of a side, beside its lists.
std::vector<float> ReadWeights(Store& store, std::string_view name, Adjacency side = Adjacency::kCsc) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  const TopologyRecord& record = *manifest->FindTopology(name);
  EXPECT_TRUE(record.weighted);
  MemoryBudget budget(kMiB);
  const auto values = EdgeValues::OpenWeights(store, budget, record, side);
  EXPECT_OK(values);
  const IoBuffer page = IoBuffer::Allocate(kPageBytes).value();
  EXPECT_OK(store.backend().ReadAt((*values)->file(), (*values)->offset(), page.span()));
  EXPECT_OK((*values)->VerifyPages(0, page.span()));
  std::vector<float> weights(record.edge_count);
  std::memcpy(weights.data(), page.data(), (*values)->bytes());
  return weights;
}

TEST_F(ImportTest, WeightsLieBesideTheirEdges) {
  WriteNamedSet(folder_);
  folder_.Write("set/edge_weights.npy", NpyVector<double>({0.5, 1, -2, 0, 4}));
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.both_directions = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{3}, {0, 0}, {0, 1}, {}}));
  EXPECT_THAT(ReadWeights(*store, "graph"), ElementsAre(-2, 0.5, 4, 0, 1));
  EXPECT_EQ(ReadLists(*store, "graph", Adjacency::kCsr), (Lists{{1, 1, 2}, {2}, {}, {0}}));
  EXPECT_THAT(ReadWeights(*store, "graph", Adjacency::kCsr), ElementsAre(0.5, 4, 0, 1, -2));
}

TEST_F(ImportTest, EqualEdgesThatAreKeptOnceWeighTheirSum) {
  folder_.Write("edges.csv", "0,1,0.5\n1,2,1\n0,1,4\n2,1,7\n2,2,3\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "edges.csv", {.deduplicate = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{}, {0, 2}, {1, 2}}));
  EXPECT_THAT(ReadWeights(*store, "graph"), ElementsAre(4.5, 7, 1, 3));
}

TEST_F(ImportTest, AReverseEdgeWeighsWhatItsEdgeDoesUnlessTheSourceHasIt) {
  folder_.Write("edges.csv", "0,1,0.5\n1,2,1\n0,1,4\n2,1,7\n2,2,3\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "edges.csv", {.undirected = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{1}, {0, 2}, {1, 2}}));
  EXPECT_THAT(ReadWeights(*store, "graph"), ElementsAre(4.5, 4.5, 7, 1, 3));
}

TEST_F(ImportTest, ReversedRelationsAndThoseWithoutWeightsHaveTheirs) {
  folder_.Write("set/edges_a.csv", "0,1,0.5\n");
  folder_.Write("set/edges_b.csv", "1,2\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.add_reverse = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{1}, {0, 2}, {1}}));
  EXPECT_THAT(ReadWeights(*store, "graph"), ElementsAre(0.5, 0.5, 1, 1));
}

TEST_F(ImportTest, TriplesHaveTheirWeightsBehindTheTail) {
  folder_.Write("kg/train.txt", "a\tr\tb\t0.25\nb\tq\tc\t8\n");
  folder_.Write("kg/valid.txt", "c\tr\ta\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "kg", {.add_reverse = true}));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{1}, {0, 2}, {1}}));
  EXPECT_THAT(ReadWeights(*store, "graph"), ElementsAre(0.25, 0.25, 8, 8));
  EXPECT_FALSE(store->manifest()->FindTopology("valid")->weighted);
}

TEST_F(ImportTest, TypedEdgesKeepTheirNames) {
  folder_.Write("set/edges_likes.npy", NpyEdges({{0, 1}, {1, 1}}));
  folder_.Write("set/edges_knows.csv", "2,1\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "set"));
  const auto store = OpenSound();
  EXPECT_EQ(store->manifest()->node_count, 3u);
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{}, {0, 1, 2}, {}}));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kRelation, "knows"), 0u);
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kRelation, "likes"), 1u);
}

TEST_F(ImportTest, TriplesKeepTheirNamesBothWaysAndTheirParts) {
  folder_.Write("kg/train.txt", "a\tr\tb\nb\tq\tc\n");
  folder_.Write("kg/valid.txt", "c\tr\ta\n");
  folder_.Write("kg/test.txt", "d\tr\ta\n");
  ASSERT_OK(Import(*backend_, database_, folder_ / "kg"));
  const auto store = OpenSound();
  EXPECT_EQ(ReadLists(*store, "graph"), (Lists{{}, {0}, {1}, {}}));
  EXPECT_EQ(ReadLists(*store, "valid"), (Lists{{2}, {}, {}, {}}));
  EXPECT_EQ(ReadLists(*store, "test"), (Lists{{3}, {}, {}, {}}));
  EXPECT_EQ(**store->catalog()->IdOfName(NameKind::kEntity, "d"), 3u);
  EXPECT_EQ(**store->catalog()->NameOfId(NameKind::kEntity, 2), "c");
  EXPECT_EQ(**store->catalog()->NameOfId(NameKind::kRelation, 1), "q");
  EXPECT_EQ(*store->catalog()->IdOfName(NameKind::kEntity, "r"), std::nullopt);
}

TEST_F(ImportTest, FeaturesAreConvertedOnRequest) {
  WriteNamedSet(folder_);
  std::vector<float> values(kNodes * 33);
  Rng random(1);
  for (float& value : values) value = static_cast<float>(random.Unit() * 4 - 2);
  folder_.Write("set/features.npy", NpyFile(values, {kNodes, 33}));
  for (const auto& [type, tolerance] : std::map<ElementType, float>{
           {ElementType::kFloat16, 0.001f}, {ElementType::kBfloat16, 0.008f}, {ElementType::kInt8, 0.008f}}) {
    SCOPED_TRACE(ElementTypeName(type));
    fs::remove_all(database_);
    const Status status = Import(*backend_, database_, folder_ / "set", {.feature_type = type});
    ASSERT_OK(status);
    const auto store = OpenSound();
    EXPECT_EQ(store->manifest()->FindTable("feature")->element_type, type);
    const std::vector<std::byte> rows = ReadTable(*store, "feature");
    const uint64_t row_bytes = RowBytes(type, 33);
    std::vector<float> row(33);
    for (uint64_t v = 0; v < kNodes; v++) {
      DecodeRow(type, std::span(rows).subspan(v * row_bytes, row_bytes), row);
      for (size_t i = 0; i < row.size(); i++) EXPECT_NEAR(row[i], values[v * 33 + i], 2 * tolerance);
    }
  }
}

TEST_F(ImportTest, NodesWithoutEdgesAndGraphsWithoutEdgesAreFine) {
  folder_.Write("set/edges.npy", NpyFile<int64_t>({}, {2, 0}));
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {}, {.node_count = 5}));
  EXPECT_EQ(ReadLists(*OpenSound(), "graph"), Lists(5));
}

TEST_F(ImportTest, NaNFeaturesComeInWhereTheyAreAllowed) {
  WriteNamedSet(folder_);
  folder_.Write("set/features.npy", NpyFile<float>({1, 2, 3, NAN, 5, 6, 7, INFINITY}, {kNodes, 2}));
  ASSERT_OK(Import(*backend_, database_, folder_ / "set", {.allow_nan = true}));
  EXPECT_TRUE(std::isnan(ReadValues<float>(*OpenSound(), "feature")[3]));
}

struct BadImport {
  const char* what;
  std::vector<std::pair<std::string, std::string>> files;  // put into the set
  std::vector<std::string> words;                          // in the message
  ImportOptions options{};
  SourceHints hints{};
  Code code = Code::kInvalidArgument;
};

std::string NpyHalves(const std::vector<uint16_t>& bits) {
  return NpyFile(bits, {kNodes, bits.size() / kNodes}, "<f2");
}

std::vector<BadImport> BadImports() {
  const std::string nan_row = NpyFile<float>({1, 2, 3, 4, 5, NAN, 7, 8}, {kNodes, 2});
  const std::string edges = NpyEdges({{0, 1}, {1, 2}});
  return {
      {"wrong magic", {{"edges.npy", "hello"}}, {"edges.npy", "plain text"}},
      {"wrong dtype", {{"edges.npy", NpyFile<float>({0, 1}, {2, 1})}}, {"edges.npy", "<f4", "int64"}},
      {"wrong shape", {{"edges.npy", NpyFile<int64_t>({0, 1, 2}, {3, 1})}}, {"edges.npy", "[3, 1]"}},
      {"Fortran order of three extents",
       {{"features.npy",
         NpyHeaderBytes({.descr = "<f4", .fortran = true, .shape = {4, 2, 2}}) + std::string(64, '\0')}},
       {"features.npy", "Fortran"}},
      {"truncated", {{"edges.npy", edges.substr(0, edges.size() - 3)}}, {"edges.npy", "truncated", "needs"}},
      {"NaN ids", {{"edges.npy", NpyFile<double>({NAN, 1}, {2, 1})}}, {"edges.npy", "NaN"}},
      {"NaN split", {{"train_idx.npy", NpyVector<double>({NAN})}}, {"train_idx.npy", "NaN"}},
      {"source out of range",
       {{"edges.npy", NpyEdges({{0, 1}, {9, 2}})}},
       {"edges.npy: edge 1", "9", "4 nodes"}},
      {"destination out of range",
       {{"edges.npy", NpyEdges({{0, 4}})}},
       {"edges.npy: edge 0", "4", "4 nodes"}},
      {"negative id", {{"edges.npy", NpyEdges({{0, 1}, {1, -2}})}}, {"edges.npy: edge 1", "-2"}},
      {"id out of range in a split",
       {{"test_idx.npy", NpyVector<int64_t>({2, 4})}},
       {"test_idx.npy: row 1", "4"}},
      {"negative id in a split", {{"test_idx.npy", NpyVector<int64_t>({-1})}}, {"test_idx.npy: row 0", "-1"}},
      {"a node in two splits",
       {{"test_idx.npy", NpyVector<int64_t>({0})}},
       {"test_idx.npy", "node 0", "valid"}},
      {"more labels than nodes",
       {{"labels.npy", NpyVector<int64_t>({0, 1, 2, 0, 1})}},
       {"labels.npy", "5", "4"}},
      {"label below -1", {{"labels.npy", NpyVector<int64_t>({0, -2, 0, 0})}}, {"labels.npy: row 1", "-2"}},
      {"label beyond the classes stated",
       {{"metadata.yaml", "num_classes: 2\n"}},
       {"labels.npy: row 1", "2", "0 to 1"}},
      {"NaN feature", {{"features.npy", nan_row}}, {"features.npy: row 2, column 1", "NaN", "--allow-nan"}},
      {"infinite half",
       {{"features.npy", NpyHalves({0, 0, 0, 0x7c00})}},
       {"features.npy: row 3, column 0", "inf", "--allow-nan"}},
      {"too large for float16",
       {{"features.npy", NpyFile<float>({1, 2, 3, 70'000, 5, 6, 7, 8}, {kNodes, 2})}},
       {"features.npy: row 1, column 1", "70000", "float16"},
       {.feature_type = ElementType::kFloat16}},
      {"NaN in int8",
       {{"features.npy", nan_row}},
       {"features.npy: row 2, column 1", "int8"},
       {.allow_nan = true, .feature_type = ElementType::kInt8}},
      {"too little memory", {}, {"1.00 MiB", "32.0 MiB"}, {.memory_bytes = 1 << 20}, {}, Code::kOutOfBudget},
      {"both ways of reversing",
       {},
       {"--undirected", "--add-reverse"},
       {.undirected = true, .add_reverse = true},
       {},
       Code::kUsage},
      {"integer features", {}, {"int64"}, {.feature_type = ElementType::kInt64}, {}, Code::kUsage},
      {"absent file", {}, {"absent.npy"}, {}, {.labels = "absent.npy"}, Code::kNotFound},
  };
}

TEST_F(ImportTest, BadInputIsRefusedInOneSentenceAndLeavesNothing) {
  for (const BadImport& bad : BadImports()) {
    SCOPED_TRACE(bad.what);
    const TemporaryFolder folder("bad");
    WriteNamedSet(folder);
    for (const auto& [name, bytes] : bad.files) folder.Write("set/" + name, bytes);
    const Status status = Import(*backend_, folder / "x.db", folder / "set", bad.options, bad.hints);
    EXPECT_EQ(status.code(), bad.code) << status.ToString();
    EXPECT_EQ(ExitCode(status.code()), bad.code == Code::kUsage ? 2 : 1);
    for (const std::string& word : bad.words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("\n")));
    ExpectNothing(folder / "x.db");
  }
}

TEST_F(ImportTest, BadTextIsRefusedAndNamesTheLine) {
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::vector<const char*>>>{
           {"0,1,2,3\n", {"line 1", "4 columns"}},
           {"0,1,2\n1,1,nan\n", {"line 2", "'nan' is not a weight"}},
           {"0,1\n2,nan\n", {"line 2", "nan"}},
           {"0,1\n\n4294967294,1\n", {"line 3", "4294967294", "4294967293"}},
           {"", {"no edges", "--nodes"}}}) {
    const Status status = Import(*backend_, database_, folder_.Write("e.csv", text));
    EXPECT_EQ(ExitCode(status.code()), 1) << status.ToString();
    for (const char* word : words) EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    ExpectNothing(database_);
  }
}

TEST_F(ImportTest, AnExistingPathIsLeftAsItIs) {
  WriteNamedSet(folder_);
  folder_.Write("graph.db", "something else");
  EXPECT_THAT(Import(*backend_, database_, folder_ / "set"), IsStatus(Code::kAlreadyExists));
  EXPECT_EQ(fs::file_size(database_), 14u);
  fs::remove(database_);
  fs::create_directory(database_);
  EXPECT_THAT(Import(*backend_, database_, folder_ / "set"), IsStatus(Code::kAlreadyExists));
  fs::remove(database_);
  ASSERT_OK(Import(*backend_, database_, folder_ / "set"));
  EXPECT_THAT(Import(*backend_, database_, folder_ / "set"), IsStatus(Code::kAlreadyExists));
  EXPECT_NE(OpenSound(), nullptr);
  EXPECT_FALSE(fs::exists(database_ + ".importing"));
}

TEST_F(ImportTest, ItsFolderMustExistAndBeWritable) {
  WriteNamedSet(folder_);
  EXPECT_THAT(Import(*backend_, folder_ / "absent/x.db", folder_ / "set"), IsStatus(Code::kNotFound));
  const Status status = Import(*backend_, "/proc/x.db", folder_ / "set");
  EXPECT_EQ(ExitCode(status.code()), 1);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/proc/x.db"));
}

TEST_F(ImportTest, CancellingAtAnyPointLeavesNothing) {
  WriteNamedSet(folder_);
  std::set<std::string> phases;
  for (int last = 0;; last++) {
    int calls = 0;
    ImportOptions options;
    options.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      phases.insert(std::string(phase));
      return calls++ == last ? Status(Code::kCancelled, "stop") : Status::Ok();
    };
    const Status status = Import(*backend_, database_, folder_ / "set", options);
    if (status.ok()) {
      EXPECT_EQ(calls, last);
      break;
    }
    EXPECT_THAT(status, IsStatus(Code::kCancelled));
    ExpectNothing(database_);
  }
  EXPECT_THAT(phases, testing::UnorderedElementsAre("reading edges", "writing topology", "labels", "splits",
                                                    "features", "catalog"));
  EXPECT_NE(OpenSound(), nullptr);
}

TEST_F(ImportTest, AFullDiskIsReportedAndLeavesNothing) {
  const std::string mount_path = folder_ / "small";
  fs::create_directory(mount_path);
  if (mount("tmpfs", mount_path.c_str(), "tmpfs", 0, "size=3m") != 0) {
    GTEST_SKIP() << "no small file system can be mounted here (needs root): " << std::strerror(errno);
  }
  WriteNamedSet(folder_);
  folder_.Write("set/features.npy", NpyFile(std::vector<float>(kNodes << 18), {kNodes, 1 << 18}));
  const Status status = Import(*backend_, mount_path + "/x.db", folder_ / "set");
  EXPECT_THAT(status, IsStatus(Code::kNoSpace));
  ExpectNothing(mount_path + "/x.db");
  // Nobody knows how many of these are equal, before they are written.
  std::vector<std::pair<int64_t, int64_t>> edges;
  for (int64_t i = 0; i < 1 << 20; ++i) edges.emplace_back(i & 1023, i >> 10);
  const std::string many = folder_.Write("many.npy", NpyEdges(edges));
  const Status written = Import(*backend_, mount_path + "/x.db", many, {.deduplicate = true});
  EXPECT_THAT(written, IsStatus(Code::kNoSpace));
  ExpectNothing(mount_path + "/x.db");
  umount(mount_path.c_str());
}

TEST_F(ImportTest, AReadOnlyFolderIsReported) {
  const std::string mount_path = folder_ / "fixed";
  fs::create_directory(mount_path);
  WriteNamedSet(folder_);
  if (mount("tmpfs", mount_path.c_str(), "tmpfs", MS_RDONLY, "") != 0) {
    GTEST_SKIP() << "no read-only file system can be mounted here (needs root): " << std::strerror(errno);
  }
  const Status status = Import(*backend_, mount_path + "/x.db", folder_ / "set");
  umount(mount_path.c_str());
  EXPECT_EQ(ExitCode(status.code()), 1);
  EXPECT_THAT(std::string(status.message()), testing::AllOf(HasSubstr("fixed/x.db"), HasSubstr("Read-only")));
}

// Imports in a child that stops at the first progress call of `phase` and waits there to be killed.
pid_t ImportAndHang(const std::string& database, const std::string& source, const std::string& phase) {
  int ready[2];
  if (pipe(ready) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    const auto backend = MakeThreadBackend(1);
    ImportOptions options;
    options.progress = [&](std::string_view now, uint64_t, uint64_t) {
      if (now == phase) {
        if (write(ready[1], "x", 1) == 1) pause();
      }
      return Status::Ok();
    };
    static_cast<void>(Import(*backend, database, source, options).ok());
    _exit(0);
  }
  close(ready[1]);
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return child;
}

TEST_F(ImportTest, ALiveImportIsRespectedAndAKilledOnesLeftoversAreRemoved) {
  WriteNamedSet(folder_);
  for (const char* phase : {"reading edges", "features", "catalog"}) {
    SCOPED_TRACE(phase);
    const pid_t child = ImportAndHang(database_, folder_ / "set", phase);
    ASSERT_GT(child, 0);
    const Status busy = Import(*backend_, database_, folder_ / "set");
    EXPECT_THAT(busy, IsStatus(Code::kBusy));
    ASSERT_TRUE(fs::remove(database_ + ".importing/LOCK"));
    const Status still_busy = Import(*backend_, database_, folder_ / "set");
    EXPECT_THAT(still_busy, IsStatus(Code::kBusy));
    EXPECT_TRUE(fs::exists(database_ + ".importing/db"));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(fs::exists(database_));
    EXPECT_TRUE(fs::exists(database_ + ".importing/db"));
    const Status status = Import(*backend_, database_, folder_ / "set");
    ASSERT_OK(status);
    EXPECT_FALSE(fs::exists(database_ + ".importing"));
    EXPECT_NE(OpenSound(), nullptr);
    fs::remove_all(database_);
  }
}

TEST_F(ImportTest, AnIdFarBeyondWhatTheEdgesImplyHasToBeConfirmed) {
  const std::string edges =
      folder_.Write("edges.npy", NpyEdges({{0, 1}, {2, 4'294'967'292}, {4'294'967'290, 0}}));
  const Status status = Import(*backend_, database_, edges);
  EXPECT_THAT(status, IsStatus(Code::kInvalidArgument));
  EXPECT_EQ(status.message(),
            edges +
                ": edge 1: node id 4294967292 makes a graph of 4294967293 nodes, and there are 3 "
                "edges: if that is right, say --nodes 4294967293");
  ExpectNothing(database_);

  // At the bound: 1,048,576 nodes need no confirmation; one more needs 10,486 edges.
  folder_.Write("edges.npy", NpyEdges({{0, 1'048'575}}));
  EXPECT_OK(Import(*backend_, database_, edges));
  folder_.Write("edges.npy", NpyEdges({{0, 1'048'576}}));
  EXPECT_THAT(Import(*backend_, folder_ / "b", edges), IsStatus(Code::kInvalidArgument));
  std::vector<std::pair<int64_t, int64_t>> many(10'485, {1, 2});
  many.front() = {1'048'576, 0};
  folder_.Write("edges.npy", NpyEdges(many));
  const Status in_front = Import(*backend_, folder_ / "b", edges);
  EXPECT_THAT(std::string(in_front.message()), HasSubstr("edge 0: node id 1048576"));
  many.emplace_back(1, 2);
  folder_.Write("edges.npy", NpyEdges(many));
  EXPECT_OK(Import(*backend_, folder_ / "b", edges));

  folder_.Write("edges.npy", NpyEdges({{0, 2'000'000}}));
  EXPECT_OK(Import(*backend_, folder_ / "c", edges, {}, {.node_count = 2'000'001})) << "confirmed";
}

TEST_F(ImportTest, WhatTheDiskHasNoRoomForIsRefusedBeforeTheWork) {
  struct statvfs disk {};
  ASSERT_EQ(statvfs(folder_.path().c_str(), &disk), 0);
  const uint64_t free_bytes = disk.f_bavail * disk.f_frsize;
  // A file of holes, of so many edges that their lists alone take twice what is free. To read it would take
  // hours.
  const uint64_t count = free_bytes / 2;
  const std::string edges = folder_.Write("edges.npy", NpyFile<int64_t>({}, {2, count}));
  std::error_code too_large;
  fs::resize_file(edges, fs::file_size(edges) + 16 * count, too_large);
  if (too_large) GTEST_SKIP() << "the file system has no files of " << FormatBytes(16 * count);
  const Status status = Import(*backend_, database_, edges);
  EXPECT_THAT(status, IsStatus(Code::kNoSpace));
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr(edges), HasSubstr(fmt::format("{}", count))));
  ExpectNothing(database_);

  // An index that is too large: stated, so that there is nothing to confirm.
  const uint64_t index_bytes = 2 * 8 * uint64_t{4'000'000'000};
  if (free_bytes > index_bytes) return;
  folder_.Write("edges.npy", NpyEdges({{0, 1}}));
  EXPECT_THAT(Import(*backend_, database_, edges, {}, {.node_count = 4'000'000'000}),
              IsStatus(Code::kNoSpace));
}

TEST_F(ImportTest, LargeSetsAgreeWithTheirSourceWhateverTheMemory) {
  Rng random(11);
  const uint64_t nodes = 50'000;
  const size_t edge_count = 1'200'000;
  std::vector<int32_t> ids(2 * edge_count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(1 + random.Below(nodes)));
  std::vector<float> features(nodes * 37);
  for (float& value : features) value = static_cast<float>(random.Unit());
  folder_.Write("set/edges.npy", NpyFile(ids, {2, edge_count}));
  folder_.Write("set/features.npy", NpyFile(features, {nodes, 37}));
  Lists expected(nodes);
  for (size_t i = 0; i < edge_count; i++) {
    expected[static_cast<size_t>(ids[edge_count + i])].push_back(static_cast<NodeId>(ids[i]));
  }
  for (auto& list : expected) std::sort(list.begin(), list.end());
  for (const uint64_t memory_bytes : {32 * kMiB, 512 * kMiB}) {
    fs::remove_all(database_);
    const Status status = Import(*backend_, database_, folder_ / "set", {.memory_bytes = memory_bytes});
    ASSERT_OK(status);
    const auto store = OpenSound();
    EXPECT_TRUE(ReadLists(*store, "graph") == expected);
    EXPECT_TRUE(ReadValues<float>(*store, "feature") == features);
  }
}

}  // namespace
}  // namespace quarry
