#include "quarry/trainer/aggregate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "quarry/format/element_type.h"
#include "random_block.h"

namespace quarry {
namespace {

// Encoded rows in shuffled slots with unused space between them, and what they decode to.
struct EncodedRows {
  std::vector<std::byte> buffer;
  std::vector<uint32_t> slots;
  std::vector<float> decoded;  // [rows, dim]
  FeatureView view;

  EncodedRows(Rng& rng, ElementType type, uint32_t rows, uint32_t dim) {
    const uint64_t row_bytes = RowBytes(type, dim);
    const uint64_t stride = (row_bytes + 3) / 4 * 4 + 8;
    buffer.resize(stride * rows * 2);
    decoded.resize(size_t{rows} * dim);
    for (uint32_t i = 0; i < rows; i++) {
      slots.push_back(2 * i + static_cast<uint32_t>(rng.Below(2)));
      std::swap(slots[i], slots[rng.Below(i + 1)]);
    }
    for (uint32_t i = 0; i < rows; i++) {
      const std::span<std::byte> row(buffer.data() + slots[i] * stride, row_bytes);
      std::vector<float> values = RandomMatrix(rng, dim);
      for (float& value : values) value *= std::ldexp(1.0F, static_cast<int>(rng.Below(30)) - 20);
      EncodeRow(type, values, row);
      DecodeRow(type, row, std::span(decoded).subspan(size_t{i} * dim, dim));
    }
    view = {buffer, stride, type, dim, slots};
  }
};

double Norm(std::span<const float> row, RowNorm norm) {
  double sum = 0;
  for (float x : row) sum += norm == RowNorm::kL1 ? std::abs(x) : double{x} * x;
  if (norm == RowNorm::kNone || sum == 0) return 1;
  return norm == RowNorm::kL1 ? sum : std::sqrt(sum);
}

class AggregateTypes : public testing::TestWithParam<ElementType> {};

TEST_P(AggregateTypes, GivesTheDecodedRowAndTheMeanOfItsNeighbors) {
  for (const uint32_t dim : {1u, 7u, 8u, 100u, 128u, 517u}) {
    for (const RowNorm norm : {RowNorm::kNone, RowNorm::kL1, RowNorm::kL2}) {
      SCOPED_TRACE(fmt::format("dim {} norm {}", dim, static_cast<int>(norm)));
      Rng rng(MixSeed(dim, norm));
      const Block block = RandomBlock(rng, {5, 20, 60}, 12);
      const EncodedRows rows(rng, GetParam(), 60, dim);
      std::vector<float> out(20 * 2 * dim, NAN);
      Aggregate({}, rows.view, norm, block.indptr, block.indices, 0, 20, out.data());
      for (uint32_t v = 0; v < 20; v++) {
        const auto row = [&](uint32_t i) { return std::span(rows.decoded).subspan(size_t{i} * dim, dim); };
        for (uint32_t c = 0; c < dim; c++) {
          double mean = 0, magnitude = 0;
          for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
            const double x = row(block.indices[e])[c] / Norm(row(block.indices[e]), norm);
            mean += x / (block.indptr[v + 1] - block.indptr[v]);
            magnitude += std::abs(x);
          }
          const double self = row(v)[c] / Norm(row(v), norm);
          if (norm == RowNorm::kNone) {
            ASSERT_EQ(out[size_t{v} * 2 * dim + c], row(v)[c]);
          }
          ASSERT_NEAR(out[size_t{v} * 2 * dim + c], self, 1e-6 * std::abs(self));
          ASSERT_NEAR(out[size_t{v} * 2 * dim + dim + c], mean, 1e-6 * magnitude)
              << "row " << v << " column " << c;
        }
      }
    }
  }
}

// The node itself apart, and one of the rows that are summed.
TEST_P(AggregateTypes, GivesWeightedSums) {
  for (const uint32_t dim : {1u, 33u, 128u}) {
    for (const RowNorm norm : {RowNorm::kNone, RowNorm::kL2}) {
      for (const bool self_apart : {false, true}) {
        SCOPED_TRACE(fmt::format("dim {} norm {} self apart {}", dim, static_cast<int>(norm), self_apart));
        Rng rng(MixSeed(dim, norm, self_apart));
        const Block block = RandomBlock(rng, {5, 20, 60}, 12);
        const EncodedRows rows(rng, GetParam(), 60, dim);
        const std::vector<float> edges = RandomMatrix(rng, block.indices.size());
        const std::vector<float> selves = RandomMatrix(rng, 20);
        const Gathering gathering = {.aggregator = Aggregator::kSum, .self_apart = self_apart};
        const uint32_t width = gathering.width(dim);
        std::vector<float> out(size_t{20} * width, NAN);
        Aggregate(gathering, rows.view, norm, block.indptr, block.indices, 0, 20, out.data(), nullptr,
                  {.edges = edges.data(), .selves = self_apart ? nullptr : selves.data()});
        const auto value = [&](uint32_t i, uint32_t c) {
          const auto row = std::span(rows.decoded).subspan(size_t{i} * dim, dim);
          return row[c] / Norm(row, norm);
        };
        for (uint32_t v = 0; v < 20; v++) {
          for (uint32_t c = 0; c < dim; c++) {
            double sum = self_apart ? 0 : selves[v] * value(v, c), magnitude = std::abs(sum);
            for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
              sum += edges[e] * value(block.indices[e], c);
              magnitude += std::abs(edges[e] * value(block.indices[e], c));
            }
            const float* const row = out.data() + size_t{v} * width;
            if (self_apart) {
              ASSERT_NEAR(row[c], value(v, c), 1e-6 * std::abs(value(v, c)));
            }
            ASSERT_NEAR(row[(self_apart ? dim : 0) + c], sum, 2e-6 * magnitude) << v << " " << c;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AggregateTypes,
                         testing::Values(ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16,
                                         ElementType::kInt8),
                         [](const auto& type) { return std::string(ElementTypeName(type.param)); });

TEST(AggregateMean, DecodesEveryBinary16AsTheFormatDoes) {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), 0);
  std::vector<float> decoded(65536);
  DecodeRow(ElementType::kFloat16, std::as_bytes(std::span(halves)), decoded);
  const uint32_t indptr[] = {0, 0};
  const FeatureView view{std::as_bytes(std::span(halves)), 131072, ElementType::kFloat16, 65536};
  std::vector<float> out(2 * 65536);
  Aggregate({}, view, RowNorm::kNone, indptr, {}, 0, 1, out.data());
  for (size_t i = 0; i < decoded.size(); i++) {
    if (std::isnan(decoded[i])) {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    } else {
      ASSERT_EQ(out[i], decoded[i]) << i;
    }
  }
}

TEST(AggregateMean, LeavesRowsOfZerosAsTheyAreWhenNormalising) {
  const std::vector<float> zeros(8);
  const uint32_t indptr[] = {0, 1};
  const uint32_t indices[] = {1};
  const FeatureView view{std::as_bytes(std::span(zeros)), 16, ElementType::kFloat32, 4};
  std::vector<float> out(8, NAN);
  Aggregate({}, view, RowNorm::kL2, indptr, indices, 0, 1, out.data());
  EXPECT_EQ(out, zeros);
}

TEST(AggregateMean, IsTheSameHoweverRowsAreSharedOut) {
  Rng rng(11);
  const Block block = RandomBlock(rng, {100, 400}, 20);
  const EncodedRows rows(rng, ElementType::kBfloat16, 400, 33);
  std::vector<float> whole(100 * 66), parts(100 * 66);
  Aggregate({}, rows.view, RowNorm::kL1, block.indptr, block.indices, 0, 100, whole.data());
  for (uint32_t begin = 0; begin < 100; begin += 7) {
    Aggregate({}, rows.view, RowNorm::kL1, block.indptr, block.indices, begin, std::min(100u, begin + 7),
              parts.data() + size_t{begin} * 66);
  }
  EXPECT_EQ(whole, parts);
}

TEST(BackwardMean, IsTheAdjointOfTheAggregationTimesTheActivationsDerivative) {
  for (const uint32_t dim : {3u, 64u, 300u}) {
    SCOPED_TRACE(dim);
    Rng rng(dim);
    const Block block = RandomBlock(rng, {10, 50, 200}, 9);
    const uint32_t destinations = 50, sources = 200;
    const std::vector<float> grad = RandomMatrix(rng, size_t{destinations} * 2 * dim);
    std::vector<float> hidden = RandomMatrix(rng, size_t{sources} * dim);  // negative: the ReLU was shut

    std::vector<double> expected(size_t{sources} * dim);
    for (uint32_t v = 0; v < destinations; v++) {
      for (uint32_t c = 0; c < dim; c++) {
        expected[size_t{v} * dim + c] += grad[size_t{v} * 2 * dim + c];
        const uint32_t degree = block.indptr[v + 1] - block.indptr[v];
        for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) {
          expected[size_t{block.indices[e]} * dim + c] +=
              grad[size_t{v} * 2 * dim + dim + c] / double(degree);
        }
      }
    }
    for (size_t i = 0; i < expected.size(); i++) expected[i] = hidden[i] > 0 ? expected[i] * 2 : 0;

    TransposedBlock transposed;
    Transpose({}, block.indptr, block.indices, destinations, sources, transposed);
    std::vector<float> parts = hidden;
    BackwardGather(transposed, grad.data(), dim, 2.0F, 0, sources, hidden.data());
    for (size_t i = 0; i < expected.size(); i++) ASSERT_NEAR(hidden[i], expected[i], 1e-5) << i;
    for (uint32_t begin = 0; begin < sources; begin += 33) {
      BackwardGather(transposed, grad.data(), dim, 2.0F, begin, std::min(sources, begin + 33),
                     parts.data() + size_t{begin} * dim);
    }
    EXPECT_EQ(parts, hidden);
  }
}

TEST(Transpose, ListsTheDestinationsOfEachSourceInOrder) {
  Rng rng(5);
  const Block block = RandomBlock(rng, {30, 100}, 8);
  TransposedBlock transposed;
  Transpose({}, block.indptr, block.indices, 30, 100, transposed);
  std::vector<std::vector<uint32_t>> expected(100);
  for (uint32_t v = 0; v < 30; v++) {
    for (uint32_t e = block.indptr[v]; e < block.indptr[v + 1]; e++) expected[block.indices[e]].push_back(v);
  }
  ASSERT_EQ(transposed.offsets.size(), 101u);
  for (uint32_t u = 0; u < 100; u++) {
    const std::vector<uint32_t> got(transposed.destinations.begin() + transposed.offsets[u],
                                    transposed.destinations.begin() + transposed.offsets[u + 1]);
    EXPECT_EQ(got, expected[u]) << u;
  }
}

TEST(ActivateRows, AddsTheBiasAndCutsBelowZero) {
  std::vector<float> values = {1, -3, 0.5F, -1, 2, -2};
  const std::vector<float> bias = {1, 1, -1};
  ActivateRows(bias, {}, 0, 2, values.data());
  EXPECT_EQ(values, (std::vector<float>{2, 0, 0, 0, 3, 0}));
}

TEST(Dropout, DropsItsShareAndScalesTheRest) {
  for (const double probability : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(probability);
    constexpr uint32_t kRows = 2000, kDim = 128;
    const DropoutMask mask{probability, 42};
    std::vector<float> activated(kRows * kDim, 2), dropped(kRows * kDim, 2);
    ActivateRows(std::vector<float>(kDim, 1), mask, 0, kRows, activated.data());
    DropRows(kDim, mask, 0, kRows, dropped.data());
    size_t zeros = 0;
    for (size_t i = 0; i < activated.size(); i++) {
      if (activated[i] == 0) {
        zeros++;
        ASSERT_EQ(dropped[i], 0);  // one mask, whoever applies it
      } else {
        ASSERT_FLOAT_EQ(activated[i], 3 / static_cast<float>(1 - probability));
        ASSERT_FLOAT_EQ(dropped[i], 2 / static_cast<float>(1 - probability));
      }
    }
    const double n = static_cast<double>(activated.size());
    EXPECT_NEAR(static_cast<double>(zeros), probability * n,
                5 * std::sqrt(probability * (1 - probability) * n));
  }
}

TEST(Dropout, DependsOnSeedRowAndColumnAlone) {
  constexpr uint32_t kRows = 64, kDim = 100;
  std::vector<float> whole(kRows * kDim, 1), parts(kRows * kDim, 1), other(kRows * kDim, 1);
  DropRows(kDim, {0.5, 1}, 0, kRows, whole.data());
  for (uint32_t row = 0; row < kRows; row++)
    DropRows(kDim, {0.5, 1}, row, row + 1, parts.data() + row * kDim);
  DropRows(kDim, {0.5, 2}, 0, kRows, other.data());
  EXPECT_EQ(whole, parts);
  EXPECT_NE(whole, other);
  EXPECT_NE(std::vector<float>(whole.begin(), whole.begin() + kDim),
            std::vector<float>(whole.begin() + kDim, whole.begin() + 2 * kDim));
}

}  // namespace
}  // namespace quarry
