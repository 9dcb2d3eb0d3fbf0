// Partitioners: what they cut beside METIS and random parts, what they take, and what they save sampling.
//
//   bench_partition [tables | sampling | scale]... [--nodes 200k] [--degree 15] [--parts 4]
//                   [--methods grem:0.01,grem:0.1,bgl,metis,random] [--folder build/bench-data]
//
//   tables    two parts of FB15k-237 and cnr-2000, beside the values that Algorithm 4 with its own place free
//             gave when it was written down a second time, in Python
//   sampling  an epoch of 3 hops 15,10,5 on arxiv-2023 and on a generated graph with communities: neighbors
//             that lie in another part than the node, and training nodes of the fullest part
//   scale     a generated graph: CPU seconds, peak memory and cut of each method, each in its own process
//
// Without a word: all three. FB15k-237, cnr-2000 and arxiv-2023 are taken from ../shared/data, or from where
// QUARRY_SHARED_DATA points, and left out where they are not.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "generator/synthetic_graph.h"
#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/random.h"
#include "quarry/base/text.h"
#include "quarry/base/units.h"
#include "quarry/import/dataset.h"
#include "quarry/import/topology_builder.h"
#include "quarry/partition/cut.h"
#include "quarry/partition/partitioner.h"
#include "quarry/sampling/sampler.h"
#include "support/shared_data.h"

namespace quarry::bench {
namespace {

constexpr std::array<std::byte, 16> kDatabaseId{std::byte{16}};
constexpr uint64_t kNoLimit = uint64_t{1} << 50;

struct Method {
  PartitionMethod method = PartitionMethod::kGrem;
  double chunk_share = 0.1;
  std::string name;  // as it was given
};

struct Options {
  bool tables = false, sampling = false, scale = false;
  uint64_t node_count = 200'000;
  double degree = 15;
  uint32_t parts = 4;
  std::vector<Method> methods;
  std::string folder = "build/bench-data";
};

struct Graph {
  uint64_t node_count = 0;
  std::vector<NodePair> edges;
  std::vector<NodeId> train;
};

Result<Method> ParseMethod(std::string_view text) {
  const size_t colon = text.find(':');
  Method method{.name = std::string(text)};
  QUARRY_TRY(method.method, ParseName<PartitionMethod>(text.substr(0, colon)));
  if (colon != std::string_view::npos) method.chunk_share = std::atof(method.name.c_str() + colon + 1);
  return method;
}

GenerateOptions Generated(const Options& options) {
  return {.node_count = options.node_count, .degree = options.degree, .dim = 1, .train_share = 0.1};
}

PartitionOptions For(const Method& method, uint32_t parts, uint64_t seed,
                     std::span<const NodeId> train = {}) {
  return {.method = method.method,
          .parts = parts,
          .chunk_share = method.chunk_share,
          .seed = seed,
          .train_nodes = train};
}

// --- graphs

// The training triples without their relations; entities that none of them has are left out.
Result<Graph> ReadTriples(const std::string& path) {
  QUARRY_TRY(const Dataset dataset, OpenDataset(path, {}));
  if (dataset.train_triples == nullptr) return MakeStatus(Code::kInvalidArgument, "{} has no triples", path);
  Graph graph;
  std::unordered_map<NodeId, NodeId> ids;
  std::vector<Triple> read(4096);
  while (true) {
    QUARRY_TRY(const size_t count, dataset.train_triples->Read(read));
    if (count == 0) break;
    for (const Triple& triple : std::span(read).first(count)) {
      const NodeId head = ids.try_emplace(triple.head, static_cast<NodeId>(ids.size())).first->second;
      const NodeId tail = ids.try_emplace(triple.tail, static_cast<NodeId>(ids.size())).first->second;
      graph.edges.push_back({head, tail});
    }
  }
  graph.node_count = ids.size();
  return graph;
}

Result<Graph> ReadEdges(const std::string& path) {
  QUARRY_TRY(const Dataset dataset, OpenDataset(path, {}));
  Graph graph;
  std::vector<Edge> read(4096);
  while (true) {
    QUARRY_TRY(const size_t count, dataset.edges.front().reader->Read(read));
    if (count == 0) break;
    for (const Edge& edge : std::span(read).first(count)) {
      graph.edges.push_back({static_cast<NodeId>(edge.source), static_cast<NodeId>(edge.destination)});
      graph.node_count = std::max({graph.node_count, edge.source + 1, edge.destination + 1});
    }
  }
  graph.node_count = std::max(graph.node_count, dataset.node_count.value_or(0));
  std::vector<int64_t> ids(4096);
  while (dataset.train != nullptr) {
    QUARRY_TRY(const size_t count, dataset.train->Read(ids));
    if (count == 0) break;
    for (const int64_t id : std::span(ids).first(count)) graph.train.push_back(static_cast<NodeId>(id));
  }
  return graph;
}

Graph GenerateGraph(const Options& options) {
  const GenerateOptions generated = Generated(options);
  const SyntheticGraph synthetic(generated);
  Graph graph{.node_count = options.node_count};
  for (uint64_t i = 0; i < synthetic.edge_count(); ++i) {
    graph.edges.push_back(
        {static_cast<NodeId>(synthetic.Source(i)), static_cast<NodeId>(synthetic.Destination(i))});
  }
  for (uint64_t v = 0; v < options.node_count; ++v) {
    if (synthetic.SplitOf(v) == Split::kTrain) graph.train.push_back(static_cast<NodeId>(v));
  }
  return graph;
}

Result<Graph> ReadShared(const std::string& name,
                         const std::function<Result<Graph>(const std::string&)>& read) {
  if (!HasSharedSet(name)) {
    return MakeStatus(Code::kNotFound, "{} is not in {} (QUARRY_SHARED_DATA names it)", name,
                      SharedDataFolder().string());
  }
  const SharedSet set(name);
  if (!set.unpacked()) return MakeStatus(Code::kIoError, "cannot unpack {}", name);
  return read(set.path());
}

// --- tables

struct Expected {
  double chunk_share;
  double percent;
};

Status PrintTable(const std::string& name, const Graph& graph, std::span<const Expected> expected,
                  uint64_t shuffles, double metis_percent, const PartitionContext& context) {
  ArrayEdges edges(graph.node_count, graph.edges);
  const auto percent = [&](const Method& method, uint64_t seed) -> Result<double> {
    QUARRY_TRY(const Assignment assignment, Partition(edges, For(method, 2, seed), context));
    QUARRY_TRY(const CutEdges cut, CountCut(edges, assignment));
    return 100 * cut.share();
  };
  const Method metis{.method = PartitionMethod::kMetis};
  QUARRY_TRY(const Assignment whole, Partition(edges, For(metis, 2, 1), context));
  QUARRY_TRY(const std::vector<NeighborCount> neighbors, CountNeighbors(edges, whole));
  fmt::print("\n{}: {} edges, {} nodes, 2 parts; cut edges in percent\n\n", name, graph.edges.size(),
             graph.node_count);
  fmt::print(
      "| chunk | GREM | each shuffle | expected | off by | Eq. 4.1 |\n| ---: | ---: | ---: | ---: | ---: | "
      "---: |\n");
  for (const Expected& row : expected) {
    double sum = 0;
    std::string each;
    for (uint64_t seed = 0; seed < shuffles; ++seed) {
      QUARRY_TRY(const double cut, percent({.chunk_share = row.chunk_share}, seed));
      sum += cut;
      each += fmt::format("{}{:.2f}", seed == 0 ? "" : " ", cut);
    }
    const double mean = sum / static_cast<double>(shuffles);
    fmt::print("| {:g} % | {:.2f} | {} | {:.2f} | {:+.2f} | {:.2f} |\n", 100 * row.chunk_share, mean, each,
               row.percent, mean - row.percent, 100 * ExpectedCutShare(neighbors, row.chunk_share));
  }
  QUARRY_TRY(const CutEdges metis_cut, CountCut(edges, whole));
  QUARRY_TRY(const double random, percent({.method = PartitionMethod::kRandom}, 0));
  QUARRY_TRY(const double bgl, percent({.method = PartitionMethod::kBgl}, 0));
  fmt::print("\nMETIS {:.3f} (expected {:.3f}), BGL {:.2f}, random {:.2f}\n", 100 * metis_cut.share(),
             metis_percent, bgl, random);
  return Status::Ok();
}

Status Tables(const PartitionContext& context) {
  constexpr Expected kTriples[] = {{0.01, 18.55}, {0.05, 12.31}, {0.1, 11.03}, {0.3, 10.21}};
  constexpr Expected kWeb[] = {{0.01, 3.56}, {0.1, 1.78}};
  if (const auto graph = ReadShared("fb15k-237", ReadTriples); graph.ok()) {
    QUARRY_RETURN_IF_ERROR(PrintTable("FB15k-237", *graph, kTriples, 3, 9.91, context));
  } else {
    fmt::print("left out: {}\n", graph.status().message());
  }
  if (const auto graph = ReadShared("cnr-2000", ReadEdges); graph.ok()) {
    QUARRY_RETURN_IF_ERROR(PrintTable("cnr-2000", *graph, kWeb, 1, 0.065, context));
  } else {
    fmt::print("left out: {}\n", graph.status().message());
  }
  return Status::Ok();
}

// --- sampling

// Both directions of every edge, each once, without loops: as undirected imports have them.
Result<std::unique_ptr<Topology>> Undirected(const Graph& graph) {
  std::vector<uint64_t> keys;
  keys.reserve(2 * graph.edges.size());
  for (const NodePair& edge : graph.edges) {
    if (edge.source == edge.destination) continue;
    keys.push_back(uint64_t{edge.destination} << 32 | edge.source);
    keys.push_back(uint64_t{edge.source} << 32 | edge.destination);
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<uint64_t> indptr(graph.node_count + 1);
  std::vector<NodeId> indices;
  for (const uint64_t key : keys) {
    ++indptr[(key >> 32) + 1];
    indices.push_back(static_cast<NodeId>(key));
  }
  for (uint64_t v = 0; v < graph.node_count; ++v) indptr[v + 1] += indptr[v];
  return Topology::FromMemory(std::move(indptr), indices);
}

Status Sampling(const std::string& name, const Graph& graph, const Options& options,
                const PartitionContext& context) {
  QUARRY_TRY(const std::unique_ptr<Topology> topology, Undirected(graph));
  QUARRY_TRY(const auto edges, TopologyEdges::Make(context.backend, *topology, context.budget));
  std::vector<Assignment> assignments;
  std::vector<uint64_t> across(options.methods.size());
  for (const Method& method : options.methods) {
    QUARRY_TRY(Assignment assignment, Partition(*edges, For(method, options.parts, 1, graph.train), context));
    assignments.push_back(std::move(assignment));
  }
  const NeighborSource source{.topology = topology.get()};
  QUARRY_TRY(const auto sampler, NeighborSampler::Make(source, {.fanouts = {15, 10, 5}}));
  std::vector<NodeId> seeds = graph.train;
  Rng rng(1);
  for (size_t i = seeds.size(); i > 1; --i) std::swap(seeds[i - 1], seeds[rng.Below(i)]);
  constexpr size_t kBatch = 1024;
  Block block;
  uint64_t sampled = 0;
  for (size_t first = 0; first < seeds.size(); first += kBatch) {
    const auto batch = std::span<const NodeId>(seeds).subspan(first, std::min(kBatch, seeds.size() - first));
    QUARRY_RETURN_IF_ERROR(sampler->Sample(batch, MixSeed(1, first), block));
    sampled += block.indices.size();
    for (size_t m = 0; m < assignments.size(); ++m) {
      const std::vector<uint32_t>& part_of = assignments[m].part_of;
      for (size_t v = 0; v + 1 < block.indptr.size(); ++v) {
        const uint32_t part = part_of[block.nodes[v]];
        for (uint32_t i = block.indptr[v]; i < block.indptr[v + 1]; ++i) {
          across[m] += part_of[block.nodes[block.indices[i]]] != part ? 1 : 0;
        }
      }
    }
  }
  fmt::print(
      "\n{}: {} nodes, {} edges both ways, {} training nodes, {} parts; 3 hops 15,10,5, {} neighbors an "
      "epoch\n\n",
      name, graph.node_count, topology->edge_count(), graph.train.size(), options.parts, sampled);
  fmt::print(
      "| | neighbors across parts | edges cut | training nodes, max / mean | nodes, max / mean |\n| --- | "
      "---: | ---: | ---: | ---: |\n");
  for (size_t m = 0; m < assignments.size(); ++m) {
    QUARRY_TRY(const CutEdges cut, CountCut(*edges, assignments[m]));
    std::vector<uint64_t> train(options.parts);
    for (const NodeId v : graph.train) ++train[assignments[m].part_of[v]];
    const auto over_mean = [&](uint64_t most, uint64_t all) {
      return static_cast<double>(most) * options.parts / static_cast<double>(all);
    };
    fmt::print("| {} | {:.2f} % | {:.2f} % | {:.3f} | {:.3f} |\n", options.methods[m].name,
               100.0 * static_cast<double>(across[m]) / static_cast<double>(sampled), 100 * cut.share(),
               over_mean(std::ranges::max(train), graph.train.size()),
               over_mean(std::ranges::max(assignments[m].Sizes()), graph.node_count));
  }
  return Status::Ok();
}

Status Samplings(const Options& options, const PartitionContext& context) {
  if (const auto graph = ReadShared("arxiv-2023", ReadEdges); graph.ok()) {
    QUARRY_RETURN_IF_ERROR(Sampling("arxiv-2023", *graph, options, context));
  } else {
    fmt::print("left out: {}\n", graph.status().message());
  }
  return Sampling("generated, 50 communities", GenerateGraph(options), options, context);
}

// --- scale

std::string TopologyFile(const Options& options) {
  return fmt::format("partition-{}-{:g}.qtp", options.node_count, options.degree);
}

Status WriteGenerated(IoBackend& backend, const Options& options) {
  const std::string path = options.folder + "/" + TopologyFile(options);
  if (std::filesystem::exists(path)) return Status::Ok();
  const SyntheticGraph graph(Generated(options));
  QUARRY_TRY(const auto builder, TopologyBuilder::Create(backend, {.memory_bytes = kGiB / 2,
                                                                   .scratch_directory = options.folder}));
  std::vector<Edge> edges;
  for (uint64_t i = 0; i < graph.edge_count(); ++i) {
    edges.push_back({.source = graph.Source(i), .destination = graph.Destination(i)});
    if (edges.size() < 65536 && i + 1 < graph.edge_count()) continue;
    QUARRY_RETURN_IF_ERROR(builder->Add(edges));
    edges.clear();
  }
  QUARRY_TRY(const TopologyRecord record, builder->Finish(path + ".tmp", options.node_count, kDatabaseId, 1));
  return backend.Rename(path + ".tmp", path);
}

// Run in a process of its own: prints what the method took, in one line.
Status RunChild(const Options& options, const PartitionContext& context) {
  const Method& method = options.methods.front();
  const SyntheticGraph graph(Generated(options));
  TopologyRecord record{.name = "graph",
                        .file = TopologyFile(options),
                        .node_count = options.node_count,
                        .edge_count = graph.edge_count()};
  record.file_bytes = std::filesystem::file_size(options.folder + "/" + record.file);
  QUARRY_TRY(const auto topology, Topology::Open(context.backend, options.folder, record, kDatabaseId));
  QUARRY_TRY(const auto edges, TopologyEdges::Make(context.backend, *topology, context.budget));
  std::vector<NodeId> train;
  for (uint64_t v = 0; v < options.node_count; ++v) {
    if (graph.SplitOf(v) == Split::kTrain) train.push_back(static_cast<NodeId>(v));
  }
  const uint64_t open_bytes = CurrentRssBytes();
  const double start = ProcessProcessorSeconds();
  QUARRY_TRY(const Assignment assignment, Partition(*edges, For(method, options.parts, 1, train), context));
  const double seconds = ProcessProcessorSeconds() - start;
  const uint64_t peak_bytes = PeakRssBytes();
  QUARRY_TRY(const CutEdges cut, CountCut(*edges, assignment));
  fmt::print("| {} | {:.2f} % | {:.1f} | {} | {} |\n", method.name, 100 * cut.share(), seconds,
             FormatBytes(peak_bytes), FormatBytes(peak_bytes - std::min(peak_bytes, open_bytes)));
  return Status::Ok();
}

Status Scale(const Options& options, const PartitionContext& context) {
  QUARRY_RETURN_IF_ERROR(WriteGenerated(context.backend, options));
  fmt::print("\ngenerated: {} nodes, {} edges, {} parts\n\n", options.node_count,
             SyntheticGraph(Generated(options)).edge_count(), options.parts);
  fmt::print(
      "| | edges cut | CPU seconds | peak memory | of it the partitioner's |\n| --- | ---: | ---: | ---: | "
      "---: |\n");
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  for (const Method& method : options.methods) {
    std::fflush(stdout);
    const std::string command =
        fmt::format("'{}' child --nodes {} --degree {} --parts {} --methods {} --folder '{}'", self,
                    options.node_count, options.degree, options.parts, method.name, options.folder);
    if (std::system(command.c_str()) != 0) fmt::print("| {} | failed | | | |\n", method.name);
  }
  return Status::Ok();
}

Status Main(std::span<char*> words) {
  Options options;
  bool child = false;
  std::string methods = "random,grem:0.01,grem:0.1,bgl,metis";
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "tables") {
      options.tables = true;
    } else if (word == "sampling") {
      options.sampling = true;
    } else if (word == "scale") {
      options.scale = true;
    } else if (word == "child") {
      child = true;
    } else if (i + 1 == words.size()) {
      return MakeStatus(Code::kUsage, "'{}' is no part of this benchmark, or lacks its value", word);
    } else if (word == "--nodes") {
      QUARRY_TRY(options.node_count, ParseCount(words[++i]));
    } else if (word == "--degree") {
      options.degree = std::atof(words[++i]);
    } else if (word == "--parts") {
      options.parts = static_cast<uint32_t>(std::atoi(words[++i]));
    } else if (word == "--methods") {
      methods = words[++i];
    } else if (word == "--folder") {
      options.folder = words[++i];
    } else {
      return MakeStatus(Code::kUsage, "'{}' is no part of this benchmark", word);
    }
  }
  for (size_t at = 0; at <= methods.size();) {
    const size_t comma = std::min(methods.find(',', at), methods.size());
    QUARRY_TRY(Method method, ParseMethod(methods.substr(at, comma - at)));
    options.methods.push_back(std::move(method));
    at = comma + 1;
  }
  std::filesystem::create_directories(options.folder);
  const auto backend = MakeDefaultBackend();
  MemoryBudget budget(kNoLimit);
  const PartitionContext context{*backend, budget, options.folder};
  if (child) return RunChild(options, context);
  const bool all = !options.tables && !options.sampling && !options.scale;
  if (all || options.tables) QUARRY_RETURN_IF_ERROR(Tables(context));
  if (all || options.sampling) QUARRY_RETURN_IF_ERROR(Samplings(options, context));
  if (all || options.scale) QUARRY_RETURN_IF_ERROR(Scale(options, context));
  return Status::Ok();
}

}  // namespace
}  // namespace quarry::bench

int main(int argc, char** argv) {
  const quarry::Status status = quarry::bench::Main(std::span(argv + 1, static_cast<size_t>(argc - 1)));
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return quarry::ExitCode(status.code());
}
