#include "core_rates.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/format/checksum.h"
#include "quarry/io/buffer.h"
#include "quarry/io/device.h"
#include "quarry/layout/planned_block.h"

namespace quarry {
namespace {

constexpr uint32_t kMissed = 0xffffffff;  // the slot of a row that is not cached (kNoSlot of the simulator)
constexpr double kSecondsEach = 0.1;
constexpr size_t kRoundsMin = 3;
constexpr uint64_t kRowsBytes = 32 * kMiB;  // read from, and as much written to: beyond what a core caches

// The median of `bytes` / the time of a round.
template <typename Round>
Result<double> BytesPerSecond(double bytes, const Round& round) {
  std::vector<double> rates;
  const double start = MonotonicSeconds();
  while (rates.size() < kRoundsMin || MonotonicSeconds() - start < kSecondsEach) {
    const double round_start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(round());
    rates.push_back(bytes / std::max(1e-9, MonotonicSeconds() - round_start));
  }
  return Median(std::move(rates));
}

// A block of two hops as batches have them, with no cache: its rows are all in its chunk.
std::vector<std::byte> EncodedBlock(uint64_t node_count) {
  constexpr uint32_t kSeeds = 1'000, kTargets = 10'000, kNodes = 60'000, kDegree = 10;
  Rng rng(1);
  std::vector<NodeId> nodes;
  for (uint32_t i = 0; i < kNodes; ++i) {
    const uint64_t stride = node_count / kNodes;
    nodes.push_back(static_cast<NodeId>(i * stride + rng.Below(stride)));
  }
  const std::vector<uint32_t> hop_offsets = {kSeeds, kTargets, kNodes}, slots(kNodes, kMissed);
  std::vector<uint32_t> indptr = {0}, indices;
  for (uint32_t v = 0; v < kTargets; ++v) {
    for (uint32_t i = 0; i < kDegree; ++i) {
      indices.push_back(static_cast<uint32_t>(rng.Below(v < kSeeds ? kTargets : kNodes)));
    }
    indptr.push_back(static_cast<uint32_t>(indices.size()));
  }
  std::vector<std::byte> bytes;
  BlockEncoder().Encode({.nodes = nodes,
                         .hop_offsets = hop_offsets,
                         .indptr = indptr,
                         .indices = indices,
                         .slots = slots,
                         .segment_places = {},
                         .admitted = {},
                         .carried = {},
                         .node_count = node_count},
                        bytes);
  return bytes;
}

Result<double> MeasureDecoding() {
  constexpr uint64_t kNodeCount = 6'000'000;
  const std::vector<std::byte> block = EncodedBlock(kNodeCount);
  BlockDecoder decoder(0, kNodeCount, {});
  PlannedBlock decoded;
  return BytesPerSecond(static_cast<double>(block.size()), [&] { return decoder.Decode(block, decoded); });
}

}  // namespace

Result<CoreRates> MeasureCoreRates(MemoryBudget& budget, uint64_t row_bytes) {
  const uint64_t rows = std::max<uint64_t>(1, std::min(kRowsBytes, budget.available_bytes() / 2) / row_bytes);
  QUARRY_TRY(const MemoryBudget::Reservation reservation,
             budget.Reserve(2 * rows * row_bytes, "measuring the processors"));
  QUARRY_TRY(const IoBuffer from, IoBuffer::Allocate(rows * row_bytes));
  QUARRY_TRY(const IoBuffer to, IoBuffer::Allocate(rows * row_bytes));
  std::memset(from.data(), 1, rows * row_bytes);
  std::memset(to.data(), 1, rows * row_bytes);
  const auto bytes = static_cast<double>(rows * row_bytes);
  CoreRates rates;
  uint32_t sum = 0;
  QUARRY_TRY(rates.checksum_bytes_per_second, BytesPerSecond(bytes, [&] {
               for (uint64_t row = 0; row < rows; ++row) {
                 sum ^= CellChecksum({from.data() + row * row_bytes, row_bytes}, row);
               }
               return Status::Ok();
             }));
  std::memcpy(to.data(), &sum, std::min<uint64_t>(sizeof(sum), row_bytes));  // so that it is computed
  Rng rng(1);
  QUARRY_TRY(rates.copy_bytes_per_second, BytesPerSecond(bytes, [&] {
               for (uint64_t row = 0; row < rows; ++row) {
                 std::memcpy(to.data() + rng.Below(rows) * row_bytes, from.data() + row * row_bytes,
                             row_bytes);
               }
               return Status::Ok();
             }));
  QUARRY_TRY(rates.decode_bytes_per_second, MeasureDecoding());
  return rates;
}

}  // namespace quarry
