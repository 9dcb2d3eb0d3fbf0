#include "layer_bytes.h"

#include <algorithm>

#include "graph_kernels.h"
#include "quarry/base/units.h"
#include "rgat_layer.h"
#include "tiles.h"

namespace quarry {
namespace {

// Columns of what GatheredLayer and RgcnLayer multiply.
uint64_t GatheredWidth(const ModelSpec& spec, const LayerBounds& layer) {
  if (spec.model == GnnKind::kRgcn) return (uint64_t{spec.bases} + 1) * layer.in;
  return spec.model == GnnKind::kSage ? 2 * uint64_t{layer.in} : layer.in;
}

// Columns of GatLayer's z.
uint64_t HeadsWidth(const ModelSpec& spec, const LayerBounds& layer) {
  return layer.last ? uint64_t{spec.heads} * layer.out : layer.out;
}

// What ResizeVoid holds of vectors of so many elements, all of which take 4 bytes.
uint64_t VectorBytes(uint64_t elements) {
  static_assert(sizeof(uint32_t) == sizeof(float));
  return (elements + elements / 8) * sizeof(uint32_t);
}

uint64_t GatheredBytes(const ModelSpec& spec, const LayerBounds& layer) {
  const uint64_t width = GatheredWidth(spec, layer);
  const uint64_t input = GrownBytes(layer.rows * width);
  // What the block's messages count, of all layers; and what they count again, in the transposed block.
  const bool weighs = spec.weighs_messages();
  const uint64_t weights = weighs && layer.first ? VectorBytes(layer.sources + layer.edges + layer.rows) : 0;
  if (layer.first) {
    return weights + std::min(input, std::max(kKeptInputBytes, GrownBytes(kTileRowsMin * width)));
  }
  const bool is_max = spec.model == GnnKind::kSage && spec.aggregator == Aggregator::kMax;
  // The transposed block: an offset of each source, the destination of each edge, a weight of each row.
  return input + VectorBytes(layer.sources + (weighs ? 2 : 1) * layer.edges + layer.rows) +
         (is_max ? VectorBytes(layer.rows * layer.in) : 0);
}

uint64_t AttentionBytes(const ModelSpec& spec, const LayerBounds& layer) {
  const uint64_t heads = spec.heads, members = layer.edges + layer.rows;
  const uint64_t tile = std::min(layer.sources, uint64_t{TileRows(layer.in)});
  return GrownBytes(tile * layer.in) + GrownBytes(layer.sources * HeadsWidth(spec, layer)) +
         2 * GrownBytes(layer.rows * heads) + GrownBytes(layer.sources * heads) +
         2 * GrownBytes(members * heads) + VectorBytes(layer.sources + 2 * layer.edges + layer.rows);
}

RelationHeads HeadsOf(const ModelSpec& spec, const LayerBounds& layer) {
  return {.bases = spec.bases,
          .heads = spec.heads,
          .head_dim = layer.last ? layer.out : layer.out / spec.heads,
          .averages = layer.last};
}

// As RgatLayer::Resize has it, with the transposed block and its edges, and the kinds of all edges.
uint64_t KindedAttentionBytes(const ModelSpec& spec, const LayerBounds& layer) {
  const RelationHeads heads = HeadsOf(spec, layer);
  const uint64_t members = layer.edges + layer.rows;
  const uint64_t tile = std::min(layer.sources, uint64_t{TileRows(layer.in)});
  return GrownBytes(tile * layer.in) + GrownBytes(layer.sources * heads.z_width()) +
         2 * GrownBytes(layer.rows * heads.scores()) + GrownBytes(layer.sources * heads.scores()) +
         2 * GrownBytes(members * heads.heads) +
         GrownBytes(CeilDiv(layer.sources, kRgatPieceSources) * 2 * heads.width()) +
         GrownBytes(CeilDiv(layer.rows, kKindPieceRows) * (uint64_t{layer.kinds} + 1) * heads.bases) +
         VectorBytes(layer.sources + 2 * layer.edges + layer.rows) +
         (layer.first ? VectorBytes(layer.edges) : 0);
}

// What is gathered, gradients of coefficients by piece, the transposed block with its edges, and the kinds of all edges,
// which are as many as those of the first layer.
uint64_t RelationBytes(const ModelSpec& spec, const LayerBounds& layer) {
  const uint64_t pieces = CeilDiv(layer.rows, kKindPieceRows);
  return GrownBytes(layer.rows * GatheredWidth(spec, layer)) + GrownBytes(pieces * layer.kinds * spec.bases) +
         VectorBytes(layer.sources + 2 * layer.edges + layer.rows) +
         (layer.first ? VectorBytes(layer.edges) : 0);
}

}  // namespace

uint64_t LayerParameters(const ModelSpec& spec, const LayerBounds& layer) {
  if (spec.model == GnnKind::kGat) return (layer.in + 2) * HeadsWidth(spec, layer) + layer.out;
  if (spec.model == GnnKind::kRgcn) {
    return (GatheredWidth(spec, layer) + 1) * layer.out + uint64_t{layer.kinds} * spec.bases;
  }
  if (spec.model == GnnKind::kRgat) {
    const RelationHeads heads = HeadsOf(spec, layer);
    return uint64_t{layer.in} * heads.z_width() + 2 * uint64_t{heads.width()} +
           (uint64_t{layer.kinds} + 1) * heads.bases + layer.out;
  }
  const uint64_t gathered = (GatheredWidth(spec, layer) + 1) * layer.out;
  return spec.model == GnnKind::kGin ? gathered + (uint64_t{layer.out} + 1) * layer.out : gathered;
}

uint32_t LayerParameterCount(const ModelSpec& spec) {
  if (spec.model == GnnKind::kRgat) return 5;
  if (spec.model == GnnKind::kRgcn) return 3;
  return spec.model == GnnKind::kGat || spec.model == GnnKind::kGin ? 4 : 2;
}

uint64_t LayerActivationBytes(const ModelSpec& spec, const LayerBounds& layer) {
  switch (spec.model) {
    case GnnKind::kGat:
      return AttentionBytes(spec, layer);
    case GnnKind::kGin:
      return GatheredBytes(spec, layer) + 2 * GrownBytes(layer.rows * layer.out);
    case GnnKind::kRgcn:
      return RelationBytes(spec, layer);
    case GnnKind::kRgat:
      return KindedAttentionBytes(spec, layer);
    case GnnKind::kSage:
    case GnnKind::kGcn:
      break;
  }
  return GatheredBytes(spec, layer);
}

GraphForm GraphFormOf(const ModelSpec& spec, const LayerBounds& layer, GraphOrder order) {
  if (spec.model == GnnKind::kGat) {
    const AttentionForm form{spec.heads, layer.last ? layer.out : layer.out / spec.heads, layer.last};
    return {.state = form.state(), .message = form.message(), .own_first = true};
  }
  if (spec.model == GnnKind::kRgat) {
    const RelationHeads heads = HeadsOf(spec, layer);
    return {.state = heads.graph_state(), .message = heads.graph_message(), .own_first = true};
  }
  if (spec.model == GnnKind::kRgcn) {
    return {.state = static_cast<uint32_t>(GatheredWidth(spec, layer)), .message = layer.in, .raw = true};
  }
  const bool is_max = spec.model == GnnKind::kSage && spec.aggregator == Aggregator::kMax;
  const auto width = static_cast<uint32_t>(GatheredWidth(spec, layer));
  if (order == GraphOrder::kLeastState && !is_max && layer.out < width) {
    return {.state = layer.out, .message = layer.out};
  }
  return {.state = width, .message = layer.in, .raw = true};
}

// All nodes may be of the type with the widest tiles.
uint64_t InputBytes(std::span<const InputType> types, uint32_t width, uint64_t nodes) {
  uint64_t tile_floats = 0, product_floats = 0;
  for (const InputType& type : types) {
    const uint64_t rows = std::min<uint64_t>(nodes, TileRows(std::max({type.dim, width, 1U})));
    tile_floats = std::max(tile_floats, rows * type.dim);
    product_floats = std::max(product_floats, rows * width);
  }
  return GrownBytes(nodes * width) + GrownBytes(tile_floats) + GrownBytes(product_floats) +
         2 * VectorBytes(nodes);
}

uint64_t InputParameters(std::span<const InputType> types, uint32_t width) {
  uint64_t floats = 0;
  for (const InputType& type : types) floats += (uint64_t{type.dim} + 1) * width;
  return floats;
}

uint64_t GrownBytes(uint64_t floats) {
  const uint64_t bytes = floats * sizeof(float);
  return RoundUp(bytes + bytes / 8, 2 * kMiB);
}

}  // namespace quarry
