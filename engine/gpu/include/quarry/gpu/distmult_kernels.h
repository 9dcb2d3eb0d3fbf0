// Kernels of a step of link prediction by DistMult (Yang et al., 2015): scores, gradients, Adagrad. They sum in a fixed
// order, by segments that the host has sorted, never by atomics, and use no function but the square root: a device and the
// processor give the same bits.
//
// The edges of a batch come in chunks; those of a chunk share its negatives, as destinations (Marius' batches). The loss is
// logistic, with the algebraic sigmoid (1 + x / sqrt(1 + x^2)) / 2.
#pragma once

#include <cmath>
#include <cstdint>

#include "quarry/gpu/kernel.h"
#include "quarry/gpu/words.h"

namespace quarry::gpu {

// Rows of float32 in a device's memory: `dim` values of each, then Adagrad's `dim` sums of squares.
struct AdagradRows {
  float* data;
  uint64_t count;
  uint32_t stride;  // floats from row to row
  Divisor dim;

  QUARRY_ON_DEVICE float* Row(uint64_t i) const { return data + i * stride; }
};

// A batch, and where its kernels hand on what they computed.
struct DistMultBatch {
  AdagradRows nodes, relations;  // of one dim
  const uint32_t* edges;         // of each: places of source, relation, destination
  const uint32_t* negatives;     // of each chunk: places of nodes
  uint32_t edge_count;
  Divisor chunk_edges, chunk_negatives;
  Divisor candidates;  // of an edge: 1 + chunk_negatives

  float* slopes;  // [edge][1 + chunk_negatives]: of the loss, along the scores of destination and negatives
  float* node_shares;  // gradients by use: [source of each edge | destination of each edge | negative][dim]
  float* relation_shares;  // [edge][dim]

  QUARRY_ON_DEVICE uint64_t chunk_count() const {
    return Divide(edge_count + uint64_t{chunk_edges.value()} - 1, chunk_edges).quotient;
  }
  QUARRY_ON_DEVICE const float* Source(uint64_t edge) const { return nodes.Row(edges[3 * edge]); }
  QUARRY_ON_DEVICE const float* Relation(uint64_t edge) const { return relations.Row(edges[3 * edge + 1]); }
  // Candidate 0 is the edge's destination, the others are the negatives of its chunk.
  QUARRY_ON_DEVICE const float* Candidate(uint64_t edge, uint32_t candidate) const {
    if (candidate == 0) return nodes.Row(edges[3 * edge + 2]);
    return nodes.Row(negatives[Divide(edge, chunk_edges).quotient * chunk_negatives.value() + candidate - 1]);
  }
};

struct ScoreDistMult {
  static constexpr char kName[] = "quarry_score_distmult";
  DistMultBatch batch;

  QUARRY_ON_DEVICE uint64_t count() const { return uint64_t{batch.edge_count} * batch.candidates.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [edge, candidate] = Divide(index, batch.candidates);
    const float* const source = batch.Source(edge);
    const float* const relation = batch.Relation(edge);
    const float* const destination = batch.Candidate(edge, candidate);
    float score = 0;
    for (uint32_t c = 0; c < batch.nodes.dim.value(); ++c) score += source[c] * relation[c] * destination[c];
    const float sigmoid = 0.5F * (1.0F + score / std::sqrt(1.0F + score * score));
    batch.slopes[index] =
        candidate == 0 ? sigmoid - 1.0F : sigmoid / static_cast<float>(batch.chunk_negatives.value());
  }
};

// What each edge adds to the gradients of its source, relation and destination, a component an index.
struct ShareDistMultEdges {
  static constexpr char kName[] = "quarry_share_distmult_edges";
  DistMultBatch batch;

  QUARRY_ON_DEVICE uint64_t count() const { return uint64_t{batch.edge_count} * batch.nodes.dim.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [edge, c] = Divide(index, batch.nodes.dim);
    const float* const slopes = batch.slopes + edge * batch.candidates.value();
    float weighted = 0;
    for (uint32_t candidate = 0; candidate < batch.candidates.value(); ++candidate) {
      weighted += slopes[candidate] * batch.Candidate(edge, candidate)[c];
    }
    const float source = batch.Source(edge)[c], relation = batch.Relation(edge)[c];
    batch.node_shares[index] = relation * weighted;
    batch.node_shares[uint64_t{batch.edge_count} * batch.nodes.dim.value() + index] =
        slopes[0] * (source * relation);
    batch.relation_shares[index] = source * weighted;
  }
};

// What each negative gets from the edges of its chunk, a component an index.
struct ShareDistMultNegatives {
  static constexpr char kName[] = "quarry_share_distmult_negatives";
  DistMultBatch batch;

  QUARRY_ON_DEVICE uint64_t count() const {
    return batch.chunk_count() * batch.chunk_negatives.value() * batch.nodes.dim.value();
  }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const uint32_t dim = batch.nodes.dim.value(), chunk_edges = batch.chunk_edges.value();
    const auto [negative, c] = Divide(index, batch.nodes.dim);
    const auto [chunk, place] = Divide(negative, batch.chunk_negatives);
    const uint64_t first = chunk * chunk_edges;
    const uint64_t end = first + chunk_edges < batch.edge_count ? first + chunk_edges : batch.edge_count;
    float share = 0;
    for (uint64_t edge = first; edge < end; ++edge) {
      share += batch.slopes[edge * batch.candidates.value() + 1 + place] *
               (batch.Source(edge)[c] * batch.Relation(edge)[c]);
    }
    batch.node_shares[2 * uint64_t{batch.edge_count} * dim + index] = share;
  }
};

// A step of Adagrad for every row, along the sum of its shares in the order of its uses, a component an index.
struct StepAdagradRows {
  static constexpr char kName[] = "quarry_step_adagrad_rows";
  AdagradRows rows;
  const uint32_t* offsets;  // by row, and the end: its uses
  const uint32_t* uses;     // of each row ascending: which of the shares
  const float* shares;      // [use][dim]
  float learning_rate, epsilon;

  QUARRY_ON_DEVICE uint64_t count() const { return rows.count * rows.dim.value(); }
  QUARRY_ON_DEVICE void operator()(uint64_t index) const {
    const auto [row, c] = Divide(index, rows.dim);
    float gradient = 0;
    for (uint32_t use = offsets[row]; use < offsets[row + 1]; ++use) {
      gradient += shares[uint64_t{uses[use]} * rows.dim.value() + c];
    }
    float* const value = rows.Row(row) + c;
    float* const squares = value + rows.dim.value();
    *squares += gradient * gradient;
    *value -= learning_rate * gradient / (std::sqrt(*squares) + epsilon);
  }
};

}  // namespace quarry::gpu
