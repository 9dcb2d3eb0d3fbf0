// Sampling on a device: the processor's blocks, bit for bit, on a device that runs late and in any order that events allow.
#include "quarry/sampling/device_sampler.h"

#include <gtest/gtest.h>

#include "quarry/base/random.h"
#include "sampling/block_oracle.h"
#include "support/fake_device.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::FakeDevice;

void ExpectSame(const Block& a, const Block& b) {
  ASSERT_EQ(a.nodes, b.nodes);
  ASSERT_EQ(a.hop_offsets, b.hop_offsets);
  ASSERT_EQ(a.indptr, b.indptr);
  ASSERT_EQ(a.indices, b.indices);
  ASSERT_EQ(a.edge_ids, b.edge_ids);
}

TEST(DeviceSampler, MakesTheBlocksOfTheProcessorsSampler) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const uint64_t node_count = 1 + rng.Below(300);
    const Graph graph = RandomGraph(rng, node_count, rng.Below(4000), static_cast<int>(rng.Below(4)));
    const auto topology = InMemory(graph);
    RoadSpec spec;
    spec.fanouts.clear();
    for (uint64_t hop = 1 + rng.Below(4); hop > 0; --hop)
      spec.fanouts.push_back(static_cast<uint32_t>(1 + rng.Below(50)));
    spec.replace = rng.Below(3) == 0;
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      spec.edge_ids = direction == Direction::kIn && rng.Below(2) == 0;
      FakeDevice device({.seed = seed});
      {
        ASSERT_OK_AND_ASSIGN(const auto lists, DeviceLists::Load(device, *topology, direction));
        ASSERT_OK_AND_ASSIGN(const auto sampler, MakeDeviceSampler(*lists, spec, 60));
        ASSERT_OK_AND_ASSIGN(
            const auto oracle,
            NeighborSampler::Make({.topology = topology.get(), .direction = direction}, spec));
        const uint64_t waits = device.counts().host_waits;
        Block block, expected;
        for (uint64_t batch = 0; batch < 4; ++batch) {
          const std::vector<NodeId> seeds = RandomSeeds(rng, node_count, rng.Below(60));
          ASSERT_OK(oracle->Sample(seeds, MixSeed(seed, batch), expected));
          ASSERT_OK(sampler->Sample(seeds, MixSeed(seed, batch), block));
          ASSERT_NO_FATAL_FAILURE(ExpectSame(block, expected));
        }
        EXPECT_EQ(device.counts().host_waits, waits);
        EXPECT_EQ(sampler->stats().edges, oracle->stats().edges);
        EXPECT_EQ(sampler->stats().nodes, oracle->stats().nodes);
      }
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(device.held(), 0u);
    }
  }
}

// Hops of hundreds of thousands of edges: sums in four levels of tiles, and blocks that come back in pieces.
TEST(DeviceSampler, MakesBlocksOfManyTiles) {
  Rng rng(7);
  const Graph graph = RandomGraph(rng, 400'000, 3'000'000, 1);
  const auto topology = InMemory(graph);
  RoadSpec spec;
  spec.fanouts = {9, 1024, 4};
  FakeDevice device({.seed = 1, .memory_bytes = uint64_t{4} << 30});
  ASSERT_OK_AND_ASSIGN(const auto lists, DeviceLists::Load(device, *topology, Direction::kBoth));
  ASSERT_OK_AND_ASSIGN(const auto sampler, MakeDeviceSampler(*lists, spec, 5000));
  ASSERT_OK_AND_ASSIGN(
      const auto oracle,
      NeighborSampler::Make({.topology = topology.get(), .direction = Direction::kBoth}, spec));
  Block block, expected;
  for (const size_t count : {5000u, 3u}) {
    const std::vector<NodeId> seeds = RandomSeeds(rng, graph.node_count(), count);
    ASSERT_OK(oracle->Sample(seeds, 11, expected));
    ASSERT_OK(sampler->Sample(seeds, 11, block));
    ASSERT_NO_FATAL_FAILURE(ExpectSame(block, expected));
  }
  EXPECT_GT(expected.indices.size() + block.indices.size(), 0u);
}

TEST(DeviceSampler, TakesWhatNeedOfDeviceSamplerSays) {
  const auto topology = Topology::FromMemory({0, 2, 4, 4}, std::vector<NodeId>{1, 2, 0, 2});
  ASSERT_OK(topology);
  FakeDevice device;
  ASSERT_OK_AND_ASSIGN(const auto lists, DeviceLists::Load(device, **topology, Direction::kIn));
  RoadSpec spec;
  spec.fanouts = {30, 20};
  const uint64_t before = device.FreeBytes().value();
  ASSERT_OK_AND_ASSIGN(const auto sampler, MakeDeviceSampler(*lists, spec, 1000));
  const DeviceSamplerNeed need = NeedOfDeviceSampler(3, spec, 1000);
  EXPECT_EQ(before - device.FreeBytes().value(), need.device_bytes);
  EXPECT_EQ(sampler->scratch_bytes(), need.pinned_bytes);
}

TEST(DeviceSampler, RefusesWhatTheProcessorsSamplerRefuses) {
  const auto topology = Topology::FromMemory(std::vector<uint64_t>(10'001, 0), {});
  ASSERT_OK(topology);
  FakeDevice device;
  ASSERT_OK_AND_ASSIGN(const auto lists, DeviceLists::Load(device, **topology, Direction::kIn));
  EXPECT_EQ(DeviceLists::Load(device, **topology, Direction::kBoth).status().code(), Code::kInvalidArgument);
  RoadSpec spec;
  spec.fanouts = {3};
  ASSERT_OK_AND_ASSIGN(const auto sampler, MakeDeviceSampler(*lists, spec, 5));
  const auto oracle = NeighborSampler::Make({.topology = topology->get()}, spec);
  ASSERT_OK(oracle);
  for (const std::vector<NodeId>& seeds : {std::vector<NodeId>{1, 10'000}, {1, 7, 5, 7, 5}}) {
    Block block;
    const Status expected = (*oracle)->Sample(seeds, 1, block);
    EXPECT_EQ(sampler->Sample(seeds, 1, block).ToString(), expected.ToString());
    EXPECT_EQ(expected.code(), Code::kInvalidArgument);
  }
  Block block;
  EXPECT_EQ(sampler->Sample(std::vector<NodeId>{1, 2, 3, 4, 5, 6}, 1, block).code(), Code::kInvalidArgument);
  ASSERT_OK(sampler->Sample(std::vector<NodeId>{3, 1}, 1, block));
  EXPECT_EQ(block.nodes, (std::vector<NodeId>{3, 1}));
  const auto refused = [&](const RoadSpec& other) {
    return MakeDeviceSampler(*lists, other, 5).status().code();
  };
  RoadSpec other = spec;
  other.fanouts = {0};
  EXPECT_EQ(refused(other), Code::kUsage);
  other = spec;
  other.weighted = true;
  EXPECT_EQ(refused(other), Code::kUnsupported);
  other = spec;
  other.sampler = SamplerKind::kLabor;
  EXPECT_EQ(refused(other), Code::kUnsupported);
  const auto large = Topology::FromMemory(std::vector<uint64_t>(3'000'001, 0), {});
  ASSERT_OK(large);
  ASSERT_OK_AND_ASSIGN(const auto large_lists, DeviceLists::Load(device, **large, Direction::kIn));
  other = spec;
  other.fanouts = {1024, 1024, 1024};
  EXPECT_EQ(MakeDeviceSampler(*large_lists, other, 1000).status().code(), Code::kUnsupported) << "2^31 edges";
}

// Every call of the device fails, once and from then on: an error, nothing kept, nothing used after it is gone.
TEST(DeviceSampler, AFailureOfTheDeviceIsAnError) {
  Rng rng(3);
  const Graph graph = RandomGraph(rng, 100, 1000, 1);
  const auto topology = InMemory(graph);
  RoadSpec spec;
  spec.fanouts = {4, 3};
  const std::vector<NodeId> seeds = RandomSeeds(rng, 100, 10);
  for (const bool fails_on : {false, true}) {
    for (uint64_t at = 1;; ++at) {
      SCOPED_TRACE(testing::Message() << "call " << at << (fails_on ? " on" : ""));
      FakeDevice device({.seed = at, .fail_at = at, .fails_on = fails_on});
      Status status;
      uint64_t calls = 0;  // but for those that give back
      {
        const auto lists = DeviceLists::Load(device, *topology, Direction::kIn);
        status = lists.status();
        if (lists.ok()) {
          const auto sampler = MakeDeviceSampler(**lists, spec, 20);
          status = sampler.status();
          Block block;
          for (uint64_t batch = 0; status.ok() && batch < 2; ++batch)
            status = (*sampler)->Sample(seeds, batch, block);
          if (!status.ok() && sampler.ok()) {
            EXPECT_FALSE((*sampler)->Sample(seeds, 1, block).ok())
                << "it has lost count of what is on the device";
          }
          calls = device.calls();
        }
      }
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(device.held(), 0u);
      if (calls != 0 && calls < at) {
        EXPECT_OK(status);
        break;
      }
      EXPECT_FALSE(status.ok());
    }
  }
}

}  // namespace
}  // namespace quarry
