// SQL through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "client/c_api_util.h"
#include "client/query_util.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::ElementsAre;
using testing::HasSubstr;

class CSqlTest : public CStoreTest {
 protected:
  quarry_sql* Connect(const quarry_sql_options* options = nullptr) {
    quarry_sql* sql = nullptr;
    EXPECT_EQ(quarry_sql_open(store_, options, &sql), QUARRY_OK) << quarry_last_error();
    return sql;
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, CSqlTest, kBothKinds, KindName);

// The first column of each row; then the error, if there is one.
std::vector<std::string> TextsOf(quarry_cursor* cursor) {
  std::vector<std::string> texts;
  while (true) {
    int more = 0;
    if (quarry_cursor_next(cursor, &more) != QUARRY_OK) texts.emplace_back(quarry_last_error());
    if (more == 0) return texts;
    texts.emplace_back(quarry_cursor_text(cursor, 0, nullptr));
  }
}
std::vector<std::string> TextsOf(quarry_sql* sql, const char* text) {
  quarry_cursor* cursor = nullptr;
  if (quarry_sql_query(sql, text, nullptr, 0, &cursor) != QUARRY_OK) return {quarry_last_error()};
  std::vector<std::string> texts = TextsOf(cursor);
  quarry_cursor_free(cursor);
  return texts;
}

TEST_P(CSqlTest, ParametersComeBackAsTheyWere) {
  const std::string text("h\0z", 3);
  const std::vector<quarry_value> parameters = {
      {.type = QUARRY_NULL},
      {.type = QUARRY_INTEGER, .integer = -5},
      {.type = QUARRY_REAL, .real = 2.5},
      {.type = QUARRY_TEXT, .data = text.data(), .bytes = text.size()},
      {.type = QUARRY_BLOB, .data = "\x00\xff", .bytes = 2}};
  quarry_sql* const sql = Connect();
  quarry_cursor* cursor = nullptr;
  ASSERT_EQ(quarry_sql_query(sql, "SELECT ?1 AS a, ?2, ?3, ?4, ?5", parameters.data(), 5, &cursor), QUARRY_OK)
      << quarry_last_error();
  EXPECT_EQ(quarry_cursor_column_count(cursor), 5u);
  EXPECT_STREQ(quarry_cursor_column_name(cursor, 0), "a");
  EXPECT_EQ(quarry_cursor_column_name(cursor, 5), nullptr);
  EXPECT_EQ(quarry_cursor_type(cursor, 1), QUARRY_NULL) << "before the first row";
  int more = 0;
  ASSERT_EQ(quarry_cursor_next(cursor, &more), QUARRY_OK) << quarry_last_error();
  ASSERT_EQ(more, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(quarry_cursor_type(cursor, static_cast<size_t>(i)), i);
  uint64_t bytes = 9;
  EXPECT_EQ(quarry_cursor_text(cursor, 0, &bytes), nullptr);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(quarry_cursor_int64(cursor, 1), -5);
  EXPECT_EQ(quarry_cursor_double(cursor, 1), -5);
  EXPECT_STREQ(quarry_cursor_text(cursor, 1, nullptr), "-5");
  EXPECT_EQ(quarry_cursor_double(cursor, 2), 2.5);
  EXPECT_EQ(quarry_cursor_int64(cursor, 2), 0) << "of another type";
  EXPECT_STREQ(quarry_cursor_text(cursor, 2, nullptr), "2.5");
  const char* const back = quarry_cursor_text(cursor, 3, &bytes);
  EXPECT_EQ(std::string(back, bytes), text);
  EXPECT_EQ(back[bytes], '\0');
  EXPECT_EQ(quarry_cursor_text(cursor, 3, nullptr), back) << "the same while the row is there";
  EXPECT_EQ(std::memcmp(quarry_cursor_blob(cursor, 3, &bytes), text.data(), 3), 0);
  ASSERT_EQ(bytes, 3u);
  EXPECT_EQ(std::memcmp(quarry_cursor_blob(cursor, 4, &bytes), "\x00\xff", 2), 0);
  EXPECT_EQ(bytes, 2u);
  EXPECT_EQ(quarry_cursor_blob(cursor, 1, &bytes), nullptr);
  EXPECT_EQ(quarry_cursor_type(cursor, 5), QUARRY_NULL) << "beyond the last";
  ASSERT_EQ(quarry_cursor_next(cursor, &more), QUARRY_OK);
  EXPECT_EQ(more, 0);
  EXPECT_EQ(quarry_cursor_text(cursor, 1, nullptr), nullptr) << "behind the last row";
  quarry_cursor_free(cursor);
  quarry_sql_free(sql);
}

TEST_P(CSqlTest, FeaturesAreThoseOfTheDatabase) {
  const quarry_value id = {.type = QUARRY_INTEGER, .integer = 7};
  quarry_cursor* cursor = nullptr;
  ASSERT_EQ(quarry_query(store_, "SELECT feature FROM features WHERE id = ?1", &id, 1, nullptr, &cursor),
            QUARRY_OK)
      << quarry_last_error();
  int more = 0;
  ASSERT_EQ(quarry_cursor_next(cursor, &more), QUARRY_OK) << quarry_last_error();
  uint64_t bytes = 0;
  const void* const feature = quarry_cursor_blob(cursor, 0, &bytes);
  ASSERT_EQ(bytes, 128u);
  EXPECT_EQ(std::memcmp(feature, database_.graph().Row(7).data(), bytes), 0);
  quarry_cursor_free(cursor);
}

TEST_P(CSqlTest, WhatIsNoStatementIsRefused) {
  quarry_sql* const sql = Connect();
  quarry_cursor* cursor = nullptr;
  const auto refused = [&](const char* text, const quarry_value* values = nullptr, size_t count = 0) {
    EXPECT_EQ(quarry_sql_query(sql, text, values, count, &cursor), QUARRY_INVALID_ARGUMENT) << text;
    EXPECT_EQ(quarry_query(store_, text, values, count, nullptr, &cursor), QUARRY_INVALID_ARGUMENT);
    EXPECT_EQ(cursor, nullptr);
    return std::string(quarry_last_error());
  };
  EXPECT_THAT(refused("SELECT colour FROM nodes"), HasSubstr("no such column: colour"));
  refused("SELECT 1; SELECT 2");
  refused("SELECT ?1");
  const quarry_value strange = {.type = 5};
  EXPECT_THAT(refused("SELECT ?1", &strange, 1), HasSubstr("a value of type 5"));
  const quarry_sql_options unset{};
  quarry_sql* none = nullptr;
  EXPECT_EQ(quarry_sql_open(store_, &unset, &none), QUARRY_USAGE) << "no size";
  EXPECT_EQ(none, nullptr);
  quarry_sql_free(sql);
  quarry_sql_free(nullptr);
  quarry_cursor_free(nullptr);
}

TEST_P(CSqlTest, ListsTheTables) {
  quarry_sql* const sql = Connect();
  size_t nodes = 0;
  while (quarry_sql_table(sql, nodes) != nullptr && std::strcmp(quarry_sql_table(sql, nodes), "nodes") != 0) {
    ++nodes;
  }
  ASSERT_NE(quarry_sql_table(sql, nodes), nullptr);
  ASSERT_NE(quarry_sql_column(sql, nodes, 0), nullptr);
  EXPECT_STREQ(quarry_sql_column(sql, nodes, 0)->name, "id");
  EXPECT_EQ(quarry_sql_column(sql, nodes, 0)->hidden, 0);
  EXPECT_EQ(quarry_sql_column(sql, nodes, 1000), nullptr);
  EXPECT_EQ(quarry_sql_column(sql, 1000, 0), nullptr);
  EXPECT_EQ(quarry_sql_table(sql, 1000), nullptr);
  quarry_sql_free(sql);
}

int Collect(void* context, quarry_cursor* cursor) {
  std::vector<std::string> texts = TextsOf(cursor);
  auto& all = *static_cast<std::vector<std::string>*>(context);
  all.insert(all.end(), texts.begin(), texts.end());
  return QUARRY_OK;
}
int Refuse(void* context, quarry_cursor*) {
  ++*static_cast<int*>(context);
  return 77;
}

TEST_P(CSqlTest, ScriptsRunStatementAfterStatement) {
  quarry_sql* const sql = Connect();
  EXPECT_EQ(quarry_sql_run(sql, "CREATE TABLE t(a); INSERT INTO t VALUES (1), (2);", nullptr, nullptr),
            QUARRY_OK)
      << quarry_last_error();
  std::vector<std::string> texts;
  EXPECT_EQ(quarry_sql_run(sql, "SELECT a FROM t; SELECT count(*) FROM t", Collect, &texts), QUARRY_OK);
  EXPECT_THAT(texts, ElementsAre("1", "2", "2"));
  int calls = 0;
  EXPECT_EQ(quarry_sql_run(sql, "SELECT 1; SELECT 2", Refuse, &calls), 77) << "what the visitor says";
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(quarry_sql_run(sql, "INSERT INTO t VALUES (3); SELECT x", nullptr, nullptr),
            QUARRY_INVALID_ARGUMENT);
  EXPECT_THAT(quarry_last_error(), HasSubstr("x"));
  EXPECT_THAT(TextsOf(sql, "SELECT count(*) FROM t"), ElementsAre("3")) << "those before it have run";
  quarry_sql_free(sql);
}

TEST_P(CSqlTest, WritesReachTheDatabaseWhereTheyMay) {
  quarry_sql* const reader = Connect();
  EXPECT_EQ(quarry_sql_run(reader, "UPDATE nodes SET label = 4 WHERE id = 9", nullptr, nullptr),
            QUARRY_INVALID_ARGUMENT);
  const quarry_sql_options writes = {.size = sizeof(writes), .write = 1};
  quarry_sql* const writer = Connect(&writes);
  EXPECT_EQ(quarry_sql_run(writer, "UPDATE nodes SET label = 4 WHERE id = 9", nullptr, nullptr), QUARRY_OK)
      << quarry_last_error();
  EXPECT_THAT(TextsOf(reader, "SELECT label FROM nodes WHERE id = 9"), ElementsAre("4"));
  quarry_sql_free(writer);
  quarry_sql_free(reader);
}

TEST_P(CSqlTest, StatementsEndAtTheirTimeout) {
  const quarry_sql_options options = {.size = sizeof(options), .timeout_seconds = 0.2};
  quarry_cursor* cursor = nullptr;
  ASSERT_EQ(quarry_query(store_, kEndless, nullptr, 0, &options, &cursor), QUARRY_OK) << quarry_last_error();
  int more = 0;
  EXPECT_EQ(quarry_cursor_next(cursor, &more), QUARRY_CANCELLED);
  quarry_cursor_free(cursor);
}

TEST_P(CSqlTest, AnotherThreadInterruptsAStatementAndTheNextRuns) {
  quarry_sql* const sql = Connect();
  std::atomic<bool> ended{false};
  std::thread interrupter([&] {  // an interrupt that comes before the statement is forgotten
    while (!ended) {
      quarry_sql_interrupt(sql);
      std::this_thread::yield();
    }
  });
  EXPECT_EQ(quarry_sql_run(sql, kEndless, nullptr, nullptr), QUARRY_CANCELLED) << quarry_last_error();
  ended = true;
  interrupter.join();
  EXPECT_THAT(TextsOf(sql, "SELECT count(*) FROM nodes"), ElementsAre("300"));
  quarry_sql_free(sql);
}

}  // namespace
}  // namespace quarry
