// A batch of a road, copied to shared memory in wire form (wire_batch.h): the rows dense, in the order of the
// nodes, since a client does not see the memory that they lie in, and what it reads must stay while the road
// goes on. Most rows of a planned batch are in the road's cache; handing that out would take a client's word
// that it is done with a row before another one takes the slot. Allocates nothing but the threads that
// gather. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "quarry/base/status.h"
#include "quarry/format/wire_batch.h"
#include "quarry/pipeline/batch_stream.h"

namespace quarry {

wire::BatchShape WireShapeOf(const Batch& batch);

// `shape`: the batch's. kInvalidArgument when the range is smaller than BatchBytes(shape), or the shape is
// none. REQUIRES: the range is aligned to wire::kBatchAlignment.
Status CopyBatch(const Batch& batch, const wire::BatchShape& shape, std::span<std::byte> range,
                 unsigned threads);

}  // namespace quarry
