// A training of a graph that grows: every run is of the snapshot that its road was opened at, and what a run goes on with
// after nodes and edges came are the epochs of the graph as it is then, to the last bit those over a database that was
// imported whole.
#include <gtest/gtest.h>

#include <map>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/train.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::ScratchFolder;
using testing_util::TinyGraph;

constexpr uint64_t kGrownNodes = 900, kNodesBefore = 700;

TinyGraph WholeGraph() { return {.nodes = kGrownNodes, .dim = 16}; }
TinyGraph GraphBefore() { return {.nodes = kNodesBefore, .dim = 16}; }
// Whether the edge is there before the graph grows: some of those between its nodes come later.
bool IsEarly(const Edge& edge) {
  return edge.source < kNodesBefore && edge.destination < kNodesBefore &&
         (edge.source + edge.destination) % 7 != 0;
}
std::vector<Edge> EdgesThatAre(bool early) {
  std::vector<Edge> edges = WholeGraph().Edges();
  std::erase_if(edges, [&](const Edge& edge) { return IsEarly(edge) != early; });
  return edges;
}

class GrownTraining : public testing::Test {
 protected:
  using Epochs =
      std::map<uint32_t, std::pair<double, uint64_t>>;  // loss, and edges that were sampled up to its end

  // By a road that is opened for it, as another process would; the run "r".
  struct Trained {
    Epochs epochs;
    TrainSummary summary;
  };
  Trained Train(Store& store, uint32_t epochs, bool resume) {
    Trained trained;
    const auto road = LiveRoad::Open(store, budget_,
                                     {.spec = {.fanouts = {4, 3}, .batch_size = 64, .seed = 5},
                                      .sampler_threads = 1,
                                      .extractor_threads = 1});
    EXPECT_OK(road);
    TrainOptions options;
    options.layers = 2;
    options.hidden = 16;
    options.epochs = epochs;
    options.seed = 5;
    options.ordered = true;
    TrainCallbacks callbacks;
    callbacks.epoch = [&](const EpochReport& report) {
      trained.epochs[report.epoch] = {report.loss, report.stats.sampled_edges};
      return Status::Ok();
    };
    const auto states = TrainingStatesOf(store);
    const auto summary =
        quarry::Train(**road, options, callbacks, {.states = states.get(), .name = "r", .resume = resume});
    EXPECT_OK(summary);
    if (summary.ok()) trained.summary = *summary;
    return trained;
  }
  std::unique_ptr<Store> Open(const std::string& name) {
    return Store::Open(*backend_, folder_.path() + "/" + name).value();
  }
  void ImportBefore(const std::string& name) {
    Dataset dataset = testing_util::TinyDataset(GraphBefore());
    dataset.edges.clear();
    dataset.edges.push_back({.name = "",
                             .path = "memory",
                             .reader = std::make_unique<testing_util::VectorEdgeReader>(EdgesThatAre(true))});
    ASSERT_OK(ImportDatabase(*backend_, folder_.path() + "/" + name, std::move(dataset), {}));
  }
  void Grow(Store& store) {
    const TinyGraph whole = WholeGraph();
    const auto change = GraphChange::Create(
        store, budget_, {.nodes = kGrownNodes - kNodesBefore, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    WriteBatch rows;
    for (NodeId node = kNodesBefore; node < kGrownNodes; ++node) {
      rows.Put("feature", node, whole.Row(node));
      rows.SetLabel(node, whole.Label(node));
    }
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
      for (const NodeId node : whole.SplitNodes(split)) {
        if (node >= kNodesBefore) rows.SetSplit(node, split);
      }
    }
    ASSERT_OK((*change)->Put(rows));
    ASSERT_OK((*change)->Add(EdgesThatAre(false)));
    ASSERT_OK((*change)->Commit());
  }

  ScratchFolder folder_{testing_util::Medium::kMemory};
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
};

TEST_F(GrownTraining, ARunGoesOnWithTheGraphAsItIsThen) {
  ASSERT_NO_FATAL_FAILURE(ImportBefore("growing"));
  ASSERT_NO_FATAL_FAILURE(ImportBefore("untouched"));
  ASSERT_OK(testing_util::ImportTinyGraph(*backend_, WholeGraph(), folder_.path() + "/whole"));
  const auto growing = Open("growing"), untouched = Open("untouched"), whole = Open("whole");
  const Trained before = Train(*growing, 2, /*resume=*/false);
  ASSERT_EQ(Train(*untouched, 2, /*resume=*/false).epochs, before.epochs);
  ASSERT_NO_FATAL_FAILURE(Grow(*growing));
  const auto state = ReadTrainingState(*growing, "r");
  ASSERT_OK(state);
  ASSERT_OK(TrainingStatesOf(*whole)->Save({.name = "r", .state = *state}));

  const Trained grown = Train(*growing, 4, /*resume=*/true);
  const Trained imported = Train(*whole, 4, /*resume=*/true);
  const Trained stopped = Train(*untouched, 4, /*resume=*/true);
  EXPECT_EQ(grown.summary.resumed_from_epoch, 2u);
  ASSERT_EQ(grown.epochs.size(), 2u);
  EXPECT_EQ(grown.epochs, imported.epochs) << "what is trained on is the graph as it is now";
  EXPECT_EQ(grown.summary.test->nodes, imported.summary.test->nodes);
  EXPECT_EQ(grown.summary.test->accuracy, imported.summary.test->accuracy);
  EXPECT_NE(grown.epochs, stopped.epochs);
  EXPECT_GT(grown.summary.test->nodes, stopped.summary.test->nodes) << "added nodes are tested, too";
  EXPECT_GT(grown.summary.stats.sampled_edges, stopped.summary.stats.sampled_edges);
}

// The snapshot is the road's: what comes while a run is under way is seen by the next one, not by its next epoch.
TEST_F(GrownTraining, ARunKeepsTheGraphThatItBeganWith) {
  ASSERT_NO_FATAL_FAILURE(ImportBefore("growing"));
  ASSERT_NO_FATAL_FAILURE(ImportBefore("untouched"));
  const auto growing = Open("growing"), untouched = Open("untouched");
  const auto road = LiveRoad::Open(*growing, budget_,
                                   {.spec = {.fanouts = {4, 3}, .batch_size = 64, .seed = 5},
                                    .sampler_threads = 1,
                                    .extractor_threads = 1});
  ASSERT_OK(road);
  TrainOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.epochs = 3;
  options.seed = 5;
  options.ordered = true;
  std::map<uint32_t, double> losses;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    losses[report.epoch] = report.loss;
    if (report.epoch == 1) Grow(*growing);
    return Status::Ok();
  };
  const auto summary = quarry::Train(**road, options, callbacks, {});
  ASSERT_OK(summary);
  EXPECT_EQ(growing->manifest()->node_count, kGrownNodes);
  const Trained still = Train(*untouched, 3, /*resume=*/false);
  ASSERT_EQ(losses.size(), 3u);
  for (const auto& [epoch, loss] : losses) EXPECT_EQ(loss, still.epochs.at(epoch).first) << "epoch " << epoch;
}

}  // namespace
}  // namespace quarry
