#include "grem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "metis_partition.h"
#include "partition/edge_list_util.h"
#include "quarry/partition/cut.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Le;

// Algorithm 4 for two parts, with its own place free, as one would write it down: maps and sets.
Assignment GremOracle(uint64_t node_count, const std::vector<NodePair>& edges, double chunk_share,
                      uint64_t seed) {
  const auto chunk_edges = static_cast<size_t>(std::ceil(static_cast<double>(edges.size()) * chunk_share));
  const uint64_t limit = (node_count + 1) / 2;
  std::map<NodeId, int> part;
  std::map<NodeId, std::array<float, 2>> counts;
  std::array<uint64_t, 2> size = {0, 0};
  for (size_t first = 0; first < edges.size(); first += chunk_edges) {
    std::map<NodeId, std::vector<NodeId>> neighbors;
    for (size_t i = first; i < std::min(first + chunk_edges, edges.size()); ++i) {
      if (edges[i].source == edges[i].destination) continue;
      neighbors[edges[i].source].push_back(edges[i].destination);
      neighbors[edges[i].destination].push_back(edges[i].source);
    }
    if (first == 0) {
      std::map<NodeId, NodeId> local;
      for (const auto& [node, list] : neighbors) local.emplace(node, local.size());
      UndirectedGraph graph{.indptr = {0}};
      for (const auto& [node, list] : neighbors) {
        std::map<NodeId, int> merged;
        for (const NodeId neighbor : list) ++merged[local[neighbor]];
        for (const auto& [neighbor, weight] : merged) {
          graph.neighbors.push_back(neighbor);
          graph.weights.push_back(weight);
        }
        graph.indptr.push_back(graph.neighbors.size());
      }
      const auto cut = CutByMetis(graph, std::array{limit, limit}, MixSeed(seed, 0, 2));
      EXPECT_OK(cut.status());
      for (const auto& [node, number] : local) ++size[part[node] = static_cast<int>((*cut)[number])];
      for (const auto& [node, list] : neighbors) {
        for (const NodeId neighbor : list) counts[node][part[neighbor]] += 1;
      }
      continue;
    }
    for (const auto& [node, list] : neighbors) {
      std::array<float, 2> n = {0, 0};
      for (const NodeId neighbor : list) {
        if (part.contains(neighbor)) n[part[neighbor]] += 1;
      }
      std::array<uint64_t, 2> free_size = size;
      if (part.contains(node)) {
        for (int s = 0; s < 2; ++s) n[s] = (counts[node][s] + n[s]) / 2;
        --free_size[part[node]];
        --size[part[node]];
      }
      int now = free_size[0] <= free_size[1] ? 0 : 1;
      if (n[0] < n[1] && free_size[1] < limit) now = 1;
      if (n[1] < n[0] && free_size[0] < limit) now = 0;
      part[node] = now;
      ++size[now];
      counts[node] = n;
    }
  }
  Assignment assignment{.parts = 2};
  for (NodeId v = 0; v < node_count; ++v) {
    if (!part.contains(v)) ++size[part[v] = size[0] <= size[1] ? 0 : 1];
    assignment.part_of.push_back(static_cast<uint32_t>(part[v]));
  }
  return assignment;
}

std::unique_ptr<EdgeStream> Stream(const std::vector<NodePair>& edges, uint64_t node_count,
                                   const PartitionContext& context) {
  auto writer = EdgeStreamWriter::Create(context);
  EXPECT_OK(writer.status());
  EXPECT_OK((*writer)->Append(edges));
  auto stream = (*writer)->Finish(node_count);
  EXPECT_OK(stream.status());
  return std::move(stream).value();
}

TEST(GremTest, TwoPartsAreThoseOfAlgorithm4) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const uint64_t node_count = 2 + rng.Below(500);
    const uint64_t edge_count = rng.Below(3000);
    const double share = std::array{0.01, 0.1, 0.3, 1.0}[seed % 4];
    const std::vector<NodePair> edges =
        seed % 2 == 0 ? RandomPairs(node_count, edge_count, seed)
                      : CommunityPairs(node_count, edge_count, 1 + node_count / 100, 0.2, seed);
    PartitionRig rig;
    const PartitionContext context = rig.context();
    ASSERT_OK_AND_ASSIGN(const Assignment assignment,
                         PartitionShuffled(Stream(edges, node_count, context),
                                           {.parts = 2, .chunk_share = share, .seed = seed}, context));
    EXPECT_EQ(assignment.part_of, GremOracle(node_count, edges, share, seed).part_of);
    EXPECT_EQ(rig.budget().used_bytes(), 0);
  }
}

TEST(GremTest, RecursionKeepsPartsEvenAndCutsFewEdges) {
  const std::vector<NodePair> pairs = CommunityPairs(6000, 60'000, 12, 0.1, 5);
  for (const uint32_t parts : {1, 2, 3, 5, 8, 12}) {
    SCOPED_TRACE(parts);
    PartitionRig rig;
    ArrayEdges edges(6000, pairs);
    ASSERT_OK_AND_ASSIGN(
        const Assignment assignment,
        PartitionByGrem(edges, {.parts = parts, .chunk_share = 0.1, .seed = 9}, rig.context()));
    ASSERT_EQ(assignment.part_of.size(), 6000);
    EXPECT_THAT(assignment.part_of, Each(testing::Lt(parts)));
    EXPECT_THAT(assignment.Sizes(), Each(Le(CeilDiv(6000, parts))));
    ASSERT_OK_AND_ASSIGN(const CutEdges cut, CountCut(edges, assignment));
    // Communities that lie whole in parts leave a tenth of the edges, random parts cut 1 - 1/parts.
    EXPECT_LT(cut.share(), parts == 1 ? 0.001 : 0.5 * (1 - 1.0 / parts));
    EXPECT_EQ(rig.budget().used_bytes(), 0);
  }
}

TEST(GremTest, OneSeedGivesOneResultWhateverTheBudget) {
  const std::vector<NodePair> pairs = CommunityPairs(3000, 30'000, 6, 0.2, 5);
  const auto run = [&](uint64_t seed, uint64_t budget_bytes) {
    PartitionRig rig(budget_bytes);
    ArrayEdges edges(3000, pairs);
    const auto assignment =
        PartitionByGrem(edges, {.parts = 5, .chunk_share = 0.05, .seed = seed}, rig.context());
    EXPECT_OK(assignment.status());
    return assignment.ok() ? assignment->part_of : std::vector<uint32_t>();
  };
  const std::vector<uint32_t> once = run(1, kGiB);
  EXPECT_EQ(run(1, kGiB), once);
  EXPECT_EQ(run(1, 8 * kMiB), once);
  EXPECT_NE(run(2, kGiB), once);
}

TEST(GremTest, ABudgetBelowNodesAndAChunkIsRefused) {
  PartitionRig rig(4 * kMiB);
  const std::vector<NodePair> pairs = RandomPairs(500'000, 1000, 1);
  ArrayEdges edges(500'000, pairs);
  EXPECT_THAT(PartitionByGrem(edges, {}, rig.context()), IsStatus(Code::kOutOfBudget, HasSubstr("grem")));
  EXPECT_EQ(rig.budget().used_bytes(), 0);
}

// Every operation on scratch files in turn, those of the recursion too.
TEST(GremTest, AFaultOfTheDiskIsReportedAndLeavesNothing) {
  const std::vector<NodePair> pairs = CommunityPairs(2000, 30'000, 4, 0.2, 1);
  PartitionRig rig;
  FaultBackend faulty(rig.backend());
  const PartitionContext context{faulty, rig.budget(), rig.folder().path()};
  const auto work = [&] {
    ArrayEdges edges(2000, pairs);
    return PartitionByGrem(edges, {.parts = 4, .chunk_share = 0.1, .seed = 1}, context);
  };
  ASSERT_OK_AND_ASSIGN(const Assignment expected, work());
  int strikes = 0;
  for (const FaultKind kind : {FaultKind::kCreate, FaultKind::kRead, FaultKind::kWrite, FaultKind::kRemove}) {
    for (const int error : {EIO, 0}) {
      if (error == 0 && kind != FaultKind::kRead) continue;
      for (uint64_t at = 1;; ++at) {
        SCOPED_TRACE(fmt::format("kind {}, operation {}, error {}", static_cast<int>(kind), at, error));
        faulty.SetPlans({{.kind = kind, .at = at, .error = error}});
        const auto result = work();
        if (faulty.strikes() == 0) break;
        ++strikes;
        ASSERT_LT(at, 1000);
        EXPECT_EQ(rig.budget().used_bytes(), 0);
        if (error == 0) {
          ASSERT_OK(result);
          EXPECT_EQ(*result, expected);
        } else {
          EXPECT_THAT(result, IsStatus(Code::kIoError, HasSubstr("edges-")));
        }
      }
    }
  }
  EXPECT_GT(strikes, 10);
}

TEST(GremTest, ProgressStopsIt) {
  PartitionRig rig;
  const std::vector<NodePair> pairs = RandomPairs(1000, 10'000, 1);
  ArrayEdges edges(1000, pairs);
  PartitionContext context = rig.context();
  context.progress = [](std::string_view phase, uint64_t, uint64_t) {
    return phase == "grem" ? Status(Code::kCancelled, "stopped") : Status::Ok();
  };
  EXPECT_EQ(PartitionByGrem(edges, {}, context).status().code(), Code::kCancelled);
  EXPECT_EQ(rig.budget().used_bytes(), 0);
}

}  // namespace
}  // namespace quarry
