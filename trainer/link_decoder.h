// LinkDecoder: loss and gradients of a batch of edges against shared negatives, for every decoder and loss of
// quarry/trainer/link.h.
//
// The known node and the relation of an edge make a *query* q, such that the score of any node n on the other
// side is q . n, or -|q - n| for TransE and RotatE. So the scores of a chunk of edges against its negatives are one
// matrix product, and the gradients are two more. Gradients are analytic, in float32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "quarry/trainer/link.h"

namespace quarry {

// Edges whose scores are worked on at a time: 256 KiB against 500 negatives stay in the second-level cache
// from the first product to the last (measured: 64 and 256 take about 5 % longer).
inline constexpr uint32_t kTileEdges = 128;

// The side of an edge that is asked for; the node on the other side is known.
enum class LinkSide : uint8_t { kSource, kDestination };
inline constexpr LinkSide kLinkSides[] = {LinkSide::kSource, LinkSide::kDestination};

// Row i of `queries` ([known.size(), dim]): the query of known node known[i] and relation relations[i]. Both
// are row numbers of the arrays given.
void MakeQueries(const LinkSpec& spec, LinkSide side, const float* node_values, const float* relation_values,
                 std::span<const uint32_t> known, std::span<const uint32_t> relations, float* queries);

// A batch by *local* rows: those of the arrays of unique nodes and relations that go with it.
struct LinkBatch {
  std::span<const uint32_t> sources, relations,
      destinations;  // by edge; no relations where the decoder has none
  // Edges [c * chunk_edges, (c + 1) * chunk_edges) share the negatives of chunk c: for each side,
  // [chunk c * negative_count, (c + 1) * negative_count) takes the place of that side's node. A negative that
  // is an edge's own node there is left out for that edge.
  uint32_t chunk_edges = 0;
  uint32_t negative_count = 0;
  std::span<const uint32_t> source_negatives, destination_negatives;
};

// One caller at a time. Scratch memory is kept between batches: it grows with the largest, then nothing is
// allocated.
class LinkDecoder {
 public:
  // REQUIRES: CheckLinkSpec(spec). Sets BLAS, for the whole process, to one thread: the decoder brings its
  // own.
  LinkDecoder(const LinkSpec& spec, unsigned threads);
  ~LinkDecoder();

  // Adds the gradient of the batch's loss to `node_gradients` ([rows, dim]) and `relation_gradients` ([rows,
  // relation_dim]), arrays of the shapes of the values, and returns the loss, summed over edges and sides, with its regularization.
  // The same bits for any number of threads. REQUIRES: negative_count > 0, chunk_edges > 0, and all rows are
  // in the arrays.
  double Compute(const LinkBatch& batch, std::span<const float> node_values,
                 std::span<const float> relation_values, std::span<float> node_gradients,
                 std::span<float> relation_gradients);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quarry
