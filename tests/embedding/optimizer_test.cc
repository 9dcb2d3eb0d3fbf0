// Optimizers against the textbook in double precision.
#include "quarry/embedding/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "quarry/base/random.h"

namespace quarry {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::FloatNear;

TEST(OptimizerTest, SgdMovesAgainstTheGradient) {
  std::vector<float> values = {1, 2};
  OptimizerStep(OptimizerKind::kSgd, {.learning_rate = 0.5F}, std::vector<float>{2, -4}, values, {});
  EXPECT_THAT(values, ElementsAre(0, 4));
}

TEST(OptimizerTest, AdagradDividesByTheRootOfTheSumOfSquares) {
  std::vector<float> values = {1, 1, 1}, state = {0, 16, 0};
  OptimizerStep(OptimizerKind::kAdagrad, {.learning_rate = 0.5F}, std::vector<float>{2, 3, 0}, values, state);
  EXPECT_THAT(state, ElementsAre(4, 25, 0));
  EXPECT_THAT(values, ElementsAre(FloatEq(0.5F), FloatEq(0.7F), 1)) << "0.5 * 2 / 2, 0.5 * 3 / 5, nothing";
}

TEST(OptimizerTest, AdamsFirstStepIsTheLearningRateWhateverTheGradient) {
  std::vector<float> values = {1, 1}, state(5);
  OptimizerStep(OptimizerKind::kAdam, {.learning_rate = 0.25F}, std::vector<float>{1e-3F, -70}, values,
                state);
  EXPECT_THAT(values, ElementsAre(FloatNear(0.75F, 1e-6F), FloatNear(1.25F, 1e-6F)));
  EXPECT_EQ(state[4], 1) << "steps that the row has seen";
}

// One element, in double.
struct Reference {
  double value, squares = 0, mean = 0, square = 0;
  void Step(OptimizerKind kind, const OptimizerOptions& o, double gradient, int step) {
    switch (kind) {
      case OptimizerKind::kSgd:
        value -= o.learning_rate * gradient;
        return;
      case OptimizerKind::kAdagrad:
        squares += gradient * gradient;
        value -= o.learning_rate * gradient / (std::sqrt(squares) + o.epsilon);
        return;
      case OptimizerKind::kAdam:
        mean = o.beta1 * mean + (1.0 - o.beta1) * gradient;
        square = o.beta2 * square + (1.0 - o.beta2) * gradient * gradient;
        const double mean_hat = mean / (1.0 - std::pow(o.beta1, step));
        const double square_hat = square / (1.0 - std::pow(o.beta2, step));
        value -= o.learning_rate * mean_hat / (std::sqrt(square_hat) + o.epsilon);
    }
  }
};

TEST(OptimizerTest, FollowsTheReferenceForThousandsOfSteps) {
  constexpr size_t kDim = 19;  // not a multiple of any vector width
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
    SCOPED_TRACE(testing::Message() << "optimizer " << static_cast<int>(kind));
    const EmbeddingSpec spec{.dim = kDim, .optimizer = kind};
    const OptimizerOptions options{.learning_rate = 0.01F, .epsilon = 1e-6F};
    Rng rng(5);
    std::vector<float> values(kDim, 1), state(spec.state_dim());
    std::vector<Reference> references(kDim, Reference{.value = 1});
    for (int step = 1; step <= 3000; ++step) {
      std::vector<float> gradient(kDim);
      for (size_t i = 0; i < kDim; ++i) {
        gradient[i] = static_cast<float>(rng.Unit() - 0.45);
        references[i].Step(kind, options, gradient[i], step);
      }
      OptimizerStep(kind, options, gradient, values, state);
    }
    for (size_t i = 0; i < kDim; ++i) EXPECT_NEAR(values[i], references[i].value, 2e-4) << i;
  }
}

}  // namespace
}  // namespace quarry
