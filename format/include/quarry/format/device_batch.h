// DeviceBatch: a mini-batch whose rows are on a GPU, or on their way there, and what its taker has them written to.
//
// Plain addresses, as every room passes batches on and few know devices (engine/gpu).
#pragma once

#include <cstdint>

#include "quarry/base/status.h"

namespace quarry {

// Memory of the device, the taker's own; null: not wanted. Sizes are those of the batch's view.
struct DeviceOutputs {
  void* x = nullptr;              // [nodes x dim], one row behind the other
  bool decoded = true;            // x is float32, else as rows are stored, x_stride_bytes apart
  uint64_t x_stride_bytes = 0;    // 0: rows lie behind each other
  int64_t* edge_index = nullptr;  // [2 x edges]: the neighbor, then the node it was drawn for, as local ids
  int64_t* nodes = nullptr;       // [nodes]
  int64_t* labels = nullptr;      // [seeds], where the batch has labels
  int64_t* edge_ids = nullptr;    // [edges], where it has them
};

class DeviceBatch {
 public:
  virtual ~DeviceBatch() = default;
  // Enqueues all of it on `stream` (a CUstream), behind what brings the rows, and waits for nothing: the memory is ready for
  // what is enqueued on the stream afterwards. Once a batch, in the order in which the stream gave them; any thread. kUsage
  // the second time.
  virtual Status WriteTo(const DeviceOutputs& outputs, void* stream) = 0;
};

}  // namespace quarry
