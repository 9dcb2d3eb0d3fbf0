// Link prediction over a graph that grows and drifts, in a database: what comes is ranked before it is added, and is trained on
// from the next epoch on. A model that goes on stays good at the newest edges, and one that stopped does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "quarry/base/units.h"
#include "storage/small_store.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "trainer/drifting_graph.h"

namespace quarry {
namespace {

using testing_util::DriftCourse;
using testing_util::DriftFollower;
using testing_util::DriftRound;

DriftCourse SmallCourse(uint64_t seed) {
  DriftCourse course;
  course.graph.seed = seed;
  course.graph.edges = 1000;
  course.rounds = 8;
  course.window = 3;
  course.train.spec.decoder = DecoderKind::kDot;
  course.train.spec.dim = 8;
  course.train.batch_edges = 100;
  course.train.chunk_edges = 50;
  course.train.negatives = 50;
  course.train.optimizer = OptimizerKind::kAdam;
  course.train.optimizer_options.learning_rate = 0.02F;
  course.train.epochs = 6;
  course.train.seed = seed;
  course.train.ordered = true;
  return course;
}

std::vector<DriftRound> Rounds(const DriftCourse& course) {
  const testing_util::ScratchFolder folder(testing_util::Medium::kMemory);
  MemoryBudget budget(256 * kMiB);
  std::vector<DriftRound> rounds;
  const Status followed = DriftFollower(course, budget).Follow(folder.path(), [&](const DriftRound& round) {
    rounds.push_back(round);
  });
  EXPECT_OK(followed);
  EXPECT_EQ(budget.used_bytes(), 0u);
  return rounds;
}

// The mean of one of the figures over the last rounds.
double Late(const std::vector<DriftRound>& rounds, double DriftRound::*figure) {
  constexpr size_t kLast = 3;
  double sum = 0;
  for (size_t i = rounds.size() - kLast; i < rounds.size(); ++i) sum += rounds[i].*figure;
  return sum / kLast;
}

TEST(TemporalLinks, AModelThatGoesOnStaysGoodAtTheNewestEdges) {
  const uint64_t seeds = testing_util::Repetitions(4);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DriftCourse course = SmallCourse(seed);
    const std::vector<DriftRound> rounds = Rounds(course);
    ASSERT_EQ(rounds.size(), course.rounds);
    for (size_t i = 0; i < rounds.size(); ++i) {
      const uint64_t first = i < course.window ? course.graph.first_edges : 0;
      const uint64_t later = std::min<uint64_t>(i, course.window - (first > 0 ? 1 : 0));
      EXPECT_EQ(rounds[i].trained, first + later * course.graph.edges) << "round " << i;
    }
    EXPECT_EQ(rounds[0].growing, rounds[0].stopped) << "until something comes they are one model";
    EXPECT_GT(Late(rounds, &DriftRound::growing), 1.5 * Late(rounds, &DriftRound::stopped));
  }
}

}  // namespace
}  // namespace quarry
