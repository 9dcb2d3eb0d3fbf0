#include "quarry/service/batch_copier.h"

#include <algorithm>

#include "quarry/base/trace.h"
#include "quarry/cache/gather.h"

namespace quarry {

wire::BatchShape WireShapeOf(const BatchView& batch) {
  wire::BatchShape shape = {.index = batch.index,
                            .hops = batch.hops(),
                            .seeds = batch.seed_count,
                            .targets = batch.target_count(),
                            .nodes = static_cast<uint32_t>(batch.nodes.size()),
                            .edges = batch.indices.size(),
                            .labels = !batch.labels.empty(),
                            .edge_ids = !batch.edge_ids.empty()};
  const FeatureView& features = batch.features;
  if (features.dim == 0) return shape;
  shape.element_type = features.element_type;
  shape.dim = features.dim;
  shape.rows = batch.nodes.size();
  shape.stride_bytes = RowStride(features.element_type, features.dim);
  return shape;
}

Status CopyBatch(const BatchView& batch, std::span<std::byte> range, unsigned threads) {
  const ScopedSpan span("copy", batch.index);
  const wire::BatchShape shape = WireShapeOf(batch);
  QUARRY_TRY(const wire::BatchWriter out, wire::WriteBatchHeader(shape, range));
  std::ranges::copy(batch.hop_offsets, out.hop_offsets.begin());
  std::ranges::copy(batch.indptr, out.indptr.begin());
  std::ranges::copy(batch.indices, out.indices.begin());
  std::ranges::copy(batch.nodes, out.nodes.begin());
  std::ranges::copy(batch.labels, out.labels.begin());
  std::ranges::copy(batch.edge_ids, out.edge_ids.begin());
  if (shape.dim == 0) return Status::Ok();
  // Roads keep rows aligned for kernels too, so what fills a row up can be copied with it.
  const RowTable table{batch.features.rows.data(), batch.features.stride_bytes, shape.stride_bytes};
  GatherRows(table, batch.features.slots, out.rows, threads);
  return Status::Ok();
}

}  // namespace quarry
