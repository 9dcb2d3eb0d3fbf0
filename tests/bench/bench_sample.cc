// Neighbor sampling: sampled edges per second, beside what the machine's memory allows and beside the same
// algorithm written naively.
//
//   bench_sample [nodes] [edges] [fanouts, as 10,10,10] [exponent] [scratch directory]
//
// Both ends of the graph's edges follow a power law that gives degrees of the exponent (2.1; large ones come
// near to uniform), and ids say nothing about degrees. Batches of 1,024 seeds, shuffled over all nodes;
// without replacement; deduplication and renumbering included.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/scanner.h"
#include "sampling/topology_file.h"

namespace quarry {
namespace {

constexpr uint32_t kBatchSize = 1024;

// Ranks with P(rank) ~ (rank + 1)^(-1 / (exponent - 1)), which gives degrees of that exponent, by inverting
// the continuous distribution function.
class PowerLawRank {
 public:
  PowerLawRank(uint64_t count, double exponent)
      : power_(1 - 1 / (exponent - 1)), top_(std::pow(static_cast<double>(count + 1), power_) - 1) {}
  uint64_t operator()(Rng& rng) const {
    return static_cast<uint64_t>(std::pow(rng.Unit() * top_ + 1, 1 / power_)) - 1;
  }

 private:
  double power_;
  double top_;
};

NeighborLists PowerLawGraph(uint64_t node_count, uint64_t edge_count, double exponent) {
  Rng rng(1);
  std::vector<NodeId> node_of_rank(node_count);
  std::iota(node_of_rank.begin(), node_of_rank.end(), 0);
  for (size_t i = node_count; i > 1; --i) std::swap(node_of_rank[i - 1], node_of_rank[rng.Below(i)]);
  const PowerLawRank draw(node_count, exponent);
  const auto node = [&] { return node_of_rank[std::min(draw(rng), node_count - 1)]; };
  NeighborLists csc;
  csc.indptr.assign(node_count + 1, 0);
  for (uint64_t i = 0; i < edge_count; ++i) ++csc.indptr[node() + 1];
  for (uint64_t v = 0; v < node_count; ++v) csc.indptr[v + 1] += csc.indptr[v];
  csc.indices.resize(edge_count);
  for (NodeId& source : csc.indices) source = node();
  for (uint64_t v = 0; v < node_count; ++v) {
    std::sort(csc.indices.begin() + csc.indptr[v], csc.indices.begin() + csc.indptr[v + 1]);
  }
  return csc;
}

struct Rate {
  uint64_t edges = 0;
  uint64_t nodes = 0;
  uint64_t batches = 0;
  double seconds = 0;
  double cpu_seconds = 0;  // of the thread
  double edges_per_second() const { return static_cast<double>(edges) / seconds; }
  // What an undisturbed core would reach: for comparisons on a machine that others use, too.
  double edges_per_cpu_second() const { return static_cast<double>(edges) / cpu_seconds; }
};

// The batches of one pass, over and over.
class Batches {
 public:
  explicit Batches(uint64_t node_count) : seeds_(node_count) {
    std::iota(seeds_.begin(), seeds_.end(), 0);
    Rng rng(2);
    for (size_t i = seeds_.size(); i > 1; --i) std::swap(seeds_[i - 1], seeds_[rng.Below(i)]);
  }
  std::span<const NodeId> operator[](uint64_t i) const {
    return std::span(seeds_).subspan(i * kBatchSize % (seeds_.size() - kBatchSize), kBatchSize);
  }

 private:
  std::vector<NodeId> seeds_;
};

Rate Run(NeighborSampler& sampler, const Batches& batches, uint64_t first, uint64_t step, double seconds_min,
         uint64_t batches_max = ~uint64_t{0}) {
  Block block;
  Rate rate;
  // The first batch sizes tables and buffers.
  if (!sampler.Sample(batches[first], 0, block).ok()) std::abort();
  const double start = MonotonicSeconds();
  const double cpu_start = ThreadProcessorSeconds();
  for (uint64_t i = first + step; rate.seconds < seconds_min && rate.batches < batches_max; i += step) {
    if (const Status status = sampler.Sample(batches[i], i, block); !status.ok()) {
      fmt::print(stderr, "{}\n", status.ToString());
      std::abort();
    }
    rate.edges += block.indices.size();
    rate.nodes += block.nodes.size();
    ++rate.batches;
    rate.seconds = MonotonicSeconds() - start;
  }
  rate.cpu_seconds = ThreadProcessorSeconds() - cpu_start;
  return rate;
}

// What one would write first: a hash map for the ids, and a shuffled copy of every list that is too long.
Rate RunNaive(const NeighborLists& csc, std::span<const uint32_t> fanouts, const Batches& batches,
              uint64_t batch_count) {
  Rate rate{.batches = batch_count};
  const double start = MonotonicSeconds();
  const double cpu_start = ThreadProcessorSeconds();
  for (uint64_t b = 1; b <= batch_count; ++b) {
    Rng rng(b);
    std::vector<NodeId> nodes;
    std::unordered_map<NodeId, uint32_t> local;
    std::vector<uint32_t> indptr = {0}, indices;
    const auto add = [&](NodeId node) {
      const auto [found, is_new] = local.try_emplace(node, static_cast<uint32_t>(nodes.size()));
      if (is_new) nodes.push_back(node);
      return found->second;
    };
    for (const NodeId seed : batches[b]) add(seed);
    size_t begin = 0;
    for (const uint32_t fanout : fanouts) {
      const size_t end = nodes.size();
      for (; begin < end; ++begin) {
        std::span<const NodeId> list = csc.Of(nodes[begin]);
        std::vector<NodeId> shuffled;
        if (list.size() > fanout) {
          shuffled.assign(list.begin(), list.end());
          for (size_t k = 0; k < fanout; ++k)
            std::swap(shuffled[k], shuffled[k + rng.Below(list.size() - k)]);
          list = std::span(shuffled).first(fanout);
        }
        for (const NodeId neighbor : list) indices.push_back(add(neighbor));
        indptr.push_back(static_cast<uint32_t>(indices.size()));
      }
    }
    rate.edges += indices.size();
    rate.nodes += nodes.size();
  }
  rate.seconds = MonotonicSeconds() - start;
  rate.cpu_seconds = ThreadProcessorSeconds() - cpu_start;
  return rate;
}

// Random 4-byte loads per second of a thread's own time: each address known at once, or each the result of
// the load before.
template <bool kDependent>
double LoadsPerSecond(std::span<const NodeId> indices) {
  constexpr uint64_t kLoads = 1 << 23;
  const uint64_t bound = indices.size() - 1;
  uint64_t sum = 0, state = 3;
  const double start = ThreadProcessorSeconds();
  for (uint64_t i = 0; i < kLoads; ++i) {
    // A Weyl sequence, so that addresses cost next to nothing.
    state += 0x9e3779b97f4a7c15;
    const uint64_t at = static_cast<uint64_t>((static_cast<uint128_t>(state) * bound) >> 64);
    sum += indices[kDependent ? at + (sum & 1) : at];
  }
  const double seconds = ThreadProcessorSeconds() - start;
  volatile uint64_t sink = sum;
  (void)sink;
  return kLoads / seconds;
}

void PrintRate(std::string_view what, const Rate& rate) {
  const auto batches = static_cast<double>(rate.batches);
  fmt::print(
      "{:<31}{:>7.2f} M edges/s {:>7.1f} ns/edge; {:>6.2f} M per CPU second; a batch: {:.0f} edges, {:.0f} "
      "nodes\n",
      what, rate.edges_per_second() / 1e6, 1e9 / rate.edges_per_second(), rate.edges_per_cpu_second() / 1e6,
      static_cast<double>(rate.edges) / batches, static_cast<double>(rate.nodes) / batches);
}

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    fmt::print(stderr, "{}\n", result.status().ToString());
    std::exit(1);
  }
  return std::move(result).value();
}

void BenchMemory(const Topology& topology, const NeighborLists& csc, std::span<const uint32_t> fanouts,
                 const Batches& batches) {
  const NeighborSource source{.topology = &topology};
  const std::span<const NodeId> indices = topology.indices(Adjacency::kCsc);
  const double independent = LoadsPerSecond<false>(indices);
  const double dependent = LoadsPerSecond<true>(indices);
  fmt::print(
      "{:<31}{:>7.2f} M loads/s independent, {:.2f} M dependent: random 4-byte loads from the indices\n",
      "limit, one thread", independent / 1e6, dependent / 1e6);

  auto sampler = Must(NeighborSampler::Make(source, {.fanouts = {fanouts.begin(), fanouts.end()}}));
  const Rate one = Run(*sampler, batches, 0, 1, 3);
  PrintRate("one thread", one);
  fmt::print("{:<31}{:>7.2f} of the limit; scratch {}\n", "", one.edges_per_cpu_second() / independent,
             FormatBytes(sampler->scratch_bytes()));

  Rate rates[2];
  auto second = Must(NeighborSampler::Make(source, {.fanouts = {fanouts.begin(), fanouts.end()}}));
  std::thread thread([&] { rates[1] = Run(*second, batches, 1, 2, 3); });
  rates[0] = Run(*sampler, batches, 0, 2, 3);
  thread.join();
  const double both = rates[0].edges_per_second() + rates[1].edges_per_second();
  fmt::print("{:<31}{:>7.2f} M edges/s, {:.2f} times one thread\n", "two threads", both / 1e6,
             both / one.edges_per_second());

  const Rate naive = RunNaive(csc, fanouts, batches, 3);
  PrintRate("naive (unordered_map, shuffle)", naive);
  fmt::print("{:<31}{:>7.1f} times the naive version's edges per CPU second\n", "",
             one.edges_per_cpu_second() / naive.edges_per_cpu_second());
}

// Ways to draw, in turns: ten rounds of a few batches each. "new" are the nodes that the batch before did not have.
void BenchDraws(const Topology& topology, std::span<const uint32_t> fanouts, const Batches& batches) {
  constexpr int kRounds = 10;
  constexpr uint64_t kRoundBatches = 4;
  const RoadSpec plain{.fanouts = {fanouts.begin(), fanouts.end()}};
  std::vector<std::pair<std::string_view, RoadSpec>> ways(7, {"neighbor", plain});
  ways[1].first = "with replacement";
  ways[1].second.replace = true;
  ways[2].first = "weighted";
  ways[2].second.weighted = true;
  ways[3].first = "weighted, with replacement";
  ways[3].second.weighted = ways[3].second.replace = true;
  ways[4].first = "labor";
  ways[5].first = "labor, weighted";
  ways[5].second.weighted = true;
  ways[6].first = "labor, dependency 64";
  ways[6].second.batch_dependency = 64;
  for (size_t w = 4; w < ways.size(); ++w) ways[w].second.sampler = SamplerKind::kLabor;

  struct Way {
    std::unique_ptr<NeighborSampler> sampler;
    Rate rate;
    uint64_t fresh = 0;
    std::vector<uint32_t> last;  // by node, the batch that had it last, from 1
  };
  std::vector<Way> all;
  for (const auto& [name, spec] : ways) {
    all.push_back({.sampler = Must(NeighborSampler::Make({.topology = &topology}, spec)),
                   .rate = {},
                   .last = std::vector<uint32_t>(topology.node_count())});
  }
  Block block;
  for (int round = 0; round < kRounds; ++round) {
    for (size_t w = 0; w < all.size(); ++w) {
      Way& way = all[w];
      for (uint64_t i = 0; i < kRoundBatches; ++i) {
        const uint64_t number = way.rate.batches++;
        const double start = ThreadProcessorSeconds();
        if (!way.sampler->Sample(batches[number], ways[w].second.SeedOf(1, number), block).ok()) std::abort();
        way.rate.cpu_seconds += ThreadProcessorSeconds() - start;
        way.rate.edges += block.indices.size();
        way.rate.nodes += block.nodes.size();
        for (const NodeId node : block.nodes) {
          way.fresh += way.last[node] == number && number > 0 ? 0 : 1;
          way.last[node] = static_cast<uint32_t>(number + 1);
        }
      }
    }
  }
  for (size_t w = 0; w < all.size(); ++w) {
    const Rate& rate = all[w].rate;
    const auto count = static_cast<double>(rate.batches);
    const auto share = [](uint64_t a, uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
    const double ns = rate.cpu_seconds / static_cast<double>(rate.edges);
    fmt::print(
        "{:<31}{:>7.1f} ns/edge, {:.2f} times neighbor's; a batch: {:.0f} edges, {:.0f} nodes ({:.2f} of "
        "neighbor's), "
        "{:.0f} new ({:.2f})\n",
        ways[w].first, 1e9 * ns, ns * static_cast<double>(all[0].rate.edges) / all[0].rate.cpu_seconds,
        static_cast<double>(rate.edges) / count, static_cast<double>(rate.nodes) / count,
        share(rate.nodes, all[0].rate.nodes), static_cast<double>(all[w].fresh) / count,
        share(all[w].fresh, all[0].fresh));
  }
}

// What a cache of so many bytes would take to be read, verified and copied from a file of its own: read here from the
// indices, which lie on the same device.
struct ReadBack {
  double seconds = 0, cpu_seconds = 0;
};
ReadBack ReadAgain(const Topology& topology, IoBackend& backend, uint64_t bytes) {
  bytes = std::min(bytes, topology.IndicesBytes());
  std::vector<std::byte> copy(bytes);
  const double start = MonotonicSeconds(), cpu_start = ThreadProcessorSeconds();
  const auto scanner =
      Must(FileScanner::Make(backend, topology.file(), topology.indices_offset(Adjacency::kCsc), bytes));
  for (uint64_t at = 0; at < bytes;) {
    const std::span<const std::byte> piece = Must(scanner->Next());
    for (uint64_t page = 0; page < piece.size(); page += kPageBytes) {
      if (!topology
               .VerifyIndexPage(Adjacency::kCsc, (at + page) / kPageBytes, piece.subspan(page, kPageBytes))
               .ok()) {
        std::abort();
      }
    }
    const uint64_t count = std::min<uint64_t>(piece.size(), bytes - at);
    std::copy_n(piece.begin(), count, copy.begin() + static_cast<ptrdiff_t>(at));
    at += count;
  }
  return {MonotonicSeconds() - start, ThreadProcessorSeconds() - cpu_start};
}

void BenchDisk(const Topology& topology, IoBackend& backend, std::span<const uint32_t> fanouts,
               const Batches& batches) {
  for (const int percent : {0, 10, 30}) {
    const uint64_t budget = topology.IndicesBytes() * percent / 100;
    const double start = MonotonicSeconds(), cpu_start = ThreadProcessorSeconds();
    const auto cache = Must(NeighborCache::Build(backend, topology, Adjacency::kCsc, budget));
    const double build_seconds = MonotonicSeconds() - start, build_cpu = ThreadProcessorSeconds() - cpu_start;
    const ReadBack again = ReadAgain(topology, backend, cache->memory_bytes());
    const NeighborSource source{.topology = &topology, .backend = &backend, .caches = {cache.get(), nullptr}};
    auto sampler = Must(NeighborSampler::Make(source, {.fanouts = {fanouts.begin(), fanouts.end()}}));
    const Rate rate = Run(*sampler, batches, 0, 1, 3);
    PrintRate(fmt::format("disk ({}), cache {}%", backend.name(), percent), rate);
    const SamplerStats& stats = sampler->stats();
    const auto batch_count = static_cast<double>(rate.batches + 1);
    fmt::print(
        "{:<31}{:>7.0f} MB read and {:.0f} requests a batch, {:.2f} GB/s; {:.0f} lists a batch from the "
        "cache\n",
        "", static_cast<double>(stats.bytes_read) / batch_count / 1e6,
        static_cast<double>(stats.read_requests) / batch_count,
        static_cast<double>(stats.bytes_read) / stats.seconds / 1e9,
        static_cast<double>(stats.neighbor_cache_hits) / batch_count);
    fmt::print(
        "{:<31}cache of {} ({} lists, {:.1f} % of the edges) built in {:.2f} s ({:.2f} of the "
        "processor), would be read in {:.2f} ({:.2f}); scratch {}\n",
        "", FormatBytes(cache->memory_bytes()), cache->cached_nodes(),
        100.0 * static_cast<double>(cache->cached_edges()) / static_cast<double>(topology.edge_count()),
        build_seconds, build_cpu, again.seconds, again.cpu_seconds, FormatBytes(sampler->scratch_bytes()));
  }
}

std::vector<uint32_t> ParseFanouts(const char* text) {
  std::vector<uint32_t> fanouts;
  for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    fanouts.push_back(static_cast<uint32_t>(std::strtoul(text, &end, 10)));
  }
  return fanouts;
}

int Main(uint64_t node_count, uint64_t edge_count, std::span<const uint32_t> fanouts, double exponent,
         const std::string& directory) {
  const NeighborLists csc = PowerLawGraph(node_count, edge_count, exponent);
  fmt::print("{} nodes, {} edges, exponent {}, fanouts {}, batches of {}\n", node_count, edge_count, exponent,
             fmt::join(fanouts, ","), kBatchSize);
  const Batches batches(node_count);
  {
    const auto topology = Must(Topology::FromMemory(csc.indptr, csc.indices));
    BenchMemory(*topology, csc, fanouts, batches);
    Rng rng(3);
    std::vector<float> weights(edge_count);
    for (float& weight : weights) weight = static_cast<float>(1 - rng.Unit());
    if (!topology->SetWeights(Adjacency::kCsc, weights).ok()) std::abort();
    BenchDraws(*topology, fanouts, batches);
  }
  const auto backend = MakeDefaultBackend();
  std::filesystem::create_directories(directory);
  const std::string file = "bench_sample.qtp";
  std::filesystem::remove(directory + "/" + file);
  {
    const auto topology = Must(WriteTopology(*backend, directory, file, csc, nullptr));
    BenchDisk(*topology, *backend, fanouts, batches);
  }
  std::filesystem::remove(directory + "/" + file);
  return 0;
}

}  // namespace
}  // namespace quarry

int main(int argc, char** argv) {
  const auto count = [&](int i, uint64_t otherwise) {
    if (argc <= i) return otherwise;
    auto parsed = quarry::ParseCount(argv[i]);
    return parsed.ok() ? *parsed : otherwise;
  };
  return quarry::Main(
      count(1, 2'000'000), count(2, 40'000'000), quarry::ParseFanouts(argc > 3 ? argv[3] : "10,10,10"),
      argc > 4 ? std::strtod(argv[4], nullptr) : 2.1, argc > 5 ? argv[5] : "build/bench-data");
}
