#include "train_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fake_road.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/storage/training_state.h"
#include "run_settings.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

constexpr uint32_t kClasses = 5;
constexpr uint32_t kDim = 16;

TrainOptions CheckpointOptions() {
  TrainOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.epochs = 6;
  options.learning_rate = 0.01;
  options.schedule = LearningSchedule::kCosine;
  options.schedule_epochs = 9;
  options.dropout = 0.3;
  options.input_dropout = 0.1;
  options.seed = 5;
  options.ordered = true;
  return options;
}

enum class RoadKind { kLive, kLayout, kSuperbatches, kParts };

// A database, opened anew for every call to Train, as another process would.
class TrainDatabase {
 public:
  static constexpr uint32_t kPlannedEpochs = 4;

  void Reopen() {
    road_.reset();
    store_.reset();
    auto store = Store::Open(backend_, database_.path());
    EXPECT_OK(store);
    store_ = std::move(store).value();
    states_ = TrainingStatesOf(*store_);
  }
  Road& OpenRoad(RoadKind kind) {
    auto road = MakeRoad(kind);
    EXPECT_OK(road);
    road_ = std::move(road).value();
    return *road_;
  }
  Store& store() { return *store_; }
  TrainingStates& states() { return *states_; }
  FaultBackend& backend() { return backend_; }

 private:
  static std::string Folder() { return access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir(); }

  Result<std::unique_ptr<Road>> MakeRoad(RoadKind kind) {
    const LiveRoadOptions live{.spec = {.fanouts = {4, 3}, .batch_size = 128, .seed = 5},
                               .sampler_threads = 2,
                               .extractor_threads = 2};
    LayoutSpec spec{.road = live.spec, .epochs = kPlannedEpochs, .threads = 2};
    spec.road.cache_bytes = kDim * sizeof(float) * 200;
    switch (kind) {
      case RoadKind::kLive: {
        QUARRY_TRY(std::unique_ptr<LiveRoad> road, LiveRoad::Open(*store_, budget_, live));
        return std::unique_ptr<Road>(std::move(road));
      }
      case RoadKind::kLayout: {
        if (store_->manifest()->layouts.empty()) {
          QUARRY_RETURN_IF_ERROR(BuildLayout(*store_, budget_, spec, false, {}).status());
        }
        QUARRY_TRY(std::unique_ptr<PlannedRoad> road, PlannedRoad::Open(*store_, budget_, {.live = live}));
        return std::unique_ptr<Road>(std::move(road));
      }
      case RoadKind::kSuperbatches: {
        spec.packing = Packing::kCheaper;
        QUARRY_TRY(std::unique_ptr<SuperbatchRoad> road,
                   SuperbatchRoad::Open(*store_, budget_, {.layout = spec, .live = live}));
        return std::unique_ptr<Road>(std::move(road));
      }
      case RoadKind::kParts: {
        if (store_->manifest()->partitionings.empty()) {
          QUARRY_RETURN_IF_ERROR(MakePartitioning(*store_, budget_, {.table = "feature"},
                                                  {.method = PartitionMethod::kRandom, .parts = 6}, {})
                                     .status());
        }
        QUARRY_TRY(std::unique_ptr<PartitionedNodeRoad> road,
                   PartitionedNodeRoad::Open(*store_, budget_,
                                             {.parts = {.order = PartitionOrder::kNode, .buffer = 3},
                                              .spec = live.spec,
                                              .sampler_threads = 2}));
        return std::unique_ptr<Road>(std::move(road));
      }
    }
    return Status(Code::kInternal, "no such road");
  }

  const TinyDatabase database_{TinyGraph{.nodes = 2000, .dim = kDim}, Folder()};
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  FaultBackend backend_{*real_};
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  std::unique_ptr<TrainingStates> states_;
  std::unique_ptr<Road> road_;
};

// Where a training is told to stop: before batch `batch` of epoch `epoch`.
struct Stop {
  uint32_t epoch = 0;  // 0 = nowhere
  uint64_t batch = 0;
};

struct Outcome {
  Status status;
  TrainSummary summary;
  std::map<uint32_t, std::pair<double, double>> epochs;  // that were trained: loss and validation metric
  std::vector<uint32_t> checkpoints;                     // behind which epochs
};

Outcome RunTraining(Road& road, const TrainOptions& options, const TrainRun& run, Stop stop = {}) {
  Outcome outcome;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    outcome.epochs[report.epoch] = {report.loss, report.valid->selection_metric()};
    if (report.checkpoint_seconds) outcome.checkpoints.push_back(report.epoch);
    return Status::Ok();
  };
  callbacks.progress = [&](std::string_view phase, uint64_t done, uint64_t) {
    const bool here = phase == fmt::format("epoch {}", stop.epoch) && done == stop.batch;
    return here ? MakeStatus(Code::kCancelled, "stopped in {}", phase) : Status::Ok();
  };
  auto summary = Train(road, options, callbacks, run);
  outcome.status = summary.status();
  if (summary.ok()) outcome.summary = *summary;
  return outcome;
}

// Weights, best weights and moments of the run's last checkpoint.
std::vector<std::byte> ModelIn(Store& store, std::string_view run) {
  auto model = NodeModel::Make(CheckpointOptions(), kDim, kClasses).value();
  TrainProgress progress{.class_count = kClasses};
  const auto state = ReadTrainingState(store, run);
  EXPECT_OK(state);
  const Status status = DecodeTrainState(*state, progress, *model);
  EXPECT_OK(status);
  return model->State();
}

void ExpectSameResult(const TrainSummary& got, const TrainSummary& expected) {
  EXPECT_EQ(got.epochs, expected.epochs);
  EXPECT_EQ(got.best_epoch, expected.best_epoch);
  EXPECT_EQ(got.best_loss, expected.best_loss);
  EXPECT_EQ(got.valid->accuracy, expected.valid->accuracy);
  EXPECT_EQ(got.test->accuracy, expected.test->accuracy);
  EXPECT_EQ(got.test->nodes, expected.test->nodes);
  EXPECT_EQ(got.stopped_early, expected.stopped_early);
  EXPECT_EQ(got.stats.batches, expected.stats.batches);
  EXPECT_EQ(got.stats.sampled_edges, expected.stats.sampled_edges);
  EXPECT_GE(got.seconds, got.train_seconds);
}

class ResumedTraining : public testing::TestWithParam<RoadKind> {
 protected:
  Outcome TrainAnew(const TrainOptions& options, TrainRun run, Stop stop = {}) {
    database_.Reopen();
    run.states = &database_.states();
    if (GetParam() == RoadKind::kLayout) run.epochs_of_cycle = TrainDatabase::kPlannedEpochs;
    return RunTraining(database_.OpenRoad(GetParam()), options, run, stop);
  }
  TrainDatabase database_;
};

TEST_P(ResumedTraining, GoesOnToTheLastBitWhereverItStopped) {
  const Outcome whole = TrainAnew(CheckpointOptions(), {.name = "whole", .checkpoint_every = 1});
  ASSERT_OK(whole.status);
  EXPECT_THAT(whole.checkpoints, ElementsAre(1, 2, 3, 4, 5, 6));
  const std::vector<std::byte> weights = ModelIn(database_.store(), "whole");
  for (const Stop stop : {Stop{2, 0}, Stop{3, 5}, Stop{6, 1}}) {
    SCOPED_TRACE(testing::Message() << "stopped at batch " << stop.batch << " of epoch " << stop.epoch);
    TrainRun run{.name = fmt::format("cut{}", stop.epoch), .checkpoint_every = 1};
    const Outcome before = TrainAnew(CheckpointOptions(), run, stop);
    EXPECT_EQ(before.status.code(), Code::kCancelled);
    EXPECT_THAT(before.status.ToString(),
                HasSubstr(fmt::format("--resume goes on from the end of epoch {}", stop.epoch - 1)));
    run.resume = true;
    const Outcome after = TrainAnew(CheckpointOptions(), run);
    ASSERT_OK(after.status);
    EXPECT_EQ(after.summary.resumed_from_epoch, stop.epoch - 1);
    EXPECT_EQ(after.epochs.begin()->first, stop.epoch);
    EXPECT_EQ(after.summary.checkpoints, 6 - (stop.epoch - 1));
    auto epochs = before.epochs;
    epochs.insert(after.epochs.begin(), after.epochs.end());
    EXPECT_EQ(epochs, whole.epochs);
    ExpectSameResult(after.summary, whole.summary);
    EXPECT_EQ(ModelIn(database_.store(), run.name), weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Roads, ResumedTraining,
                         testing::Values(RoadKind::kLive, RoadKind::kLayout, RoadKind::kSuperbatches,
                                         RoadKind::kParts),
                         [](const auto& road) -> std::string {
                           switch (road.param) {
                             case RoadKind::kLive:
                               return "Live";
                             case RoadKind::kLayout:
                               return "Layout";
                             case RoadKind::kParts:
                               return "Parts";
                             default:
                               return "Superbatches";
                           }
                         });

// On a road in memory, which is the same at every opening.
class TrainCheckpoint : public testing::Test {
 protected:
  TrainCheckpoint() { database_.Reopen(); }
  Outcome TrainAnew(const TrainOptions& options, TrainRun run, Stop stop = {}) {
    FakeRoad road{FakeRoadOptions{.classes = kClasses, .dim = kDim}};
    run.states = &database_.states();
    return RunTraining(road, options, run, stop);
  }
  TrainDatabase database_;
};

TEST_F(TrainCheckpoint, IsTakenBehindTheEpochThatMakesItsBatchesFullAndAtTheEnd) {
  const auto taken = [&](uint64_t every) {
    const Outcome outcome =
        TrainAnew(CheckpointOptions(), {.name = fmt::format("every-{}", every), .checkpoint_every = every});
    EXPECT_OK(outcome.status);
    EXPECT_EQ(outcome.summary.checkpoints, outcome.checkpoints.size());
    EXPECT_FALSE(outcome.summary.resumed_from_epoch.has_value());
    return outcome.checkpoints;
  };
  EXPECT_THAT(taken(8), ElementsAre(1, 2, 3, 4, 5, 6));  // an epoch has 8 batches
  EXPECT_THAT(taken(9), ElementsAre(2, 4, 6));
  EXPECT_THAT(taken(30), ElementsAre(4, 6));
  EXPECT_THAT(taken(1000), ElementsAre(6));
  EXPECT_THAT(taken(0), ElementsAre(6));
  EXPECT_EQ(database_.store().manifest()->trainings.size(), 5u);
}

TEST_F(TrainCheckpoint, TrainsLongerThanTheRunThatEnded) {
  TrainOptions shorter = CheckpointOptions();
  shorter.epochs = 4;
  const Outcome whole = TrainAnew(CheckpointOptions(), {.name = "whole"});
  ASSERT_OK(TrainAnew(shorter, {.name = "longer"}).status);
  const Outcome longer = TrainAnew(CheckpointOptions(), {.name = "longer", .resume = true});
  ASSERT_OK(longer.status);
  EXPECT_EQ(longer.epochs.begin()->first, 5u);
  EXPECT_EQ(longer.epochs.at(6), whole.epochs.at(6));
  ExpectSameResult(longer.summary, whole.summary);
  EXPECT_EQ(ModelIn(database_.store(), "longer"), ModelIn(database_.store(), "whole"));
}

TEST_F(TrainCheckpoint, ARunThatHadEndedIsTestedAgainAndNothingElse) {
  const Outcome ended = TrainAnew(CheckpointOptions(), {});
  const Outcome again = TrainAnew(CheckpointOptions(), {.resume = true});
  ASSERT_OK(again.status);
  EXPECT_THAT(again.epochs, IsEmpty());
  EXPECT_EQ(again.summary.checkpoints, 0u);
  ExpectSameResult(again.summary, ended.summary);
}

TEST_F(TrainCheckpoint, PatienceIsCountedOn) {
  TrainOptions options = CheckpointOptions();
  options.epochs = 100;
  options.patience = 2;
  options.learning_rate = 0.05;
  const Outcome whole = TrainAnew(options, {.name = "whole", .checkpoint_every = 1});
  ASSERT_TRUE(whole.summary.stopped_early);
  // Between the best epoch and the end, where the counter is what decides.
  for (uint32_t epoch = whole.summary.best_epoch + 1; epoch <= whole.summary.epochs; ++epoch) {
    SCOPED_TRACE(epoch);
    TrainRun run{.name = fmt::format("cut{}", epoch), .checkpoint_every = 1};
    EXPECT_EQ(TrainAnew(options, run, {epoch, 3}).status.code(), Code::kCancelled);
    run.resume = true;
    const Outcome after = TrainAnew(options, run);
    ASSERT_OK(after.status);
    ExpectSameResult(after.summary, whole.summary);
  }
}

TEST_F(TrainCheckpoint, ARunIsNeitherLostNorMixedUpByMistake) {
  EXPECT_EQ(TrainAnew(CheckpointOptions(), {.name = "a/b"}).status.code(), Code::kUsage);
  EXPECT_EQ(TrainAnew(CheckpointOptions(), {.resume = true}).status.code(), Code::kNotFound);
  TrainRun run{.settings = "--hidden 16 --fanout 8,8", .checkpoint_every = 1};
  EXPECT_THAT(TrainAnew(CheckpointOptions(), run, {1, 2}).status.ToString(),
              HasSubstr("no checkpoint of this training"));
  run.resume = true;
  EXPECT_EQ(TrainAnew(CheckpointOptions(), run).status.code(), Code::kNotFound);
  run.resume = false;
  EXPECT_EQ(TrainAnew(CheckpointOptions(), run, {3, 0}).status.code(), Code::kCancelled);
  const std::vector<std::byte> weights = ModelIn(database_.store(), "node");

  const Status twice = TrainAnew(CheckpointOptions(), run).status;
  EXPECT_EQ(twice.code(), Code::kAlreadyExists);
  EXPECT_THAT(twice.ToString(),
              AllOf(HasSubstr("--resume"), HasSubstr("--overwrite"), HasSubstr("\"node\"")));
  run.resume = true;
  run.settings = "--hidden 32 --fanout 8,8";
  const Status differs = TrainAnew(CheckpointOptions(), run).status;
  EXPECT_EQ(differs.code(), Code::kUsage);
  EXPECT_THAT(differs.ToString(), HasSubstr("--hidden is 32, but was 16"));
  EXPECT_EQ(ModelIn(database_.store(), "node"), weights);

  run.resume = false;
  run.overwrite = true;
  EXPECT_EQ(TrainAnew(CheckpointOptions(), run, {1, 2}).status.code(), Code::kCancelled);
  EXPECT_EQ(ModelIn(database_.store(), "node"), weights) << "it stands until there is a new one";
  EXPECT_EQ(TrainAnew(CheckpointOptions(), run, {2, 0}).status.code(), Code::kCancelled);
  EXPECT_NE(ModelIn(database_.store(), "node"), weights);
  EXPECT_EQ(database_.store().manifest()->FindTraining("node")->settings, run.settings);
}

TEST_F(TrainCheckpoint, ADiskThatFailsEndsTheTrainingAndTheCheckpointBeforeStands) {
  const Outcome whole = TrainAnew(CheckpointOptions(), {.name = "whole"});
  TrainRun run{.checkpoint_every = 1};
  EXPECT_EQ(TrainAnew(CheckpointOptions(), run, {3, 0}).status.code(), Code::kCancelled);
  run.resume = true;
  database_.backend().SetPlans({{.kind = FaultKind::kWrite, .at = 1, .sticky = true, .error = ENOSPC}});
  const Outcome full = TrainAnew(CheckpointOptions(), run);
  database_.backend().SetPlans({});
  EXPECT_EQ(full.status.code(), Code::kNoSpace);
  EXPECT_THAT(full.epochs, IsEmpty()) << "an epoch is reported when its checkpoint stands";
  const Outcome after = TrainAnew(CheckpointOptions(), run);
  ASSERT_OK(after.status);
  EXPECT_EQ(after.summary.resumed_from_epoch, 2u);
  ExpectSameResult(after.summary, whole.summary);
}

TrainProgress ExampleProgress() {
  TrainProgress progress{.class_count = 3, .epochs_since_best = 4};
  progress.summary.epochs = 9;
  progress.summary.best_epoch = 5;
  progress.summary.best_loss = 0.25;
  progress.summary.valid = Evaluation{.nodes = 77, .accuracy = 0.5, .auc = 0.75};
  progress.summary.seconds = 12.5;
  progress.summary.train_seconds = 10.5;
  progress.summary.stats.batches = 111;
  progress.summary.stats.cache_hits = 222;
  progress.summary.stats.consumer_wait_seconds = 1.5;
  return progress;
}

std::unique_ptr<NodeModel> ExampleModel(uint32_t hidden = 4) {
  TrainOptions options = CheckpointOptions();
  options.hidden = hidden;
  auto model = NodeModel::Make(options, 6, 3).value();
  model->Save();
  return model;
}

TEST(TrainState, EveryFieldComesBack) {
  const auto model = ExampleModel();
  model->Parameters()[0][0] = 42;  // so that the weights are not those set aside
  const std::vector<std::byte> state = EncodeTrainState(ExampleProgress(), *model);
  const auto other = ExampleModel();
  TrainProgress progress{.class_count = 3};
  ASSERT_OK(DecodeTrainState(state, progress, *other));
  EXPECT_EQ(progress.epochs_since_best, 4u);
  EXPECT_EQ(progress.summary.epochs, 9u);
  EXPECT_EQ(progress.summary.best_epoch, 5u);
  EXPECT_EQ(progress.summary.best_loss, 0.25);
  EXPECT_EQ(progress.summary.valid->nodes, 77u);
  EXPECT_EQ(progress.summary.valid->accuracy, 0.5);
  EXPECT_EQ(progress.summary.valid->auc, 0.75);
  EXPECT_EQ(progress.summary.seconds, 12.5);
  EXPECT_EQ(progress.summary.train_seconds, 10.5);
  EXPECT_EQ(progress.summary.stats.batches, 111u);
  EXPECT_EQ(progress.summary.stats.cache_hits, 222u);
  EXPECT_EQ(progress.summary.stats.consumer_wait_seconds, 1.5);
  EXPECT_EQ(other->Parameters()[0][0], 42);
  other->Restore();
  EXPECT_NE(other->Parameters()[0][0], 42);
  EXPECT_EQ(EncodeTrainState(progress, *other).size(), state.size());
}

// docs/format.md, "Training states".
TEST(TrainState, FieldsLieWhereTheFormatSays) {
  const std::vector<std::byte> state = EncodeTrainState(ExampleProgress(), *ExampleModel());
  const auto at = [&]<typename Value>(size_t offset, Value) {
    Value value;
    std::memcpy(&value, &state[offset], sizeof(value));
    return value;
  };
  EXPECT_EQ(at(0, uint32_t{}), 1u);    // task
  EXPECT_EQ(at(4, uint32_t{}), 1u);    // version
  EXPECT_EQ(at(8, uint32_t{}), 3u);    // classes
  EXPECT_EQ(at(12, uint32_t{}), 9u);   // epochs
  EXPECT_EQ(at(16, uint32_t{}), 5u);   // best epoch
  EXPECT_EQ(at(20, uint32_t{}), 4u);   // epochs since
  EXPECT_EQ(at(24, double{}), 0.25);   // its loss
  EXPECT_EQ(at(32, uint8_t{}), 1u);    // validated
  EXPECT_EQ(at(33, uint64_t{}), 77u);  // nodes
  EXPECT_EQ(at(41, double{}), 0.5);    // accuracy
  EXPECT_EQ(at(49, uint8_t{}), 1u);    // with an AUC
  EXPECT_EQ(at(50, double{}), 0.75);
  EXPECT_EQ(at(58, double{}), 12.5);            // seconds
  EXPECT_EQ(at(66, double{}), 10.5);            // of training passes
  EXPECT_EQ(at(74, uint64_t{}), 111u);          // the first of 9 counts
  EXPECT_EQ(at(74 + 8 * 8, uint64_t{}), 222u);  // the last
  EXPECT_EQ(at(146 + 8 * 5, double{}), 1.5);    // the last of 6 seconds
  const std::vector<std::byte> model = ExampleModel()->State();
  EXPECT_EQ(std::vector<std::byte>(state.begin() + 194, state.end()), model);
}

TEST(TrainState, OtherBytesAreRefusedBeforeTheyAreTrainedOn) {
  const std::vector<std::byte> state = EncodeTrainState(ExampleProgress(), *ExampleModel());
  const auto refusal = [](const std::vector<std::byte>& bytes, uint32_t hidden = 4, uint32_t classes = 3) {
    const auto model = ExampleModel(hidden);
    TrainProgress progress{.class_count = classes};
    return DecodeTrainState(bytes, progress, *model);
  };
  EXPECT_OK(refusal(state));
  for (size_t bytes = 0; bytes < state.size(); bytes += bytes < 300 ? 1 : 7) {
    const Status status = refusal({state.begin(), state.begin() + static_cast<ptrdiff_t>(bytes)});
    ASSERT_EQ(status.code(), Code::kCorruption) << bytes << ": " << status.ToString();
  }
  std::vector<std::byte> changed = state;
  changed.push_back(std::byte{0});
  EXPECT_EQ(refusal(changed).code(), Code::kCorruption);
  EXPECT_EQ(refusal(state, 5).code(), Code::kCorruption);
  EXPECT_THAT(refusal(state, 5).ToString(), HasSubstr("widths"));
  EXPECT_EQ(refusal(state, 4, 4).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal(state, 4, 4).ToString(), AllOf(HasSubstr("3 classes"), HasSubstr("of 4")));
  changed = state;
  changed[0] = std::byte{2};
  EXPECT_THAT(refusal(changed).ToString(), HasSubstr("task 2"));
  changed = state;
  changed[4] = std::byte{9};
  EXPECT_EQ(refusal(changed).code(), Code::kUnsupported);
}

TEST(RunSettings, NameTheFirstOptionThatDiffersWithBothValues) {
  const std::string stored = "--layers 2 --lr 0.003 --layout a (seed 1, batches of 8) --ordered";
  EXPECT_OK(CheckSettings("node", stored, stored));
  const auto refusal = [&](const std::string& given) {
    const Status status = CheckSettings("node", stored, given);
    EXPECT_EQ(status.code(), Code::kUsage) << given;
    return status.ToString();
  };
  EXPECT_THAT(refusal("--layers 3 --lr 0.1 --layout a (seed 1, batches of 8) --ordered"),
              HasSubstr("--layers is 3, but was 2"));
  EXPECT_THAT(refusal("--layers 2 --lr 0.003 --layout a (seed 2, batches of 8) --ordered"),
              HasSubstr("--layout is a (seed 2, batches of 8), but was a (seed 1, batches of 8)"));
  EXPECT_THAT(refusal("--layers 2 --lr 0.003 --layout a (seed 1, batches of 8)"),
              HasSubstr("--ordered is not set, but was"));
  EXPECT_THAT(refusal(stored + " --new 1"), HasSubstr("--new is 1, but was not set"));
  EXPECT_THAT(refusal(""), HasSubstr("run \"node\""));
}

}  // namespace
}  // namespace quarry
