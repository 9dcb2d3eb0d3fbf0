#include "link_evaluate.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "kernel.h"
#include "link_decoder.h"
#include "matrix.h"
#include "quarry/base/units.h"
#include "task_pool.h"

namespace quarry {
namespace {

// Queries that are scored at a time against so many nodes: 1 MiB of scores.
constexpr uint32_t kGroupEdges = 128;
constexpr uint32_t kBlockNodes = 2048;

// `scores` less half the squared lengths of the nodes: as |q - n|^2 = |q|^2 - 2 (q . n - |n|^2 / 2), what is
// nearer to the query scores higher.
QUARRY_KERNEL void SubtractRow(const float* half_lengths, uint32_t count, float* __restrict scores) {
  for (uint32_t j = 0; j < count; j++) scores[j] -= half_lengths[j];
}

// What is neither above nor below is equal. So where a score is no number all are: a model that has diverged
// ranks in the middle, as a constant one does.
QUARRY_KERNEL RankCounts CountRow(const float* scores, uint32_t count, float low, float high) {
  uint32_t above = 0, below = 0;
  for (uint32_t j = 0; j < count; j++) {
    above += scores[j] > high ? 1 : 0;
    below += scores[j] < low ? 1 : 0;
  }
  return {above, count - above - below};
}

// A truth and the scores that count as equal to its own.
struct Truth {
  NodeId node;
  float low, high;
  std::span<const Triple> known;  // edges that differ from it at most in the node
  size_t next_known = 0;          // the first one whose node no block has held yet
  RankCounts raw, filtered;

  void Leave(float score, RankCounts& counts) const {
    if (score > high) {
      counts.above--;
    } else if (!(score < low)) {
      counts.equal--;
    }
  }
};

struct Tables {
  const LinkSpec& spec;
  std::span<const float> nodes, relations;
  std::vector<float> half_lengths;  // of nodes, for TransE

  const float* node(uint64_t i) const { return nodes.data() + i * spec.dim; }
  uint64_t node_count() const { return nodes.size() / spec.dim; }
};

// Ranks a group of edges from one side. A thread has one, and uses it again.
class GroupRanker {
 public:
  GroupRanker(const Tables& tables, const KnownEdges& known)
      : tables_(tables),
        known_(known),
        queries_(size_t{kGroupEdges} * tables.spec.dim),
        scores_(size_t{kGroupEdges} * kBlockNodes) {}

  // REQUIRES: edges.size() <= kGroupEdges
  void Rank(std::span<const Triple> edges, LinkSide side, double* raw, double* filtered) {
    Start(edges, side);
    const uint64_t node_count = tables_.node_count();
    for (uint64_t first = 0; first < node_count; first += kBlockNodes) {
      CountBlock(side, first, std::min<uint64_t>(kBlockNodes, node_count - first));
    }
    for (size_t i = 0; i < truths_.size(); i++) {
      raw[i] = truths_[i].raw.rank();
      filtered[i] = truths_[i].filtered.rank();
    }
  }

 private:
  void Start(std::span<const Triple> edges, LinkSide side) {
    const bool is_source = side == LinkSide::kSource;
    given_.clear();
    relations_.clear();
    truths_.clear();
    for (const Triple& edge : edges) {
      given_.push_back(is_source ? edge.tail : edge.head);
      relations_.push_back(edge.relation);
    }
    MakeQueries(tables_.spec, side, tables_.nodes.data(), tables_.relations.data(), given_, relations_,
                queries_.data());
    for (size_t i = 0; i < edges.size(); i++) {
      const Triple& edge = edges[i];
      Truth truth = Score(is_source ? edge.head : edge.tail, queries_.data() + i * tables_.spec.dim);
      truth.known =
          is_source ? known_.WithTail(edge.tail, edge.relation) : known_.WithHead(edge.head, edge.relation);
      truths_.push_back(truth);
    }
  }

  Truth Score(NodeId node, const float* query) const {
    const float* values = tables_.node(node);
    double score = 0, query_length = 0, length = 0;
    for (uint32_t c = 0; c < tables_.spec.dim; c++) {
      score += double{query[c]} * double{values[c]};
      query_length += double{query[c]} * double{query[c]};
      length += double{values[c]} * double{values[c]};
    }
    if (tables_.spec.decoder == DecoderKind::kTransE) score -= length / 2;
    // Float32 sums of the same products differ by up to this with the order of their terms, and that depends
    // on where in a matrix a row lies.
    const double noise = tables_.spec.dim * 0x1p-24 * (std::sqrt(query_length * length) + length / 2);
    return {node, static_cast<float>(score - noise), static_cast<float>(score + noise), {}, 0, {}, {}};
  }

  void CountBlock(LinkSide side, uint64_t first, uint64_t count) {
    const auto rows = static_cast<int64_t>(truths_.size());
    const auto columns = static_cast<int64_t>(count);
    const auto dim = static_cast<int64_t>(tables_.spec.dim);
    MultiplyTransposed({queries_.data(), rows, dim}, {const_cast<float*>(tables_.node(first)), columns, dim},
                       {scores_.data(), rows, columns});
    for (size_t i = 0; i < truths_.size(); i++) {
      float* row = scores_.data() + i * count;
      if (!tables_.half_lengths.empty()) {
        SubtractRow(tables_.half_lengths.data() + first, static_cast<uint32_t>(count), row);
      }
      CountTruth(side, first, {row, count}, truths_[i]);
    }
  }

  static void CountTruth(LinkSide side, uint64_t first, std::span<const float> scores, Truth& truth) {
    RankCounts counts = CountRow(scores.data(), static_cast<uint32_t>(scores.size()), truth.low, truth.high);
    const uint64_t last = first + scores.size();
    if (truth.node >= first && truth.node < last) truth.Leave(scores[truth.node - first], counts);
    truth.raw.above += counts.above;
    truth.raw.equal += counts.equal;
    for (; truth.next_known < truth.known.size(); truth.next_known++) {
      const Triple& edge = truth.known[truth.next_known];
      const NodeId node = side == LinkSide::kSource ? edge.head : edge.tail;
      if (node >= last) break;
      if (node != truth.node) truth.Leave(scores[node - first], counts);
    }
    truth.filtered.above += counts.above;
    truth.filtered.equal += counts.equal;
  }

  const Tables& tables_;
  const KnownEdges& known_;
  std::vector<NodeId> given_;
  std::vector<uint32_t> relations_;
  std::vector<Truth> truths_;
  std::vector<float> queries_;  // [kGroupEdges, dim]
  std::vector<float> scores_;   // [kGroupEdges, kBlockNodes]
};

std::vector<float> HalfLengths(const LinkSpec& spec, std::span<const float> nodes) {
  std::vector<float> half_lengths;
  if (spec.decoder != DecoderKind::kTransE) return half_lengths;
  half_lengths.reserve(nodes.size() / spec.dim);
  for (size_t first = 0; first < nodes.size(); first += spec.dim) {
    double length = 0;
    for (const float value : nodes.subspan(first, spec.dim)) length += double{value} * double{value};
    half_lengths.push_back(static_cast<float>(length / 2));
  }
  return half_lengths;
}

auto ByHead(const Triple& edge) { return std::tuple(edge.head, edge.relation, edge.tail); }
auto ByTail(const Triple& edge) { return std::tuple(edge.tail, edge.relation, edge.head); }

// The edges of a sorted list from key (node, relation, 0) to (node, relation, largest).
template <typename Key>
std::span<const Triple> Find(const std::vector<Triple>& edges, NodeId node, uint32_t relation,
                             const Key& key) {
  const auto first =
      std::lower_bound(edges.begin(), edges.end(), std::tuple(node, relation, NodeId{0}),
                       [&](const Triple& edge, const auto& bound) { return key(edge) < bound; });
  const auto last =
      std::upper_bound(first, edges.end(), std::tuple(node, relation, kNoNode),
                       [&](const auto& bound, const Triple& edge) { return bound < key(edge); });
  return {first, last};
}

template <typename Key>
void SortUnique(std::vector<Triple>& edges, const Key& key) {
  std::sort(edges.begin(), edges.end(), [&](const Triple& a, const Triple& b) { return key(a) < key(b); });
  const auto same = [&](const Triple& a, const Triple& b) { return key(a) == key(b); };
  edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
}

}  // namespace

LinkMetrics MetricsOfRanks(std::span<const double> ranks) {
  LinkMetrics metrics;
  metrics.rankings = ranks.size();
  const double share = ranks.empty() ? 0 : 1 / static_cast<double>(ranks.size());
  for (const double rank : ranks) {
    metrics.mrr += share / rank;
    metrics.hits_1 += rank <= 1 ? share : 0;
    metrics.hits_3 += rank <= 3 ? share : 0;
    metrics.hits_10 += rank <= 10 ? share : 0;
  }
  return metrics;
}

KnownEdges::KnownEdges(std::vector<Triple> edges) : by_head_(std::move(edges)) {
  SortUnique(by_head_, ByHead);
  by_tail_ = by_head_;
  SortUnique(by_tail_, ByTail);
}

std::span<const Triple> KnownEdges::WithHead(NodeId head, uint32_t relation) const {
  return Find(by_head_, head, relation, ByHead);
}

std::span<const Triple> KnownEdges::WithTail(NodeId tail, uint32_t relation) const {
  return Find(by_tail_, tail, relation, ByTail);
}

LinkEvaluation EvaluateLinks(const LinkSpec& spec, std::span<const float> nodes,
                             std::span<const float> relations, std::span<const Triple> edges,
                             const KnownEdges& known, unsigned threads) {
  SetBlasThreads(1);  // BLAS's own threads would wait for one another
  const Tables tables{spec, nodes, relations, HalfLengths(spec, nodes)};
  std::vector<GroupRanker> rankers(threads, GroupRanker(tables, known));
  std::vector<double> raw(2 * edges.size()), filtered(2 * edges.size());  // by side and edge
  const auto group_count = static_cast<uint32_t>(CeilDiv(edges.size(), kGroupEdges));
  TaskPool pool(threads);
  pool.Run(2 * group_count, [&](uint32_t task, unsigned thread) {
    const uint32_t side = task / group_count;
    const size_t first = size_t{task % group_count} * kGroupEdges;
    const size_t row = side * edges.size() + first;
    rankers[thread].Rank(edges.subspan(first, std::min<size_t>(kGroupEdges, edges.size() - first)),
                         kLinkSides[side], raw.data() + row, filtered.data() + row);
  });
  return {MetricsOfRanks(raw), MetricsOfRanks(filtered)};
}

}  // namespace quarry
