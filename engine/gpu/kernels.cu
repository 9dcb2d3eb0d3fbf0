// Every kernel, compiled for devices: one image with code for sm_80, sm_90, and PTX for what comes after
// (engine/gpu/CMakeLists.txt), which Device::Launch finds functions in by name.
#include "quarry/gpu/block_kernels.h"
#include "quarry/gpu/distmult_kernels.h"
#include "quarry/gpu/renumber_kernels.h"
#include "quarry/gpu/row_kernels.h"
#include "quarry/gpu/row_table_kernels.h"
#include "quarry/gpu/sample_kernels.h"

namespace quarry::gpu {
namespace {

// A block takes as many neighboring indices at a time as its threads take at once, and so on for any number of blocks.
template <typename Body>
__device__ __forceinline__ void Every(const Body& body) {
  const uint64_t count = body.count(), tile = uint64_t{kUnrollOf<Body>} * blockDim.x;
  for (uint64_t begin = blockIdx.x * tile; begin < count; begin += gridDim.x * tile) {
    RunThread(body, begin + threadIdx.x, blockDim.x, count);
  }
}

constexpr bool SameName(const char* a, const char* b) {
  for (; *a != 0 && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

}  // namespace

#define QUARRY_KERNEL(name, ...)                                    \
  static_assert(SameName(#name, __VA_ARGS__::kName), #name);        \
  extern "C" __global__ void __launch_bounds__(256) name(const __VA_ARGS__ body) { Every(body); }

QUARRY_KERNEL(quarry_copy_rows_by_16, CopyRowsBy<Chunk>)
QUARRY_KERNEL(quarry_copy_rows_by_4, CopyRowsBy<uint32_t>)
QUARRY_KERNEL(quarry_copy_rows_by_2, CopyRowsBy<uint16_t>)

#define QUARRY_CODED_KERNELS(kind, Body)                               \
  QUARRY_KERNEL(quarry_##kind##_float16_by_4, Body<Float16Code, 4>)    \
  QUARRY_KERNEL(quarry_##kind##_float16_by_1, Body<Float16Code, 1>)    \
  QUARRY_KERNEL(quarry_##kind##_bfloat16_by_4, Body<Bfloat16Code, 4>)  \
  QUARRY_KERNEL(quarry_##kind##_bfloat16_by_1, Body<Bfloat16Code, 1>)  \
  QUARRY_KERNEL(quarry_##kind##_int8_by_4, Body<Int8Code, 4>)          \
  QUARRY_KERNEL(quarry_##kind##_int8_by_1, Body<Int8Code, 1>)

QUARRY_CODED_KERNELS(decode, DecodeRowsBy)
QUARRY_CODED_KERNELS(aggregate, AggregateRowsBy)
QUARRY_KERNEL(quarry_aggregate_float32_by_4, AggregateRowsBy<Float32Code, 4>)
QUARRY_KERNEL(quarry_aggregate_float32_by_1, AggregateRowsBy<Float32Code, 1>)

QUARRY_KERNEL(quarry_write_edges, WriteEdges)
QUARRY_KERNEL(quarry_widen_ids, WidenIds)

QUARRY_KERNEL(quarry_find_newer_rows, FindNewerRows)
QUARRY_KERNEL(quarry_copy_found_rows, CopyFoundRows)
QUARRY_KERNEL(quarry_insert_rows, InsertRows)
QUARRY_KERNEL(quarry_round_rows_to_bfloat16, RoundRowsToBfloat16)

QUARRY_KERNEL(quarry_score_distmult, ScoreDistMult)
QUARRY_KERNEL(quarry_share_distmult_edges, ShareDistMultEdges)
QUARRY_KERNEL(quarry_share_distmult_negatives, ShareDistMultNegatives)
QUARRY_KERNEL(quarry_step_adagrad_rows, StepAdagradRows)

QUARRY_KERNEL(quarry_place_seeds, PlaceSeeds)
QUARRY_KERNEL(quarry_count_draws, CountDraws)
QUARRY_KERNEL(quarry_sum_tiles, SumTiles)
QUARRY_KERNEL(quarry_scan_tiles, ScanTiles)
QUARRY_KERNEL(quarry_draw_positions, DrawPositions)
QUARRY_KERNEL(quarry_resolve_positions, ResolvePositions)
QUARRY_KERNEL(quarry_flag_finders, FlagFinders)
QUARRY_KERNEL(quarry_place_found, PlaceFound)
QUARRY_KERNEL(quarry_renumber_edges, RenumberEdges)
QUARRY_KERNEL(quarry_end_hop, EndHop)
QUARRY_KERNEL(quarry_forget_nodes, ForgetNodes)

}  // namespace quarry::gpu
