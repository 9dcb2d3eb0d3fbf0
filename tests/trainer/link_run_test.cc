// Runs of link prediction in stored tables: what is learned in them is what is learned in memory, however
// little of them memory holds, and a run that is stopped anywhere goes on as if it had not been.
#include "quarry/trainer/link_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <string>

#include "embedding/trained_tables.h"
#include "link_memory.h"
#include "quarry/base/units.h"
#include "quarry/storage/training_state.h"
#include "support/status_matchers.h"
#include "trainer/grouped_graph.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Start = LinkRunOptions::Start;

// What a training tells of an epoch.
struct EpochFacts {
  double loss = 0, mrr = -1;
  bool best = false;
  friend bool operator==(const EpochFacts&, const EpochFacts&) = default;
};

// A training's epochs by number: of one that two sessions tell, both must tell the same.
class RunCourse {
 public:
  LinkTrainCallbacks callbacks() {
    LinkTrainCallbacks callbacks;
    callbacks.epoch = [this](const LinkEpochReport& report) {
      const EpochFacts facts{report.loss, report.valid ? report.valid->filtered.mrr : -1, report.best};
      const auto [before, is_new] = epochs_.emplace(report.epoch, facts);
      EXPECT_TRUE(is_new || before->second == facts) << "epoch " << report.epoch;
      return Status::Ok();
    };
    return callbacks;
  }
  const std::map<uint32_t, EpochFacts>& epochs() const { return epochs_; }

 private:
  std::map<uint32_t, EpochFacts> epochs_;
};

// A database with nothing in it, which is opened anew for each session.
class LinkRunTest : public testing::Test {
 protected:
  LinkRunTest() : folder_(testing_util::Medium::kMemory), backend_(MakeDefaultBackend()) {
    EXPECT_OK(testing_util::CreateEmptyDatabase(*backend_, path()));
    Reopen();
  }
  std::string path() const { return folder_.path() + "/db"; }
  Store& store() { return *store_; }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(*backend_, path());
    ASSERT_OK(store);
    store_ = *std::move(store);
  }

  Result<std::unique_ptr<LinkRun>> Open(const LinkTrainOptions& train, const LinkRunOptions& options) {
    return LinkRun::Open(store(), budget_, data_, train, options);
  }
  // Cancels the training after so many batches of this session, if there are more.
  Result<LinkTrainSummary> Train(const LinkTrainOptions& train, const LinkRunOptions& options,
                                 RunCourse* course = nullptr, uint64_t batches = UINT64_MAX) {
    QUARRY_TRY(const std::unique_ptr<LinkRun> run, Open(train, options));
    LinkTrainCallbacks callbacks = course != nullptr ? course->callbacks() : LinkTrainCallbacks();
    callbacks.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      if (!phase.starts_with("epoch") || batches-- > 0) return Status::Ok();
      return Status(Code::kCancelled, "stopped");
    };
    return TrainLinks(data_, train, budget_, callbacks, *run);
  }

  // The rows of a run's tables as its checkpoint has them.
  std::vector<RowBlock> Rows(const std::string& name) {
    std::vector<RowBlock> rows;
    for (const char* table : {"-nodes", "-relations"}) {
      auto opened = StoredEmbeddings::Open(store(), budget_, name + table, {.memory_bytes = 16 * kMiB});
      EXPECT_OK(opened);
      if (!opened.ok()) continue;
      rows.push_back(testing_util::AllRowsOf((*opened)->table().spec()));
      EXPECT_OK((*opened)->table().Read(rows.back()));
    }
    return rows;
  }

  const LinkData data_ = GroupedGraph();
  MemoryBudget budget_{kGiB};

 private:
  testing_util::ScratchFolder folder_;
  const std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<Store> store_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBlocks(const std::vector<RowBlock>& a, const std::vector<RowBlock>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t t = 0; t < a.size(); t++) {
    EXPECT_EQ(a[t].timestamps, b[t].timestamps) << "table " << t;
    EXPECT_TRUE(SameBits(a[t].values, b[t].values) && SameBits(a[t].state, b[t].state)) << "table " << t;
  }
}

// Tables in memory.
RunCourse InMemory(const LinkData& data, const LinkTrainOptions& train) {
  RunCourse course;
  MemoryBudget budget(kGiB);
  const auto summary = TrainLinks(data, train, budget, course.callbacks());
  EXPECT_OK(summary);
  return course;
}

TEST_F(LinkRunTest, TablesLargerThanTheirPoolsLearnTheSame) {
  LinkTrainOptions train = SmallOptions();
  train.spec.dim = 1100;  // a row a page: 120 pages, and 36 frames
  train.epochs = 2;
  const LinkCounts counts = CountsOf(data_);
  const uint64_t pool_bytes =
      StoredPoolBytes(NodeTableSpec(train, counts.nodes), train.workers).least +
      StoredPoolBytes(RelationTableSpec(train, counts.relations), train.workers).least;
  uint64_t least = 0;
  const RunCourse expected = InMemory(data_, train);
  for (const AsyncMode mode : {AsyncMode::kSync, AsyncMode::kOac}) {
    SCOPED_TRACE(fmt::format("seed {}, mode {}", kGraphSeed, static_cast<int>(mode)));
    train.mode = mode;
    least = LinkWorkBytes(train, counts) + pool_bytes;
    MemoryBudget budget(least);
    {
      const auto run = LinkRun::Open(store(), budget, data_, train, {.keep = false});
      ASSERT_OK(run);
      RunCourse course;
      const auto summary = TrainLinks(data_, train, budget, course.callbacks(), **run);
      ASSERT_OK(summary);
      EXPECT_EQ(course.epochs(), expected.epochs());
      EXPECT_GT((*run)->stats().pools.pages_read, 1000u);
      EXPECT_GT((*run)->stats().pools.pages_written, 100u);
      EXPECT_EQ((*run)->stats().checkpoints, 0u);
      EXPECT_LE((*run)->stats().pool_bytes, pool_bytes);
    }
    EXPECT_EQ(budget.used_bytes(), 0u);
    EXPECT_THAT(store().manifest()->embeddings, IsEmpty());
    EXPECT_THAT(testing_util::FilesIn(path() + "/embeddings"), IsEmpty());
  }
  MemoryBudget too_small(least - 1);
  const Status refused = LinkRun::Open(store(), too_small, data_, train, {.keep = false}).status();
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give at least"));
  EXPECT_THAT(store().manifest()->embeddings, IsEmpty()) << "what a refused run had made is gone";
}

TEST_F(LinkRunTest, WhatPoolsAreSaidToTakeIsEnough) {
  for (const auto& [rows, dim] : {std::pair(1, 2), std::pair(120, 1100), std::pair(70'000, 10),
                                  std::pair(500, 5000), std::pair(5'000'000, 10)}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, dim));
    const EmbeddingSpec spec{.row_count = static_cast<uint64_t>(rows), .dim = static_cast<uint32_t>(dim)};
    const PoolBytes bytes = StoredPoolBytes(spec, 4);
    EXPECT_LT(bytes.most, 8 * kMiB + uint64_t{spec.row_count} * (spec.dim + 1) * 2 * sizeof(float) * 3 / 2);
    ASSERT_OK(CreateEmbeddings(store(), "x", spec, SmallestPageBytes(spec)));
    for (const uint64_t memory_bytes : {bytes.least, bytes.most}) {
      if (memory_bytes > 64 * kMiB) continue;
      MemoryBudget budget(memory_bytes);
      const auto opened = StoredEmbeddings::Open(store(), budget, "x", {.memory_bytes = memory_bytes});
      ASSERT_OK(opened);
      RowBlock block{.ids = std::vector<RowId>(std::min(rows, 70'000))};
      std::iota(block.ids.begin(), block.ids.end(), RowId{0});
      ASSERT_OK((*opened)->table().Read(block));
      if (memory_bytes == bytes.most) {
        EXPECT_EQ((*opened)->stats().evictions, 0u) << "all pages fit";
      }
    }
    ASSERT_OK(DropEmbeddings(store(), "x"));
  }
}

// A run in several sessions, each of which is cancelled after some batches: what lies behind its last
// checkpoint is lost. The last session trains to the end.
TEST_F(LinkRunTest, ARunThatIsStoppedAnywhereEndsAsIfItHadNotBeen) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 3;
  train.valid_every = 2;
  train.mode = AsyncMode::kSync;
  ASSERT_EQ(CeilDiv(data_.train.size(), train.batch_edges), kEpochBatches);
  RunCourse expected;
  ASSERT_OK(Train(train, {.name = "whole"}, &expected));
  EXPECT_EQ(expected.epochs(), InMemory(data_, train).epochs());
  const std::vector<RowBlock> rows = Rows("whole");
  for (uint64_t seed = 1; seed <= 4; seed++) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Rng rng(seed);
    LinkRunOptions options{.name = "stopped", .start = Start::kOverwrite};
    RunCourse course;
    std::optional<LinkTrainSummary> summary;
    int sessions = 0;
    for (; !summary && sessions < 200; sessions++) {
      train.mode = rng.Below(2) == 0 ? AsyncMode::kSync : AsyncMode::kOac;
      train.workers = static_cast<unsigned>(1 + rng.Below(3));
      train.batches_in_flight = static_cast<unsigned>(1 + rng.Below(8));
      options.checkpoint_every = 1 + rng.Below(kEpochBatches + 3);
      const auto trained = Train(train, options, &course, options.checkpoint_every + rng.Below(30));
      if (trained.ok()) summary = *trained;
      if (!trained.ok()) {
        ASSERT_EQ(trained.status().code(), Code::kCancelled) << trained.status().ToString();
        EXPECT_THAT(std::string(trained.status().message()), HasSubstr("--resume goes on behind batch"));
      }
      Reopen();
      options.start = Start::kResume;
    }
    EXPECT_GT(sessions, 1) << "it was stopped";
    ASSERT_TRUE(summary.has_value());
    EXPECT_EQ(course.epochs(), expected.epochs());
    ExpectSameBlocks(Rows("stopped"), rows);
    EXPECT_THAT(testing_util::FaultsOf(store()), IsEmpty());
    if (HasFailure()) return;
  }
}

TEST_F(LinkRunTest, ValidationsAreCountedOverStops) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 50;
  train.patience = 3;
  train.optimizer_options.learning_rate = 1e-12F;  // nothing is learned: epoch 1 stays the best
  LinkRunOptions options{.checkpoint_every = 10};
  RunCourse course;
  for (int session = 0; session < 3; session++) {
    EXPECT_FALSE(Train(train, options, &course, 25).ok());
    options.start = Start::kResume;
  }
  const auto summary = Train(train, options, &course);
  ASSERT_OK(summary);
  EXPECT_TRUE(summary->stopped_early);
  EXPECT_EQ(summary->epochs, 4u);
  EXPECT_TRUE(course.epochs().at(1).best);
  EXPECT_FALSE(course.epochs().at(4).best);
  // One that has ended knows it, and trains nothing again.
  const auto again = Train(train, options, &course);
  ASSERT_OK(again);
  EXPECT_EQ(again->epochs, 4u);
  EXPECT_EQ(again->kept_epoch, 1u);
  EXPECT_EQ(again->edges, 0u);
  EXPECT_EQ(again->test->filtered.mrr, summary->test->filtered.mrr);
}

// The kept tables are to the last bit those of a run that ends with that epoch, wherever training is stopped; tables that
// are not kept leave nothing.
TEST_F(LinkRunTest, WithPatienceTheBestEpochIsKept) {
  for (const std::vector<uint32_t>& fanouts : {std::vector<uint32_t>{}, std::vector<uint32_t>{3}}) {
    SCOPED_TRACE(fmt::format("seed {}, {} layers", kGraphSeed, fanouts.size()));
    LinkTrainOptions train = RestlessOptions();
    train.encoder_fanouts = fanouts;
    RunCourse expected;
    const uint64_t used_bytes = budget_.used_bytes();
    const auto summary =
        Train(train, {.name = "best", .start = Start::kOverwrite, .checkpoint_every = 7}, &expected);
    ASSERT_OK(summary);
    ASSERT_TRUE(summary->stopped_early);
    ASSERT_GT(summary->epochs, summary->kept_epoch);
    EXPECT_EQ(budget_.used_bytes(), used_bytes);
    const std::vector<RowBlock> rows = Rows("best");

    LinkTrainOptions plain = train;
    plain.patience = 0;
    plain.epochs = summary->kept_epoch;
    const auto ended = Train(plain, {.name = "plain", .start = Start::kOverwrite});
    ASSERT_OK(ended);
    EXPECT_EQ(ended->test->raw.mrr, summary->test->raw.mrr);
    ExpectSameBlocks(rows, Rows("plain"));

    // What was no better is not trained again; more patience goes on, from the best epoch.
    const auto again = Train(train, {.name = "best", .start = Start::kResume});
    ASSERT_OK(again);
    EXPECT_TRUE(again->stopped_early);
    EXPECT_EQ(again->edges, 0u);
    EXPECT_EQ(again->epochs, summary->epochs);
    EXPECT_EQ(again->kept_epoch, summary->kept_epoch);
    EXPECT_EQ(again->test->raw.mrr, summary->test->raw.mrr);
    ExpectSameBlocks(Rows("best"), rows);
    LinkTrainOptions patient = train;
    patient.patience += 2;
    const auto more = Train(patient, {.name = "best", .start = Start::kResume});
    ASSERT_OK(more);
    EXPECT_GE(more->epochs, summary->kept_epoch + patient.patience);
    EXPECT_GT(more->edges, 0u);

    LinkRunOptions options{.name = "stopped", .start = Start::kOverwrite, .checkpoint_every = 6};
    RunCourse course;
    for (uint64_t batches = 3 * kEpochBatches / 2;; batches += kEpochBatches) {
      const auto stopped = Train(train, options, &course, batches);
      options.start = Start::kResume;
      if (!stopped.ok()) continue;
      EXPECT_EQ(stopped->test->raw.mrr, summary->test->raw.mrr);
      EXPECT_EQ(stopped->kept_epoch, summary->kept_epoch);
      break;
    }
    EXPECT_EQ(course.epochs(), expected.epochs());
    ExpectSameBlocks(Rows("stopped"), rows);

    const auto scratch = Train(train, {.name = "best", .keep = false});
    ASSERT_OK(scratch);
    EXPECT_EQ(scratch->test->raw.mrr, summary->test->raw.mrr);
    EXPECT_EQ(scratch->kept_epoch, summary->kept_epoch);
    EXPECT_THAT(testing_util::FaultsOf(store()), IsEmpty());
    if (HasFailure()) return;
  }
}

// Each session is shorter than an epoch, so that one which went back to the best epoch would never end.
TEST_F(LinkRunTest, WithPatienceWhatIsBehindTheLastCheckpointIsAllThatAStopLoses) {
  for (const std::vector<uint32_t>& fanouts : {std::vector<uint32_t>{}, std::vector<uint32_t>{3}}) {
    LinkTrainOptions train = RestlessOptions();
    train.encoder_fanouts = fanouts;
    RunCourse expected;
    const auto whole = Train(train, {.name = "whole", .start = Start::kOverwrite}, &expected);
    ASSERT_OK(whole);
    ASSERT_GT(whole->epochs, whole->kept_epoch + 1);
    const std::vector<RowBlock> rows = Rows("whole");
    constexpr uint64_t kSeed = 3;
    SCOPED_TRACE(fmt::format("seed {}, {} layers", kSeed, fanouts.size()));
    Rng rng(kSeed);
    LinkRunOptions options{.name = "stopped", .start = Start::kOverwrite, .checkpoint_every = 5};
    RunCourse course;
    std::optional<LinkTrainSummary> summary;
    uint64_t sessions = 0, kept_beside = 0;
    for (; !summary && sessions <= whole->epochs * kEpochBatches / 5; sessions++) {
      const auto trained = Train(train, options, &course, 6 + rng.Below(6));
      if (trained.ok()) summary = *trained;
      if (!trained.ok()) {
        ASSERT_THAT(trained, IsStatus(Code::kCancelled));
      }
      Reopen();
      EXPECT_THAT(testing_util::FaultsOf(store()), IsEmpty());
      const EmbeddingRecord& nodes = *store().manifest()->FindEmbedding("stopped-nodes");
      kept_beside += !nodes.kept_map_file.empty() && nodes.kept_map_file != nodes.map_file ? 1 : 0;
      options.start = Start::kResume;
    }
    ASSERT_TRUE(summary.has_value()) << "after " << sessions << " sessions";
    EXPECT_GT(kept_beside, 3u);
    EXPECT_EQ(course.epochs(), expected.epochs());
    EXPECT_EQ(summary->kept_epoch, whole->kept_epoch);
    EXPECT_EQ(summary->epochs, whole->epochs);
    EXPECT_EQ(summary->valid->filtered.mrr, whole->valid->filtered.mrr);
    EXPECT_EQ(summary->valid->raw.hits_10, whole->valid->raw.hits_10);
    EXPECT_EQ(summary->test->raw.mrr, whole->test->raw.mrr);
    ExpectSameBlocks(Rows("stopped"), rows);
    EXPECT_TRUE(store().manifest()->FindEmbedding("stopped-nodes")->kept_map_file.empty());
    if (HasFailure()) return;
  }
}

// A run that stops behind its best epoch goes on with another valid_every, by which the next epoch is validated and that one
// is not.
TEST_F(LinkRunTest, TheBestEpochIsHeldAgainstLaterOnesThoughItIsNotValidatedAgain) {
  LinkTrainOptions train = RestlessOptions();
  train.epochs = 16;
  train.patience = train.epochs;
  const RunCourse course = InMemory(data_, train);
  double best_before = 0;
  int between = 0;  // epochs that are worse than the best, and better than the best before that
  for (const auto& [stop, facts] : course.epochs()) {
    if (!facts.best || stop == train.epochs) continue;
    SCOPED_TRACE(fmt::format("seed {}, stopped behind epoch {}", kGraphSeed, stop));
    {
      const auto run = Open(train, {.start = Start::kOverwrite, .checkpoint_every = 1000});
      ASSERT_OK(run);
      LinkTrainCallbacks callbacks;
      callbacks.epoch = [&](const LinkEpochReport& report) {
        return report.epoch < stop ? Status::Ok() : Status(Code::kCancelled, "stopped");
      };
      ASSERT_THAT(TrainLinks(data_, train, budget_, callbacks, **run), IsStatus(Code::kCancelled));
    }
    LinkTrainOptions rest = train;
    rest.valid_every = rest.epochs = stop + 1;
    const auto summary = Train(rest, {.start = Start::kResume});
    ASSERT_OK(summary);
    const double next = course.epochs().at(stop + 1).mrr;
    between += next > best_before && next <= facts.mrr ? 1 : 0;
    EXPECT_EQ(summary->kept_epoch, next > facts.mrr ? stop + 1 : stop);
    EXPECT_EQ(summary->valid->filtered.mrr, std::max(next, facts.mrr));
    best_before = facts.mrr;
  }
  EXPECT_GT(between, 0);
}

// One that is given no patience any more goes on as if it had never had any.
TEST_F(LinkRunTest, PatienceThatIsTakenBackKeepsNothing) {
  LinkTrainOptions train = RestlessOptions();
  EXPECT_THAT(Train(train, {.checkpoint_every = 5}, nullptr, 2 * kEpochBatches + 7),
              IsStatus(Code::kCancelled));
  EXPECT_FALSE(store().manifest()->FindEmbedding("link-nodes")->kept_map_file.empty());
  train.patience = 0;
  train.epochs = 4;
  ASSERT_OK(Train(train, {.start = Start::kResume}));
  EXPECT_TRUE(store().manifest()->FindEmbedding("link-nodes")->kept_map_file.empty());
  ASSERT_OK(Train(train, {.name = "plain"}));
  ExpectSameBlocks(Rows("link"), Rows("plain"));
  EXPECT_THAT(testing_util::FaultsOf(store()), IsEmpty());
}

TEST_F(LinkRunTest, AFinishedRunCanBeTrainedLonger) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 4;
  RunCourse expected;
  ASSERT_OK(Train(train, {.name = "whole"}, &expected));
  RunCourse course;
  train.epochs = 2;
  {
    const auto run = Open(train, {.checkpoint_every = 7});
    ASSERT_OK(run);
    ASSERT_OK(TrainLinks(data_, train, budget_, course.callbacks(), **run));
    EXPECT_EQ((*run)->stats().checkpoints, 6u) << "5 times 7 of 40 batches, and the end";
    EXPECT_EQ((*run)->timestamp(), static_cast<int64_t>(2 * kEpochBatches - 1));
  }
  train.epochs = 4;
  const auto longer = Train(train, {.start = Start::kResume}, &course);
  ASSERT_OK(longer);
  EXPECT_EQ(longer->edges, 2 * data_.train.size());
  EXPECT_EQ(course.epochs(), expected.epochs());
  ExpectSameBlocks(Rows("link"), Rows("whole"));
  train.epochs = 3;
  const Status shorter = Train(train, {.start = Start::kResume}).status();
  EXPECT_EQ(shorter.code(), Code::kUsage);
  EXPECT_THAT(std::string(shorter.message()), HasSubstr("epochs is 3, but run \"link\" is in epoch 4"));
}

TEST_F(LinkRunTest, ACheckpointIsNeitherReplacedNorInventedUnasked) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 1;
  const Status missing = Open(train, {.name = "first", .start = Start::kResume}).status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("\"first\""));
  EXPECT_EQ(Open(train, {.name = "a/b"}).status().code(), Code::kUsage);
  ASSERT_OK(Train(train, {}));
  const Status there = Open(train, {}).status();
  EXPECT_EQ(there.code(), Code::kAlreadyExists);
  EXPECT_THAT(std::string(there.message()), AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  EXPECT_OK(Train(train, {.name = "other"}));

  const auto differs = [&](const auto& change) {
    LinkTrainOptions changed = train;
    change(changed);
    const Status status = Open(changed, {.start = Start::kResume}).status();
    EXPECT_EQ(status.code(), Code::kUsage) << status.ToString();
    return std::string(status.message());
  };
  using Options = LinkTrainOptions;
  EXPECT_THAT(differs([](Options& o) { o.spec.dim = 8; }), HasSubstr("--dim is 8, but was 16"));
  EXPECT_THAT(differs([](Options& o) { o.spec.decoder = DecoderKind::kDot; }), HasSubstr("--decoder is dot"));
  EXPECT_THAT(differs([](Options& o) { o.seed = 1; }), HasSubstr("--seed is 1, but was 17"));
  EXPECT_THAT(differs([](Options& o) { o.batch_edges = 99; }), HasSubstr("--batch-size is 99"));
  EXPECT_THAT(differs([](Options& o) { o.optimizer = OptimizerKind::kSgd; }), HasSubstr("adagrad"));
  EXPECT_THAT(differs([](Options& o) { o.optimizer_options.learning_rate = 0.1F; }),
              HasSubstr("--lr is 0.1"));
  // How it is trained may change.
  train.mode = AsyncMode::kAsync;
  train.ordered = false;
  train.workers = 2;
  train.epochs = 2;
  EXPECT_OK(Train(train, {.start = Start::kResume}));

  train.spec.decoder = DecoderKind::kDot;  // which has no table of relations
  EXPECT_OK(Train(train, {.start = Start::kOverwrite}));
  EXPECT_NE(store().manifest()->FindEmbedding("link-nodes"), nullptr);
  EXPECT_EQ(store().manifest()->FindEmbedding("link-relations"), nullptr);
  EXPECT_NE(store().manifest()->FindEmbedding("other-relations"), nullptr);
}

TEST_F(LinkRunTest, ARunWithoutACheckpointLeavesNothing) {
  const LinkTrainOptions train = SmallOptions();
  // Left by a run that was killed.
  ASSERT_OK(CreateEmbeddings(store(), "link-nodes", {.row_count = 9, .dim = 3}));
  ASSERT_OK(CreateEmbeddings(store(), "link-scratch-relations", {.row_count = 9, .dim = 3}));
  const Status stopped = Train(train, {.checkpoint_every = 10}, nullptr, 5).status();
  EXPECT_EQ(stopped.code(), Code::kCancelled);
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("no checkpoint of this training yet"));
  EXPECT_EQ(store().manifest()->FindEmbedding("link-nodes"), nullptr);
  EXPECT_EQ(Train(train, {.checkpoint_every = 10, .keep = false}, nullptr, 50).status().message(), "stopped");
  EXPECT_THAT(store().manifest()->embeddings, IsEmpty());
  EXPECT_THAT(store().manifest()->trainings, IsEmpty());
}

TEST_F(LinkRunTest, AStateThatIsNotOfItsTablesIsRefused) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 1;
  ASSERT_OK(Train(train, {}));
  {
    auto nodes = StoredEmbeddings::Open(store(), budget_, "link-nodes", {.memory_bytes = 16 * kMiB});
    ASSERT_OK(nodes);
    ASSERT_OK((*nodes)->Checkpoint(1000));
  }
  const Status status = Open(train, {.start = Start::kResume}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("training/1.qts"), HasSubstr("--overwrite")));
}

}  // namespace
}  // namespace quarry
