#include "link_evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "link_reference.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

constexpr uint64_t kTriplesSeed = 30;

std::vector<Triple> RandomTriples(Rng& rng, size_t count, uint32_t node_count, uint32_t relation_count) {
  std::vector<Triple> triples(count);
  for (Triple& triple : triples) {
    triple = {static_cast<NodeId>(rng.Below(node_count)), static_cast<uint32_t>(rng.Below(relation_count)),
              static_cast<NodeId>(rng.Below(node_count))};
  }
  return triples;
}

// Small integers: every score is exact, and many are equal.
std::vector<float> RandomIntegers(Rng& rng, size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Below(7)) - 3;
  return values;
}

// Relations whose scores are exact, too: those of rotate are quarter turns.
std::vector<float> RandomRelations(Rng& rng, const LinkSpec& spec, size_t rows) {
  std::vector<float> values = RandomIntegers(rng, rows * spec.relation_dim());
  if (spec.decoder != DecoderKind::kRotatE) return values;
  const size_t half = spec.dim / 2;
  for (size_t i = 0; i < values.size(); i++) {
    const bool imaginary = i / half % 2 == 1;
    if (imaginary && values[i - half] != 0) values[i] = 0;
  }
  return values;
}

// One ranking after another, by scoring every node.
LinkEvaluation BruteForce(const LinkSpec& spec, std::span<const float> nodes,
                          std::span<const float> relations, std::span<const Triple> edges,
                          std::span<const Triple> known) {
  std::set<std::tuple<NodeId, uint32_t, NodeId>> known_set;
  for (const Triple& edge : known) known_set.emplace(edge.head, edge.relation, edge.tail);
  const ReferenceTables<float> tables{spec, nodes, relations};
  std::vector<double> raw, filtered;
  for (const LinkSide side : kLinkSides) {
    const bool is_source = side == LinkSide::kSource;
    for (const Triple& edge : edges) {
      const NodeId truth = is_source ? edge.head : edge.tail;
      const NodeId given = is_source ? edge.tail : edge.head;
      const double score = tables.Score(side, given, edge.relation, truth);
      RankCounts all, rivals;
      for (NodeId node = 0; node < nodes.size() / spec.dim; node++) {
        if (node == truth) continue;
        const double other = tables.Score(side, given, edge.relation, node);
        const bool is_known = known_set.contains(is_source ? std::tuple(node, edge.relation, edge.tail)
                                                           : std::tuple(edge.head, edge.relation, node));
        for (RankCounts* counts : {&all, &rivals}) {
          if (counts == &rivals && is_known) continue;
          counts->above += other > score ? 1 : 0;
          counts->equal += other == score ? 1 : 0;
        }
      }
      raw.push_back(all.rank());
      filtered.push_back(rivals.rank());
    }
  }
  return {MetricsOfRanks(raw), MetricsOfRanks(filtered)};
}

void ExpectSameMetrics(const LinkMetrics& metrics, const LinkMetrics& expected) {
  EXPECT_EQ(metrics.rankings, expected.rankings);
  EXPECT_DOUBLE_EQ(metrics.mrr, expected.mrr);
  EXPECT_DOUBLE_EQ(metrics.hits_1, expected.hits_1);
  EXPECT_DOUBLE_EQ(metrics.hits_3, expected.hits_3);
  EXPECT_DOUBLE_EQ(metrics.hits_10, expected.hits_10);
}

// Sums of pieces.
void ExpectClose(const LinkMetrics& metrics, const LinkMetrics& expected) {
  EXPECT_EQ(metrics.rankings, expected.rankings);
  EXPECT_NEAR(metrics.mrr, expected.mrr, 1e-12);
  EXPECT_NEAR(metrics.hits_1, expected.hits_1, 1e-12);
  EXPECT_NEAR(metrics.hits_3, expected.hits_3, 1e-12);
  EXPECT_NEAR(metrics.hits_10, expected.hits_10, 1e-12);
}

class LinkEvaluateTest : public testing::TestWithParam<DecoderKind> {};

INSTANTIATE_TEST_SUITE_P(AllDecoders, LinkEvaluateTest, testing::ValuesIn(kDecoderKinds),
                         [](const auto& kind) { return std::string(DecoderName(kind.param)); });

TEST_P(LinkEvaluateTest, MatchesBruteForceOnSmallGraphs) {
  const LinkSpec spec{.decoder = GetParam(), .dim = 6};
  for (uint64_t seed = kTriplesSeed; seed < kTriplesSeed + 10; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const auto node_count = static_cast<uint32_t>(2 + rng.Below(40));
    const std::vector<float> nodes = RandomIntegers(rng, size_t{node_count} * spec.dim);
    const std::vector<float> relations = RandomRelations(rng, spec, 3);
    // So dense that most rankings leave nodes out, and that edges are given twice.
    std::vector<Triple> known = RandomTriples(rng, size_t{node_count} * 10, node_count, 3);
    const std::vector<Triple> edges(known.begin(), known.begin() + node_count);
    const LinkEvaluation evaluation =
        EvaluateLinks(spec, nodes, relations, edges, KnownEdges(known), 1 + seed % 3);
    const LinkEvaluation expected = BruteForce(spec, nodes, relations, edges, known);
    ExpectSameMetrics(evaluation.raw, expected.raw);
    ExpectSameMetrics(evaluation.filtered, expected.filtered);
  }
}

// More nodes than a block holds, and more edges than a group.
TEST_P(LinkEvaluateTest, MatchesBruteForceAcrossBlocksAndGroups) {
  SCOPED_TRACE(testing::Message() << "seed " << kTriplesSeed);
  const LinkSpec spec{.decoder = GetParam(), .dim = 10};
  constexpr uint32_t kNodes = 4500;
  Rng rng(kTriplesSeed);
  const std::vector<float> nodes = RandomIntegers(rng, size_t{kNodes} * spec.dim);
  const std::vector<float> relations = RandomRelations(rng, spec, 2);
  const std::vector<Triple> edges = RandomTriples(rng, 150, kNodes, 2);
  std::vector<Triple> known = edges;
  for (const Triple& edge : RandomTriples(rng, 3000, kNodes, 2)) {
    known.push_back({edges[edge.head % 150].head, edge.relation, edge.tail});
    known.push_back({edge.head, edge.relation, edges[edge.tail % 150].tail});
  }
  const LinkEvaluation evaluation = EvaluateLinks(spec, nodes, relations, edges, KnownEdges(known), 2);
  const LinkEvaluation expected = BruteForce(spec, nodes, relations, edges, known);
  ExpectSameMetrics(evaluation.raw, expected.raw);
  ExpectSameMetrics(evaluation.filtered, expected.filtered);
  EXPECT_GT(evaluation.filtered.mrr, evaluation.raw.mrr);
}

// All nodes alike: whatever a ranking leaves out, the truth is in the middle of the others.
TEST_P(LinkEvaluateTest, AConstantModelRanksInTheMiddle) {
  SCOPED_TRACE(testing::Message() << "seed " << kTriplesSeed);
  for (const uint32_t node_count : {1U, 2U, 101U, 2050U}) {
    const LinkSpec spec{.decoder = GetParam(), .dim = 50};
    Rng rng(kTriplesSeed);
    const std::vector<float> node = RandomValues<float>(rng, spec.dim);
    std::vector<float> nodes;
    for (uint32_t i = 0; i < node_count; i++) nodes.insert(nodes.end(), node.begin(), node.end());
    const std::vector<float> relations = RandomValues<float>(rng, size_t{2} * spec.relation_dim());
    const std::vector<Triple> edges = RandomTriples(rng, 130, node_count, 2);
    const LinkEvaluation evaluation = EvaluateLinks(spec, nodes, relations, edges, KnownEdges({}), 1);
    EXPECT_NEAR(evaluation.raw.mrr, 2.0 / (node_count + 1), 1e-12) << node_count;
    EXPECT_NEAR(evaluation.filtered.mrr, 2.0 / (node_count + 1), 1e-12) << node_count;
  }
}

TEST_P(LinkEvaluateTest, AModelThatHasDivergedRanksInTheMiddle) {
  const LinkSpec spec{.decoder = GetParam(), .dim = 4};
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> nodes(size_t{9} * spec.dim, value), relations(spec.relation_dim(), value);
    const LinkEvaluation evaluation =
        EvaluateLinks(spec, nodes, relations, std::vector<Triple>{{0, 0, 8}, {3, 0, 3}}, KnownEdges({}), 1);
    EXPECT_NEAR(evaluation.raw.mrr, 2.0 / 10, 1e-12) << value;
    EXPECT_NEAR(evaluation.filtered.mrr, 2.0 / 10, 1e-12) << value;
  }
}

// Rows of small integers before zeros: so long that few of them fit where bytes count, and yet exact.
std::vector<float> LongRows(Rng& rng, size_t rows, uint32_t dim) {
  std::vector<float> values(rows * dim);
  for (size_t i = 0; i < values.size(); i++) {
    if (i % dim < 10) values[i] = static_cast<float>(rng.Below(7)) - 3;
  }
  return values;
}

// More edges than are ranked in a pass over the nodes, or more nodes than are read at a time.
TEST(LinkEvaluateTest, PiecesAndStripsAreRankedAsTheWhole) {
  SCOPED_TRACE(testing::Message() << "seed " << kTriplesSeed);
  const LinkSpec spec{.decoder = DecoderKind::kTransE, .dim = 2000};
  for (const auto& [node_count, edge_count] : {std::pair(2100U, size_t{20}), std::pair(30U, size_t{1100})}) {
    Rng rng(kTriplesSeed);
    const std::vector<float> nodes = LongRows(rng, node_count, spec.dim);
    const std::vector<float> relations = LongRows(rng, 4, spec.dim);  // two, each with its inverse
    const std::vector<Triple> edges = RandomTriples(rng, edge_count, node_count, 2);
    const std::vector<Triple> known = RandomTriples(rng, size_t{20} * node_count, node_count, 2);
    size_t rows_max = 0;
    uint64_t passes = 0;
    const LinkVectors vectors{
        node_count,
        [&, count = node_count](std::span<const RowId> ids, std::span<float> values) {
          EXPECT_TRUE(std::ranges::is_sorted(ids));
          rows_max = std::max(rows_max, ids.size());
          passes += ids.back() + 1 == count && ids.back() - ids.front() + 1 == ids.size() ? 1 : 0;
          return CopyRows(nodes, ids, values);
        },
        relations};
    std::vector<uint64_t> done;
    ASSERT_OK_AND_ASSIGN(const auto evaluation,
                         EvaluateLinks(spec, vectors, edges, KnownEdges(known), 2, [&](uint64_t count) {
                           done.push_back(count);
                           return Status::Ok();
                         }));
    EXPECT_EQ(rows_max, std::min(node_count, 2048U));
    // The ends of a piece's edges may be all nodes, too.
    EXPECT_EQ(passes, edge_count > 1000 ? 4u : 1u);
    EXPECT_TRUE(std::ranges::is_sorted(done));
    EXPECT_EQ(done.front(), 0u);
    EXPECT_EQ(done.back(), edge_count);
    const LinkEvaluation expected = BruteForce(spec, nodes, relations, edges, known);
    ExpectClose(evaluation.raw, expected.raw);
    ExpectClose(evaluation.filtered, expected.filtered);
  }
}

TEST(LinkEvaluateTest, AFaultOfReadingOrOfTheCallerEndsIt) {
  const LinkSpec spec{.dim = 4};
  const std::vector<float> nodes(size_t{5000} * spec.dim), relations(spec.relation_dim());
  const std::vector<Triple> edges{{0, 0, 4999}};
  for (int fault_at = 0; fault_at < 2; fault_at++) {  // the edge's own vectors, and all
    int reads = 0;
    const LinkVectors vectors{5000,
                              [&](std::span<const RowId> ids, std::span<float> values) {
                                if (reads++ == fault_at) return Status(Code::kIoError, "no disk");
                                return CopyRows(nodes, ids, values);
                              },
                              relations};
    EXPECT_EQ(EvaluateLinks(spec, vectors, edges, KnownEdges({}), 2).status().message(), "no disk");
  }
  const LinkVectors vectors{5000, [&](auto ids, auto values) { return CopyRows(nodes, ids, values); },
                            relations};
  const auto stop = [](uint64_t) { return Status(Code::kCancelled, "enough"); };
  EXPECT_THAT(EvaluateLinks(spec, vectors, edges, KnownEdges({}), 2, stop), IsStatus(Code::kCancelled));
}

TEST(LinkEvaluateTest, NothingToRankIsNoFault) {
  const std::vector<float> nodes(10), relations(20);
  const LinkEvaluation evaluation = EvaluateLinks({.dim = 10}, nodes, relations, {}, KnownEdges({}), 2);
  EXPECT_EQ(evaluation.raw.rankings, 0);
  EXPECT_EQ(evaluation.raw.mrr, 0);
}

TEST(RankTest, EqualsCountHalf) {
  EXPECT_EQ((RankCounts{0, 0}.rank()), 1);
  EXPECT_EQ((RankCounts{2, 0}.rank()), 3);
  EXPECT_EQ((RankCounts{0, 1}.rank()), 1.5);
}

TEST(RankTest, MetricsAreMeansOverRanks) {
  const LinkMetrics metrics = MetricsOfRanks(std::vector<double>{1, 1.5, 3, 4, 10, 20, 2, 1});
  EXPECT_EQ(metrics.rankings, 8);
  EXPECT_NEAR(metrics.mrr, (1 + 1 / 1.5 + 1 / 3. + .25 + .1 + .05 + .5 + 1) / 8, 1e-12);
  EXPECT_NEAR(metrics.hits_1, 2 / 8., 1e-12);
  EXPECT_NEAR(metrics.hits_3, 5 / 8., 1e-12);
  EXPECT_NEAR(metrics.hits_10, 7 / 8., 1e-12);
}

TEST(KnownEdgesTest, FindsBothSidesInOrderAndOnce) {
  const KnownEdges known({{3, 0, 9}, {3, 0, 2}, {3, 0, 9}, {3, 1, 4}, {2, 0, 9}, {4, 0, 2}});
  const auto heads = [](std::span<const Triple> edges) {
    std::vector<NodeId> nodes;
    for (const Triple& edge : edges) nodes.push_back(edge.head);
    return nodes;
  };
  const auto tails = [](std::span<const Triple> edges) {
    std::vector<NodeId> nodes;
    for (const Triple& edge : edges) nodes.push_back(edge.tail);
    return nodes;
  };
  EXPECT_EQ(tails(known.WithHead(3, 0)), (std::vector<NodeId>{2, 9}));
  EXPECT_EQ(tails(known.WithHead(3, 1)), (std::vector<NodeId>{4}));
  EXPECT_EQ(heads(known.WithTail(9, 0)), (std::vector<NodeId>{2, 3}));
  EXPECT_EQ(heads(known.WithTail(2, 0)), (std::vector<NodeId>{3, 4}));
  EXPECT_TRUE(known.WithHead(5, 0).empty());
  EXPECT_TRUE(known.WithTail(9, 1).empty());
}

}  // namespace
}  // namespace quarry
