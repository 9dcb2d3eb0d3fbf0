#include "link_evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernel.h"
#include "link_decoder.h"
#include "matrix.h"
#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "task_pool.h"

namespace quarry {
namespace {

// Queries, and nodes, that are scored against each other at a time: 1 MiB of scores.
constexpr uint32_t kGroupEdges = 128;
constexpr uint32_t kBlockNodes = 2048;

// Edges that are ranked in one pass over the nodes: the queries of their two sides take 16 MiB. Whole groups,
// so that scores do not depend on how edges are cut into pieces.
uint64_t PieceEdges(const LinkSpec& spec) {
  constexpr uint64_t kQueryBytes = 16 * kMiB;
  return std::max<uint64_t>(kGroupEdges,
                            RoundDown(kQueryBytes / (2 * sizeof(float) * spec.dim), kGroupEdges));
}

// Nodes that are read at a time: 4 MiB, in whole blocks for the same reason.
uint64_t StripNodes(const LinkSpec& spec) {
  constexpr uint64_t kStripBytes = 4 * kMiB;
  return std::max<uint64_t>(kBlockNodes, RoundDown(kStripBytes / (sizeof(float) * spec.dim), kBlockNodes));
}

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

// Vectors of nodes that follow each other.
struct Strip {
  uint64_t first = 0, count = 0;
  std::vector<float> values;        // [count, dim]
  std::vector<float> half_lengths;  // for distances
};

// The vectors that a piece's edges name.
struct Ends {
  std::vector<RowId> ids;  // ascending, unique
  std::vector<float> values;

  uint32_t RowOf(NodeId node) const {
    return static_cast<uint32_t>(std::lower_bound(ids.begin(), ids.end(), node) - ids.begin());
  }
};

// Ranks pieces of edges, both sides, in one pass over all nodes each. Ranking i of a piece is edge i from its
// source side, ranking (edges + i) the same edge from the other.
// Every edge needs all nodes, which may exceed memory, so the loops are turned around: the queries of as many
// edges as 16 MiB hold meet one strip of nodes after another, while the next strip is read. Vectors in memory
// are ranked the same way: the score of an edge and a node comes from the same product of the same shape
// wherever the vectors lie, so ranks are the same to the last bit.
class PieceRanker {
 public:
  PieceRanker(const LinkSpec& spec, const LinkVectors& vectors, const KnownEdges& known, unsigned threads)
      : spec_(spec),
        vectors_(vectors),
        known_(known),
        pool_(threads),
        scores_(threads, std::vector<float>(size_t{kGroupEdges} * kBlockNodes)),
        strip_nodes_(StripNodes(spec)) {}

  // Calls progress(nodes) with those that all edges have met. REQUIRES: at most PieceEdges.
  template <typename Progress>
  Result<LinkEvaluation> Rank(std::span<const Triple> edges, const Progress& progress) {
    QUARRY_RETURN_IF_ERROR(Start(edges));
    QUARRY_RETURN_IF_ERROR(ReadStrip(0, strips_[0]));
    for (size_t turn = 0; strips_[turn % 2].count > 0; turn++) {
      const Strip& strip = strips_[turn % 2];
      QUARRY_RETURN_IF_ERROR(CountStrip(strip, strips_[(turn + 1) % 2]));
      QUARRY_RETURN_IF_ERROR(progress(strip.first + strip.count));
    }
    std::vector<double> raw, filtered;
    for (const Truth& truth : truths_) {
      raw.push_back(truth.raw.rank());
      filtered.push_back(truth.filtered.rank());
    }
    return LinkEvaluation{MetricsOfRanks(raw), MetricsOfRanks(filtered)};
  }

 private:
  uint32_t group_count() const { return static_cast<uint32_t>(CeilDiv(edges_.size(), kGroupEdges)); }

  Status Start(std::span<const Triple> edges) {
    edges_ = edges;
    queries_.resize(2 * edges.size() * spec_.dim);
    truths_.assign(2 * edges.size(), {});
    Ends ends;
    for (const Triple& edge : edges) ends.ids.insert(ends.ids.end(), {edge.head, edge.tail});
    std::sort(ends.ids.begin(), ends.ids.end());
    ends.ids.erase(std::unique(ends.ids.begin(), ends.ids.end()), ends.ids.end());
    ends.values.resize(ends.ids.size() * spec_.dim);
    QUARRY_RETURN_IF_ERROR(vectors_.read_nodes(ends.ids, ends.values));
    pool_.Run(2 * group_count(), [&](uint32_t task, unsigned) { StartGroup(ends, task); });
    return Status::Ok();
  }

  // The side and the edges of a group's number.
  LinkSide SideOf(uint32_t group) const { return kLinkSides[group / group_count()]; }
  std::span<const Triple> EdgesOf(uint32_t group) const {
    const size_t first = size_t{group % group_count()} * kGroupEdges;
    return edges_.subspan(first, std::min<size_t>(kGroupEdges, edges_.size() - first));
  }
  size_t FirstRanking(uint32_t group) const {
    return group / group_count() * edges_.size() + size_t{group % group_count()} * kGroupEdges;
  }

  void StartGroup(const Ends& ends, uint32_t group) {
    const bool is_source = SideOf(group) == LinkSide::kSource;
    const std::span<const Triple> edges = EdgesOf(group);
    std::vector<uint32_t> given, relations;
    for (const Triple& edge : edges) {
      given.push_back(ends.RowOf(is_source ? edge.tail : edge.head));
      relations.push_back(edge.relation);
    }
    float* const queries = queries_.data() + FirstRanking(group) * spec_.dim;
    MakeQueries(spec_, SideOf(group), ends.values.data(), vectors_.relations.data(), given, relations,
                queries);
    for (size_t i = 0; i < edges.size(); i++) {
      const Triple& edge = edges[i];
      const NodeId node = is_source ? edge.head : edge.tail;
      Truth& truth = truths_[FirstRanking(group) + i];
      truth = Score(node, queries + i * spec_.dim, ends.values.data() + size_t{ends.RowOf(node)} * spec_.dim);
      truth.known =
          is_source ? known_.WithTail(edge.tail, edge.relation) : known_.WithHead(edge.head, edge.relation);
    }
  }

  Truth Score(NodeId node, const float* query, const float* values) const {
    double score = 0, query_length = 0, length = 0;
    for (uint32_t c = 0; c < spec_.dim; c++) {
      score += double{query[c]} * double{values[c]};
      query_length += double{query[c]} * double{query[c]};
      length += double{values[c]} * double{values[c]};
    }
    if (spec_.is_distance()) score -= length / 2;
    // Float32 sums of the same products differ by up to this with the order of their terms, and that depends
    // on where in a matrix a row lies.
    const double noise = spec_.dim * 0x1p-24 * (std::sqrt(query_length * length) + length / 2);
    return {node, static_cast<float>(score - noise), static_cast<float>(score + noise), {}, 0, {}, {}};
  }

  // Nothing behind the last node.
  Status ReadStrip(uint64_t first, Strip& strip) {
    strip.first = first;
    strip.count = std::min(strip_nodes_, vectors_.node_count - first);
    if (strip.count == 0) return Status::Ok();
    std::vector<RowId> ids(strip.count);
    std::iota(ids.begin(), ids.end(), first);
    strip.values.resize(strip.count * spec_.dim);
    QUARRY_RETURN_IF_ERROR(vectors_.read_nodes(ids, strip.values));
    if (spec_.is_distance()) SetHalfLengths(strip);
    return Status::Ok();
  }

  void SetHalfLengths(Strip& strip) const {
    strip.half_lengths.clear();
    for (uint64_t row = 0; row < strip.count; row++) {
      double length = 0;
      for (const float value : std::span(strip.values).subspan(row * spec_.dim, spec_.dim)) {
        length += double{value} * double{value};
      }
      strip.half_lengths.push_back(static_cast<float>(length / 2));
    }
  }

  // Holds every group against the strip, while one thread reads the next one.
  Status CountStrip(const Strip& strip, Strip& next) {
    Status read;
    pool_.Run(1 + 2 * group_count(), [&](uint32_t task, unsigned thread) {
      if (task == 0) {
        read = ReadStrip(strip.first + strip.count, next);
        return;
      }
      for (uint64_t first = 0; first < strip.count; first += kBlockNodes) {
        const uint64_t count = std::min<uint64_t>(kBlockNodes, strip.count - first);
        CountBlock(task - 1, strip, first, count, scores_[thread].data());
      }
    });
    return read;
  }

  // Counts the scores of the strip's nodes [first, first + count).
  void CountBlock(uint32_t group, const Strip& strip, uint64_t first, uint64_t count, float* scores) {
    const auto rows = static_cast<int64_t>(EdgesOf(group).size());
    const auto columns = static_cast<int64_t>(count);
    const auto dim = static_cast<int64_t>(spec_.dim);
    const size_t ranking = FirstRanking(group);
    MultiplyTransposed({queries_.data() + ranking * spec_.dim, rows, dim},
                       {const_cast<float*>(strip.values.data()) + first * spec_.dim, columns, dim},
                       {scores, rows, columns});
    for (int64_t i = 0; i < rows; i++) {
      float* const row = scores + i * columns;
      if (!strip.half_lengths.empty()) {
        SubtractRow(strip.half_lengths.data() + first, static_cast<uint32_t>(count), row);
      }
      CountTruth(SideOf(group), strip.first + first, {row, count}, truths_[ranking + static_cast<size_t>(i)]);
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

  const LinkSpec& spec_;
  const LinkVectors& vectors_;
  const KnownEdges& known_;
  TaskPool pool_;
  std::vector<std::vector<float>> scores_;  // by thread: [kGroupEdges, kBlockNodes]
  const uint64_t strip_nodes_;
  Strip strips_[2];
  // The piece at hand.
  std::span<const Triple> edges_;
  std::vector<float> queries_;  // [rankings, dim]
  std::vector<Truth> truths_;   // by ranking
};

void AddPart(const LinkMetrics& part, double share, LinkMetrics& whole) {
  whole.rankings += part.rankings;
  whole.mrr += share * part.mrr;
  whole.hits_1 += share * part.hits_1;
  whole.hits_3 += share * part.hits_3;
  whole.hits_10 += share * part.hits_10;
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

Status CopyRows(std::span<const float> rows, std::span<const RowId> ids, std::span<float> values) {
  const size_t dim = values.size() / ids.size();
  for (size_t i = 0; i < ids.size(); i++) {
    std::ranges::copy(rows.subspan(ids[i] * dim, dim), values.begin() + static_cast<ptrdiff_t>(i * dim));
  }
  return Status::Ok();
}

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

uint64_t RankingBytes(const LinkSpec& spec, uint64_t node_count, uint64_t edges, unsigned threads) {
  constexpr uint64_t kRankingBytes = sizeof(Truth) + 2 * sizeof(double) + sizeof(RowId);
  const uint64_t vector_bytes = uint64_t{spec.dim} * sizeof(float);
  const uint64_t rankings = 2 * std::min(edges, PieceEdges(spec));
  const uint64_t strip_bytes = vector_bytes + sizeof(float) + sizeof(RowId);
  return rankings * (vector_bytes + kRankingBytes) + std::min(rankings, node_count) * vector_bytes +
         2 * std::min(node_count, StripNodes(spec)) * strip_bytes +
         threads * uint64_t{kGroupEdges} * kBlockNodes * sizeof(float);
}

Result<LinkEvaluation> EvaluateLinks(const LinkSpec& spec, const LinkVectors& vectors,
                                     std::span<const Triple> edges, const KnownEdges& known, unsigned threads,
                                     const std::function<Status(uint64_t edges)>& progress) {
  SetBlasThreads(1, threads);  // BLAS's own threads would wait for one another
  PieceRanker ranker(spec, vectors, known, threads);
  LinkEvaluation whole;
  for (size_t first = 0; first < edges.size(); first += PieceEdges(spec)) {
    const auto piece = edges.subspan(first, std::min<size_t>(PieceEdges(spec), edges.size() - first));
    const auto tell = [&](uint64_t nodes) {
      return progress ? progress(first + piece.size() * nodes / vectors.node_count) : Status::Ok();
    };
    const ScopedSpan span("rank", first);
    QUARRY_RETURN_IF_ERROR(tell(0));
    QUARRY_TRY(const LinkEvaluation part, ranker.Rank(piece, tell));
    const double share = static_cast<double>(piece.size()) / static_cast<double>(edges.size());
    AddPart(part.raw, share, whole.raw);
    AddPart(part.filtered, share, whole.filtered);
  }
  return whole;
}

LinkEvaluation EvaluateLinks(const LinkSpec& spec, std::span<const float> nodes,
                             std::span<const float> relations, std::span<const Triple> edges,
                             const KnownEdges& known, unsigned threads) {
  const auto read_nodes = [&](std::span<const RowId> ids, std::span<float> values) {
    return CopyRows(nodes, ids, values);
  };
  const LinkVectors vectors{nodes.size() / spec.dim, read_nodes, relations};
  return *EvaluateLinks(spec, vectors, edges, known, threads);  // copying cannot fail
}

}  // namespace quarry
