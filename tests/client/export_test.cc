// ExportDatabase: what is written is what the database holds, and importing it makes an equal database.
#include "quarry/service/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "quarry/base/progress.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/database.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/import/dataset.h"
#include "quarry/import/graphbolt.h"
#include "quarry/import/import.h"
#include "quarry/storage/store.h"
#include "storage/store_rows.h"
#include "support/array_files.h"
#include "support/file_text.h"
#include "support/shared_data.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr uint64_t kNodes = 700;
constexpr uint64_t kDim = 9;

std::string ReadText(const std::string& path) {
  EXPECT_TRUE(fs::exists(path)) << path;
  return testing_util::FileText(path);
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

// Features of any exponent that a float16 can have, too.
std::vector<float> RandomFeatures(uint64_t count, Rng& random) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<int64_t>(random.Below(1 << 24)) - (1 << 23)),
                       static_cast<int>(random.Below(24)) - 36);
  }
  return values;
}

// A folder of arrays: `relations` lists of edges, some of them equal and some loops, features, labels,
// splits.
void WriteSource(const TemporaryFolder& folder, const std::vector<std::string>& relations,
                 bool weighted = false) {
  Rng random(7);
  for (const std::string& relation : relations) {
    std::vector<std::pair<int64_t, int64_t>> edges(1500 + random.Below(500));
    for (auto& [source, destination] : edges) {
      source = static_cast<int64_t>(random.Below(kNodes));
      destination = static_cast<int64_t>(random.Below(kNodes / 3) * 3);
    }
    edges.push_back(edges.front());
    edges.emplace_back(5, 5);
    const std::string suffix = relation.empty() ? ".npy" : "_" + relation + ".npy";
    folder.Write("set/edges" + suffix, NpyEdges(edges));
    if (weighted) folder.Write("set/edge_weights" + suffix, NpyVector(RandomFeatures(edges.size(), random)));
  }
  folder.Write("set/features.npy", NpyFile(RandomFeatures(kNodes * kDim, random), {kNodes, kDim}));
  std::vector<int64_t> labels(kNodes);
  for (int64_t& label : labels) label = static_cast<int64_t>(random.Below(6)) - 1;
  folder.Write("set/labels.npy", NpyVector(labels));
  folder.Write("set/train_idx.npy", NpyVector<int64_t>({5, 3, 699, 100}));
  folder.Write("set/valid_idx.npy", NpyVector<int64_t>({0, 64, 65}));
  folder.Write("set/test_idx.npy", NpyVector<int64_t>({1}));
}

Status Import(const std::string& database, const std::string& source, const ImportOptions& options = {},
              const SourceHints& hints = {}) {
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  QUARRY_TRY(Dataset dataset, OpenDataset(source, hints));
  return ImportDatabase(*backend, database, std::move(dataset), options);
}

std::unique_ptr<Database> Open(const std::string& path) {
  auto database = Database::Open(path, {.memory_bytes = 256 * kMiB});
  EXPECT_OK(database);
  return std::move(database).value();
}

// Rows, labels and splits that are changed after the import, and a row that is deleted.
void Change(const std::string& path) {
  const auto database = Open(path);
  const std::shared_ptr<const Manifest> manifest = database->manifest();
  const TableRecord* const features = manifest->FindTable("feature");
  WriteBatch batch;
  Rng random(11);
  for (const uint64_t row : {0, 3, 4, 500, 699}) {
    const std::vector<float> values = RandomFeatures(kDim, random);
    std::vector<std::byte> bytes(RowBytes(features->element_type, kDim));
    EncodeRow(features->element_type, values, bytes);
    batch.Put("feature", row, bytes);
  }
  batch.Delete("feature", 42);
  batch.SetLabel(17, 4);
  batch.SetLabel(18, -1);
  batch.SetSplit(5, Split::kNone);
  batch.SetSplit(200, Split::kTest);
  const auto written = database->store().Write(batch);
  ASSERT_OK(written);
}

// All that two databases are compared by.
struct Contents {
  uint64_t nodes = 0, classes = 0;
  std::vector<std::array<int64_t, 3>> edges;  // in order: destination, source, relation
  std::vector<double> weights;
  std::vector<std::string> relations;
  bool undirected = false, deduplicated = false, has_csr = false;
  std::map<std::string, testing_util::TableRows> tables;
  std::map<std::string, ElementType> types;
};

Contents ReadContents(const std::string& path) {
  Contents contents;
  const auto database = Open(path);
  EXPECT_EQ(testing_util::FaultsIn(database->store()), "");
  const std::shared_ptr<const Manifest> manifest = database->manifest();
  contents.nodes = manifest->node_count;
  contents.classes = manifest->class_count;
  const TopologyRecord& graph = *manifest->FindTopology("graph");
  contents.undirected = graph.undirected;
  contents.deduplicated = graph.deduplicated;
  contents.has_csr = graph.has_csr;
  for (const TableRecord& table : manifest->tables) {
    contents.tables[table.name] = testing_util::RowsNow(database->store(), table.name);
    contents.types[table.name] = table.element_type;
  }
  auto edges =
      database->Query("SELECT dst, src, relation, weight FROM edges ORDER BY dst, src, relation, weight")
          .value();
  while (edges.Next().value()) {
    contents.edges.push_back({edges.Integer(0), edges.Integer(1), edges.Integer(2)});
    if (graph.weighted) contents.weights.push_back(edges.Real(3));
  }
  EXPECT_EQ(contents.edges.size(), graph.edge_count);
  auto relations = database->Query("SELECT name FROM relations ORDER BY id").value();
  while (relations.Next().value()) contents.relations.emplace_back(relations.Text(0));
  return contents;
}

void ExpectEqual(const Contents& made, const Contents& expected) {
  EXPECT_EQ(made.nodes, expected.nodes);
  EXPECT_EQ(made.classes, expected.classes);
  EXPECT_EQ(made.relations, expected.relations);
  EXPECT_EQ(made.undirected, expected.undirected);
  EXPECT_EQ(made.deduplicated, expected.deduplicated);
  EXPECT_EQ(made.has_csr, expected.has_csr);
  EXPECT_EQ(made.types, expected.types);
  EXPECT_TRUE(made.edges == expected.edges);
  EXPECT_TRUE(made.weights == expected.weights);
  for (const auto& [name, rows] : expected.tables) {
    const auto found = made.tables.find(name);
    ASSERT_TRUE(found != made.tables.end()) << name;
    ASSERT_EQ(found->second.size(), rows.size()) << name;
    for (size_t row = 0; row < rows.size(); ++row)
      EXPECT_TRUE(found->second[row] == rows[row]) << name << row;
  }
}

Result<ExportReport> Export(const std::string& path, const std::string& to, wire::ExportDatabase what = {},
                            const ProgressFunction& progress = {}) {
  const auto database = Open(path);
  what.path = to;
  auto report = ExportDatabase(database->store(), database->budget(), what, progress);
  EXPECT_EQ(database->budget().used_bytes(), 0u);
  return report;
}

// Imports as the report says.
Status ImportAs(const ExportReport& report, const std::string& database, const std::string& source) {
  ImportOptions options;
  SourceHints hints;
  for (const std::string& option : report.import_options) {
    const std::string_view type = "--feature-dtype ";
    options.undirected |= option == "--undirected";
    options.deduplicate |= option == "--dedup";
    options.both_directions |= option == "--both-directions";
    hints.u2_is_bfloat16 |= option == "--bf16";
    if (option.starts_with(type)) options.feature_type = ParseElementType(option.substr(type.size())).value();
  }
  return Import(database, source, options, hints);
}

constexpr ExportFormat kFormats[] = {ExportFormat::kNpy, ExportFormat::kCsv, ExportFormat::kGraphBolt};

struct Case {
  std::vector<std::string> relations;
  ImportOptions options;
  bool weighted = false;
};

class RoundTripTest : public testing::TestWithParam<size_t> {
 protected:
  static Case Get() {
    switch (GetParam()) {
      case 0:
        return {{""}, {.undirected = true}};
      case 1:
        return {{"writes", "cites", "is a \"b\""}, {.feature_type = ElementType::kFloat16}};
      case 2:
        return {{""}, {.undirected = true, .both_directions = true}, true};
      case 3:
        return {{"writes", "cites"}, {}, true};
      case 4:
        return {{""}, {.deduplicate = true}, true};
      default:  // reverse edges come behind all others, so names are not in the order of ids
        return {{"b", "a"},
                {.add_reverse = true,
                 .both_directions = true,
                 .deduplicate = true,
                 .feature_type = ElementType::kBfloat16}};
    }
  }
};

TEST_P(RoundTripTest, ImportingAnExportMakesAnEqualDatabase) {
  const TemporaryFolder folder("export");
  const Case example = Get();
  WriteSource(folder, example.relations, example.weighted);
  Status status = Import(folder / "db", folder / "set", example.options);
  ASSERT_OK(status);
  Change(folder / "db");
  const Contents expected = ReadContents(folder / "db");
  for (const ExportFormat format : kFormats) {
    const std::string name(NameOf(format));
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const auto report, Export(folder / "db", folder / name, {.format = format}));
    EXPECT_EQ(report.timestamp, 1u);
    EXPECT_EQ(report.files, FilesIn(folder / name).size());
    EXPECT_FALSE(fs::exists(folder / (name + ".exporting")));
    status = ImportAs(report, folder / (name + ".db"), folder / name);
    ASSERT_OK(status);
    ExpectEqual(ReadContents(folder / (name + ".db")), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, RoundTripTest, testing::Range<size_t>(0, 6));

// Types of nodes and edges come back, with their tables, labels and splits, as they were changed.
TEST(ExportTest, TypesComeBackEqual) {
  const TemporaryFolder folder("export"), source("export-types");
  const TypedSet set = RandomTypedSet(12, 90);
  set.WriteTo(source);
  ASSERT_OK(Import(folder / "db", source.path(), {.both_directions = true}));
  {
    const auto database = Open(folder / "db");
    WriteBatch batch;
    const std::vector<float> row(set.nodes[1].dim, 0.25f);
    batch.Put("author.feature", 7, std::as_bytes(std::span(row)));
    batch.SetLabel(3, 1);
    batch.SetSplit(static_cast<NodeId>(set.nodes[1].first + 2), Split::kTest);
    ASSERT_OK(database->store().Write(batch));
  }
  const auto types = [](const std::string& path) {
    std::vector<std::tuple<std::string, uint64_t, std::string, uint64_t>> nodes;
    const std::shared_ptr<const Manifest> manifest = Open(path)->manifest();
    for (const NodeTypeRecord& type : manifest->node_types) {
      nodes.emplace_back(type.name, type.count, type.feature_table, type.class_count);
    }
    for (const EdgeTypeRecord& type : manifest->edge_types) {
      nodes.emplace_back(EdgeTypeName(manifest->node_types, type), type.edge_count, "", 0);
    }
    return nodes;
  };
  ASSERT_OK_AND_ASSIGN(const auto report,
                       Export(folder / "db", folder / "out", {.format = ExportFormat::kGraphBolt}));
  ASSERT_OK(ImportAs(report, folder / "again.db", folder / "out"));
  ExpectEqual(ReadContents(folder / "again.db"), ReadContents(folder / "db"));
  EXPECT_EQ(types(folder / "again.db"), types(folder / "db"));
  for (const ExportFormat format : {ExportFormat::kNpy, ExportFormat::kCsv}) {
    EXPECT_THAT(Export(folder / "db", folder / "other", {.format = format}),
                IsStatus(Code::kUnsupported, HasSubstr("--format graphbolt")));
  }
}

TEST(ExportTest, Int8RowsKeepTheirScales) {
  const TemporaryFolder folder("export");
  WriteSource(folder, {""});
  ASSERT_OK(Import(folder / "db", folder / "set", {.feature_type = ElementType::kInt8}));
  Change(folder / "db");
  ASSERT_OK_AND_ASSIGN(const auto report, Export(folder / "db", folder / "out"));
  EXPECT_THAT(report.import_options, IsEmpty());
  const Status status = Import(folder / "again", folder / "out");
  ASSERT_OK(status);
  ExpectEqual(ReadContents(folder / "again"), ReadContents(folder / "db"));
  fs::remove(folder / "out/features_scale.npy");
  EXPECT_THAT(Import(folder / "no-scales", folder / "out"), IsStatus(Code::kInvalidArgument));
}

TEST(ExportTest, TriplesKeepTheirWeights) {
  const TemporaryFolder folder("export");
  folder.Write("kg/train.txt", "b\tr\ta\t0.1\nb\tq\tc\t-8\nb\tq\tc\t1e-40\n");
  folder.Write("kg/test.txt", "c\tr\ta\n");
  ASSERT_OK(Import(folder / "db", folder / "kg"));
  for (const ExportFormat format : {ExportFormat::kNpy, ExportFormat::kCsv}) {
    const std::string name(NameOf(format));
    ASSERT_OK(Export(folder / "db", folder / name, {.format = format}));
    EXPECT_EQ(ReadText(folder / (name + "/train.txt")), "b\tr\ta\t0.1\nb\tq\tc\t1e-40\nb\tq\tc\t-8\n");
    EXPECT_EQ(ReadText(folder / (name + "/test.txt")), "c\tr\ta\n");
    const Status status = Import(folder / (name + ".db"), folder / name);
    ASSERT_OK(status);
    ExpectEqual(ReadContents(folder / (name + ".db")), ReadContents(folder / "db"));
  }
}

// Any bits of a finite float come back out of text: denormals, both zeros, the largest.
TEST(ExportTest, TextKeepsEveryBitOfAFloat) {
  const TemporaryFolder folder("export");
  Rng random(3);
  std::vector<float> values = {0.0F, -0.0F, 1e-45F, -1.17549435e-38F, 3.40282347e38F, 16777217.0F, 0.1F};
  while (values.size() < 40'000) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(value)) values.push_back(value);
  }
  folder.Write("set/edges.npy", NpyEdges({{0, 1}}));
  folder.Write("set/features.npy", NpyFile(values, {values.size() / 4, 4}));
  ASSERT_OK(Import(folder / "db", folder / "set"));
  ASSERT_OK(Export(folder / "db", folder / "csv", {.format = ExportFormat::kCsv}));
  const Status status = Import(folder / "again", folder / "csv");
  ASSERT_OK(status);
  ExpectEqual(ReadContents(folder / "again"), ReadContents(folder / "db"));
}

TEST(ExportTest, ArraysAreWhatTheirNamesSay) {
  const TemporaryFolder folder("export");
  folder.Write("set/edges.npy", NpyEdges({{0, 1}, {2, 0}, {1, 0}}));
  folder.Write("set/features.npy", NpyFile<float>({1, 2, 0.5, 4, -1, 6e-9F}, {3, 2}));
  folder.Write("set/labels.npy", NpyVector<int64_t>({0, -1, 3}));
  folder.Write("set/valid_idx.npy", NpyVector<int64_t>({2, 1}));
  ASSERT_OK(Import(folder / "db", folder / "set"));
  ASSERT_OK(Export(folder / "db", folder / "npy"));
  EXPECT_THAT(FilesIn(folder / "npy"),
              UnorderedElementsAre("edges.npy", "features.npy", "labels.npy", "train_idx.npy",
                                   "valid_idx.npy", "test_idx.npy", "metadata.yaml"));
  const std::string edges = ReadText(folder / "npy/edges.npy");
  EXPECT_THAT(edges.substr(0, 80), HasSubstr("{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }"));
  EXPECT_EQ(edges.substr(4096), RawBytes<int64_t>({1, 2, 0, 0, 0, 1})) << "by destination, then source";
  EXPECT_EQ(ReadText(folder / "npy/metadata.yaml"),
            "num_nodes: 3\nnum_edges: 3\nfeature_dim: 2\nnum_classes: 4\n");
  ASSERT_OK(Export(folder / "db", folder / "csv", {.format = ExportFormat::kCsv}));
  EXPECT_EQ(ReadText(folder / "csv/edges.csv"), "1,0\n2,0\n0,1\n");
  EXPECT_EQ(ReadText(folder / "csv/features.csv"), "1,2\n0.5,4\n-1,6e-09\n");
  EXPECT_EQ(ReadText(folder / "csv/labels.csv"), "0\n-1\n3\n");
  EXPECT_EQ(ReadText(folder / "csv/valid_idx.csv"), "1\n2\n");
  EXPECT_EQ(ReadText(folder / "csv/train_idx.csv"), "");
}

// The form that DGL documents.
TEST(ExportTest, GraphBoltFoldersDescribeThemselves) {
  const TemporaryFolder folder("export");
  WriteSource(folder, {"b", "a"});
  ASSERT_OK(Import(folder / "db", folder / "set"));
  ASSERT_OK(Export(folder / "db", folder / "gb", {.format = ExportFormat::kGraphBolt}));
  EXPECT_THAT(ReadText(folder / "gb/metadata.yaml"), StartsWith(R"(dataset_name: "db"
graph:
  nodes:
    - type: "node"
      num: 700
  edges:
    - type: "node:a:node"
      format: "numpy"
      path: "edges_0.npy"
    - type: "node:b:node"
      format: "numpy"
      path: "edges_1.npy"
feature_data:
  - domain: "node"
    type: "node"
    name: "feat"
    format: "numpy"
    in_memory: false
    path: "features.npy"
  - domain: "node"
    type: "node"
    name: "label"
    format: "numpy"
)"));
  ASSERT_OK_AND_ASSIGN(const auto graph,
                       DecodeGraphBolt(ReadText(folder / "gb/metadata.yaml"), "metadata.yaml"));
  ASSERT_EQ(graph.tasks.size(), 1u);
  EXPECT_EQ(graph.tasks[0].name, "node_classification");
  EXPECT_EQ(graph.tasks[0].class_count, 5u);
  ASSERT_EQ(graph.tasks[0].train.size(), 1u);
  EXPECT_EQ(graph.tasks[0].train[0].type, "node");
  EXPECT_EQ(graph.tasks[0].train[0].arrays[0].name, "seeds");
  EXPECT_EQ(graph.tasks[0].train[0].arrays[1].path, "train_labels.npy");
  // Labels beside seeds, in their order.
  const std::string labels = ReadText(folder / "set/labels.npy");
  std::string expected;
  for (const size_t node : {3, 5, 100, 699}) {
    expected += labels.substr(labels.size() - (kNodes - node) * sizeof(int64_t), sizeof(int64_t));
  }
  EXPECT_EQ(ReadText(folder / "gb/train_labels.npy").substr(4096), expected);
  EXPECT_EQ(ReadText(folder / "gb/train_idx.npy").substr(4096), RawBytes<int64_t>({3, 5, 100, 699}));
}

// Names and ids, the edges to be ranked, and more relations than files are written at once.
TEST(ExportTest, TriplesComeBackWithTheirNamesAndIds) {
  const TemporaryFolder folder("export");
  Rng random(5);
  std::array<std::string, 3> parts;
  for (int i = 0; i < 3000; ++i) {
    parts[i % 20 == 0   ? 1
          : i % 20 == 1 ? 2
                        : 0] +=
        fmt::format("n {}\tr/{}\tn {}\n", random.Below(400), random.Below(150), random.Below(400));
  }
  folder.Write("set/train.txt", parts[0]);
  folder.Write("set/valid.txt", parts[1]);
  folder.Write("set/test.txt", parts[2]);
  ASSERT_OK(Import(folder / "db", folder / "set"));
  const auto lines = [](const std::string& text) {
    std::vector<std::string> sorted;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) sorted.push_back(line);
    std::ranges::sort(sorted);
    return sorted;
  };
  ASSERT_OK(Export(folder / "db", folder / "out"));
  EXPECT_EQ(lines(ReadText(folder / "out/train.txt")), lines(parts[0]));
  EXPECT_EQ(lines(ReadText(folder / "out/valid.txt")), lines(parts[1]));
  EXPECT_EQ(lines(ReadText(folder / "out/test.txt")), lines(parts[2]));
  ASSERT_OK(Import(folder / "again", folder / "out"));
  ExpectEqual(ReadContents(folder / "again"), ReadContents(folder / "db"));
  ASSERT_OK(Export(folder / "again", folder / "out2"));
  for (const std::string& name : FilesIn(folder / "out")) {
    EXPECT_EQ(ReadText(folder / ("out/" + name)), ReadText(folder / ("out2/" + name))) << name;
  }
  // DGL's form has relations and no names of nodes.
  ASSERT_OK(Export(folder / "db", folder / "gb", {.format = ExportFormat::kGraphBolt}));
  ASSERT_OK(Import(folder / "numbers", folder / "gb"));
  const Contents expected = ReadContents(folder / "db");
  const Contents made = ReadContents(folder / "numbers");
  EXPECT_TRUE(made.edges == expected.edges);
  EXPECT_EQ(made.relations, expected.relations);
}

TEST(ExportTest, OnlyWhatIsAskedForIsWritten) {
  const TemporaryFolder folder("export");
  WriteSource(folder, {""});
  ASSERT_OK(Import(folder / "db", folder / "set"));
  const auto files = [&](const wire::ExportDatabase& parts) {
    fs::remove_all(folder / "out");
    const auto report = Export(folder / "db", folder / "out", parts);
    EXPECT_OK(report);
    return FilesIn(folder / "out");
  };
  EXPECT_THAT(files({.topology = false, .features = false, .split = false}),
              UnorderedElementsAre("labels.npy", "metadata.yaml"));
  EXPECT_THAT(files({.features = false, .labels = false, .split = false}),
              UnorderedElementsAre("edges.npy", "metadata.yaml"));
}

TEST(ExportTest, EmbeddingsAreArraysOfFloats) {
  const TemporaryFolder folder("export");
  WriteSource(folder, {""});
  ASSERT_OK(Import(folder / "db", folder / "set"));
  constexpr uint32_t kWidth = 5;
  {
    const auto database = Open(folder / "db");
    ASSERT_OK(CreateEmbeddings(database->store(), "v", {.row_count = kNodes, .dim = kWidth, .seed = 4}));
  }
  const auto report =
      Export(folder / "db", folder / "out",
             {.topology = false, .features = false, .labels = false, .split = false, .embeddings = true});
  ASSERT_OK(report);
  const std::string bytes = ReadText(folder / "out/embeddings_v.npy").substr(4096);
  ASSERT_EQ(bytes.size(), kNodes * kWidth * sizeof(float));
  const auto database = Open(folder / "db");
  auto rows = database->Query("SELECT vector FROM embedding_rows ORDER BY id").value();
  for (uint64_t row = 0; row < kNodes; ++row) {
    ASSERT_TRUE(rows.Next().value());
    const std::span<const std::byte> vector = rows.Blob(0);
    EXPECT_EQ(std::memcmp(vector.data(), bytes.data() + row * vector.size(), vector.size()), 0) << row;
  }
}

TEST(ExportTest, RefusesAndLeavesNothing) {
  const TemporaryFolder folder("export");
  WriteSource(folder, {"a:b", "c"});
  ASSERT_OK(Import(folder / "db", folder / "set"));
  const auto refused = [&](const std::string& to, const wire::ExportDatabase& options, Code code,
                           const ProgressFunction& progress = {}) {
    const auto report = Export(folder / "db", to, options, progress);
    EXPECT_EQ(report.status().code(), code) << report.status().ToString();
    EXPECT_FALSE(fs::exists(to + ".exporting"));
    return std::string(report.status().message());
  };
  EXPECT_THAT(refused(folder / "set", {}, Code::kAlreadyExists), HasSubstr("set exists"));
  EXPECT_THAT(refused(folder / "db/out", {}, Code::kInvalidArgument), HasSubstr("put it elsewhere"));
  EXPECT_THAT(refused(folder / "out", {.table = "absent"}, Code::kNotFound), HasSubstr("absent"));
  EXPECT_THAT(refused(folder / "out", {.table = "label"}, Code::kInvalidArgument),
              HasSubstr("features are floats"));
  EXPECT_THAT(refused(folder / "out", {.format = ExportFormat::kGraphBolt}, Code::kUnsupported),
              HasSubstr("'a:b' has a colon"));
  EXPECT_EQ(testing_util::FaultsIn(Open(folder / "db")->store()), "") << "nothing was left in the database";
  const auto stop = [](std::string_view phase, uint64_t, uint64_t) {
    return phase == "exporting labels" ? MakeStatus(Code::kCancelled, "interrupted") : Status::Ok();
  };
  refused(folder / "out", {}, Code::kCancelled, stop);
  EXPECT_FALSE(fs::exists(folder / "out"));
  auto small = Database::Open(folder / "db", {.memory_bytes = 4 * kMiB});
  EXPECT_THAT(ExportDatabase((*small)->store(), (*small)->budget(), {.path = folder / "out"}),
              IsStatus(Code::kOutOfBudget));
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(ExportTest, CoraComesBackEqual) {
  QUARRY_SHARED_SET(cora, "cora");
  const TemporaryFolder folder("export");
  Status status = Import(folder / "db", cora.path());
  ASSERT_OK(status);
  const Contents expected = ReadContents(folder / "db");
  for (const ExportFormat format : {ExportFormat::kNpy, ExportFormat::kGraphBolt}) {
    const std::string name(NameOf(format));
    SCOPED_TRACE(name);
    ASSERT_OK_AND_ASSIGN(const auto report, Export(folder / "db", folder / name, {.format = format}));
    status = ImportAs(report, folder / (name + ".db"), folder / name);
    ASSERT_OK(status);
    ExpectEqual(ReadContents(folder / (name + ".db")), expected);
  }
}

}  // namespace
}  // namespace quarry
