#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "quarry/base/random.h"
#include "quarry/sampling/sampler.h"
#include "sql/sql_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::Lines;
using testing_util::SqlStore;
using testing_util::TenNodes;
using testing_util::TinyGraph;

TEST(NeighborsTest, OfASmallGraph) {
  SqlStore store(TenNodes(), {.both_directions = true});
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(1)"), ElementsAre("0|1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(0, 2, 'out')"),
              ElementsAre("1|1", "2|1", "3|1", "4|2"));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(0, 1, 'both')"),
              ElementsAre("1|1", "2|1", "3|1", "9|1"));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(0, 0)"), IsEmpty());
  EXPECT_THAT(Lines(store.sql(), "SELECT count(*), max(hop) FROM neighbors(5, 1000)"), ElementsAre("9|7"));
  EXPECT_THAT(Lines(store.sql(), "SELECT n.id, e.node FROM nodes n, neighbors(n.id) e WHERE n.id IN (0, 2)"),
              ElementsAre("0|9", "2|0", "2|1"));
}

TEST(NeighborsTest, AreWhatARecursiveQueryFinds) {
  for (const bool both : {false, true}) {
    constexpr uint64_t kSeed = 3;
    SCOPED_TRACE(testing::Message() << "both directions " << both << ", seed " << kSeed);
    SqlStore store(TinyGraph{.nodes = 300, .degree = 1, .both_directions = both});
    Rng rng(kSeed);
    for (int i = 0; i < 20; ++i) {
      const uint64_t id = rng.Below(300), hops = rng.Below(5);
      const bool out = both && rng.Below(2) == 0;
      const std::string found =
          fmt::format("SELECT node, hop FROM neighbors({}, {}, '{}')", id, hops, out ? "out" : "in");
      const std::string expected = fmt::format(
          "WITH RECURSIVE r(node, hop) AS (SELECT {0}, 0 UNION SELECT e.{2}, hop + 1 FROM r JOIN edges e ON "
          "e.{3} = r.node WHERE hop < {1}) SELECT node, min(hop) AS least FROM r WHERE node <> {0} GROUP BY "
          "node "
          "ORDER BY least, node",
          id, hops, out ? "dst" : "src", out ? "src" : "dst");
      ASSERT_EQ(Lines(store.sql(), found), Lines(store.sql(), expected)) << found;
    }
  }
}

TEST(NeighborsTest, RefusesArgumentsThatAreNone) {
  SqlStore store(TenNodes());
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(10)"),
              ElementsAre("invalid argument: neighbors: the id is a whole number from 0 to 9"));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(1, -1)"),
              ElementsAre(HasSubstr("hops is a whole number")));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(1, 1, 'up')"),
              ElementsAre(HasSubstr("'in', 'out' or")));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors(1, 1, 'out')"),
              ElementsAre(HasSubstr("no lists of out-neighbors")));
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM neighbors"), ElementsAre(HasSubstr("no query solution")));
}

TEST(SampleBlockTest, IsTheBlockThatTheSamplerDraws) {
  SqlStore store(TinyGraph{.nodes = 500, .degree = 8});
  const auto topology = store.store().OpenTopology("graph").value();
  ASSERT_OK(topology->LoadIndices(store.store().backend(), Adjacency::kCsc));
  const std::vector<uint32_t> fanouts = {4, 3};
  const auto sampler = NeighborSampler::Make({.topology = topology.get()}, {.fanouts = fanouts}).value();
  Block block;
  const std::vector<NodeId> seeds = {7, 100, 499};
  ASSERT_OK(sampler->Sample(seeds, 21, block));
  std::vector<std::string> expected;
  for (uint32_t v = 0; v + 1 < block.indptr.size(); ++v) {
    for (uint32_t i = block.indptr[v]; i < block.indptr[v + 1]; ++i) {
      expected.push_back(
          fmt::format("{}|{}|{}", v < 3 ? 1 : 2, block.nodes[block.indices[i]], block.nodes[v]));
    }
  }
  EXPECT_EQ(Lines(store.sql(), "SELECT * FROM sample_block('[7, 100, 499]', '[4, 3]', 21)"), expected);
  EXPECT_GT(expected.size(), 12u);
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM sample_block('[]', '[4]')"), IsEmpty());
}

TEST(SampleBlockTest, RefusesArgumentsThatAreNone) {
  SqlStore store(TenNodes());
  const auto refused = [&](std::string_view call) {
    return testing::PrintToString(Lines(store.sql(), "SELECT * FROM " + std::string(call)));
  };
  EXPECT_THAT(refused("sample_block('[10]', '[1]')"), HasSubstr("invalid argument"));
  EXPECT_THAT(refused("sample_block('[1, 1]', '[1]')"), HasSubstr("invalid argument"));
  EXPECT_THAT(refused("sample_block('[1]', '[0]')"), HasSubstr("usage"));
  EXPECT_THAT(refused("sample_block('[1.5]', '[1]')"), HasSubstr("seeds: byte 2: expected a JSON array"));
  EXPECT_THAT(refused("sample_block('[1]', 5)"), HasSubstr("fanouts are missing"));
  EXPECT_THAT(refused("sample_block('[1]')"), HasSubstr("fanouts are missing"));
}

}  // namespace
}  // namespace quarry
