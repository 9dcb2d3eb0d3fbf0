#include "kernel_image.h"

#if defined(QUARRY_KERNEL_IMAGE)
asm(R"(
  .section .rodata.quarry_kernels, "a"
  .balign 64
quarry_kernels_begin:
  .incbin ")" QUARRY_KERNEL_IMAGE R"("
quarry_kernels_end:
  .previous
)");
extern "C" const std::byte quarry_kernels_begin[], quarry_kernels_end[];
#endif

namespace quarry::gpu {

std::span<const std::byte> KernelImage() {
#if defined(QUARRY_KERNEL_IMAGE)
  return {quarry_kernels_begin, quarry_kernels_end};
#else
  return {};
#endif
}

}  // namespace quarry::gpu
