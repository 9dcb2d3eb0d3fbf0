// What deciding a batch costs, in nanoseconds per access: CachePolicy::Step alone, and CacheSimulator::Step,
// which looks every node up and gives out slots, on a trace whose nodes are drawn from a power law; beside a
// pass over the same batches that looks every node up and does nothing else.
//
//   bench_cache_policy [NODES [BATCH_NODES [CAPACITY [BATCHES]]]]
//
// 10 M nodes, 700 thousand a batch, 1 M rows, 60 batches by default.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/cache/cache_simulator.h"

namespace quarry::bench {
namespace {

struct AccessTrace {
  std::vector<std::vector<NodeId>> nodes;
  std::vector<std::vector<uint32_t>> next_uses;
};

// Batches of a quarter and then three quarters of their nodes, each part ascending, as hops leave them.
std::vector<NodeId> PowerLawBatch(Rng& rng, uint64_t node_count, uint64_t batch_nodes,
                                  std::vector<uint32_t>& seen_in, uint32_t stamp) {
  std::vector<NodeId> nodes;
  while (nodes.size() < batch_nodes) {
    const auto rank = static_cast<uint64_t>(std::pow(rng.Unit(), 2.5) * static_cast<double>(node_count));
    const auto node = static_cast<NodeId>(Mix64(rank) % node_count);
    if (std::exchange(seen_in[node], stamp) != stamp) nodes.push_back(node);
  }
  std::sort(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(batch_nodes / 4));
  std::sort(nodes.begin() + static_cast<ptrdiff_t>(batch_nodes / 4), nodes.end());
  return nodes;
}

AccessTrace MakeTrace(uint64_t node_count, uint64_t batch_nodes, uint32_t batch_count) {
  AccessTrace trace;
  Rng rng(1);
  std::vector<uint32_t> upcoming(node_count, kNeverUsed);
  for (uint32_t batch = 0; batch < batch_count; ++batch) {
    trace.nodes.push_back(PowerLawBatch(rng, node_count, batch_nodes, upcoming, batch));
  }
  upcoming.assign(node_count, kNeverUsed);
  trace.next_uses.resize(batch_count);
  for (uint32_t batch = batch_count; batch-- > 0;) {
    for (const NodeId node : trace.nodes[batch]) {
      trace.next_uses[batch].push_back(std::exchange(upcoming[node], batch));
    }
  }
  return trace;
}

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void LookUp(const AccessTrace& trace, uint64_t node_count) {
  std::vector<uint32_t> slots(node_count, kNoSlot);
  uint64_t accesses = 0, sum = 0;
  const double start = Seconds();
  for (const auto& nodes : trace.nodes) {
    for (const NodeId node : nodes) sum += slots[node];
    accesses += nodes.size();
  }
  const double ns = (Seconds() - start) * 1e9 / static_cast<double>(accesses);
  fmt::print("{:<14} {:6.2f} ns per access (sum {:x})\n", "lookups alone", ns, sum);
}

struct Cost {
  double seconds = 0;
  uint64_t accesses = 0;
  double ns() const { return seconds * 1e9 / static_cast<double>(accesses); }
};

std::span<const uint32_t> NextUses(PolicyKind kind, const AccessTrace& trace, uint32_t batch) {
  return WantsNextUses(kind) ? std::span<const uint32_t>(trace.next_uses[batch])
                             : std::span<const uint32_t>();
}

// The first tenth of a trace fills the cache and sizes the buffers.
bool IsTimed(const AccessTrace& trace, uint32_t batch) { return batch >= trace.nodes.size() / 10; }

// CachePolicy::Step alone; who is resident is kept track of outside of the time.
Cost TimePolicy(PolicyKind kind, const AccessTrace& trace, uint64_t node_count, uint64_t capacity) {
  const auto policy = CachePolicy::Make(kind, node_count, capacity, {}, {});
  std::vector<uint8_t> is_resident(node_count), resident;
  CacheChange change;
  Cost cost;
  for (uint32_t batch = 0; batch < trace.nodes.size(); ++batch) {
    const std::vector<NodeId>& nodes = trace.nodes[batch];
    resident.clear();
    for (const NodeId node : nodes) resident.push_back(is_resident[node]);
    const double start = Seconds();
    policy->Step({batch, nodes, NextUses(kind, trace, batch), resident}, change);
    if (IsTimed(trace, batch)) {
      cost.seconds += Seconds() - start;
      cost.accesses += nodes.size();
    }
    for (const NodeId node : change.evicted) is_resident[node] = 0;
    for (const uint32_t position : change.admitted) is_resident[nodes[position]] = 1;
  }
  return cost;
}

void Simulate(PolicyKind kind, const AccessTrace& trace, uint64_t node_count, uint64_t capacity) {
  CacheSimulator simulator(kind, node_count, capacity, {}, {});
  CacheStep step;
  Cost cost;
  uint64_t misses = 0, admitted = 0;
  for (uint32_t batch = 0; batch < trace.nodes.size(); ++batch) {
    const double start = Seconds();
    simulator.Step(batch, trace.nodes[batch], NextUses(kind, trace, batch), step);
    if (!IsTimed(trace, batch)) continue;
    cost.seconds += Seconds() - start;
    cost.accesses += trace.nodes[batch].size();
    misses += step.misses;
    admitted += step.admitted.size();
  }
  const auto percent = [&](uint64_t count) {
    return 100 * static_cast<double>(count) / static_cast<double>(cost.accesses);
  };
  const uint64_t bytes = CachePolicy::MemoryBytes(kind, node_count, capacity, trace.nodes[0].size());
  fmt::print("{:<14} {:6.2f} ns per access, {:6.2f} with slots; {:4.1f} % hits, {:4.1f} % admitted, {}\n",
             NameOf(kind), TimePolicy(kind, trace, node_count, capacity).ns(), cost.ns(),
             100 - percent(misses), percent(admitted), FormatBytes(bytes));
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  using namespace quarry;
  uint64_t sizes[] = {10'000'000, 700'000, 1'000'000, 60};
  for (int i = 1; i < argc && i <= 4; ++i) sizes[i - 1] = std::strtoull(argv[i], nullptr, 10);
  if (argc > 5 || sizes[1] == 0 || sizes[1] > sizes[0] / 4 || sizes[3] == 0) {
    fmt::print(stderr,
               "bench_cache_policy [NODES [BATCH_NODES [CAPACITY [BATCHES]]]]: BATCH_NODES <= NODES/4\n");
    return 2;
  }
  const auto trace = bench::MakeTrace(sizes[0], sizes[1], static_cast<uint32_t>(sizes[3]));
  bench::LookUp(trace, sizes[0]);
  for (const PolicyKind kind : {PolicyKind::kFifo, PolicyKind::kLru, PolicyKind::kBelady}) {
    bench::Simulate(kind, trace, sizes[0], sizes[2]);
  }
  return 0;
}
