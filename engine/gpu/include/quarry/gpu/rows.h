// What is done with feature rows on a device: the kernels of row_kernels.h, chosen by type and by how rows are aligned.
//
// Enqueued on `stream`; nothing waits. A view's rows and slots, and every pointer, are the device's (or mapped). Errors are
// the device's, and kUsage for rows that are not whole 16-bit words.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quarry/base/status.h"
#include "quarry/format/batch_view.h"
#include "quarry/gpu/device.h"

namespace quarry::gpu {

struct RowCopy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  const uint32_t* from_rows = nullptr;  // by i: the row that is read; null: row i
  const uint32_t* to_rows = nullptr;    // by i: the row that is written
  uint64_t rows = 0;
  uint64_t row_bytes = 0;  // up to 64 GiB
  uint64_t from_stride_bytes = 0, to_stride_bytes = 0;
};

// Rows as they are stored, to other places. REQUIRES: no row is written twice, or both read and written.
Status CopyRows(Device& device, const RowCopy& copy, StreamHandle stream);

// Rows of the view's first `nodes` nodes as float32, [nodes x dim], bit by bit as DecodeRow has them.
Status DecodeRows(Device& device, const FeatureView& view, uint64_t nodes, float* out, StreamHandle stream);

// How what a node is told becomes a row.
struct RowAggregation {
  const uint32_t* indptr = nullptr;   // [targets + 1]
  const uint32_t* indices = nullptr;  // local ids
  uint64_t targets = 0;
  bool self_apart = true;  // [self | aggregate of the neighbors], else one aggregate of both
  bool mean = true;        // else the sum
};

// What a first layer gathers, read in place, [targets x dim], x 2 dim with self apart: as the trainer's Aggregate, addition
// by addition (but that devices give every NaN the same bits).
Status AggregateRows(Device& device, const FeatureView& view, const RowAggregation& aggregation, float* out,
                     StreamHandle stream);

}  // namespace quarry::gpu
