// KernelImage: the kernels as nvcc compiled them (kernels.cu). Private to this room.
#pragma once

#include <cstddef>
#include <span>

namespace quarry::gpu {

// Empty: nvcc was not there when this was built.
std::span<const std::byte> KernelImage();

}  // namespace quarry::gpu
