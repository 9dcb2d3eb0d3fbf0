// Whole-graph inference, layer by layer and out of core, beside dense layers in memory.
#include "infer_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph_memory.h"
#include "layer_bytes.h"
#include "matrix.h"
#include "plain_gnn.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/import/import.h"
#include "random_block.h"
#include "support/array_files.h"
#include "support/flip_byte.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"

namespace quarry {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGraphSeed = 31;
constexpr uint32_t kGraphNodes = 2500, kGraphDim = 900;  // 256 rows lie in a group
constexpr NodeId kLonely = 17, kHub = 40;

// A database of random features, and what is in it.
class GraphWorld {
 public:
  // Neighbors lie at most `reach` nodes away; 0: anywhere.
  explicit GraphWorld(uint32_t reach, uint64_t hub_edges = 0) {
    Rng rng(kGraphSeed);
    features_ = RandomMatrix(rng, size_t{kGraphNodes} * kGraphDim);
    const auto add = [&](NodeId from, NodeId to) {
      if (from == kLonely || to == kLonely) return;
      edges_.emplace_back(from, to);
    };
    for (NodeId v = 0; v < kGraphNodes; v++) {
      for (uint64_t k = rng.Below(9); k > 0; k--) {
        const int64_t near = int64_t{v} + static_cast<int64_t>(rng.Below(2 * reach + 1)) - reach;
        add(reach == 0 ? static_cast<NodeId>(rng.Below(kGraphNodes))
                       : static_cast<NodeId>(std::clamp<int64_t>(near, 0, kGraphNodes - 1)),
            v);
      }
      if (v % 7 == 0 && !edges_.empty()) edges_.push_back(edges_.back());  // parallel
      if (reach == 0 && v % 3 == 0) add(v, kHub);
    }
    for (; hub_edges > 0; hub_edges--) add(static_cast<NodeId>(rng.Below(kGraphNodes)), kHub);
    std::vector<std::pair<int64_t, int64_t>> pairs(edges_.begin(), edges_.end());
    folder_.Write("graph/edges.npy", NpyEdges(pairs));
    folder_.Write("graph/features.npy", NpyFile(features_, {kGraphNodes, kGraphDim}));
    backend_ = MakeDefaultBackend();
    EXPECT_OK(ImportDatabase(*backend_, path(), OpenDataset(folder_ / "graph", {}).value(),
                             {.both_directions = true}));
    store_ = Store::Open(*backend_, path()).value();
    // Rows that are newer than the file.
    WriteBatch batch;
    for (const NodeId v : {NodeId{3}, NodeId{700}, NodeId{kGraphNodes - 1}}) {
      const std::span row = std::span(features_).subspan(size_t{v} * kGraphDim, kGraphDim);
      for (float& value : row) value = static_cast<float>(rng.Unit());
      batch.Put("feature", v, std::as_bytes(row));
    }
    EXPECT_OK(store_->Write(batch));
  }

  std::string path() const { return folder_ / "x.db"; }
  Store& store() { return *store_; }
  const std::vector<float>& features() const { return features_; }

  Block Lists(Direction direction) const {
    std::vector<std::vector<uint32_t>> lists(kGraphNodes);
    for (const auto& [from, to] : edges_) {
      if (direction != Direction::kOut) lists[to].push_back(from);
      if (direction != Direction::kIn) lists[from].push_back(to);
    }
    Block block;
    block.hop_offsets.assign(3, kGraphNodes);
    block.indptr.push_back(0);
    for (const auto& list : lists) {
      block.indices.insert(block.indices.end(), list.begin(), list.end());
      block.indptr.push_back(static_cast<uint32_t>(block.indices.size()));
    }
    return block;
  }

  torch::Tensor Features(RowNorm norm) const {
    const torch::Tensor rows = DoubleTensor(features_).view({kGraphNodes, kGraphDim});
    return norm == RowNorm::kNone ? rows : rows / rows.norm(2, 1, /*keepdim=*/true);
  }

 private:
  TemporaryFolder folder_{"infer-layers"};
  std::vector<float> features_;
  std::vector<std::pair<NodeId, NodeId>> edges_;
  std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<Store> store_;
};

GraphWorld& Anywhere() {
  static auto* const world = new GraphWorld(0);
  return *world;
}
GraphWorld& Near() {
  static auto* const world = new GraphWorld(15);
  return *world;
}

std::unique_ptr<GnnLayers> LayersOf(const ModelSpec& spec, unsigned threads) {
  SetBlasThreads(1, threads);
  auto layers = GnnLayers::Make({.spec = spec,
                                 .widths = {kGraphDim, 24, 6},
                                 .seed = kGraphSeed,
                                 .threads = threads,
                                 .split_products = true})
                    .value();
  Rng rng(kGraphSeed);  // biases, too
  for (const std::span<float> parameter : layers->Parameters()) {
    for (float& value : parameter) value += static_cast<float>(0.2 * (rng.Unit() - 0.5));
  }
  return layers;
}

constexpr uint64_t kPlenty = 30 * kMiB;  // for one range
// For several, of a block or two. The largest elements are of whole rows, and so are their states.
uint64_t Few(const ModelSpec& spec) {
  return spec.model == GnnKind::kSage && spec.aggregator == Aggregator::kMax ? 2100 * kKiB : 120 * kKiB;
}

struct Inferred {
  std::vector<float> rows;
  GraphPass pass;
};

// As many windows as a budget of `range_bytes` for each makes.
Result<Inferred> Infer(GraphWorld& world, const ModelSpec& spec, Direction direction, uint64_t range_bytes,
                       unsigned threads = 2, RowNorm norm = RowNorm::kNone, uint32_t layer_count = 2) {
  const auto layers = LayersOf(spec, threads);
  MemoryBudget budget(64 * kMiB);
  const GraphSource source{.store = world.store(),
                           .budget = budget,
                           .direction = direction,
                           .block_bytes = 16 * kKiB,
                           .range_bytes_max = range_bytes};
  Inferred inferred;
  uint64_t told = 0;
  QUARRY_TRY(inferred.pass, InferLayers(
                                *layers, layer_count, source, norm,
                                [&](NodeId first, std::span<const float> rows) {
                                  EXPECT_EQ(first, inferred.rows.size() / (layer_count == 2 ? 6 : 24));
                                  inferred.rows.insert(inferred.rows.end(), rows.begin(), rows.end());
                                  return Status::Ok();
                                },
                                [&](uint64_t done, uint64_t total) {
                                  EXPECT_GE(done, told);
                                  EXPECT_EQ(total, layer_count * kGraphNodes);
                                  told = done;
                                  return Status::Ok();
                                }));
  EXPECT_EQ(told, layer_count * kGraphNodes);
  EXPECT_EQ(budget.used_bytes(), 0u);
  return inferred;
}

class InferLayersTest : public testing::TestWithParam<ModelSpec> {};
INSTANTIATE_TEST_SUITE_P(Models, InferLayersTest,
                         testing::Values(ModelSpec{}, ModelSpec{.aggregator = Aggregator::kSum},
                                         ModelSpec{.aggregator = Aggregator::kMax},
                                         ModelSpec{.model = GnnKind::kGcn},
                                         ModelSpec{.model = GnnKind::kGat, .heads = 3},
                                         ModelSpec{.model = GnnKind::kGin}));

TEST_P(InferLayersTest, GivesWhatDenseLayersGiveInAnyMemory) {
  SCOPED_TRACE(fmt::format("seed {}", kGraphSeed));
  static uint64_t tests = 0;
  testing_util::SomeOf some(tests++, 2);
  for (GraphWorld* const world : {&Anywhere(), &Near()}) {
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      if (!some.TakesNext()) continue;
      const RowNorm norm = direction == Direction::kOut ? RowNorm::kL2 : RowNorm::kNone;
      const auto layers = LayersOf(GetParam(), 1);
      const auto parameters = PlainGnnParameters(GetParam(), layers->Parameters(), {kGraphDim, 24, 6});
      const torch::NoGradGuard no_gradients;
      const torch::Tensor expected =
          PlainGnn(GetParam(), world->Lists(direction), world->Features(norm), parameters).contiguous();
      std::vector<float> first;
      for (const uint64_t range_bytes : {Few(GetParam()), kPlenty}) {
        for (const unsigned threads : {1U, 3U}) {
          const auto inferred = Infer(*world, GetParam(), direction, range_bytes, threads, norm);
          ASSERT_OK(inferred);
          ASSERT_EQ(inferred->rows.size(), size_t{kGraphNodes} * 6);
          if (threads == 1) first = inferred->rows;
          EXPECT_EQ(inferred->rows, first) << "other bits with " << threads << " threads";
          const std::vector<LayerPass>& passes = inferred->pass.layers;
          ASSERT_EQ(passes.size(), 2u);
          if (range_bytes == kPlenty) {
            EXPECT_EQ(passes[0].ranges + passes[1].ranges, 2u);
          } else {
            EXPECT_GE(passes[0].ranges, 4u);
          }
        }
        const double largest = expected.abs().max().item<double>();
        for (size_t i = 0; i < first.size(); i++) {
          const double value = expected.data_ptr<double>()[i];
          ASSERT_NEAR(first[i], value, 1e-4 * std::max(1.0, std::abs(value)) + 1e-6 * largest)
              << "node " << i / 6 << ", ranges of " << range_bytes;
        }
      }
    }
  }
}

TEST_P(InferLayersTest, ReadsRowsAndEdgesOnceWhereNeighborsAreNear) {
  for (const uint64_t range_bytes : {Few(GetParam()), kPlenty}) {
    const auto near = Infer(Near(), GetParam(), Direction::kIn, range_bytes);
    ASSERT_OK(near);
    const LayerPass sum = near->pass.Sum();
    EXPECT_GE(sum.read_bytes(), sum.least_bytes);
    EXPECT_NEAR(static_cast<double>(sum.read_bytes()), static_cast<double>(sum.predicted_bytes),
                0.25 * static_cast<double>(sum.read_bytes()))
        << sum.ranges << " ranges";
    if (range_bytes == kPlenty) {
      EXPECT_LE(static_cast<double>(sum.read_bytes()), 1.1 * static_cast<double>(sum.least_bytes));
    }
    const auto anywhere = Infer(Anywhere(), GetParam(), Direction::kIn, range_bytes);
    ASSERT_OK(anywhere);
    const LayerPass scattered = anywhere->pass.Sum();
    EXPECT_NEAR(static_cast<double>(scattered.read_bytes()), static_cast<double>(scattered.predicted_bytes),
                0.25 * static_cast<double>(scattered.read_bytes()))
        << scattered.ranges << " ranges";
  }
}

TEST_P(InferLayersTest, FormsAreThoseThatMemoryIsCountedBy) {
  const auto layers = LayersOf(GetParam(), 1);
  const std::vector<uint32_t> widths = {kGraphDim, 24, 6};
  for (uint32_t l = 0; l < 2; l++) {
    for (const GraphOrder order : {GraphOrder::kProductLast, GraphOrder::kLeastState}) {
      const GraphForm counted =
          GraphFormOf(GetParam(), {.in = widths[l], .out = widths[l + 1], .last = l == 1}, order);
      EXPECT_EQ(layers->ForGraph(l, order).form(), counted);
    }
  }
}

// More edges than are in memory at a time.
TEST_P(InferLayersTest, AListComesInPieces) {
  GraphWorld world(0, 200'000);
  const Block block = world.Lists(Direction::kBoth);
  const std::vector<uint64_t> indptr(block.indptr.begin(), block.indptr.end());
  std::vector<float> expected = world.features();
  ASSERT_OK(ForwardGraph(*LayersOf(GetParam(), 1), indptr, block.indices, expected));
  const auto inferred = Infer(world, GetParam(), Direction::kBoth, Few(GetParam()) + 900 * kKiB);
  ASSERT_OK(inferred);
  double largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  // A list of 100,000 is added up in another order, and in floats.
  for (size_t i = 0; i < expected.size(); i++) {
    ASSERT_NEAR(inferred->rows[i], expected[i], 5e-4 * largest) << "node " << i / 6;
  }
}

TEST(InferLayers, LeavesNothingBehind) {
  ASSERT_OK(Infer(Near(), {}, Direction::kIn, kPlenty));
  for (const auto& entry : std::filesystem::directory_iterator(Near().path() + "/embeddings")) {
    ADD_FAILURE() << entry.path();
  }
}

TEST(InferLayers, EmbeddingsAreWhatTheLastLayerTakes) {
  const auto embeddings = Infer(Near(), {}, Direction::kIn, kPlenty, 1, RowNorm::kNone, 1);
  ASSERT_OK(embeddings);
  EXPECT_EQ(embeddings->rows.size(), size_t{kGraphNodes} * 24);
  EXPECT_GE(*std::ranges::min_element(embeddings->rows), 0) << "they are activated";
  EXPECT_EQ(embeddings->pass.layers.size(), 1u);
  EXPECT_EQ(embeddings->pass.Sum().written_bytes, 0u);
}

TEST(InferLayers, WhatHasNoRoomIsRefused) {
  EXPECT_THAT(Infer(Anywhere(), {}, Direction::kIn, 100),
              IsStatus(Code::kOutOfBudget, HasSubstr("a layer of the whole graph takes")));
}

TEST(InferLayers, DamageIsFound) {
  GraphWorld world(0);
  const std::shared_ptr<const Manifest> manifest = world.store().manifest();
  const std::string features = world.path() + "/" + manifest->FindTable("feature")->file;
  testing_util::FlipByte(features, 1 * kMiB + 77);
  EXPECT_THAT(Infer(world, {}, Direction::kIn, kPlenty), IsStatus(Code::kCorruption, HasSubstr("feature")));
  testing_util::FlipByte(features, 1 * kMiB + 77);
  ASSERT_OK(Infer(world, {}, Direction::kIn, kPlenty));
}

TEST(InferLayers, EndsWithTheErrorsOfTheCaller) {
  const auto layers = LayersOf({}, 1);
  MemoryBudget budget(64 * kMiB);
  const GraphSource source{.store = Near().store(), .budget = budget};
  const auto fine = [](uint64_t, uint64_t) { return Status::Ok(); };
  const auto take = [](NodeId, std::span<const float>) { return Status::Ok(); };
  EXPECT_THAT(InferLayers(
                  *layers, 2, source, RowNorm::kNone,
                  [](NodeId, std::span<const float>) { return Status(Code::kNoSpace, "full"); }, fine),
              IsStatus(Code::kNoSpace));
  EXPECT_THAT(InferLayers(*layers, 2, source, RowNorm::kNone, take,
                          [](uint64_t, uint64_t) { return Status(Code::kCancelled, "enough"); }),
              IsStatus(Code::kCancelled));
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace quarry
