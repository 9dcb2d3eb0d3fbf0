// Several trainers of one model, as threads: what one trainer would have learned of the union of their
// batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fake_road.h"
#include "quarry/trainer/train.h"
#include "support/status_matchers.h"
#include "thread_communicator.h"

namespace quarry {
namespace {

using testing::HasSubstr;

// Those batches of a road that belong to one rank.
class SplitRoad final : public Road {
 public:
  SplitRoad(const FakeRoadOptions& options, uint32_t rank, uint32_t size)
      : road_(options), rank_(rank), size_(size) {}

  Result<std::unique_ptr<BatchStream>> StartPass(PassOptions pass) override {
    QUARRY_TRY(std::unique_ptr<BatchStream> all, road_.StartPass(std::move(pass)));
    return std::unique_ptr<BatchStream>(std::make_unique<Stream>(std::move(all), rank_, size_));
  }
  std::span<const int64_t> labels() const override { return road_.labels(); }
  std::vector<NodeId> SplitNodes(Split split) const override { return road_.SplitNodes(split); }
  uint32_t feature_dim() const override { return road_.feature_dim(); }

 private:
  class Stream final : public BatchStream {
   public:
    Stream(std::unique_ptr<BatchStream> all, uint32_t rank, uint32_t size)
        : all_(std::move(all)), rank_(rank), size_(size) {}
    uint64_t batch_count() const override { return all_->batch_count(); }
    StreamStats stats() const override { return all_->stats(); }
    Result<std::unique_ptr<Batch>> Next() override {
      for (;;) {
        QUARRY_TRY(std::unique_ptr<Batch> batch, all_->Next());
        if (!batch || batch->index() % size_ == rank_) return batch;
      }
    }

   private:
    const std::unique_ptr<BatchStream> all_;
    const uint32_t rank_, size_;
  };

  FakeRoad road_;
  const uint32_t rank_, size_;
};

FakeRoadOptions AllNeighbors(uint32_t batch_size, uint32_t classes = 4) {
  FakeRoadOptions options;
  options.nodes = 1500;
  options.classes = classes;
  options.fanouts = {10, 10};  // as many as there are: a batch's loss depends on its seeds alone
  options.batch_size = batch_size;
  return options;
}

TrainOptions SplitOptions() {
  TrainOptions options;
  options.layers = 2;
  options.hidden = 16;
  options.epochs = 3;
  options.learning_rate = 0.01;
  options.dropout = 0;
  options.seed = 5;
  options.ordered = true;
  return options;
}

struct Trained {
  Result<TrainSummary> summary = Status(Code::kInternal, "did not run");
  std::vector<EpochReport> epochs;
};

Trained TrainOne(Road& road, const TrainOptions& options, Communicator* trainers = nullptr) {
  Trained run;
  TrainCallbacks callbacks;
  callbacks.epoch = [&](const EpochReport& report) {
    run.epochs.push_back(report);
    return Status::Ok();
  };
  run.summary = Train(road, options, callbacks, {}, trainers);
  return run;
}

std::vector<Trained> TrainTogether(uint32_t size, const FakeRoadOptions& road_options,
                                   const TrainOptions& options, uint32_t failing_rank = UINT32_MAX) {
  std::vector<Trained> runs(size);
  ThreadTrainers trainers(size);
  OnRanks(size, [&](uint32_t rank) {
    FakeRoadOptions own = road_options;
    if (rank == failing_rank) own.fail_at_batch = 2;
    SplitRoad road(own, rank, size);
    const std::unique_ptr<Communicator> joined = trainers.Join(rank);
    runs[rank] = TrainOne(road, options, joined.get());
  });
  return runs;
}

void ExpectSameTraining(const Trained& together, const Trained& alone, double tolerance) {
  ASSERT_OK(together.summary);
  ASSERT_EQ(together.epochs.size(), alone.epochs.size());
  for (size_t i = 0; i < alone.epochs.size(); i++) {
    SCOPED_TRACE(testing::Message() << "epoch " << i + 1);
    EXPECT_NEAR(together.epochs[i].loss, alone.epochs[i].loss, tolerance);
    EXPECT_EQ(together.epochs[i].valid->nodes, alone.epochs[i].valid->nodes);
    EXPECT_NEAR(together.epochs[i].valid->accuracy, alone.epochs[i].valid->accuracy, tolerance);
    EXPECT_EQ(together.epochs[i].valid->auc.has_value(), alone.epochs[i].valid->auc.has_value());
    if (alone.epochs[i].valid->auc) {
      EXPECT_NEAR(*together.epochs[i].valid->auc, *alone.epochs[i].valid->auc, tolerance);
    }
  }
  EXPECT_NEAR(together.summary->test->accuracy, alone.summary->test->accuracy, tolerance);
}

TEST(DataParallel, IsTheTrainingOfOneWithLargerBatches) {
  // 750 training nodes: 12 batches of 64 for 1 to 4 trainers, the last of 46; 375 to validate, 6 batches.
  for (const uint32_t size : {1, 2, 3, 4}) {
    for (const uint32_t classes : {2, 4}) {
      SCOPED_TRACE(testing::Message() << size << " trainers, " << classes << " classes, seed 5");
      FakeRoad road(AllNeighbors(64 * size, classes));
      const Trained alone = TrainOne(road, SplitOptions());
      for (const Trained& run : TrainTogether(size, AllNeighbors(64, classes), SplitOptions())) {
        ExpectSameTraining(run, alone, 0.004);  // one node of 375 may fall the other way
      }
    }
  }
}

TEST(DataParallel, RanksEndWithTheSameBits) {
  TrainOptions options = SplitOptions();
  options.dropout = 0.5;
  const std::vector<Trained> first = TrainTogether(3, AllNeighbors(64), options);
  const std::vector<Trained> again = TrainTogether(3, AllNeighbors(64), options);
  for (const Trained& run : {first[1], first[2], again[0]}) ExpectSameTraining(run, first[0], 0);
}

TEST(DataParallel, MoreTrainersThanBatchesDoNotWaitForEver) {
  FakeRoad road(AllNeighbors(1024));
  const Trained alone = TrainOne(road, SplitOptions());
  for (const Trained& run : TrainTogether(3, AllNeighbors(1024), SplitOptions()))
    ExpectSameTraining(run, alone, 1e-4);
}

TEST(DataParallel, AllEndWhenOneFails) {
  for (const uint32_t failing : {0, 2}) {
    for (const Trained& run : TrainTogether(3, AllNeighbors(64), SplitOptions(), failing)) {
      ASSERT_FALSE(run.summary.ok());
      EXPECT_THAT(run.summary, IsStatus(Code::kIoError));
      EXPECT_EQ(std::string(run.summary.status().message()),
                "trainer " + std::to_string(failing) + ": batch 2 cannot be read");
    }
  }
}

TEST(DataParallel, AllEndWhenOneIsAskedTo) {
  ThreadTrainers trainers(2);
  OnRanks(2, [&](uint32_t rank) {
    SplitRoad road(AllNeighbors(64), rank, 2);
    const std::unique_ptr<Communicator> joined = trainers.Join(rank);
    TrainCallbacks callbacks;
    callbacks.epoch = [rank](const EpochReport& report) {
      return rank == 1 && report.epoch == 2 ? Status(Code::kCancelled, "enough") : Status::Ok();
    };
    const auto summary = Train(road, SplitOptions(), callbacks, {}, joined.get());
    ASSERT_FALSE(summary.ok());
    EXPECT_THAT(summary, IsStatus(Code::kCancelled, HasSubstr("trainer 1: enough")));
  });
}

}  // namespace
}  // namespace quarry
