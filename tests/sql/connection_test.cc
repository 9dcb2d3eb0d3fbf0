#include "quarry/sql/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "quarry/base/process.h"
#include "sql/sql_database.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using sql::Rows;
using sql::Value;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing_util::Lines;
using testing_util::ReadRows;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TinyGraph;

constexpr std::string_view kEndless =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

TEST(SqlConnectionTest, GivesValuesOfEachType) {
  SqlStore store(TenNodes());
  auto rows = store.sql().Query("SELECT id, vec_dim(feature) / 3.0, \"table\", feature, NULL FROM features");
  ASSERT_OK(rows);
  EXPECT_EQ(rows->column_count(), 5);
  EXPECT_EQ(rows->column_name(2), "table");
  ASSERT_TRUE(rows->Next().value());
  ASSERT_TRUE(rows->Next().value());
  EXPECT_EQ(rows->type(0), Rows::Type::kInteger);
  EXPECT_EQ(rows->Integer(0), 1);
  EXPECT_EQ(rows->type(1), Rows::Type::kReal);
  EXPECT_EQ(rows->Real(1), 4 / 3.0);
  EXPECT_EQ(rows->type(2), Rows::Type::kText);
  EXPECT_EQ(rows->Text(2), "feature");
  ASSERT_EQ(rows->type(3), Rows::Type::kBlob);
  ASSERT_THAT(rows->Blob(3), SizeIs(16));
  float values[4];
  std::memcpy(values, rows->Blob(3).data(), sizeof(values));
  EXPECT_THAT(values, ElementsAre(1, 0.5F, -1, 1));
  EXPECT_EQ(rows->type(4), Rows::Type::kNull);
}

TEST(SqlConnectionTest, BindsParameters) {
  SqlStore store(TenNodes());
  EXPECT_THAT(ReadRows(store.sql().Query("SELECT id FROM nodes WHERE id IN (?1, ?2)", {2, 7})).value(),
              ElementsAre("2", "7"));
  const float point[] = {6, 3, -6, 1};
  const auto bytes = std::as_bytes(std::span(point));
  EXPECT_THAT(ReadRows(store.sql().Query("SELECT id FROM features ORDER BY vec_l2(feature, ?) LIMIT 1",
                                         {std::vector<std::byte>(bytes.begin(), bytes.end())}))
                  .value(),
              ElementsAre("6"));
  EXPECT_THAT(ReadRows(store.sql().Query("SELECT ?, ?, ?, ? IS NULL, length(?)",
                                         {-1, 0.5, "it's", Value(), std::vector<std::byte>()}))
                  .value(),
              ElementsAre("-1|0.5|it's|1|0"));
}

TEST(SqlConnectionTest, RefusesWhatIsNotOneStatementWithItsParameters) {
  SqlStore store(TenNodes());
  EXPECT_THAT(Lines(store.sql(), "SELECT ?"),
              ElementsAre("invalid argument: the statement has 1 parameters, 0 were given"));
  EXPECT_THAT(Lines(store.sql(), "SELECT 1;\nSELECT 2"),
              ElementsAre("invalid argument: line 2: more than one statement"));
  EXPECT_THAT(Lines(store.sql(), " -- nothing"), ElementsAre(HasSubstr("there is no statement")));
  EXPECT_THAT(Lines(store.sql(), std::string_view("SELECT 1\n\0", 10)),
              ElementsAre("invalid argument: line 2: a NUL byte in the text"));
}

TEST(SqlConnectionTest, AScriptEndsAtItsFirstErrorAndCountsLines) {
  SqlStore store(TenNodes());
  int statements = 0;
  const Status status =
      store.sql().Run("SELECT 1; -- one\n/* none */;\nSELECT 2;\nSELECT nobody;\nSELECT 3", [&](Rows& rows) {
        ++statements;
        return rows.Next().status();
      });
  EXPECT_EQ(statements, 2);
  EXPECT_EQ(status.ToString(), "invalid argument: line 4: no such column: nobody");
}

TEST(SqlConnectionTest, AStatementAndATransactionSeeOneSnapshot) {
  SqlStore store(TenNodes());
  const auto set_label = [&](NodeId node, int64_t label) {
    WriteBatch batch;
    batch.SetLabel(node, label);
    EXPECT_OK(store.store().Write(batch));
  };
  auto rows = store.sql().Query("SELECT label FROM nodes WHERE id IN (0, 1, 2)");
  ASSERT_TRUE(rows->Next().value());
  set_label(2, 77);
  ASSERT_TRUE(rows->Next().value());
  ASSERT_TRUE(rows->Next().value());
  EXPECT_EQ(rows->Integer(0), 2);
  EXPECT_FALSE(rows->Next().value());
  EXPECT_THAT(Lines(store.sql(), "SELECT label, timestamp FROM nodes WHERE id = 2"), ElementsAre("77|1"));

  EXPECT_THAT(Lines(store.sql(), "BEGIN"), ElementsAre());
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM nodes WHERE label = 77"), ElementsAre("1"));
  set_label(3, 77);
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM nodes WHERE label = 77"), ElementsAre("1"));
  EXPECT_THAT(Lines(*store.Connect(), "SELECT count(*) FROM nodes WHERE label = 77"), ElementsAre("2"));
  EXPECT_THAT(Lines(store.sql(), "COMMIT"), ElementsAre());
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM nodes WHERE label = 77"), ElementsAre("2"));
}

TEST(SqlConnectionTest, AStatementThatRunsTooLongEndsAndTheConnectionGoesOn) {
  SqlStore store(TenNodes());
  const auto connection = store.Connect({.timeout_seconds = 0.05});
  const double start = MonotonicSeconds();
  EXPECT_THAT(Lines(*connection, kEndless), ElementsAre("cancelled: the statement took longer than 0.05 s"));
  EXPECT_LT(MonotonicSeconds() - start, 5);
  EXPECT_THAT(Lines(*connection, "SELECT count(*) FROM nodes"), ElementsAre("10"));

  int looks = 0;
  const auto interrupted = store.Connect({.cancelled = [&] { return ++looks > 3; }});
  EXPECT_THAT(Lines(*interrupted, kEndless), ElementsAre("cancelled: interrupted"));
}

TEST(SqlConnectionTest, RowsAreReadOnlyWhenTheyAreAskedFor) {
  const std::unique_ptr<IoBackend> inner = MakeDefaultBackend();
  auto owned = std::make_unique<FaultBackend>(*inner);
  FaultBackend& backend = *owned;
  SqlStore store(TinyGraph{.nodes = 5000}, std::move(owned));
  const auto reads = [&](std::string_view text) {
    backend.SetPlans({});
    EXPECT_THAT(Lines(store.sql(), text), SizeIs(testing::Gt(0)));
    return backend.count(FaultKind::kRead);
  };
  reads("SELECT max(length(feature)) FROM features");  // opens the table
  EXPECT_EQ(reads("SELECT count(*), max(id), sum(dim) FROM features"), 0u);
  EXPECT_EQ(reads("SELECT id FROM nodes WHERE id > 4000"), 0u);
  EXPECT_EQ(reads("SELECT feature FROM features WHERE id = 17"), 1u);
  // 5000 rows of 512 bytes; neighbors that are near come by one request.
  EXPECT_EQ(reads("SELECT max(feature) FROM features WHERE id IN (10, 11, 12, 40, 41)"), 1u);
  EXPECT_LE(reads("SELECT max(feature) FROM features"), 3u);
}

// 20 MiB of features, by reads of a mebibyte, of which four are on their way at a time.
TEST(SqlConnectionTest, RowsThatAreSkippedAreNotRead) {
  constexpr uint64_t kNodes = 40'000;
  const std::unique_ptr<IoBackend> inner = MakeDefaultBackend();
  auto owned = std::make_unique<FaultBackend>(*inner);
  FaultBackend& backend = *owned;
  SqlStore store(TinyGraph{.nodes = kNodes}, std::move(owned));
  const auto row = [&](uint64_t id) {
    return Lines(store.sql(), fmt::format("SELECT id, hex(feature) FROM features WHERE id = {}", id)).at(0);
  };
  const auto reads = [&](std::string_view text, const std::vector<uint64_t>& ids) {
    std::vector<std::string> expected;
    for (const uint64_t id : ids) expected.push_back(row(id));
    backend.SetPlans({});
    EXPECT_EQ(Lines(store.sql(), text), expected) << text;
    return backend.count(FaultKind::kRead);
  };
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features LIMIT 2 OFFSET 39000", {39'000, 39'001}), 1u);
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features LIMIT 1", {0}), 4u);
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features LIMIT 1 OFFSET 20000", {20'000}), 4u);
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features WHERE id % 19000 = 1000", {1000, 20'000, 39'000}),
            9u);
  // Near each other they are scanned.
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features WHERE id % 4000 = 3999",
                  {3999, 7999, 11'999, 15'999, 19'999, 23'999, 27'999, 31'999, 35'999, 39'999}),
            20u);
  // A list is read in batches of 4096 rows.
  std::string list = "0";
  for (uint64_t id = 2; id < kNodes; id += 2) list += fmt::format(",{}", id);
  EXPECT_LE(
      reads(fmt::format("SELECT id, hex(feature) FROM features WHERE id IN ({}) LIMIT 1 OFFSET 19990", list),
            {39'980}),
      2u);
  EXPECT_LE(reads("SELECT id, hex(feature) FROM features LIMIT 1 OFFSET 40000", {}), 0u);

  Lines(store.sql(), "SELECT max(label), max(split) FROM nodes");  // opens the tables
  const auto node_reads = [&](std::string_view text, const std::string& expected) {
    backend.SetPlans({});
    EXPECT_THAT(Lines(store.sql(), text), ElementsAre(expected)) << text;
    return backend.count(FaultKind::kRead);
  };
  const TinyGraph graph{.nodes = kNodes};
  const std::string label = std::to_string(graph.Label(39'000));
  EXPECT_LE(node_reads("SELECT id FROM (SELECT id, label, split FROM nodes LIMIT 1 OFFSET 39000)", "39000"),
            2u);
  EXPECT_EQ(node_reads("SELECT label FROM nodes LIMIT 1 OFFSET 39000", label), 1u);
  // The splits of those nodes alone that have the label.
  EXPECT_EQ(node_reads("SELECT count(split) > 0 FROM nodes WHERE id > 38000 AND label = -7", "0"), 1u);
}

TEST(SqlConnectionTest, TheMemoryIsGivenBack) {
  SqlStore store(TinyGraph{.nodes = 2000, .both_directions = true});
  Lines(store.sql(), "SELECT sum(in_degree), count(label), count(split) FROM nodes");
  Lines(store.sql(), "SELECT count(*) FROM edges JOIN features ON src = id WHERE dst < 50");
  EXPECT_GT(store.budget().used_bytes(), 0u);
  store.CloseConnection();
  EXPECT_EQ(store.budget().used_bytes(), 0u);
}

TEST(SqlConnectionTest, AQueryThatTheBudgetCannotHoldSaysSo) {
  SqlStore store(TinyGraph{.nodes = 5000});
  MemoryBudget budget(1 * kMiB);
  const auto connection = sql::Connection::Open(store.store(), budget, {}).value();
  EXPECT_THAT(Lines(*connection, "SELECT max(feature) FROM features"),
              ElementsAre(HasSubstr("out of budget")));
  EXPECT_THAT(Lines(*connection, "SELECT count(*) FROM features"), ElementsAre("5000"));
}

TEST(SqlConnectionTest, ACorruptPageIsNoData) {
  SqlStore store(TinyGraph{.nodes = 3000});
  const std::shared_ptr<const Manifest> manifest = store.store().manifest();
  const TableRecord* const record = manifest->FindTable("feature");
  const auto geometry = FeatureGeometry::Make(record->element_type, record->dim, record->row_count).value();
  {
    std::fstream file(store.path() + "/" + record->file, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(geometry.RowOffset(1234)));
    file << '!';
  }
  for (const char* text :
       {"SELECT feature FROM features WHERE id = 1234", "SELECT sum(length(feature)) FROM features"}) {
    const auto rows = ReadRows(store.sql().Query(text));
    EXPECT_EQ(rows.status().code(), Code::kCorruption) << text;
    EXPECT_THAT(rows.status().ToString(), AllOf(HasSubstr(record->file), HasSubstr("1234"))) << text;
  }
  EXPECT_THAT(Lines(store.sql(), "SELECT length(feature) FROM features WHERE id = 1235"), ElementsAre("512"));
}

TEST(SqlConnectionTest, AnErrorOfTheDiskEndsTheStatementAndNamesTheFile) {
  const std::unique_ptr<IoBackend> inner = MakeDefaultBackend();
  auto owned = std::make_unique<FaultBackend>(*inner);
  FaultBackend& backend = *owned;
  SqlStore store(TinyGraph{.nodes = 3000}, std::move(owned));
  constexpr std::string_view kText =
      "SELECT count(*), sum(length(feature)), sum(label) FROM edges JOIN features f ON f.id = src "
      "JOIN nodes n ON n.id = dst WHERE dst IN (3, 500, 2900)";
  const std::vector<std::string> expected = Lines(store.sql(), kText);
  int struck = 0;
  for (uint64_t at = 1;; ++at) {
    SCOPED_TRACE(at);
    const auto connection = store.Connect();  // opens everything anew
    backend.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const uint64_t before = backend.strikes();
    const auto rows = ReadRows(connection->Query(kText));
    const bool was_struck = backend.strikes() > before;
    backend.SetPlans({});
    if (!was_struck) break;
    ++struck;
    ASSERT_FALSE(rows.ok());
    EXPECT_EQ(rows.status().code(), Code::kIoError) << rows.status().ToString();
    EXPECT_THAT(rows.status().ToString(), HasSubstr(store.path()));
    EXPECT_EQ(Lines(*connection, kText), expected);
  }
  EXPECT_GT(struck, 5);
}

TEST(SqlConnectionTest, PlansAreShown) {
  SqlStore store(TinyGraph{.nodes = 3000, .both_directions = true});
  const auto plan = [&](std::string_view text) {
    return testing::PrintToString(Lines(store.sql(), "EXPLAIN QUERY PLAN " + std::string(text)));
  };
  EXPECT_THAT(plan("SELECT id FROM nodes WHERE id IN (1, 2)"), HasSubstr(":id IN"));
  EXPECT_THAT(plan("SELECT id FROM nodes WHERE id > 1 AND label = 2"), HasSubstr(":id>, label="));
  EXPECT_THAT(plan("SELECT id FROM nodes ORDER BY id"), Not(HasSubstr("B-TREE")));
  EXPECT_THAT(plan("SELECT dst FROM edges WHERE src = 5 ORDER BY dst"), Not(HasSubstr("B-TREE")));
  // The list of a node is read inside, one lookup for each row outside.
  EXPECT_THAT(plan("SELECT count(*) FROM nodes n JOIN edges e ON e.dst = n.id WHERE n.id < 10"),
              HasSubstr(":dst="));
}

TEST(SqlConnectionTest, SnapshotsAreThoseThatSomebodyHolds) {
  SqlStore store(TenNodes());
  const auto held = [&] {
    return Lines(store.sql(), "SELECT timestamp, held, oldest_seconds BETWEEN 0 AND 600 FROM snapshots");
  };
  EXPECT_THAT(held(), ElementsAre());
  auto first = store.store().TakeSnapshot();
  const auto second = store.store().TakeSnapshot();
  WriteBatch batch;
  batch.SetLabel(3, 1);
  ASSERT_OK(store.store().Write(batch));
  const auto newest = store.store().TakeSnapshot();
  EXPECT_THAT(held(), ElementsAre("0|2|1", "1|1|1"));
  first->reset();
  EXPECT_THAT(held(), ElementsAre("0|1|1", "1|1|1"));
  // A transaction holds one as well.
  const auto other = store.Connect();
  ASSERT_THAT(Lines(*other, "BEGIN"), ElementsAre());
  EXPECT_THAT(Lines(*other, "SELECT label FROM nodes WHERE id = 3"), ElementsAre("1"));
  EXPECT_THAT(held(), ElementsAre("0|1|1", "1|2|1"));
  ASSERT_THAT(Lines(*other, "COMMIT"), ElementsAre());
  EXPECT_THAT(held(), ElementsAre("0|1|1", "1|1|1"));
}

TEST(SqlConnectionTest, CatalogTablesSayWhatTheManifestSays) {
  SqlStore store(TenNodes());
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM relations"), ElementsAre("0|cites", "1|likes"));
  EXPECT_THAT(Lines(store.sql(), "SELECT kind, name, generation FROM files ORDER BY name"),
              ElementsAre("version||", "catalog||", "table|feature|1", "topology|graph|1", "table|label|1",
                          "table|split|1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*) FROM files WHERE bytes % 4096 = 0 AND bytes > 0"),
              ElementsAre("4"));
  WriteBatch batch;
  batch.SetLabel(3, 1);
  batch.SetLabel(5, 1);
  ASSERT_OK(store.store().Write(batch));
  EXPECT_THAT(Lines(store.sql(),
                    "SELECT \"table\", element_type, dim, row_count, changed_rows, snapshot "
                    "FROM versions ORDER BY 1"),
              ElementsAre("feature|float32|4|10|0|1", "label|int64|1|10|2|1", "split|uint8|1|10|0|1"));
  for (const char* table : {"layouts", "embeddings", "device_profile"}) {
    EXPECT_THAT(Lines(store.sql(), "SELECT * FROM " + std::string(table)), ElementsAre()) << table;
  }
  ASSERT_OK(store.store().UpdateManifest([](Manifest& manifest) {
    manifest.device = DeviceRecord{1000, 2e9, 1e9, 4e9, "2025-01-02T03:04:05Z"};
    return Status::Ok();
  }));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM device_profile"),
              ElementsAre("1000.0|2000000000.0|1000000000.0|4000000000.0|2025-01-02T03:04:05Z"));
}

}  // namespace
}  // namespace quarry
