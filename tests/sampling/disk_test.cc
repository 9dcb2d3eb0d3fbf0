// Sampling from disk gives the blocks that sampling from memory gives, whatever is cached and however it is
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "quarry/base/units.h"
#include "sampling/block_oracle.h"
#include "support/fault_backend.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

class DiskSampling : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "quarry_disk_sampling_" + std::to_string(getpid());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    backend_ = MakeDefaultBackend();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Topology> OnDisk(const Graph& graph) {
    auto topology =
        WriteTopology(*backend_, directory_, "t" + std::to_string(files_++), graph.csc, &graph.csr);
    EXPECT_OK(topology);
    return topology.ok() ? std::move(topology).value() : nullptr;
  }
  std::unique_ptr<NeighborCache> Cache(const Topology& topology, Adjacency side, uint64_t bytes) {
    auto cache = NeighborCache::Build(*backend_, topology, side, bytes);
    EXPECT_OK(cache);
    return cache.ok() ? std::move(cache).value() : nullptr;
  }
  static Block SampleWith(const NeighborSource& source, std::vector<uint32_t> fanouts,
                          std::span<const NodeId> seeds, uint64_t stream_seed, SamplerStats* stats = nullptr,
                          bool replace = false) {
    Block block;
    auto sampler = NeighborSampler::Make(
        source, {.fanouts = fanouts, .replace = replace, .edge_ids = source.direction == Direction::kIn});
    EXPECT_OK(sampler);
    if (!sampler.ok()) return block;
    const Status status = (*sampler)->Sample(seeds, stream_seed, block);
    EXPECT_OK(status);
    if (stats != nullptr) *stats = (*sampler)->stats();
    return block;
  }

  std::string directory_;
  std::unique_ptr<IoBackend> backend_;
  int files_ = 0;
};

TEST_F(DiskSampling, EqualsSamplingFromMemory) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const Graph graph =
        RandomGraph(rng, 50 + rng.Below(5000), 1 + rng.Below(100'000), static_cast<int>(rng.Below(3)));
    const auto memory = InMemory(graph);
    const auto disk = OnDisk(graph);
    ASSERT_NE(disk, nullptr);
    const uint64_t table_bytes = RoundUp(graph.node_count() * 4, 4096);
    for (const uint64_t cache_bytes :
         {uint64_t{0}, table_bytes + disk->IndicesBytes() / 5, 2 * disk->IndicesBytes() + (4 << 20)}) {
      const auto csc_cache = Cache(*disk, Adjacency::kCsc, cache_bytes);
      const auto csr_cache = Cache(*disk, Adjacency::kCsr, cache_bytes);
      for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
        const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 30);
        const std::vector<uint32_t> fanouts = {5, 10, 20};
        const bool replace = rng.Below(2) == 0;
        const Block expected = SampleWith({.topology = memory.get(), .direction = direction}, fanouts, seeds,
                                          seed, nullptr, replace);
        if (direction == Direction::kIn) {
          ASSERT_NO_FATAL_FAILURE(ExpectEdgeIds(expected, graph, replace));
        }
        for (const unsigned io_depth : {1u, 64u}) {
          SamplerStats stats;
          const Block block = SampleWith({.topology = disk.get(),
                                          .direction = direction,
                                          .backend = backend_.get(),
                                          .caches = {csc_cache.get(), csr_cache.get()},
                                          .io_depth = io_depth},
                                         fanouts, seeds, seed, &stats, replace);
          ASSERT_TRUE(SameBlock(block, expected));
          EXPECT_EQ(stats.edges, block.indices.size());
          if (cache_bytes == 0) {
            EXPECT_EQ(stats.neighbor_cache_hits, 0);
          }
          if (cache_bytes > 2 * disk->IndicesBytes()) {
            EXPECT_EQ(stats.bytes_read, 0);
          }
        }
      }
    }
  }
}

TEST_F(DiskSampling, OfWholeListsAndByWeightEqualsSamplingFromMemory) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Rng rng(seed);
    Graph graph = RandomGraph(rng, 3000, 20'000 + rng.Below(400'000), static_cast<int>(rng.Below(4)));
    AddWeights(rng, graph);
    const auto memory = InMemory(graph);
    const auto disk = OnDisk(graph);
    ASSERT_NE(disk, nullptr);
    const auto cache =
        Cache(*disk, Adjacency::kCsc, RoundUp(graph.node_count() * 4, 4096) + disk->IndicesBytes() / 5);
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      for (const bool weighted : {false, true}) {
        for (const SamplerKind kind : {SamplerKind::kLabor, SamplerKind::kNeighbor}) {
          RoadSpec spec{.direction = direction, .fanouts = {5, 40}, .sampler = kind, .weighted = weighted};
          spec.replace = kind == SamplerKind::kNeighbor && rng.Below(2) == 0;
          spec.edge_ids = direction == Direction::kIn;
          SCOPED_TRACE(testing::Message()
                       << "seed " << seed << ", " << NameOf(kind) << ", " << NameOf(direction)
                       << ", weighted " << weighted << ", replace " << spec.replace);
          ASSERT_OK(NeighborSampler::LoadWeights(*backend_, spec, *disk));
          const NeighborSource source{.topology = disk.get(),
                                      .direction = direction,
                                      .backend = backend_.get(),
                                      .caches = {cache.get(), nullptr}};
          const auto from_memory =
              NeighborSampler::Make({.topology = memory.get(), .direction = direction}, spec);
          const auto from_disk = NeighborSampler::Make(source, spec);
          ASSERT_OK(from_memory);
          ASSERT_OK(from_disk);
          Block expected, block;
          for (uint64_t batch = 0; batch < 2; ++batch) {
            const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 200);
            ASSERT_OK((*from_memory)->Sample(seeds, batch, expected));
            ASSERT_OK((*from_disk)->Sample(seeds, batch, block));
            ASSERT_TRUE(SameBlock(block, expected));
          }
          const auto bound = [&](bool in_memory) {
            return NeighborSampler::ScratchBytesMax(source, graph.node_count(), 1 << 20, in_memory, spec);
          };
          EXPECT_LE((*from_memory)->scratch_bytes(), bound(true));
          EXPECT_LE((*from_disk)->scratch_bytes(), bound(false));
        }
      }
    }
  }
}

TEST_F(DiskSampling, ADamagedWeightIsFound) {
  Rng rng(1);
  Graph graph = RandomGraph(rng, 300, 5000, 1);
  AddWeights(rng, graph);
  const auto disk = OnDisk(graph);
  ASSERT_NE(disk, nullptr);
  std::string bytes = testing_util::FileText(directory_ + "/t0");
  const std::string weights(reinterpret_cast<const char*>(graph.csc.weights.data()),
                            graph.csc.weights.size() * sizeof(float));
  const size_t at = bytes.find(weights);
  ASSERT_NE(at, std::string::npos);
  std::fstream file(directory_ + "/t0", std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at + 4096 + 7));
  file.put(static_cast<char>(bytes[at + 4096 + 7] ^ 1));
  file.close();
  const Status status = NeighborSampler::LoadWeights(*backend_, {.weighted = true}, *disk);
  EXPECT_THAT(status, IsStatus(Code::kCorruption, testing::HasSubstr("page 1 of section \"csc_weights\"")));
  const auto plain =
      OnDisk({.csc = {.indptr = {0, 1, 1}, .indices = {1}}, .csr = {.indptr = {0, 0, 1}, .indices = {0}}});
  EXPECT_THAT(NeighborSampler::LoadWeights(*backend_, {.weighted = true}, *plain),
              IsStatus(Code::kInvalidArgument, testing::HasSubstr("the edges have no weights")));
}

TEST_F(DiskSampling, EqualsSamplingFromMemoryBeyondATile) {
  // More positions in one hop than the tile of 2^20 takes.
  Rng rng(11);
  const Graph graph = RandomGraph(rng, 2400, 2'000'000, 0);
  const auto memory = InMemory(graph);
  const auto disk = OnDisk(graph);
  const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 2400);
  for (const Direction direction : {Direction::kIn, Direction::kBoth}) {
    const NeighborSource source{.topology = disk.get(), .direction = direction, .backend = backend_.get()};
    const Block expected = SampleWith({.topology = memory.get(), .direction = direction}, {1000}, seeds, 3);
    ASSERT_GT(expected.indices.size(), 1'200'000);
    SamplerStats stats;
    ASSERT_TRUE(SameBlock(SampleWith(source, {1000}, seeds, 3, &stats), expected));
    // Each page once per tile, of two tiles.
    EXPECT_LE(stats.bytes_read, 2 * (direction == Direction::kBoth ? 2 : 1) * (disk->IndicesBytes() + 4096));
    EXPECT_GT(stats.read_requests, 0);
  }
}

TEST_F(DiskSampling, ReadsEachPageOnceAndOnlyTheGapsThatPay) {
  // 400 pages of indices; the lists of two seeds in the first, of two more in the page with number 12.
  NeighborLists csc;
  for (NodeId v = 0; v < 40'960; ++v) {
    for (int k = 0; k < 10; ++k) csc.indices.push_back((v * 7 + k) % 40'960);
    csc.indptr.push_back(csc.indices.size());
  }
  auto topology = WriteTopology(*backend_, directory_, "pages", csc, nullptr);
  ASSERT_OK(topology);
  const NodeId in_page_12 = 12 * 1024 / 10 + 2;
  const std::vector<NodeId> seeds = {0, in_page_12, 1, in_page_12 + 1};
  NeighborSource source{.topology = topology->get(), .backend = backend_.get()};
  SamplerStats stats;
  source.device = {.random_reads_per_second = 1, .sequential_bytes_per_second = 4096};  // gaps up to one page
  SampleWith(source, {3}, seeds, 1, &stats);
  EXPECT_EQ(stats.read_requests, 2);
  EXPECT_EQ(stats.bytes_read, 2 * 4096);
  source.device = {.random_reads_per_second = 1, .sequential_bytes_per_second = 11 * 4096};
  SampleWith(source, {3}, seeds, 1, &stats);
  EXPECT_EQ(stats.read_requests, 1);
  EXPECT_EQ(stats.bytes_read, 13 * 4096);
}

TEST_F(DiskSampling, NeedsABackend) {
  Rng rng(1);
  const auto disk = OnDisk(RandomGraph(rng, 100, 1000, 0));
  const std::vector<uint32_t> fanouts = {3};
  EXPECT_EQ(NeighborSampler::Make({.topology = disk.get()}, {.fanouts = fanouts}).status().code(),
            Code::kInvalidArgument);
}

TEST_F(DiskSampling, SharesASourceBetweenThreads) {
  Rng rng(12);
  const Graph graph = RandomGraph(rng, 5000, 100'000, 1);
  const auto memory = InMemory(graph);
  const auto disk = OnDisk(graph);
  const auto cache = Cache(*disk, Adjacency::kCsc, disk->IndicesBytes() / 3);
  const NeighborSource source{
      .topology = disk.get(), .backend = backend_.get(), .caches = {cache.get(), nullptr}};
  const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 50);
  Block blocks[3];
  std::vector<std::thread> threads;
  for (Block& block : blocks) {
    threads.emplace_back([&] { block = SampleWith(source, {10, 10}, seeds, 5); });
  }
  for (std::thread& thread : threads) thread.join();
  const Block expected = SampleWith({.topology = memory.get()}, {10, 10}, seeds, 5);
  for (const Block& block : blocks) EXPECT_TRUE(SameBlock(block, expected));
}

TEST_F(DiskSampling, StaysWithinTheScratchItPredicts) {
  Rng rng(13);
  const Graph graph = RandomGraph(rng, 20'000, 600'000, 1);
  const auto disk = OnDisk(graph);
  for (const unsigned io_depth : {4u, 1000u}) {
    const NeighborSource source{.topology = disk.get(),
                                .direction = Direction::kBoth,
                                .backend = backend_.get(),
                                .io_depth = io_depth};
    auto sampler = NeighborSampler::Make(source, {.fanouts = std::vector<uint32_t>{10, 10, 10}});
    ASSERT_OK(sampler);
    Block block;
    for (const size_t seed_count : {1u, 300u, 1000u}) {
      ASSERT_OK((*sampler)->Sample(RandomSeeds(rng, graph.node_count(), seed_count), seed_count, block));
      EXPECT_LE((*sampler)->scratch_bytes(),
                NeighborSampler::ScratchBytesMax(source, block.nodes.size(), block.indices.size(), false));
    }
  }
}

TEST_F(DiskSampling, ReportsACorruptPageAndNeverItsContents) {
  Rng rng(14);
  const Graph graph = RandomGraph(rng, 5000, 100'000, 0);
  const auto memory = InMemory(graph);
  const auto disk = OnDisk(graph);
  const NeighborSource source{.topology = disk.get(), .backend = backend_.get()};
  auto sampler = NeighborSampler::Make(source, {.fanouts = std::vector<uint32_t>{10}, .edge_ids = true});
  ASSERT_OK(sampler);
  const uint64_t position = graph.csc.indptr[2500];
  const uint64_t page = position * sizeof(NodeId) / 4096;
  {
    std::fstream file(disk->file().path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(disk->indices_offset(Adjacency::kCsc) + page * 4096 + 1));
    file.put(static_cast<char>(0xa5));
    ASSERT_TRUE(file.good());
  }
  const std::vector<NodeId> all = RandomSeeds(rng, graph.node_count(), graph.node_count());
  Block block;
  const Status status = (*sampler)->Sample(all, 1, block);
  EXPECT_EQ(status.code(), Code::kCorruption) << status.ToString();
  EXPECT_NE(status.message().find(disk->file().path()), std::string_view::npos) << status.message();
  // Lists elsewhere are still served, by the same sampler.
  const std::vector<NodeId> sound = {0, 1, 4999};
  ASSERT_OK((*sampler)->Sample(sound, 1, block));
  EXPECT_TRUE(SameBlock(block, SampleWith({.topology = memory.get()}, {10}, sound, 1)));
}

TEST_F(DiskSampling, ReportsEveryFailedReadAndRecovers) {
  Rng rng(15);
  const Graph graph = RandomGraph(rng, 3000, 60'000, 0);
  const auto memory = InMemory(graph);
  const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), 20);
  const Block expected = SampleWith({.topology = memory.get()}, {5, 5}, seeds, 9);
  const auto disk = OnDisk(graph);
  FaultBackend faults(*backend_);
  // Gaps do not pay: a request a page.
  const NeighborSource source{.topology = disk.get(),
                              .backend = &faults,
                              .io_depth = 4,
                              .device = {.sequential_bytes_per_second = 0}};
  auto sampler = NeighborSampler::Make(source, {.fanouts = std::vector<uint32_t>{5, 5}, .edge_ids = true});
  ASSERT_OK(sampler);
  Block block;
  uint64_t at = 1;
  for (;; ++at) {
    SCOPED_TRACE(testing::Message() << "read " << at);
    ASSERT_LT(at, 1000);
    faults.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const Status status = (*sampler)->Sample(seeds, 9, block);
    if (faults.strikes() == 0) break;
    EXPECT_EQ(status.code(), Code::kIoError) << status.ToString();
    faults.SetPlans({});
    ASSERT_OK((*sampler)->Sample(seeds, 9, block));
    ASSERT_TRUE(SameBlock(block, expected));
  }
  EXPECT_GT(at, 20);
}

}  // namespace
}  // namespace quarry
