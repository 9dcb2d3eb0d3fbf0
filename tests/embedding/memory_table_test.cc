// Rows of an embedding table: how they begin, which write wins, and that none is ever torn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "embedding/row_block_util.h"
#include "quarry/base/random.h"
#include "quarry/embedding/embedding_table.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Each;
using testing::ElementsAre;

std::vector<float> InitialRow(const EmbeddingSpec& spec, RowId row) {
  std::vector<float> values(spec.dim);
  InitRow(spec, row, values);
  return values;
}

TEST(InitRowTest, IsAFunctionOfSeedRowAndColumn) {
  const EmbeddingSpec spec{.row_count = 10, .dim = 8, .seed = 7};
  EXPECT_EQ(InitialRow(spec, 3), InitialRow(spec, 3));
  EXPECT_NE(InitialRow(spec, 3), InitialRow(spec, 4));
  EmbeddingSpec other = spec;
  other.seed = 8;
  EXPECT_NE(InitialRow(spec, 3), InitialRow(other, 3));
  EmbeddingSpec shorter = spec;
  shorter.dim = 5;
  const std::vector<float> whole = InitialRow(spec, 3);
  EXPECT_EQ(InitialRow(shorter, 3), std::vector<float>(whole.begin(), whole.begin() + 5));
}

// A database names its embeddings by their seed until they are first written: the numbers must not change.
TEST(InitRowTest, GivesTheSameNumbersForEver) {
  EmbeddingSpec spec{.dim = 4, .init = InitKind::kUniform, .init_scale = 1, .seed = 42};
  EXPECT_THAT(InitialRow(spec, 5), ElementsAre(-0.780805469F, 0.23020184F, 0.0200443268F, -0.763090968F));
  spec.init = InitKind::kNormal;
  EXPECT_THAT(InitialRow(spec, 5), ElementsAre(-1.98830509F, 0.905961275F, 0.228133664F, -2.03730536F));
}

TEST(InitRowTest, DistributionsAreWhatTheyAreCalled) {
  struct Moments {
    double mean = 0, deviation = 0, low = 0, high = 0;
  };
  const auto measure = [](InitKind init) {
    const EmbeddingSpec spec{.dim = 100, .init = init, .init_scale = 0.5F, .seed = 1};
    Moments m;
    const int rows = 1000;
    for (RowId row = 0; row < rows; ++row) {
      for (const float value : InitialRow(spec, row)) {
        m.mean += value;
        m.deviation += double{value} * value;
        m.low = std::min(m.low, double{value});
        m.high = std::max(m.high, double{value});
      }
    }
    m.mean /= rows * 100;
    m.deviation = std::sqrt(m.deviation / (rows * 100));
    return m;
  };
  const Moments uniform = measure(InitKind::kUniform);
  EXPECT_NEAR(uniform.mean, 0, 0.005);
  EXPECT_NEAR(uniform.deviation, 0.5 / std::sqrt(3.0), 0.005);
  EXPECT_GE(uniform.low, -0.5);
  EXPECT_LT(uniform.low, -0.4999);
  EXPECT_LT(uniform.high, 0.5);
  EXPECT_GT(uniform.high, 0.4999);
  const Moments normal = measure(InitKind::kNormal);
  EXPECT_NEAR(normal.mean, 0, 0.008);
  EXPECT_NEAR(normal.deviation, 0.5, 0.005);
  EXPECT_GT(normal.high, 1.8);
  EXPECT_LT(normal.low, -1.8);
  const Moments zeros = measure(InitKind::kZeros);
  EXPECT_EQ(zeros.high, 0);
  EXPECT_EQ(zeros.low, 0);
}

TEST(RoundToStoredTest, RoundsToBfloat16AndLeavesFloat32) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 1.0F);
  for (float& value : values) value /= 3;
  std::vector<float> same = values;
  RoundToStored(ElementType::kFloat32, same);
  EXPECT_EQ(same, values);
  std::vector<float> rounded = values;
  RoundToStored(ElementType::kBfloat16, rounded);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(rounded[i], values[i], values[i] / 256);
  EXPECT_NE(rounded, values);
  std::vector<float> again = rounded;
  RoundToStored(ElementType::kBfloat16, again);
  EXPECT_EQ(again, rounded);
}

TEST(MemoryTableTest, RowsBeginAsInitRowSaysWithoutStateOrTimestamp) {
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBfloat16}) {
    const EmbeddingSpec spec{
        .row_count = 100, .dim = 7, .element_type = type, .optimizer = OptimizerKind::kAdam, .seed = 3};
    const auto table = MakeMemoryEmbeddingTable(spec);
    RowBlock block{.ids = {0, 41, 99}};
    ASSERT_OK(table->Read(block));
    EXPECT_THAT(block.timestamps, Each(kNeverWritten));
    EXPECT_EQ(block.state.size(), 3u * 15);
    EXPECT_THAT(block.state, Each(0.0F));
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(RowValues(block, spec, i), InitialRow(spec, block.ids[i]));
  }
}

TEST(MemoryTableTest, LargerTimestampsWinWhateverTheOrderOfWriting) {
  const EmbeddingSpec spec{.row_count = 4, .dim = 2};
  const auto table = MakeMemoryEmbeddingTable(spec);
  ASSERT_OK(table->Write(FilledBlock(spec, {0, 1}, 5, 50)));
  ASSERT_OK(table->Write(FilledBlock(spec, {0, 1, 2}, 3, 30))) << "too late for 0 and 1";
  ASSERT_OK(table->Write(FilledBlock(spec, {1}, 5, 99))) << "not larger";
  RowBlock block{.ids = {0, 1, 2, 3}};
  ASSERT_OK(table->Read(block));
  EXPECT_THAT(block.timestamps, ElementsAre(5, 5, 3, kNeverWritten));
  EXPECT_THAT(RowValues(block, spec, 0), Each(50.0F));
  EXPECT_THAT(RowValues(block, spec, 1), Each(50.0F));
  EXPECT_THAT(RowValues(block, spec, 2), Each(30.0F));
  EXPECT_THAT(block.state, ElementsAre(50, 50, 50, 50, 30, 30, 0, 0));
}

TEST(MemoryTableTest, ABfloat16TableGivesBackRoundedValuesAndExactState) {
  const EmbeddingSpec spec{.row_count = 2, .dim = 3, .element_type = ElementType::kBfloat16};
  const auto table = MakeMemoryEmbeddingTable(spec);
  RowBlock written = FilledBlock(spec, {1}, 0, 1.0F / 3);
  ASSERT_OK(table->Write(written));
  RowBlock read{.ids = {1}};
  ASSERT_OK(table->Read(read));
  EXPECT_EQ(read.state, written.state);
  EXPECT_NE(read.values, written.values);
  RoundToStored(spec.element_type, written.values);
  EXPECT_EQ(read.values, written.values);
}

TEST(MemoryTableTest, RefusesRowsBeyondTheTable) {
  const EmbeddingSpec spec{.row_count = 4, .dim = 2};
  const auto table = MakeMemoryEmbeddingTable(spec);
  RowBlock block{.ids = {1, 4}};
  EXPECT_THAT(table->Read(block), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(table->Write(FilledBlock(spec, {1, 4}, 0, 1)), IsStatus(Code::kInvalidArgument));
  block.ids = {1};
  ASSERT_OK(table->Read(block));
  EXPECT_EQ(block.timestamps[0], kNeverWritten) << "nothing of a refused block is written";
  block.ids = {};
  EXPECT_OK(table->Read(block));
}

TEST(MemoryTableTest, NoRowIsTornUnderConcurrentWrites) {
  const EmbeddingSpec spec{.row_count = 3, .dim = 2000, .init = InitKind::kZeros};
  const auto table = MakeMemoryEmbeddingTable(spec);
  constexpr int64_t kWrites = 6000;
  std::atomic<int64_t> clock{0};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 2; ++writer) {
    writers.emplace_back([&] {
      for (int64_t now = clock++; now < kWrites; now = clock++) {
        ASSERT_OK(table->Write(FilledBlock(spec, {0, 1, 2}, now, static_cast<float>(now))));
      }
    });
  }
  std::vector<int64_t> newest(3, kNeverWritten);
  RowBlock block{.ids = {0, 1, 2}};
  while (clock < kWrites && !HasFailure()) {
    ASSERT_OK(table->Read(block));
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(block.timestamps[i], newest[i]);
      newest[i] = block.timestamps[i];
      EXPECT_TRUE(RowIsFilled(block, spec, i, static_cast<float>(std::max<int64_t>(0, newest[i]))));
    }
  }
  for (std::thread& writer : writers) writer.join();
  ASSERT_OK(table->Read(block));
  EXPECT_THAT(block.timestamps, Each(kWrites - 1));
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(RowIsFilled(block, spec, i, kWrites - 1));
}

}  // namespace
}  // namespace quarry
