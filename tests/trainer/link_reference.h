// Link prediction from its formulas, slowly and in double: what the trainer's kernels are held against.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <span>
#include <vector>

#include "link_decoder.h"
#include "quarry/base/random.h"

namespace quarry {

// A batch that owns its indices.
struct OwnedBatch {
  std::vector<uint32_t> sources, relations, destinations, source_negatives, destination_negatives;
  uint32_t chunk_edges = 0;
  uint32_t negative_count = 0;

  LinkBatch view() const {
    return {sources,        relations,        destinations,         chunk_edges,
            negative_count, source_negatives, destination_negatives};
  }
};

// Nodes recur, and negatives meet truths, as both are few.
inline OwnedBatch RandomBatch(Rng& rng, uint32_t edges, uint32_t chunk_edges, uint32_t negative_count,
                              uint32_t node_count, uint32_t relation_count) {
  OwnedBatch batch;
  batch.chunk_edges = chunk_edges;
  batch.negative_count = negative_count;
  const auto draw = [&](std::vector<uint32_t>& to, size_t count, uint32_t bound) {
    for (size_t i = 0; i < count; i++) to.push_back(static_cast<uint32_t>(rng.Below(bound)));
  };
  draw(batch.sources, edges, node_count);
  draw(batch.relations, edges, relation_count);
  draw(batch.destinations, edges, node_count);
  const size_t chunks = (edges + chunk_edges - 1) / chunk_edges;
  draw(batch.source_negatives, chunks * negative_count, node_count);
  draw(batch.destination_negatives, chunks * negative_count, node_count);
  return batch;
}

template <typename T>
std::vector<T> RandomValues(Rng& rng, size_t count, double scale = 1) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<float>((2 * rng.Unit() - 1) * scale));
  return values;
}

template <typename T>
struct ReferenceTables {
  const LinkSpec& spec;
  std::span<const T> nodes, relations;

  // The score of `asked` on `side` of an edge whose other node is `known`: for the source side, as
  // destination of the inverse relation.
  double Score(LinkSide side, uint32_t known, uint32_t relation, uint32_t asked) const {
    const size_t dim = spec.dim;
    const T* s = nodes.data() + known * dim;
    const T* d = nodes.data() + asked * dim;
    const T* r = relations.data() + relation * spec.relation_dim() + (side == LinkSide::kSource ? dim : 0);
    const size_t half = dim / 2;
    double sum = 0;
    switch (spec.decoder) {
      case DecoderKind::kDot:
        for (size_t c = 0; c < dim; c++) sum += double{s[c]} * double{d[c]};
        return sum;
      case DecoderKind::kDistMult:
        for (size_t c = 0; c < dim; c++) sum += double{s[c]} * double{r[c]} * double{d[c]};
        return sum;
      case DecoderKind::kComplEx:
        for (size_t c = 0; c < half; c++) {
          using Complex = std::complex<double>;
          sum += (Complex(s[c], s[half + c]) * Complex(r[c], r[half + c]) *
                  std::conj(Complex(d[c], d[half + c])))
                     .real();
        }
        return sum;
      case DecoderKind::kTransE:
        for (size_t c = 0; c < dim; c++) {
          const double difference = double{s[c]} + double{r[c]} - double{d[c]};
          sum += difference * difference;
        }
        return -std::sqrt(sum);
      case DecoderKind::kRotatE:
        for (size_t c = 0; c < half; c++) {
          using Complex = std::complex<double>;
          const Complex turn(r[c], r[half + c]);
          const Complex turned =
              Complex(s[c], s[half + c]) * (std::abs(turn) > 1e-15 ? turn / std::abs(turn) : 1);
          sum += std::norm(turned - Complex(d[c], d[half + c]));
        }
        return -std::sqrt(sum);
    }
    return 0;
  }

  // What a vector adds to the loss by its size.
  double Penalty(const T* values) const {
    const size_t dim = spec.dim;
    double sum = 0;
    if (spec.regularization == Regularization::kL2) {
      for (size_t c = 0; c < dim; c++) sum += double{values[c]} * double{values[c]};
    } else if (spec.regularization == Regularization::kN3 && spec.is_complex()) {
      for (size_t c = 0; c < dim / 2; c++) {
        sum += std::pow(std::abs(std::complex<double>(values[c], values[dim / 2 + c])), 3);
      }
    } else if (spec.regularization == Regularization::kN3) {
      for (size_t c = 0; c < dim; c++) sum += std::pow(std::abs(double{values[c]}), 3);
    }
    return double{spec.regularization_weight} * sum;
  }

  double EdgePenalty(LinkSide side, const LinkBatch& batch, size_t edge) const {
    double sum = Penalty(nodes.data() + size_t{batch.sources[edge]} * spec.dim) +
                 Penalty(nodes.data() + size_t{batch.destinations[edge]} * spec.dim);
    if (spec.relation_dim() == 0 || spec.decoder == DecoderKind::kRotatE) return sum;
    const T* relation = relations.data() + size_t{batch.relations[edge]} * spec.relation_dim();
    return sum + Penalty(relation + (side == LinkSide::kSource ? spec.dim : 0));
  }

  double EdgeLoss(LinkSide side, const LinkBatch& batch, size_t edge) const {
    const bool is_source = side == LinkSide::kSource;
    const uint32_t known = is_source ? batch.destinations[edge] : batch.sources[edge];
    const uint32_t truth = is_source ? batch.sources[edge] : batch.destinations[edge];
    const uint32_t relation = spec.relation_dim() == 0 ? 0 : batch.relations[edge];
    const double positive = Score(side, known, relation, truth);
    const auto negatives =
        (is_source ? batch.source_negatives : batch.destination_negatives)
            .subspan(edge / batch.chunk_edges * batch.negative_count, batch.negative_count);
    std::vector<double> scores;
    for (const uint32_t negative : negatives) {
      if (negative != truth) scores.push_back(Score(side, known, relation, negative));
    }
    double loss = 0;
    if (spec.loss == LinkLoss::kMargin) {
      for (const double score : scores) loss += std::max(0.0, double{spec.margin} - positive + score);
      return loss / batch.negative_count;
    }
    scores.push_back(positive);
    const double largest = *std::max_element(scores.begin(), scores.end());
    for (const double score : scores) loss += std::exp(score - largest);
    return std::log(loss) + largest - positive;
  }

  double Loss(const LinkBatch& batch) const {
    double loss = 0;
    for (const LinkSide side : kLinkSides) {
      for (size_t edge = 0; edge < batch.sources.size(); edge++) {
        loss += EdgeLoss(side, batch, edge) + EdgePenalty(side, batch, edge);
      }
    }
    return loss;
  }
};

}  // namespace quarry
