#include "quarry/cache/neighbor_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "quarry/base/units.h"
#include "sampling/graphs.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

class NeighborCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "quarry_neighbor_cache_" + std::to_string(getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    backend_ = MakeDefaultBackend();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Topology> Write(const NeighborLists& csc, const NeighborLists* csr) {
    auto topology = WriteTopology(*backend_, directory_, "t" + std::to_string(files_++), csc, csr);
    EXPECT_OK(topology);
    return topology.ok() ? std::move(topology).value() : nullptr;
  }

  std::string directory_;
  std::unique_ptr<IoBackend> backend_;
  int files_ = 0;
};

// Which nodes are cached when the lists may have `entries_max` entries, by sorting.
std::vector<bool> OracleChoice(const NeighborLists& lists, const NeighborLists& opposite,
                               uint64_t entries_max) {
  const size_t node_count = lists.indptr.size() - 1;
  std::vector<NodeId> order;
  for (NodeId v = 0; v < node_count; ++v) {
    if (!lists.Of(v).empty()) order.push_back(v);
  }
  const auto importance = [&](NodeId v) {
    return static_cast<float>(opposite.Of(v).size()) / static_cast<float>(lists.Of(v).size());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](NodeId a, NodeId b) { return importance(a) > importance(b); });
  std::vector<bool> cached(node_count);
  uint64_t entries = 0;
  for (const NodeId v : order) {
    entries += lists.Of(v).size();
    if (entries > entries_max) break;
    cached[v] = true;
  }
  return cached;
}

TEST_F(NeighborCacheTest, HoldsTheListsWithTheBestRatioOfDegrees) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Graph graph =
        RandomGraph(rng, 1 + rng.Below(2000), 1 + rng.Below(40'000), static_cast<int>(rng.Below(3)));
    const bool has_csr = seed % 2 == 0;
    const auto topology = Write(graph.csc, has_csr ? &graph.csr : nullptr);
    ASSERT_NE(topology, nullptr);
    const uint64_t table_bytes = RoundUp(graph.node_count() * sizeof(uint32_t), 4096);
    for (const uint64_t list_bytes : {4096u, 8192u, 40960u, 200'704u, 1'000'000u}) {
      for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
        if (side == Adjacency::kCsr && !has_csr) continue;
        const NeighborLists& lists = side == Adjacency::kCsc ? graph.csc : graph.csr;
        const NeighborLists& opposite = side == Adjacency::kCsc ? graph.csr : graph.csc;
        ASSERT_OK_AND_ASSIGN(const auto cache,
                             NeighborCache::Build(*backend_, *topology, side, table_bytes + list_bytes));
        EXPECT_LE(cache->memory_bytes(), table_bytes + list_bytes);
        const std::vector<bool> expected =
            OracleChoice(lists, opposite, RoundDown(list_bytes, 4096) / sizeof(NodeId));
        uint64_t edges = 0;
        for (NodeId v = 0; v < graph.node_count(); ++v) {
          const std::span<const NodeId> list = cache->Find(v);
          ASSERT_EQ(list.data() != nullptr, expected[v]) << "node " << v;
          if (!expected[v]) continue;
          ASSERT_TRUE(std::ranges::equal(list, lists.Of(v))) << "node " << v;
          edges += list.size();
        }
        EXPECT_EQ(cache->cached_edges(), edges);
        EXPECT_EQ(cache->cached_nodes(), std::count(expected.begin(), expected.end(), true));
      }
    }
  }
}

TEST_F(NeighborCacheTest, HoldsEveryListWhenTheMemorySuffices) {
  Rng rng(20);
  const Graph graph = RandomGraph(rng, 3000, 50'000, 1);
  const auto topology = Write(graph.csc, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto cache,
                       NeighborCache::Build(*backend_, *topology, Adjacency::kCsc, 8 * kMiB));
  EXPECT_EQ(cache->cached_edges(), 50'000);
  for (NodeId v = 0; v < graph.node_count(); ++v) {
    ASSERT_TRUE(std::ranges::equal(cache->Find(v), graph.csc.Of(v))) << v;
  }
}

TEST_F(NeighborCacheTest, IsEmptyWhenTheAddressTableDoesNotFit) {
  Rng rng(21);
  const Graph graph = RandomGraph(rng, 5000, 50'000, 1);
  const auto topology = Write(graph.csc, nullptr);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{4096}, RoundUp(5000 * 4, 4096)}) {
    ASSERT_OK_AND_ASSIGN(const auto cache,
                         NeighborCache::Build(*backend_, *topology, Adjacency::kCsc, bytes));
    EXPECT_EQ(cache->memory_bytes(), 0);
    EXPECT_EQ(cache->cached_nodes(), 0);
    EXPECT_EQ(cache->Find(4999).data(), nullptr);
  }
}

TEST_F(NeighborCacheTest, NeverExceedsItsMemory) {
  Rng rng(22);
  const Graph graph = RandomGraph(rng, 300'000, 2'000'000, 1);
  const auto topology = Write(graph.csc, nullptr);
  for (const uint64_t bytes :
       {kMiB, 2 * kMiB + 1, 3 * kMiB, 4 * kMiB - 1, 5 * kMiB + 123, 7 * kMiB, 64 * kMiB}) {
    ASSERT_OK_AND_ASSIGN(const auto cache,
                         NeighborCache::Build(*backend_, *topology, Adjacency::kCsc, bytes));
    EXPECT_LE(cache->memory_bytes(), bytes);
    if (bytes > 3 * kMiB) {
      EXPECT_GT(cache->cached_nodes(), 0) << bytes;
    }
  }
}

TEST_F(NeighborCacheTest, RefusesACorruptPage) {
  Rng rng(23);
  const Graph graph = RandomGraph(rng, 3000, 50'000, 0);
  const auto topology = Write(graph.csc, &graph.csr);
  {
    std::fstream file(topology->file().path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(topology->indices_offset(Adjacency::kCsc) + 20 * 4096 + 5));
    file.put(static_cast<char>(0x5a));
  }
  const auto cache = NeighborCache::Build(*backend_, *topology, Adjacency::kCsc, kMiB);
  EXPECT_THAT(cache, IsStatus(Code::kCorruption));
  EXPECT_OK(NeighborCache::Build(*backend_, *topology, Adjacency::kCsr, kMiB));
}

}  // namespace
}  // namespace quarry
