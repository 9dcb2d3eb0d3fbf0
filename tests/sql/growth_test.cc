// INSERT INTO edges and nodes, DELETE FROM both: the graph afterwards is the one that GraphChange, and so `quarry add` and
// `quarry remove`, make of the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "quarry/base/random.h"
#include "quarry/import/graph_change.h"
#include "sql/sql_database.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::Lines;
using testing_util::SqlStore;
using testing_util::TinyGraph;

constexpr const char* kAllEdges = "SELECT src, dst, weight FROM edges ORDER BY 1, 2, 3";
constexpr const char* kAllNodes = "SELECT id, label, split, in_degree FROM nodes";
constexpr const char* kAllRows = "SELECT id, feature FROM features";

// The edges 0 -> 1 -> ... -> 7 -> 0 of eight nodes, with weights of their sources.
Dataset Ring(bool names) {
  Dataset dataset = testing_util::TinyDataset(TinyGraph{.nodes = 8, .dim = 2});
  std::vector<Edge> edges;
  std::vector<float> weights;
  for (uint64_t node = 0; node < 8; ++node) {
    edges.push_back({node, (node + 1) % 8});
    weights.push_back(static_cast<float>(node));
    if (names) dataset.entity_names.push_back(fmt::format("n{}", node));
  }
  dataset.edges.clear();
  dataset.edges.push_back({.name = "",
                           .path = "memory",
                           .reader = std::make_unique<testing_util::VectorEdgeReader>(edges, weights)});
  return dataset;
}

class SqlGrowthTest : public testing::Test {
 protected:
  std::vector<std::string> Run(std::string_view text) { return Lines(*writer_, text); }
  std::vector<std::string> Read(std::string_view text) { return Lines(store_.sql(), text); }
  uint64_t Timestamp() { return store_.store().TakeSnapshot().value()->timestamp; }

  SqlStore store_{Ring(/*names=*/true)};
  std::unique_ptr<sql::Connection> writer_ = store_.Connect({.write = true});
};

TEST_F(SqlGrowthTest, AStatementOfEdgesIsACommit) {
  EXPECT_THAT(Run("INSERT INTO edges (src, dst, weight) VALUES (3, 5, 0.5), (3, 6, 2)"), IsEmpty());
  EXPECT_EQ(Timestamp(), 1u);
  EXPECT_THAT(Read("SELECT dst, weight FROM edges WHERE src = 3"), ElementsAre("4|3.0", "5|0.5", "6|2.0"));
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 3 AND dst IN (4, 6)"), IsEmpty());
  EXPECT_EQ(Timestamp(), 2u);
  EXPECT_THAT(Read("SELECT dst FROM edges WHERE src = 3"), ElementsAre("5"));
  EXPECT_THAT(Run("INSERT INTO edges (src, dst) SELECT dst, src FROM edges WHERE src < 2"), IsEmpty());
  EXPECT_EQ(Timestamp(), 3u);
  EXPECT_THAT(Read("SELECT src, dst, weight FROM edges WHERE dst < 2 AND src > 0"),
              ElementsAre("1|0|1.0", "7|0|7.0", "2|1|1.0"));
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 5 AND dst = 1"), IsEmpty());
  EXPECT_EQ(Timestamp(), 3u) << "nothing was there to go";
}

TEST_F(SqlGrowthTest, ATransactionOfNodesRowsAndEdgesIsOneCommit) {
  Run("BEGIN");
  EXPECT_THAT(Run("INSERT INTO nodes (name, label, split) VALUES ('new', 3, 'valid')"), IsEmpty());
  EXPECT_THAT(Run("SELECT last_insert_rowid()"), ElementsAre("8"));
  EXPECT_THAT(Run("INSERT OR REPLACE INTO features (id, feature) VALUES (8, vec_from_json('[1, 2]'))"),
              IsEmpty());
  EXPECT_THAT(Run("INSERT INTO nodes (id, name) VALUES (9, 'bare')"), IsEmpty());
  EXPECT_THAT(Run("INSERT INTO edges (src, dst) VALUES (8, 9), (0, 8)"), IsEmpty());
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 0"), IsEmpty());
  EXPECT_THAT(Run("UPDATE nodes SET label = 1 WHERE id = 0"), IsEmpty());
  EXPECT_THAT(Run("SELECT src, dst FROM edges WHERE src IN (0, 8)"), ElementsAre("0|1")) << "as before it";
  EXPECT_THAT(Run("SELECT count(*) FROM nodes"), ElementsAre("8"));
  EXPECT_EQ(Timestamp(), 0u);
  EXPECT_THAT(Run("COMMIT"), IsEmpty());
  EXPECT_THAT(Read("SELECT DISTINCT timestamp FROM nodes WHERE id IN (0, 8, 9)"),
              ElementsAre(fmt::format("{}", Timestamp())))
      << "of one commit";
  for (sql::Connection* const connection : {writer_.get(), &store_.sql()}) {
    EXPECT_THAT(Lines(*connection, "SELECT id, name, label, split FROM nodes WHERE id IN (0, 8, 9)"),
                ElementsAre("0|n0|1|train", "8|new|3|valid", "9|bare||none"));
    EXPECT_THAT(Lines(*connection, "SELECT id, vec_to_json(feature) FROM features WHERE id > 7"),
                ElementsAre("8|[1,2]", "9|[0,0]"));
    EXPECT_THAT(Lines(*connection, "SELECT src, dst, weight FROM edges WHERE src IN (0, 8)"),
                ElementsAre("0|8|1.0", "8|9|1.0"));
  }
}

TEST_F(SqlGrowthTest, RefusesWhatTheGraphCannotTake) {
  const std::pair<const char*, const char*> cases[] = {
      {"INSERT INTO edges (src, dst) VALUES (0, 8)", "edges: dst is 8; ids of nodes are 0 to 7"},
      {"INSERT INTO edges (src, dst) VALUES (-1, 0)", "edges: src is -1; ids"},
      {"INSERT INTO edges (dst) VALUES (0)", "edges: src is no integer"},
      {"INSERT INTO edges (src, dst, weight) VALUES (0, 2, 'x')",
       "a weight is a number that float32 can hold"},
      {"INSERT INTO edges (src, dst, weight) VALUES (0, 2, 1e300)",
       "a weight is a number that float32 can hold"},
      {"INSERT INTO edges (src, dst, relation) VALUES (0, 2, 1)", "relation is 1; relations are 0 to 0"},
      {"INSERT INTO edges (src, dst, type) VALUES (0, 2, 'a:b:c')", "there is no type 'a:b:c' of edges"},
      {"UPDATE edges SET src = 3 WHERE src = 1",
       "src of an edge cannot be set, its weight alone can: DELETE"},
      {"UPDATE edges SET dst = 3, weight = 1 WHERE src = 1", "dst of an edge cannot be set"},
      {"UPDATE edges SET relation = 0 WHERE src = 1", "relation of an edge cannot be set"},
      {"UPDATE edges SET type = 'a:b:c' WHERE src = 1", "type of an edge cannot be set"},
      {"UPDATE edges SET weight = 'x' WHERE src = 1", "a weight is a number that float32 can hold"},
      {"UPDATE edges SET weight = -1e300", "a weight is a number that float32 can hold"},
      {"UPDATE edges SET weight = NULL WHERE src = 1", "has a weight: set a number, not NULL"},
      {"INSERT INTO nodes (label) VALUES (1)", "give a text as the name"},
      {"INSERT INTO nodes (name) VALUES (7)", "give a text as the name"},
      {"INSERT INTO nodes (name) VALUES ('n3')", "the name \"n3\" of node 8 is that of node 3"},
      {"INSERT INTO nodes (name) VALUES ('a'), ('a')", "the name \"a\" of node 9 comes twice"},
      {"INSERT INTO nodes (id, name) VALUES (3, 'a')", "the next node is 8"},
      {"INSERT OR REPLACE INTO nodes (id, name) VALUES (3, 'a')", "the next node is 8"},
      {"INSERT INTO nodes (name, in_degree) VALUES ('a', 3)", "in_degree of a new node cannot be set"},
      {"INSERT INTO nodes (name, label) VALUES ('a', -7)", "the label of node 8"},
      {"INSERT OR REPLACE INTO features (id, feature) VALUES (8, zeroblob(8))", "are 0 to 7"},
  };
  const std::vector<std::string> edges = Read(kAllEdges), nodes = Read(kAllNodes);
  for (const auto& [text, error] : cases) {
    EXPECT_THAT(Run(text), ElementsAre(HasSubstr(error))) << text;
  }
  EXPECT_EQ(Timestamp(), 0u);
  EXPECT_EQ(Read(kAllEdges), edges);
  EXPECT_EQ(Read(kAllNodes), nodes);
  for (const char* const text : {"INSERT INTO edges (src, dst) VALUES (0, 2)",
                                 "DELETE FROM edges WHERE src = 0", "UPDATE edges SET weight = 1"}) {
    EXPECT_THAT(Read(text), ElementsAre(HasSubstr("table edges may not be modified"))) << "only read";
  }
}

TEST_F(SqlGrowthTest, AnUpdateSetsWeightsByOneCommit) {
  EXPECT_THAT(Run("UPDATE edges SET weight = 2.5 WHERE src = 3 AND dst = 4"), IsEmpty());
  EXPECT_EQ(Timestamp(), 1u);
  EXPECT_THAT(Read("SELECT src, dst, weight FROM edges WHERE src IN (2, 3)"),
              ElementsAre("2|3|2.0", "3|4|2.5"));
  EXPECT_THAT(Run("UPDATE edges SET weight = weight * 2 + src WHERE dst > 5"), IsEmpty());
  EXPECT_EQ(Timestamp(), 2u);
  EXPECT_THAT(Read("SELECT src, dst, weight FROM edges WHERE dst > 4"),
              ElementsAre("4|5|4.0", "5|6|15.0", "6|7|18.0"));
  EXPECT_THAT(Run("UPDATE edges SET weight = 7 WHERE src = 5 AND dst = 1"), IsEmpty());
  EXPECT_EQ(Timestamp(), 2u) << "no edge has a weight to set";
  EXPECT_THAT(Read("SELECT count(*), sum(weight) FROM edges"), ElementsAre("8|49.5"));
  EXPECT_THAT(
      Read(
          "SELECT runs, run_commits, run_edges_added, run_edges_removed, commits, changed_edges FROM growth"),
      ElementsAre("2|2|3|3|2|6"));
}

TEST_F(SqlGrowthTest, AWeightThatIsSetGoesWithItsEdge) {
  Run("BEGIN");
  EXPECT_THAT(Run("UPDATE edges SET weight = 30 WHERE src < 6"), IsEmpty());
  EXPECT_THAT(Run("UPDATE edges SET weight = 31 WHERE src = 1"), IsEmpty()) << "the last one counts";
  Run("SAVEPOINT s");
  EXPECT_THAT(Run("UPDATE edges SET weight = 32"), IsEmpty());
  Run("ROLLBACK TO s");
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 2"), IsEmpty());
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 6"), IsEmpty());
  EXPECT_THAT(Run("UPDATE edges SET weight = 33 WHERE src = 6"), IsEmpty()) << "and it stays deleted";
  EXPECT_THAT(Run("DELETE FROM nodes WHERE id = 4"), IsEmpty());
  EXPECT_THAT(Run("SELECT weight FROM edges WHERE src = 1"), ElementsAre("1.0"))
      << "as before the transaction";
  EXPECT_EQ(Timestamp(), 0u);
  EXPECT_THAT(Run("COMMIT"), IsEmpty());
  const uint64_t after = Timestamp();
  EXPECT_THAT(Read(kAllEdges), ElementsAre("0|1|30.0", "1|2|31.0", "5|6|30.0", "7|0|7.0"));
  Run("BEGIN");
  EXPECT_THAT(Run("UPDATE edges SET weight = 1"), IsEmpty());
  Run("ROLLBACK");
  EXPECT_EQ(Timestamp(), after);
  EXPECT_THAT(Read("SELECT max(weight) FROM edges"), ElementsAre("31.0"));
}

TEST_F(SqlGrowthTest, WeightsOfEdgesThatChangedMeanwhileAreNotSet) {
  Run("BEGIN");
  EXPECT_THAT(Run("UPDATE edges SET weight = 9 WHERE src = 1"), IsEmpty());
  {
    ASSERT_OK_AND_ASSIGN(const auto change, GraphChange::Create(store_.store(), store_.budget(),
                                                                {.memory_bytes = kGraphChangeBytesMin}));
    ASSERT_OK(change->Remove(std::vector<Edge>{{1, 2}}));
    ASSERT_OK(change->Commit());
  }
  EXPECT_THAT(Run("COMMIT"), ElementsAre(HasSubstr("edges came or went while the transaction set weights")));
  EXPECT_THAT(Read("SELECT count(*) FROM edges WHERE src = 1"), ElementsAre("0"));
  EXPECT_THAT(Run("UPDATE edges SET weight = 9 WHERE src = 2"), IsEmpty()) << "the transaction has ended";
  EXPECT_THAT(Read("SELECT weight FROM edges WHERE src = 2"), ElementsAre("9.0"));
}

// By id, by name, by label; the id stays, of a node with nothing.
TEST_F(SqlGrowthTest, DeletedNodesGoWithTheirEdgesByOneCommit) {
  EXPECT_THAT(Run("UPDATE nodes SET label = 4 WHERE id IN (5, 6)"), IsEmpty());
  const uint64_t before = Timestamp();
  EXPECT_THAT(Run("DELETE FROM nodes WHERE name = 'n3'"), IsEmpty());
  EXPECT_GT(Timestamp(), before);
  EXPECT_THAT(Read("SELECT id, name, label, split, in_degree FROM nodes WHERE id = 3"),
              ElementsAre("3|n3||none|0"));
  EXPECT_THAT(Read("SELECT vec_to_json(feature) FROM features WHERE id = 3"), ElementsAre("[0,0]"));
  EXPECT_THAT(Read("SELECT src, dst FROM edges WHERE src IN (2, 3, 4)"), ElementsAre("4|5"));
  Run("BEGIN");
  EXPECT_THAT(Run("INSERT INTO nodes (name) VALUES ('new')"), IsEmpty());
  EXPECT_THAT(Run("INSERT INTO edges (src, dst) VALUES (0, 8)"), IsEmpty());
  EXPECT_THAT(Run("DELETE FROM nodes WHERE label = 4"), IsEmpty());
  EXPECT_THAT(Run("UPDATE nodes SET label = 2, split = 'test' WHERE id = 5"), IsEmpty());
  Run("SAVEPOINT s");
  EXPECT_THAT(Run("DELETE FROM nodes"), IsEmpty());
  Run("ROLLBACK TO s");
  EXPECT_THAT(Run("DELETE FROM edges WHERE src = 4"), IsEmpty()) << "it would go with node 5, too";
  EXPECT_THAT(Run("SELECT label FROM nodes WHERE id = 6"), ElementsAre("4")) << "as before the transaction";
  EXPECT_THAT(Run("COMMIT"), IsEmpty());
  const uint64_t after = Timestamp();
  EXPECT_THAT(Read("SELECT DISTINCT timestamp FROM nodes WHERE id IN (5, 6, 8)"),
              ElementsAre(fmt::format("{}", after)))
      << "of one commit";
  EXPECT_THAT(Read("SELECT id, label, split FROM nodes WHERE id BETWEEN 5 AND 6"),
              ElementsAre("5||none", "6||none"))
      << "removed, whatever else was written to it";
  EXPECT_THAT(Read("SELECT src, dst FROM edges"), ElementsAre("7|0", "0|1", "1|2", "0|8"));
  EXPECT_THAT(Run("DELETE FROM nodes WHERE id = 99 OR name = 'nobody'"), IsEmpty());
  EXPECT_EQ(Timestamp(), after) << "nobody was there to go";
  Run("BEGIN");
  EXPECT_THAT(Run("INSERT INTO edges (src, dst) VALUES (0, 2)"), IsEmpty());
  EXPECT_THAT(Run("DELETE FROM nodes WHERE id = 2"), IsEmpty());
  EXPECT_THAT(Run("COMMIT"), ElementsAre(HasSubstr("0 to 2, and the change removes node 2")));
  EXPECT_EQ(Timestamp(), after) << "all or nothing";
  EXPECT_THAT(Read("DELETE FROM nodes WHERE id = 1"),
              ElementsAre(HasSubstr("table nodes may not be modified")))
      << "only read";
}

TEST_F(SqlGrowthTest, NodesThatOthersAddMeanwhileAreNotMixedUp) {
  Run("BEGIN");
  EXPECT_THAT(Run("INSERT INTO nodes (name) VALUES ('mine')"), IsEmpty());
  const auto other = store_.Connect({.write = true});
  EXPECT_THAT(Lines(*other, "INSERT INTO nodes (name) VALUES ('theirs')"), IsEmpty());
  EXPECT_THAT(Run("COMMIT"), ElementsAre(HasSubstr("there are 9 nodes, not 8")));
  EXPECT_THAT(Read("SELECT name FROM nodes WHERE id >= 8"), ElementsAre("theirs"));
  EXPECT_THAT(Run("INSERT INTO nodes (name) VALUES ('mine')"), IsEmpty()) << "the transaction has ended";
  EXPECT_THAT(Read("SELECT id, name FROM nodes WHERE id >= 8"), ElementsAre("8|theirs", "9|mine"));
}

TEST(SqlGrowthRefusalTest, EdgesOfSeveralRelationsSayWhich) {
  SqlStore store{testing_util::TenNodes()};  // of two relations
  const auto writer = store.Connect({.write = true});
  const auto refused = [&](const char* text, const char* why) {
    EXPECT_THAT(Lines(*writer, text), ElementsAre(HasSubstr(why))) << text;
  };
  refused("INSERT INTO edges (src, dst) VALUES (0, 2)", "the graph has 2 relations: give relation");
  refused("INSERT INTO edges (src, dst, relation) VALUES (0, 2, 2)", "relation is 2; relations are 0 to 1");
  refused("INSERT INTO edges (src, dst, type) VALUES (0, 2, 'cites')", "there is no type 'cites' of edges");
  EXPECT_THAT(Lines(*writer, "INSERT INTO edges (src, dst, relation) VALUES (0, 2, 1), (0, 2, 0), (0, 2, 1)"),
              IsEmpty());
  EXPECT_THAT(
      Lines(*writer, "SELECT relation, count(*) FROM edges WHERE src = 0 AND dst = 2 GROUP BY relation"),
      ElementsAre("0|1", "1|3"));
  // Those of one relation go, and the other one's stay.
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 0 AND dst = 2 AND relation = 1"), IsEmpty());
  EXPECT_THAT(
      Lines(*writer, "SELECT relation, count(*) FROM edges WHERE src = 0 AND dst = 2 GROUP BY relation"),
      ElementsAre("0|1"));
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 0 AND dst = 2"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "SELECT relation, count(*) FROM edges GROUP BY relation"),
              ElementsAre("0|10", "1|2"));
  EXPECT_THAT(Lines(*writer, "DELETE FROM nodes WHERE id = 1"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "SELECT count(*) FROM edges WHERE src = 1 OR dst = 1"), ElementsAre("0"));
}

TEST(SqlGrowthRefusalTest, WhatAGraphDoesNotHave) {
  SqlStore plain{TinyGraph{.nodes = 20, .dim = 2}};
  EXPECT_THAT(Lines(*plain.Connect({.write = true}), "INSERT INTO edges (src, dst, weight) VALUES (0, 2, 1)"),
              ElementsAre(HasSubstr("have no weights")));
  EXPECT_THAT(Lines(*plain.Connect({.write = true}), "UPDATE edges SET weight = 2 WHERE src = 1"),
              ElementsAre(HasSubstr("those of this graph have no weights to be set")));
  EXPECT_THAT(Lines(*plain.Connect({.write = true}), "INSERT INTO nodes (name) VALUES ('x')"),
              ElementsAre(HasSubstr("nodes have no names")));
}

// TenNodes has weights, of "likes" alone; the other relation's are 1.
TEST(SqlGrowthTypesTest, WeightsAreSetByRelation) {
  SqlStore store{testing_util::TenNodes(), {.both_directions = true}};
  const auto writer = store.Connect({.write = true});
  const char* const both = "SELECT relation, weight FROM edges WHERE src = 0 AND dst = 1 ORDER BY 1";
  EXPECT_THAT(Lines(*writer, both), ElementsAre("0|1.0", "1|0.5"));
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = 4 WHERE src = 0 AND dst = 1 AND relation = 1"),
              IsEmpty());
  EXPECT_THAT(Lines(*writer, both), ElementsAre("0|1.0", "1|4.0"));
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = weight + 1 WHERE dst = 1"), IsEmpty());
  EXPECT_THAT(Lines(*writer, both), ElementsAre("0|2.0", "1|5.0"));
  EXPECT_THAT(Lines(*writer, "SELECT relation, count(*) FROM edges GROUP BY relation"),
              ElementsAre("0|10", "1|3"));
}

TEST(SqlGrowthTypesTest, OfAnUndirectedGraphTheReverseGetsTheWeightToo) {
  SqlStore store{testing_util::TinyDataset({.nodes = 20, .dim = 2, .weighted = true}), {.undirected = true}};
  const auto writer = store.Connect({.write = true});
  EXPECT_THAT(Lines(*writer, "INSERT INTO edges (src, dst, weight) VALUES (18, 19, 1)"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = 6 WHERE src = 18 AND dst = 19"), IsEmpty());
  EXPECT_THAT(Lines(store.sql(), "SELECT src, weight FROM edges WHERE src + dst = 37 AND src IN (18, 19)"),
              ElementsAre("19|6.0", "18|6.0"));
  Lines(*writer, "BEGIN");
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = 8 WHERE src = 18 AND dst = 19"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "INSERT INTO edges (src, dst, weight) VALUES (19, 18, 2)"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "COMMIT"),
              ElementsAre(HasSubstr("inserts the edge from 19 to 18 and sets its weight")));
  Lines(*writer, "BEGIN");
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = 8 WHERE src = 18 AND dst = 19"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 19 AND dst = 18"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "COMMIT"), IsEmpty());
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM edges WHERE src = 18 AND dst = 19"), IsEmpty());
}

TEST(SqlGrowthTypesTest, ParallelEdgesHaveWeightsOfTheirOwn) {
  SqlStore store{TinyGraph{.nodes = 20, .dim = 2, .weighted = true}};
  const auto writer = store.Connect({.write = true});
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 1 AND dst = 2"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "INSERT INTO edges (src, dst, weight) VALUES (1, 2, 1), (1, 2, 2), (1, 2, 1)"),
              IsEmpty());
  const char* const all = "SELECT weight FROM edges WHERE src = 1 AND dst = 2 ORDER BY 1";
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = 5 WHERE src = 1 AND dst = 2 AND weight = 2"),
              IsEmpty());
  EXPECT_THAT(Lines(store.sql(), all), ElementsAre("1.0", "1.0", "5.0")) << "the others keep theirs";
  EXPECT_THAT(Lines(*writer, "UPDATE edges SET weight = weight + 2 WHERE src = 1 AND dst = 2"), IsEmpty());
  EXPECT_THAT(Lines(store.sql(), all), ElementsAre("3.0", "3.0", "7.0"));
}

TEST(SqlGrowthRefusalTest, ParallelEdgesGoTogether) {
  SqlStore store{TinyGraph{.nodes = 20, .dim = 2, .weighted = true}};
  const auto writer = store.Connect({.write = true});
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 1 AND dst = 2"), IsEmpty());
  EXPECT_THAT(Lines(*writer, "INSERT INTO edges (src, dst, weight) VALUES (1, 2, 1), (1, 2, 2), (1, 2, 1)"),
              IsEmpty());
  const std::vector<std::string> edges = Lines(store.sql(), kAllEdges);
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 1 AND dst = 2 AND weight = 1"),
              ElementsAre(HasSubstr("2 of the 3 parallel edges from 1 to 2")));
  EXPECT_EQ(Lines(store.sql(), kAllEdges), edges);
  EXPECT_THAT(Lines(*writer, "DELETE FROM edges WHERE src = 1 AND dst = 2"), IsEmpty());
  EXPECT_THAT(Lines(store.sql(), "SELECT * FROM edges WHERE src = 1 AND dst = 2"), IsEmpty());
}

// What random transactions ask for, until it is committed.
struct Asked {
  std::vector<Edge> added;
  std::vector<float> weights;
  std::set<std::pair<uint64_t, uint64_t>> removed;
  // For each edge that was there, its copies' weights from before, and those that they get.
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::pair<float, float>>> weighed;
  std::set<NodeId> gone;
  uint64_t nodes = 0;
  WriteBatch rows;
};

class RandomGrowth {
 public:
  RandomGrowth(const TinyGraph& graph, const ImportOptions& options, uint64_t seed)
      : graph_(graph),
        store_(testing_util::TinyDataset(graph), options),
        twin_(testing_util::TinyDataset(graph), options),
        writer_(store_.Connect({.write = true})),
        rng_(seed),
        node_count_(graph.nodes) {}

  void Transaction() {
    Execute("BEGIN");
    Asked asked;
    for (uint64_t n = 1 + rng_.Below(8); n > 0; --n) {
      if (rng_.Below(4) > 0) {
        Statement(asked);
        continue;
      }
      Execute("SAVEPOINT s");
      Asked dropped = asked;
      for (uint64_t i = rng_.Below(3); i > 0; --i) Statement(dropped);
      Execute("ROLLBACK TO s");
      Execute("RELEASE s");
    }
    const bool commits = rng_.Below(4) > 0;
    Execute(commits ? "COMMIT" : "ROLLBACK");
    if (commits) Twin(asked);
  }
  void Compare() {
    for (const char* const text : {kAllEdges, kAllNodes, kAllRows}) {
      ASSERT_EQ(Lines(store_.sql(), text), Lines(twin_.sql(), text)) << text;
      ASSERT_EQ(Lines(*writer_, text), Lines(twin_.sql(), text)) << text;
    }
  }

 private:
  void Execute(const std::string& text) { ASSERT_THAT(Lines(*writer_, text), IsEmpty()) << text; }

  void Statement(Asked& asked) {
    const uint64_t nodes = node_count_ + asked.nodes;
    switch (rng_.Below(graph_.weighted ? 6 : 5)) {
      case 5: {
        const auto destination = rng_.Below(node_count_);
        const auto there =
            Lines(store_.sql(), fmt::format("SELECT src FROM edges WHERE dst = {}", destination));
        if (there.empty()) return;
        const Edge edge{std::stoull(there[rng_.Below(there.size())]), destination};
        const auto is_equal = [&](const Edge& added) {
          return (added.source == edge.source && added.destination == edge.destination) ||
                 (added.source == edge.destination && added.destination == edge.source);
        };
        if (std::ranges::any_of(asked.added, is_equal)) return;
        const auto weight = static_cast<float>(rng_.Below(9)) / 4,
                   least = static_cast<float>(rng_.Below(4)) / 2;
        const std::string where = fmt::format("WHERE src = {} AND dst = {}", edge.source, edge.destination);
        Execute(fmt::format("UPDATE edges SET weight = {} {} AND weight >= {}", weight, where, least));
        auto& copies = asked.weighed[{edge.source, edge.destination}];
        bool known = !copies.empty();
        for (const std::string& old : Lines(store_.sql(), "SELECT weight FROM edges " + where)) {
          if (!known) copies.emplace_back(std::stof(old), std::stof(old));
        }
        for (auto& [old, now] : copies) {
          if (old < least) continue;
          now = weight;
          known = true;
        }
        if (!known) asked.weighed.erase({edge.source, edge.destination});
        return;
      }
      case 4: {
        const auto node = static_cast<NodeId>(rng_.Below(node_count_));
        const auto touches = [&](const Edge& edge) {
          return edge.source == node || edge.destination == node;
        };
        if (std::ranges::any_of(asked.added, touches)) return;
        Execute(fmt::format("DELETE FROM nodes WHERE id = {}", node));
        asked.gone.insert(node);
        return;
      }
      case 0: {  // half of them are there
        Edge edge{rng_.Below(nodes), rng_.Below(nodes)};
        const auto there =
            Lines(store_.sql(), fmt::format("SELECT src FROM edges WHERE dst = {}", edge.destination));
        if (!there.empty() && rng_.Below(2) == 0) edge.source = std::stoull(there[rng_.Below(there.size())]);
        Execute(fmt::format("DELETE FROM edges WHERE src = {} AND dst = {}", edge.source, edge.destination));
        asked.removed.insert({edge.source, edge.destination});
        return;
      }
      case 1: {
        const auto label = static_cast<int64_t>(rng_.Below(5));
        Execute(fmt::format("INSERT INTO nodes (label, split) VALUES ({}, 'test')", label));
        asked.rows.SetLabel(static_cast<NodeId>(nodes), label);
        asked.rows.SetSplit(static_cast<NodeId>(nodes), Split::kTest);
        ++asked.nodes;
        return;
      }
      case 2: {
        const uint64_t node = rng_.Below(nodes);
        const std::vector<float> row(graph_.dim, static_cast<float>(rng_.Below(100)));
        Execute(
            fmt::format("INSERT OR REPLACE INTO features (id, feature) VALUES ({}, vec_from_json('[{},{}]'))",
                        node, row[0], row[1]));
        asked.rows.Put("feature", node, std::as_bytes(std::span(row)));
        return;
      }
      default: {
        const Edge edge{rng_.Below(nodes), rng_.Below(nodes)};
        if (asked.gone.contains(static_cast<NodeId>(edge.source)) ||
            asked.gone.contains(static_cast<NodeId>(edge.destination)) ||
            asked.weighed.contains({edge.source, edge.destination}) ||
            asked.weighed.contains({edge.destination, edge.source})) {
          return;
        }
        const float weight = static_cast<float>(rng_.Below(9)) / 4;
        Execute(graph_.weighted ? fmt::format("INSERT INTO edges (src, dst, weight) VALUES ({}, {}, {})",
                                              edge.source, edge.destination, weight)
                                : fmt::format("INSERT INTO edges (src, dst) VALUES ({}, {})", edge.source,
                                              edge.destination));
        asked.added.push_back(edge);
        if (graph_.weighted) asked.weights.push_back(weight);
      }
    }
  }

  void Twin(const Asked& asked) {
    const auto change = GraphChange::Create(twin_.store(), twin_.budget(),
                                            {.nodes = asked.nodes, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    const std::vector<NodeId> gone(asked.gone.begin(), asked.gone.end());
    ASSERT_OK((*change)->RemoveNodes(gone));
    std::vector<Edge> removed;
    for (const auto& [source, destination] : asked.removed) removed.push_back({source, destination});
    std::vector<Edge> added = asked.added;
    std::vector<float> weights = asked.weights;
    for (const auto& [ends, copies] : asked.weighed) {
      const auto [source, destination] = ends;
      const bool undirected = twin_.store().manifest()->FindTopology("graph")->undirected;
      if (asked.removed.contains(ends) || (undirected && asked.removed.contains({destination, source})) ||
          asked.gone.contains(static_cast<NodeId>(source)) ||
          asked.gone.contains(static_cast<NodeId>(destination))) {
        continue;
      }
      removed.push_back({source, destination});
      for (const auto& [old, now] : copies) {
        added.push_back({source, destination});
        weights.push_back(now);
      }
    }
    ASSERT_OK((*change)->Remove(removed));
    ASSERT_OK((*change)->Add(added, weights));
    ASSERT_OK((*change)->Put(asked.rows));
    ASSERT_OK((*change)->Commit());
    node_count_ += asked.nodes;
  }

  const TinyGraph graph_;
  SqlStore store_, twin_;
  const std::unique_ptr<sql::Connection> writer_;
  Rng rng_;
  uint64_t node_count_;
};

TEST(SqlGrowthOracleTest, RandomTransactionsMakeTheGraphOfTheirChanges) {
  const std::tuple<TinyGraph, ImportOptions> shapes[] = {
      {{.nodes = 24, .dim = 2, .degree = 2}, {.both_directions = true}},
      {{.nodes = 24, .dim = 2, .degree = 2, .weighted = true}, {.deduplicate = true}},
      {{.nodes = 24, .dim = 2, .degree = 2}, {.undirected = true}},
      {{.nodes = 24, .dim = 2, .degree = 2, .weighted = true}, {.both_directions = true}},
      {{.nodes = 24, .dim = 2, .degree = 2, .weighted = true}, {.undirected = true}}};
  const char* const given = std::getenv("QUARRY_TEST_SEED");
  const uint64_t base = given == nullptr ? 31 : std::strtoull(given, nullptr, 10);
  for (size_t shape = 0; shape < std::size(shapes); ++shape) {
    SCOPED_TRACE(testing::Message() << "QUARRY_TEST_SEED=" << base << ", shape " << shape);
    const auto& [graph, options] = shapes[shape];
    RandomGrowth growth(graph, options, base + shape);
    for (int transaction = 0; transaction < 25; ++transaction) {
      ASSERT_NO_FATAL_FAILURE(growth.Transaction());
      ASSERT_NO_FATAL_FAILURE(growth.Compare()) << "transaction " << transaction;
    }
  }
}

}  // namespace
}  // namespace quarry
