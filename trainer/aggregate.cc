#include "quarry/trainer/aggregate.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "resize_void.h"

namespace quarry {
namespace {

constexpr size_t kLineBytes = 64;
// Rows whose lines are asked for before they are needed: enough to cover a DRAM access (measured 4, 8, 12,
// 16: flat from 8 on for 512-byte rows). Only the first lines of wide rows: the hardware's stream prefetcher
// follows.
constexpr size_t kPrefetchRows = 8;
constexpr size_t kPrefetchBytesMax = 1024;

// Decodes element c of a row, exactly. binary16 becomes binary32 by moving the fields and rebiasing the
// exponent, twice for infinities and NaNs, whose exponent is all ones. A subnormal m * 2^-24 is first made
// 2^-14 + m * 2^-24, a normal number whose leading one is then subtracted. Masks instead of branches, or GCC
// 12 leaves the loop scalar (12 times slower); and no multiplication by 2^112 instead, shorter but slow where
// rows hold subnormals.
template <ElementType kType>
QUARRY_INLINE float Element(const std::byte* row, uint32_t c);
template <>
QUARRY_INLINE float Element<ElementType::kFloat32>(const std::byte* row, uint32_t c) {
  return reinterpret_cast<const float*>(row)[c];
}
template <>
QUARRY_INLINE float Element<ElementType::kBfloat16>(const std::byte* row, uint32_t c) {
  return std::bit_cast<float>(uint32_t{reinterpret_cast<const uint16_t*>(row)[c]} << 16);
}
template <>
QUARRY_INLINE float Element<ElementType::kFloat16>(const std::byte* row, uint32_t c) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  const uint32_t half = reinterpret_cast<const uint16_t*>(row)[c];
  const uint32_t exponent = half & 0x7c00;
  const uint32_t if_subnormal = exponent == 0 ? 0xffffffff : 0;
  const uint32_t if_special = exponent == 0x7c00 ? 0xffffffff : 0;
  const uint32_t rebased =
      ((half & 0x7fff) << 13) + kRebias + (if_special & kRebias) + (if_subnormal & uint32_t{1} << 23);
  const float magnitude =
      std::bit_cast<float>(rebased) - std::bit_cast<float>(if_subnormal & std::bit_cast<uint32_t>(0x1p-14F));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (half & 0x8000) << 16);
}
template <>
QUARRY_INLINE float Element<ElementType::kInt8>(const std::byte* row, uint32_t c) {
  return static_cast<float>(reinterpret_cast<const int8_t*>(row)[c]);
}

// 1 / norm of a decoded row; 0 for a row of zeros. Sixteen partial sums make one vector's lanes.
QUARRY_INLINE float InverseNorm(const float* row, uint32_t dim, RowNorm norm) {
  float partial[16] = {};
  const uint32_t whole = dim / 16 * 16;
  if (norm == RowNorm::kL2) {
    for (uint32_t c = 0; c < whole; c += 16) {
      for (uint32_t k = 0; k < 16; k++) partial[k] += row[c + k] * row[c + k];
    }
    for (uint32_t c = whole; c < dim; c++) partial[0] += row[c] * row[c];
  } else {
    for (uint32_t c = 0; c < whole; c += 16) {
      for (uint32_t k = 0; k < 16; k++) partial[k] += std::fabs(row[c + k]);
    }
    for (uint32_t c = whole; c < dim; c++) partial[0] += std::fabs(row[c]);
  }
  float sum = 0;
  for (const float p : partial) sum += p;
  if (norm == RowNorm::kL2) sum = std::sqrt(sum);
  return sum > 0 ? 1.0F / sum : 0.0F;
}

// `decoded` is scratch of `dim` for normalised rows, which are passed over twice. `weight` is of the row in the sum.
template <ElementType kType>
QUARRY_INLINE void AddRow(const std::byte* row, uint32_t dim, RowNorm norm, float* __restrict decoded,
                          float* __restrict sum, float weight = 1.0F) {
  float scale = 1.0F;
  if constexpr (kType == ElementType::kInt8) std::memcpy(&scale, row + (dim + 3) / 4 * 4, sizeof(scale));
  if (norm == RowNorm::kNone) {
    scale *= weight;
    for (uint32_t c = 0; c < dim; c++) sum[c] += scale * Element<kType>(row, c);
    return;
  }
  for (uint32_t c = 0; c < dim; c++) decoded[c] = scale * Element<kType>(row, c);
  const float inverse = InverseNorm(decoded, dim, norm) * weight;
  for (uint32_t c = 0; c < dim; c++) sum[c] += inverse * decoded[c];
}

// Keeps the larger elements, and from which source they are, where `source_of` is not null. Without branches, so that it
// is vectorized; an element that is no number replaces none.
QUARRY_INLINE void KeepLarger(const float* __restrict row, uint32_t dim, uint32_t source,
                              float* __restrict largest, uint32_t* __restrict source_of) {
  if (source_of == nullptr) {
    for (uint32_t c = 0; c < dim; c++) largest[c] = row[c] > largest[c] ? row[c] : largest[c];
    return;
  }
  for (uint32_t c = 0; c < dim; c++) {
    const bool larger = row[c] > largest[c];
    largest[c] = larger ? row[c] : largest[c];
    source_of[c] = larger ? source : source_of[c];
  }
}

template <ElementType kType>
QUARRY_INLINE void DecodeRange(const FeatureView& view, RowNorm norm, uint32_t begin, uint32_t end,
                               float* out) {
  std::vector<float> decoded(norm == RowNorm::kNone ? 0 : view.dim);
  for (uint32_t v = begin; v < end; v++) {
    float* row = out + size_t{v - begin} * view.dim;
    std::memset(row, 0, view.dim * sizeof(float));
    AddRow<kType>(view.Row(v), view.dim, norm, decoded.data(), row);
  }
}

// As AggregateRange for the largest elements. `source_of` is null, or points at the row of node `begin`.
template <ElementType kType>
QUARRY_INLINE void LargestRange(const FeatureView& view, RowNorm norm, const uint32_t* indptr,
                                const uint32_t* indices, uint32_t begin, uint32_t end, float* out,
                                uint32_t* source_of) {
  const uint32_t dim = view.dim;
  std::vector<float> scratch(norm == RowNorm::kNone ? 0 : dim), row(dim);
  const auto decode = [&](uint32_t u, float* to) __attribute__((always_inline)) {
    std::memset(to, 0, dim * sizeof(float));
    AddRow<kType>(view.Row(u), dim, norm, scratch.data(), to);
  };
  for (uint32_t v = begin; v < end; v++) {
    float* self = out + size_t{v - begin} * 2 * dim;
    float* largest = self + dim;
    uint32_t* sources = source_of == nullptr ? nullptr : source_of + size_t{v - begin} * dim;
    decode(v, self);
    const uint32_t first = indptr[v], last = indptr[v + 1];
    if (first == last) std::memset(largest, 0, dim * sizeof(float));
    if (first < last) decode(indices[first], largest);
    if (sources != nullptr) std::fill_n(sources, dim, first < last ? indices[first] : kNoSource);
    for (uint32_t e = first + 1; e < last; e++) {
      decode(indices[e], row.data());
      KeepLarger(row.data(), dim, indices[e], largest, sources);
    }
  }
}

// Sums and means. The node itself is apart, or one of its neighbors. Weighted sums are a body of their own, so that the
// others multiply by nothing.
template <ElementType kType, bool kWeighted, typename Offset>
QUARRY_INLINE void AggregateRange(const FeatureView& view, RowNorm norm, Gathering gathering,
                                  const Offset* indptr, const uint32_t* indices, size_t edge_count,
                                  uint32_t begin, uint32_t end, float* out,
                                  const MessageWeights& weights = {}) {
  const uint32_t dim = view.dim;
  const uint32_t width = gathering.width(dim);
  const std::byte* base = view.rows.data();
  const uint32_t* slots = view.slots.empty() ? nullptr : view.slots.data();
  const auto row = [&](uint32_t i) __attribute__((always_inline)) {
    return base + (slots != nullptr ? slots[i] : i) * view.stride_bytes;
  };
  const size_t prefetch_bytes = std::min<size_t>(view.stride_bytes, kPrefetchBytesMax);
  std::vector<float> decoded(norm == RowNorm::kNone ? 0 : dim);
  for (uint32_t v = begin; v < end; v++) {
    float* self = out + size_t{v - begin} * width;
    float* sum = gathering.self_apart ? self + dim : self;
    std::memset(self, 0, size_t{width} * sizeof(float));
    const float self_weight = kWeighted && weights.selves != nullptr ? weights.selves[v] : 1.0F;
    AddRow<kType>(row(v), dim, norm, decoded.data(), self, kWeighted ? self_weight : 1.0F);
    const Offset first = indptr[v];
    const Offset last = indptr[v + 1];
    for (Offset e = first; e < last; e++) {
      // The address of a row ahead needs its slot, itself a random read: that is asked for twice as far
      // ahead.
      const size_t ahead = std::min<size_t>(size_t{e} + kPrefetchRows, edge_count - 1);
      const size_t far_ahead = std::min<size_t>(size_t{e} + 2 * kPrefetchRows, edge_count - 1);
      if (slots != nullptr) __builtin_prefetch(slots + indices[far_ahead]);
      const std::byte* next = row(indices[ahead]);
      for (size_t line = 0; line < prefetch_bytes; line += kLineBytes) __builtin_prefetch(next + line);
      AddRow<kType>(row(indices[e]), dim, norm, decoded.data(), sum, kWeighted ? weights.edges[e] : 1.0F);
    }
    const Offset count = last - first + (gathering.self_apart ? 0 : 1);
    if (gathering.aggregator == Aggregator::kMean && count > 1) {
      const float inverse = 1.0F / static_cast<float>(count);
      for (uint32_t c = 0; c < dim; c++) sum[c] *= inverse;
    }
  }
}

#define QUARRY_AGGREGATE_KERNEL(type)                                                                      \
  QUARRY_KERNEL void Aggregate##type(const FeatureView& view, RowNorm norm, Gathering gathering,           \
                                     const uint32_t* indptr, const uint32_t* indices, size_t edge_count,   \
                                     uint32_t begin, uint32_t end, float* out) {                           \
    AggregateRange<ElementType::k##type, false>(view, norm, gathering, indptr, indices, edge_count, begin, \
                                                end, out);                                                 \
  }                                                                                                        \
  QUARRY_KERNEL void Weighted##type(const FeatureView& view, RowNorm norm, Gathering gathering,            \
                                    const uint32_t* indptr, const uint32_t* indices, size_t edge_count,    \
                                    uint32_t begin, uint32_t end, float* out,                              \
                                    const MessageWeights& weights) {                                       \
    AggregateRange<ElementType::k##type, true>(view, norm, gathering, indptr, indices, edge_count, begin,  \
                                               end, out, weights);                                         \
  }                                                                                                        \
  QUARRY_KERNEL void Largest##type(const FeatureView& view, RowNorm norm, const uint32_t* indptr,          \
                                   const uint32_t* indices, uint32_t begin, uint32_t end, float* out,      \
                                   uint32_t* source_of) {                                                  \
    LargestRange<ElementType::k##type>(view, norm, indptr, indices, begin, end, out, source_of);           \
  }                                                                                                        \
  QUARRY_KERNEL void Decode##type(const FeatureView& view, RowNorm norm, uint32_t begin, uint32_t end,     \
                                  float* out) {                                                            \
    DecodeRange<ElementType::k##type>(view, norm, begin, end, out);                                        \
  }
QUARRY_AGGREGATE_KERNEL(Float32)
QUARRY_AGGREGATE_KERNEL(Float16)
QUARRY_AGGREGATE_KERNEL(Bfloat16)
QUARRY_AGGREGATE_KERNEL(Int8)
#undef QUARRY_AGGREGATE_KERNEL

struct TypeKernels {
  decltype(&AggregateFloat32) aggregate;
  decltype(&WeightedFloat32) weighted;
  decltype(&LargestFloat32) largest;
  decltype(&DecodeFloat32) decode;
};

TypeKernels KernelsOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat16:
      return {AggregateFloat16, WeightedFloat16, LargestFloat16, DecodeFloat16};
    case ElementType::kBfloat16:
      return {AggregateBfloat16, WeightedBfloat16, LargestBfloat16, DecodeBfloat16};
    case ElementType::kInt8:
      return {AggregateInt8, WeightedInt8, LargestInt8, DecodeInt8};
    default:
      assert(type == ElementType::kFloat32 && "features are of a float type");
      return {AggregateFloat32, WeightedFloat32, LargestFloat32, DecodeFloat32};
  }
}

// Columns of a source's gradient that are summed at a time, in a buffer that stays in the first-level cache.
constexpr uint32_t kBackwardColumns = 256;

// What a block's edges carry back.
struct Backflow {
  const uint32_t* offsets;
  const uint32_t* destinations;
  const float* weights;
  const float* edge_weights;  // null: weights tells
  uint32_t destination_count;
  bool self_apart;
  const float* grad;  // [destinations, width]
  uint32_t dim, width;
  const uint32_t* source_of;  // [destinations, dim], of the largest; null: sums
};

// Columns [first, first + columns) of source u's gradient.
QUARRY_INLINE void SumBackflow(const Backflow& flow, uint32_t u, uint32_t first, uint32_t columns,
                               float* sum) {
  const uint32_t dim = flow.dim;
  const uint32_t neighbors = flow.self_apart ? dim : 0;  // where their part of a row begins
  if (u >= flow.destination_count) {
    std::memset(sum, 0, columns * sizeof(float));
  } else if (flow.self_apart) {
    std::memcpy(sum, flow.grad + size_t{u} * flow.width + first, columns * sizeof(float));
  } else {
    const float* row = flow.grad + size_t{u} * flow.width + first;
    const float weight = flow.weights[u];
    for (uint32_t c = 0; c < columns; c++) sum[c] = weight * row[c];
  }
  for (uint32_t e = flow.offsets[u]; e < flow.offsets[u + 1]; e++) {
    const uint32_t v = flow.destinations[e];
    const float* row = flow.grad + size_t{v} * flow.width + neighbors + first;
    if (flow.source_of != nullptr) {
      if (e > flow.offsets[u] && flow.destinations[e - 1] == v) continue;  // a parallel edge tells the same
      const uint32_t* sources = flow.source_of + size_t{v} * dim + first;
      for (uint32_t c = 0; c < columns; c++) sum[c] += sources[c] == u ? row[c] : 0.0F;
      continue;
    }
    const float weight = flow.edge_weights != nullptr ? flow.edge_weights[e] : flow.weights[v];
    for (uint32_t c = 0; c < columns; c++) sum[c] += weight * row[c];
  }
}

QUARRY_KERNEL void BackwardRange(const Backflow& flow, float keep_scale, uint32_t begin, uint32_t end,
                                 float* hidden) {
  float sum[kBackwardColumns];
  for (uint32_t u = begin; u < end; u++) {
    for (uint32_t first = 0; first < flow.dim; first += kBackwardColumns) {
      const uint32_t columns = std::min(kBackwardColumns, flow.dim - first);
      SumBackflow(flow, u, first, columns, sum);
      float* out = hidden + size_t{u - begin} * flow.dim + first;
      for (uint32_t c = 0; c < columns; c++) out[c] = out[c] > 0 ? sum[c] * keep_scale : 0.0F;
    }
  }
}

QUARRY_KERNEL void BackwardInputRange(const Backflow& flow, const uint32_t* slots, uint32_t begin,
                                      uint32_t end, float* gradients) {
  float sum[kBackwardColumns];
  for (uint32_t u = begin; u < end; u++) {
    for (uint32_t first = 0; first < flow.dim; first += kBackwardColumns) {
      const uint32_t columns = std::min(kBackwardColumns, flow.dim - first);
      SumBackflow(flow, u, first, columns, sum);
      std::memcpy(gradients + size_t{slots[u]} * flow.dim + first, sum, columns * sizeof(float));
    }
  }
}

Backflow FlowOf(const TransposedBlock& transposed, const float* grad, uint32_t dim,
                const uint32_t* source_of) {
  return {.offsets = transposed.offsets.data(),
          .destinations = transposed.destinations.data(),
          .weights = transposed.weights.data(),
          .edge_weights = transposed.edge_weights.empty() ? nullptr : transposed.edge_weights.data(),
          .destination_count = static_cast<uint32_t>(transposed.weights.size()),
          .self_apart = transposed.gathering.self_apart,
          .grad = grad,
          .dim = dim,
          .width = transposed.gathering.width(dim),
          .source_of = source_of};
}

}  // namespace

void Aggregate(Gathering gathering, const FeatureView& view, RowNorm norm, std::span<const uint32_t> indptr,
               std::span<const uint32_t> indices, uint32_t begin, uint32_t end, float* out,
               uint32_t* source_of, const MessageWeights& weights) {
  assert(end < indptr.size() && indptr[end] <= indices.size());
  const TypeKernels kernels = KernelsOf(view.element_type);
  if (gathering.aggregator == Aggregator::kMax) {
    assert(gathering.self_apart);
    return kernels.largest(view, norm, indptr.data(), indices.data(), begin, end, out, source_of);
  }
  if (weights.edges != nullptr) {
    assert(gathering.aggregator == Aggregator::kSum);
    return kernels.weighted(view, norm, gathering, indptr.data(), indices.data(), indices.size(), begin, end,
                            out, weights);
  }
  kernels.aggregate(view, norm, gathering, indptr.data(), indices.data(), indices.size(), begin, end, out);
}

void DecodeRows(const FeatureView& view, RowNorm norm, uint32_t begin, uint32_t end, float* out) {
  KernelsOf(view.element_type).decode(view, norm, begin, end, out);
}

void Transpose(Gathering gathering, std::span<const uint32_t> indptr, std::span<const uint32_t> indices,
               uint32_t destination_count, uint32_t source_count, TransposedBlock& transposed,
               bool with_edges, const MessageWeights& weights) {
  const uint32_t edge_count = indptr[destination_count];
  std::vector<uint32_t>& offsets = transposed.offsets;
  ResizeVoid(offsets, size_t{source_count} + 1);
  std::ranges::fill(offsets, 0);
  transposed.gathering = gathering;
  ResizeVoid(transposed.destinations, edge_count);
  ResizeVoid(transposed.edges, with_edges ? edge_count : 0);
  ResizeVoid(transposed.weights, destination_count);
  ResizeVoid(transposed.edge_weights, weights.edges != nullptr ? edge_count : 0);
  // A counting sort: offsets[u] is where u's list ends while it is filled from its end, and where it begins
  // afterwards.
  for (uint32_t e = 0; e < edge_count; e++) {
    assert(indices[e] < source_count);
    offsets[indices[e]]++;
  }
  for (uint32_t u = 1; u <= source_count; u++) offsets[u] += offsets[u - 1];
  for (uint32_t v = destination_count; v-- > 0;) {
    for (uint32_t e = indptr[v]; e < indptr[v + 1]; e++) {
      const uint32_t at = --offsets[indices[e]];
      transposed.destinations[at] = v;
      if (with_edges) transposed.edges[at] = e;
      if (weights.edges != nullptr) transposed.edge_weights[at] = weights.edges[e];
    }
    if (weights.selves != nullptr) {
      transposed.weights[v] = weights.selves[v];
      continue;
    }
    const uint32_t count = indptr[v + 1] - indptr[v] + (gathering.self_apart ? 0 : 1);
    const bool is_mean = gathering.aggregator == Aggregator::kMean;
    transposed.weights[v] = !is_mean ? 1.0F : count == 0 ? 0.0F : 1.0F / static_cast<float>(count);
  }
}

void BackwardGather(const TransposedBlock& transposed, const float* grad, uint32_t dim, float keep_scale,
                    uint32_t begin, uint32_t end, float* hidden, const uint32_t* source_of) {
  BackwardRange(FlowOf(transposed, grad, dim, source_of), keep_scale, begin, end, hidden);
}

void BackwardGatherInput(const TransposedBlock& transposed, const float* grad, uint32_t dim,
                         std::span<const uint32_t> slots, uint32_t begin, uint32_t end, float* gradients,
                         const uint32_t* source_of) {
  assert(end <= slots.size());
  BackwardInputRange(FlowOf(transposed, grad, dim, source_of), slots.data(), begin, end, gradients);
}

}  // namespace quarry
