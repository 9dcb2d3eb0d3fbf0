#include "quarry/trainer/aggregate.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

#include "kernel.h"
#include "quarry/base/random.h"

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

// `decoded` is scratch of `dim` for normalised rows, which are passed over twice.
template <ElementType kType>
QUARRY_INLINE void AddRow(const std::byte* row, uint32_t dim, RowNorm norm, float* __restrict decoded,
                          float* __restrict sum) {
  float scale = 1.0F;
  if constexpr (kType == ElementType::kInt8) std::memcpy(&scale, row + (dim + 3) / 4 * 4, sizeof(scale));
  if (norm == RowNorm::kNone) {
    for (uint32_t c = 0; c < dim; c++) sum[c] += scale * Element<kType>(row, c);
    return;
  }
  for (uint32_t c = 0; c < dim; c++) decoded[c] = scale * Element<kType>(row, c);
  const float inverse = InverseNorm(decoded, dim, norm);
  for (uint32_t c = 0; c < dim; c++) sum[c] += inverse * decoded[c];
}

template <ElementType kType, typename Offset>
QUARRY_INLINE void AggregateRange(const FeatureView& view, RowNorm norm, const Offset* indptr,
                                  const uint32_t* indices, size_t edge_count, uint32_t begin, uint32_t end,
                                  float* out) {
  const uint32_t dim = view.dim;
  const std::byte* base = view.rows.data();
  const uint32_t* slots = view.slots.empty() ? nullptr : view.slots.data();
  const auto row = [&](uint32_t i) __attribute__((always_inline)) {
    return base + (slots != nullptr ? slots[i] : i) * view.stride_bytes;
  };
  const size_t prefetch_bytes = std::min<size_t>(view.stride_bytes, kPrefetchBytesMax);
  std::vector<float> decoded(norm == RowNorm::kNone ? 0 : dim);
  for (uint32_t v = begin; v < end; v++) {
    float* self = out + size_t{v - begin} * 2 * dim;
    float* mean = self + dim;
    std::memset(self, 0, size_t{2} * dim * sizeof(float));
    AddRow<kType>(row(v), dim, norm, decoded.data(), self);
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
      AddRow<kType>(row(indices[e]), dim, norm, decoded.data(), mean);
    }
    if (last - first > 1) {
      const float inverse = 1.0F / static_cast<float>(last - first);
      for (uint32_t c = 0; c < dim; c++) mean[c] *= inverse;
    }
  }
}

#define QUARRY_AGGREGATE_KERNEL(type)                                                               \
  QUARRY_KERNEL void Aggregate##type(const FeatureView& view, RowNorm norm, const uint32_t* indptr, \
                                     const uint32_t* indices, size_t edge_count, uint32_t begin,    \
                                     uint32_t end, float* out) {                                    \
    AggregateRange<ElementType::k##type>(view, norm, indptr, indices, edge_count, begin, end, out); \
  }
QUARRY_AGGREGATE_KERNEL(Float32)
QUARRY_AGGREGATE_KERNEL(Float16)
QUARRY_AGGREGATE_KERNEL(Bfloat16)
QUARRY_AGGREGATE_KERNEL(Int8)
#undef QUARRY_AGGREGATE_KERNEL

QUARRY_KERNEL void AggregateFloat32Graph(const FeatureView& view, const uint64_t* indptr,
                                         const NodeId* indices, size_t edge_count, uint32_t begin,
                                         uint32_t end, float* out) {
  AggregateRange<ElementType::kFloat32>(view, RowNorm::kNone, indptr, indices, edge_count, begin, end, out);
}

// A 32-bit mixer with low bias (Wellons 2018): two multiplications, so eight or sixteen lanes at a time.
QUARRY_INLINE uint32_t Mix32(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  return x ^ (x >> 16);
}

QUARRY_INLINE uint32_t RowKey(const DropoutMask& mask, uint32_t row) {
  return static_cast<uint32_t>(MixSeed(mask.seed, row));
}

// Elements whose 31-bit hash is below this are dropped; 0 drops none.
uint32_t DropThreshold(const DropoutMask& mask) {
  assert(mask.probability >= 0 && mask.probability < 1);
  return static_cast<uint32_t>(std::lround(mask.probability * 0x1p31));
}

QUARRY_KERNEL void DropRange(uint32_t dim, const DropoutMask& mask, uint32_t threshold, uint32_t begin,
                             uint32_t end, float* values) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float kept = row[c] * scale;
      row[c] = static_cast<int32_t>(Mix32(key ^ c * 0x9e3779b9) >> 1) < static_cast<int32_t>(threshold)
                   ? 0.0F
                   : kept;
    }
  }
}

QUARRY_KERNEL void ActivateRange(const float* __restrict bias, uint32_t dim, const DropoutMask& mask,
                                 uint32_t threshold, uint32_t begin, uint32_t end, float* __restrict values) {
  const float scale = mask.keep_scale();
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    const uint32_t key = RowKey(mask, v);
    for (uint32_t c = 0; c < dim; c++) {
      const float z = row[c] + bias[c];
      const float active = z <= 0 ? 0.0F : z * scale;  // a NaN stays one
      row[c] = static_cast<int32_t>(Mix32(key ^ c * 0x9e3779b9) >> 1) < static_cast<int32_t>(threshold)
                   ? 0.0F
                   : active;
    }
  }
}

QUARRY_KERNEL void AddBiasRelu(const float* __restrict bias, uint32_t dim, uint32_t begin, uint32_t end,
                               float* __restrict values) {
  for (uint32_t v = begin; v < end; v++) {
    float* row = values + size_t{v - begin} * dim;
    for (uint32_t c = 0; c < dim; c++) row[c] = std::max(row[c] + bias[c], 0.0F);
  }
}

// Columns of a source's gradient that are summed at a time, in a buffer that stays in the first-level cache.
constexpr uint32_t kBackwardColumns = 256;

// What a block's edges carry back.
struct Backflow {
  const uint32_t* offsets;
  const uint32_t* destinations;
  const float* inverse_degree;
  uint32_t destination_count;
  const float* grad;  // [destinations, 2 * dim]
  uint32_t dim;
};

// Columns [first, first + columns) of source u's gradient.
QUARRY_INLINE void SumBackflow(const Backflow& flow, uint32_t u, uint32_t first, uint32_t columns,
                               float* sum) {
  const uint32_t dim = flow.dim;
  if (u < flow.destination_count) {
    std::memcpy(sum, flow.grad + size_t{u} * 2 * dim + first, columns * sizeof(float));
  } else {
    std::memset(sum, 0, columns * sizeof(float));
  }
  for (uint32_t e = flow.offsets[u]; e < flow.offsets[u + 1]; e++) {
    const float* row = flow.grad + size_t{flow.destinations[e]} * 2 * dim + dim + first;
    const float weight = flow.inverse_degree[flow.destinations[e]];
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

Backflow FlowOf(const TransposedBlock& transposed, const float* grad, uint32_t dim) {
  return {transposed.offsets.data(),
          transposed.destinations.data(),
          transposed.inverse_degree.data(),
          static_cast<uint32_t>(transposed.inverse_degree.size()),
          grad,
          dim};
}

}  // namespace

void AggregateMean(const FeatureView& view, RowNorm norm, std::span<const uint32_t> indptr,
                   std::span<const uint32_t> indices, uint32_t begin, uint32_t end, float* out) {
  assert(end < indptr.size() && indptr[end] <= indices.size());
  const size_t edge_count = indices.size();
  switch (view.element_type) {
    case ElementType::kFloat16:
      return AggregateFloat16(view, norm, indptr.data(), indices.data(), edge_count, begin, end, out);
    case ElementType::kBfloat16:
      return AggregateBfloat16(view, norm, indptr.data(), indices.data(), edge_count, begin, end, out);
    case ElementType::kInt8:
      return AggregateInt8(view, norm, indptr.data(), indices.data(), edge_count, begin, end, out);
    default:
      assert(view.element_type == ElementType::kFloat32 && "features are of a float type");
      return AggregateFloat32(view, norm, indptr.data(), indices.data(), edge_count, begin, end, out);
  }
}

void AggregateGraph(const float* rows, uint32_t dim, std::span<const uint64_t> indptr,
                    std::span<const NodeId> indices, uint32_t begin, uint32_t end, float* out) {
  assert(end < indptr.size() && indptr[end] <= indices.size());
  const FeatureView view = {.rows = std::as_bytes(std::span(rows, (indptr.size() - 1) * dim)),
                            .stride_bytes = dim * sizeof(float),
                            .dim = dim};
  AggregateFloat32Graph(view, indptr.data(), indices.data(), indices.size(), begin, end, out);
}

void Transpose(std::span<const uint32_t> indptr, std::span<const uint32_t> indices,
               uint32_t destination_count, uint32_t source_count, TransposedBlock& transposed) {
  const uint32_t edge_count = indptr[destination_count];
  std::vector<uint32_t>& offsets = transposed.offsets;
  offsets.assign(size_t{source_count} + 1, 0);
  transposed.destinations.resize(edge_count);
  transposed.inverse_degree.resize(destination_count);
  // A counting sort: offsets[u] is where u's list ends while it is filled from its end, and where it begins
  // afterwards.
  for (uint32_t e = 0; e < edge_count; e++) {
    assert(indices[e] < source_count);
    offsets[indices[e]]++;
  }
  for (uint32_t u = 1; u <= source_count; u++) offsets[u] += offsets[u - 1];
  for (uint32_t v = destination_count; v-- > 0;) {
    for (uint32_t e = indptr[v]; e < indptr[v + 1]; e++) transposed.destinations[--offsets[indices[e]]] = v;
    const uint32_t degree = indptr[v + 1] - indptr[v];
    transposed.inverse_degree[v] = degree == 0 ? 0.0F : 1.0F / static_cast<float>(degree);
  }
}

void BackwardMean(const TransposedBlock& transposed, const float* grad, uint32_t dim, float keep_scale,
                  uint32_t begin, uint32_t end, float* hidden) {
  BackwardRange(FlowOf(transposed, grad, dim), keep_scale, begin, end, hidden);
}

void BackwardMeanInput(const TransposedBlock& transposed, const float* grad, uint32_t dim,
                       std::span<const uint32_t> slots, uint32_t begin, uint32_t end, float* gradients) {
  assert(end <= slots.size());
  BackwardInputRange(FlowOf(transposed, grad, dim), slots.data(), begin, end, gradients);
}

void ActivateRows(std::span<const float> bias, const DropoutMask& mask, uint32_t begin, uint32_t end,
                  float* values) {
  const auto dim = static_cast<uint32_t>(bias.size());
  if (mask.probability == 0) return AddBiasRelu(bias.data(), dim, begin, end, values);
  ActivateRange(bias.data(), dim, mask, DropThreshold(mask), begin, end, values);
}

void DropRows(uint32_t dim, const DropoutMask& mask, uint32_t begin, uint32_t end, float* values) {
  if (mask.probability > 0) DropRange(dim, mask, DropThreshold(mask), begin, end, values);
}

}  // namespace quarry
