#include "quarry/gpu/rows.h"

#include <cassert>

#include "quarry/gpu/row_kernels.h"

namespace quarry::gpu {
namespace {

uint64_t Bits(const void* address) { return reinterpret_cast<uintptr_t>(address); }

template <typename Word>
Status CopyBy(Device& device, const RowCopy& copy, StreamHandle stream) {
  const CopyRowsBy<Word> kernel = {copy.from,
                                   copy.to,
                                   copy.from_rows,
                                   copy.to_rows,
                                   copy.rows,
                                   copy.from_stride_bytes,
                                   copy.to_stride_bytes,
                                   Divisor(static_cast<uint32_t>(copy.row_bytes / sizeof(Word)))};
  return Run(device, kernel, stream);
}

// Whether rows of the view can be read, and rows of `out` written, so many elements at a time.
bool Aligned(const FeatureView& view, const float* out, unsigned width) {
  const uint64_t piece = ElementBytes(view.element_type) * width;
  return view.dim % width == 0 && (Bits(view.rows.data()) | view.stride_bytes) % piece == 0 &&
         Bits(out) % (width * sizeof(float)) == 0;
}

const uint32_t* Slots(const FeatureView& view) { return view.slots.empty() ? nullptr : view.slots.data(); }

template <typename Code>
Status Decode(Device& device, const FeatureView& view, uint64_t nodes, float* out, StreamHandle stream) {
  const auto run = [&](auto kernel, unsigned width) {
    kernel = {view.rows.data(),         out, Slots(view), nodes, view.stride_bytes, view.dim,
              Divisor(view.dim / width)};
    return Run(device, kernel, stream);
  };
  if (Aligned(view, out, 4)) return run(DecodeRowsBy<Code, 4>{}, 4);
  return run(DecodeRowsBy<Code, 1>{}, 1);
}

template <typename Code>
Status Aggregate(Device& device, const FeatureView& view, const RowAggregation& aggregation, float* out,
                 StreamHandle stream) {
  const auto run = [&](auto kernel, unsigned width) {
    kernel.from = view.rows.data();
    kernel.from_rows = Slots(view);
    kernel.indptr = aggregation.indptr;
    kernel.indices = aggregation.indices;
    kernel.to = out;
    kernel.targets = aggregation.targets;
    kernel.stride_bytes = view.stride_bytes;
    kernel.dim = view.dim;
    kernel.self_apart = aggregation.self_apart;
    kernel.mean = aggregation.mean;
    kernel.pieces = Divisor(view.dim / width);
    return Run(device, kernel, stream);
  };
  if (Aligned(view, out, 4)) return run(AggregateRowsBy<Code, 4>{}, 4);
  return run(AggregateRowsBy<Code, 1>{}, 1);
}

}  // namespace

Status CopyRows(Device& device, const RowCopy& copy, StreamHandle stream) {
  if (copy.rows == 0 || copy.row_bytes == 0) return Status::Ok();
  const uint64_t all =
      Bits(copy.from) | Bits(copy.to) | copy.row_bytes | copy.from_stride_bytes | copy.to_stride_bytes;
  if (all % sizeof(Chunk) == 0) return CopyBy<Chunk>(device, copy, stream);
  if (all % sizeof(uint32_t) == 0) return CopyBy<uint32_t>(device, copy, stream);
  if (all % sizeof(uint16_t) == 0) return CopyBy<uint16_t>(device, copy, stream);
  return MakeStatus(
      Code::kUsage,
      "rows of {} bytes, {} bytes apart, to rows {} bytes apart: a device copies whole 16-bit words",
      copy.row_bytes, copy.from_stride_bytes, copy.to_stride_bytes);
}

Status DecodeRows(Device& device, const FeatureView& view, uint64_t nodes, float* out, StreamHandle stream) {
  if (view.dim == 0) return Status::Ok();
  switch (view.element_type) {
    case ElementType::kFloat16:
      return Decode<Float16Code>(device, view, nodes, out, stream);
    case ElementType::kBfloat16:
      return Decode<Bfloat16Code>(device, view, nodes, out, stream);
    case ElementType::kInt8:
      return Decode<Int8Code>(device, view, nodes, out, stream);
    default:
      assert(view.element_type == ElementType::kFloat32 && "features are of a float type");
      const uint64_t row_bytes = view.dim * sizeof(float);
      return CopyRows(device,
                      {.from = view.rows.data(),
                       .to = reinterpret_cast<std::byte*>(out),
                       .from_rows = Slots(view),
                       .rows = nodes,
                       .row_bytes = row_bytes,
                       .from_stride_bytes = view.stride_bytes,
                       .to_stride_bytes = row_bytes},
                      stream);
  }
}

Status AggregateRows(Device& device, const FeatureView& view, const RowAggregation& aggregation, float* out,
                     StreamHandle stream) {
  if (view.dim == 0) return Status::Ok();
  switch (view.element_type) {
    case ElementType::kFloat16:
      return Aggregate<Float16Code>(device, view, aggregation, out, stream);
    case ElementType::kBfloat16:
      return Aggregate<Bfloat16Code>(device, view, aggregation, out, stream);
    case ElementType::kInt8:
      return Aggregate<Int8Code>(device, view, aggregation, out, stream);
    default:
      assert(view.element_type == ElementType::kFloat32 && "features are of a float type");
      return Aggregate<Float32Code>(device, view, aggregation, out, stream);
  }
}

}  // namespace quarry::gpu
