// DeviceTarget: the device that a road's batches go to, and what the road may take there.
#pragma once

#include <cstdint>

#include "quarry/gpu/device.h"

namespace quarry {

struct DeviceTarget {
  gpu::Device* device = nullptr;        // null: batches stay in memory. Outlives the road
  uint64_t bytes = 0;                   // at most: rows that stay, and batches under way
  uint64_t cache_bytes = ~uint64_t{0};  // part of these for rows that stay, at most
  // Batches are sampled there too (device_sampler.h): lists and samplers come first, and rows get what is left of the
  // bytes. The lists stay in memory as well. Not on by itself, as either machine may be the faster one.
  bool samples = false;
};

}  // namespace quarry
