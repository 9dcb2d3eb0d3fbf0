#include "bgl.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "undirected_graph.h"

namespace quarry {
namespace {

constexpr uint32_t kNoBlock = ~uint32_t{0};
constexpr double kTrainSlack = 1.02;  // of the mean training nodes of a part

// The most training nodes that a part is to have.
uint64_t TrainMax(uint64_t train_count, uint32_t parts) {
  return std::max(CeilDiv(train_count, parts),
                  static_cast<uint64_t>(kTrainSlack * static_cast<double>(train_count) / parts));
}

// Nodes of each block lie side by side, in the order in which the search found them.
struct Blocks {
  std::vector<uint32_t> block_of;  // by node
  std::vector<NodeId> nodes;
  std::vector<uint64_t> offsets;  // [blocks + 1]

  uint32_t count() const { return static_cast<uint32_t>(offsets.size() - 1); }
  uint64_t size(uint32_t block) const { return offsets[block + 1] - offsets[block]; }
  std::span<const NodeId> Of(uint32_t block) const {
    return std::span(nodes).subspan(offsets[block], size(block));
  }
};

// Brings together the nodes of each block, in the order of `found`.
Blocks GroupByBlock(std::vector<uint32_t> block_of, std::span<const NodeId> found, uint32_t block_count) {
  Blocks blocks{.block_of = std::move(block_of),
                .nodes = std::vector<NodeId>(found.size()),
                .offsets = std::vector<uint64_t>(block_count + 1)};
  for (const NodeId v : found) ++blocks.offsets[blocks.block_of[v]];
  uint64_t start = 0;
  for (uint64_t& entry : blocks.offsets) start += std::exchange(entry, start);
  for (const NodeId v : found) blocks.nodes[blocks.offsets[blocks.block_of[v]]++] = v;
  std::copy_backward(blocks.offsets.begin(), blocks.offsets.end() - 1, blocks.offsets.end());
  blocks.offsets[0] = 0;
  return blocks;
}

// Searches from random nodes side by side, as many as blocks of full size would take; what they leave over,
// because the blocks around it are full, is searched in the same way, until every node is in a block.
Blocks GrowBlocks(const UndirectedGraph& graph, uint64_t block_nodes_max, uint64_t seed) {
  const uint64_t node_count = graph.node_count();
  std::vector<NodeId> sources(node_count);
  std::iota(sources.begin(), sources.end(), 0);
  Rng rng(MixSeed(seed, 0xb1));
  for (uint64_t i = node_count; i > 1; --i) std::swap(sources[i - 1], sources[rng.Below(i)]);

  std::vector<uint32_t> block_of(node_count, kNoBlock);
  std::vector<uint64_t> sizes;
  std::vector<NodeId> found;
  found.reserve(node_count);
  const auto visit = [&](NodeId node, uint32_t block) {
    block_of[node] = block;
    ++sizes[block];
    found.push_back(node);
  };
  uint64_t next_source = 0;
  for (size_t at = 0; found.size() < node_count;) {
    for (uint64_t searches = CeilDiv(node_count - found.size(), block_nodes_max);
         searches > 0 && next_source < node_count; ++next_source) {
      if (block_of[sources[next_source]] != kNoBlock) continue;
      sizes.push_back(0);
      visit(sources[next_source], static_cast<uint32_t>(sizes.size() - 1));
      --searches;
    }
    for (; at < found.size(); ++at) {
      const uint32_t block = block_of[found[at]];
      for (const NodeId neighbor : graph.Of(found[at])) {
        if (sizes[block] >= block_nodes_max) break;
        if (block_of[neighbor] == kNoBlock) visit(neighbor, block);
      }
    }
  }
  return GroupByBlock(std::move(block_of), found, static_cast<uint32_t>(sizes.size()));
}

// Blocks that edges lead to from each block, with the number of edges.
struct BlockGraph {
  struct Link {
    uint32_t block;
    uint32_t edges;
  };
  std::vector<uint64_t> indptr;
  std::vector<Link> links;
  std::span<const Link> Of(uint32_t block) const {
    return std::span(links).subspan(indptr[block], indptr[block + 1] - indptr[block]);
  }
};

Result<BlockGraph> LinkBlocks(const UndirectedGraph& graph, const Blocks& blocks, MemoryBudget& budget,
                              MemoryBudget::Reservation& reservation) {
  // Counted first, so that the links are paid for before there are any.
  BlockGraph links{.indptr = {0}};
  std::vector<uint32_t> edges(blocks.count());
  std::vector<uint32_t> touched;
  const auto tally = [&](uint32_t block) {
    for (const uint32_t other : touched) edges[other] = 0;
    touched.clear();
    for (const NodeId v : blocks.Of(block)) {
      for (const NodeId neighbor : graph.Of(v)) {
        const uint32_t other = blocks.block_of[neighbor];
        if (other != block && edges[other]++ == 0) touched.push_back(other);
      }
    }
  };
  for (uint32_t block = 0; block < blocks.count(); ++block) {
    tally(block);
    links.indptr.push_back(links.indptr.back() + touched.size());
  }
  const uint64_t bytes = links.indptr.back() * sizeof(BlockGraph::Link);
  QUARRY_TRY(reservation, budget.Reserve(bytes, "edges between blocks"));
  links.links.reserve(links.indptr.back());
  for (uint32_t block = 0; block < blocks.count(); ++block) {
    tally(block);
    for (const uint32_t other : touched) links.links.push_back({.block = other, .edges = edges[other]});
  }
  return links;
}

// Merges small blocks; returns the nodes grouped anew.
Blocks MergeBlocks(Blocks blocks, const BlockGraph& links, uint64_t block_nodes_max,
                   uint64_t merged_nodes_max, uint64_t seed) {
  std::vector<uint64_t> sizes(blocks.count());
  for (uint32_t block = 0; block < blocks.count(); ++block) sizes[block] = blocks.size(block);
  // The largest tenth, the first found where they are equal.
  std::vector<uint32_t> ranked(blocks.count());
  std::iota(ranked.begin(), ranked.end(), 0);
  std::stable_sort(ranked.begin(), ranked.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  std::vector<bool> is_large(blocks.count());
  for (uint64_t i = 0; i < CeilDiv(ranked.size(), 10); ++i) is_large[ranked[i]] = true;

  std::vector<uint32_t> merged(blocks.count());
  std::iota(merged.begin(), merged.end(), 0);
  std::vector<uint32_t> lone;
  std::vector<BlockGraph::Link> large;
  std::vector<uint64_t> merged_sizes = sizes;
  for (uint32_t block = 0; block < blocks.count(); ++block) {
    if (is_large[block]) continue;
    large.clear();
    for (const BlockGraph::Link& link : links.Of(block)) {
      if (is_large[link.block]) large.push_back(link);
    }
    if (large.empty()) {
      lone.push_back(block);
      continue;
    }
    std::sort(large.begin(), large.end(), [](const auto& a, const auto& b) {
      return a.edges != b.edges ? a.edges > b.edges : a.block < b.block;
    });
    for (const BlockGraph::Link& link : large) {
      if (merged_sizes[link.block] + sizes[block] > merged_nodes_max) continue;
      merged[block] = link.block;
      merged_sizes[link.block] += sizes[block];
      break;
    }
  }
  Rng rng(MixSeed(seed, 0xb2));
  for (size_t i = lone.size(); i > 1; --i) std::swap(lone[i - 1], lone[rng.Below(i)]);
  for (size_t i = 0; i < lone.size();) {
    const uint32_t into = lone[i];
    for (uint64_t size = 0; i < lone.size() && size + sizes[lone[i]] <= block_nodes_max; ++i) {
      size += sizes[lone[i]];
      merged[lone[i]] = into;
    }
    if (i < lone.size() && lone[i] == into) ++i;  // larger than a block by itself
  }
  // Numbered anew, without gaps.
  std::vector<uint32_t> numbers(blocks.count(), kNoBlock);
  uint32_t count = 0;
  for (uint32_t block = 0; block < blocks.count(); ++block) {
    if (numbers[merged[block]] == kNoBlock) numbers[merged[block]] = count++;
  }
  std::vector<uint32_t> block_of = std::move(blocks.block_of);
  for (uint32_t& block : block_of) block = numbers[merged[block]];
  return GroupByBlock(std::move(block_of), blocks.nodes, count);
}

// Step 3. Holds a float for each block and part, and for each part.
class BlockAssigner {
 public:
  BlockAssigner(const Blocks& blocks, const BlockGraph& links, const std::vector<bool>& is_train,
                uint64_t train_count, uint32_t parts)
      : blocks_(blocks),
        links_(links),
        is_train_(is_train),
        parts_(parts),
        nodes_(parts),
        train_(parts),
        capacity_(CeilDiv(blocks.nodes.size(), parts)),
        train_mean_(static_cast<double>(train_count) / parts),
        train_capacity_(TrainMax(train_count, parts)),
        edges_(blocks.count()),
        near_(uint64_t{blocks.count()} * parts),
        part_of_(blocks.nodes.size()) {
    for (uint32_t block = 0; block < blocks.count(); ++block) {
      for (const BlockGraph::Link& link : links.Of(block)) edges_[block] += link.edges;
    }
  }

  static uint64_t Bytes(const BlockGraph& links, uint32_t block_count, uint32_t parts) {
    return uint64_t{block_count} * (parts * sizeof(float) + 2 * sizeof(double) + sizeof(uint32_t)) +
           links.links.size() * sizeof(std::pair<double, uint32_t>);
  }

  // The next is the block of whose edges the largest share leads to blocks that are placed. The largest begins,
  // and begins again where nothing that is placed touches the rest.
  std::vector<uint32_t> Run() {
    std::vector<uint32_t> order(blocks_.count());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return blocks_.size(a) > blocks_.size(b); });
    std::vector<bool> placed(blocks_.count());
    std::vector<double> shares(blocks_.count());
    std::priority_queue<std::pair<double, uint32_t>> next;  // older shares of a block follow newer ones
    for (const uint32_t first : order) {
      if (!placed[first]) next.push({0, first});
      while (!next.empty()) {
        const uint32_t block = next.top().second;
        next.pop();
        if (placed[block]) continue;
        placed[block] = true;
        AssignBlock(block);
        for (const BlockGraph::Link& link : links_.Of(block)) {
          if (placed[link.block]) continue;
          shares[link.block] += link.edges / edges_[link.block];
          next.push({shares[link.block], link.block});
        }
      }
    }
    return std::move(part_of_);
  }

 private:
  // Places a block whole, or what fits of it and then the rest in the same way.
  void AssignBlock(uint32_t block) {
    const std::vector<double> affinity = Affinity(block);
    std::span<const NodeId> rest = blocks_.Of(block);
    while (!rest.empty()) {
      const auto train = static_cast<uint64_t>(
          std::count_if(rest.begin(), rest.end(), [&](NodeId v) { return is_train_[v]; }));
      const uint32_t part = Choose(affinity, rest.size(), train);
      const bool train_fits = train_[part] + train <= train_capacity_;
      size_t taken = 0;
      for (; taken < rest.size() && nodes_[part] < capacity_; ++taken) {
        const uint64_t more = is_train_[rest[taken]] ? 1 : 0;
        if (more == 1 && !train_fits && train_[part] >= train_capacity_ && TrainRoom()) break;
        train_[part] += more;
        ++nodes_[part];
        part_of_[rest[taken]] = part;
      }
      const auto share = static_cast<float>(static_cast<double>(taken) / static_cast<double>(rest.size()));
      for (const BlockGraph::Link& link : links_.Of(block)) {
        near_[uint64_t{link.block} * parts_ + part] += static_cast<float>(link.edges) * share;
      }
      rest = rest.subspan(taken);
    }
  }

  // The edges to each part at one hop, and those that a second step would take there.
  std::vector<double> Affinity(uint32_t block) const {
    std::vector<double> affinity(parts_);
    for (uint32_t part = 0; part < parts_; ++part) affinity[part] = near_[uint64_t{block} * parts_ + part];
    for (const BlockGraph::Link& link : links_.Of(block)) {
      const double step = link.edges / edges_[link.block];
      for (uint32_t part = 0; part < parts_; ++part) {
        affinity[part] += step * near_[uint64_t{link.block} * parts_ + part];
      }
    }
    return affinity;
  }

  // Whether some part has room for a node and for a training node.
  bool TrainRoom() const {
    for (uint32_t part = 0; part < parts_; ++part) {
      if (nodes_[part] < capacity_ && train_[part] < train_capacity_) return true;
    }
    return false;
  }

  // The part of the highest score that the nodes fit into; else the one of the highest score with room. Where
  // all scores are 0, the one with the fewest training nodes and nodes.
  uint32_t Choose(std::span<const double> affinity, uint64_t nodes, uint64_t train) const {
    struct Rank {
      bool fits = false;
      bool train_room = false;
      double score = -1;
      double load = 0;
    } best;
    uint32_t chosen = 0;
    for (uint32_t part = 0; part < parts_; ++part) {
      if (nodes_[part] >= capacity_) continue;
      const double fill = static_cast<double>(nodes_[part]) / static_cast<double>(capacity_);
      const double train_fill = train_mean_ == 0 ? 0 : static_cast<double>(train_[part]) / train_mean_;
      const bool train_fits = train == 0 || train_[part] + train <= train_capacity_;
      const Rank rank{.fits = nodes_[part] + nodes <= capacity_ && train_fits,
                      .train_room = train == 0 || train_[part] < train_capacity_,
                      .score = affinity[part] * std::max(0.0, 1 - train_fill) * std::max(0.0, 1 - fill),
                      .load = std::max(fill, train_fill)};
      const auto key = [](const Rank& r) { return std::tuple(r.fits, r.train_room, r.score, -r.load); };
      if (best.score < 0 || key(rank) > key(best)) {
        best = rank;
        chosen = part;
      }
    }
    return chosen;
  }

  const Blocks& blocks_;
  const BlockGraph& links_;
  const std::vector<bool>& is_train_;
  const uint32_t parts_;
  std::vector<uint64_t> nodes_;  // by part
  std::vector<uint64_t> train_;
  const uint64_t capacity_;
  const double train_mean_;
  const uint64_t train_capacity_;
  std::vector<double> edges_;  // of each block to others
  std::vector<float> near_;    // edges of each block to nodes placed in each part
  std::vector<uint32_t> part_of_;
};

// Takes training nodes out of parts with more than `train_max`, those first whose neighbors are elsewhere, and
// gives them to the part with room for training nodes that most of their neighbors are in, in exchange for
// another node of it.
class TrainBalancer {
 public:
  TrainBalancer(const UndirectedGraph& graph, const std::vector<bool>& is_train, uint64_t train_max,
                uint32_t parts, std::span<uint32_t> part_of)
      : graph_(graph),
        is_train_(is_train),
        train_max_(train_max),
        part_of_(part_of),
        train_(parts),
        offered_(parts) {
    for (uint64_t v = 0; v < part_of.size(); ++v) train_[part_of[v]] += is_train[v] ? 1 : 0;
  }

  void Run() {
    if (std::ranges::all_of(train_, [&](uint64_t count) { return count <= train_max_; })) return;
    std::vector<Offer> leaving;
    for (uint64_t v = 0; v < part_of_.size(); ++v) {
      const uint32_t part = part_of_[v];
      const Offer offer{.loss = NeighborsIn(v, part), .node = static_cast<NodeId>(v)};
      if (!is_train_[v]) offered_[part].push_back(offer);
      if (is_train_[v] && train_[part] > train_max_) leaving.push_back(offer);
    }
    std::ranges::sort(leaving);
    // The cheapest last, from where they are taken.
    for (std::vector<Offer>& offers : offered_) std::ranges::sort(offers, std::greater<>());
    for (const Offer& offer : leaving) Exchange(offer.node);
  }

 private:
  struct Offer {
    uint64_t loss;
    NodeId node;
    auto operator<=>(const Offer&) const = default;
  };

  uint64_t NeighborsIn(uint64_t node, uint32_t part) const {
    const std::span<const NodeId> neighbors = graph_.Of(node);
    return static_cast<uint64_t>(
        std::ranges::count_if(neighbors, [&](NodeId v) { return part_of_[v] == part; }));
  }

  void Exchange(NodeId node) {
    const uint32_t from = part_of_[node];
    if (train_[from] <= train_max_) return;
    uint32_t to = from;
    uint64_t most = 0;
    for (uint32_t part = 0; part < train_.size(); ++part) {
      if (train_[part] >= train_max_ || offered_[part].empty()) continue;
      const uint64_t neighbors = NeighborsIn(node, part) + 1;
      if (neighbors > most) to = part;
      most = std::max(most, neighbors);
    }
    if (to == from) return;
    std::swap(part_of_[node], part_of_[offered_[to].back().node]);
    offered_[to].pop_back();
    --train_[from];
    ++train_[to];
  }

  const UndirectedGraph& graph_;
  const std::vector<bool>& is_train_;
  const uint64_t train_max_;
  const std::span<uint32_t> part_of_;
  std::vector<uint64_t> train_;              // by part
  std::vector<std::vector<Offer>> offered_;  // nodes of each part that are not trained on
};

}  // namespace

Result<Assignment> PartitionByBgl(EdgeSource& edges, std::span<const NodeId> train_nodes,
                                  const BglOptions& options, const PartitionContext& context) {
  const uint64_t node_count = edges.node_count();
  const uint32_t parts = options.parts;
  if (node_count == 0) return Assignment{.parts = parts};
  // The graph; a node's block, place and result, the order of sources, and its size where it is a block.
  const uint64_t bytes =
      UndirectedGraph::Bytes(node_count, edges.edge_count(), false) + node_count * (4 + 4 + 4 + 4 + 8);
  QUARRY_TRY(const auto reservation,
             context.budget.Reserve(bytes, fmt::format("{} nodes and {} edges for bgl (grem takes less)",
                                                       node_count, edges.edge_count())));
  QUARRY_TRY(const UndirectedGraph graph, MakeUndirectedGraph(edges, false));
  QUARRY_RETURN_IF_ERROR(context.Report("bgl: blocks", 0, node_count));
  const uint64_t block_nodes_max =
      std::clamp<uint64_t>(node_count / (64 * uint64_t{parts}), 1, options.block_nodes_max);
  Blocks blocks = GrowBlocks(graph, block_nodes_max, options.seed);
  MemoryBudget::Reservation links_reservation;
  {
    QUARRY_TRY(const BlockGraph fine, LinkBlocks(graph, blocks, context.budget, links_reservation));
    const uint64_t merged_nodes_max = std::max<uint64_t>(block_nodes_max, node_count / parts / 4);
    blocks = MergeBlocks(std::move(blocks), fine, block_nodes_max, merged_nodes_max, options.seed);
  }
  links_reservation.Release();
  QUARRY_RETURN_IF_ERROR(context.Report("bgl: assignment", 0, blocks.count()));
  QUARRY_TRY(const BlockGraph links, LinkBlocks(graph, blocks, context.budget, links_reservation));
  QUARRY_TRY(
      const auto assigner_reservation,
      context.budget.Reserve(BlockAssigner::Bytes(links, blocks.count(), parts), "scores of bgl's blocks"));
  std::vector<bool> is_train(node_count);
  for (const NodeId v : train_nodes) is_train[v] = true;
  BlockAssigner assigner(blocks, links, is_train, train_nodes.size(), parts);
  Assignment assignment{.parts = parts, .part_of = assigner.Run()};
  TrainBalancer(graph, is_train, TrainMax(train_nodes.size(), parts), parts, assignment.part_of).Run();
  return assignment;
}

}  // namespace quarry
