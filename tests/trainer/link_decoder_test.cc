#include "link_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "link_autograd.h"
#include "link_reference.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kDecoderSeed = 20;

// A model with a batch, and what the decoder makes of them.
struct DecoderProblem {
  LinkSpec spec;
  OwnedBatch batch;
  std::vector<float> nodes, relations;
  std::vector<float> node_gradients, relation_gradients;
  double loss = 0;

  DecoderProblem(const LinkSpec& with, OwnedBatch edges, uint32_t node_count, uint32_t relation_count,
                 Rng& rng)
      : spec(with),
        batch(std::move(edges)),
        nodes(RandomValues<float>(rng, size_t{node_count} * spec.dim)),
        relations(RandomValues<float>(rng, size_t{relation_count} * spec.relation_dim())) {}

  void Compute(unsigned threads) {
    node_gradients.assign(nodes.size(), 0.0F);
    relation_gradients.assign(relations.size(), 0.0F);
    LinkDecoder decoder(spec, threads);
    loss = decoder.Compute(batch.view(), nodes, relations, node_gradients, relation_gradients);
  }

  double ReferenceLoss() const { return ReferenceTables<float>{spec, nodes, relations}.Loss(batch.view()); }
};

// Within 1e-4 of the largest gradient.
void ExpectGradientsOf(std::span<const float> got, const torch::Tensor& values) {
  if (got.empty()) return;  // a decoder without vectors of relations
  const torch::Tensor expected = values.grad().contiguous();
  ASSERT_EQ(static_cast<size_t>(expected.numel()), got.size());
  const double scale = expected.abs().max().item<double>();
  ASSERT_GT(scale, 0);
  for (size_t i = 0; i < got.size(); i++) {
    ASSERT_NEAR(got[i], expected.data_ptr<double>()[i], 1e-4 * scale + 1e-6) << i;
  }
}

// Against LibTorch's own of the formulas.
void ExpectGradients(const DecoderProblem& problem) {
  const torch::Tensor nodes = LinkLeaf(problem.nodes, problem.spec.dim);
  const torch::Tensor relations = LinkLeaf(problem.relations, problem.spec.relation_dim());
  const torch::Tensor loss = PlainLinkLoss(problem.spec, nodes, relations, problem.batch.view());
  EXPECT_NEAR(loss.item<double>(), problem.loss, 1e-5 * (1 + problem.loss));
  loss.backward();
  SCOPED_TRACE("nodes");
  ExpectGradientsOf(problem.node_gradients, nodes);
  SCOPED_TRACE("relations");
  ExpectGradientsOf(problem.relation_gradients, relations);
}

class LinkDecoderTest : public testing::TestWithParam<std::tuple<DecoderKind, LinkLoss>> {
 protected:
  LinkSpec Spec(uint32_t dim) const {
    return {.decoder = std::get<0>(GetParam()), .dim = dim, .loss = std::get<1>(GetParam()), .margin = 0.5F};
  }
};

INSTANTIATE_TEST_SUITE_P(AllKinds, LinkDecoderTest,
                         testing::Combine(testing::ValuesIn(kDecoderKinds),
                                          testing::Values(LinkLoss::kSoftmax, LinkLoss::kMargin)),
                         [](const auto& kind) {
                           return std::string(DecoderName(std::get<0>(kind.param))) + "_" +
                                  std::string(LinkLossName(std::get<1>(kind.param)));
                         });

TEST_P(LinkDecoderTest, GradientsAreThoseOfTheFormulas) {
  for (uint64_t seed = kDecoderSeed; seed < kDecoderSeed + 5; seed++) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    // Three chunks, the last one short; seven nodes, so that rows recur and some negatives are the truth.
    DecoderProblem problem(Spec(6), RandomBatch(rng, 10, 4, 5, 7, 3), 7, 3, rng);
    problem.Compute(2);
    EXPECT_NEAR(problem.loss, problem.ReferenceLoss(), 1e-5 * (1 + problem.loss));
    ExpectGradients(problem);
  }
}

// Large batches, too: several tiles, and floats that no vector divides.
TEST_P(LinkDecoderTest, GradientsOfRegularizedVectorsAreThoseOfTheFormulas) {
  for (const Regularization kind : {Regularization::kL2, Regularization::kN3}) {
    SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed << ", " << RegularizationName(kind));
    Rng rng(kDecoderSeed);
    LinkSpec spec = Spec(42);
    spec.regularization = kind;
    spec.regularization_weight = 0.3F;
    DecoderProblem large(spec, RandomBatch(rng, 300, 200, 5, 90, 5), 90, 5, rng);
    large.Compute(2);
    EXPECT_NEAR(large.loss, large.ReferenceLoss(), 1e-5 * large.loss);
    LinkSpec plain = spec;
    plain.regularization = Regularization::kNone;
    EXPECT_LT((ReferenceTables<float>{plain, large.nodes, large.relations}.Loss(large.batch.view())),
              0.99 * large.loss)
        << "it has a part that counts";
    spec.dim = 6;
    DecoderProblem small(spec, RandomBatch(rng, 10, 4, 5, 7, 3), 7, 3, rng);
    small.Compute(2);
    ExpectGradients(small);
  }
}

// Chunks of several tiles, a number of negatives that no vector divides, and rows far apart.
TEST_P(LinkDecoderTest, LossOfLargeBatchesIsThatOfTheFormula) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  Rng rng(kDecoderSeed);
  DecoderProblem problem(Spec(50), RandomBatch(rng, 700, 300, 37, 900, 5), 900, 5, rng);
  problem.Compute(2);
  EXPECT_NEAR(problem.loss, problem.ReferenceLoss(), 1e-5 * problem.loss);
}

TEST_P(LinkDecoderTest, GradientsOfLargeBatchesAreThoseOfTheFormula) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  Rng rng(kDecoderSeed);
  DecoderProblem problem(Spec(20), RandomBatch(rng, 300, 200, 37, 90, 5), 90, 5, rng);
  problem.Compute(2);
  ExpectGradients(problem);
}

TEST_P(LinkDecoderTest, AnyNumberOfThreadsGivesTheSameBits) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  Rng rng(kDecoderSeed);
  DecoderProblem problem(Spec(50), RandomBatch(rng, 500, 150, 60, 200, 5), 200, 5, rng);
  problem.Compute(1);
  for (const unsigned threads : {2U, 3U}) {
    DecoderProblem other = problem;
    other.Compute(threads);
    EXPECT_EQ(other.loss, problem.loss);
    EXPECT_EQ(other.node_gradients, problem.node_gradients);
    EXPECT_EQ(other.relation_gradients, problem.relation_gradients);
  }
}

TEST_P(LinkDecoderTest, GradientsAreAddedAndScratchIsReused) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  Rng rng(kDecoderSeed);
  DecoderProblem large(Spec(8), RandomBatch(rng, 40, 20, 30, 30, 4), 30, 4, rng);
  DecoderProblem small(Spec(8), RandomBatch(rng, 9, 4, 6, 30, 4), 30, 4, rng);
  small.Compute(2);
  LinkDecoder decoder(small.spec, 2);
  std::vector<float> nodes(large.nodes.size()), relations(large.relations.size());
  decoder.Compute(large.batch.view(), large.nodes, large.relations, nodes, relations);
  std::fill(nodes.begin(), nodes.end(), 1.0F);
  std::fill(relations.begin(), relations.end(), 1.0F);
  EXPECT_EQ(decoder.Compute(small.batch.view(), small.nodes, small.relations, nodes, relations), small.loss);
  for (size_t i = 0; i < nodes.size(); i++) ASSERT_NEAR(nodes[i], 1 + small.node_gradients[i], 1e-5);
  for (size_t i = 0; i < relations.size(); i++)
    ASSERT_NEAR(relations[i], 1 + small.relation_gradients[i], 1e-5);
}

TEST_P(LinkDecoderTest, NegativesThatAreTheTruthHaveNoPart) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  Rng rng(kDecoderSeed);
  OwnedBatch batch;
  batch.chunk_edges = 2;
  batch.negative_count = 20;
  batch.sources = {0, 0};
  batch.relations = {0, 1};
  batch.destinations = {1, 1};
  batch.source_negatives.assign(20, 0);
  batch.destination_negatives.assign(20, 1);
  DecoderProblem problem(Spec(4), batch, 2, 2, rng);
  problem.Compute(1);
  EXPECT_EQ(problem.loss, 0);
  EXPECT_THAT(problem.node_gradients, Each(0.0F));
  EXPECT_THAT(problem.relation_gradients, Each(0.0F));
}

TEST_P(LinkDecoderTest, NoEdgesHaveNoLoss) {
  Rng rng(kDecoderSeed);
  DecoderProblem problem(Spec(4), RandomBatch(rng, 0, 2, 3, 4, 2), 4, 2, rng);
  problem.Compute(2);
  EXPECT_EQ(problem.loss, 0);
  EXPECT_THAT(problem.node_gradients, Each(0.0F));
}

// Scores of thousands, where exp would overflow, and vectors of zeros, where distances are none.
TEST_P(LinkDecoderTest, ExtremeVectorsHaveFiniteGradients) {
  SCOPED_TRACE(testing::Message() << "seed " << kDecoderSeed);
  for (const float scale : {0.0F, 1e-20F, 1e3F}) {
    Rng rng(kDecoderSeed);
    DecoderProblem problem(Spec(8), RandomBatch(rng, 20, 20, 21, 9, 3), 9, 3, rng);
    for (float& value : problem.nodes) value *= scale;
    for (float& value : problem.relations) value *= scale;
    problem.Compute(1);
    EXPECT_TRUE(std::isfinite(problem.loss)) << scale;
    for (const float gradient : problem.node_gradients) ASSERT_TRUE(std::isfinite(gradient)) << scale;
    for (const float gradient : problem.relation_gradients) ASSERT_TRUE(std::isfinite(gradient)) << scale;
  }
}

TEST(LinkSpecTest, NamesAreParsedBack) {
  for (const DecoderKind kind : kDecoderKinds) {
    EXPECT_EQ(ParseDecoder(DecoderName(kind)).value(), kind);
  }
  for (const LinkLoss loss : {LinkLoss::kSoftmax, LinkLoss::kMargin}) {
    EXPECT_EQ(ParseLinkLoss(LinkLossName(loss)).value(), loss);
  }
  EXPECT_THAT(std::string(ParseDecoder("rescal").status().message()), HasSubstr("'rescal'"));
  EXPECT_THAT(ParseLinkLoss("bce"), IsStatus(Code::kUsage));
}

TEST(LinkSpecTest, ImpossibleOnesAreRefused) {
  EXPECT_OK(CheckLinkSpec({}));
  EXPECT_THAT(CheckLinkSpec({.dim = 0}), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(CheckLinkSpec({.decoder = DecoderKind::kComplEx, .dim = 51}), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(CheckLinkSpec({.decoder = DecoderKind::kRotatE, .dim = 51}), IsStatus(Code::kInvalidArgument));
  for (const float weight : {0.0F, -1.0F, NAN, INFINITY}) {
    EXPECT_THAT(CheckLinkSpec({.regularization = Regularization::kN3, .regularization_weight = weight}),
                IsStatus(Code::kInvalidArgument));
  }
  EXPECT_THAT(CheckLinkSpec({.regularization_weight = 0.1F}), IsStatus(Code::kInvalidArgument));
  EXPECT_OK(CheckLinkSpec({.regularization = Regularization::kL2, .regularization_weight = 0.1F}));
  EXPECT_THAT(CheckLinkSpec({.loss = LinkLoss::kMargin, .margin = 0}), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(CheckLinkSpec({.loss = LinkLoss::kMargin, .margin = NAN}), IsStatus(Code::kInvalidArgument));
}

}  // namespace
}  // namespace quarry
