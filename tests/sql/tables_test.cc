// The tables of what a database consists of, against the API that they tell of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "embedding/trained_tables.h"
#include "quarry/layout/layout.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/storage/edge_values.h"
#include "sql/sql_database.h"
#include "support/fault_backend.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::FilesIn;
using testing_util::Hex;
using testing_util::Lines;
using testing_util::ReadRows;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TinyGraph;
using testing_util::TrainedTables;

// Two epochs, whose last batches have fewer seeds than the others.
LayoutSpec SmallLayout(std::string name, uint64_t disk_bytes = 0) {
  return {.name = std::move(name),
          .road = {.fanouts = {4, 3}, .batch_size = 50, .cache_bytes = 60 * 512},
          .epochs = 2,
          .disk_bytes = disk_bytes};
}

TEST(SqlEdgesTest, WeightsAreNullWhereThereAreNone) {
  SqlStore store{TinyGraph{.nodes = 100}};
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) > 0, count(weight) FROM edges"), ElementsAre("1|0"));
}

TEST(SqlEdgesTest, WeightsAreTheSameFromBothSides) {
  SqlStore store(TenNodes(), {.both_directions = true});
  EXPECT_THAT(
      Lines(store.sql(), "SELECT dst, relation, weight FROM edges WHERE src = 0 ORDER BY dst, relation"),
      ElementsAre("1|0|1.0", "1|1|0.5", "2|1|-2.0", "3|1|0.100000001490116"));
  EXPECT_THAT(Lines(store.sql(), "SELECT weight FROM edges WHERE dst = 1 ORDER BY relation"),
              ElementsAre("1.0", "0.5"));
}

TEST(SqlEdgesTest, WeightsAreReadWhenTheyAreAskedForAndVerified) {
  SqlStore store(TenNodes());
  const std::shared_ptr<const Manifest> manifest = store.store().manifest();
  const TopologyRecord graph = *manifest->FindTopology("graph");
  const uint64_t offset =
      EdgeValues::OpenWeights(store.store(), store.budget(), graph, Adjacency::kCsc).value()->offset();
  testing_util::FlipByte(store.path() + "/" + graph.file, offset + 5);
  EXPECT_THAT(Lines(store.sql(), "SELECT sum(relation) FROM edges"), ElementsAre("3"));
  EXPECT_THAT(Lines(store.sql(), "SELECT sum(weight) FROM edges"),
              ElementsAre(AllOf(HasSubstr("corruption"), HasSubstr("page 0 of csc_weights"))));
}

class SqlLayoutTest : public testing::Test {
 protected:
  void Build(const LayoutSpec& spec) {
    const auto record = BuildLayout(store_.store(), store_.budget(), spec, false, {});
    ASSERT_OK(record);
  }
  std::vector<std::string> Select(std::string_view text) { return Lines(store_.sql(), text); }

  SqlStore store_{TinyGraph{.nodes = 600}};
};

TEST_F(SqlLayoutTest, BatchesAreThoseOfTheTrace) {
  Build(SmallLayout("other"));
  Build(SmallLayout("small"));
  const auto layout = Layout::Open(store_.store(), "small").value();
  const auto trace = layout->OpenTrace(store_.store()).value();
  TraceCursor cursor(*trace);
  std::vector<std::string> expected;
  uint64_t misses = 0, seeds = 0;
  const uint64_t batches = layout->directory().batches.size();
  ASSERT_NE(cursor.Read(batches - 1).value()->hop_offsets[0], 50u);
  for (uint64_t i = 0; i < batches; ++i) {
    const TraceBatch& batch = **cursor.Read(i);
    const BatchEntry& entry = layout->directory().batches[i];
    expected.push_back(fmt::format("{}|{}|{}|{}|{}", i, batch.hop_offsets[0], batch.nodes.size(),
                                   layout->directory().chunk_bytes(entry), entry.misses));
    misses += entry.misses;
    seeds += batch.hop_offsets[0];
  }
  EXPECT_EQ(
      Select("SELECT batch, seeds, input_nodes, chunk_bytes, misses FROM batches WHERE layout = 'small'"),
      expected);
  EXPECT_THAT(Select("SELECT sum(seeds), sum(misses) FROM batches WHERE layout = 'small'"),
              ElementsAre(fmt::format("{}|{}", seeds, misses)));
  EXPECT_THAT(Select("SELECT accesses - hits FROM layouts WHERE name = 'small'"),
              ElementsAre(std::to_string(misses)));
  // Rows are told apart also where two ways find them.
  EXPECT_THAT(Select("SELECT count(*) FROM batches WHERE layout = 'small' OR batch = 0"),
              ElementsAre(std::to_string(batches + 1)));
  EXPECT_THAT(Select("SELECT * FROM batches WHERE layout = 'none'"), IsEmpty());
}

TEST_F(SqlLayoutTest, SegmentsHoldAllBatches) {
  Build(SmallLayout("whole"));
  EXPECT_THAT(Select("SELECT * FROM segments"), IsEmpty());
  Build(SmallLayout("cut", 700 << 10));
  const auto layout = Layout::Open(store_.store(), "cut").value();
  const LayoutDirectory& directory = layout->directory();
  ASSERT_GT(directory.segments.size(), 1u);
  uint64_t rows = 0;
  for (const SegmentEntry& segment : directory.segments) rows += segment.rows;
  EXPECT_THAT(
      Select(
          "SELECT count(*), sum(batches), max(first_batch + batches), sum(rows), sum(bytes) FROM segments"),
      ElementsAre(fmt::format("{}|{}|{}|{}|{}", directory.segments.size(), directory.batches.size(),
                              directory.batches.size(), rows, rows * directory.row_stride)));
}

TEST_F(SqlLayoutTest, CachesSayWhatStaysAndWhatWasFoundThere) {
  Build(SmallLayout("memory"));
  EXPECT_THAT(Select("SELECT layout, level, policy, rows, bytes, hits > 0 FROM caches"),
              ElementsAre("memory|memory|belady|60|30720|1"));
  EXPECT_THAT(
      Select(
          "SELECT l.name FROM layouts l WHERE hits <> (SELECT sum(hits) FROM caches WHERE layout = l.name)"),
      IsEmpty());
}

TEST_F(SqlLayoutTest, OfALayoutThatCannotBeServedOnlyTheCatalogTells) {
  Build(SmallLayout("small"));
  ASSERT_OK(store_.store().UpdateManifest([](Manifest& manifest) {
    manifest.layouts[0].topology_generation = 9;
    return Status::Ok();
  }));
  EXPECT_THAT(Select("SELECT name, servable FROM layouts"), ElementsAre("small|0"));
  EXPECT_THAT(Select("SELECT * FROM batches"), IsEmpty());
}

TEST(SqlFilesTest, ChecksumsAreVerifiedWhenTheyAreAskedForAndNotBefore) {
  const std::unique_ptr<IoBackend> inner = MakeDefaultBackend();
  auto owned = std::make_unique<FaultBackend>(*inner);
  FaultBackend& backend = *owned;
  SqlStore store(TinyGraph{.nodes = 3000}, std::move(owned));
  EXPECT_THAT(Lines(store.sql(), "SELECT DISTINCT checksum FROM files"), ElementsAre("ok"));
  const std::shared_ptr<const Manifest> manifest = store.store().manifest();
  const TableRecord* const record = manifest->FindTable("feature");
  const auto geometry = FeatureGeometry::Make(record->element_type, record->dim, record->row_count).value();
  {
    std::fstream file(store.path() + "/" + record->file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(geometry.RowOffset(1234)));
    file << '!';
  }
  backend.SetPlans({});
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM (SELECT * FROM files)"), ElementsAre("6"));
  EXPECT_EQ(backend.count(FaultKind::kRead), 0u);
  EXPECT_THAT(Lines(store.sql(), "SELECT name FROM files WHERE checksum = 'damaged'"),
              ElementsAre("feature"));
  EXPECT_GT(backend.count(FaultKind::kRead), 4u);
  const auto hurried = store.Connect({.cancelled = [] { return true; }});
  EXPECT_THAT(Lines(*hurried, "SELECT checksum FROM files"), ElementsAre("cancelled: interrupted"));
}

// Whatever verify finds has a row, also where the manifest names no file.
TEST(SqlFilesTest, TheCatalogTheVersionAndStraysHaveRows) {
  SqlStore store(TenNodes());
  const auto damaged = [&] {
    return Lines(store.sql(),
                 "SELECT kind, path, name IS NULL, generation IS NULL FROM files WHERE checksum = 'damaged'");
  };
  EXPECT_THAT(Lines(store.sql(), "SELECT kind, path, bytes > 0 FROM files WHERE generation IS NULL"),
              ElementsAre("version|VERSION|1", "catalog|catalog/|1"));
  EXPECT_THAT(damaged(), IsEmpty());

  std::vector<std::string> tables;
  for (const auto& entry : std::filesystem::directory_iterator(store.path() + "/catalog")) {
    if (entry.path().extension() == ".sst") tables.push_back(entry.path());
  }
  ASSERT_THAT(tables, testing::Not(IsEmpty()));
  testing_util::FlipByte(tables.front(), 20);
  EXPECT_THAT(damaged(), ElementsAre("catalog|catalog/|1|1"));
  testing_util::FlipByte(tables.front(), 20);
  EXPECT_THAT(damaged(), IsEmpty());

  testing_util::FlipByte(store.path() + "/VERSION", 2);
  EXPECT_THAT(damaged(), ElementsAre("version|VERSION|1|1"));
  testing_util::FlipByte(store.path() + "/VERSION", 2);

  std::ofstream(store.path() + "/notes.txt") << "12345";
  std::ofstream(store.path() + "/features/more") << "x";
  std::filesystem::create_directories(store.path() + "/layouts/half.building");
  std::filesystem::create_directories(store.path() + "/embeddings");
  std::ofstream(store.path() + "/embeddings/stranger") << "x";
  std::filesystem::rename(store.path() + "/topology", store.path() + "/away");
  EXPECT_THAT(damaged(),
              testing::UnorderedElementsAre("topology|topology/graph-1.qtp|0|0", "stray|notes.txt|1|1",
                                            "stray|features/more|1|1", "stray|embeddings/stranger|1|1",
                                            "stray|away|1|1", "folder|topology|1|1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT kind, checksum FROM files WHERE path = 'layouts/half.building'"),
              ElementsAre("leftover|ok"));
  EXPECT_THAT(Lines(store.sql(), "SELECT bytes FROM files WHERE path = 'notes.txt'"), ElementsAre("5"));
}

class SqlEmbeddingsTest : public testing::Test {
 protected:
  static constexpr int64_t kLast = 30;
  void SetUp() override {
    ASSERT_OK(trained_.Create(store_.store()));
    ASSERT_OK(trained_.Open(store_.store()));
    for (int64_t timestamp = 0; timestamp <= kLast; ++timestamp) ASSERT_OK(trained_.Train(timestamp));
    ASSERT_OK(trained_.Checkpoint(store_.store(), kLast));
  }
  std::vector<std::string> Select(std::string_view text) { return Lines(store_.sql(), text); }

  SqlStore store_{TenNodes()};
  TrainedTables trained_{5};
};

TEST_F(SqlEmbeddingsTest, RowsAreThoseOfTheCheckpoint) {
  std::vector<std::string> expected;
  for (size_t i = 0; i < TrainedTables::kTables; ++i) {
    RowBlock rows = testing_util::AllRowsOf(trained_.spec(i));
    ASSERT_OK(trained_[i].table().Read(rows));
    for (const RowId row : rows.ids) {
      const std::span values(&rows.values[row * trained_.spec(i).dim], trained_.spec(i).dim);
      expected.push_back(
          fmt::format("{}|{}|{}|{}", TrainedTables::kNames[i], row, Hex(std::as_bytes(values)),
                      rows.timestamps[row] == kNeverWritten ? "" : std::to_string(rows.timestamps[row])));
    }
  }
  ASSERT_OK(trained_.Train(kLast + 1));  // and no later ones
  trained_.Close();
  const std::vector<std::string> before = FilesIn(store_.path() + "/embeddings");
  EXPECT_EQ(Select("SELECT * FROM embedding_rows"), expected);
  EXPECT_THAT(
      Select(
          "SELECT id FROM embedding_rows WHERE \"table\" = 'relations' AND id >= 38 OR \"table\" = 'nodes' "
          "AND id IN (7, 199, 200)"),
      testing::UnorderedElementsAre("38", "39", "7", "199"));
  EXPECT_THAT(
      Select("SELECT count(*), min(vec_dim(vector)), max(timestamp) FROM embedding_rows WHERE \"table\" = "
             "'nodes' AND id < 50"),
      ElementsAre(testing::StartsWith("50|100|")));
  EXPECT_EQ(FilesIn(store_.path() + "/embeddings"), before);
}

TEST_F(SqlEmbeddingsTest, ATableThatIsTrainedIsBusyAndItsIdsAreKnown) {
  EXPECT_THAT(Select("SELECT vector FROM embedding_rows"),
              ElementsAre(AllOf(HasSubstr("busy"), HasSubstr("\"nodes\" is being trained"))));
  EXPECT_THAT(Select("SELECT \"table\", count(*), max(id) FROM embedding_rows GROUP BY 1"),
              ElementsAre("nodes|200|199", "relations|40|39"));
}

TEST_F(SqlEmbeddingsTest, ADamagedPageIsNoData) {
  trained_.Close();
  const std::shared_ptr<const Manifest> manifest = store_.store().manifest();
  const EmbeddingRecord& record = *manifest->FindEmbedding("nodes");
  {
    const std::string path = store_.path() + "/" + record.file;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    // In every slot: which of them the checkpoint names depends on when pages were written.
    for (uint64_t at = 4096 + 100; at < std::filesystem::file_size(path); at += 4096)
      file.seekp(at) << "damage";
  }
  const auto rows =
      ReadRows(store_.sql().Query("SELECT vector FROM embedding_rows WHERE \"table\" = 'nodes'"));
  EXPECT_THAT(rows, IsStatus(Code::kCorruption, HasSubstr(record.file)));
  EXPECT_THAT(Select("SELECT kind FROM files WHERE checksum = 'damaged'"),
              ElementsAre("embeddings", "page map"));
}

TEST(SqlStatsTest, CountsWhatTheManifestHas) {
  SqlStore store(TenNodes());
  WriteBatch batch;
  batch.SetLabel(3, 1);
  batch.SetSplit(3, Split::kTest);
  ASSERT_OK(store.store().Write(batch));
  EXPECT_THAT(
      Lines(store.sql(), "SELECT * FROM stats WHERE metric NOT LIKE 'memory%' AND metric <> 'file_bytes'"),
      ElementsAre("nodes|10", "edges|13", "relations|2", "classes|3", "tables|3", "layouts|0", "embeddings|0",
                  "files|4", "timestamp|1", "changed_rows|2", "runs|0", "run_commits|0", "run_edges_added|0",
                  "run_edges_removed|0", "run_bytes|0", "added_nodes|0", "run_amplification|0.0",
                  "open_seconds|0.0", "open_disk_seconds|0.0", "merge_seconds|0.0", "draw_seconds|0.0",
                  "loaded_slowdown|1.0", "disk_slowdown|1.0", "edited_share|0.0", "read_amplification|1.0",
                  "bytes_per_edited_edge|0.0", "fold_seconds|0.0"));
  EXPECT_THAT(Lines(store.sql(),
                    "SELECT value = (SELECT sum(bytes) FROM files WHERE generation > 0) FROM stats WHERE "
                    "metric = 'file_bytes'"),
              ElementsAre("1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM partitions"), IsEmpty());
}

TEST(SqlPartitionsTest, ListsThePartsOfEachPartitioning) {
  SqlStore store(TenNodes());
  MemoryBudget budget(32 * kMiB);
  Assignment assignment{.parts = 3, .part_of = {}};
  for (uint32_t node = 0; node < 10; ++node) assignment.part_of.push_back(node < 4 ? 0 : 2);
  ASSERT_OK(BuildPartitioning(store.store(), budget, {.name = "halves", .method = "random"}, assignment, {}));
  const auto edges = [&](const std::string& condition) {
    return Lines(store.sql(), "SELECT count(*) FROM edges WHERE " + condition)[0];
  };
  const std::string low = edges("dst < 4"), high = edges("dst >= 4");
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM partitions"),
              ElementsAre("halves|graph|random|0|4|" + low + "|" + edges("dst < 4 AND src >= 4") + "|1",
                          "halves|graph|random|1|0|0|0|1",
                          "halves|graph|random|2|6|" + high + "|" + edges("dst >= 4 AND src < 4") + "|1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT kind, name, generation FROM files WHERE path LIKE 'partitions/%'"),
              ElementsAre("partitioning|halves|1"));
}

}  // namespace
}  // namespace quarry
