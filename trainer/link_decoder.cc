#include "link_decoder.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "link_kernels.h"
#include "link_loss.h"
#include "matrix.h"
#include "quarry/base/units.h"
#include "task_pool.h"

namespace quarry {
namespace {

// A side's half of the relations' rows.
RowsRef RelationRows(const LinkSpec& spec, LinkSide side, const float* values, const uint32_t* relations) {
  if (spec.relation_dim() == 0) return {};
  return {values + (side == LinkSide::kSource ? spec.dim : 0), spec.relation_dim(), relations};
}

// Grows, and keeps what it has grown to.
void EnsureSize(std::vector<float>& values, size_t size) {
  if (values.size() < size) values.resize(size);
}

}  // namespace

void MakeQueries(const LinkSpec& spec, LinkSide side, const float* node_values, const float* relation_values,
                 std::span<const uint32_t> known, std::span<const uint32_t> relations, float* queries) {
  const RowsRef nodes{node_values, spec.dim, known.data()};
  const RowsRef relation_rows = RelationRows(spec, side, relation_values, relations.data());
  const auto rows = static_cast<uint32_t>(known.size());
  switch (spec.decoder) {
    case DecoderKind::kDot:
      return GatherRows(nodes, rows, spec.dim, queries);
    case DecoderKind::kDistMult:
      return DistMultQueries(nodes, relation_rows, rows, spec.dim, queries);
    case DecoderKind::kComplEx:
      return ComplExQueries(nodes, relation_rows, rows, spec.dim, queries);
    case DecoderKind::kTransE:
      return TransEQueries(nodes, relation_rows, rows, spec.dim, queries);
    case DecoderKind::kRotatE:
      return RotatEQueries(nodes, relation_rows, rows, spec.dim, queries);
  }
}

class LinkDecoder::Impl {
 public:
  Impl(const LinkSpec& spec, unsigned threads)
      : spec_(spec), is_distance_(spec.is_distance()), pool_(threads), scratch_(threads) {
    SetBlasThreads(1, threads);  // BLAS's own threads would wait for one another
  }

  double Compute(const LinkBatch& batch, std::span<const float> node_values,
                 std::span<const float> relation_values, std::span<float> node_gradients,
                 std::span<float> relation_gradients) {
    assert(batch.negative_count > 0 && batch.chunk_edges > 0);
    batch_ = &batch;
    node_values_ = node_values.data();
    relation_values_ = relation_values.data();
    chunk_count_ = static_cast<uint32_t>(CeilDiv(batch.sources.size(), batch.chunk_edges));
    assert(batch.source_negatives.size() == size_t{chunk_count_} * batch.negative_count);
    assert(batch.destination_negatives.size() == size_t{chunk_count_} * batch.negative_count);
    Resize();
    pool_.Run(2 * chunk_count_, [this](uint32_t task, unsigned thread) {
      losses_[task] = RunChunk(kLinkSides[task / chunk_count_], task % chunk_count_, scratch_[thread]);
    });
    Scatter(node_gradients, relation_gradients);
    double loss = 0;
    for (const double chunk_loss : losses_) loss += chunk_loss;
    return loss;
  }

 private:
  // Gradients of one side, by edge or by negative, before they are summed by row.
  struct Staged {
    std::vector<float> known, truth, relation, negative;
  };
  // The buffers of a thread.
  struct Scratch {
    std::vector<float> queries, query_gradients;       // [tile, dim]
    std::vector<float> negatives;                      // [negatives, dim]
    std::vector<float> scores, inverse;                // [tile, negatives]
    std::vector<float> column_sums, negative_lengths;  // [negatives]
    float positives[kTileEdges], lengths[kTileEdges], sums[kTileEdges];
  };
  // Edges of a chunk that are worked on together, from one side.
  struct Tile {
    LinkSide side;
    uint32_t first, rows;
    std::span<const uint32_t> known, truths, relations, negatives;
  };

  void Resize() {
    const size_t edge_floats = batch_->sources.size() * spec_.dim;
    losses_.resize(2 * size_t{chunk_count_});
    for (Staged& staged : staged_) {
      EnsureSize(staged.known, edge_floats);
      EnsureSize(staged.truth, edge_floats);
      EnsureSize(staged.relation, spec_.relation_dim() == 0 ? 0 : edge_floats);
      EnsureSize(staged.negative, size_t{chunk_count_} * batch_->negative_count * spec_.dim);
    }
    const size_t count = batch_->negative_count;
    const size_t tile = std::min(kTileEdges, batch_->chunk_edges);
    for (Scratch& scratch : scratch_) {
      EnsureSize(scratch.queries, tile * spec_.dim);
      EnsureSize(scratch.query_gradients, tile * spec_.dim);
      EnsureSize(scratch.negatives, count * spec_.dim);
      EnsureSize(scratch.scores, tile * count);
      EnsureSize(scratch.inverse, is_distance_ ? tile * count : 0);
      EnsureSize(scratch.column_sums, is_distance_ ? count : 0);
      EnsureSize(scratch.negative_lengths, is_distance_ ? count : 0);
    }
  }

  std::span<const uint32_t> Negatives(LinkSide side, uint32_t chunk) const {
    const auto all = side == LinkSide::kSource ? batch_->source_negatives : batch_->destination_negatives;
    return all.subspan(size_t{chunk} * batch_->negative_count, batch_->negative_count);
  }

  Tile MakeTile(LinkSide side, uint32_t chunk, uint32_t first, uint32_t rows) const {
    const auto known = side == LinkSide::kSource ? batch_->destinations : batch_->sources;
    const auto truths = side == LinkSide::kSource ? batch_->sources : batch_->destinations;
    const auto relations =
        spec_.relation_dim() == 0 ? std::span<const uint32_t>() : batch_->relations.subspan(first, rows);
    return {side,
            first,
            rows,
            known.subspan(first, rows),
            truths.subspan(first, rows),
            relations,
            Negatives(side, chunk)};
  }

  // One side of one chunk. Its edges share the negatives, so these are gathered once, and the scores of a
  // tile of edges are one matrix product with them. The gradient of each negative is a sum over all edges of
  // the chunk, which one task computes in order.
  double RunChunk(LinkSide side, uint32_t chunk, Scratch& scratch) {
    const uint32_t count = batch_->negative_count;
    const uint32_t dim = spec_.dim;
    const RowsRef negatives{node_values_, dim, Negatives(side, chunk).data()};
    GatherRows(negatives, count, dim, scratch.negatives.data());
    if (is_distance_) {
      SquaredLengths(scratch.negatives.data(), count, dim, scratch.negative_lengths.data());
      std::fill_n(scratch.column_sums.data(), count, 0.0F);
    }
    float* gradients = staged_[static_cast<size_t>(side)].negative.data() + size_t{chunk} * count * dim;
    std::fill_n(gradients, size_t{count} * dim, 0.0F);
    const auto edges = static_cast<uint32_t>(batch_->sources.size());
    const uint32_t last = std::min(edges, (chunk + 1) * batch_->chunk_edges);
    double loss = 0;
    for (uint32_t first = chunk * batch_->chunk_edges; first < last; first += kTileEdges) {
      loss += RunTile(MakeTile(side, chunk, first, std::min(kTileEdges, last - first)), scratch, gradients);
    }
    if (is_distance_) {
      SubtractScaled(scratch.column_sums.data(), scratch.negatives.data(), count, dim, gradients);
    }
    return loss;
  }

  // Three products: scores = queries x negatives; then, with the scores replaced by the derivatives of the
  // loss, gradients of queries = scores x negatives, and of negatives = scores^T x queries. Gradients of the
  // tile's edges are staged, since several edges may share a row; those of the negatives are added to
  // `negative_gradients`.
  double RunTile(const Tile& tile, Scratch& scratch, float* negative_gradients) {
    const uint32_t dim = spec_.dim;
    const uint32_t count = batch_->negative_count;
    const MatrixRef queries{scratch.queries.data(), tile.rows, dim};
    const MatrixRef query_gradients{scratch.query_gradients.data(), tile.rows, dim};
    const MatrixRef negatives{scratch.negatives.data(), count, dim};
    const MatrixRef scores{scratch.scores.data(), tile.rows, count};
    const RowsRef truths{node_values_, dim, tile.truths.data()};

    MakeQueries(spec_, tile.side, node_values_, relation_values_, tile.known, tile.relations, queries.data);
    MultiplyTransposed(queries, negatives, scores);
    PositiveScores(is_distance_, queries.data, truths, tile.rows, dim, scratch.positives);
    const double loss = LossAndWeights(tile, scratch);

    Multiply(scores, negatives, query_gradients);
    AddTransposedMultiply(scores, queries, {negative_gradients, count, dim});
    if (is_distance_) SubtractScaled(scratch.sums, queries.data, tile.rows, dim, query_gradients.data);
    Staged& staged = staged_[static_cast<size_t>(tile.side)];
    PositiveGradients(is_distance_, scratch.positives, queries.data, truths, tile.rows, dim,
                      query_gradients.data, staged.truth.data() + size_t{tile.first} * dim);
    StageQueryGradients(tile, query_gradients.data, staged);
    return loss + Regularize(tile, staged);
  }

  // Products in scratch.scores become the weights by which queries and negatives add to each other's
  // gradients, and scratch.positives likewise.
  double LossAndWeights(const Tile& tile, Scratch& scratch) {
    const uint32_t count = batch_->negative_count;
    float* scores = scratch.scores.data();
    float* positives = scratch.positives;
    if (is_distance_) {
      SquaredLengths(scratch.queries.data(), tile.rows, spec_.dim, scratch.lengths);
      ProductsToDistances(scratch.lengths, scratch.negative_lengths.data(), tile.rows, count, scores,
                          scratch.inverse.data());
      // Kept for the way back, as the others' are.
      for (uint32_t i = 0; i < tile.rows; i++) scratch.lengths[i] = 1.0F / std::max(-positives[i], 1e-15F);
    }
    const ScoreTile score_tile{tile.rows,         count, scores, positives, tile.negatives.data(),
                               tile.truths.data()};
    const double loss =
        spec_.loss == LinkLoss::kSoftmax ? SoftmaxLoss(score_tile) : MarginLoss(score_tile, spec_.margin);
    if (is_distance_) {
      DistanceWeights(scratch.inverse.data(), tile.rows, count, scores, scratch.sums,
                      scratch.column_sums.data());
      for (uint32_t i = 0; i < tile.rows; i++) positives[i] *= scratch.lengths[i];
    }
    return loss;
  }

  void StageQueryGradients(const Tile& tile, const float* query_gradients, Staged& staged) {
    const uint32_t dim = spec_.dim;
    const size_t offset = size_t{tile.first} * dim;
    const RowsRef nodes{node_values_, dim, tile.known.data()};
    const RowsRef relations = RelationRows(spec_, tile.side, relation_values_, tile.relations.data());
    float* known = staged.known.data() + offset;
    float* relation = staged.relation.data() + offset;
    switch (spec_.decoder) {
      case DecoderKind::kDot:
        std::copy_n(query_gradients, size_t{tile.rows} * dim, known);
        return;
      case DecoderKind::kDistMult:
        return DistMultBackward(nodes, relations, tile.rows, dim, query_gradients, known, relation);
      case DecoderKind::kComplEx:
        return ComplExBackward(nodes, relations, tile.rows, dim, query_gradients, known, relation);
      case DecoderKind::kTransE:
        std::copy_n(query_gradients, size_t{tile.rows} * dim, known);
        std::copy_n(query_gradients, size_t{tile.rows} * dim, relation);
        return;
      case DecoderKind::kRotatE:
        return RotatEBackward(nodes, relations, tile.rows, dim, query_gradients, known, relation);
    }
  }

  // Adds to what is staged for the vectors of the tile's edges, and returns what that adds to the loss. The relations of
  // rotate have no size.
  double Regularize(const Tile& tile, Staged& staged) const {
    if (spec_.regularization == Regularization::kNone) return 0;
    const auto add = [&](const RowsRef& values, std::vector<float>& gradients) {
      const auto kernel = spec_.regularization == Regularization::kL2 ? AddSquares
                          : spec_.is_complex()                        ? AddComplexCubes
                                                                      : AddCubes;
      return kernel(spec_.regularization_weight, values, tile.rows, spec_.dim,
                    gradients.data() + size_t{tile.first} * spec_.dim);
    };
    double penalty = add({node_values_, spec_.dim, tile.known.data()}, staged.known) +
                     add({node_values_, spec_.dim, tile.truths.data()}, staged.truth);
    if (spec_.relation_dim() > 0 && spec_.decoder != DecoderKind::kRotatE) {
      penalty +=
          add(RelationRows(spec_, tile.side, relation_values_, tile.relations.data()), staged.relation);
    }
    return penalty;
  }

  // Each task owns a range of rows and takes what is staged for them in the order of the batch, so that no
  // sum depends on the number of threads.
  void Scatter(std::span<float> node_gradients, std::span<float> relation_gradients) {
    struct Rows {
      std::span<float> nodes, relations;
      uint64_t node_count;
    } const rows{node_gradients, relation_gradients, node_gradients.size() / spec_.dim};
    const uint32_t ranges = pool_.threads();
    pool_.Run(ranges + 1, [this, &rows](uint32_t task, unsigned) {
      if (task == 0) return ScatterRelations(rows.relations);
      const auto bound = [&](uint32_t i) {
        return static_cast<uint32_t>(rows.node_count * i / pool_.threads());
      };
      ScatterNodes(rows.nodes, bound(task - 1), bound(task));
    });
  }

  void ScatterNodes(std::span<float> gradients, uint32_t first, uint32_t last) const {
    for (const LinkSide side : kLinkSides) {
      const bool is_source = side == LinkSide::kSource;
      const Staged& staged = staged_[static_cast<size_t>(side)];
      const auto add = [&](const std::vector<float>& values, std::span<const uint32_t> targets) {
        ScatterAdd(values.data(), targets, spec_.dim, spec_.dim, first, last, gradients.data());
      };
      add(staged.known, is_source ? batch_->destinations : batch_->sources);
      add(staged.truth, is_source ? batch_->sources : batch_->destinations);
      add(staged.negative, is_source ? batch_->source_negatives : batch_->destination_negatives);
    }
  }

  void ScatterRelations(std::span<float> gradients) const {
    if (spec_.relation_dim() == 0) return;
    for (const LinkSide side : kLinkSides) {
      ScatterAdd(staged_[static_cast<size_t>(side)].relation.data(), batch_->relations, spec_.dim,
                 spec_.relation_dim(), 0, UINT32_MAX,
                 gradients.data() + (side == LinkSide::kSource ? spec_.dim : 0));
    }
  }

  const LinkSpec spec_;
  const bool is_distance_;
  TaskPool pool_;
  std::vector<Scratch> scratch_;  // by thread
  Staged staged_[2];              // by side
  std::vector<double> losses_;    // by side and chunk
  // What the current Compute works on.
  const LinkBatch* batch_ = nullptr;
  const float* node_values_ = nullptr;
  const float* relation_values_ = nullptr;
  uint32_t chunk_count_ = 0;
};

LinkDecoder::LinkDecoder(const LinkSpec& spec, unsigned threads)
    : impl_(std::make_unique<Impl>(spec, threads)) {
  assert(CheckLinkSpec(spec).ok());
}

LinkDecoder::~LinkDecoder() = default;

double LinkDecoder::Compute(const LinkBatch& batch, std::span<const float> node_values,
                            std::span<const float> relation_values, std::span<float> node_gradients,
                            std::span<float> relation_gradients) {
  return impl_->Compute(batch, node_values, relation_values, node_gradients, relation_gradients);
}

}  // namespace quarry
