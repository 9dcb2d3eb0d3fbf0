// Sampling on a device against the processor, bit by bit. tests/sampling/device_sampler_test.cc holds the same kernels
// against the processor's sampler.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gpu/device_checks.h"
#include "quarry/gpu/sampling.h"

namespace quarry::testing_util {
namespace {

// Lists of up to 60 neighbors, some empty.
void MakeLists(Rng& random, uint64_t nodes, std::vector<uint64_t>& indptr, std::vector<uint32_t>& indices) {
  indptr.assign(1, 0);
  indices.clear();
  for (uint64_t node = 0; node < nodes; ++node) {
    for (uint64_t count = random.Below(4) == 0 ? 0 : random.Below(61); count > 0; --count) {
      indices.push_back(static_cast<uint32_t>(random.Below(nodes)));
    }
    indptr.push_back(indices.size());
  }
}

QUARRY_DEVICE_CHECK(BlocksAreSampled) {
  Rng random = context.random();
  const uint64_t nodes = 2 * context.size + 1, seeds = std::max<uint64_t>(1, context.size / 10);
  const std::vector<uint32_t> fanouts = {5, 20, 3};
  for (const bool replace : {false, true}) {
    for (const uint32_t sides : {1U, 2U}) {
      Twins twins(context);
      std::vector<uint64_t> indptr;
      std::vector<uint32_t> indices;
      MakeLists(random, nodes, indptr, indices);
      QUARRY_TRY(const auto first_indptr, twins.Add(indptr));
      QUARRY_TRY(const auto first_indices, twins.Add(indices));
      MakeLists(random, nodes, indptr, indices);
      QUARRY_TRY(const auto second_indptr, twins.Add(indptr));
      QUARRY_TRY(const auto second_indices, twins.Add(indices));
      const gpu::BlockDraws draws = {.fanouts = fanouts, .replace = replace, .keeps_positions = sides == 1};
      const gpu::BlockBounds bounds(nodes, fanouts, seeds);
      gpu::BlockArrays form;
      std::vector<std::byte> arrays(form.Carve(nullptr, nodes, bounds, draws));
      // As they are before the first block: seeds, and nobody met.
      form.Carve(arrays.data(), nodes, bounds, draws);
      for (uint32_t i = 0; i < seeds; ++i) form.block.nodes[i] = 2 * i;
      std::fill_n(form.block.locals, nodes, gpu::GrowingBlock::kNotMet);
      QUARRY_TRY(const auto block, twins.Add(arrays));
      QUARRY_RETURN_IF_ERROR(
          twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) {
            gpu::BlockArrays grown;
            grown.Carve(at(block), nodes, bounds, draws);
            const gpu::StrungAdjacency lists = {
                .sides = {{.indptr = at(first_indptr), .indices = at(first_indices)},
                          {.indptr = at(second_indptr), .indices = at(second_indices)}},
                .side_count = sides};
            return gpu::EnqueueBlock(device, stream, grown, lists, bounds, draws, context.seed);
          }));
      QUARRY_RETURN_IF_ERROR(twins.Compare());
      const std::byte* const made = twins.host(block).data();
      const auto* const marks = reinterpret_cast<const uint32_t*>(
          made + (reinterpret_cast<const std::byte*>(form.marks) - arrays.data()));
      QUARRY_EXPECT_THAT(marks[fanouts.size() + 1] > seeds, "neighbors were found");
    }
  }
  return Status::Ok();
}

}  // namespace
}  // namespace quarry::testing_util
