#include "quarry/format/manifest.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <limits>
#include <tuple>

#include "quarry/base/random.h"
#include "quarry/format/node_types.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Every field has a value of its own, so that none can stand for another.
LayoutRecord ExampleLayout() {
  return {.name = "default",
          .directory = "layouts/default-7",
          .generation = 7,
          .spec = {.direction = Direction::kOut,
                   .fanouts = {10, 15, 20},
                   .batch_size = 1000,
                   .cache_bytes = 98765,
                   .seed = 0xfedcba9876543210,
                   .seed_order = SeedOrder::kProximity,
                   .replace = true,
                   .sampler = SamplerKind::kLabor,
                   .batch_dependency = 64,
                   .weighted = true,
                   .edge_ids = true},
          .table_generation = 2,
          .topology_generation = 3,
          .timestamp = 4,
          .policy = PolicyKind::kLru,
          .epochs = 5,
          .batch_count = 600,
          .cache_rows = 123456,
          .batches_per_segment = 48,
          .hash_functions = 6,
          .share = {.rank = 2, .ranks = 3, .rank_partitioning = "cut"},
          .file_bytes = uint64_t{1} << 40,
          .trace_bytes = 8192,
          .row_bytes_read = 9999,
          .useful_bytes = 8888,
          .predicted_seconds = 12.5,
          .measured_seconds = 13.25,
          .measured_bytes = 7777,
          .plan_seconds = 99.5,
          .plan_bytes_written = 6666,
          .plan_bytes_read = 5555,
          .created_utc = "2025-01-02T03:04:07Z"};
}

EmbeddingRecord ExampleEmbedding() {
  return {.name = "nodes",
          .file = "embeddings/nodes-2.qet",
          .generation = 2,
          .page_bytes = 16384,
          .page_count = 77,
          .map_file = "embeddings/nodes-2-9.qem",
          .map_generation = 9,
          .row_count = uint64_t{1} << 33,
          .dim = 50,
          .element_type = ElementType::kBfloat16,
          .optimizer = 2,
          .init = 1,
          .init_scale = 0.25F,
          .seed = 0xabcdef0123456789,
          .timestamp = 1234567890123,
          .created_utc = "2025-01-02T03:04:08Z",
          .kept_map_file = "embeddings/nodes-2-4.qem",
          .kept_map_generation = 4,
          .kept_timestamp = 1234567890};
}

void ExpectExampleEmbedding(const EmbeddingRecord& embedding) {
  EXPECT_EQ(embedding.name, "nodes");
  EXPECT_EQ(embedding.file, "embeddings/nodes-2.qet");
  EXPECT_EQ(embedding.generation, 2u);
  EXPECT_EQ(embedding.page_bytes, 16384u);
  EXPECT_EQ(embedding.page_count, 77u);
  EXPECT_EQ(embedding.map_file, "embeddings/nodes-2-9.qem");
  EXPECT_EQ(embedding.map_generation, 9u);
  EXPECT_EQ(embedding.row_count, uint64_t{1} << 33);
  EXPECT_EQ(embedding.dim, 50u);
  EXPECT_EQ(embedding.element_type, ElementType::kBfloat16);
  EXPECT_EQ(embedding.optimizer, 2);
  EXPECT_EQ(embedding.init, 1);
  EXPECT_EQ(embedding.init_scale, 0.25F);
  EXPECT_EQ(embedding.seed, 0xabcdef0123456789);
  EXPECT_EQ(embedding.timestamp, 1234567890123);
  EXPECT_EQ(embedding.created_utc, "2025-01-02T03:04:08Z");
}

TrainingRecord ExampleTraining() {
  return {.name = "node",
          .file = "training/node-7.qts",
          .generation = 7,
          .file_bytes = 8888,
          .settings = "--layers 2 --seed 1",
          .timestamp = 1234567890124,
          .created_utc = "2025-01-02T03:04:09Z",
          .config = "[train]\nlayers = 2\n"};
}

void ExpectTraining(const TrainingRecord& training, const TrainingRecord& expected) {
  EXPECT_EQ(training.name, expected.name);
  EXPECT_EQ(training.file, expected.file);
  EXPECT_EQ(training.generation, expected.generation);
  EXPECT_EQ(training.file_bytes, expected.file_bytes);
  EXPECT_EQ(training.settings, expected.settings);
  EXPECT_EQ(training.timestamp, expected.timestamp);
  EXPECT_EQ(training.created_utc, expected.created_utc);
  EXPECT_EQ(training.config, expected.config);
}

PartitioningRecord ExamplePartitioning() {
  return {.name = "default",
          .directory = "partitions/default-3",
          .generation = 3,
          .parts_generation = 2,
          .buckets_bytes = 8192,
          .topology = "graph",
          .topology_generation = 4,
          .table = "feature",
          .table_generation = 5,
          .timestamp = 6,
          .method = "grem",
          .seed = 0xabcdef0123456789,
          .part_count = 64,
          .node_count = 10,
          .edge_count = 100,
          .cut_edges = 33,
          .file_bytes = 7777,
          .build_seconds = 1.5,
          .created_utc = "2025-01-02T03:04:10Z"};
}

void ExpectExamplePartitioning(const PartitioningRecord& partitioning) {
  EXPECT_EQ(partitioning.name, "default");
  EXPECT_EQ(partitioning.directory, "partitions/default-3");
  EXPECT_EQ(partitioning.generation, 3u);
  EXPECT_EQ(partitioning.parts_generation, 2u);
  EXPECT_EQ(partitioning.buckets_bytes, 8192u);
  EXPECT_EQ(partitioning.total_bytes(), 7777u + 8192u);
  EXPECT_EQ(partitioning.topology, "graph");
  EXPECT_EQ(partitioning.topology_generation, 4u);
  EXPECT_EQ(partitioning.table, "feature");
  EXPECT_EQ(partitioning.table_generation, 5u);
  EXPECT_EQ(partitioning.timestamp, 6u);
  EXPECT_EQ(partitioning.method, "grem");
  EXPECT_EQ(partitioning.seed, 0xabcdef0123456789);
  EXPECT_EQ(partitioning.part_count, 64u);
  EXPECT_EQ(partitioning.node_count, 10u);
  EXPECT_EQ(partitioning.edge_count, 100u);
  EXPECT_EQ(partitioning.cut_edges, 33u);
  EXPECT_EQ(partitioning.file_bytes, 7777u);
  EXPECT_EQ(partitioning.build_seconds, 1.5);
  EXPECT_EQ(partitioning.created_utc, "2025-01-02T03:04:10Z");
}

std::vector<std::byte> FromHex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (size_t at = 0; at < hex.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
  }
  return bytes;
}

Manifest ExampleManifest() {
  Manifest manifest;
  manifest.database_id[3] = std::byte{9};
  manifest.node_count = 10;
  manifest.class_count = 3;
  manifest.source = "dir/with \"quotes\" and \xc3\xa9";
  manifest.created_utc = "2025-01-02T03:04:05Z";
  manifest.has_relation_names = true;
  manifest.tables = {{.name = "feature",
                      .file = "features/feature-1.qft",
                      .generation = 2,
                      .element_type = ElementType::kInt8,
                      .row_count = 10,
                      .dim = 5,
                      .file_bytes = 12288},
                     {.name = "label", .file = "features/label-1.qft", .element_type = ElementType::kInt64}};
  manifest.topologies = {{.name = "graph",
                          .file = "topology/graph-1.qtp",
                          .node_count = 10,
                          .edge_count = 100,
                          .relation_count = 4,
                          .has_csr = true,
                          .undirected = true,
                          .distinct = true,
                          .weighted = true,
                          .file_bytes = 8192}};
  manifest.device = {.random_reads_per_second = 77777.5,
                     .sequential_bytes_per_second = 3.25e9,
                     .write_bytes_per_second = 1.5e9,
                     .gather_bytes_per_second = 6e9,
                     .measured_utc = "2025-01-02T03:04:06Z"};
  manifest.layouts = {ExampleLayout(), ExampleLayout()};
  manifest.layouts[1].name = "other";
  manifest.embeddings = {ExampleEmbedding(), ExampleEmbedding()};
  manifest.embeddings[1].name = "relations";
  manifest.trainings = {ExampleTraining(), ExampleTraining()};
  manifest.trainings[1].name = "link";
  manifest.partitionings = {ExamplePartitioning(), ExamplePartitioning()};
  manifest.partitionings[1].name = "other";
  return manifest;
}

TEST(ManifestTest, RoundTrips) {
  const Manifest in = ExampleManifest();
  const Manifest out = DecodeManifest(EncodeManifest(in), "catalog").value();
  EXPECT_EQ(out.database_id, in.database_id);
  EXPECT_EQ(out.source, in.source);
  EXPECT_EQ(out.created_utc, in.created_utc);
  EXPECT_FALSE(out.has_entity_names);
  EXPECT_TRUE(out.has_relation_names);
  ASSERT_NE(out.FindTable("feature"), nullptr);
  EXPECT_EQ(out.FindTable("feature")->element_type, ElementType::kInt8);
  EXPECT_EQ(out.FindTable("feature")->file_bytes, 12288u);
  EXPECT_EQ(out.FindTable("graph"), nullptr);
  ASSERT_NE(out.FindTopology("graph"), nullptr);
  EXPECT_EQ(out.FindTopology("graph")->edge_count, 100u);
  EXPECT_TRUE(out.FindTopology("graph")->has_csr);
  EXPECT_FALSE(out.FindTopology("graph")->deduplicated);
  EXPECT_TRUE(out.FindTopology("graph")->distinct);
  // Every field is carried: encoding what was decoded gives the same bytes.
  EXPECT_EQ(EncodeManifest(out), EncodeManifest(in));
}

TEST(ManifestTest, AFileOutsideTheDatabaseIsRefused) {
  for (const char* file : {"/etc/passwd", "features/../../x", ""}) {
    Manifest manifest = ExampleManifest();
    manifest.tables[0].file = file;
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "catalog"), IsStatus(Code::kCorruption)) << file;
  }
}

TEST(ManifestTest, EveryFieldOfALayoutAndOfTheDeviceIsCarried) {
  const Manifest out = DecodeManifest(EncodeManifest(ExampleManifest()), "catalog").value();
  ASSERT_TRUE(out.device.has_value());
  EXPECT_EQ(out.device->random_reads_per_second, 77777.5);
  EXPECT_EQ(out.device->sequential_bytes_per_second, 3.25e9);
  EXPECT_EQ(out.device->write_bytes_per_second, 1.5e9);
  EXPECT_EQ(out.device->gather_bytes_per_second, 6e9);
  EXPECT_EQ(out.device->measured_utc, "2025-01-02T03:04:06Z");
  EXPECT_EQ(out.FindLayout("feature"), nullptr);
  EXPECT_EQ(out.FindLayout("other"), &out.layouts[1]);
  const LayoutRecord* layout = out.FindLayout("default");
  ASSERT_NE(layout, nullptr);
  EXPECT_EQ(layout->directory, "layouts/default-7");
  EXPECT_EQ(layout->generation, 7u);
  EXPECT_EQ(layout->spec.feature_table, "feature");
  EXPECT_EQ(layout->table_generation, 2u);
  EXPECT_EQ(layout->spec.topology, "graph");
  EXPECT_EQ(layout->topology_generation, 3u);
  EXPECT_EQ(layout->timestamp, 4u);
  EXPECT_EQ(layout->spec.seed, 0xfedcba9876543210u);
  EXPECT_EQ(layout->spec.batch_size, 1000u);
  EXPECT_EQ(layout->spec.cache_bytes, 98765u);
  EXPECT_THAT(layout->spec.fanouts, ElementsAre(10, 15, 20));
  EXPECT_EQ(layout->spec.direction, Direction::kOut);
  EXPECT_EQ(layout->policy, PolicyKind::kLru);
  EXPECT_EQ(layout->spec.seed_order, SeedOrder::kProximity);
  EXPECT_TRUE(layout->spec.replace);
  EXPECT_EQ(layout->spec.sampler, SamplerKind::kLabor);
  EXPECT_EQ(layout->spec.batch_dependency, 64u);
  EXPECT_TRUE(layout->spec.weighted);
  EXPECT_TRUE(layout->spec.edge_ids);
  EXPECT_EQ(layout->epochs, 5u);
  EXPECT_EQ(layout->batch_count, 600u);
  EXPECT_EQ(layout->cache_rows, 123456u);
  EXPECT_EQ(layout->batches_per_segment, 48u);
  EXPECT_EQ(layout->hash_functions, 6u);
  EXPECT_EQ(layout->share, (RankShare{.rank = 2, .ranks = 3, .rank_partitioning = "cut"}));
  EXPECT_EQ(layout->file_bytes, uint64_t{1} << 40);
  EXPECT_EQ(layout->trace_bytes, 8192u);
  EXPECT_EQ(layout->row_bytes_read, 9999u);
  EXPECT_EQ(layout->useful_bytes, 8888u);
  EXPECT_EQ(layout->predicted_seconds, 12.5);
  EXPECT_EQ(layout->measured_seconds, 13.25);
  EXPECT_EQ(layout->measured_bytes, 7777u);
  EXPECT_EQ(layout->plan_seconds, 99.5);
  EXPECT_EQ(layout->plan_bytes_written, 6666u);
  EXPECT_EQ(layout->plan_bytes_read, 5555u);
  EXPECT_EQ(layout->created_utc, "2025-01-02T03:04:07Z");
}

// Records of versions that did not say it had one table.
TEST(ManifestTest, BytesOfALayoutsCacheFollowFromItsRows) {
  Manifest in = ExampleManifest();
  in.layouts[0].spec.cache_bytes = 0;
  const Manifest out = DecodeManifest(EncodeManifest(in), "catalog").value();
  EXPECT_EQ(out.layouts[0].spec.cache_bytes, 123456 * out.FindTable("feature")->row_stride());
}

TEST(ManifestTest, EveryFieldOfAnEmbeddingIsCarried) {
  const Manifest out = DecodeManifest(EncodeManifest(ExampleManifest()), "catalog").value();
  EXPECT_EQ(out.FindEmbedding("feature"), nullptr);
  EXPECT_EQ(out.FindEmbedding("relations"), &out.embeddings[1]);
  const EmbeddingRecord* embedding = out.FindEmbedding("nodes");
  ASSERT_NE(embedding, nullptr);
  ExpectExampleEmbedding(*embedding);
  EXPECT_EQ(embedding->kept_map_file, "embeddings/nodes-2-4.qem");
  EXPECT_EQ(embedding->kept_map_generation, 4u);
  EXPECT_EQ(embedding->kept_timestamp, 1234567890);
}

TEST(ManifestTest, EveryFieldOfATrainingIsCarried) {
  const Manifest out = DecodeManifest(EncodeManifest(ExampleManifest()), "catalog").value();
  EXPECT_EQ(out.FindTraining("feature"), nullptr);
  EXPECT_EQ(out.FindTraining("link"), &out.trainings[1]);
  const TrainingRecord* training = out.FindTraining("node");
  ASSERT_NE(training, nullptr);
  ExpectTraining(*training, ExampleTraining());
}

TEST(ManifestTest, ATrainingWhoseFileLiesElsewhereIsRefused) {
  for (const char* file : {"/etc/passwd", "training/../../x", ""}) {
    Manifest manifest = ExampleManifest();
    manifest.trainings[1].file = file;
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "catalog"), IsStatus(Code::kCorruption)) << file;
  }
}

TEST(ManifestTest, EveryFieldOfAPartitioningIsCarried) {
  const Manifest out = DecodeManifest(EncodeManifest(ExampleManifest()), "catalog").value();
  EXPECT_EQ(out.FindPartitioning("graph"), nullptr);
  EXPECT_EQ(out.FindPartitioning("other"), &out.partitionings[1]);
  ASSERT_NE(out.FindPartitioning("default"), nullptr);
  ExpectExamplePartitioning(*out.FindPartitioning("default"));
}

TEST(ManifestTest, APartitioningThatCannotBeIsRefused) {
  const auto refused = [](auto change) {
    Manifest manifest = ExampleManifest();
    change(manifest.partitionings[1]);
    return DecodeManifest(EncodeManifest(manifest), "catalog").status().code() == Code::kCorruption;
  };
  for (const char* directory : {"/etc", "partitions/../../x", ""}) {
    EXPECT_TRUE(refused([&](PartitioningRecord& p) { p.directory = directory; })) << directory;
  }
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.name = ""; }));
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.topology = ""; }));
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.part_count = 0; }));
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.cut_edges = 101; }));
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.parts_generation = 4; }));
  EXPECT_TRUE(refused([](PartitioningRecord& p) { p.build_seconds = -1; }));
  EXPECT_FALSE(refused([](PartitioningRecord& p) { p.table = ""; }));
}

Manifest TypedManifest() {
  Manifest manifest = ExampleManifest();
  manifest.tables.push_back(
      {.name = "paper.feature", .file = "features/paper.feature-1.qft", .row_count = 7, .dim = 3});
  manifest.topologies[0].by_relation = true;
  manifest.node_types = {
      {.name = "paper", .first = 0, .count = 7, .feature_table = "paper.feature", .class_count = 5},
      {.name = "author", .first = 7, .count = 3}};
  for (uint32_t i = 0; i < 4; ++i) {
    manifest.edge_types.push_back(
        {.source = i % 2, .name = "r" + std::to_string(i), .destination = i / 2, .edge_count = 10 + i});
  }
  return manifest;
}

TEST(ManifestTest, EveryFieldOfATypeIsCarried) {
  const Manifest out = DecodeManifest(EncodeManifest(TypedManifest()), "catalog").value();
  EXPECT_TRUE(out.FindTopology("graph")->by_relation);
  ASSERT_EQ(out.node_types.size(), 2u);
  const NodeTypeRecord& paper = out.node_types[0];
  EXPECT_EQ(std::tuple(paper.name, paper.first, paper.count), std::tuple("paper", 0u, 7u));
  EXPECT_EQ(std::tuple(paper.feature_table, paper.class_count), std::tuple("paper.feature", 5u));
  EXPECT_EQ(std::tuple(out.node_types[1].name, out.node_types[1].first), std::tuple("author", 7u));
  ASSERT_EQ(out.edge_types.size(), 4u);
  const EdgeTypeRecord& edges = out.edge_types[3];
  EXPECT_EQ(std::tuple(edges.source, edges.name, edges.destination, edges.edge_count),
            std::tuple(1u, "r3", 1u, 13u));
  EXPECT_EQ(EdgeTypeName(out.node_types, out.edge_types[1]), "author:r1:paper");
}

// Nodes 10 to 12 and 15 came to the papers, 13 and 14 to the authors.
Manifest GrownTypedManifest() {
  Manifest manifest = TypedManifest();
  manifest.node_count = 16;
  manifest.tables.back().row_count = 11;
  manifest.node_types[0].later = {{.first = 10, .count = 3}, {.first = 15, .count = 1}};
  manifest.node_types[1].later = {{.first = 13, .count = 2}};
  return manifest;
}

TEST(ManifestTest, TypesAreListsOfRanges) {
  const Manifest out = DecodeManifest(EncodeManifest(GrownTypedManifest()), "catalog").value();
  const std::vector<std::vector<uint64_t>> nodes = {{0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 15}, {7, 8, 9, 13, 14}};
  // All of them, and those that a snapshot of fewer has.
  for (const uint64_t count : std::initializer_list<uint64_t>{16, 14, 13, 11, 10, 8, 7, 3, 0}) {
    const NodeTypes types(out.node_types, count);
    ASSERT_EQ(types.size(), 2u);
    for (uint32_t type = 0; type < 2; ++type) {
      const auto end = std::ranges::lower_bound(nodes[type], count);
      EXPECT_EQ(types.Count(type), static_cast<uint64_t>(end - nodes[type].begin()));
      for (auto node = nodes[type].begin(); node != end; ++node) {
        const auto row = static_cast<uint64_t>(node - nodes[type].begin());
        EXPECT_EQ(std::tuple(types.TypeOf(*node), types.RowOf(*node), types.NodeOf(type, row)),
                  std::tuple(type, row, *node))
            << "of " << count;
      }
    }
  }
  EXPECT_EQ(NodeCount(out.node_types[0]), 11u);
  EXPECT_TRUE(NodeTypes().empty());
  // Ranges that touch become one.
  NodeTypeRecord paper = out.node_types[0];
  Extend(paper, 16, 2);
  EXPECT_EQ(std::pair(paper.later.size(), paper.later.back().count), std::pair(size_t{2}, uint64_t{3}));
  Extend(paper, 20, 2);
  EXPECT_EQ(paper.later.size(), 3u);
  NodeTypeRecord author = TypedManifest().node_types[1];
  Extend(author, 10, 5);
  EXPECT_EQ(std::pair(author.later.size(), author.count), std::pair(size_t{0}, uint64_t{8}));
}

TEST(ManifestTest, TypesThatCannotBeAreRefused) {
  const auto refused = [](auto change) {
    Manifest manifest = TypedManifest();
    change(manifest);
    return DecodeManifest(EncodeManifest(manifest), "catalog").status().code() == Code::kCorruption;
  };
  EXPECT_FALSE(refused([](Manifest&) {}));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[0].name = ""; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[1].first = 6; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[1].count = 2; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[1].count = ~uint64_t{0}; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[1].feature_table = "paper.feature"; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.node_types[1].feature_table = "absent"; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.edge_types[2].source = 2; }));
  EXPECT_TRUE(refused([](Manifest& m) { m.edge_types.pop_back(); }));
  const auto refused_later = [](auto change) {
    Manifest manifest = GrownTypedManifest();
    change(manifest);
    return DecodeManifest(EncodeManifest(manifest), "catalog").status().code() == Code::kCorruption;
  };
  EXPECT_FALSE(refused_later([](Manifest&) {}));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.node_types[0].later[0].first = 9; }));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.node_types[0].later[0].count = 4; }));
  EXPECT_TRUE(
      refused_later([](Manifest& m) { std::swap(m.node_types[0].later[0], m.node_types[0].later[1]); }));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.node_types[0].later[1].count = ~uint64_t{0}; }));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.node_types[1].later[0].count = 0; }));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.node_types[0].later.pop_back(); }));
  EXPECT_TRUE(refused_later([](Manifest& m) { m.tables.back().row_count = 10; }));
}

// Written by the first version that had embeddings.
TEST(ManifestTest, AnOldEmbeddingDecodes) {
  constexpr std::string_view kOld =
      "000000002b00000000000000030008000000000000000000000000000000000000000000000000001d00000082000000"
      "210000000a000000210000000a0000002100000007000000210000000700000000000000000000001d00000007000000"
      "1d0000006700000000000000000000000000000000000000000000000000000000000000000000000000000006000200"
      "0000000006000200000000001800080004000000080004000200000000000000004000004d0000000900000000000000"
      "000000000200000032000000030201000000803e000000008967452301efcdabcb04fb711f0100000d00000032000000"
      "0d000000ba00000015000000ca00000021000000aa0000006e6f646573000000656d62656464696e67732f6e6f646573"
      "2d322e7165740000656d62656464696e67732f6e6f6465732d322d392e71656d0000000000000000323032352d30312d"
      "30325430333a30343a30385a00000000";
  const Manifest manifest = DecodeManifest(FromHex(kOld), "catalog").value();
  ASSERT_EQ(manifest.embeddings.size(), 1u);
  ExpectExampleEmbedding(manifest.embeddings[0]);
  EXPECT_EQ(manifest.embeddings[0].kept_map_file, "");
  EXPECT_EQ(manifest.embeddings[0].kept_map_generation, 0u);
  EXPECT_EQ(manifest.embeddings[0].kept_timestamp, 0);
  EXPECT_TRUE(manifest.trainings.empty());
}

// Written by the first version that had training runs.
TEST(ManifestTest, AnOldTrainingDecodes) {
  constexpr std::string_view kOld =
      "000000002700000000000000030009000000000000000000000000000000000000000000000000002100000082000000"
      "250000000a000000250000000a0000002500000007000000250000000700000000000000000000002100000007000000"
      "2100000007000000210000003f000000000102030405060708090a0b0c0d0e0f00000000000000000000000000000000"
      "00000000060002000000000006000200000000001a000900000000000800040004000000030004000700000000000000"
      "b822000000000000cc04fb711f0100000d0000002a0000000d000000a200000015000000a20000001d000000aa000000"
      "6e6f646500000000747261696e696e672f6e6f64652d372e71747300000000002d2d6c61796572732032202d2d736565"
      "6420310000000000323032352d30312d30325430333a30343a30395a00000000";
  const Manifest manifest = DecodeManifest(FromHex(kOld), "catalog").value();
  ASSERT_EQ(manifest.trainings.size(), 1u);
  TrainingRecord expected = ExampleTraining();
  expected.config.clear();
  ExpectTraining(manifest.trainings[0], expected);
}

// Written by the first version of the format, before there were profiles and layouts.
TEST(ManifestTest, AnOldMessageDecodesWithoutDeviceAndLayouts) {
  constexpr std::string_view kOld =
      "000000002800000000000000030005000a00000000000000030000000000000002000000000000001100000082000000"
      "150000002200000015000000aa0000001d0000003f0000004900000047000000000102030405060708090a0b0c0d0e0f"
      "6f6c640000000000323032352d30312d30325430333a30343a30355a0000000004000000050002000100000000000000"
      "02000000000000000a0000000000000005000000000000000030000000000000050000004200000005000000ba000000"
      "666561747572650066656174757265732f666561747572652d312e716674000004000000060002000100000000000000"
      "0a0000000000000064000000000000000400000000000000050000000000000000200000000000000500000032000000"
      "05000000aa0000006772617068000000746f706f6c6f67792f67726170682d312e71747000000000";
  const Manifest manifest = DecodeManifest(FromHex(kOld), "catalog").value();
  EXPECT_EQ(manifest.database_id[15], std::byte{15});
  EXPECT_EQ(manifest.node_count, 10u);
  EXPECT_EQ(manifest.class_count, 3u);
  EXPECT_EQ(manifest.source, "old");
  EXPECT_EQ(manifest.created_utc, "2025-01-02T03:04:05Z");
  EXPECT_TRUE(manifest.has_relation_names);
  ASSERT_NE(manifest.FindTable("feature"), nullptr);
  EXPECT_EQ(manifest.FindTable("feature")->element_type, ElementType::kFloat16);
  ASSERT_NE(manifest.FindTopology("graph"), nullptr);
  EXPECT_EQ(manifest.FindTopology("graph")->edge_count, 100u);
  EXPECT_FALSE(manifest.device.has_value());
  EXPECT_TRUE(manifest.layouts.empty());
  EXPECT_TRUE(manifest.embeddings.empty());
  EXPECT_TRUE(manifest.trainings.empty());
}

TEST(ManifestTest, ALayoutThatCannotBeIsCorruption) {
  const auto message = [](const std::function<void(LayoutRecord&)>& damage) {
    Manifest manifest = ExampleManifest();
    damage(manifest.layouts[1]);
    const Status status = DecodeManifest(EncodeManifest(manifest), "catalog").status();
    EXPECT_THAT(status, IsStatus(Code::kCorruption));
    return std::string(status.message());
  };
  for (const char* directory : {"/etc", "layouts/../../x", ""}) {
    EXPECT_THAT(message([&](auto& l) { l.directory = directory; }), HasSubstr("inside the database"));
  }
  EXPECT_THAT(message([](auto& l) { l.name = ""; }), HasSubstr("no name"));
  EXPECT_THAT(message([](auto& l) { l.spec.feature_table = ""; }), HasSubstr("no table"));
  EXPECT_THAT(message([](auto& l) { l.spec.topology = ""; }), HasSubstr("no topology"));
  EXPECT_THAT(message([](auto& l) { l.spec.batch_size = 0; }), HasSubstr("\"other\" has a batch size of 0"));
  EXPECT_THAT(message([](auto& l) { l.spec.fanouts.clear(); }), HasSubstr("no fanouts"));
  EXPECT_THAT(message([](auto& l) { l.epochs = 0; }), HasSubstr("no epochs"));
  EXPECT_THAT(message([](auto& l) { l.batch_count = 4; }), HasSubstr("fewer batches than epochs"));
  EXPECT_THAT(message([](auto& l) { l.predicted_seconds = -1; }), HasSubstr("duration"));
  EXPECT_THAT(message([](auto& l) { l.measured_seconds = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("duration"));
}

TEST(ManifestTest, AnEmbeddingThatCannotBeIsRefused) {
  const auto status = [](const std::function<void(EmbeddingRecord&)>& damage) {
    Manifest manifest = ExampleManifest();
    damage(manifest.embeddings[1]);
    return DecodeManifest(EncodeManifest(manifest), "catalog").status();
  };
  const auto message = [&](const std::function<void(EmbeddingRecord&)>& damage) {
    EXPECT_THAT(status(damage), IsStatus(Code::kCorruption));
    return std::string(status(damage).message());
  };
  for (const char* file : {"/etc/passwd", "embeddings/../../x", ""}) {
    EXPECT_THAT(message([&](auto& e) { e.file = file; }), HasSubstr("inside the database"));
  }
  EXPECT_THAT(message([](auto& e) { e.map_file = "/etc/passwd"; }), HasSubstr("inside the database"));
  EXPECT_THAT(message([](auto& e) { e.map_file = ""; }), HasSubstr("map without a generation"));
  EXPECT_THAT(message([](auto& e) { e.map_generation = 0; }), HasSubstr("map without a generation"));
  EXPECT_THAT(message([](auto& e) { e.map_file = "", e.map_generation = 0; }), HasSubstr("without a map"));
  EXPECT_THAT(message([](auto& e) { e.timestamp = -2; }), HasSubstr("a negative timestamp"));
  EXPECT_THAT(message([](auto& e) { e.name = ""; }), HasSubstr("no name"));
  EXPECT_THAT(message([](auto& e) { e.page_bytes = 0; }), HasSubstr("\"relations\" has a page size"));
  EXPECT_THAT(message([](auto& e) { e.page_bytes = 5000; }), HasSubstr("a page size"));
  EXPECT_THAT(message([](auto& e) { e.page_count = 0; }), HasSubstr("no pages"));
  EXPECT_THAT(message([](auto& e) { e.row_count = 0; }), HasSubstr("no rows"));
  EXPECT_THAT(message([](auto& e) { e.dim = 0; }), HasSubstr("no elements"));
  EXPECT_THAT(message([](auto& e) { e.init_scale = std::numeric_limits<float>::infinity(); }),
              HasSubstr("scale"));
  EXPECT_THAT(message([](auto& e) { e.kept_map_file = "/etc/passwd"; }), HasSubstr("inside the database"));
  EXPECT_THAT(message([](auto& e) { e.kept_map_file = ""; }), HasSubstr("keeps a map without a generation"));
  EXPECT_THAT(message([](auto& e) { e.kept_map_generation = 0; }), HasSubstr("keeps a map without"));
  EXPECT_THAT(message([](auto& e) { e.kept_map_generation = 10; }), HasSubstr("not an earlier one"));
  EXPECT_THAT(message([](auto& e) { e.kept_timestamp = e.timestamp + 1; }), HasSubstr("not an earlier one"));
  const auto keeps_none = [](auto& e) {
    e.kept_map_file = "", e.kept_map_generation = 0, e.kept_timestamp = 0;
  };
  EXPECT_OK(status(keeps_none));
  const auto new_type = [](auto& e) { e.element_type = static_cast<ElementType>(99); };
  EXPECT_THAT(status(new_type), IsStatus(Code::kUnsupported));
  const auto new_table = [&](auto& e) {
    keeps_none(e);
    e.map_file = "", e.map_generation = 0, e.timestamp = -1;
  };
  EXPECT_OK(status(new_table));
}

TEST(ManifestTest, ADeviceWithARateThatIsNoneIsCorruption) {
  for (double DeviceRecord::*const rate :
       {&DeviceRecord::random_reads_per_second, &DeviceRecord::sequential_bytes_per_second,
        &DeviceRecord::write_bytes_per_second, &DeviceRecord::gather_bytes_per_second}) {
    for (const double value : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
      Manifest manifest = ExampleManifest();
      (*manifest.device).*rate = value;
      EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "catalog"), IsStatus(Code::kCorruption));
    }
  }
  for (double CoreRates::*const rate :
       {&CoreRates::checksum_bytes_per_second, &CoreRates::copy_bytes_per_second,
        &CoreRates::decode_bytes_per_second, &CoreRates::request_seconds}) {
    Manifest manifest = ExampleManifest();
    manifest.device->core.*rate = -1;
    EXPECT_THAT(DecodeManifest(EncodeManifest(manifest), "catalog"), IsStatus(Code::kCorruption));
    manifest.device->core.*rate = 3e9;
    ASSERT_OK_AND_ASSIGN(const Manifest back, DecodeManifest(EncodeManifest(manifest), "catalog"));
    EXPECT_EQ(back.device->core.*rate, 3e9);
  }
}

// Cap'n Proto reports bad messages by throwing, which must not leave the room.
TEST(ManifestTest, DamagedBytesGiveAStatusOrAnotherManifestButNeverThrow) {
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  const std::vector<std::byte> sound = EncodeManifest(ExampleManifest());
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> bytes = sound;
    for (uint64_t flips = 1 + rng.Below(4); flips > 0; --flips) {
      bytes[rng.Below(bytes.size())] ^= static_cast<std::byte>(1 + rng.Below(255));
    }
    if (rng.Below(4) == 0) bytes.resize(rng.Below(bytes.size()));
    const Result<Manifest> result = DecodeManifest(bytes, "catalog");
    refused += result.ok() ? 0 : 1;
    if (result.ok()) continue;
    ASSERT_THAT(std::string(result.status().message()), HasSubstr("catalog"));
  }
  EXPECT_GT(refused, 1000);
  EXPECT_THAT(DecodeManifest({}, "catalog"), IsStatus(Code::kCorruption));
}

}  // namespace
}  // namespace quarry
