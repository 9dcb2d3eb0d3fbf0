#include "quarry/service/batch_copier.h"

#include <algorithm>
#include <cstring>

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
                            .edge_ids = !batch.edge_ids.empty(),
                            .relations = !batch.relations.empty(),
                            .node_types = static_cast<uint32_t>(batch.type_rows.size())};
  const FeatureView& features = batch.features;
  if (features.dim > 0) {
    shape.element_type = features.element_type;
    shape.dim = features.dim;
    shape.stride_bytes = RowStride(features.element_type, features.dim);
  }
  for (const TypeRows& rows : batch.type_rows) {
    if (rows.dim == 0) continue;
    shape.stride_bytes = std::max(shape.stride_bytes, RowStride(rows.element_type, rows.dim));
  }
  if (shape.stride_bytes > 0) shape.rows = batch.nodes.size();
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
  std::ranges::copy(batch.relations, out.relations.begin());
  if (!out.type_rows.empty()) {  // what lies between their fields, too
    std::memset(static_cast<void*>(out.type_rows.data()), 0, out.type_rows.size_bytes());
  }
  for (size_t type = 0; type < batch.type_rows.size(); ++type) {
    out.type_rows[type].element_type = batch.type_rows[type].element_type;
    out.type_rows[type].dim = batch.type_rows[type].dim;
  }
  if (shape.stride_bytes == 0) return Status::Ok();
  // Roads keep rows aligned for kernels too, so what fills a row up can be copied with it.
  const RowTable table{batch.features.rows.data(), batch.features.stride_bytes, shape.stride_bytes};
  GatherRows(table, batch.features.slots, out.rows, threads);
  return Status::Ok();
}

}  // namespace quarry
