#include "grem.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "metis_partition.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

constexpr int8_t kNoSide = -1;
// METIS numbers both ends of the edges of the first chunk.
constexpr uint64_t kChunkEdgesMax = std::numeric_limits<int32_t>::max() / 2;
constexpr size_t kSplitReadEdges = 16384;

using SideCapacities = std::array<uint64_t, 2>;

// Nodes in ascending order, put in in any order; as a bitmap.
class NodeSet {
 public:
  explicit NodeSet(uint64_t node_count) : words_(CeilDiv(node_count, 64)) {}
  void Insert(NodeId node) { words_[node / 64] |= uint64_t{1} << node % 64; }
  template <typename F>
  void ForEach(const F& visit) const {
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(static_cast<NodeId>(i * 64 + static_cast<unsigned>(std::countr_zero(word))));
      }
    }
  }
  void Clear() { std::fill(words_.begin(), words_.end(), 0); }

 private:
  std::vector<uint64_t> words_;
};

// One run of GREM: arrays as large as the whole graph, used again by every bisection of the recursion, whose
// nodes are numbered from 0.
class Grem {
 public:
  static Result<std::unique_ptr<Grem>> Make(uint64_t node_count, uint64_t edge_count,
                                            const GremOptions& options, const PartitionContext& context) {
    const uint64_t chunk_edges = ChunkEdges(edge_count, options.chunk_share);
    if (chunk_edges > kChunkEdgesMax) {
      return MakeStatus(
          Code::kInvalidArgument,
          "grem cannot cut chunks of {} edges, as METIS numbers at most {}: make the chunk's share "
          "{:.2g} or less",
          chunk_edges, kChunkEdgesMax, static_cast<double>(kChunkEdgesMax) / static_cast<double>(edge_count));
    }
    const uint64_t bytes = node_count * (sizeof(uint32_t) + sizeof(Estimate) + sizeof(int8_t)) +
                           CeilDiv(node_count, 64) * sizeof(uint64_t) +
                           (options.parts > 2 ? node_count * sizeof(NodeId) : 0) +
                           chunk_edges * (sizeof(NodePair) + 2 * sizeof(NodeId));
    QUARRY_TRY(auto reservation, context.budget.Reserve(bytes, "grem's nodes and one chunk of edges"));
    return std::unique_ptr<Grem>(new Grem(node_count, chunk_edges, options, context, std::move(reservation)));
  }

  Result<Assignment> Run(std::unique_ptr<EdgeStream> edges) {
    const uint64_t node_count = edges->node_count();
    QUARRY_RETURN_IF_ERROR(Split(std::move(edges), {.nodes = node_count, .parts = options_.parts}));
    // The slots have served: they become the result.
    Assignment assignment{.parts = options_.parts, .part_of = std::move(slots_)};
    if (order_.empty()) {
      for (uint64_t v = 0; v < node_count; ++v) {
        assignment.part_of[v] = options_.parts == 1 ? 0 : static_cast<uint32_t>(side_[v]);
      }
      return assignment;
    }
    uint64_t at = 0;
    for (uint32_t part = 0; part < options_.parts; ++part) {
      for (uint64_t i = 0; i < sizes_[part]; ++i) assignment.part_of[order_[at++]] = part;
    }
    return assignment;
  }

 private:
  // Neighbors seen on either side, those of older chunks at half the weight each time.
  struct Estimate {
    std::array<float, 2> on;
  };
  // A part of the recursion: nodes order_[first, first + nodes) become parts [first_part, first_part + parts).
  struct Range {
    uint64_t first = 0;
    uint64_t nodes = 0;
    uint32_t first_part = 0;
    uint32_t parts = 1;
  };

  Grem(uint64_t node_count, uint64_t chunk_edges, const GremOptions& options, const PartitionContext& context,
       MemoryBudget::Reservation reservation)
      : options_(options),
        context_(context),
        reservation_(std::move(reservation)),
        slots_(node_count),
        estimates_(node_count),
        side_(node_count),
        touched_(node_count),
        sizes_(options.parts),
        chunk_(chunk_edges),
        adjacent_(2 * chunk_edges) {
    if (options.parts > 2) {
      order_.resize(node_count);
      std::iota(order_.begin(), order_.end(), 0);
    }
  }

  static uint64_t ChunkEdges(uint64_t edge_count, double share) {
    return std::max<uint64_t>(
        1, static_cast<uint64_t>(std::ceil(static_cast<double>(edge_count) * share - 1e-9)));
  }

  Status Split(std::unique_ptr<EdgeStream> edges, const Range& range) {
    if (range.parts == 1) {
      sizes_[range.first_part] = range.nodes;
      return Status::Ok();
    }
    const uint32_t left_parts = (range.parts + 1) / 2;
    const std::array<uint32_t, 2> parts = {left_parts, range.parts - left_parts};
    SideCapacities capacities;
    for (int s = 0; s < 2; ++s) capacities[s] = CeilDiv(range.nodes * parts[s], range.parts);
    QUARRY_RETURN_IF_ERROR(Bisect(*edges, range, capacities));
    if (order_.empty()) return Status::Ok();

    std::array<std::unique_ptr<EdgeStream>, 2> inner;
    std::array<uint64_t, 2> nodes = {0, 0};
    for (uint64_t v = 0; v < range.nodes; ++v) slots_[v] = static_cast<uint32_t>(nodes[side_[v]]++);
    if (range.parts > 2) QUARRY_RETURN_IF_ERROR(SplitEdges(*edges, parts, nodes, inner));
    edges = nullptr;
    SortBySide(range, nodes[0]);
    std::fill_n(slots_.begin(), range.nodes, 0);
    QUARRY_RETURN_IF_ERROR(
        Split(std::move(inner[0]),
              {.first = range.first, .nodes = nodes[0], .first_part = range.first_part, .parts = parts[0]}));
    return Split(std::move(inner[1]), {.first = range.first + nodes[0],
                                       .nodes = nodes[1],
                                       .first_part = range.first_part + parts[0],
                                       .parts = parts[1]});
  }

  // Writes the edges inside each side that is cut further, renumbered by slots_, in the order of `edges`.
  Status SplitEdges(EdgeStream& edges, const std::array<uint32_t, 2>& parts,
                    const std::array<uint64_t, 2>& nodes, std::array<std::unique_ptr<EdgeStream>, 2>& inner) {
    std::array<std::unique_ptr<EdgeStreamWriter>, 2> writers;
    for (int s = 0; s < 2; ++s) {
      if (parts[s] == 1) continue;
      QUARRY_TRY(writers[s], EdgeStreamWriter::Create(context_));
    }
    std::array<std::vector<NodePair>, 2> inside;
    std::vector<NodePair> read(kSplitReadEdges);
    QUARRY_RETURN_IF_ERROR(edges.Rewind());
    while (true) {
      QUARRY_TRY(const size_t count, edges.Read(read));
      if (count == 0) break;
      for (const NodePair& edge : std::span(read).first(count)) {
        const int8_t s = side_[edge.source];
        if (s == side_[edge.destination] && edge.source != edge.destination) {
          inside[s].push_back({slots_[edge.source], slots_[edge.destination]});
        }
      }
      for (int s = 0; s < 2; ++s) {
        if (writers[s] != nullptr) QUARRY_RETURN_IF_ERROR(writers[s]->Append(inside[s]));
        inside[s].clear();
      }
    }
    for (int s = 0; s < 2; ++s) {
      if (writers[s] == nullptr) continue;
      QUARRY_TRY(inner[s], writers[s]->Finish(nodes[s]));
    }
    return Status::Ok();
  }

  // Brings the range's nodes of side 0 to its front, each side in the order of before. Uses slots_.
  void SortBySide(const Range& range, uint64_t left_nodes) {
    const auto nodes = order_.begin() + static_cast<std::ptrdiff_t>(range.first);
    std::array<uint64_t, 2> at = {0, left_nodes};
    for (uint64_t v = 0; v < range.nodes; ++v) slots_[at[side_[v]]++] = nodes[static_cast<std::ptrdiff_t>(v)];
    std::copy_n(slots_.begin(), range.nodes, nodes);
  }

  // Algorithm 4. REQUIRES: slots_ are 0. They are so again afterwards.
  Status Bisect(EdgeStream& edges, const Range& range, const SideCapacities& capacities) {
    capacities_ = capacities;
    filled_ = {0, 0};
    std::fill_n(side_.begin(), range.nodes, kNoSide);
    std::fill_n(estimates_.begin(), range.nodes, Estimate{});
    const std::span<NodePair> chunk(chunk_);
    QUARRY_RETURN_IF_ERROR(edges.Rewind());
    uint64_t done = 0;
    while (true) {
      QUARRY_TRY(const size_t count, edges.Read(chunk));
      if (count == 0) break;
      if (done == 0) {
        const uint64_t seed = MixSeed(options_.seed, range.first_part, range.parts);
        QUARRY_RETURN_IF_ERROR(Seed(chunk.first(count), seed));
      } else {
        Refine(chunk.first(count));
      }
      done += count;
      QUARRY_RETURN_IF_ERROR(context_.Report("grem", done, edges.edge_count()));
    }
    edges.Close();
    for (uint64_t v = 0; v < range.nodes; ++v) {
      if (side_[v] != kNoSide) continue;
      side_[v] = Emptier(filled_);
      ++filled_[side_[v]];
    }
    return Status::Ok();
  }

  int8_t Emptier(const SideCapacities& filled) const {
    return filled[0] * capacities_[1] <= filled[1] * capacities_[0] ? 0 : 1;
  }

  // Lets METIS cut the first chunk.
  Status Seed(std::span<NodePair> chunk, uint64_t seed) {
    for (const NodePair& edge : chunk) {
      if (edge.source == edge.destination) continue;
      touched_.Insert(edge.source);
      touched_.Insert(edge.destination);
    }
    uint32_t node_count = 0;
    touched_.ForEach([&](NodeId v) {
      adjacent_[node_count] = v;
      slots_[v] = node_count++;
    });
    const std::span<const NodeId> nodes = std::span(adjacent_).first(node_count);
    // A loop stays a loop, which nobody counts.
    for (NodePair& edge : chunk) edge = {slots_[edge.source], slots_[edge.destination]};
    std::vector<uint32_t> sides;
    {
      QUARRY_TRY(const auto reservation, context_.budget.Reserve(MetisBytes(node_count, chunk.size()),
                                                                 "METIS over grem's first chunk"));
      ArrayEdges edges(node_count, chunk);
      QUARRY_TRY(UndirectedGraph graph, MakeUndirectedGraph(edges, true));
      QUARRY_TRY(sides, CutByMetis(std::move(graph), capacities_, seed));
    }
    for (uint32_t i = 0; i < node_count; ++i) {
      side_[nodes[i]] = static_cast<int8_t>(sides[i]);
      ++filled_[sides[i]];
      slots_[nodes[i]] = 0;
    }
    for (const NodePair& edge : chunk) {
      if (edge.source == edge.destination) continue;
      estimates_[nodes[edge.source]].on[sides[edge.destination]] += 1;
      estimates_[nodes[edge.destination]].on[sides[edge.source]] += 1;
    }
    touched_.Clear();
    return Status::Ok();
  }

  // Places the nodes of a later chunk, in ascending order, each after those before it.
  void Refine(std::span<const NodePair> chunk) {
    for (const NodePair& edge : chunk) {
      if (edge.source == edge.destination) continue;
      touched_.Insert(edge.source);
      touched_.Insert(edge.destination);
      ++slots_[edge.source];
      ++slots_[edge.destination];
    }
    // A slot becomes the start of its node's list, which grows to its end as the list is filled.
    uint32_t start = 0;
    touched_.ForEach([&](NodeId v) { start += std::exchange(slots_[v], start); });
    for (const NodePair& edge : chunk) {
      if (edge.source == edge.destination) continue;
      adjacent_[slots_[edge.source]++] = edge.destination;
      adjacent_[slots_[edge.destination]++] = edge.source;
    }
    uint32_t begin = 0;
    touched_.ForEach([&](NodeId v) {
      const uint32_t end = std::exchange(slots_[v], 0);
      Place(v, std::span(adjacent_).subspan(begin, end - begin));
      begin = end;
    });
    touched_.Clear();
  }

  void Place(NodeId v, std::span<const NodeId> neighbors) {
    std::array<uint32_t, 2> seen = {0, 0};
    for (const NodeId neighbor : neighbors) {
      // Nodes without a side count for neither.
      seen[0] += static_cast<uint32_t>(side_[neighbor] == 0);
      seen[1] += static_cast<uint32_t>(side_[neighbor] == 1);
    }
    Estimate now{{static_cast<float>(seen[0]), static_cast<float>(seen[1])}};
    const int8_t old = side_[v];
    SideCapacities others = filled_;  // its own place is free
    if (old != kNoSide) {
      for (int s = 0; s < 2; ++s) now.on[s] = (estimates_[v].on[s] + now.on[s]) / 2;
      --others[old];
    }
    int8_t side;
    if (now.on[0] < now.on[1] && others[1] < capacities_[1]) {
      side = 1;
    } else if (now.on[1] < now.on[0] && others[0] < capacities_[0]) {
      side = 0;
    } else {
      side = Emptier(others);
    }
    ++others[side];
    filled_ = others;
    side_[v] = side;
    estimates_[v] = now;
  }

  const GremOptions options_;
  const PartitionContext& context_;
  const MemoryBudget::Reservation reservation_;
  // By node of the bisection under way:
  std::vector<uint32_t> slots_;
  std::vector<Estimate> estimates_;
  std::vector<int8_t> side_;
  NodeSet touched_;  // nodes of the chunk
  SideCapacities capacities_ = {0, 0};
  SideCapacities filled_ = {0, 0};
  // Nodes of the graph, those of a part side by side; empty where there are two parts at most.
  std::vector<NodeId> order_;
  std::vector<uint64_t> sizes_;  // of parts
  std::vector<NodePair> chunk_;
  std::vector<NodeId> adjacent_;
};

}  // namespace

Result<Assignment> PartitionShuffled(std::unique_ptr<EdgeStream> edges, const GremOptions& options,
                                     const PartitionContext& context) {
  QUARRY_TRY(const std::unique_ptr<Grem> grem,
             Grem::Make(edges->node_count(), edges->edge_count(), options, context));
  return grem->Run(std::move(edges));
}

Result<Assignment> PartitionByGrem(EdgeSource& edges, const GremOptions& options,
                                   const PartitionContext& context) {
  QUARRY_TRY(std::unique_ptr<EdgeStream> shuffled, ShuffleEdges(edges, MixSeed(options.seed, 0x5f), context));
  return PartitionShuffled(std::move(shuffled), options, context);
}

}  // namespace quarry
