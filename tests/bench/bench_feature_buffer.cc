// The feature buffer's bookkeeping for batches of the size that GNNs use: 670 thousand input nodes of 10
// million. The limit beside it: as many pairs of dependent random loads, prefetched, over arrays of the same
// sizes.
//
//   bench_feature_buffer [nodes] [batch]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/cache/feature_buffer.h"

namespace quarry {
namespace {

struct Seconds {
  double acquire = 0, finish = 0, release = 0;
};

// Distinct nodes, some far more frequent than others, as power-law graphs give them.
std::vector<NodeId> SkewedBatch(uint64_t node_count, size_t count, Rng& rng, std::vector<bool>& seen) {
  std::vector<NodeId> nodes;
  seen.assign(node_count, false);
  while (nodes.size() < count) {
    const double u = rng.Unit();
    // Scattered ids: hubs are not neighbours.
    const uint64_t rank = static_cast<uint64_t>(u * u * u * static_cast<double>(node_count));
    const auto node = static_cast<NodeId>(Mix64(rank) % node_count);
    if (seen[node]) continue;
    seen[node] = true;
    nodes.push_back(node);
  }
  return nodes;
}

double LimitSeconds(uint64_t node_count, uint64_t slot_count, const std::vector<NodeId>& nodes) {
  struct alignas(16) Slot {
    uint64_t a, b;
  };
  auto table_memory = IoBuffer::Allocate(node_count * sizeof(uint32_t));
  auto slots_memory = IoBuffer::Allocate(slot_count * sizeof(Slot));
  if (!table_memory.ok() || !slots_memory.ok()) return 0;
  auto* table = reinterpret_cast<uint32_t*>(table_memory->data());
  auto* slots = reinterpret_cast<Slot*>(slots_memory->data());
  for (uint64_t i = 0; i < node_count; ++i) table[i] = static_cast<uint32_t>(Mix64(i) % slot_count);
  const double start = MonotonicSeconds();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i + 32 < nodes.size()) __builtin_prefetch(&table[nodes[i + 32]], 1);
    if (i + 16 < nodes.size()) __builtin_prefetch(&slots[table[nodes[i + 16]]], 1);
    ++slots[table[nodes[i]]].a;
  }
  return MonotonicSeconds() - start;
}

int Main(uint64_t node_count, size_t batch) {
  const uint64_t retained = node_count / 10;
  const uint64_t slot_count = retained + 2 * batch;
  auto made = FeatureBuffer::Make(
      {.node_count = node_count, .slot_bytes = 16, .slot_count = slot_count, .retained_max = retained});
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.status().ToString());
    return 1;
  }
  FeatureBuffer& buffer = **made;
  Rng rng(1);
  std::vector<bool> seen;
  std::vector<uint32_t> slots(batch), misses, waits, missed;
  std::vector<NodeId> nodes;
  Seconds sum;
  constexpr int kRounds = 12, kWarm = 4;
  for (int round = 0; round < kRounds; ++round) {
    nodes = SkewedBatch(node_count, batch, rng, seen);
    if (round == kWarm) sum = {};
    const double t0 = MonotonicSeconds();
    if (!buffer.Acquire(nodes, slots, misses, waits).ok()) return 1;
    const double t1 = MonotonicSeconds();
    missed.clear();
    for (const uint32_t p : misses) missed.push_back(slots[p]);
    const double t2 = MonotonicSeconds();
    buffer.FinishLoad(missed);
    const double t3 = MonotonicSeconds();
    buffer.Release(slots);
    const double t4 = MonotonicSeconds();
    sum.acquire += t1 - t0;
    sum.finish += t3 - t2;
    sum.release += t4 - t3;
  }
  const int rounds = kRounds - kWarm;
  const FeatureBufferStats stats = buffer.stats();
  fmt::print("feature buffer, {} nodes, batch of {}, {} slots, {} retained, hit ratio {:.2f}\n", node_count,
             batch, slot_count, retained,
             static_cast<double>(stats.hits) / static_cast<double>(stats.lookups));
  fmt::print("  acquire {:6.2f} ms   finish {:6.2f} ms   release {:6.2f} ms\n", sum.acquire / rounds * 1e3,
             sum.finish / rounds * 1e3, sum.release / rounds * 1e3);
  fmt::print("  limit   {:6.2f} ms   (one pass of prefetched table and slot accesses)\n",
             LimitSeconds(node_count, slot_count, nodes) * 1e3);
  return 0;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const uint64_t nodes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10'000'000;
  const uint64_t batch = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 670'000;
  if (batch == 0 || batch * 2 > nodes) {
    fmt::print(stderr, "usage: bench_feature_buffer [nodes] [batch], batch at most half the nodes\n");
    return 2;
  }
  return quarry::Main(nodes, batch);
}
