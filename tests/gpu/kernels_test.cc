// Kernels of rows and blocks against brute force, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gpu/random_features.h"
#include "quarry/format/batch_view.h"
#include "quarry/format/element_type.h"
#include "quarry/gpu/block_kernels.h"
#include "quarry/gpu/row_kernels.h"
#include "quarry/gpu/rows.h"
#include "support/device_space.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::Below;
using testing_util::Bits;
using testing_util::DeviceSpace;
using testing_util::Features;
using testing_util::kFloatTypes;
using testing_util::Lists;
using testing_util::Random;
using testing_util::RandomBytes;
using testing_util::RandomDistinct;

class KernelsTest : public testing::TestWithParam<DeviceSpace::Kind> {
 protected:
  void SetUp() override { Reopen(1); }
  gpu::Device& device() { return space_->device(); }
  gpu::StreamHandle stream() { return space_->stream(); }
  // What one seed has put is given back with it.
  void Reopen(uint64_t seed) {
    space_.reset();
    space_ = std::make_unique<DeviceSpace>(GetParam(), seed);
  }

  std::unique_ptr<DeviceSpace> space_;
};

TEST(DivisorTest, GivesQuotientsAndRemainders) {
  Random random(1);
  const auto number = [&] { return random() >> Below(random, 64); };
  const auto check = [](uint32_t value, uint64_t first, uint64_t step) {
    uint64_t quotients[3];
    uint32_t remainders[3];
    gpu::Divisor(value).Divide(first, step, quotients, remainders);
    for (uint64_t k = 0; k < 3; ++k) {
      const uint64_t dividend = first + k * step;
      ASSERT_EQ(quotients[k], dividend / value) << dividend << " / " << value;
      ASSERT_EQ(remainders[k], dividend % value) << dividend << " / " << value;
    }
  };
  for (int i = 0; i < 1000000; ++i) {
    const auto value = static_cast<uint32_t>(std::max<uint64_t>(number() & 0xffffffff, 1));
    const uint64_t dividend = number() >> 1, whole = dividend / value * value;
    check(value, whole, 1);
    check(value, whole - std::min<uint64_t>(whole, 1), 1);
    check(value, dividend, number() >> 3);
  }
  for (const uint32_t value : {1u, 2u, 3u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu}) {
    for (const uint64_t first :
         {uint64_t{0}, uint64_t{0xfffffffd}, uint64_t{0xfffffffe}, uint64_t{0x100000000}}) {
      check(value, first, 1);
    }
  }
}

TEST_P(KernelsTest, CopiesRowsOfAnyShape) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Reopen(seed);
    Random random(seed);
    const uint64_t word = uint64_t{2} << Below(random, 4);  // 2, 4, 8, 16
    const uint64_t row_bytes = word * (1 + Below(random, 40));
    const uint64_t from_stride = row_bytes + word * Below(random, 3);
    const uint64_t to_stride = row_bytes + word * Below(random, 3);
    const uint64_t from_offset = word * Below(random, 2), to_offset = word * Below(random, 2);
    const auto from_count = static_cast<uint32_t>(1 + Below(random, 100));
    const auto to_count = static_cast<uint32_t>(1 + Below(random, 100));
    const bool named_from = Below(random, 2) == 0, named_to = Below(random, 2) == 0;
    const auto rows = static_cast<uint32_t>(
        Below(random, std::min(to_count, named_from ? to_count : std::min(from_count, to_count)) + 1));
    std::vector<uint32_t> from_rows(rows);
    for (uint32_t& row : from_rows) row = static_cast<uint32_t>(Below(random, from_count));
    const std::vector<uint32_t> to_rows = RandomDistinct(random, rows, to_count);

    const auto from = RandomBytes(random, from_count * from_stride);
    auto expected = RandomBytes(random, to_count * to_stride);
    std::byte* const out = space_->Put(expected, to_offset);
    ASSERT_OK(gpu::CopyRows(device(),
                            {.from = space_->Put(from, from_offset),
                             .to = out,
                             .from_rows = named_from ? space_->Put(from_rows) : nullptr,
                             .to_rows = named_to ? space_->Put(to_rows) : nullptr,
                             .rows = rows,
                             .row_bytes = row_bytes,
                             .from_stride_bytes = from_stride,
                             .to_stride_bytes = to_stride},
                            stream()));
    for (uint32_t i = 0; i < rows; ++i) {
      std::memcpy(&expected[(named_to ? to_rows[i] : i) * to_stride],
                  &from[(named_from ? from_rows[i] : i) * from_stride], row_bytes);
    }
    ASSERT_EQ(space_->Get(out, expected.size()), expected) << "seed " << seed;
  }
}

TEST_P(KernelsTest, RowsOfHalfWordsAreRefused) {
  std::byte* const memory = space_->Put(std::vector<std::byte>(64));
  EXPECT_THAT(gpu::CopyRows(device(),
                            {.from = memory,
                             .to = memory + 32,
                             .rows = 1,
                             .row_bytes = 3,
                             .from_stride_bytes = 4,
                             .to_stride_bytes = 4},
                            stream()),
              IsStatus(Code::kUsage));
}

TEST_P(KernelsTest, DecodesRowsOfAnyTypeAsTheProcessorDoes) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Reopen(seed);
    Random random(seed);
    const ElementType type = kFloatTypes[seed % 4];
    const auto dim = static_cast<uint32_t>(1 + Below(random, 80));
    const Features features(random, type, dim, static_cast<uint32_t>(Below(random, 60)), /*finite=*/false);
    std::vector<float> expected;
    for (uint32_t node = 0; node < features.nodes; ++node) {
      const std::vector<float> row = features.Decoded(node);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    float* const out =
        space_->Put(std::vector<float>(expected.size(), 77.0F), sizeof(float) * Below(random, 2));
    ASSERT_OK(gpu::DecodeRows(device(), features.PutOn(*space_), features.nodes, out, stream()));
    ASSERT_EQ(Bits(space_->Get(out, expected.size())), Bits(expected))
        << "seed " << seed << ", " << ElementTypeName(type) << ", dim " << dim;
  }
}

TEST_P(KernelsTest, DecodesEveryHalf) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), 0);
  const auto* const bytes = reinterpret_cast<const std::byte*>(halves.data());
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    std::vector<float> expected(halves.size());
    DecodeRow(type, {bytes, halves.size() * 2}, expected);
    const auto* const rows = reinterpret_cast<const std::byte*>(space_->Put(halves));
    // As one row, and as rows of an element.
    for (const uint32_t dim : {65536u, 1u}) {
      const FeatureView view = {
          .rows = {rows, halves.size() * 2}, .stride_bytes = 2 * dim, .element_type = type, .dim = dim};
      float* const out = space_->Put(std::vector<float>(halves.size()));
      ASSERT_OK(gpu::DecodeRows(device(), view, halves.size() / dim, out, stream()));
      EXPECT_EQ(Bits(space_->Get(out, halves.size())), Bits(expected)) << ElementTypeName(type);
    }
  }
}

// The trainer's sums: element by element, neighbor after neighbor; int8's scale within the addition.
void Add(const Features& features, uint32_t node, std::span<float> sum) {
  const std::byte* const row = features.View().Row(node);
  if (features.type != ElementType::kInt8) {
    const std::vector<float> values = features.Decoded(node);
    for (uint32_t c = 0; c < features.dim; ++c) sum[c] += values[c];
    return;
  }
  float scale = 0;
  std::memcpy(&scale, row + (features.dim + 3) / 4 * 4, sizeof scale);
  for (uint32_t c = 0; c < features.dim; ++c) {
    sum[c] = std::fma(scale, static_cast<float>(static_cast<int8_t>(row[c])), sum[c]);
  }
}

TEST_P(KernelsTest, AggregatesRowsInTheOrderOfNeighbors) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Reopen(seed);
    Random random(seed);
    const auto nodes = static_cast<uint32_t>(1 + Below(random, 60));
    const auto targets = static_cast<uint32_t>(Below(random, nodes + 1));
    const auto dim = static_cast<uint32_t>(1 + Below(random, 40));
    const Features features(random, kFloatTypes[seed % 4], dim, nodes, /*finite=*/true);
    const Lists lists(random, targets, nodes);
    const bool self_apart = Below(random, 3) != 0, mean = Below(random, 3) != 0;

    const uint32_t width = self_apart ? 2 * dim : dim;
    std::vector<float> expected(size_t{targets} * width, 0.0F);
    for (uint32_t v = 0; v < targets; ++v) {
      const std::span self = std::span(expected).subspan(size_t{v} * width, dim);
      const std::span sum = std::span(expected).subspan(size_t{v} * width + (self_apart ? dim : 0), dim);
      Add(features, v, self);
      for (uint32_t e = lists.indptr[v]; e < lists.indptr[v + 1]; ++e) Add(features, lists.indices[e], sum);
      const uint32_t count = lists.indptr[v + 1] - lists.indptr[v] + (self_apart ? 0 : 1);
      if (!mean || count < 2) continue;
      const float inverse = 1.0F / static_cast<float>(count);
      for (float& value : sum) value *= inverse;
    }
    float* const out =
        space_->Put(std::vector<float>(expected.size(), 77.0F), sizeof(float) * Below(random, 2));
    ASSERT_OK(gpu::AggregateRows(device(), features.PutOn(*space_),
                                 {.indptr = space_->Put(lists.indptr),
                                  .indices = space_->Put(lists.indices),
                                  .targets = targets,
                                  .self_apart = self_apart,
                                  .mean = mean},
                                 out, stream()));
    ASSERT_EQ(Bits(space_->Get(out, expected.size())), Bits(expected))
        << "seed " << seed << ", " << ElementTypeName(features.type) << ", dim " << dim;
  }
}

TEST_P(KernelsTest, WritesEdgesWithTheirTargets) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Reopen(seed);
    Random random(seed);
    const auto nodes = static_cast<uint32_t>(Below(random, 100));
    const Lists lists(random, static_cast<uint32_t>(Below(random, 100)), nodes);
    const uint64_t edges = lists.indices.size(), targets = lists.indptr.size() - 1;
    std::vector<int64_t> expected(lists.indices.begin(), lists.indices.end());
    for (uint64_t v = 0; v < targets; ++v) {
      expected.insert(expected.end(), lists.indptr[v + 1] - lists.indptr[v], static_cast<int64_t>(v));
    }
    int64_t* const out = space_->Put(std::vector<int64_t>(2 * edges, -7));
    ASSERT_OK(gpu::Run(
        device(), gpu::WriteEdges{space_->Put(lists.indptr), space_->Put(lists.indices), out, targets, edges},
        stream()));
    ASSERT_EQ(space_->Get(out, 2 * edges), expected) << "seed " << seed;
  }
}

TEST_P(KernelsTest, WidensIds) {
  Random random(1);
  for (uint64_t size = 0; size < 20; ++size) {
    std::vector<uint32_t> ids(size);
    for (uint32_t& id : ids) id = static_cast<uint32_t>(random());
    int64_t* const out = space_->Put(std::vector<int64_t>(size, -7));
    ASSERT_OK(gpu::Run(device(), gpu::WidenIds{space_->Put(ids), out, size}, stream()));
    EXPECT_EQ(space_->Get(out, size), std::vector<int64_t>(ids.begin(), ids.end()));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelsTest, testing::ValuesIn(DeviceSpace::Kinds()), DeviceSpace::NameOf);

}  // namespace
}  // namespace quarry
