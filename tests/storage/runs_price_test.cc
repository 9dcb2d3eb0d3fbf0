// What runs of edges cost whoever samples, and when folding them pays.
#include "quarry/storage/runs_price.h"

#include <gtest/gtest.h>

#include <vector>

#include "quarry/base/random.h"
#include "quarry/storage/growth_cost.h"
#include "storage/any_device.h"

namespace quarry {
namespace {

using testing_util::kAnyDevice;

// A graph whose edits came in so many runs of one size, of 12 bytes an edit.
TopologyRecord Graph(uint64_t nodes, uint64_t edges, uint64_t added, uint64_t removed, size_t runs) {
  TopologyRecord graph{
      .name = "graph", .node_count = nodes, .edge_count = edges, .file_bytes = (nodes + 1) * 8 + edges * 4};
  for (size_t i = 0; i < runs; ++i) {
    TopologyRun run{.timestamp = i + 1, .edges_before = graph.edge_count};
    run.added = added / runs;
    run.removed = removed / runs;
    run.lists = run.added + run.removed;
    run.file_bytes = 12 * (run.added + run.removed);
    graph.edge_count = run.edges_after();
    graph.runs.push_back(run);
  }
  return graph;
}

double SlowdownOf(const TopologyRecord& graph) { return PriceRuns(graph, kAnyDevice).slowdown(); }

TEST(RunsPriceTest, AGraphInOneFileCostsNothingAndIsNotFolded) {
  TopologyRecord graph = Graph(1000, 50'000, 0, 0, 0);
  EXPECT_EQ(SlowdownOf(graph), 1);
  EXPECT_EQ(PriceRuns(graph, kAnyDevice).read_amplification, 1);
  EXPECT_FALSE(PaysToFold(graph, kAnyDevice, 1.0001));
  graph.added_nodes = 400;  // empty lists cost nobody anything
  EXPECT_FALSE(PaysToFold(graph, kAnyDevice, 1.0001));
}

// 2 runs of 500,000 added edges over a million nodes and ten million edges, by hand.
TEST(RunsPriceTest, ThePriceIsWhatItsPartsComeTo) {
  const RunsPrice price = PriceRuns(Graph(1'000'000, 10'000'000, 1'000'000, 0, 2), kAnyDevice);
  const double byte = 1 / 3.2e9 + 1 / 6e9;
  const double open = 12e6 * byte + 16 / 78e3 + 1e6 * 25e-9 + 1e6 * 35e-9;
  EXPECT_NEAR(price.open_seconds, open, 1e-9);
  EXPECT_NEAR(price.open_disk_seconds, 12e6 / 3.2e9 + 16 / 78e3, 1e-12);
  EXPECT_NEAR(price.merge_seconds, 1e6 * 35e-9, 1e-12);
  EXPECT_NEAR(price.draw_seconds, 15 * 8e-9 + (19.9316 - 15) * 60e-9, 1e-11);
  const double loaded = 5e-3 + (8e6 + 8 + 44e6) * byte + 11e6 * 20e-9;
  EXPECT_NEAR(price.loaded_slowdown, 1 + open / loaded, 1e-9);
  const double disk = 5e-3 + (8e6 + 8) * byte + 11e6 * 4096 * byte;
  EXPECT_NEAR(price.disk_slowdown, 1 + (open + 11e6 * price.draw_seconds) / disk, 1e-9);
  EXPECT_NEAR(price.edited_share, 1.0 / 11, 1e-12);
  EXPECT_NEAR(price.bytes_per_edited_edge, 12, 1e-12);
  EXPECT_NEAR(price.read_amplification, (48e6 + 8 + 12e6) / ((48e6 + 8) * 1.1), 1e-9);
  EXPECT_NEAR(price.fold_seconds, open + (48e6 + 8) * byte + (48e6 + 8) * 1.1 * (1 / 2e9 + 1 / 6e9), 1e-9);
  EXPECT_EQ(price.slowdown(), std::max(price.loaded_slowdown, price.disk_slowdown));
}

// More edits, more runs and a second side never make it cheaper, whatever the graph.
TEST(RunsPriceTest, MoreOfItIsNeverCheaper) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  for (int i = 0; i < 500; ++i) {
    const uint64_t nodes = 10 + rng.Below(uint64_t{1} << (4 + rng.Below(26)));
    const uint64_t edges = 8 + rng.Below(nodes * 40);
    const uint64_t added = 8 + rng.Below(edges), removed = rng.Below(edges / 2);
    const size_t runs = 1 + rng.Below(4);
    TopologyRecord graph = Graph(nodes, edges, added, removed, runs);
    const RunsPrice price = PriceRuns(graph, kAnyDevice);
    EXPECT_GT(price.slowdown(), 1);
    TopologyRecord more = graph;  // as many again, with edges as they were
    more.runs.insert(more.runs.end(), graph.runs.begin(), graph.runs.end());
    EXPECT_GT(SlowdownOf(more), price.slowdown());
    EXPECT_GT(PriceRuns(Graph(nodes, edges, added, removed, 2 * runs), kAnyDevice).open_seconds,
              0.999 * price.open_seconds);
    graph.has_csr = true;
    EXPECT_GT(PriceRuns(graph, kAnyDevice).open_seconds, price.open_seconds);
  }
}

// Where the default bound is passed, and that it is passed once: small commits to a large graph leave it alone, and a graph
// that doubles does not wait for ever.
// Draws, seconds, searches, seconds of searching -> times that it took longer.
TEST(RunsMeasuredTest, TheSlowdownIsWhatItTookBesideWhatItTookWithoutRuns) {
  constexpr uint64_t kEnough = kDrawsMeasuredMin;
  struct Golden {
    uint64_t draws = 0;
    double seconds = 0, run_seconds = 0, slowdown = 0;
  };
  for (const Golden& golden :
       {Golden{0, 0, 0, 0}, Golden{kEnough - 1, 3, 2, 0}, Golden{kEnough, 1, 0, 1}, Golden{kEnough, 3, 2, 3},
        Golden{kEnough, 1.25, .25, 1.25},
        // A clock that ran on meanwhile: no more than half a nanosecond a draw is left.
        Golden{kEnough, 1, 1, 1 / (.5e-9 * 131072)}}) {
    const GrowthMeasured measured = {.measured_draws = golden.draws,
                                     .measured_seconds = golden.seconds,
                                     .measured_run_seconds = golden.run_seconds};
    EXPECT_DOUBLE_EQ(SlowdownOf(measured), golden.slowdown) << golden.draws << " " << golden.seconds;
  }
}

TEST(RunsMeasuredTest, WhatIsOldIsForgottenByHalves) {
  GrowthMeasured sum;
  const GrowthMeasured slow = {.measured_draws = 2 * kDrawsMeasuredMin,
                               .measured_searches = 100,
                               .measured_seconds = 4,
                               .measured_run_seconds = 3,
                               .measured_edits = 7};
  for (int i = 0; i < 8; ++i) sum.Add(slow);
  EXPECT_EQ(sum.measured_draws, 16 * kDrawsMeasuredMin);
  EXPECT_EQ(sum.measured_slowdown, 4);
  EXPECT_EQ(sum.measured_searches, 800u);
  sum.Add({.measured_draws = 2, .measured_seconds = 2, .measured_edits = 5});
  EXPECT_EQ(sum.measured_draws, 8 * kDrawsMeasuredMin + 1);
  EXPECT_EQ(sum.measured_searches, 400u);
  EXPECT_EQ(sum.measured_seconds, 17);
  EXPECT_EQ(sum.measured_run_seconds, 12);
  EXPECT_EQ(sum.measured_edits, 7u);
  for (int i = 0; i < 400; ++i) sum.Add({.measured_draws = kDrawsMeasuredMin, .measured_seconds = 1});
  EXPECT_NEAR(sum.measured_slowdown, 1, 1e-9) << "the newest count";
}

TEST(RunsMeasuredTest, WhatIsMeasuredDecidesUnlessItIsLittleOrOld) {
  const TopologyRecord slow = Graph(1'000'000, 10'000'000, 8'000'000, 0, 2);  // as predicted
  const TopologyRecord fast = Graph(1'000'000, 10'000'000, 1000, 0, 2);
  ASSERT_TRUE(PaysToFold(slow, kAnyDevice, kSlowdownMax));
  ASSERT_FALSE(PaysToFold(fast, kAnyDevice, kSlowdownMax));
  GrowthMeasured measured = {.measured_draws = kDrawsMeasuredMin,
                             .measured_seconds = 1.2,
                             .measured_run_seconds = .2,
                             .measured_edits = 4'000'000};
  EXPECT_FALSE(PaysToFold(slow, kAnyDevice, measured, kSlowdownMax)) << "1.2 as measured";
  measured.measured_edits -= 1;
  EXPECT_TRUE(PaysToFold(slow, kAnyDevice, measured, kSlowdownMax)) << "of runs that were half as many";
  measured.measured_edits = 8'000'000;
  measured.measured_draws -= 1;
  EXPECT_TRUE(PaysToFold(slow, kAnyDevice, measured, kSlowdownMax)) << "too few draws";
  measured = {.measured_draws = kDrawsMeasuredMin,
              .measured_seconds = 1.5,
              .measured_run_seconds = .5,
              .measured_edits = 1000};
  EXPECT_TRUE(PaysToFold(fast, kAnyDevice, measured, kSlowdownMax)) << "1.5 as measured";
  TopologyRecord folded = fast;
  folded.runs.clear();
  EXPECT_FALSE(PaysToFold(folded, kAnyDevice, measured, kSlowdownMax));
}

TEST(RunsMeasuredTest, AFoldBeginsAnewAndAnOldGraphCountsNoMore) {
  GrowthTally tally;
  TopologyRecord graph = Graph(1000, 50'000, 30, 20, 2);
  graph.generation = 3;
  const auto meter = tally.MeterOf(graph, {.all = 2, .runs = 1});
  EXPECT_EQ(tally.Measured(graph).measured_seconds, 0) << "whoever draws nothing has measured nothing";
  meter->Add(10, 1, 4, .25);
  meter->Add(10, 1, 4, .25);
  tally.MeterOf(graph, {.all = 5, .runs = 1})->Add(100, 1, 0, 0);
  GrowthMeasured measured = tally.Measured(graph);
  EXPECT_EQ(measured.measured_draws, 120u);
  EXPECT_EQ(measured.measured_searches, 8u);
  EXPECT_EQ(measured.measured_seconds, 10) << "each opened it once";
  EXPECT_EQ(measured.measured_run_seconds, 2.5);
  EXPECT_EQ(measured.measured_edits, 50u);
  EXPECT_EQ(measured.measured_slowdown, 0) << "too little to tell";
  ++graph.generation;
  graph.runs.clear();
  const auto newer = tally.MeterOf(graph, {});
  EXPECT_EQ(tally.Measured(graph).measured_draws, 0u);
  meter->Add(1000, 1, 0, 0);
  newer->Add(7, 1, 0, 0);
  --graph.generation;
  tally.MeterOf(graph, {})->Add(50, 1, 0, 0);
  EXPECT_EQ(tally.Measured(graph).measured_draws, 0u) << "what is told is of the file that is asked about";
  ++graph.generation;
  EXPECT_EQ(tally.Measured(graph).measured_draws, 7u);
  graph.name = "another";
  EXPECT_EQ(tally.Measured(graph).measured_draws, 0u);
}

TEST(RunsPriceTest, TheDefaultBoundLiesWhereEditsAreAShareOfTheGraph) {
  struct Shape {
    uint64_t nodes, edges;
  };
  for (const Shape& shape : {Shape{20'000, 90'000}, Shape{150'000, 4'000'000}, Shape{2'000'000, 25'000'000},
                             Shape{30'000'000, 900'000'000}, Shape{50'000'000, 60'000'000}}) {
    SCOPED_TRACE(testing::Message() << shape.edges << " edges");
    const auto pays = [&](uint64_t edits) {
      return PaysToFold(Graph(shape.nodes, shape.edges, edits, 0, 3), kAnyDevice, kSlowdownMax);
    };
    EXPECT_FALSE(pays(shape.edges / 1000));
    EXPECT_TRUE(pays(4 * shape.edges));
    int passed = 0;
    bool before = false;
    for (double edits = static_cast<double>(shape.edges) / 1000;
         edits < 4.0 * static_cast<double>(shape.edges); edits *= 1.1) {
      const bool now = pays(static_cast<uint64_t>(edits));
      passed += now != before ? 1 : 0;
      before = now;
    }
    EXPECT_EQ(passed, 1);
  }
}

// A slow disk hides the search behind its reads; the same edits are dear where reading is fast.
TEST(RunsPriceTest, TheDeviceDecidesWhatASearchIsWorth) {
  const TopologyRecord graph = Graph(1'000'000, 10'000'000, 600'000, 200'000, 4);
  DeviceRecord slow = kAnyDevice, fast = kAnyDevice;
  slow.sequential_bytes_per_second = 2e8;
  fast.sequential_bytes_per_second = 2e10;
  EXPECT_LT(PriceRuns(graph, slow).disk_slowdown, PriceRuns(graph, kAnyDevice).disk_slowdown);
  EXPECT_GT(PriceRuns(graph, fast).disk_slowdown, PriceRuns(graph, kAnyDevice).disk_slowdown);
  EXPECT_FALSE(PaysToFold(Graph(40, 100, 1, 0, 1), slow, kSlowdownMax)) << "an edge is not worth a file";
}

}  // namespace
}  // namespace quarry
