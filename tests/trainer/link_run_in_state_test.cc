// Runs of link prediction whose vectors are in memory, and in the states of their checkpoints: one that is
// stopped anywhere ends with the same state, byte by byte, as one that was not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "embedding/trained_tables.h"
#include "link_memory.h"
#include "link_state.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/storage/training_state.h"
#include "quarry/trainer/link_run.h"
#include "support/status_matchers.h"
#include "trainer/grouped_graph.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using Bytes = std::vector<std::byte>;
using Start = LinkRunOptions::Start;

// Loss, validation MRR and whether it was the best, by epoch: of one that two sessions tell, both must tell
// the same.
using Epochs = std::map<uint32_t, std::tuple<double, double, bool>>;

LinkTrainOptions FewEpochs() {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 3;
  train.valid_every = 2;
  return train;
}

// States that a database keeps, as a server's does.
class LinkRunInStateTest : public testing::Test {
 protected:
  LinkRunInStateTest() : folder_(testing_util::Medium::kMemory), backend_(MakeDefaultBackend()) {
    const std::string path = folder_.path() + "/db";
    EXPECT_OK(testing_util::CreateEmptyDatabase(*backend_, path));
    store_ = Store::Open(*backend_, path).value();
    states_ = TrainingStatesOf(*store_);
  }

  Result<std::unique_ptr<LinkRun>> Open(const LinkTrainOptions& train, const LinkRunOptions& options) {
    return LinkRun::OpenInState(*states_, budget_, data_, train, options);
  }
  // Cancels the training after so many batches of this session, if there are more.
  Result<LinkTrainSummary> TrainOn(const LinkTrainOptions& train, LinkRun& run, Epochs* epochs = nullptr,
                                   uint64_t batches = UINT64_MAX) {
    LinkTrainCallbacks callbacks;
    callbacks.epoch = [&](const LinkEpochReport& report) {
      const std::tuple facts{report.loss, report.valid ? report.valid->filtered.mrr : -1, report.best};
      if (epochs == nullptr) return Status::Ok();
      const auto [before, is_new] = epochs->emplace(report.epoch, facts);
      EXPECT_TRUE(is_new || before->second == facts) << "epoch " << report.epoch;
      return Status::Ok();
    };
    callbacks.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      if (!phase.starts_with("epoch") || batches-- > 0) return Status::Ok();
      return Status(Code::kCancelled, "stopped");
    };
    return TrainLinks(data_, train, budget_, callbacks, run);
  }
  Result<LinkTrainSummary> Train(const LinkTrainOptions& train, const LinkRunOptions& options,
                                 Epochs* epochs = nullptr, uint64_t batches = UINT64_MAX) {
    QUARRY_TRY(const std::unique_ptr<LinkRun> run, Open(train, options));
    return TrainOn(train, *run, epochs, batches);
  }
  Bytes StateOf(const std::string& name) { return states_->Read(name).value(); }

  LinkData data_ = GroupedGraph();
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  std::unique_ptr<TrainingStates> states_;

 private:
  testing_util::ScratchFolder folder_;
  const std::unique_ptr<IoBackend> backend_;
};

TEST_F(LinkRunInStateTest, ARunThatIsStoppedAnywhereEndsWithTheSameBytes) {
  const auto with = [](DecoderKind decoder, OptimizerKind optimizer, std::vector<uint32_t> fanouts) {
    LinkTrainOptions train = FewEpochs();
    train.spec.decoder = decoder;
    train.optimizer = optimizer;
    train.encoder_fanouts = std::move(fanouts);
    if (optimizer != OptimizerKind::kAdagrad) train.optimizer_options.learning_rate = 0.01F;
    return train;
  };
  const LinkTrainOptions cases[] = {with(DecoderKind::kDistMult, OptimizerKind::kAdagrad, {}),
                                    with(DecoderKind::kComplEx, OptimizerKind::kAdam, {}),
                                    with(DecoderKind::kDot, OptimizerKind::kSgd, {}),
                                    with(DecoderKind::kDistMult, OptimizerKind::kAdagrad, {4, 3})};
  for (size_t i = 0; i < std::size(cases); i++) {
    SCOPED_TRACE(fmt::format("case {}", i));
    LinkTrainOptions train = cases[i];
    Epochs expected;
    ASSERT_OK(Train(train, {.name = "whole", .start = Start::kOverwrite}, &expected));
    EXPECT_EQ(StateOf("whole").size(), LinkStateBytes(train, CountsOf(data_)));
    Rng rng(i + 1);
    LinkRunOptions options{.name = "stopped", .start = Start::kOverwrite};
    Epochs epochs;
    int sessions = 0;
    for (bool ended = false; !ended && sessions < 200; sessions++) {
      train.mode = rng.Below(2) == 0 ? AsyncMode::kSync : AsyncMode::kOac;
      train.workers = static_cast<unsigned>(1 + rng.Below(3));
      options.checkpoint_every = 1 + rng.Below(kEpochBatches + 3);
      const auto trained = Train(train, options, &epochs, options.checkpoint_every + rng.Below(30));
      ended = trained.ok();
      if (!ended) {
        ASSERT_EQ(trained.status().code(), Code::kCancelled) << trained.status().ToString();
        EXPECT_THAT(std::string(trained.status().message()), HasSubstr("--resume goes on behind batch"));
      }
      options.start = Start::kResume;
    }
    EXPECT_GT(sessions, 1) << "it was stopped";
    EXPECT_EQ(epochs, expected);
    EXPECT_TRUE(StateOf("stopped") == StateOf("whole"));
    EXPECT_THAT(store_->manifest()->embeddings, IsEmpty()) << "no tables";
    if (HasFailure()) return;
  }
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(LinkRunInStateTest, ValidationsAreCountedOverStops) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 50;
  train.patience = 3;
  train.optimizer_options.learning_rate = 1e-12F;  // nothing is learned: epoch 1 stays the best
  LinkRunOptions options{.checkpoint_every = 10};
  for (int session = 0; session < 3; session++) {
    EXPECT_FALSE(Train(train, options, nullptr, 25).ok());
    options.start = Start::kResume;
  }
  const auto summary = Train(train, options);
  ASSERT_OK(summary);
  EXPECT_TRUE(summary->stopped_early);
  EXPECT_EQ(summary->epochs, 4u);
}

TEST_F(LinkRunInStateTest, WithPatienceTheBestEpochIsKept) {
  LinkTrainOptions train = RestlessOptions();
  const auto summary = Train(train, {.name = "best", .checkpoint_every = 7});
  ASSERT_OK(summary);
  ASSERT_TRUE(summary->stopped_early);
  ASSERT_GT(summary->epochs, summary->kept_epoch);
  train.patience = 0;
  train.epochs = summary->kept_epoch;
  const auto ended = Train(train, {.name = "plain"});
  ASSERT_OK(ended);
  EXPECT_EQ(ended->test->raw.mrr, summary->test->raw.mrr);
  // They differ in what came behind: validations, where the other counts those before.
  std::vector<std::byte> best = StateOf("best"), plain = StateOf("plain");
  constexpr size_t kValidations = 36;
  uint32_t behind = 0;
  std::memcpy(&behind, best.data() + kValidations, sizeof(behind));
  EXPECT_EQ(behind, uint32_t{1} << 31 | (summary->epochs - summary->kept_epoch));
  std::memcpy(best.data() + kValidations, plain.data() + kValidations, sizeof(behind));
  EXPECT_TRUE(best == plain);
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

// Here as there where it becomes tables on the way, with what came of the best epoch until then.
TEST_F(LinkRunInStateTest, WithPatienceWhatIsBehindTheLastCheckpointIsAllThatAStopLoses) {
  const LinkTrainOptions train = RestlessOptions();
  Epochs expected;
  const auto whole = Train(train, {.name = "whole", .checkpoint_every = 7}, &expected);
  ASSERT_OK(whole);
  LinkRunOptions options{.name = "stopped", .checkpoint_every = 5};
  Epochs epochs;
  std::optional<LinkTrainSummary> summary;
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  bool moved = false;
  for (uint64_t session = 0; !summary && session <= whole->epochs * kEpochBatches / 5; session++) {
    const auto trained = Train(train, options, &epochs, 6 + rng.Below(6));
    if (trained.ok()) summary = *trained;
    if (!trained.ok()) {
      ASSERT_THAT(trained, IsStatus(Code::kCancelled));
    }
    options.start = Start::kResume;
    const bool both = StateOf("stopped").size() == LinkStateBytes(train, CountsOf(data_));
    if (!both || moved) continue;
    // A copy of the run, which the database goes on with.
    moved = true;
    const TrainingRecord record = states_->Find("stopped").value();
    ASSERT_OK(states_->Save({.name = "moved", .settings = record.settings, .state = StateOf("stopped")}));
    const auto run =
        LinkRun::Open(*store_, budget_, data_, train, {.name = "moved", .start = Start::kResume});
    ASSERT_OK(run);
    ASSERT_TRUE((*run)->best().has_value());
    Epochs rest = epochs;
    const auto ended = TrainOn(train, **run, &rest);
    ASSERT_OK(ended);
    EXPECT_EQ(rest, expected);
    EXPECT_EQ(ended->kept_epoch, whole->kept_epoch);
    EXPECT_EQ(ended->test->raw.mrr, whole->test->raw.mrr);
    EXPECT_EQ(ended->valid->raw.mrr, whole->valid->raw.mrr);
    LinkState last{.place = (*run)->place(), .timestamp = (*run)->timestamp()};
    EmbeddingTable* const tables[] = {&(*run)->nodes(), (*run)->relations()};
    EXPECT_TRUE(EncodeLinkState(last, tables, true).value() == StateOf("whole"));
  }
  ASSERT_TRUE(summary.has_value());
  EXPECT_TRUE(moved) << "no state had both";
  EXPECT_EQ(epochs, expected);
  EXPECT_EQ(summary->kept_epoch, whole->kept_epoch);
  EXPECT_EQ(summary->valid->filtered.mrr, whole->valid->filtered.mrr);
  EXPECT_TRUE(StateOf("stopped") == StateOf("whole"));
  EXPECT_EQ(budget_.used_bytes(), 0u);
  EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
}

// A state has what is learned beside the features: an encoder, and relations where the decoder has any.
TEST_F(LinkRunInStateTest, OverFeaturesARunThatIsStoppedAnywhereEndsWithTheSameBytes) {
  constexpr uint64_t kSeed = 9;
  constexpr uint32_t kDim = 6;
  Rng rng(kSeed);
  for (uint64_t i = 0; i < data_.node_count * kDim; i++) {
    data_.features.push_back(static_cast<float>(rng.Unit() - 0.5));
  }
  for (const DecoderKind decoder : {DecoderKind::kDot, DecoderKind::kDistMult}) {
    for (const uint32_t patience : {0U, 2U}) {
      SCOPED_TRACE(fmt::format("seed {}, {}, patience {}", kSeed, DecoderName(decoder), patience));
      LinkTrainOptions train = patience > 0 ? RestlessOptions() : FewEpochs();
      train.patience = patience;
      train.epochs = std::min(train.epochs, 8U);
      train.spec.decoder = decoder;
      train.encoder_fanouts = {3};
      train.encoder_learning_rate = patience > 0 ? 0.1F : 0.001F;
      train.feature_dim = kDim;
      train.feature_table = "rows";
      Epochs expected, epochs;
      const auto whole = Train(train, {.name = "whole", .start = Start::kOverwrite}, &expected);
      ASSERT_OK(whole);
      LinkTrainOptions ended = train;  // a state without a best
      ended.patience = 0;
      EXPECT_EQ(StateOf("whole").size(), LinkStateBytes(ended, CountsOf(data_)));
      LinkRunOptions options{.name = "stopped", .start = Start::kOverwrite, .checkpoint_every = 5};
      std::optional<LinkTrainSummary> summary;
      for (int session = 0; !summary && session < 100; session++) {
        const auto trained = Train(train, options, &epochs, 6 + rng.Below(9));
        if (trained.ok()) summary = *trained;
        if (!trained.ok()) {
          ASSERT_THAT(trained, IsStatus(Code::kCancelled));
        }
        options.start = Start::kResume;
      }
      ASSERT_TRUE(summary.has_value());
      EXPECT_EQ(epochs, expected);
      EXPECT_EQ(summary->test->raw.mrr, whole->test->raw.mrr);
      EXPECT_TRUE(StateOf("stopped") == StateOf("whole"));
      train.feature_table = "others";
      EXPECT_THAT(Open(train, {.name = "whole", .start = Start::kResume}),
                  IsStatus(Code::kUsage, HasSubstr("--features is others, but was rows")));
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(budget_.used_bytes(), 0u);
  LinkTrainOptions without = FewEpochs();
  without.encoder_fanouts = {3};
  without.feature_dim = kDim + 1;
  EXPECT_THAT(Open(without, {.name = "other"}), IsStatus(Code::kInvalidArgument));
  EXPECT_THAT(LinkRun::Open(*store_, budget_, data_, without, {.name = "other"}), IsStatus(Code::kUsage));
}

TEST_F(LinkRunInStateTest, ACheckpointIsNeitherReplacedNorInventedUnasked) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 1;
  EXPECT_EQ(Open(train, {.start = Start::kResume}).status().code(), Code::kNotFound);
  EXPECT_EQ(Open(train, {.name = "a/b"}).status().code(), Code::kUsage);
  const Status stopped = Train(train, {.checkpoint_every = 10}, nullptr, 5).status();
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("no checkpoint of this training yet"));
  ASSERT_OK(Train(train, {.checkpoint_every = 7}));
  EXPECT_THAT(Open(train, {}).status().ToString(), AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  {
    LinkTrainOptions changed = train;
    changed.spec.dim = 8;
    const Status status = Open(changed, {.start = Start::kResume}).status();
    EXPECT_EQ(status.code(), Code::kUsage);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--dim is 8, but was 16 when run \"link\" took its checkpoint"));
  }
  // Until the first new one, the old one stands.
  const Bytes before = StateOf("link");
  train.seed++;
  EXPECT_FALSE(Train(train, {.start = Start::kOverwrite, .checkpoint_every = 10}, nullptr, 5).ok());
  EXPECT_TRUE(StateOf("link") == before);
  EXPECT_OK(Train(train, {.start = Start::kOverwrite}));
  EXPECT_FALSE(StateOf("link") == before);
}

// The last budget that is refused is a byte smaller than the first that is enough.
TEST_F(LinkRunInStateTest, ABudgetWithoutRoomForACheckpointIsRefused) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 1;
  const LinkCounts counts = CountsOf(data_);
  const uint64_t least =
      LinkWorkBytes(train, counts) + LinkTableBytes(train, counts) + LinkCheckpointBytes(train, counts);
  MemoryBudget small(least - 1), enough(least);
  const Status refused = LinkRun::OpenInState(*states_, small, data_, train, {}).status();
  EXPECT_EQ(refused.code(), Code::kOutOfBudget);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("give at least"));
  const auto run = LinkRun::OpenInState(*states_, enough, data_, train, {});
  ASSERT_OK(run);
  EXPECT_OK(TrainLinks(data_, train, enough, {}, **run));
}

// What a server has kept becomes tables where the database itself is open, and goes on there as if it had
// always been; after that, no state without its tables takes its place.
TEST_F(LinkRunInStateTest, ARunGoesOnInTablesOfTheDatabase) {
  LinkTrainOptions train = FewEpochs();
  for (const std::vector<uint32_t>& fanouts : {std::vector<uint32_t>{}, std::vector<uint32_t>{4}}) {
    train.encoder_fanouts = fanouts;
    Epochs expected, epochs;
    ASSERT_OK(Train(train, {.name = "whole", .start = Start::kOverwrite}, &expected));
    EXPECT_FALSE(Train(train, {.name = "moved", .checkpoint_every = 7}, &epochs, 30).ok());
    {
      // Left by one that was killed on its way.
      ASSERT_OK(CreateEmbeddings(*store_, "moved-nodes", {.row_count = 9, .dim = 3}));
      const auto run =
          LinkRun::Open(*store_, budget_, data_, train, {.name = "moved", .start = Start::kResume});
      ASSERT_OK(run);
      EXPECT_EQ((*run)->place().batches, 8u) << "of epoch 2, behind 28";
      EXPECT_EQ(store_->manifest()->FindEmbedding("moved-nodes")->timestamp, 27) << "at once";
      ASSERT_OK(TrainOn(train, **run, &epochs));
      // The tables have now what the state of the other run has.
      LinkState last{.place = (*run)->place(), .timestamp = (*run)->timestamp()};
      last.task_state.assign((*run)->task_state().begin(), (*run)->task_state().end());
      EmbeddingTable* const tables[] = {&(*run)->nodes(), (*run)->relations()};
      EXPECT_TRUE(EncodeLinkState(last, tables, true).value() == StateOf("whole"));
    }
    EXPECT_EQ(epochs, expected);
    EXPECT_THAT(testing_util::FaultsOf(*store_), IsEmpty());
    for (const Start start : {Start::kNew, Start::kOverwrite, Start::kResume}) {
      const Status status = Open(train, {.name = "moved", .start = start}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr("train it on the database itself"));
    }
    const auto anew =
        LinkRun::Open(*store_, budget_, data_, train, {.name = "moved", .start = Start::kOverwrite});
    ASSERT_OK(anew);
  }
}

TEST_F(LinkRunInStateTest, AStateOfAnotherTrainingIsRefused) {
  LinkTrainOptions train = SmallOptions();
  train.epochs = 1;
  ASSERT_OK(Train(train, {}));
  const auto refusal = [&] {
    const Status status = Open(train, {.start = Start::kResume}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
    EXPECT_THAT(std::string(status.message()), HasSubstr("--overwrite begins the run anew"));
    return std::string(status.message());
  };
  data_.node_count++;
  EXPECT_THAT(refusal(), HasSubstr("120 vectors of 16 floats where there are 121 of 16 now"));
  data_.node_count--;
  data_.train.resize(data_.train.size() / 2);
  EXPECT_THAT(refusal(), HasSubstr("batch 20 of epoch 1 at timestamp 19 is no place in this training"));
}

// A state of two tables in which some rows are written.
class LinkStateTest : public testing::Test {
 protected:
  LinkStateTest() {
    for (const auto& table : {nodes_.get(), relations_.get()}) {
      RowBlock block = testing_util::AllRowsOf(table->spec());
      EXPECT_OK(table->Read(block));
      block.values[1] = 42;
      block.state[0] = 43;
      block.timestamps[0] = 12;
      EXPECT_OK(table->Write(block));
    }
  }
  static std::unique_ptr<EmbeddingTable> Table(uint64_t rows, uint32_t dim) {
    return MakeMemoryEmbeddingTable(
        {.row_count = rows, .dim = dim, .optimizer = OptimizerKind::kAdagrad, .seed = 5});
  }
  Bytes Encode() {
    EmbeddingTable* const tables[] = {nodes_.get(), relations_.get()};
    return EncodeLinkState({.place = {3, 7, 1.5, 0.25, 2}, .timestamp = 12, .task_state = task_state_},
                           tables, true)
        .value();
  }
  static Status Decode(const Bytes& bytes, LinkState& state, uint32_t dim = 4) {
    const auto nodes = Table(5, dim), relations = Table(2, 3);
    EmbeddingTable* const tables[] = {nodes.get(), relations.get()};
    return DecodeLinkState(bytes, state, tables, true);
  }

  const std::unique_ptr<EmbeddingTable> nodes_ = Table(5, 4), relations_ = Table(2, 3);
  const Bytes task_state_ = Bytes(3, std::byte{9});
};

// docs/format.md, "Training states".
TEST_F(LinkStateTest, FieldsLieWhereTheFormatSays) {
  const Bytes bytes = Encode();
  const auto at = [&]<typename Value>(size_t offset, Value) {
    Value value;
    std::memcpy(&value, &bytes[offset], sizeof(value));
    return value;
  };
  EXPECT_EQ(at(0, uint32_t{}), 2u);   // task
  EXPECT_EQ(at(4, uint32_t{}), 2u);   // version
  EXPECT_EQ(at(8, uint32_t{}), 3u);   // epoch
  EXPECT_EQ(at(12, uint64_t{}), 7u);  // batches
  EXPECT_EQ(at(20, double{}), 1.5);   // loss
  EXPECT_EQ(at(28, double{}), 0.25);  // best MRR
  EXPECT_EQ(at(36, uint32_t{}), 2u);  // validations since
  EXPECT_EQ(at(40, int64_t{}), 12);   // timestamp
  EXPECT_EQ(at(48, uint64_t{}), 3u);  // bytes of the task's
  EXPECT_EQ(at(58, uint8_t{}), 9u);   // their last
  EXPECT_EQ(at(59, uint64_t{}), 5u);  // rows of the first table
  EXPECT_EQ(at(67, uint32_t{}), 4u);  // floats of each
  EXPECT_EQ(at(71, uint8_t{}), static_cast<uint8_t>(ElementType::kFloat32));
  EXPECT_EQ(at(72, uint8_t{}), static_cast<uint8_t>(OptimizerKind::kAdagrad));
  EXPECT_EQ(at(73, uint8_t{}), static_cast<uint8_t>(InitKind::kUniform));
  EXPECT_EQ(at(74, float{}), 0.1F);            // scale of first values
  EXPECT_EQ(at(78, uint64_t{}), 5u);           // their seed
  EXPECT_EQ(at(86, int64_t{}), 12);            // of the first row: timestamp,
  EXPECT_EQ(at(98, float{}), 42);              // second value,
  EXPECT_EQ(at(110, float{}), 43);             // first of the optimizer's state
  EXPECT_EQ(at(126, int64_t{}), -1);           // the second row
  EXPECT_EQ(at(86 + 5 * 40, uint64_t{}), 2u);  // rows of the second table
  EXPECT_EQ(bytes.size(), 86 + 5 * 40 + 27 + 2 * 32u);
}

TEST_F(LinkStateTest, TheBestStandsBehindTheLast) {
  const LinkState state{.place = {3, 7, 1.5, 0.25, 2}, .timestamp = 12, .task_state = task_state_};
  EmbeddingTable* const tables[] = {nodes_.get(), relations_.get()};
  LinkEvaluation valid;
  valid.raw = {.rankings = 8, .mrr = 0.1, .hits_1 = 0.2, .hits_3 = 0.3, .hits_10 = 0.4};
  valid.filtered = {.rankings = 9, .mrr = 0.5, .hits_1 = 0.6, .hits_3 = 0.7, .hits_10 = 0.8};
  const Bytes last = Encode(), best(10, std::byte{77});
  for (const Bytes& behind : {best, Bytes()}) {
    const Bytes bytes = EncodeLinkRun(state, tables, true, valid, behind).value();
    EXPECT_EQ(bytes.size(), 96 + last.size() + behind.size());
    const auto parts = SplitLinkRun(bytes);
    ASSERT_OK(parts);
    EXPECT_TRUE(std::ranges::equal(parts->last, last));
    EXPECT_TRUE(std::ranges::equal(parts->best, behind));
    ASSERT_TRUE(parts->valid.has_value());
    EXPECT_EQ(parts->valid->raw.hits_3, 0.3);
    EXPECT_EQ(parts->valid->filtered.rankings, 9u);
    EXPECT_EQ(parts->valid->filtered.hits_10, 0.8);
    for (const size_t size : {size_t{7}, size_t{50}, 96 + last.size() - 1}) {
      EXPECT_THAT(SplitLinkRun(std::span(bytes).first(size)), IsStatus(Code::kCorruption)) << size;
    }
  }
  const auto plain = SplitLinkRun(last);
  ASSERT_OK(plain);
  EXPECT_TRUE(std::ranges::equal(plain->last, last));
  EXPECT_FALSE(plain->valid.has_value());
  LinkState beside;
  ASSERT_OK(DecodeBesideVectors(last, beside));
  EXPECT_EQ(beside.timestamp, 12);
  EXPECT_EQ(beside.place.batches, 7u);
  EXPECT_EQ(beside.task_state, task_state_);
}

TEST_F(LinkStateTest, EveryFieldComesBack) {
  const auto nodes = Table(5, 4), relations = Table(2, 3);
  EmbeddingTable* const tables[] = {nodes.get(), relations.get()};
  LinkState state;
  ASSERT_OK(DecodeLinkState(Encode(), state, tables, true));
  EXPECT_EQ(state.task_state, task_state_);
  EXPECT_TRUE(EncodeLinkState(state, tables, true).value() == Encode());
}

TEST_F(LinkStateTest, OtherBytesAreRefused) {
  const Bytes bytes = Encode();
  LinkState state;
  EXPECT_OK(Decode(bytes, state));
  for (size_t size = 0; size < bytes.size(); size++) {
    const Status status = Decode({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}, state);
    ASSERT_EQ(status.code(), Code::kCorruption) << size << ": " << status.ToString();
  }
  const auto changed = [&](size_t at, uint8_t value) {
    Bytes other = bytes;
    other[at] = std::byte{value};
    return Decode(other, state);
  };
  EXPECT_EQ(Decode(bytes, state, 5).code(), Code::kInvalidArgument) << "of other tables";
  EXPECT_EQ(changed(0, 1).code(), Code::kInvalidArgument) << "of another task";
  EXPECT_EQ(changed(4, 1).code(), Code::kUnsupported) << "without vectors";
  EXPECT_EQ(changed(72, 0).code(), Code::kInvalidArgument) << "of another optimizer";
  EXPECT_EQ(changed(78, 6).code(), Code::kInvalidArgument) << "of another seed";
  EXPECT_EQ(changed(86, 13).code(), Code::kCorruption) << "a row that is younger than the state";
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(Decode(longer, state).code(), Code::kCorruption);
}

}  // namespace
}  // namespace quarry
