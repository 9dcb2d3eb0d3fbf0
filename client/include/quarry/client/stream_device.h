// StreamDevice: where the batches of a stream go, to a GPU (Batch::on_device) or to memory.
//
// kUnsupported of a device for a server's streams, which lie in memory that it shares; where no driver is found; and of a
// Quarry that was built without kernels.
#pragma once

#include <cstdint>

namespace quarry::client {

struct StreamDevice {
  int ordinal = -1;                     // as the driver counts devices; negative: to memory
  uint64_t bytes = 0;                   // the most that is taken of its memory; 0: half of what is free
  uint64_t cache_bytes = ~uint64_t{0};  // part of these for rows that stay between batches, at most
  bool samples = false;  // the live road's batches are sampled there, whose lists lie there then
};

}  // namespace quarry::client
