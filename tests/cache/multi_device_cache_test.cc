// BGL's cache on devices: rows, hits and evictions against queues, for any number of buffers, under a thousand schedules of
// the fake device; every call of the device failing; fetches that fail.
#include "quarry/cache/multi_device_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "quarry/gpu/handles.h"
#include "quarry/io/buffer.h"
#include "support/fake_device.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::FakeDevice;

uint32_t WordOf(NodeId node, uint64_t i) { return static_cast<uint32_t>((node + 1) * 2654435761u + i * 97); }

// Rows whose words tell their node.
Status FetchRows(std::span<const NodeId> nodes, std::span<std::byte> rows) {
  const size_t words = rows.size() / nodes.size() / sizeof(uint32_t);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t w = 0; w < words; ++w) {
      const uint32_t word = WordOf(nodes[i], w);
      std::memcpy(&rows[(i * words + w) * sizeof word], &word, sizeof word);
    }
  }
  return Status::Ok();
}

// First in, first out, as the paper has it: what is used does not move.
class Queue {
 public:
  explicit Queue(uint64_t capacity) : capacity_(capacity) {}
  // The nodes that are not there; they come in afterwards, the last ones where there is no room for all.
  std::vector<NodeId> Use(const std::vector<NodeId>& nodes, uint64_t& hits, uint64_t& evictions) {
    std::vector<NodeId> misses;
    for (const NodeId node : nodes) {
      if (std::ranges::find(rows_, node) == rows_.end()) misses.push_back(node);
    }
    hits += nodes.size() - misses.size();
    for (size_t i = misses.size() - std::min<size_t>(misses.size(), capacity_); i < misses.size(); ++i) {
      if (rows_.size() == capacity_) {
        rows_.pop_front();
        ++evictions;
      }
      rows_.push_back(misses[i]);
    }
    return misses;
  }

 private:
  const uint64_t capacity_;
  std::deque<NodeId> rows_;
};

struct Model {
  explicit Model(const MultiDeviceCacheOptions& options) : buffers(options.buffers) {
    for (uint32_t g = 0; g < buffers; ++g) {
      device.emplace_back(options.device_rows / buffers + (g < options.device_rows % buffers ? 1 : 0));
      host.emplace_back(options.host_rows / buffers + (g < options.host_rows % buffers ? 1 : 0));
    }
  }
  void Use(const std::vector<NodeId>& nodes) {
    for (uint32_t g = 0; g < buffers; ++g) {
      std::vector<NodeId> own;
      std::ranges::copy_if(nodes, std::back_inserter(own), [&](NodeId node) { return node % buffers == g; });
      const auto misses = device[g].Use(own, counts.device_hits, counts.device_evictions);
      counts.fetched += host[g].Use(misses, counts.host_hits, counts.host_evictions).size();
    }
  }
  const uint32_t buffers;
  std::vector<Queue> device, host;
  MultiDeviceCacheCounts counts;
};

MultiDeviceCacheOptions RandomOptions(std::mt19937_64& random, gpu::Device& device) {
  const uint64_t stride = 4 + 4 * (random() % 12);
  return {.device = &device,
          .buffers = static_cast<uint32_t>(1 + random() % 5),
          .node_count = 40 + random() % 100,
          .stride_bytes = stride,
          .device_rows = random() % 60,
          .host_rows = random() % 3 == 0 ? 0 : random() % 80,
          .batch_nodes_max = 40,
          .batches_in_flight = static_cast<uint32_t>(1 + random() % 3),
          .staging_bytes = 2 * stride * (1 + random() % 20)};
}

std::vector<NodeId> RandomNodes(std::mt19937_64& random, const MultiDeviceCacheOptions& options) {
  std::vector<NodeId> nodes(options.node_count);
  std::iota(nodes.begin(), nodes.end(), 0);
  std::ranges::shuffle(nodes, random);
  nodes.resize(random() % (options.batch_nodes_max + 1));
  return nodes;
}

// Batches begun as far ahead as it goes, each written to one of as many places, and read by the batches' own stream.
struct Reader {
  Status Open(gpu::Device& device, const MultiDeviceCacheOptions& options, size_t batches) {
    const uint64_t bytes = options.batch_nodes_max * options.stride_bytes;
    QUARRY_TRY(results, IoBuffer::Allocate(batches * bytes));
    QUARRY_TRY(pinned, gpu::PinMemory(device, results.span()));
    QUARRY_TRY(stream, gpu::MakeStream(device));
    for (uint32_t i = 0; i < options.batches_in_flight; ++i) {
      QUARRY_TRY(auto place, gpu::AllocateMemory(device, bytes));
      places.push_back(std::move(place));
    }
    return Status::Ok();
  }
  Status Read(gpu::Device& device, MultiDeviceCache& cache, const MultiDeviceCacheOptions& options,
              const std::vector<std::vector<NodeId>>& batches) {
    const uint64_t bytes = options.batch_nodes_max * options.stride_bytes;
    std::deque<MultiDeviceCache::Ticket> begun;
    size_t finished = 0;
    Status status;
    const auto finish = [&] {
      const Status ended = cache.Finish(begun.front());
      begun.pop_front();
      if (status.ok()) status = ended;
      const std::span place = places[finished % places.size()].get();
      if (status.ok() && !batches[finished].empty()) {
        status = device.CopyOut(results.data() + finished * bytes, place.data(),
                                batches[finished].size() * options.stride_bytes, stream.get());
      }
      ++finished;
    };
    for (size_t i = 0; i < batches.size() && status.ok(); ++i) {
      if (begun.size() == options.batches_in_flight) finish();
      if (!status.ok()) break;
      auto ticket = cache.Begin(batches[i], places[i % places.size()].get().data(), stream.get());
      if (!ticket.ok()) {
        status = ticket.status();
        break;
      }
      begun.push_back(*ticket);
    }
    while (!begun.empty()) finish();
    const Status through = device.Synchronize(stream.get());
    return status.ok() ? through : status;
  }
  // The first word that is not its node's, in words; empty: there is none.
  std::string FirstWrong(const MultiDeviceCacheOptions& options,
                         const std::vector<std::vector<NodeId>>& batches) const {
    for (size_t b = 0; b < batches.size(); ++b) {
      const std::byte* row = results.data() + b * options.batch_nodes_max * options.stride_bytes;
      for (const NodeId node : batches[b]) {
        for (uint64_t w = 0; w < options.stride_bytes / 4; ++w, row += 4) {
          uint32_t word = 0;
          std::memcpy(&word, row, sizeof word);
          if (word != WordOf(node, w)) return fmt::format("batch {}, node {}, word {}", b, node, w);
        }
      }
    }
    return "";
  }
  IoBuffer results;
  gpu::Pinned pinned;
  std::vector<gpu::Memory> places;
  gpu::Stream stream;
};

bool operator==(const MultiDeviceCacheCounts& a, const MultiDeviceCacheCounts& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST(MultiDeviceCacheTest, IsFirstInFirstOutForAnyNumberOfBuffersUnderEverySchedule) {
  const uint64_t schedules = testing_util::Repetitions(1000, 5);
  uint64_t hits = 0, host_hits = 0, evictions = 0;
  for (uint64_t seed = 1; seed <= schedules; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    FakeDevice device({.seed = seed});
    {
      const MultiDeviceCacheOptions options = RandomOptions(random, device);
      std::vector<std::vector<NodeId>> batches(12);
      Model model(options);
      for (auto& nodes : batches) {
        nodes = RandomNodes(random, options);
        model.Use(nodes);
      }
      MemoryBudget budget(MultiDeviceCache::HostBytes(options));
      ASSERT_OK_AND_ASSIGN(const auto cache, MultiDeviceCache::Open(options, FetchRows, budget));
      Reader reader;
      ASSERT_OK(reader.Open(device, options, batches.size()));
      ASSERT_OK(reader.Read(device, *cache, options, batches));
      ASSERT_EQ(reader.FirstWrong(options, batches), "");
      ASSERT_TRUE(cache->counts() == model.counts);
      hits += model.counts.device_hits;
      host_hits += model.counts.host_hits;
      evictions += model.counts.device_evictions;
    }
    ASSERT_EQ(device.misuses(), "");
    ASSERT_EQ(device.held(), 0u);
  }
  EXPECT_GT(hits, 10 * schedules);
  EXPECT_GT(host_hits, 10 * schedules);
  EXPECT_GT(evictions, 10 * schedules);
}

// The events of a batch are the first that are made. Without any of them rows come out wrong under some schedule.
TEST(MultiDeviceCacheTest, NeedsEachOfItsEvents) {
  for (uint64_t event = 1; event <= 6; ++event) {
    uint64_t wrong = 0;
    for (uint64_t seed = 1; seed <= 100 && wrong == 0; ++seed) {
      std::mt19937_64 random(seed);
      FakeDevice device({.seed = seed, .forgets_event = event});
      MultiDeviceCacheOptions options = RandomOptions(random, device);
      options.buffers = 2;
      options.batches_in_flight = 2;
      std::vector<std::vector<NodeId>> batches(12);
      for (auto& nodes : batches) nodes = RandomNodes(random, options);
      MemoryBudget budget(MultiDeviceCache::HostBytes(options));
      ASSERT_OK_AND_ASSIGN(const auto cache, MultiDeviceCache::Open(options, FetchRows, budget));
      Reader reader;
      ASSERT_OK(reader.Open(device, options, batches.size()));
      ASSERT_OK(reader.Read(device, *cache, options, batches));
      wrong += reader.FirstWrong(options, batches).empty() ? 0 : 1;
      device.Drain();
    }
    EXPECT_GT(wrong, 0u) << "event " << event;
  }
}

TEST(MultiDeviceCacheTest, EveryCallOfTheDeviceThatFailsIsToldAndNothingIsLost) {
  for (const bool fails_on : {false, true}) {
    uint64_t failures = 0;
    for (uint64_t k = 1;; k += testing_util::OneIn()) {
      SCOPED_TRACE(k);
      std::mt19937_64 random(7);
      FakeDevice device({.seed = k, .fail_at = k, .fails_on = fails_on});
      Status status;
      {
        MultiDeviceCacheOptions options = RandomOptions(random, device);
        options.buffers = 2;
        std::vector<std::vector<NodeId>> batches(4);
        for (auto& nodes : batches) nodes = RandomNodes(random, options);
        MemoryBudget budget(MultiDeviceCache::HostBytes(options));
        Reader reader;
        status = reader.Open(device, options, batches.size());
        if (status.ok()) {
          auto cache = MultiDeviceCache::Open(options, FetchRows, budget);
          status = cache.status();
          if (cache.ok()) status = reader.Read(device, **cache, options, batches);
        }
        if (status.ok()) {
          EXPECT_EQ(reader.FirstWrong(options, batches), "");
        }
        // What the fake device still runs is through before the reader's memory goes.
        device.Drain();
        EXPECT_EQ(budget.used_bytes(), 0u);
      }
      EXPECT_EQ(device.misuses(), "");
      EXPECT_EQ(device.held(), 0u);
      if (status.ok() && device.calls() < k) break;
      failures += status.ok() ? 0 : 1;
    }
    EXPECT_GT(failures, 50 / testing_util::OneIn());
  }
}

TEST(MultiDeviceCacheTest, AFetchThatFailsEndsIt) {
  FakeDevice device;
  const MultiDeviceCacheOptions options = {.device = &device,
                                           .buffers = 3,
                                           .node_count = 100,
                                           .stride_bytes = 16,
                                           .device_rows = 10,
                                           .batch_nodes_max = 10};
  std::atomic<int> fetches = 0;
  MemoryBudget budget(MultiDeviceCache::HostBytes(options));
  ASSERT_OK_AND_ASSIGN(const auto cache, MultiDeviceCache::Open(
                                             options,
                                             [&](std::span<const NodeId> nodes, std::span<std::byte> rows) {
                                               if (++fetches == 2) return Status(Code::kCorruption, "row 7");
                                               return FetchRows(nodes, rows);
                                             },
                                             budget));
  ASSERT_OK_AND_ASSIGN(const auto out, gpu::AllocateMemory(device, 160));
  ASSERT_OK_AND_ASSIGN(const auto stream, gpu::MakeStream(device));
  for (const std::vector<NodeId>& nodes : {std::vector<NodeId>{1}, {4}, {7}}) {
    ASSERT_OK_AND_ASSIGN(const auto ticket, cache->Begin(nodes, out.get().data(), stream.get()));
    const Status status = cache->Finish(ticket);
    if (nodes[0] == 1) {
      EXPECT_OK(status);
    } else {
      EXPECT_THAT(status, IsStatus(Code::kCorruption));
    }
  }
  device.Drain();
}

TEST(MultiDeviceCacheTest, RefusesWhatMakesNoSense) {
  FakeDevice device;
  MultiDeviceCacheOptions options = {.device = &device,
                                     .node_count = 100,
                                     .stride_bytes = 16,
                                     .device_rows = 10,
                                     .batch_nodes_max = 4,
                                     .batches_in_flight = 1};
  MemoryBudget small(MultiDeviceCache::HostBytes(options) - 1);
  EXPECT_THAT(MultiDeviceCache::Open(options, FetchRows, small).status(), IsStatus(Code::kOutOfBudget));
  MemoryBudget budget(MultiDeviceCache::HostBytes(options));
  {
    ASSERT_OK_AND_ASSIGN(const auto cache, MultiDeviceCache::Open(options, FetchRows, budget));
    ASSERT_OK_AND_ASSIGN(const auto out, gpu::AllocateMemory(device, 64));
    ASSERT_OK_AND_ASSIGN(const auto stream, gpu::MakeStream(device));
    const std::vector<NodeId> many(5), beyond = {100}, none;
    EXPECT_THAT(cache->Begin(many, out.get().data(), stream.get()).status(), IsStatus(Code::kUsage));
    EXPECT_THAT(cache->Begin(beyond, out.get().data(), stream.get()).status(), IsStatus(Code::kUsage));
    ASSERT_OK_AND_ASSIGN(const auto ticket, cache->Begin(none, out.get().data(), stream.get()));
    EXPECT_THAT(cache->Begin(none, out.get().data(), stream.get()).status(), IsStatus(Code::kUsage));
    EXPECT_OK(cache->Finish(ticket));
    device.Drain();
  }
  options.stride_bytes = 6;
  EXPECT_THAT(MultiDeviceCache::Open(options, FetchRows, budget).status(), IsStatus(Code::kUsage));
}

}  // namespace
}  // namespace quarry
