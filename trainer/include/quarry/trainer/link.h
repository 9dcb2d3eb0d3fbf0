// Link prediction: decoders that score edges by the vectors of their two nodes and of their relation, the
// losses that train them, and the ranking metrics that judge them (dissertation §2.1, §3.4.2; MRR as Mohoney
// et al. 2021).
//
// An edge is ranked twice: its destination among all nodes for (source, relation, ?), and its source among
// all nodes for (?, relation, destination). In training, negatives stand for "all nodes", and an edge's loss
// is the sum of both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "quarry/base/status.h"
#include "quarry/embedding/embedding_table.h"
#include "quarry/format/types.h"

namespace quarry {

// Scores of an edge (s, r, d); larger is likelier.
enum class DecoderKind : uint8_t {
  kDot,       // s . d: relations play no part, and have no vectors
  kDistMult,  // sum of s * r * d (Yang et al. 2015)
  kComplEx,   // Re(sum of s * r * conj(d)) (Trouillon et al. 2016); a row is [real half | imaginary half]
  kTransE,    // -|s + r - d|, Euclidean (Bordes et al. 2013)
  // -|s * r / |r| - d| of complex numbers, Euclidean (Sun et al. 2019); a row is [real half | imaginary half].
  // Relations turn: of each number in a relation's row only the direction counts, and a number too small to have
  // one turns nothing.
  kRotatE,
};
inline constexpr DecoderKind kDecoderKinds[] = {DecoderKind::kDot, DecoderKind::kDistMult,
                                                DecoderKind::kComplEx, DecoderKind::kTransE,
                                                DecoderKind::kRotatE};
std::string_view DecoderName(DecoderKind kind);           // "dot", "distmult", "complex", "transe", "rotate"
Result<DecoderKind> ParseDecoder(std::string_view name);  // kUsage lists the names

// The loss of an edge's score f against the scores f_j of its n negatives, for each side.
enum class LinkLoss : uint8_t {
  kSoftmax,  // -log(exp f / (exp f + sum of exp f_j))
  kMargin,   // mean of max(0, margin - f + f_j)
};
std::string_view LinkLossName(LinkLoss loss);  // "softmax", "margin"
Result<LinkLoss> ParseLinkLoss(std::string_view name);

// What each side of an edge adds to its loss for the size of the three vectors that it is scored by (those of its
// own nodes and its relation, not of negatives), times a weight.
enum class Regularization : uint8_t {
  kNone,
  kL2,  // sum of the floats' squares
  kN3,  // sum of their magnitudes' cubes (Lacroix et al. 2018); of complex and rotate, of the complex numbers'
};
std::string_view RegularizationName(Regularization kind);  // "none", "l2", "n3"

struct LinkSpec {
  DecoderKind decoder = DecoderKind::kDistMult;
  uint32_t dim = 50;
  LinkLoss loss = LinkLoss::kSoftmax;
  float margin = 0.1F;
  Regularization regularization = Regularization::kNone;
  float regularization_weight = 0;  // above 0 unless kNone

  // Floats in a relation's row, [forward | inverse]: destinations are asked for by the forward vector, as (s,
  // r, ?), sources by the inverse one, as (d, inverse r, ?) (Lacroix et al. 2018). One vector for both gave
  // filtered MRRs that were lower by .005 to .02 (FB15k-237, the Debian graph).
  uint32_t relation_dim() const { return decoder == DecoderKind::kDot ? 0 : 2 * dim; }
  // Scores are minus distances of a query and a node, instead of their products.
  bool is_distance() const { return decoder == DecoderKind::kTransE || decoder == DecoderKind::kRotatE; }
  // Rows are complex numbers, [real half | imaginary half].
  bool is_complex() const { return decoder == DecoderKind::kComplEx || decoder == DecoderKind::kRotatE; }
};

// kInvalidArgument for a dim of 0, an odd one of complex numbers, a margin that is no positive number, and a
// regularization whose weight is none, or a weight of no regularization.
Status CheckLinkSpec(const LinkSpec& spec);

// Metrics over both sides of all edges. Equal scores count with their mean rank, so that a constant model is
// not a good one.
struct LinkMetrics {
  uint64_t rankings = 0;                       // two an edge
  double mrr = 0;                              // mean of 1 / rank
  double hits_1 = 0, hits_3 = 0, hits_10 = 0;  // share of ranks up to 1, 3, 10
};

// `filtered` leaves all other nodes that would make a known edge out of a ranking.
struct LinkEvaluation {
  LinkMetrics raw, filtered;
};

// The edges that filtered rankings leave out. Holds 24 bytes an edge. Immutable after construction: any
// thread may use it.
class KnownEdges {
 public:
  explicit KnownEdges(std::vector<Triple> edges);  // training, validation and test edges together

  // The edges with this head (or tail) and relation, ascending by tail (or head).
  std::span<const Triple> WithHead(NodeId head, uint32_t relation) const;
  std::span<const Triple> WithTail(NodeId tail, uint32_t relation) const;

 private:
  std::vector<Triple> by_head_;  // (head, relation, tail)
  std::vector<Triple> by_tail_;  // (tail, relation, head)
};

// The vectors that are ranked: those of all nodes, wherever they lie, and those of relations.
struct LinkVectors {
  uint64_t node_count = 0;
  // Fills `values` ([ids, dim], row-major) with the vectors of these nodes, ascending and unique. Called by
  // one thread at a time, which is not always the same.
  std::function<Status(std::span<const RowId> ids, std::span<float> values)> read_nodes;
  std::span<const float> relations;  // [relation count, relation_dim], row-major
};

// Ranks both sides of `edges` among all nodes. Reads the nodes front to back, once for as many edges as have
// queries of 16 MiB, one strip of nodes ahead of the scores. So nothing that it holds grows with the number
// of nodes, and the result is the same to the last bit wherever they lie, for any number of threads.
// `progress` (may be empty) gets the edges done now and then; an error that it returns ends the ranking, as
// an error of read_nodes does. REQUIRES: the ids of `edges` are rows of the two.
Result<LinkEvaluation> EvaluateLinks(const LinkSpec& spec, const LinkVectors& vectors,
                                     std::span<const Triple> edges, const KnownEdges& known, unsigned threads,
                                     const std::function<Status(uint64_t edges)>& progress = {});

// The same for vectors in memory: `nodes` is [node count, dim].
LinkEvaluation EvaluateLinks(const LinkSpec& spec, std::span<const float> nodes,
                             std::span<const float> relations, std::span<const Triple> edges,
                             const KnownEdges& known, unsigned threads);

}  // namespace quarry
