#include "batch_copier.h"

#include <algorithm>

#include "quarry/base/trace.h"
#include "quarry/base/units.h"
#include "quarry/cache/gather.h"

namespace quarry {

wire::BatchShape WireShapeOf(const Batch& batch) {
  const Block& block = batch.block();
  const FeatureView& features = batch.features();
  return {.index = batch.index(),
          .hops = block.hops(),
          .seeds = block.seed_count(),
          .targets = static_cast<uint32_t>(block.indptr.size() - 1),
          .nodes = static_cast<uint32_t>(block.nodes.size()),
          .edges = block.indices.size(),
          .labels = true,
          .element_type = features.element_type,
          .dim = features.dim,
          .rows = block.nodes.size(),
          .stride_bytes = RoundUp(RowBytes(features.element_type, features.dim), sizeof(float))};
}

Status CopyBatch(const Batch& batch, const wire::BatchShape& shape, std::span<std::byte> range,
                 unsigned threads) {
  const ScopedSpan span("copy", shape.index);
  QUARRY_TRY(const wire::BatchWriter out, wire::WriteBatchHeader(shape, range));
  const Block& block = batch.block();
  std::ranges::copy(block.hop_offsets, out.hop_offsets.begin());
  std::ranges::copy(block.indptr, out.indptr.begin());
  std::ranges::copy(block.indices, out.indices.begin());
  std::ranges::copy(block.nodes, out.nodes.begin());
  std::ranges::copy(batch.labels(), out.labels.begin());
  const FeatureView& features = batch.features();
  // Roads keep rows aligned for kernels too, so what fills a row up can be copied with it.
  const RowTable table{features.base, features.stride_bytes, shape.stride_bytes};
  GatherRows(table, features.slots, out.rows, threads);
  return Status::Ok();
}

}  // namespace quarry
