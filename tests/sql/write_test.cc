// UPDATE and INSERT OR REPLACE: one transaction is one commit, or none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "quarry/base/random.h"
#include "sql/sql_database.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::Lines;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TinyGraph;

class SqlWriteTest : public testing::Test {
 protected:
  // Statements without rows; an error is the result.
  std::vector<std::string> Run(std::string_view text) { return Lines(*writer_, text); }
  // As another connection sees it.
  std::vector<std::string> Read(std::string_view text) { return Lines(store_.sql(), text); }
  uint64_t Timestamp() { return store_.store().TakeSnapshot().value()->timestamp; }

  SqlStore store_{TenNodes()};
  std::unique_ptr<sql::Connection> writer_ = store_.Connect({.write = true});
};

TEST_F(SqlWriteTest, AStatementIsACommit) {
  EXPECT_THAT(Run("UPDATE nodes SET label = 7, split = 'none' WHERE id IN (2, 3)"), IsEmpty());
  EXPECT_EQ(Timestamp(), 1u);
  EXPECT_THAT(Read("SELECT id, label, split, timestamp FROM nodes WHERE timestamp > 0"),
              ElementsAre("2|7|none|1", "3|7|none|1"));
  EXPECT_THAT(Run("UPDATE nodes SET label = NULL WHERE id = 2"), IsEmpty());
  EXPECT_THAT(Read("SELECT id FROM nodes WHERE label IS NULL"), ElementsAre("2", "9"));
  EXPECT_EQ(Timestamp(), 2u);
  EXPECT_THAT(Run("UPDATE nodes SET label = 1 WHERE id = 99"), IsEmpty());
  EXPECT_EQ(Timestamp(), 2u) << "nothing was written";
}

TEST_F(SqlWriteTest, FeaturesAreSetAndReplaced) {
  EXPECT_THAT(Run("UPDATE features SET feature = vec_from_json('[9, 8, 7, 6]') WHERE id = 4"), IsEmpty());
  EXPECT_THAT(Run("INSERT OR REPLACE INTO features (id, feature) VALUES (5, vec_from_json('[1, 1, 1, 1]')), "
                  "(6, (SELECT feature FROM features WHERE id = 1))"),
              IsEmpty());
  EXPECT_EQ(Timestamp(), 2u);
  EXPECT_THAT(Read("SELECT vec_to_json(feature), timestamp FROM features WHERE id BETWEEN 3 AND 6"),
              ElementsAre("[3,1.5,-3,1]|0", "[9,8,7,6]|1", "[1,1,1,1]|2", "[1,0.5,-1,1]|2"));
}

TEST_F(SqlWriteTest, ATransactionIsOneCommitThatItsOwnStatementsSee) {
  Run("BEGIN");
  EXPECT_THAT(Run("UPDATE nodes SET label = label + 10 WHERE id < 3"), IsEmpty());
  EXPECT_THAT(Run("UPDATE nodes SET label = label + 10 WHERE label >= 11"), IsEmpty());
  EXPECT_THAT(Run("UPDATE features SET feature = vec_from_json('[0, 0, 0, 0]') WHERE id = 0"), IsEmpty());
  EXPECT_THAT(Run("SELECT label FROM nodes WHERE id < 3"), ElementsAre("10", "21", "22"));
  EXPECT_THAT(Run("SELECT vec_to_json(feature) FROM features WHERE id = 0"), ElementsAre("[0,0,0,0]"));
  EXPECT_THAT(Read("SELECT label FROM nodes WHERE id < 3"), ElementsAre("0", "1", "2"));
  EXPECT_EQ(Timestamp(), 0u);
  Run("COMMIT");
  EXPECT_EQ(Timestamp(), 1u);
  EXPECT_THAT(Read("SELECT label FROM nodes WHERE id < 3"), ElementsAre("10", "21", "22"));
}

TEST_F(SqlWriteTest, ARollbackLeavesNothing) {
  Run("BEGIN");
  Run("UPDATE nodes SET label = 5");
  Run("UPDATE features SET feature = vec_from_json('[0, 0, 0, 0]')");
  Run("ROLLBACK");
  EXPECT_THAT(Run("SELECT count(*) FROM nodes WHERE label = 5"), ElementsAre("0"));
  EXPECT_EQ(Timestamp(), 0u);
  EXPECT_THAT(Run("UPDATE nodes SET label = 6 WHERE id = 0"), IsEmpty());
  EXPECT_THAT(Read("SELECT id FROM nodes WHERE label >= 5"), ElementsAre("0"));
}

TEST_F(SqlWriteTest, SavepointsTakeBackWhatCameAfterThem) {
  Run("BEGIN");
  Run("UPDATE nodes SET label = 5 WHERE id = 1");
  Run("SAVEPOINT outside");
  Run("UPDATE nodes SET label = 6 WHERE id IN (1, 2)");
  Run("SAVEPOINT within");
  Run("UPDATE features SET feature = vec_from_json('[0, 0, 0, 0]') WHERE id = 1");
  Run("UPDATE nodes SET label = 7 WHERE id = 3");
  Run("ROLLBACK TO within");
  EXPECT_THAT(Run("SELECT label FROM nodes WHERE id IN (1, 2, 3)"), ElementsAre("6", "6", "0"));
  EXPECT_THAT(Run("SELECT vec_to_json(feature) FROM features WHERE id = 1"), ElementsAre("[1,0.5,-1,1]"));
  Run("ROLLBACK TO outside");
  EXPECT_THAT(Run("SELECT label FROM nodes WHERE id IN (1, 2, 3)"), ElementsAre("5", "2", "0"));
  Run("RELEASE outside");
  Run("COMMIT");
  EXPECT_THAT(Read("SELECT label FROM nodes WHERE id IN (1, 2, 3)"), ElementsAre("5", "2", "0"));
}

TEST_F(SqlWriteTest, AStatementThatFailsIsTakenBackAlone) {
  Run("BEGIN");
  Run("UPDATE nodes SET label = 5 WHERE id = 1");
  // The label of node 2 would be no label.
  EXPECT_THAT(Run("UPDATE nodes SET label = CASE id WHEN 2 THEN 'x' ELSE 8 END WHERE id < 4"),
              ElementsAre(HasSubstr("the label of node 2")));
  EXPECT_THAT(Run("SELECT label FROM nodes WHERE id < 4"), ElementsAre("0", "5", "2", "0"));
  Run("COMMIT");
  EXPECT_THAT(Read("SELECT label FROM nodes WHERE id < 4"), ElementsAre("0", "5", "2", "0"));
}

TEST_F(SqlWriteTest, RefusesWhatATableCannotHold) {
  const std::pair<const char*, const char*> cases[] = {
      {"UPDATE nodes SET label = -2 WHERE id = 1", "the label of node 1"},
      {"UPDATE nodes SET label = 2147483648 WHERE id = 1", "the label of node 1"},
      {"UPDATE nodes SET label = 1.5 WHERE id = 1", "the label of node 1"},
      {"UPDATE nodes SET split = 'training' WHERE id = 1", "would be 'training': none, train, valid, test"},
      {"UPDATE nodes SET split = NULL WHERE id = 1", "would be no text"},
      {"UPDATE nodes SET name = 'x' WHERE id = 1", "name of node 1 cannot be set"},
      {"UPDATE nodes SET id = 17 WHERE id = 1", "id of node 1 cannot be set"},
      {"UPDATE features SET dim = 3 WHERE id = 1", "dim of node 1 cannot be set"},
      {"UPDATE features SET feature = x'0000' WHERE id = 1", "a row is a blob of 16 bytes"},
      {"UPDATE features SET feature = 'abcdabcdabcdabcd' WHERE id = 1", "a row is a blob of 16 bytes"},
      {"UPDATE features SET feature = NULL WHERE id = 1", "a row is a blob of 16 bytes"},
      {"UPDATE features SET feature = x'0000c07f0000c07f0000c07f0000c07f' WHERE id = 1", "NaN or infinite"},
      {"INSERT OR REPLACE INTO features (id, feature) VALUES (10, zeroblob(16))", "are 0 to 9"},
      {"INSERT OR REPLACE INTO features (id, feature) VALUES (NULL, zeroblob(16))", "are 0 to 9"},
      {"INSERT OR REPLACE INTO features VALUES (1, 'label', zeroblob(16), 4, 0)",
       "no table of floats \"label\""},
      {"INSERT INTO features (id, feature) VALUES (1, zeroblob(16))", "INSERT OR REPLACE"},
      {"INSERT OR REPLACE INTO nodes (id, label) VALUES (1, 1)", "the next node is 10"},
      {"DELETE FROM features WHERE id = 1", "rows of features cannot be deleted"},
      {"UPDATE edges SET relation = 1", "relation of an edge cannot be set"},
      {"UPDATE files SET bytes = 1", "table files may not be modified"},
  };
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(Run(text), ElementsAre(HasSubstr(error))) << text;
  }
  EXPECT_THAT(Run("INSERT OR IGNORE INTO features (id, feature) VALUES (1, zeroblob(16))"), IsEmpty());
  EXPECT_EQ(Timestamp(), 0u);
  EXPECT_THAT(Run("SELECT nobody"), ElementsAre(HasSubstr("no such column"))) << "not what was ignored";
}

TEST_F(SqlWriteTest, ATransactionHasALimit) {
  EXPECT_THAT(
      Run("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 300000) INSERT OR REPLACE "
          "INTO features (id, feature) SELECT i % 10, zeroblob(16) FROM n"),
      ElementsAre(HasSubstr("one transaction writes at most 64.0 MiB")));
  EXPECT_EQ(Timestamp(), 0u);
}

// Random transactions against maps; every type that a table can have.
TEST(SqlWriteTypesTest, WhatWasCommittedIsRead) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16, ElementType::kInt8}) {
    constexpr uint64_t kNodes = 200, kSeed = 11;
    SCOPED_TRACE(testing::Message() << ElementTypeName(type) << ", seed " << kSeed);
    SqlStore store(TinyGraph{.nodes = kNodes, .dim = 5, .type = type});
    const auto writer = store.Connect({.write = true});
    Rng rng(kSeed);
    std::map<uint64_t, std::string> rows;
    std::map<uint64_t, int64_t> labels;
    for (int transaction = 0; transaction < 20; ++transaction) {
      const bool commits = rng.Below(3) > 0;
      std::map<uint64_t, std::string> next_rows = rows;
      std::map<uint64_t, int64_t> next_labels = labels;
      Lines(*writer, "BEGIN");
      for (uint64_t i = rng.Below(8); i > 0; --i) {
        const uint64_t node = rng.Below(kNodes), value = 1 + rng.Below(100);
        // Whole numbers up to 127 are exact in all types; of int8 when 127 is the largest.
        const std::string json = fmt::format("[{},0,-{},127,1]", value, value);
        EXPECT_THAT(
            Lines(*writer,
                  fmt::format("UPDATE features SET feature = vec_from_json('{}') WHERE id = {}", json, node)),
            IsEmpty());
        EXPECT_THAT(Lines(*writer, fmt::format("UPDATE nodes SET label = {} WHERE id = {}", value, node)),
                    IsEmpty());
        next_rows[node] = json;
        next_labels[node] = static_cast<int64_t>(value);
      }
      Lines(*writer, commits ? "COMMIT" : "ROLLBACK");
      if (commits) std::tie(rows, labels) = std::pair(next_rows, next_labels);
      for (const auto& [node, row] : rows) {
        ASSERT_THAT(
            Lines(store.sql(), fmt::format("SELECT vec_to_json(feature), label FROM features f JOIN nodes n "
                                           "ON n.id = f.id WHERE f.id = {}",
                                           node)),
            ElementsAre(fmt::format("{}|{}", row, labels[node])));
      }
    }
  }
}

}  // namespace
}  // namespace quarry
