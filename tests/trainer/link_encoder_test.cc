#include "link_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "link_task.h"
#include "quarry/base/random.h"
#include "quarry/format/fanouts.h"
#include "quarry/import/import.h"
#include "quarry/trainer/link_features.h"
#include "quarry/trainer/link_train.h"
#include "support/array_files.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "trainer/link_course.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using Pairs = std::set<std::pair<NodeId, NodeId>>;

constexpr uint64_t kEncoderSeed = 23;

std::vector<Triple> RandomEdges(Rng& rng, size_t count, uint32_t nodes, uint32_t relations) {
  std::vector<Triple> edges;
  for (size_t i = 0; i < count; i++) {
    edges.push_back({static_cast<NodeId>(rng.Below(nodes)), static_cast<uint32_t>(rng.Below(relations)),
                     static_cast<NodeId>(rng.Below(nodes))});
  }
  return edges;
}

LinkData RandomData() {
  Rng rng(kEncoderSeed);
  LinkData data;
  data.node_count = 130;
  data.relation_count = 3;
  data.train = RandomEdges(rng, 600, 120, 3);  // ten nodes have no neighbors
  data.valid = RandomEdges(rng, 50, 130, 3);
  data.test = RandomEdges(rng, 50, 130, 3);
  return data;
}

LinkTrainOptions EncoderOptions(std::vector<uint32_t> fanouts) {
  LinkTrainOptions options;
  options.spec.dim = 8;
  options.encoder_fanouts = std::move(fanouts);
  options.encoder_learning_rate = 0.01F;
  options.batch_edges = 100;
  options.chunk_edges = 50;
  options.negatives = 30;
  options.optimizer_options.learning_rate = 0.2F;
  options.epochs = 3;
  options.seed = kEncoderSeed;
  options.ordered = true;
  return options;
}

// Both ways round.
Pairs PairsOf(std::span<const Triple> edges) {
  Pairs pairs;
  for (const Triple& edge : edges) {
    pairs.emplace(edge.head, edge.tail);
    pairs.emplace(edge.tail, edge.head);
  }
  return pairs;
}

Pairs PairsOf(const Block& block) {
  Pairs pairs;
  for (uint32_t node = 0; node + 1 < block.indptr.size(); node++) {
    for (uint32_t e = block.indptr[node]; e < block.indptr[node + 1]; e++) {
      pairs.emplace(block.nodes[node], block.nodes[block.indices[e]]);
    }
  }
  return pairs;
}

std::vector<NodeId> AllNodes(const LinkData& data) {
  std::vector<NodeId> nodes(data.node_count);
  for (NodeId node = 0; node < nodes.size(); node++) nodes[node] = node;
  return nodes;
}

TEST(LinkEncoder, NeighborsAreTheOtherEndsOfTrainingEdges) {
  SCOPED_TRACE(fmt::format("seed {}", kEncoderSeed));
  const LinkData data = RandomData();
  const auto encoder = LinkEncoder::Make(data, EncoderOptions({1000})).value();
  const std::vector<NodeId> nodes = AllNodes(data);
  LinkNeighborhood neighborhood;
  ASSERT_OK(encoder->Sample(0, nodes, neighborhood));
  EXPECT_EQ(PairsOf(neighborhood.block), PairsOf(data.train));
}

TEST(LinkEncoder, SamplesAreAFunctionOfSeedAndBatch) {
  const LinkData data = RandomData();
  const auto encoder = LinkEncoder::Make(data, EncoderOptions({3, 2})).value();
  const std::vector<NodeId> seeds = {3, 17, 4, 99};
  LinkNeighborhood used, fresh;
  ASSERT_OK(encoder->Sample(5, seeds, used));
  const std::vector<uint32_t> other = used.block.indices;
  ASSERT_OK(encoder->Sample(6, seeds, used));
  ASSERT_OK(encoder->Sample(6, seeds, fresh));
  EXPECT_EQ(used.block.indices, fresh.block.indices);
  EXPECT_EQ(used.rows, fresh.rows);
  EXPECT_NE(used.block.indices, other);
}

// Held out by share, of the one topology that there is.
TEST(LinkEncoder, EdgesThatAreHeldOutAreNobodysNeighbors) {
  SCOPED_TRACE(fmt::format("seed {}", kEncoderSeed));
  Rng rng(kEncoderSeed);
  std::vector<std::pair<int64_t, int64_t>> edges;
  for (int i = 0; i < 2000; i++) edges.emplace_back(rng.Below(300), rng.Below(300));
  const TemporaryFolder folder("link-encoder");
  folder.Write("graph/edges.npy", NpyEdges(edges));
  const auto backend = MakeDefaultBackend();
  ASSERT_OK(ImportDatabase(*backend, folder / "x.db", OpenDataset(folder / "graph", {}).value(), {}));
  const auto store = Store::Open(*backend, folder / "x.db").value();
  ASSERT_OK_AND_ASSIGN(const auto data,
                       LoadLinkData(*store, Plenty(), {.valid = 0.1, .test = 0.2, .seed = kEncoderSeed}));
  ASSERT_GT(data.test.size(), 200u);
  const auto encoder = LinkEncoder::Make(data, EncoderOptions({1000})).value();
  LinkNeighborhood neighborhood;
  ASSERT_OK(encoder->Sample(0, AllNodes(data), neighborhood));
  const Pairs sampled = PairsOf(neighborhood.block);
  EXPECT_EQ(sampled, PairsOf(data.train));
  for (const auto* held_out : {&data.valid, &data.test}) {
    for (const auto& pair : PairsOf(*held_out)) EXPECT_FALSE(sampled.contains(pair));
  }
}

class LinkEncodersTest : public testing::TestWithParam<ModelSpec> {
 protected:
  static LinkTrainOptions Options(std::vector<uint32_t> fanouts) {
    LinkTrainOptions options = EncoderOptions(std::move(fanouts));
    options.encoder = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Encoders, LinkEncodersTest,
                         testing::Values(ModelSpec{}, ModelSpec{.aggregator = Aggregator::kMax},
                                         ModelSpec{.model = GnnKind::kGcn},
                                         ModelSpec{.model = GnnKind::kGat, .heads = 2},
                                         ModelSpec{.model = GnnKind::kGin},
                                         ModelSpec{.model = GnnKind::kRgcn, .bases = 3},
                                         ModelSpec{.model = GnnKind::kRgat, .heads = 2, .bases = 2}));

TEST_P(LinkEncodersTest, EncodesAllNodesAsItDoesABatchWithAllNeighbors) {
  const LinkData data = RandomData();
  const LinkTrainOptions options = Options({kAllNeighbors, kAllNeighbors});
  const auto encoder = LinkEncoder::Make(data, options).value();
  Rng rng(kEncoderSeed);
  std::vector<float> values(data.node_count * options.spec.dim);
  for (float& value : values) value = static_cast<float>(rng.Unit() - 0.5);
  LinkNeighborhood neighborhood;
  ASSERT_OK(encoder->Sample(0, AllNodes(data), neighborhood));
  std::vector<float> all = values;
  ASSERT_OK(encoder->EncodeAll(all));
  const std::span<const float> outputs = encoder->Forward(neighborhood, values).value();
  ASSERT_EQ(outputs.size(), all.size());
  for (size_t i = 0; i < all.size(); i++)
    ASSERT_NEAR(all[i], outputs[i], 1e-5 * std::max(1.0F, std::abs(outputs[i]))) << i;
}

// A batch on its way by hand, with plain gradient descent at rate 1: a step is the gradient.
class OneBatch {
 public:
  OneBatch(const LinkData& data, const LinkTrainOptions& options) : task_(data, options) {
    EXPECT_OK(task_.MakeEncoder());
    EXPECT_OK(task_.StartEpoch(1, {}));
    item_.blocks.resize(2);
    EXPECT_OK(task_.Prepare(item_));
    Rng rng(kEncoderSeed + 1);
    const size_t dims[] = {options.spec.dim, options.spec.relation_dim()};
    for (size_t t = 0; t < 2; t++) {
      values_[t].resize(item_.blocks[t].ids.size() * dims[t]);
      for (float& value : values_[t]) value = static_cast<float>(2 * rng.Unit() - 1);
    }
  }

  using Rows = std::vector<float>[2];
  const Rows& values() const { return values_; }

  // The loss at values + step * direction; its gradients go to `gradients`.
  double Loss(const Rows& direction, double step, Rows& gradients) {
    for (size_t t = 0; t < 2; t++) {
      std::vector<float>& values = item_.blocks[t].values;
      values = values_[t];
      for (size_t i = 0; i < values.size(); i++) values[i] += static_cast<float>(step * direction[t][i]);
      gradients[t] = values;
    }
    const double before = task_.loss();
    EXPECT_OK(task_.Compute(item_));
    for (size_t t = 0; t < 2; t++) {
      for (size_t i = 0; i < gradients[t].size(); i++) gradients[t][i] -= item_.blocks[t].values[i];
    }
    return task_.loss() - before;
  }

 private:
  LinkTask task_;
  EmbeddingItem item_;
  Rows values_;
};

double Dot(const OneBatch::Rows& a, const OneBatch::Rows& b) {
  double sum = 0;
  for (size_t t = 0; t < 2; t++) {
    for (size_t i = 0; i < a[t].size(); i++) sum += double{a[t][i]} * double{b[t][i]};
  }
  return sum;
}

struct Chain {
  DecoderKind decoder;
  std::vector<uint32_t> fanouts;
  ModelSpec encoder = {};
};

class LinkEncoderGradientTest : public testing::TestWithParam<Chain> {};

// From the loss through decoder, encoder and sampled block to the rows of the tables, in random directions
// and in that of the gradient itself.
TEST_P(LinkEncoderGradientTest, StepsOfTheRowsFollowTheSlopeOfTheLoss) {
  const LinkData data = RandomData();
  LinkTrainOptions options = EncoderOptions(GetParam().fanouts);
  options.spec.decoder = GetParam().decoder;
  options.encoder = GetParam().encoder;
  options.optimizer = OptimizerKind::kSgd;
  options.optimizer_options.learning_rate = 1;
  options.encoder_learning_rate = 1e-30F;  // its weights stay as they are
  OneBatch batch(data, options);
  OneBatch::Rows gradient, unused, direction = {batch.values()[0], batch.values()[1]};
  batch.Loss(direction, 0, gradient);
  const double square = Dot(gradient, gradient);
  ASSERT_GT(square, 0.1);
  Rng rng(kEncoderSeed + 2);
  for (int round = 0; round < 4; round++) {
    SCOPED_TRACE(fmt::format("seed {}, round {}", kEncoderSeed, round));
    for (size_t t = 0; t < 2; t++) {
      for (size_t i = 0; i < direction[t].size(); i++) {
        direction[t][i] = round == 0 ? gradient[t][i] : static_cast<float>(2 * rng.Unit() - 1);
      }
    }
    const double length = std::sqrt(Dot(direction, direction));
    const double step = 0.02 / length;
    const double slope =
        (batch.Loss(direction, step, unused) - batch.Loss(direction, -step, unused)) / (2 * step);
    EXPECT_NEAR(slope / length, Dot(direction, gradient) / length, 0.01 * std::sqrt(square));
  }
}

std::string NameOfChain(const testing::TestParamInfo<Chain>& info) {
  return fmt::format("{}{}{}", DecoderName(info.param.decoder), info.param.fanouts.size(),
                     NameOf(info.param.encoder.model));
}
INSTANTIATE_TEST_SUITE_P(
    Chains, LinkEncoderGradientTest,
    testing::Values(Chain{DecoderKind::kDistMult, {4}}, Chain{DecoderKind::kDistMult, {4, 3}},
                    Chain{DecoderKind::kComplEx, {4}}, Chain{DecoderKind::kTransE, {3, 3, 2}},
                    Chain{DecoderKind::kDistMult, {4}, {.model = GnnKind::kGat}},
                    Chain{DecoderKind::kComplEx, {4, 3}, {.model = GnnKind::kGat, .heads = 2}},
                    Chain{DecoderKind::kDistMult, {4, 3}, {.model = GnnKind::kGcn}},
                    Chain{DecoderKind::kDistMult, {4}, {.model = GnnKind::kGin}},
                    Chain{DecoderKind::kDistMult, {4}, {.model = GnnKind::kRgcn, .bases = 2}},
                    Chain{DecoderKind::kComplEx, {4, 3}, {.model = GnnKind::kRgcn}},
                    Chain{DecoderKind::kDistMult, {4}, {.model = GnnKind::kRgat, .bases = 2}},
                    Chain{DecoderKind::kComplEx, {4}, {.model = GnnKind::kRgat, .heads = 2, .bases = 3}}),
    NameOfChain);

// Every batch uses most rows, so batches in flight read rows that others are about to write.
TEST_P(LinkEncodersTest, InOrderOacIsSyncToTheLastBitForAnyNumberOfWorkersAndThreads) {
  const LinkData data = RandomData();
  LinkTrainOptions options = Options({5, 4});
  options.mode = AsyncMode::kSync;
  const Course sync = Follow(data, options);
  for (const auto& [mode, workers, threads] :
       {std::tuple(AsyncMode::kSync, 3, 2), std::tuple(AsyncMode::kOac, 1, 1),
        std::tuple(AsyncMode::kOac, 4, 3)}) {
    SCOPED_TRACE(fmt::format("seed {}, mode {}, {} workers, {} threads", kEncoderSeed, static_cast<int>(mode),
                             workers, threads));
    options.mode = mode;
    options.workers = static_cast<unsigned>(workers);
    options.compute_threads = static_cast<unsigned>(threads);
    const Course course = Follow(data, options);
    EXPECT_EQ(course.losses, sync.losses);
    EXPECT_EQ(course.mrrs, sync.mrrs);
    EXPECT_EQ(course.summary.test->raw.mrr, sync.summary.test->raw.mrr);
    EXPECT_EQ(course.summary.stats.rows_replaced > 0, mode == AsyncMode::kOac);
  }
}

// 20 groups of 8 nodes; each node has edges to half of its group.
LinkData Groups() {
  constexpr uint32_t kGroups = 20, kMembers = 8;
  LinkData data;
  data.node_count = kGroups * kMembers;
  Rng rng(kEncoderSeed);
  for (NodeId head = 0; head < data.node_count; head++) {
    for (uint32_t member = 0; member < kMembers; member++) {
      const NodeId tail = head / kMembers * kMembers + member;
      if (tail == head || rng.Below(2) == 0) continue;
      (rng.Below(8) == 0 ? data.test : data.train).push_back({head, 0, tail});
    }
  }
  return data;
}

TEST_P(LinkEncodersTest, LearnsTheGroupsOfAGraph) {
  SCOPED_TRACE(fmt::format("seed {}", kEncoderSeed));
  const LinkData data = Groups();
  LinkTrainOptions options = Options({5});
  options.spec.decoder = DecoderKind::kDot;
  options.spec.dim = 16;
  options.epochs = 30;
  const Course course = Follow(data, options);
  EXPECT_LT(course.losses.back(), 0.8 * course.losses.front());
  constexpr double kChance = 0.036;  // the mean of 1 / rank over 160 ranks
  EXPECT_GT(course.summary.test->filtered.mrr, 8 * kChance);
}

TEST_P(LinkEncodersTest, TrainingGoesOnFromAStateToTheSameBits) {
  const LinkData data = RandomData();
  const LinkTrainOptions options = Options({4, 3});
  const auto run = [&](LinkTask& task, uint64_t batch) {
    EmbeddingItem item{.batch = batch};
    item.blocks.resize(2);
    EXPECT_OK(task.Prepare(item));
    const uint32_t dims[] = {options.spec.dim, options.spec.relation_dim()};
    for (size_t t = 0; t < 2; t++) {
      item.blocks[t].values.assign(item.blocks[t].ids.size() * dims[t], 0.1F * static_cast<float>(batch + 1));
      item.blocks[t].state.assign(item.blocks[t].values.size(), 0.0F);
    }
    EXPECT_OK(task.Compute(item));
    return item.blocks[0].values;
  };
  LinkTask first(data, options), second(data, options);
  for (LinkTask* task : {&first, &second}) {
    ASSERT_OK(task->MakeEncoder());
    EXPECT_OK(task->TakeState({}));
    ASSERT_OK(task->StartEpoch(1, {}));
  }
  run(first, 0);
  run(first, 1);
  EXPECT_NE(first.State(), second.State());
  ASSERT_OK(second.TakeState(first.State()));
  EXPECT_EQ(run(first, 2), run(second, 2));
  EXPECT_EQ(first.State(), second.State());
  const LinkCounts counts{.nodes = data.node_count, .relations = data.relation_count};
  EXPECT_EQ(first.State().size(), LinkEncoderStateBytes(options, counts));

  const LinkTrainOptions no_encoder = EncoderOptions({});
  LinkTask without(data, no_encoder);
  EXPECT_TRUE(without.State().empty());
  EXPECT_THAT(without.TakeState(first.State()), IsStatus(Code::kCorruption));
}

// Relation 0 joins members of a group, relation 1 anybody: who tells them apart knows what to listen to.
TEST(LinkEncoder, TellsRelationsApart) {
  LinkData data = Groups();
  Rng rng(kEncoderSeed);
  data.relation_count = 2;
  for (int i = 0; i < 1500; i++) {
    data.train.push_back({static_cast<NodeId>(rng.Below(data.node_count)), 1,
                          static_cast<NodeId>(rng.Below(data.node_count))});
  }
  const auto mrr = [&](const ModelSpec& encoder) {
    LinkTrainOptions options = EncoderOptions({20});
    options.encoder = encoder;
    options.spec.dim = 16;
    options.epochs = 20;
    return Follow(data, options).summary.test->filtered.mrr;
  };
  EXPECT_GT(mrr({.model = GnnKind::kRgcn, .bases = 4}), 1.1 * mrr({.model = GnnKind::kGcn}));
  EXPECT_GT(mrr({.model = GnnKind::kRgat, .heads = 2, .bases = 4}),
            1.1 * mrr({.model = GnnKind::kGat, .heads = 2}));
}

// The groups, with features that tell a node's; the last member of each has no edge to train on, and all to be tested.
LinkData FeaturedGroups() {
  const LinkData groups = Groups();
  LinkData data;
  data.node_count = groups.node_count;
  for (const auto* edges : {&groups.train, &groups.test}) {
    for (const Triple& edge : *edges) {
      const bool is_new = edge.head % 8 == 7 || edge.tail % 8 == 7;
      (is_new ? data.test : data.train).push_back(edge);
    }
  }
  Rng rng(kEncoderSeed);
  for (NodeId node = 0; node < data.node_count; node++) {
    for (uint32_t c = 0; c < 24; c++) {
      data.features.push_back(static_cast<float>(rng.Unit() - 0.5) + (c == node / 8 ? 1.0F : 0.0F));
    }
  }
  return data;
}

LinkTrainOptions FeatureOptions(const ModelSpec& encoder) {
  LinkTrainOptions options = EncoderOptions({5});
  options.encoder = encoder;
  options.encoder_learning_rate = 0.01F;
  options.spec.decoder = DecoderKind::kDot;
  options.spec.dim = 16;
  options.epochs = 30;
  options.feature_dim = 24;
  return options;
}

TEST_P(LinkEncodersTest, FeaturesTellOfNodesThatNoEdgeDoes) {
  SCOPED_TRACE(fmt::format("seed {}", kEncoderSeed));
  LinkData data = FeaturedGroups();
  LinkTrainOptions options = FeatureOptions(GetParam());
  const double by_features = Follow(data, options).summary.test->filtered.mrr;
  options.feature_dim = 0;
  data.features.clear();
  const double by_vectors = Follow(data, options).summary.test->filtered.mrr;
  RecordProperty("by_features", std::to_string(by_features));
  RecordProperty("by_vectors", std::to_string(by_vectors));
  constexpr double kChance = 0.036;
  EXPECT_GT(by_features, 3 * kChance);
  EXPECT_GT(by_features, 1.5 * by_vectors);
}

// Decoders that have vectors of relations learn these beside.
TEST(LinkEncoder, FeaturesAreTrainedOnToTheSameBitsForAnyNumberOfWorkersAndThreads) {
  LinkData data = FeaturedGroups();
  LinkTrainOptions options = FeatureOptions({});
  options.spec.decoder = DecoderKind::kDistMult;
  options.epochs = 3;
  options.mode = AsyncMode::kSync;
  const Course sync = Follow(data, options);
  EXPECT_LT(sync.losses.back(), sync.losses.front());
  options.mode = AsyncMode::kOac;
  options.workers = 4;
  options.compute_threads = 3;
  const Course course = Follow(data, options);
  EXPECT_EQ(course.losses, sync.losses);
  EXPECT_EQ(course.summary.test->raw.mrr, sync.summary.test->raw.mrr);
  // What is tested is then what the best epoch has learned.
  data.valid = data.test;
  options.patience = 100;
  options.epochs = 8;
  const Course kept = Follow(data, options);
  EXPECT_EQ(kept.summary.test->filtered.mrr, *std::ranges::max_element(kept.mrrs));
}

TEST(LinkEncoder, FeaturesThatDoNotFitAreRefused) {
  LinkData data = FeaturedGroups();
  LinkTrainOptions options = FeatureOptions({});
  MemoryBudget small(64 * kKiB);
  EXPECT_THAT(TrainLinks(data, options, small), IsStatus(Code::kOutOfBudget));
  const LinkFeatures source{.table = "rows",
                            .read = [&](std::span<const NodeId> nodes, std::span<float> rows) {
                              for (size_t i = 0; i < rows.size(); i++) {
                                rows[i] = nodes.front() * 24 + i == 24 * 100 + 3 ? NAN : 0.5F;
                              }
                              return Status::Ok();
                            }};
  EXPECT_THAT(LoadFeatures(source, options, small, data),
              IsStatus(Code::kInvalidArgument, HasSubstr("\"rows\", row 100, column 3 is nan")));
  MemoryBudget none(kKiB);
  EXPECT_THAT(LoadFeatures(source, options, none, data), IsStatus(Code::kOutOfBudget));
  data.features.resize(25);
  EXPECT_THAT(TrainLinks(data, options, Plenty()), IsStatus(Code::kInvalidArgument, HasSubstr("25 numbers")));
  options.encoder_fanouts.clear();
  EXPECT_THAT(CheckLinkTrainOptions(options), IsStatus(Code::kUsage, HasSubstr("given to an encoder")));
}

TEST(LinkEncoder, OptionsOutOfRangeAreNamed) {
  const auto refusal = [](std::vector<uint32_t> fanouts, float rate = 0.01F) {
    LinkTrainOptions options = EncoderOptions(std::move(fanouts));
    options.encoder_learning_rate = rate;
    const Status status = CheckLinkTrainOptions(options);
    EXPECT_THAT(status, IsStatus(Code::kUsage));
    return std::string(status.message());
  };
  EXPECT_OK(CheckLinkTrainOptions(EncoderOptions({1024, 1, kAllNeighbors})));
  EXPECT_THAT(refusal({10, 0}), HasSubstr("fanout is 0"));
  EXPECT_THAT(refusal({1025}), HasSubstr("fanout is 1025"));
  EXPECT_THAT(refusal({1, 1, 1, 1, 1, 1, 1, 1, 1}), HasSubstr("number of fanouts is 9"));
  EXPECT_THAT(refusal({10}, 0), HasSubstr("encoder learning rate is 0"));
  LinkTrainOptions options = EncoderOptions({4, 4});
  options.encoder = {.model = GnnKind::kGat, .heads = 3};
  EXPECT_THAT(CheckLinkTrainOptions(options), IsStatus(Code::kUsage, HasSubstr("3 heads cannot share")));
  options.encoder = {.model = GnnKind::kGat, .attention_dropout = 0.5};
  EXPECT_THAT(CheckLinkTrainOptions(options), IsStatus(Code::kUsage, HasSubstr("drops nothing")));
}

TEST_P(LinkEncodersTest, HoldsNoMoreThanWhatIsStated) {
  const LinkData data = RandomData();
  const LinkCounts counts{.nodes = data.node_count, .relations = 3, .train_edges = data.train.size()};
  for (const std::vector<uint32_t>& fanouts : {std::vector<uint32_t>{5, 4}, {kAllNeighbors, kAllNeighbors}}) {
    LinkTrainOptions options = Options(fanouts);
    options.mode = AsyncMode::kSync;
    const auto encoder = LinkEncoder::Make(data, options).value();
    LinkNeighborhood neighborhood;
    ASSERT_OK(encoder->Sample(0, AllNodes(data), neighborhood));
    EXPECT_LE(neighborhood.block.nodes.size(), LinkInputNodes(options, counts, data.node_count));
    EXPECT_LE(neighborhood.block.memory_bytes() + neighborhood.sampler->scratch_bytes(),
              LinkEncoderBytes(options, counts, data.node_count));
    MemoryBudget small(LinkEncoderBytes(options, counts, data.node_count));
    EXPECT_THAT(TrainLinks(data, options, small), IsStatus(Code::kOutOfBudget));
  }
  EXPECT_EQ(LinkEncoderBytes(EncoderOptions({}), counts, data.node_count), 0u);
}

}  // namespace
}  // namespace quarry
