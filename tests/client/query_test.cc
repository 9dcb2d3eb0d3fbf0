// SQL over a store is the same whether it is embedded or a server's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "client/query_util.h"
#include "client/store_util.h"
#include "support/eventually.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using client::RowCursor;
using client::SqlConnection;
using client::Value;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Blob = std::span<const std::byte>;

class QueryTest : public testing::TestWithParam<StoreKind> {
 protected:
  static void SetUpTestSuite() { shared_ = new TinyDatabase({.nodes = 600}); }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  static const TinyDatabase& shared() { return *shared_; }
  // A transaction takes 128 MiB for what it writes.
  OpenedStore Open(const TinyDatabase& database = shared()) {
    return OpenedStore(GetParam(), database.path(), {.memory_bytes = 256 * kMiB});
  }

 private:
  static TinyDatabase* shared_;
};
TinyDatabase* QueryTest::shared_ = nullptr;

INSTANTIATE_TEST_SUITE_P(Kinds, QueryTest,
                         testing::Values(StoreKind::kEmbedded, StoreKind::kRemote, StoreKind::kInline),
                         [](const auto& kind) { return NameOf(kind.param); });

TEST_P(QueryTest, RowsHaveTheTypesAndTextsOfTheirValues) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(
      const auto rows,
      store->Query(
          "SELECT NULL AS empty, -9223372036854775807 - 1, 0.1 + 0.2, 1e100, 'h\xc3\xa9' || char(0) || 'z', "
          "'', "
          "x'00ff', x''"));
  RowCursor& row = *rows;
  ASSERT_EQ(row.columns().size(), 8u);
  EXPECT_EQ(row.columns()[0], "empty");
  EXPECT_EQ(row.columns()[2], "0.1 + 0.2");
  ASSERT_TRUE(row.Next().value());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(row.value(0)));
  EXPECT_EQ(row.Text(0), "");
  EXPECT_EQ(std::get<int64_t>(row.value(1)), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(row.Text(1), "-9223372036854775808");
  EXPECT_EQ(std::get<double>(row.value(2)), 0.1 + 0.2);
  EXPECT_EQ(row.Text(2), "0.3") << "as SQLite writes it";
  EXPECT_EQ(row.Text(3), "1.0e+100");
  EXPECT_EQ(std::get<std::string_view>(row.value(4)), std::string_view("h\xc3\xa9\0z", 5));
  EXPECT_EQ(std::get<std::string_view>(row.value(5)), "");
  EXPECT_THAT(std::get<Blob>(row.value(6)), ElementsAre(std::byte{0}, std::byte{0xff}));
  EXPECT_THAT(std::get<Blob>(row.value(7)), IsEmpty());
  EXPECT_FALSE(row.Next().value());
  EXPECT_FALSE(row.Next().value()) << "behind the last there is none";
}

TEST_P(QueryTest, FeaturesAreThoseOfTheDatabase) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(const auto rows, store->Query("SELECT id, feature FROM features"));
  NodeId id = 0;
  while (rows->Next().value()) {
    ASSERT_EQ(std::get<int64_t>(rows->value(0)), id);
    ASSERT_TRUE(std::ranges::equal(std::get<Blob>(rows->value(1)), shared().graph().Row(id))) << id;
    ++id;
  }
  EXPECT_EQ(id, 600u);
}

// Pages are 256 KiB: rows and heads of values are cut wherever one ends.
TEST_P(QueryTest, RowsOfManyPagesComeWhole) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(
      const auto rows,
      store->Query("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 60000) "
                   "SELECT i, i / 4.0, 'row ' || i, zeroblob(i % 7), NULL FROM n"));
  int64_t count = 0;
  while (rows->Next().value()) {
    ASSERT_EQ(std::get<int64_t>(rows->value(0)), count);
    ASSERT_EQ(std::get<double>(rows->value(1)), static_cast<double>(count) / 4);
    ASSERT_EQ(std::get<std::string_view>(rows->value(2)), "row " + std::to_string(count));
    ASSERT_EQ(std::get<Blob>(rows->value(3)).size(), static_cast<size_t>(count % 7));
    ++count;
  }
  EXPECT_EQ(count, 60000);
}

TEST_P(QueryTest, ParametersAndBlobsLargerThanAPageGoBothWays) {
  OpenedStore store = Open();
  std::vector<std::byte> blob(3'000'001);
  for (size_t i = 0; i < blob.size(); ++i) blob[i] = static_cast<std::byte>(Mix64(i));
  // In messages alone, a request holds no more than one.
  if (GetParam() == StoreKind::kInline) blob.resize(900'001);
  const std::string text(700, 'x');
  const std::vector<Value> parameters = {std::monostate(),        int64_t{-5}, 2.5, text, blob,
                                         std::vector<std::byte>()};
  ASSERT_OK_AND_ASSIGN(const auto rows,
                       store->Query("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?5 || '' IS NULL, ?5", parameters));
  ASSERT_TRUE(rows->Next().value());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(rows->value(0)));
  EXPECT_EQ(std::get<int64_t>(rows->value(1)), -5);
  EXPECT_EQ(std::get<double>(rows->value(2)), 2.5);
  EXPECT_EQ(std::get<std::string_view>(rows->value(3)), text);
  EXPECT_TRUE(std::ranges::equal(std::get<Blob>(rows->value(4)), blob));
  EXPECT_THAT(std::get<Blob>(rows->value(5)), IsEmpty());
  EXPECT_TRUE(std::ranges::equal(std::get<Blob>(rows->value(7)), blob));
  EXPECT_FALSE(rows->Next().value());
}

TEST_P(QueryTest, WhatIsNoStatementIsRefusedInTheSameWords) {
  OpenedStore store = Open();
  const auto refused = [&](std::string_view text, const std::vector<Value>& parameters = {}) {
    return store->Query(text, parameters).status().ToString();
  };
  EXPECT_EQ(refused(""), "invalid argument: there is no statement in the text");
  EXPECT_EQ(refused("SELECT 1;\nSELECT 2"), "invalid argument: line 2: more than one statement");
  EXPECT_EQ(refused("SELECT\n\nFROM nodes"), "invalid argument: line 3: near \"FROM\": syntax error");
  EXPECT_EQ(refused("SELECT * FROM nobody"), "invalid argument: line 1: no such table: nobody");
  EXPECT_EQ(refused("SELECT ?1, ?2", {int64_t{1}}),
            "invalid argument: the statement has 2 parameters, 1 were given");
  EXPECT_EQ(refused(std::string_view("SELECT 1\0", 9)), "invalid argument: line 1: a NUL byte in the text");
  EXPECT_THAT(refused("SELECT '\xff\xfe"), HasSubstr("unrecognized token"));
  EXPECT_THAT(LinesOf(store->Query("SELECT length(zeroblob(1000000000))")),
              ElementsAre("invalid argument: line 1: string or blob too big"));
}

TEST_P(QueryTest, AnErrorInTheMiddleComesBehindTheRowsBeforeIt) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(const auto sql, store->Connect());
  const char* const text =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
      "SELECT CASE i WHEN 4 THEN abs(-9223372036854775807 - 1) ELSE i END FROM n";
  EXPECT_THAT(LinesOf(*sql, text), ElementsAre("1", "2", "3", "invalid argument: line 1: integer overflow"));
  EXPECT_THAT(LinesOf(*sql, "SELECT 5"), ElementsAre("5")) << "the connection goes on";
}

TEST_P(QueryTest, ARunawayStatementIsStoppedByItsTimeout) {
  OpenedStore store = Open();
  for (const char* text : {kEndless, kEndlessRows}) {
    const double seconds = SecondsOf([&] {
      const auto lines = LinesOf(store->Query(text, {}, {.timeout_seconds = 0.2}));
      EXPECT_EQ(lines.back(), "cancelled: the statement took longer than 0.2 s");
    });
    EXPECT_GE(seconds, 0.2);
  }
}

TEST_P(QueryTest, ARunawayStatementIsStoppedByCancelling) {
  OpenedStore store = Open();
  std::atomic<bool> cancels{true};
  std::atomic<int> looks{0};
  ASSERT_OK_AND_ASSIGN(const auto sql, store->Connect({.cancelled = [&] { return cancels && ++looks > 3; }}));
  EXPECT_THAT(LinesOf(*sql, kEndless), ElementsAre("cancelled: interrupted"));
  cancels = false;
  // Where the statement is stopped behind the answer, this one waits for its end.
  EXPECT_THAT(LinesOf(*sql, "SELECT 1"), ElementsAre("1"));
}

TEST_P(QueryTest, AScriptIsRunToItsFirstError) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(const auto sql, store->Connect());
  std::vector<std::string> seen;
  const auto visit = [&](RowCursor& rows) {
    seen.push_back(rows.columns().empty() ? "-" : rows.columns()[0]);
    for (const std::string& line : LinesOf(rows)) seen.push_back(line);
    return Status::Ok();
  };
  const Status status = sql->Run(
      "-- one\nCREATE TABLE t(a);\nINSERT INTO t VALUES (7), (8);\n\nSELECT a FROM t; ;\nSELECT b FROM "
      "t;\nSELECT 9",
      visit);
  EXPECT_EQ(status.ToString(), "invalid argument: line 6: no such column: b");
  EXPECT_THAT(seen, ElementsAre("-", "-", "a", "7", "8"));
  seen.clear();
  EXPECT_OK(sql->Run("", visit));
  EXPECT_OK(sql->Run(" ;; -- nothing", visit));
  EXPECT_THAT(seen, IsEmpty());
  EXPECT_OK(sql->Run("SELECT sum(a) FROM t", visit)) << "the table stays";
  EXPECT_THAT(seen, ElementsAre("sum(a)", "15"));
  // What the visitor leaves is left, and its error ends the script.
  seen.clear();
  const auto skip = [&](RowCursor& rows) {
    seen.push_back(rows.columns()[0]);
    return seen.size() < 3 ? Status::Ok() : Status(Code::kIoError, "no more");
  };
  EXPECT_EQ(sql->Run("SELECT 1; SELECT 2; SELECT 3; SELECT 4", skip).ToString(), "I/O error: no more");
  EXPECT_THAT(seen, ElementsAre("1", "2", "3"));
  EXPECT_THAT(LinesOf(*sql, "SELECT 5"), ElementsAre("5"));
}

TEST_P(QueryTest, AConnectionTellsItsTables) {
  OpenedStore store = Open();
  ASSERT_OK_AND_ASSIGN(const auto sql, store->Connect());
  const auto& tables = sql->tables();
  const auto nodes = std::ranges::find(tables, "nodes", &wire::SqlTable::name);
  ASSERT_NE(nodes, tables.end());
  ASSERT_FALSE(nodes->columns.empty());
  EXPECT_EQ(nodes->columns[0], (wire::SqlColumn{"id", "INTEGER", false}));
}

TEST_P(QueryTest, ATransactionIsItsConnectionsAloneAndOneCommit) {
  const TinyDatabase database({.nodes = 100});
  OpenedStore store = Open(database);
  const auto timestamp = [&] { return (*store->TakeSnapshot())->timestamp(); };
  const auto label = [&](SqlConnection& sql) { return LinesOf(sql, "SELECT label FROM nodes WHERE id = 3"); };
  auto reader = store->Connect().value();
  auto one = store->Connect({.write = true}).value();
  auto other = store->Connect({.write = true}).value();
  const auto before = label(*reader);
  EXPECT_THAT(LinesOf(*reader, "UPDATE nodes SET label = 4 WHERE id = 3"),
              ElementsAre(HasSubstr("may not be modified")));
  ASSERT_THAT(LinesOf(*one, "BEGIN"), IsEmpty());
  ASSERT_THAT(LinesOf(*other, "BEGIN"), IsEmpty()) << "it has none yet";
  ASSERT_THAT(LinesOf(*one, "UPDATE nodes SET label = 4 WHERE id = 3"), IsEmpty());
  ASSERT_THAT(LinesOf(*one, "UPDATE nodes SET label = 4 WHERE id = 5"), IsEmpty());
  EXPECT_THAT(label(*one), ElementsAre("4"));
  EXPECT_EQ(label(*other), before);
  EXPECT_EQ(label(*reader), before);
  EXPECT_EQ(timestamp(), 0u);
  ASSERT_THAT(LinesOf(*one, "COMMIT"), IsEmpty());
  EXPECT_EQ(timestamp(), 1u) << "one transaction is one commit";
  EXPECT_THAT(label(*reader), ElementsAre("4"));
  EXPECT_EQ(label(*other), before) << "as its snapshot has it";
  // A connection that goes takes what it has not committed with it.
  ASSERT_THAT(LinesOf(*one, "BEGIN"), IsEmpty());
  ASSERT_THAT(LinesOf(*one, "UPDATE nodes SET label = 2 WHERE id = 3"), IsEmpty());
  one.reset();
  EXPECT_THAT(label(*reader), ElementsAre("4"));
  EXPECT_EQ(timestamp(), 1u);
}

// What a request has read is let go a moment behind its answer, and what a cursor has behind its end.
std::vector<std::string> DropTable(client::SqlConnection& sql, const std::string& table) {
  std::vector<std::string> lines;
  EXPECT_TRUE(Eventually([&] {
    lines = LinesOf(sql, "SELECT drop_table('" + table + "')");
    return lines.empty() || !lines.front().starts_with("busy");
  }));
  return lines;
}

// By a function of SQL, and whoever has the database open does it; what was there under the name before is not seen again.
TEST_P(QueryTest, TablesAreMadeAndDropped) {
  const TinyDatabase database({.nodes = 100});
  OpenedStore store = Open(database);
  const auto sql = store->Connect({.write = true}).value();
  const auto ages = [&](client::SqlConnection& by) {
    return LinesOf(
        by, "SELECT dim, vec_to_json(feature) FROM features WHERE \"table\" = 'age' AND id IN (3, 99)");
  };
  EXPECT_THAT(LinesOf(*sql, "SELECT create_table('age', 1, 'float16')"), ElementsAre("age"));
  EXPECT_THAT(ages(*sql), ElementsAre("1|[0]", "1|[0]"));
  EXPECT_THAT(
      LinesOf(*sql,
              "UPDATE features SET feature = vec_from_json('[0.5]') WHERE \"table\" = 'age' AND id = 3"),
      IsEmpty());
  EXPECT_THAT(ages(*sql), ElementsAre("1|[0.5]", "1|[0]"));
  const auto row = [&] {
    const auto rows = store->Lookup({.table = "age", .ids = std::vector<NodeId>{3}}).value();
    return std::pair(rows->element_type(),
                     std::vector<std::byte>(rows->bytes().begin(), rows->bytes().end()));
  };
  EXPECT_EQ(row(), std::pair(ElementType::kFloat16, (std::vector<std::byte>{std::byte{0}, std::byte{0x38}})));
  EXPECT_THAT(DropTable(*sql, "age"), ElementsAre("age"));
  EXPECT_THAT(ages(*sql), IsEmpty());
  EXPECT_THAT(store->Lookup({.table = "age", .ids = std::vector<NodeId>{3}}), IsStatus(Code::kNotFound));
  // Made anew, of another kind and of the same, it has zeros, to whoever has looked before, too.
  EXPECT_THAT(LinesOf(*sql, "SELECT create_table('age', 2)"), ElementsAre("age"));
  EXPECT_EQ(row(), std::pair(ElementType::kFloat32, std::vector<std::byte>(8)));
  EXPECT_THAT(ages(*sql), ElementsAre("2|[0,0]", "2|[0,0]"));
  EXPECT_THAT(ages(*store->Connect().value()), ElementsAre("2|[0,0]", "2|[0,0]"));
  EXPECT_THAT(DropTable(*sql, "age"), ElementsAre("age"));
}

// A table of an import is a file of other bytes than those of one that is made in its place.
TEST_P(QueryTest, ATableThatTakesAnothersPlaceHasRowsOfItsOwn) {
  const TinyDatabase database({.nodes = 100, .dim = 4});
  OpenedStore store = Open(database);
  const auto reader = store->Connect().value();
  const auto of = [&](uint64_t id) {
    const auto rows =
        store->Lookup({.table = "feature", .ids = std::vector<NodeId>{static_cast<NodeId>(id)}}).value();
    return std::vector<std::byte>(rows->bytes().begin(), rows->bytes().end());
  };
  constexpr const char* kRow = "SELECT vec_to_json(feature) FROM features WHERE id = 5";
  EXPECT_EQ(of(5), database.graph().Row(5));
  EXPECT_NE(LinesOf(*reader, kRow), std::vector<std::string>{"[0,0,0,0]"});
  const auto sql = store->Connect({.write = true}).value();
  EXPECT_THAT(DropTable(*sql, "feature"), ElementsAre("feature"));
  EXPECT_THAT(LinesOf(*sql, "SELECT create_table('feature', 4)"), ElementsAre("feature"));
  EXPECT_EQ(of(5), std::vector<std::byte>(16));
  EXPECT_THAT(LinesOf(*reader, kRow), ElementsAre("[0,0,0,0]"));
}

TEST_P(QueryTest, TablesAreNotMadeByWhoReadsNorInTransactions) {
  const TinyDatabase database({.nodes = 100});
  OpenedStore store = Open(database);
  const auto reader = store->Connect().value();
  const auto sql = store->Connect({.write = true}).value();
  const auto says = [&](client::SqlConnection& by, const char* text, Code code, const char* words) {
    const auto rows = by.Query(text);
    Status status = rows.status();
    if (rows.ok()) status = (*rows)->Next().status();
    EXPECT_THAT(status, IsStatus(code, HasSubstr(words))) << text;
  };
  constexpr const char* kCreate = "SELECT create_table('age', 1)";
  says(*reader, kCreate, Code::kUsage, "create_table: this connection only reads: open it to write");
  says(*reader, "SELECT drop_table('feature')", Code::kUsage, "drop_table: this connection only reads");
  ASSERT_THAT(LinesOf(*sql, "BEGIN"), IsEmpty());
  says(*sql, kCreate, Code::kUsage, "create_table: it is done at once and no part of a transaction");
  says(*sql, "SELECT drop_table('feature')", Code::kUsage, "drop_table: it is done at once");
  ASSERT_THAT(LinesOf(*sql, "ROLLBACK"), IsEmpty());
  says(*sql, "SELECT create_table('a b', 1)", Code::kInvalidArgument, "a b");
  says(*sql, "SELECT create_table(7, 1)", Code::kInvalidArgument, "create_table: the table's name is a text");
  says(*sql, "SELECT create_table('age', 'one')", Code::kInvalidArgument, "whole number from 1 on");
  says(*sql, "SELECT create_table('age', 0)", Code::kInvalidArgument, "whole number from 1 on");
  says(*sql, "SELECT create_table('age', 1, 'float64')", Code::kInvalidArgument,
       "\"float64\" is no element type");
  says(*sql, "SELECT create_table('label_code', 1)", Code::kInvalidArgument,
       "would say something of each node");
  says(*sql, "SELECT create_table('feature', 1)", Code::kAlreadyExists,
       "there is a table \"feature\" already");
  says(*sql, "SELECT drop_table('age')", Code::kNotFound, "age");
  // A statement that is under way keeps the tables that it sees.
  auto rows = reader->Query("SELECT a.id FROM features a, nodes b, nodes c").value();
  ASSERT_TRUE(rows->Next().value());
  says(*sql, "SELECT drop_table('feature')", Code::kBusy, "is being read");
  rows.reset();
  EXPECT_THAT(DropTable(*sql, "feature"), ElementsAre("feature"));
  ASSERT_THAT(LinesOf(*sql, "CREATE VIEW v AS SELECT create_table('age', 1) AS name"), IsEmpty());
  says(*sql, "SELECT name FROM v", Code::kInvalidArgument, "unsafe use of create_table()");
}

TEST_P(QueryTest, CursorsOfOneConnectionTakeTurns) {
  OpenedStore store = Open();
  const auto sql = store->Connect().value();
  auto odd = sql->Query("SELECT id FROM nodes WHERE id % 2 = 1 ORDER BY id").value();
  auto even = sql->Query("SELECT id FROM nodes WHERE id % 2 = 0 ORDER BY id").value();
  for (int64_t i = 0; i < 300; ++i) {
    ASSERT_TRUE(even->Next().value() && odd->Next().value());
    ASSERT_EQ(std::get<int64_t>(even->value(0)), 2 * i);
    ASSERT_EQ(std::get<int64_t>(odd->value(0)), 2 * i + 1);
  }
  odd.reset();
  EXPECT_FALSE(even->Next().value());
}

// The first write of a store opens its catalog anew, which names are read from.
TEST_P(QueryTest, PutsGoOnBesideStatements) {
  const TinyDatabase database({.nodes = 300});
  OpenedStore store = Open(database);
  auto rows = store->Query("SELECT a.id FROM nodes a, nodes b").value();
  ASSERT_TRUE(rows->Next().value());
  for (uint64_t i = 0; i < 20; ++i) {
    const auto put = store->Put({.tables = {RowsToPut("label", {i}, {BytesOf(int64_t{1})})}});
    ASSERT_OK(put);
  }
  uint64_t count = 1;
  while (rows->Next().value()) ++count;
  EXPECT_EQ(count, 300u * 300u);
  EXPECT_THAT(LinesOf(store->Query("SELECT count(*) FROM nodes WHERE timestamp > 0")), ElementsAre("20"));
}

}  // namespace
}  // namespace quarry
