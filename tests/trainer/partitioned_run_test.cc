// Runs of link prediction by parts: vectors that swap through memory learn what vectors in memory learn from
// the same batches, and a run that is stopped anywhere goes on as if it had not been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "embedding/trained_tables.h"
#include "link_encoder.h"
#include "link_memory.h"
#include "partition/partitioned_store.h"
#include "quarry/base/random.h"
#include "quarry/trainer/link_run.h"
#include "trainer/grouped_graph.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing_util::PartitionedStore;
using testing_util::RandomAssignment;
using testing_util::SmallStore;
using testing_util::TypedEdge;
using Start = LinkRunOptions::Start;

constexpr uint32_t kParts = 8;

// What encoding by parts holds on disk, by the names that its files had.
size_t OpenScratchFiles() {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one that lists
    const std::string path = std::filesystem::read_symlink(entry, gone);
    files += path.find("/embeddings/rows-") != std::string::npos ? 1 : 0;
  }
  return files;
}

// Loss and MRR of each epoch; one that two sessions tell must be told the same.
class Course {
 public:
  std::function<Status(const LinkEpochReport&)> callback() {
    return [this](const LinkEpochReport& report) {
      const std::pair facts(report.loss, report.valid->filtered.mrr);
      const auto [before, is_new] = epochs_.emplace(report.epoch, facts);
      EXPECT_TRUE(is_new || before->second == facts) << "epoch " << report.epoch;
      return Status::Ok();
    };
  }
  const std::map<uint32_t, std::pair<double, double>>& epochs() const { return epochs_; }

 private:
  std::map<uint32_t, std::pair<double, double>> epochs_;
};

// The oracle's table: all rows in memory, begun as the rows of parts are.
class WholeTable final : public EmbeddingTable {
 public:
  explicit WholeTable(PartLayout layout)
      : layout_(std::move(layout)), table_(MakeMemoryEmbeddingTable(layout_.file_spec())) {}
  const EmbeddingSpec& spec() const override { return layout_.rows; }
  Status Read(RowBlock& block) override {
    const std::vector<RowId> ids = ToFile(block.ids);
    QUARRY_RETURN_IF_ERROR(table_->Read(block));
    block.ids = ids;
    return Status::Ok();
  }
  Status Write(const RowBlock& block) override {
    RowBlock moved = block;
    ToFile(moved.ids);
    return table_->Write(moved);
  }
  Status Prefetch(std::span<const RowId>) override { return Status::Ok(); }

 private:
  // Returns what the ids were.
  std::vector<RowId> ToFile(std::vector<RowId>& ids) const {
    std::vector<RowId> before = ids;
    for (RowId& id : ids) {
      const uint32_t part = layout_.PartOf(id);
      id = part * layout_.stride + id - layout_.part_starts[part];
    }
    return before;
  }

  const PartLayout layout_;
  const std::unique_ptr<EmbeddingTable> table_;
};

// The oracle's run: the road's batches on tables in memory, without checkpoints.
class WholeRun final : public LinkRun {
 public:
  WholeRun(PartLayout layout, const EmbeddingSpec& relations, std::unique_ptr<PartitionedRoad> road,
           std::string scratch_folder)
      : LinkRun({.keep = false}, ""),
        scratch_folder_(std::move(scratch_folder)),
        nodes_(std::move(layout)),
        relations_(MakeMemoryEmbeddingTable(relations)),
        road_(std::move(road)) {}
  LinkTables where() const override { return LinkTables::kStored; }
  EmbeddingTable& nodes() override { return nodes_; }
  EmbeddingTable* relations() override { return relations_.get(); }
  PartitionedRoad* road() override { return road_.get(); }
  std::string scratch_folder() const override { return scratch_folder_; }
  Status ReturnToBest(MemoryBudget&, const LinkData&, const LinkTrainOptions&, uint32_t) override {
    return Status(Code::kUnsupported, "it has no checkpoints");
  }

 private:
  Status Save(const LinkState&, const LinkBest*) override { return Status::Ok(); }

  const std::string scratch_folder_;
  WholeTable nodes_;
  const std::unique_ptr<EmbeddingTable> relations_;
  const std::unique_ptr<PartitionedRoad> road_;
};

std::vector<float> AllRows(EmbeddingTable& table) {
  RowBlock block;
  for (RowId row = 0; row < table.spec().row_count; ++row) block.ids.push_back(row);
  EXPECT_OK(table.Read(block));
  return {block.values.begin(), block.values.end()};
}

class PartitionedRunTest : public testing::Test {
 protected:
  PartitionedRunTest() {
    EXPECT_OK(BuildPartitioning(*world_.store, world_.budget, {}, assignment_, {}));
    OpenParts();
    data_.node_count = SmallStore::kNodes;
    data_.relation_count = SmallStore::kRelations;
    for (const auto& [source, destination, relation] :
         world_.EdgesIn(PartitionedStore::NewIds(assignment_))) {
      data_.train.push_back({source, relation, destination});
    }
    data_.valid.assign(data_.train.begin(), data_.train.begin() + 50);
    data_.test.assign(data_.train.end() - 50, data_.train.end());
  }
  void OpenParts() {
    auto opened = StoredPartitioning::Open(*world_.store, world_.budget, "default");
    ASSERT_OK(opened);
    partitioning_ = *std::move(opened);
  }
  void Reopen() {
    partitioning_.reset();
    world_.Reopen();
    OpenParts();
  }

  static LinkTrainOptions Training() {
    LinkTrainOptions train = SmallOptions();
    train.batch_edges = 300;
    train.epochs = 3;
    return train;
  }
  LinkRunOptions Options(const PartitionedRoadOptions& road = {.buffer = 4, .logical = 4}) {
    return {.partitioning = partitioning_.get(), .road = road};
  }

  // Cancels the training after so many batches of this session, if there are more.
  Result<LinkTrainSummary> Train(const LinkTrainOptions& train, LinkRunOptions options, Course* course,
                                 uint64_t batches = UINT64_MAX) {
    options.partitioning = partitioning_.get();
    QUARRY_TRY(const auto run, LinkRun::Open(*world_.store, budget_, data_, train, options));
    LinkTrainCallbacks callbacks;
    if (course != nullptr) callbacks.epoch = course->callback();
    callbacks.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      if (!phase.starts_with("epoch") || batches-- > 0) return Status::Ok();
      return Status(Code::kCancelled, "stopped");
    };
    return TrainLinks(data_, train, budget_, callbacks, *run);
  }

  Result<LinkTrainSummary> TrainWhole(const LinkTrainOptions& train, const PartitionedRoadOptions& options,
                                      Course& course) {
    const LinkCounts counts = CountsOf(data_);
    QUARRY_TRY(PartLayout layout,
               LayOutParts(NodeTableSpec(train, counts.nodes), partitioning_->directory().part_starts));
    QUARRY_TRY(auto road, PartitionedRoad::Make(*partitioning_, *disk_, budget_, nullptr, options, train.seed,
                                                train.batch_edges));
    WholeRun run(std::move(layout), RelationTableSpec(train, counts.relations), std::move(road),
                 world_.store->path());
    return TrainLinks(data_, train, budget_, {.epoch = course.callback(), .progress = {}}, run);
  }

  const std::unique_ptr<IoBackend> disk_ = MakeDefaultBackend();
  PartitionedStore world_{*disk_};
  const Assignment assignment_ = RandomAssignment(SmallStore::kNodes, kParts, 8);
  std::unique_ptr<StoredPartitioning> partitioning_;
  LinkData data_;
  MemoryBudget budget_{kGiB};
};

TEST_F(PartitionedRunTest, VectorsThatSwapLearnWhatVectorsInMemoryLearn) {
  const PartitionedRoadOptions roads[] = {
      {.order = PartitionOrder::kBeta, .buffer = 2, .logical = kParts},
      {.order = PartitionOrder::kComet, .buffer = 4, .logical = 4},
      {.order = PartitionOrder::kComet, .buffer = 2, .logical = 8, .prefetch = false},
  };
  for (const PartitionedRoadOptions& road : roads) {
    for (const bool encoder : {false, true}) {
      for (const AsyncMode mode : {AsyncMode::kSync, AsyncMode::kOac}) {
        LinkTrainOptions train = Training();
        train.mode = mode;
        train.workers = mode == AsyncMode::kOac ? 3 : 1;
        train.degree_share = encoder ? 0 : 0.5;
        if (encoder) train.encoder_fanouts = {5};
        SCOPED_TRACE(fmt::format("{}, encoder {}, mode {}, seed {}", PartitionOrderName(road.order), encoder,
                                 static_cast<int>(mode), train.seed));
        Course expected, course;
        const auto whole = TrainWhole(train, road, expected);
        ASSERT_OK(whole);
        LinkRunOptions options = Options(road);
        options.keep = false;
        const auto parted = Train(train, options, &course);
        ASSERT_OK(parted);
        ASSERT_EQ(course.epochs().size(), train.epochs);
        EXPECT_EQ(course.epochs(), expected.epochs());
        EXPECT_EQ(parted->test->filtered.mrr, whole->test->filtered.mrr);
        EXPECT_EQ(parted->edges, train.epochs * data_.train.size());
        EXPECT_LT(course.epochs().at(3).first, course.epochs().at(1).first) << "it learns";
        EXPECT_THAT(world_.store->manifest()->embeddings, IsEmpty()) << "what is not kept leaves nothing";
      }
    }
  }
}

// The oracle ranks with the same vectors and weights, but all edges and representations in memory. Sums of neighbors are
// in another order there, so a rank may differ where two scores are equal but for their last bits.
TEST_F(PartitionedRunTest, AnEncoderRanksByPartsAsInMemory) {
  std::vector<Triple> all = data_.train;
  all.insert(all.end(), data_.valid.begin(), data_.valid.end());
  all.insert(all.end(), data_.test.begin(), data_.test.end());
  const KnownEdges known(all);
  const std::pair<ModelSpec, std::vector<uint32_t>> encoders[] = {
      {{}, {5}},
      {{}, {4, 3}},
      {{.model = GnnKind::kGat, .heads = 2}, {4, 3}},
      {{.model = GnnKind::kGcn}, {5}},
  };
  for (const auto& [encoder_spec, fanouts] : encoders) {
    LinkTrainOptions train = Training();
    train.encoder = encoder_spec;
    train.encoder_fanouts = fanouts;
    train.epochs = 2;
    train.compute_threads = 2;
    SCOPED_TRACE(fmt::format("{}, {} layers, seed {}", ToSettings(encoder_spec), fanouts.size(), train.seed));
    LinkRunOptions options = Options();
    options.start = Start::kOverwrite;
    // Training edges are in parts alone.
    LinkData parted{.valid = data_.valid,
                    .test = data_.test,
                    .node_count = data_.node_count,
                    .relation_count = data_.relation_count};
    MemoryBudget budget(64 * kMiB);
    ASSERT_OK(LeaveEdgesInParts(*partitioning_, *world_.store, budget, parted));
    const auto run = LinkRun::Open(*world_.store, budget, parted, train, options);
    ASSERT_OK(run);
    size_t held = 0;  // scratch files, while it ranks
    std::vector<std::string> phases;
    LinkTrainCallbacks callbacks;
    callbacks.progress = [&](std::string_view phase, uint64_t, uint64_t) {
      if (phases.empty() || phases.back() != phase) phases.emplace_back(phase);
      if (phase == "test") held = OpenScratchFiles();
      return Status::Ok();
    };
    callbacks.epoch = [&](const LinkEpochReport&) {
      EXPECT_EQ(OpenScratchFiles(), 0U) << "kept while it trains";
      return Status::Ok();
    };
    const auto summary = TrainLinks(parted, train, budget, callbacks, **run);
    ASSERT_OK(summary);
    EXPECT_EQ(held, 1U);
    EXPECT_EQ(OpenScratchFiles(), 0U);
    EXPECT_THAT(phases, testing::IsSupersetOf({"encoding for validation", "encoding for test"}));

    const auto encoder = LinkEncoder::Make(data_, train).value();
    ASSERT_OK(encoder->TakeState((*run)->task_state()));
    std::vector<float> nodes = AllRows((*run)->nodes());
    ASSERT_OK(encoder->EncodeAll(nodes));
    const std::vector<float> relations = AllRows(*(*run)->relations());
    const LinkEvaluation expected = EvaluateLinks(train.spec, nodes, relations, data_.test, known, 1);
    EXPECT_EQ(summary->test->filtered.rankings, expected.filtered.rankings);
    EXPECT_NEAR(summary->test->filtered.mrr, expected.filtered.mrr, 1e-4);
    EXPECT_NEAR(summary->test->raw.mrr, expected.raw.mrr, 1e-4);
    EXPECT_NEAR(summary->test->filtered.hits_10, expected.filtered.hits_10, 0.02);
  }
}

TEST_F(PartitionedRunTest, ARunThatIsStoppedAnywhereEndsAsIfItHadNotBeen) {
  LinkTrainOptions train = Training();
  train.mode = AsyncMode::kSync;
  LinkRunOptions whole_options = Options();
  whole_options.name = "whole";
  Course expected;
  const auto whole = Train(train, whole_options, &expected);
  ASSERT_OK(whole);
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Rng rng(seed);
    LinkRunOptions options = Options();
    options.name = "stopped";
    options.start = Start::kOverwrite;
    Course course;
    std::optional<LinkTrainSummary> summary;
    int sessions = 0;
    for (; !summary && sessions < 200; ++sessions) {
      train.mode = rng.Below(2) == 0 ? AsyncMode::kSync : AsyncMode::kOac;
      // Every epoch has a checkpoint in any case.
      options.checkpoint_every = rng.Below(3) == 0 ? 0 : 1 + rng.Below(30);
      const uint64_t most = options.checkpoint_every == 0 ? 60 : options.checkpoint_every;
      const auto trained = Train(train, options, &course, most + rng.Below(30));
      if (trained.ok()) summary = *trained;
      if (!trained.ok()) {
        ASSERT_EQ(trained.status().code(), Code::kCancelled) << trained.status().ToString();
      }
      Reopen();
      const bool there = world_.store->manifest()->FindTraining("stopped") != nullptr;
      options.start = there ? Start::kResume : Start::kOverwrite;
    }
    EXPECT_GT(sessions, 1) << "it was stopped";
    ASSERT_TRUE(summary.has_value());
    EXPECT_EQ(course.epochs(), expected.epochs());
    EXPECT_EQ(summary->test->filtered.mrr, whole->test->filtered.mrr);
    EXPECT_THAT(testing_util::FaultsOf(*world_.store), IsEmpty());
    if (HasFailure()) return;
  }
}

// Kept, or scratch alone; with an encoder, too, whose rankings are made by parts.
TEST_F(PartitionedRunTest, WithPatienceTheBestEpochIsTestedAndKept) {
  for (const bool encoded : {false, true}) {
    SCOPED_TRACE(fmt::format("seed {}, encoder {}", kGraphSeed, encoded));
    LinkTrainOptions train = RestlessOptions();
    train.batch_edges = 300;
    train.mode = AsyncMode::kSync;
    if (encoded) train.encoder_fanouts = {3};
    LinkRunOptions options = Options();
    options.start = Start::kOverwrite;
    const auto summary = Train(train, options, nullptr);
    ASSERT_OK(summary);
    ASSERT_TRUE(summary->stopped_early);
    ASSERT_GT(summary->epochs, summary->kept_epoch);
    options.keep = false;
    options.start = Start::kNew;
    const auto scratch = Train(train, options, nullptr);
    ASSERT_OK(scratch);
    EXPECT_EQ(scratch->kept_epoch, summary->kept_epoch);
    EXPECT_EQ(scratch->test->raw.mrr, summary->test->raw.mrr);
    EXPECT_EQ(OpenScratchFiles(), 0u);
    train.patience = 0;
    train.epochs = summary->kept_epoch;
    const auto ended = Train(train, options, nullptr);
    ASSERT_OK(ended);
    EXPECT_EQ(ended->test->raw.mrr, summary->test->raw.mrr);
    EXPECT_THAT(testing_util::FaultsOf(*world_.store), IsEmpty());
  }
  EXPECT_EQ(budget_.used_bytes(), 0u);
}

TEST_F(PartitionedRunTest, ARunGoesOnByTheSamePartsAlone) {
  LinkTrainOptions train = Training();
  train.epochs = 1;
  ASSERT_OK(Train(train, Options(), nullptr));
  ASSERT_NE(world_.store->manifest()->FindEmbedding("link-parts"), nullptr);
  train.epochs = 2;
  LinkRunOptions options = Options({.order = PartitionOrder::kBeta, .buffer = 4});
  options.start = Start::kResume;
  const auto other_order = Train(train, options, nullptr);
  EXPECT_THAT(other_order, IsStatus(Code::kUsage));
  EXPECT_THAT(std::string(other_order.status().message()),
              HasSubstr("--partition-order is beta, but was comet"));
  const auto no_road = LinkRun::Open(*world_.store, budget_, data_, train, {.start = Start::kResume});
  EXPECT_THAT(no_road, IsStatus(Code::kUsage));
  EXPECT_THAT(std::string(no_road.status().message()), HasSubstr("--road is not set, but was partitioned"));
  // Another build has other parts, even if it is of the same name.
  partitioning_.reset();
  ASSERT_OK(BuildPartitioning(*world_.store, world_.budget, {}, assignment_, {}));
  OpenParts();
  options = Options();
  options.start = Start::kResume;
  const auto rebuilt = Train(train, options, nullptr);
  EXPECT_THAT(rebuilt, IsStatus(Code::kUsage));
  EXPECT_THAT(std::string(rebuilt.status().message()), HasSubstr("--partitioning is partitions/default-2"));
  options.start = Start::kOverwrite;
  EXPECT_OK(Train(train, options, nullptr));
}

TEST_F(PartitionedRunTest, LittleMemoryHoldsFewParts) {
  for (const bool encoder : {false, true}) {
    SCOPED_TRACE(fmt::format("encoder {}", encoder));
    LinkTrainOptions train = Training();
    if (encoder) train.encoder_fanouts = {20};
    train.epochs = encoder ? 1 : 3;
    LinkRunOptions options = Options({});
    options.keep = false;
    uint32_t held = 0;
    for (uint64_t memory = 4 * kMiB; memory < 64 * kMiB; memory += (encoder ? 1024 : 512) * kKiB) {
      MemoryBudget budget(memory);
      const auto run = LinkRun::Open(*world_.store, budget, data_, train, options);
      if (!run.ok()) {
        EXPECT_THAT(run, IsStatus(Code::kOutOfBudget));
        EXPECT_EQ(held, 0u) << "less memory did";
        continue;
      }
      EXPECT_GE((*run)->road()->options().buffer, held);
      held = (*run)->road()->options().buffer;
      EXPECT_OK(TrainLinks(data_, train, budget, {}, **run));
      if (held == kParts) break;
    }
    EXPECT_EQ(held, kParts);
  }
}

TEST_F(PartitionedRunTest, WhatWasTunedStaysWhereMemoryChanges) {
  LinkTrainOptions train = Training();
  train.epochs = 1;
  LinkRunOptions options = Options({});
  uint32_t held = 0;
  for (uint64_t memory = 4 * kMiB; held == 0; memory += 512 * kKiB) {
    MemoryBudget budget(memory);
    const auto run = LinkRun::Open(*world_.store, budget, data_, train, options);
    if (!run.ok()) continue;
    held = (*run)->road()->options().buffer;
    ASSERT_OK(TrainLinks(data_, train, budget, {}, **run));
  }
  ASSERT_LT(held, kParts);
  train.epochs = 2;
  options.start = Start::kResume;
  const auto run = LinkRun::Open(*world_.store, budget_, data_, train, options);
  ASSERT_OK(run);
  EXPECT_EQ((*run)->road()->options().buffer, held);
  EXPECT_OK(TrainLinks(data_, train, budget_, {}, **run));
}

// Losses and filtered ranks to the last bit, and less memory.
TEST_F(PartitionedRunTest, EdgesThatStayInPartsTrainAndRankAsThoseInMemory) {
  Course course, parted_course;
  const auto expected = Train(Training(), {.name = "memory"}, &course);
  ASSERT_OK(expected);
  const std::vector<Triple> train = data_.train;
  MemoryBudget budget(64 * kMiB);
  ASSERT_OK(LeaveEdgesInParts(*partitioning_, *world_.store, budget, data_));
  EXPECT_TRUE(data_.train.empty());
  EXPECT_EQ(data_.train_count(), train.size());
  EXPECT_EQ(budget.used_bytes(), (data_.known.size() + 100) * sizeof(Triple));
  std::vector<Triple> known;
  for (const Triple& edge : train) {
    bool asked = false;
    for (const auto* const edges : {&data_.valid, &data_.test}) {
      asked =
          asked || std::ranges::any_of(*edges, [&](const Triple& other) {
            return other.relation == edge.relation && (other.head == edge.head || other.tail == edge.tail);
          });
    }
    if (asked) known.push_back(edge);
  }
  const auto in_order = [](const std::vector<Triple>& edges) {
    std::vector<std::tuple<NodeId, uint32_t, NodeId>> sorted;
    for (const Triple& edge : edges) sorted.emplace_back(edge.head, edge.relation, edge.tail);
    std::ranges::sort(sorted);
    return sorted;
  };
  EXPECT_LT(known.size(), train.size());
  EXPECT_EQ(in_order(data_.known), in_order(known));
  const auto parted = Train(Training(), {.name = "parted"}, &parted_course);
  ASSERT_OK(parted);
  EXPECT_EQ(parted_course.epochs(), course.epochs());
  EXPECT_EQ(parted->test->filtered.mrr, expected->test->filtered.mrr);
  EXPECT_EQ(parted->test->raw.mrr, expected->test->raw.mrr);
  EXPECT_EQ(parted->edges, expected->edges);
}

TEST_F(PartitionedRunTest, NodesAreRenumbered) {
  LinkData old{
      .train = data_.train, .valid = data_.valid, .test = data_.test, .node_count = data_.node_count};
  const std::vector<NodeId> new_ids = PartitionedStore::NewIds(assignment_);
  std::vector<NodeId> old_ids(new_ids.size());
  for (NodeId node = 0; node < new_ids.size(); ++node) old_ids[new_ids[node]] = node;
  for (auto* const edges : {&old.train, &old.valid, &old.test}) {
    for (Triple& edge : *edges) edge = {old_ids[edge.head], edge.relation, old_ids[edge.tail]};
  }
  ASSERT_OK(RenumberNodes(*partitioning_, budget_, old));
  const auto same = [](const Triple& a, const Triple& b) {
    return a.head == b.head && a.relation == b.relation && a.tail == b.tail;
  };
  EXPECT_TRUE(std::ranges::equal(old.train, data_.train, same));
  EXPECT_TRUE(std::ranges::equal(old.valid, data_.valid, same));
  EXPECT_TRUE(std::ranges::equal(old.test, data_.test, same));
  old.held_out.valid = 0.1;
  EXPECT_THAT(RenumberNodes(*partitioning_, budget_, old), IsStatus(Code::kInvalidArgument));
  old.held_out.valid = 0;
  ++old.node_count;
  EXPECT_THAT(RenumberNodes(*partitioning_, budget_, old), IsStatus(Code::kInvalidArgument));
}

}  // namespace
}  // namespace quarry
