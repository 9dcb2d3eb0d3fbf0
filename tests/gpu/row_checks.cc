// Kernels over rows and blocks against the processor, bit by bit. tests/gpu/kernels_test.cc holds them against brute force.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/device_checks.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/element_type.h"
#include "quarry/gpu/block_kernels.h"
#include "quarry/gpu/rows.h"

namespace quarry::testing_util {
namespace {

std::vector<std::byte> RandomBytes(Rng& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<uint32_t> RandomNumbers(Rng& random, size_t size, uint64_t limit) {
  std::vector<uint32_t> numbers(size);
  for (uint32_t& number : numbers) number = static_cast<uint32_t>(random.Below(limit));
  return numbers;
}

std::vector<uint32_t> Shuffled(Rng& random, size_t size) {
  std::vector<uint32_t> numbers(size);
  for (uint32_t i = 0; i < size; ++i) {
    const size_t at = random.Below(i + 1);
    numbers[i] = numbers[at];
    numbers[at] = i;
  }
  return numbers;
}

// What a fault was about goes before it.
Status Named(const Status& status, const std::string& about) {
  return status.ok() ? status : MakeStatus(status.code(), "{}: {}", about, status.message());
}

QUARRY_DEVICE_CHECK(RowsAreGatheredAndScattered) {
  Rng random = context.random();
  for (const uint32_t row_bytes : {2U, 6U, 4U, 100U, 400U, 16U, 64U, 512U, 3072U}) {
    const uint64_t word = row_bytes % 16 == 0 ? 16 : row_bytes % 4 == 0 ? 4 : 2;
    const uint64_t stride = row_bytes + word, rows = context.size;
    Twins twins(context);
    QUARRY_TRY(const auto from, twins.Add(RandomBytes(random, rows * stride)));
    QUARRY_TRY(const auto to, twins.Add(std::vector<std::byte>(rows * stride)));
    QUARRY_TRY(const auto from_rows, twins.Add(RandomNumbers(random, rows, rows)));
    QUARRY_TRY(const auto to_rows, twins.Add(Shuffled(random, rows)));
    QUARRY_RETURN_IF_ERROR(twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) {
      return gpu::CopyRows(device,
                           {.from = at(from),
                            .to = at(to),
                            .from_rows = at(from_rows),
                            .to_rows = at(to_rows),
                            .rows = rows,
                            .row_bytes = row_bytes,
                            .from_stride_bytes = stride,
                            .to_stride_bytes = stride},
                           stream);
    }));
    QUARRY_RETURN_IF_ERROR(Named(twins.Compare(), fmt::format("rows of {} bytes", row_bytes)));
  }
  return Status::Ok();
}

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16,
                                  ElementType::kInt8};

// Any bits, NaNs among them.
QUARRY_DEVICE_CHECK(RowsAreDecoded) {
  Rng random = context.random();
  for (const ElementType type : kTypes) {
    for (const uint32_t dim : {1U, 3U, 100U, 128U}) {
      const uint64_t stride = (RowBytes(type, dim) + 15) / 16 * 16, rows = context.size;
      Twins twins(context);
      QUARRY_TRY(const auto from, twins.Add(RandomBytes(random, rows * stride)));
      QUARRY_TRY(const auto slots, twins.Add(RandomNumbers(random, rows, rows)));
      QUARRY_TRY(const auto to, twins.Add(std::vector<float>(rows * dim)));
      QUARRY_RETURN_IF_ERROR(
          twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) {
            const FeatureView view{.rows = {at(from), rows * stride},
                                   .stride_bytes = stride,
                                   .element_type = type,
                                   .dim = dim,
                                   .slots = {at(slots), rows}};
            return gpu::DecodeRows(device, view, rows, at(to), stream);
          }));
      QUARRY_RETURN_IF_ERROR(Named(twins.Compare(), fmt::format("{} of {}", dim, ElementTypeName(type))));
    }
  }
  return Status::Ok();
}

// Lists of 0 to 20 neighbors.
std::vector<uint32_t> RandomIndptr(Rng& random, size_t targets) {
  std::vector<uint32_t> indptr = {0};
  for (size_t i = 0; i < targets; ++i)
    indptr.push_back(indptr.back() + static_cast<uint32_t>(random.Below(21)));
  return indptr;
}

QUARRY_DEVICE_CHECK(NeighborsAreAggregated) {
  Rng random = context.random();
  const uint64_t nodes = context.size, targets = std::max<uint64_t>(nodes / 4, 1);
  const std::vector<uint32_t> indptr_values = RandomIndptr(random, targets);
  const std::vector<uint32_t> indices_values = RandomNumbers(random, indptr_values.back(), nodes);
  for (const ElementType type : kTypes) {
    for (const uint32_t dim : {3U, 64U}) {
      const uint64_t stride = (RowBytes(type, dim) + 15) / 16 * 16;
      std::vector<std::byte> rows(nodes * stride);
      std::vector<float> row(dim);
      for (uint64_t i = 0; i < nodes; ++i) {
        for (float& value : row) value = static_cast<float>(random.Unit() * 2 - 1);
        EncodeRow(type, row, std::span(rows).subspan(i * stride, RowBytes(type, dim)));
      }
      for (const bool self_apart : {false, true}) {
        for (const bool mean : {false, true}) {
          Twins twins(context);
          QUARRY_TRY(const auto from, twins.Add(rows));
          QUARRY_TRY(const auto slots, twins.Add(RandomNumbers(random, nodes, nodes)));
          QUARRY_TRY(const auto indptr, twins.Add(indptr_values));
          QUARRY_TRY(const auto indices, twins.Add(indices_values));
          QUARRY_TRY(const auto to, twins.Add(std::vector<float>(targets * dim * (self_apart ? 2 : 1))));
          QUARRY_RETURN_IF_ERROR(
              twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) {
                const FeatureView view{.rows = {at(from), rows.size()},
                                       .stride_bytes = stride,
                                       .element_type = type,
                                       .dim = dim,
                                       .slots = {at(slots), nodes}};
                return gpu::AggregateRows(device, view,
                                          {.indptr = at(indptr),
                                           .indices = at(indices),
                                           .targets = targets,
                                           .self_apart = self_apart,
                                           .mean = mean},
                                          at(to), stream);
              }));
          QUARRY_RETURN_IF_ERROR(Named(
              twins.Compare(),
              fmt::format("{} of {}, self apart {}, mean {}", dim, ElementTypeName(type), self_apart, mean)));
        }
      }
    }
  }
  return Status::Ok();
}

QUARRY_DEVICE_CHECK(BlocksBecomeEdgesAndIds) {
  Rng random = context.random();
  const std::vector<uint32_t> indptr_values = RandomIndptr(random, context.size);
  const uint64_t edges = indptr_values.back();
  Twins twins(context);
  QUARRY_TRY(const auto indptr, twins.Add(indptr_values));
  QUARRY_TRY(const auto indices, twins.Add(RandomNumbers(random, edges, uint64_t{1} << 32)));
  QUARRY_TRY(const auto pairs, twins.Add(std::vector<int64_t>(2 * edges)));
  QUARRY_TRY(const auto ids, twins.Add(std::vector<int64_t>(edges)));
  QUARRY_RETURN_IF_ERROR(
      twins.RunBoth([&](gpu::Device& device, gpu::StreamHandle stream, const auto& at) -> Status {
        QUARRY_RETURN_IF_ERROR(gpu::Run(device,
                                        gpu::WriteEdges{.indptr = at(indptr),
                                                        .indices = at(indices),
                                                        .out = at(pairs),
                                                        .targets = context.size,
                                                        .edges = edges},
                                        stream));
        return gpu::Run(device, gpu::WidenIds{.ids = at(indices), .out = at(ids), .size = edges}, stream);
      }));
  return twins.Compare();
}

}  // namespace
}  // namespace quarry::testing_util
