// Joins that look up nodes and lists of edges, one for each of their rows, against the same join over full scans
// of both tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "quarry/base/random.h"
#include "sql/sql_database.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing_util::Lines;
using testing_util::ReadRows;
using testing_util::SqlStore;
using testing_util::TinyGraph;

constexpr const char* kEqualLabels =
    "SELECT e.src, e.dst FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = e.dst "
    "WHERE s.label = d.label";
constexpr const char* kBySplits =
    "SELECT s.split, d.split, count(*) FROM edges e JOIN nodes s ON s.id = e.src JOIN nodes d ON d.id = "
    "e.dst "
    "GROUP BY 1, 2 ORDER BY 1, 2";
// Two lists an edge, whichever table comes first.
constexpr const char* kTwoHops =
    "SELECT n.id, count(*) FROM nodes n JOIN edges a ON a.dst = n.id JOIN edges b ON b.dst = a.src "
    "WHERE n.label = 3 GROUP BY 1 ORDER BY 1";

struct Scanned {
  std::vector<std::string> label, split;  // "" for NULL
  std::vector<std::pair<size_t, size_t>> edges;
};

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == '|') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

Scanned ScanAll(sql::Connection& sql) {
  Scanned all;
  for (const std::string& line : Lines(sql, "SELECT label, split FROM nodes")) {
    all.label.push_back(Fields(line)[0]);
    all.split.push_back(Fields(line)[1]);
  }
  for (const std::string& line : Lines(sql, "SELECT src, dst FROM edges")) {
    all.edges.emplace_back(std::stoul(Fields(line)[0]), std::stoul(Fields(line)[1]));
  }
  return all;
}

void ExpectJoins(sql::Connection& sql) {
  const Scanned all = ScanAll(sql);
  ASSERT_FALSE(all.edges.empty());
  std::multiset<std::string> equal;
  std::map<std::string, uint64_t> by_splits, two_hops;
  std::vector<uint64_t> in_degrees(all.label.size());
  for (const auto& [source, destination] : all.edges) ++in_degrees[destination];
  for (const auto& [source, destination] : all.edges) {
    if (!all.label[source].empty() && all.label[source] == all.label[destination]) {
      equal.insert(fmt::format("{}|{}", source, destination));
    }
    ++by_splits[all.split[source] + "|" + all.split[destination]];
    if (all.label[destination] == "3" && in_degrees[source] > 0) {
      two_hops[fmt::format("{:09}", destination)] += in_degrees[source];
    }
  }
  const std::vector<std::string> found = Lines(sql, kEqualLabels);
  EXPECT_EQ(std::multiset<std::string>(found.begin(), found.end()), equal);
  std::vector<std::string> lines;
  for (const auto& [splits, count] : by_splits) lines.push_back(fmt::format("{}|{}", splits, count));
  EXPECT_EQ(Lines(sql, kBySplits), lines);
  lines.clear();
  for (const auto& [node, count] : two_hops) lines.push_back(fmt::format("{}|{}", std::stoul(node), count));
  EXPECT_EQ(Lines(sql, kTwoHops), lines);
}

void WriteSome(SqlStore& store, Rng& rng, uint64_t nodes) {
  WriteBatch batch;
  for (int i = 0; i < 50; ++i) {
    batch.SetLabel(static_cast<NodeId>(rng.Below(nodes)), static_cast<int64_t>(rng.Below(6)) - 1);
    batch.SetSplit(static_cast<NodeId>(rng.Below(nodes)), static_cast<Split>(rng.Below(4)));
  }
  // One that takes more bytes than the others.
  batch.SetLabel(static_cast<NodeId>(rng.Below(nodes)), int64_t{1} << (10 + rng.Below(20)));
  ASSERT_OK(store.store().Write(batch));
}

class SqlJoinTest : public testing::TestWithParam<bool> {};

TEST_P(SqlJoinTest, FindsWhatScansFindAlsoBehindWrites) {
  constexpr uint64_t kSeed = 14, kNodes = 9000;  // labels of two pieces
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  SqlStore store(TinyGraph{.nodes = kNodes, .dim = 1, .both_directions = GetParam()});
  Rng rng(kSeed);
  ExpectJoins(store.sql());
  for (int commit = 0; commit < 3; ++commit) {
    WriteSome(store, rng, kNodes);
    ExpectJoins(store.sql());
  }
}

TEST_P(SqlJoinTest, FindsWhatItsOwnTransactionHasWritten) {
  SqlStore store(TinyGraph{.nodes = 2000, .dim = 1, .both_directions = GetParam()});
  const auto writer = store.Connect({.write = true});
  ExpectJoins(*writer);
  ASSERT_OK(ReadRows(writer->Query("BEGIN")));
  ASSERT_OK(ReadRows(writer->Query("UPDATE nodes SET label = 3, split = 'test' WHERE id % 11 = 4")));
  ExpectJoins(*writer);
  ASSERT_OK(ReadRows(writer->Query("ROLLBACK")));
  ExpectJoins(*writer);
  ASSERT_OK(ReadRows(writer->Query("UPDATE nodes SET label = 2 WHERE id % 13 = 4")));
  ExpectJoins(*writer);
  ExpectJoins(store.sql());
}

// Pieces are let go of and read again, also while cursors of the same statement stand on them.
TEST_P(SqlJoinTest, FindsTheSameInLittleMemory) {
  SqlStore store(TinyGraph{.nodes = 60'000, .dim = 1, .degree = 8, .both_directions = GetParam()});
  // A seventh of the nodes, spread over all pages: what is not in memory is read once for each row.
  const std::string equal_labels = std::string(kEqualLabels) + " AND e.dst % 7 = 3";
  std::string some_hops = kTwoHops;
  some_hops.insert(some_hops.find("GROUP BY"), "AND n.id % 7 = 3 ");
  const std::vector<std::string> equal = Lines(store.sql(), equal_labels);
  const std::vector<std::string> two_hops = Lines(store.sql(), some_hops);
  EXPECT_GT(two_hops.size(), 100U);
  MemoryBudget budget(14 * kMiB);
  const auto connection = sql::Connection::Open(store.store(), budget, {}).value();
  EXPECT_EQ(Lines(*connection, some_hops), two_hops);
  std::vector<std::string> found = Lines(*connection, equal_labels);
  std::vector<std::string> expected = equal;
  std::ranges::sort(found);
  std::ranges::sort(expected);
  EXPECT_EQ(found, expected);
}

INSTANTIATE_TEST_SUITE_P(Sql, SqlJoinTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "BothDirections" : "Incoming"; });

TEST(SqlLookupTest, ReadsATableOnceForAllLookups) {
  const std::unique_ptr<IoBackend> disk = MakeDefaultBackend();
  auto counting = std::make_unique<FaultBackend>(*disk);
  FaultBackend& backend = *counting;
  SqlStore store(TinyGraph{.nodes = 5000, .dim = 1}, std::move(counting));
  backend.SetPlans({});
  const auto equal = Lines(store.sql(), kEqualLabels);
  EXPECT_GT(equal.size(), 1000U);
  EXPECT_LT(backend.count(FaultKind::kRead), 30U);  // 30,000 edges, of two labels each
  backend.SetPlans({});
  EXPECT_EQ(Lines(store.sql(), kEqualLabels), equal);
  EXPECT_LT(backend.count(FaultKind::kRead), 4U);  // of the scan
}

TEST(SqlLookupTest, GivesADamagedPageAsAnErrorAndGoesOn) {
  const std::unique_ptr<IoBackend> disk = MakeDefaultBackend();
  auto faulty = std::make_unique<FaultBackend>(*disk);
  FaultBackend& backend = *faulty;
  SqlStore store(TinyGraph{.nodes = 5000, .dim = 1}, std::move(faulty));
  const char* const text = "SELECT count(*) FROM edges e JOIN nodes s ON s.id = e.src WHERE e.dst < 50";
  ASSERT_THAT(Lines(store.sql(), "SELECT count(*) FROM edges WHERE dst < 50"), testing::SizeIs(1));
  const std::string with_label = std::string(text) + " AND s.label >= 0";
  backend.SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = EIO}});
  EXPECT_THAT(Lines(store.sql(), with_label), ElementsAre(testing::HasSubstr("I/O error")));
  backend.SetPlans({});
  EXPECT_THAT(Lines(store.sql(), with_label),
              ElementsAre(Lines(store.sql(),
                                "SELECT count(*) FROM edges e, nodes s WHERE e.dst < 50 AND "
                                "+s.id = e.src AND s.label >= 0")[0]));
}

TEST(SqlLookupTest, SplitsNamesAndDegreesOfSingleNodes) {
  SqlStore store(testing_util::TenNodes(), {.both_directions = true});
  EXPECT_THAT(
      Lines(store.sql(),
            "SELECT n.name, n.split, n.label, n.in_degree, n.out_degree FROM edges e "
            "JOIN nodes n ON n.id = e.dst WHERE e.src = 0 ORDER BY e.dst, e.relation"),
      ElementsAre("node-1|train|1|2|1", "node-1|train|1|2|1", "node-2|train|2|2|1", "node-3|train|0|2|1"));
  // No node has such an id, and no condition on a label holds for one without.
  EXPECT_THAT(
      Lines(store.sql(),
            "SELECT v.value, (SELECT label FROM nodes WHERE id = v.value) FROM "
            "(SELECT 3 AS value UNION ALL SELECT -1 UNION ALL SELECT 10 UNION ALL SELECT NULL UNION ALL "
            "SELECT 2.0 UNION ALL SELECT 2.5 UNION ALL SELECT '4' UNION ALL SELECT 'x') v"),
      ElementsAre("3|0", "-1|", "10|", "|", "2.0|2", "2.5|", "4|1", "x|"));
}

}  // namespace
}  // namespace quarry
