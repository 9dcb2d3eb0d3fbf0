#include "quarry/layout/trace_statistics.h"

#include <gtest/gtest.h>

#include <map>

#include "layout/hand_trace.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::HandTrace;
using testing_util::RandomBatches;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

TEST(TraceStatisticsTest, CountsUsesByHand) {
  const HandTrace trace({{1, 2, 3}, {2, 3}, {3}});
  const auto statistics = MeasureTrace(trace.trace(), 10, {});
  ASSERT_OK(statistics);
  EXPECT_EQ(statistics->batch_count, 3u);
  EXPECT_EQ(statistics->accesses, 6u);
  EXPECT_EQ(statistics->distinct_rows, 3u);
  EXPECT_EQ(statistics->batch_nodes_max, 3u);
  EXPECT_EQ(statistics->uses, (std::vector<uint32_t>{0, 1, 2, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_DOUBLE_EQ(statistics->ShareOfTop(0), 0);
  EXPECT_DOUBLE_EQ(statistics->ShareOfTop(1), 0.5);
  EXPECT_DOUBLE_EQ(statistics->ShareOfTop(2), 5.0 / 6);
  EXPECT_DOUBLE_EQ(statistics->ShareOfTop(10), 1);
}

std::vector<HitRatio> HitCurve(const HandTrace& trace, const TraceStatistics& statistics,
                               HitCurveOptions options) {
  options.scratch_path = trace.ScratchPath();
  const auto hits = MeasureHitCurve(trace.backend(), trace.trace(), statistics, options, {});
  EXPECT_OK(hits);
  EXPECT_EQ(trace.StrayFiles(), 0u);
  return hits.ok() ? *hits : std::vector<HitRatio>();
}

// A cycle of {0,1}, {0,2}, {0,3}. With one row, lru keeps what came last in a batch and belady node 0. With
// three, fifo starts at 1, 2, 3, misses node 0 once and must put node 1 back at the end.
TEST(HitCurveTest, HitsByHand) {
  const HandTrace trace({{0, 1}, {0, 2}, {0, 3}});
  const auto statistics = MeasureTrace(trace.trace(), 5, {});
  ASSERT_OK(statistics);
  const std::vector<uint32_t> degrees = {1, 0, 0, 7, 9};  // node 4 is never used
  const std::map<PolicyKind, uint64_t> of_one = {
      {PolicyKind::kNone, 0}, {PolicyKind::kStaticDegree, 0}, {PolicyKind::kStaticFrequency, 3},
      {PolicyKind::kFifo, 0}, {PolicyKind::kLru, 0},          {PolicyKind::kBelady, 3}};
  const std::map<PolicyKind, uint64_t> of_three = {
      {PolicyKind::kNone, 0}, {PolicyKind::kStaticDegree, 4}, {PolicyKind::kStaticFrequency, 5},
      {PolicyKind::kFifo, 4}, {PolicyKind::kLru, 3},          {PolicyKind::kBelady, 5}};
  const std::vector<HitRatio> hits =
      HitCurve(trace, *statistics, {.cache_rows = {1, 3}, .degrees = degrees, .threads = 1});
  ASSERT_EQ(hits.size(), 12u);
  for (const HitRatio& hit : hits) {
    SCOPED_TRACE(fmt::format("{} with {} rows", NameOf(hit.policy), hit.cache_rows));
    EXPECT_EQ(hit.hits, (hit.cache_rows == 1 ? of_one : of_three).at(hit.policy));
    EXPECT_DOUBLE_EQ(hit.ratio, static_cast<double>(hit.hits) / 6);
  }
}

TEST(HitCurveTest, BeladyFindsMostAndThreadsChangeNothing) {
  constexpr uint64_t kNodes = 2000;
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const HandTrace trace(RandomBatches(seed, 12, kNodes, 300));
    const auto statistics = MeasureTrace(trace.trace(), kNodes, {});
    ASSERT_OK(statistics);
    std::vector<uint32_t> degrees(kNodes);
    for (uint64_t v = 0; v < kNodes; ++v) degrees[v] = static_cast<uint32_t>(Mix64(v + seed) % 50);
    const HitCurveOptions options{.cache_rows = {0, 20, 200, kNodes}, .degrees = degrees, .threads = 3};
    const std::vector<HitRatio> hits = HitCurve(trace, *statistics, options);
    HitCurveOptions alone = options;
    alone.threads = 1;
    const std::vector<HitRatio> same = HitCurve(trace, *statistics, alone);
    ASSERT_EQ(hits.size(), std::size(kAllPolicies) * 4);
    for (size_t i = 0; i < hits.size(); ++i) {
      const HitRatio& belady = hits[i / std::size(kAllPolicies) * std::size(kAllPolicies) +
                                    static_cast<size_t>(PolicyKind::kBelady)];
      SCOPED_TRACE(fmt::format("{} with {} rows", NameOf(hits[i].policy), hits[i].cache_rows));
      EXPECT_EQ(hits[i].hits, same[i].hits);
      EXPECT_GE(belady.hits, hits[i].hits);
      if (hits[i].cache_rows == 0) {
        EXPECT_EQ(hits[i].hits, 0u);
      }
      if (hits[i].cache_rows == kNodes && hits[i].policy >= PolicyKind::kStaticFrequency) {
        EXPECT_EQ(hits[i].hits, statistics->accesses) << "all of it fits";
      }
    }
  }
}

TEST(HitCurveTest, ACurveThatIsStoppedLeavesNothing) {
  const HandTrace trace(RandomBatches(9, 8, 500, 100));
  const auto statistics = MeasureTrace(trace.trace(), 500, {});
  ASSERT_OK(statistics);
  const std::vector<uint32_t> degrees(500, 1);
  const auto stopped = MeasureHitCurve(
      trace.backend(), trace.trace(), *statistics,
      {.cache_rows = {10, 100}, .degrees = degrees, .threads = 2, .scratch_path = trace.ScratchPath()},
      [](std::string_view, uint64_t done, uint64_t) {
        return done < 5 ? Status::Ok() : Status(Code::kCancelled, "");
      });
  EXPECT_EQ(stopped.status().code(), Code::kCancelled);
  EXPECT_EQ(trace.StrayFiles(), 0u);
}

TEST(CountUsesTest, CountsTheListsThatHoldANodeInEitherDirection) {
  const TinyGraph graph{.nodes = 300, .both_directions = true};
  const TinyDatabase database(graph);
  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  const auto store = Store::Open(*backend, database.path());
  ASSERT_OK(store);
  std::vector<uint32_t> out(300), in(300);
  for (const Edge& edge : graph.Edges()) {
    ++out[edge.source];
    ++in[edge.destination];
  }
  MemoryBudget budget(64 * kMiB);
  LayoutRecord record;
  const auto uses = [&](Direction direction) {
    record.spec.direction = direction;
    return CountUses(**store, budget, record).value();
  };
  EXPECT_EQ(uses(Direction::kIn), out);
  EXPECT_EQ(uses(Direction::kOut), in);
  MemoryBudget small(1000);
  EXPECT_EQ(CountUses(**store, small, record).status().code(), Code::kOutOfBudget);
}

}  // namespace
}  // namespace quarry
