// What the tables take over from SQLite against SQLite's own evaluation: about a cast, no table is asked, so
// every row is handed over and tested. (A cast to a column's own type is compared as the column is.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "quarry/base/random.h"
#include "sql/sql_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::Hex;
using testing_util::Lines;
using testing_util::SqlStore;
using testing_util::TinyGraph;

constexpr uint64_t kNodes = 300;

struct Subject {
  std::string table;
  std::vector<std::string> columns;  // that conditions are on
  std::string select;
  std::string order;  // total
};

const Subject kSubjects[] = {
    {"nodes", {"id", "label", "split"}, "id, label, split, in_degree, out_degree, timestamp", "id"},
    {"edges", {"src", "dst", "relation"}, "src, dst, relation", "dst, src"},
    {"features", {"id"}, "id, hex(feature), timestamp", "id"},
};

// Mostly numbers of nodes; now and then something else.
std::string RandomValue(Rng& rng) {
  switch (rng.Below(12)) {
    case 0:
      return "NULL";
    case 1:
      return fmt::format("'{}'", rng.Below(kNodes));
    case 2:
      return fmt::format("{}.5", rng.Below(kNodes));
    case 3:
      return fmt::format("{}.0", rng.Below(6));
    case 4:
      return fmt::format("-{}", rng.Below(3));
    case 5:
      return rng.Below(2) == 0 ? "'train'" : "'x'";
    case 6:
      return rng.Below(2) == 0 ? "x'31'" : "9e18";
    case 7:
      return fmt::format("{}", rng.Below(6));
    default:
      return fmt::format("{}", rng.Below(kNodes));
  }
}

std::string RandomCondition(const Subject& subject, Rng& rng) {
  // "@" marks the columns.
  const std::string column = "@" + subject.columns[rng.Below(subject.columns.size())];
  constexpr const char* kOps[] = {"=", "<", "<=", ">", ">=", "<>"};
  const uint64_t kind = rng.Below(10);
  if (kind < 6) return fmt::format("{} {} {}", column, kOps[kind], RandomValue(rng));
  if (kind == 6) {
    return fmt::format("({} = {} OR @{} = {})", column, RandomValue(rng), subject.columns[0],
                       RandomValue(rng));
  }
  if (kind == 7) return fmt::format("{} BETWEEN {} AND {}", column, rng.Below(kNodes / 2), rng.Below(kNodes));
  std::string list = RandomValue(rng);
  for (uint64_t i = rng.Below(20); i > 0; --i) list += ", " + RandomValue(rng);
  return fmt::format("{} IN ({})", column, list);
}

std::string RandomWhere(const Subject& subject, Rng& rng) {
  std::string where;
  for (uint64_t i = rng.Below(4); i > 0; --i) {
    where += (where.empty() ? " WHERE " : " AND ") + RandomCondition(subject, rng);
  }
  return where;
}

std::string Plain(const std::string& text) { return std::regex_replace(text, std::regex("@"), ""); }
std::string Cast(const std::string& text) {
  const std::string texts = std::regex_replace(text, std::regex("@split"), "CAST(split AS TEXT)");
  return std::regex_replace(texts, std::regex("@([a-z]+)"), "CAST($1 AS INTEGER)");
}

void WriteRandomly(SqlStore& store, Rng& rng) {
  for (int commit = 0; commit < 5; ++commit) {
    WriteBatch batch;
    for (int i = 0; i < 10; ++i) {
      const auto node = static_cast<NodeId>(rng.Below(kNodes));
      batch.SetLabel(node, static_cast<int64_t>(rng.Below(6)) - 1);
      batch.SetSplit(static_cast<NodeId>(rng.Below(kNodes)), static_cast<Split>(rng.Below(4)));
      batch.Delete("feature", rng.Below(kNodes));
    }
    ASSERT_OK(store.store().Write(batch));
  }
}

class PushdownTest : public testing::TestWithParam<bool> {};

TEST_P(PushdownTest, GivesTheRowsThatSqliteItselfFinds) {
  SqlStore store(
      TinyGraph{.nodes = kNodes, .dim = 6, .type = ElementType::kFloat16, .both_directions = GetParam()});
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Rng rng(kSeed);
  WriteRandomly(store, rng);
  for (int i = 0; i < 400; ++i) {
    const Subject& subject = kSubjects[rng.Below(std::size(kSubjects))];
    const std::string where = RandomWhere(subject, rng);
    const std::string text = "SELECT " + subject.select + " FROM " + subject.table + where;
    SCOPED_TRACE(Plain(text));
    std::vector<std::string> found = Lines(store.sql(), Plain(text));
    std::vector<std::string> expected = Lines(store.sql(), Cast(text));
    std::ranges::sort(found);
    std::ranges::sort(expected);
    ASSERT_EQ(found, expected);
  }
}

TEST_P(PushdownTest, LimitsAndOrdersAreSqlites) {
  SqlStore store(TinyGraph{.nodes = kNodes, .dim = 6, .both_directions = GetParam()});
  constexpr uint64_t kSeed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Rng rng(kSeed);
  for (int i = 0; i < 300; ++i) {
    const Subject& subject = kSubjects[rng.Below(std::size(kSubjects))];
    const std::string select = "SELECT " + subject.select + " FROM " + subject.table;
    const std::string where = RandomWhere(subject, rng);
    const std::string end =
        fmt::format(" LIMIT {} OFFSET {}", static_cast<int>(rng.Below(40)) - 1, rng.Below(3) * rng.Below(30));
    const std::string text = Plain(select + where) + " ORDER BY " + subject.order + end;
    SCOPED_TRACE(text);
    const std::string cast = Cast(select + where) + " ORDER BY +" +
                             std::regex_replace(subject.order, std::regex(", "), ", +") + end;
    ASSERT_EQ(Lines(store.sql(), text), Lines(store.sql(), cast));
  }
}

// Against the generator, with rows that were written, in scans and in lists.
TEST(SqlFeaturesTest, AreTheNewestOfEachNode) {
  const TinyGraph graph{.nodes = 3000, .dim = 128};
  SqlStore store(graph);
  constexpr uint64_t kSeed = 8;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  Rng rng(kSeed);
  std::map<uint64_t, std::string> expected;
  for (NodeId v = 0; v < graph.nodes; ++v) expected[v] = Hex(graph.Row(v));
  for (int commit = 0; commit < 2; ++commit) {
    WriteBatch batch;
    for (int i = 0; i < 20; ++i) {
      const uint64_t node = rng.Below(graph.nodes), other = rng.Below(graph.nodes);
      batch.Put("feature", node, graph.Row(static_cast<NodeId>(other)));
      expected[node] = Hex(graph.Row(static_cast<NodeId>(other)));
    }
    ASSERT_OK(store.store().Write(batch));
    std::vector<std::string> lines;
    for (const auto& [node, row] : expected) lines.push_back(fmt::format("{}|{}", node, row));
    EXPECT_EQ(Lines(store.sql(), "SELECT id, feature FROM features"), lines);
    EXPECT_EQ(Lines(store.sql(), "SELECT id, feature FROM features WHERE id IN (SELECT id FROM nodes)"),
              lines);
  }
}

INSTANTIATE_TEST_SUITE_P(Sql, PushdownTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "BothDirections" : "Incoming"; });

}  // namespace
}  // namespace quarry
