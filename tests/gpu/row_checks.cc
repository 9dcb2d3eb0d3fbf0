// Kernels over rows against the processor.
#include <cstdint>
#include <vector>

#include "gpu/device_checks.h"
#include "quarry/gpu/row_kernels.h"

namespace quarry::testing_util {
namespace {

QUARRY_DEVICE_CHECK(GatherRowsLikeTheProcessor) {
  Rng random = context.random();
  for (const uint32_t row_bytes : {16U, 64U, 400U, 512U, 3072U}) {
    const uint64_t stride_bytes = row_bytes + 16, slot_count = context.size;
    std::vector<std::byte> rows(slot_count * stride_bytes);
    for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
    std::vector<uint32_t> slots(context.size * 2);
    for (uint32_t& slot : slots) slot = static_cast<uint32_t>(random.Below(slot_count));
    Twins twins(context);
    QUARRY_TRY(const auto arena, twins.Add(rows));
    QUARRY_TRY(const auto chosen, twins.Add(slots));
    QUARRY_TRY(const auto out, twins.Add(std::vector<std::byte>(slots.size() * row_bytes)));
    QUARRY_RETURN_IF_ERROR(twins.RunBoth([&](const auto& at) {
      return gpu::GatherRows{.arena = at(arena),
                             .slots = at(chosen),
                             .out = at(out),
                             .rows = slots.size(),
                             .stride_bytes = stride_bytes,
                             .out_stride_bytes = row_bytes,
                             .chunks = row_bytes / 16};
    }));
    QUARRY_RETURN_IF_ERROR(twins.Compare());
  }
  return Status::Ok();
}

}  // namespace
}  // namespace quarry::testing_util
