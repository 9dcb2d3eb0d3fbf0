// All neighbors of nodes that have more than can be drawn by number: every draw gives whole lists, from memory and from disk.
#include "quarry/sampling/all_neighbors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/block_oracle.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

class AllNeighbors : public testing::Test {
 protected:
  // Hubs of thousands of neighbors, the largest of more than a tile in memory and LABOR's on disk.
  static Graph Hubs(Rng& rng, uint64_t longest) {
    std::vector<std::pair<NodeId, NodeId>> edges;
    constexpr uint64_t kNodes = 3000;
    const auto node = [&] { return static_cast<NodeId>(rng.Below(kNodes)); };
    for (uint64_t i = 0; i < longest; ++i) edges.emplace_back(node(), 5);
    for (uint64_t i = 0; i < 5000; ++i) edges.emplace_back(7, node());
    for (uint64_t i = 0; i < 1500; ++i) edges.emplace_back(node(), 9);
    for (uint64_t i = 0; i < 4000; ++i) edges.emplace_back(node(), node());
    Graph graph;
    graph.csc = ListsOf(edges, kNodes);
    for (auto& [from, to] : edges) std::swap(from, to);
    graph.csr = ListsOf(std::move(edges), kNodes);
    for (NeighborLists* const lists : {&graph.csc, &graph.csr})
      lists->weights.assign(lists->indices.size(), 2);
    return graph;
  }

  const TemporaryFolder folder_{"all-neighbors"};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
};

TEST_F(AllNeighbors, OfHubsAreTakenByEveryDraw) {
  for (const uint64_t longest : {uint64_t{20'000}, uint64_t{200'000}}) {
    Rng rng(longest);
    const Graph graph = Hubs(rng, longest);
    const auto memory = InMemory(graph);
    ASSERT_NE(memory, nullptr);
    ASSERT_OK_AND_ASSIGN(
        const auto disk,
        WriteTopology(*backend_, folder_.path(), "t" + std::to_string(longest), graph.csc, &graph.csr));
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr})
      ASSERT_OK(disk->LoadWeights(*backend_, side));
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      for (const bool weighted : {false, true}) {
        for (const SamplerKind kind : {SamplerKind::kNeighbor, SamplerKind::kLabor}) {
          for (Topology* const topology : {memory.get(), disk.get()}) {
            SCOPED_TRACE(testing::Message()
                         << NameOf(direction) << (weighted ? ", weighted, " : ", ") << static_cast<int>(kind)
                         << (topology == disk.get() ? ", disk" : ""));
            RoadSpec spec{.fanouts = {kAllNeighbors, 3, kAllNeighbors}};
            spec.direction = direction;
            spec.weighted = weighted;
            spec.sampler = kind;
            ASSERT_OK(CountAllNeighbors(*topology, nullptr, {}, spec));
            ASSERT_GT(spec.fanouts[0], 4096U);
            ASSERT_EQ(spec.fanouts[1], 3U);
            const NeighborSource source{
                .topology = topology, .takes_all = true, .direction = direction, .backend = backend_.get()};
            ASSERT_OK_AND_ASSIGN(const auto sampler, NeighborSampler::Make(source, spec));
            Block block;
            for (const std::vector<NodeId>& seeds :
                 {std::vector<NodeId>{5, 7, 9, 11}, std::vector<NodeId>{4}}) {
              ASSERT_OK(sampler->Sample(seeds, 3, block));
              ASSERT_NO_FATAL_FAILURE(ExpectValidBlock(block, graph, direction, spec.fanouts, seeds));
              EXPECT_LE(sampler->scratch_bytes(),
                        NeighborSampler::ScratchBytesMax(source, block.nodes.size(), block.indices.size(),
                                                         topology == memory.get(), spec));
            }
          }
        }
      }
    }
  }
}

TEST_F(AllNeighbors, AreNumbersThatNobodyMayGive) {
  Rng rng(1);
  const auto topology = InMemory(Hubs(rng, 20'000));
  for (const bool takes_all : {false, true}) {
    const NeighborSource source{.topology = topology.get(), .takes_all = takes_all};
    const auto code = [&](uint32_t fanout) {
      return NeighborSampler::Make(source, {.fanouts = {fanout}}).status().code();
    };
    EXPECT_EQ(code(1025), takes_all ? Code::kOk : Code::kUsage);
    EXPECT_EQ(code(NeighborSampler::kDegreeMax + 1), Code::kUsage);
    EXPECT_EQ(code(kAllNeighbors), Code::kUnsupported) << "before they are counted";
  }
}

TEST_F(AllNeighbors, OfMoreThanATileOfTheDiskAreRefused) {
  const std::vector<NodeId> indices(NeighborSampler::kDegreeMax + 1, 1);
  ASSERT_OK_AND_ASSIGN(const auto topology,
                       Topology::FromMemory({0, indices.size(), indices.size()}, indices));
  RoadSpec spec{.fanouts = {kAllNeighbors}};
  EXPECT_THAT(CountAllNeighbors(*topology, nullptr, {}, spec).ToString(),
              testing::HasSubstr("up to 1048577 of a node, and 1048576 are the most"));
}

}  // namespace
}  // namespace quarry
