#include "quarry/trainer/link_train.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/base/units.h"
#include "quarry/import/import.h"
#include "quarry/storage/edges.h"
#include "support/array_files.h"
#include "support/instrumented.h"
#include "support/shared_data.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "trainer/grouped_graph.h"
#include "trainer/link_course.h"

namespace quarry {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::HasSubstr;

constexpr uint64_t kLearnerSeed = kGraphSeed;

struct Learner {
  DecoderKind decoder;
  double mrr_min;
};

class LinkTrainDecoderTest : public testing::TestWithParam<Learner> {};

TEST_P(LinkTrainDecoderTest, LearnsTheStructureOfTheGraph) {
  SCOPED_TRACE(fmt::format("seed {}", kLearnerSeed));
  const LinkData data = GroupedGraph();
  LinkTrainOptions options = SmallOptions();
  options.spec.decoder = GetParam().decoder;
  const Course course = Follow(data, options);
  ASSERT_EQ(course.losses.size(), 12u);
  EXPECT_LT(course.losses.back(), 0.8 * course.losses.front());
  EXPECT_GT(course.summary.test->filtered.mrr, GetParam().mrr_min);
  EXPECT_GT(course.summary.valid->filtered.mrr, GetParam().mrr_min);
  EXPECT_EQ(course.summary.test->filtered.rankings, 2 * data.test.size());
  EXPECT_LT(course.summary.test->raw.mrr, course.summary.test->filtered.mrr);
}

std::string NameOfLearner(const testing::TestParamInfo<Learner>& info) {
  return std::string(DecoderName(info.param.decoder));
}
// No translation leads both ways, so TransE can only put groups that are joined near each other.
INSTANTIATE_TEST_SUITE_P(Decoders, LinkTrainDecoderTest,
                         testing::Values(Learner{DecoderKind::kDistMult, 0.6},
                                         Learner{DecoderKind::kComplEx, 0.6},
                                         Learner{DecoderKind::kTransE, 2 * kChance},
                                         Learner{DecoderKind::kRotatE, 2 * kChance}),
                         NameOfLearner);

TEST(LinkTrain, EveryModeAndOptimizerLearns) {
  const LinkData data = GroupedGraph();
  for (const AsyncMode mode : {AsyncMode::kAsync, AsyncMode::kAsyncBounded, AsyncMode::kOac}) {
    for (const OptimizerKind optimizer : {OptimizerKind::kAdagrad, OptimizerKind::kAdam}) {
      SCOPED_TRACE(fmt::format("mode {}, optimizer {}", static_cast<int>(mode), static_cast<int>(optimizer)));
      LinkTrainOptions options = SmallOptions();
      options.mode = mode;
      options.optimizer = optimizer;
      options.optimizer_options.learning_rate = optimizer == OptimizerKind::kAdam ? 0.02F : 0.2F;
      options.ordered = false;
      options.workers = 2;
      EXPECT_GT(Follow(data, options).summary.test->filtered.mrr, 8 * kChance);
    }
  }
}

TEST(LinkTrain, WithoutRelationsOneTableIsMade) {
  LinkData data = GroupedGraph();
  LinkTrainOptions options = SmallOptions();
  options.spec.decoder = DecoderKind::kDot;
  options.epochs = 2;
  std::vector<uint64_t> rows;
  const EmbeddingTableFactory make_table = [&](const EmbeddingSpec& spec) {
    rows.push_back(spec.row_count);
    return Result<std::unique_ptr<EmbeddingTable>>(MakeMemoryEmbeddingTable(spec));
  };
  EXPECT_OK(TrainLinks(data, options, Plenty(), {}, make_table));
  EXPECT_THAT(rows, ElementsAre(120));
  options.spec.decoder = DecoderKind::kDistMult;
  EXPECT_OK(TrainLinks(data, options, Plenty(), {}, make_table));
  EXPECT_THAT(rows, ElementsAre(120, 120, 3));
}

// Every batch uses most rows, so batches in flight read rows that others are about to write.
TEST(LinkTrain, InOrderOacIsSyncToTheLastBit) {
  const LinkData data = GroupedGraph();
  LinkTrainOptions options = SmallOptions();
  options.epochs = 4;
  for (const double degree_share : {0.0, 0.5}) {
    options.degree_share = degree_share;
    options.mode = AsyncMode::kSync;
    options.workers = options.compute_threads = 1;
    const Course sync = Follow(data, options);
    EXPECT_EQ(sync.summary.stats.rows_replaced, 0u);
    for (const auto& [mode, workers, threads] :
         {std::tuple(AsyncMode::kSync, 3, 2), std::tuple(AsyncMode::kOac, 1, 1),
          std::tuple(AsyncMode::kOac, 3, 2)}) {
      SCOPED_TRACE(fmt::format("seed {}, degree share {}, mode {}, {} workers, {} threads", kLearnerSeed,
                               degree_share, static_cast<int>(mode), workers, threads));
      options.mode = mode;
      options.workers = static_cast<unsigned>(workers);
      options.compute_threads = static_cast<unsigned>(threads);
      const Course course = Follow(data, options);
      EXPECT_EQ(course.losses, sync.losses);
      EXPECT_EQ(course.mrrs, sync.mrrs);
      EXPECT_EQ(course.summary.test->raw.mrr, sync.summary.test->raw.mrr);
      EXPECT_EQ(course.summary.stats.rows_replaced > 0, mode == AsyncMode::kOac);
    }
  }
}

TEST(LinkTrain, TheSeedNamesTheRun) {
  const LinkData data = GroupedGraph();
  LinkTrainOptions options = SmallOptions();
  options.epochs = 2;
  const Course course = Follow(data, options);
  EXPECT_EQ(Follow(data, options).losses, course.losses);
  options.seed++;
  EXPECT_NE(Follow(data, options).losses, course.losses);
}

// Counts how often each row is written.
class CountingTable final : public EmbeddingTable {
 public:
  CountingTable(const EmbeddingSpec& spec, std::vector<int>& writes)
      : table_(MakeMemoryEmbeddingTable(spec)), writes_(writes) {
    writes_.assign(spec.row_count, 0);
  }
  const EmbeddingSpec& spec() const override { return table_->spec(); }
  Status Read(RowBlock& block) override { return table_->Read(block); }
  Status Write(const RowBlock& block) override {
    for (const RowId row : block.ids) writes_[row]++;
    return table_->Write(block);
  }
  Status Prefetch(std::span<const RowId> ids) override { return table_->Prefetch(ids); }

 private:
  const std::unique_ptr<EmbeddingTable> table_;
  std::vector<int>& writes_;
};

// Each edge has a relation of its own, whose row nothing else writes.
TEST(LinkTrain, AnEpochVisitsEveryEdgeOnce) {
  LinkData data = GroupedGraph();
  data.valid.clear();
  data.test.clear();
  data.train.resize(1030);  // the last batch is short, and so is its last chunk
  data.relation_count = data.train.size();
  for (uint32_t i = 0; i < data.relation_count; i++) data.train[i].relation = i;
  LinkTrainOptions options = SmallOptions();
  options.epochs = 2;
  std::vector<uint64_t> done;
  LinkTrainCallbacks callbacks;
  callbacks.progress = [&](std::string_view phase, uint64_t edges, uint64_t total) {
    if (phase == "epoch 2") done.push_back(edges);
    EXPECT_EQ(total, 1030u);
    return Status::Ok();
  };
  std::vector<int> node_writes, relation_writes;
  const EmbeddingTableFactory make_table = [&](const EmbeddingSpec& spec) {
    return Result<std::unique_ptr<EmbeddingTable>>(
        std::make_unique<CountingTable>(spec, node_writes.empty() ? node_writes : relation_writes));
  };
  const auto summary = TrainLinks(data, options, Plenty(), callbacks, make_table);
  ASSERT_OK(summary);
  EXPECT_THAT(done, ElementsAre(100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1030));
  EXPECT_THAT(relation_writes, AllOf(testing::SizeIs(1030), Each(2)));
  EXPECT_EQ(summary->edges, 2060u);
  EXPECT_EQ(summary->stats.stage(EmbeddingStage::kUpdate).batches, 22u);
}

TEST(LinkTrain, NegativesByDegreeAreEndsOfEdges) {
  LinkData data;
  data.node_count = 1000;
  for (NodeId i = 0; i < 500; i++) data.train.push_back({i % 7, 0, 10 + i % 5});
  LinkTrainOptions options = SmallOptions();
  options.spec.decoder = DecoderKind::kDot;
  options.epochs = 1;
  std::vector<int> writes;
  const EmbeddingTableFactory make_table = [&](const EmbeddingSpec& spec) {
    return Result<std::unique_ptr<EmbeddingTable>>(std::make_unique<CountingTable>(spec, writes));
  };
  const auto rows_written = [&] {
    EXPECT_OK(TrainLinks(data, options, Plenty(), {}, make_table));
    return std::ranges::count_if(writes, [](int count) { return count > 0; });
  };
  options.degree_share = 1;
  EXPECT_EQ(rows_written(), 12);
  options.degree_share = 0.5;
  EXPECT_GT(rows_written(), 100);
}

TEST(LinkTrain, ValidatesWhenAskedAndStopsWhenItGetsNoBetter) {
  const LinkData data = GroupedGraph();
  LinkTrainOptions options = SmallOptions();
  options.epochs = 6;
  options.valid_every = 3;
  EXPECT_THAT(Follow(data, options).mrrs, ElementsAre(-1, -1, Gt(0), -1, -1, Gt(0)));
  options.valid_every = 0;
  EXPECT_THAT(Follow(data, options).mrrs, Each(-1));

  options.valid_every = 1;
  options.patience = 2;
  options.epochs = 50;
  options.optimizer_options.learning_rate = 1e-12F;  // nothing is learned
  const Course stalled = Follow(data, options);
  EXPECT_EQ(stalled.summary.epochs, 3u);
  EXPECT_TRUE(stalled.summary.stopped_early);
}

// In memory, where a copy keeps the best epoch's vectors, and an encoder's weights with them.
TEST(LinkTrain, WithPatienceTheBestEpochIsTested) {
  const LinkData data = GroupedGraph();
  for (const bool encoded : {false, true}) {
    LinkTrainOptions options = RestlessOptions();
    if (encoded) options.encoder_fanouts = {3};
    SCOPED_TRACE(fmt::format("seed {}, encoder {}", kLearnerSeed, encoded));
    const Course course = Follow(data, options);
    const LinkTrainSummary& summary = course.summary;
    ASSERT_TRUE(summary.stopped_early);
    const auto best = std::ranges::max_element(course.mrrs);  // the first of equals
    EXPECT_EQ(summary.kept_epoch, 1 + best - course.mrrs.begin());
    EXPECT_EQ(summary.epochs, summary.kept_epoch + options.patience);
    EXPECT_EQ(summary.valid->filtered.mrr, *best);
    options.patience = 0;
    options.epochs = summary.epochs;
    const Course last = Follow(data, options);
    EXPECT_EQ(last.summary.kept_epoch, summary.epochs);
    EXPECT_NE(last.summary.test->raw.mrr, summary.test->raw.mrr) << "it tells them apart";
    options.epochs = summary.kept_epoch;
    EXPECT_EQ(Follow(data, options).summary.test->raw.mrr, summary.test->raw.mrr);
    // Where all epochs are trained, the best of them is tested all the same.
    options.epochs = summary.epochs - 1;
    options.patience = 1000;
    EXPECT_EQ(Follow(data, options).summary.test->raw.mrr, summary.test->raw.mrr);
  }
}

TEST(LinkTrain, EdgesToRankMayBeAbsent) {
  LinkData data = GroupedGraph();
  data.valid.clear();
  data.test.clear();
  LinkTrainOptions options = SmallOptions();
  options.epochs = 1;
  const Course course = Follow(data, options);
  EXPECT_FALSE(course.summary.valid.has_value());
  EXPECT_FALSE(course.summary.test.has_value());
}

TEST(LinkTrain, CallbacksStopIt) {
  const LinkData data = GroupedGraph();
  for (const std::string phase : {"epoch 1", "epoch 2", "validation", "test", ""}) {
    SCOPED_TRACE(phase);
    LinkTrainCallbacks callbacks;
    callbacks.progress = [&](std::string_view now, uint64_t done, uint64_t) {
      return now == phase ? MakeStatus(Code::kCancelled, "{} at {}", phase, done) : Status::Ok();
    };
    callbacks.epoch = [&](const LinkEpochReport&) {
      return phase.empty() ? Status(Code::kCancelled, " at the end") : Status::Ok();
    };
    LinkTrainOptions options = SmallOptions();
    options.epochs = 2;
    const Status status = TrainLinks(data, options, Plenty(), callbacks).status();
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_THAT(std::string(status.message()), HasSubstr(phase + " at "));
  }
}

TEST(LinkTrain, OptionsOutOfRangeAreNamed) {
  const auto refused = [](const auto& change) {
    LinkTrainOptions options;
    change(options);
    const Status status = CheckLinkTrainOptions(options);
    EXPECT_EQ(status.code(), Code::kUsage);
    return std::string(status.message());
  };
  using Options = LinkTrainOptions;
  EXPECT_OK(CheckLinkTrainOptions(Options()));
  EXPECT_THAT(refused([](Options& o) { o.spec.dim = 0; }), HasSubstr("dimension"));
  EXPECT_THAT(refused([](Options& o) { o.spec.decoder = DecoderKind::kComplEx, o.spec.dim = 7; }),
              HasSubstr("odd"));
  EXPECT_THAT(refused([](Options& o) { o.spec.regularization = Regularization::kN3; }),
              HasSubstr("regularization weight of n3 is 0"));
  EXPECT_THAT(refused([](Options& o) { o.spec.regularization_weight = 1; }), HasSubstr("no regularization"));
  EXPECT_THAT(refused([](Options& o) { o.batch_edges = 0; }), HasSubstr("batch size is 0"));
  EXPECT_THAT(refused([](Options& o) { o.chunk_edges = 0; }), HasSubstr("chunk is 0"));
  EXPECT_THAT(refused([](Options& o) { o.negatives = 0; }), HasSubstr("negatives is 0"));
  EXPECT_THAT(refused([](Options& o) { o.degree_share = 1.5; }), HasSubstr("degree share is 1.5"));
  EXPECT_THAT(refused([](Options& o) { o.optimizer_options.learning_rate = 0; }), HasSubstr("rate is 0"));
  EXPECT_THAT(refused([](Options& o) { o.epochs = 0; }), HasSubstr("epochs is 0"));
  EXPECT_THAT(refused([](Options& o) { o.batches_in_flight = 0; }), HasSubstr("batches in flight"));
  EXPECT_THAT(refused([](Options& o) { o.staleness = 0; }), HasSubstr("staleness"));
  EXPECT_THAT(refused([](Options& o) { o.chunk_edges = 1, o.negatives = 1 << 20; }), HasSubstr("2^28"));
}

TEST(LinkTrain, ALossThatIsNoNumberEndsTheRun) {
  LinkTrainOptions options = SmallOptions();
  options.optimizer = OptimizerKind::kSgd;
  options.optimizer_options.learning_rate = 1e30F;
  const Status status = TrainLinks(GroupedGraph(), options, Plenty()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("learning rate"));
}

// Databases.

using Names = std::tuple<std::string, std::string, std::string>;

std::vector<Names> RandomNames(Rng& rng, size_t count, uint32_t relations) {
  std::vector<Names> names;
  for (size_t i = 0; i < count; i++) {
    names.emplace_back(fmt::format("n{}", rng.Below(90)), fmt::format("r{}", rng.Below(relations)),
                       fmt::format("n{}", rng.Below(90)));
  }
  return names;
}

std::string Text(const std::vector<Names>& triples) {
  std::string text;
  for (const auto& [head, relation, tail] : triples) text += head + "\t" + relation + "\t" + tail + "\n";
  return text;
}

// A database in a folder, opened.
class TestDatabase {
 public:
  TestDatabase() : folder_("link-train"), backend_(MakeDefaultBackend()) {}
  const TemporaryFolder& folder() const { return folder_; }
  Store& Import(const std::string& source) {
    const Status status = ImportDatabase(*backend_, folder_ / "x.db", OpenDataset(source, {}).value(), {});
    EXPECT_OK(status);
    store_ = Store::Open(*backend_, folder_ / "x.db").value();
    return *store_;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<IoBackend> backend_;
  std::unique_ptr<Store> store_;
};

TEST(LoadLinkData, ReadsEveryPartWithItsRelations) {
  for (const uint32_t relations : {1, 5, 400}) {  // ids of none, one and two bytes
    SCOPED_TRACE(fmt::format("seed {}, {} relations", kLearnerSeed, relations));
    Rng rng(kLearnerSeed);
    const std::vector<Names> parts[] = {RandomNames(rng, 3000, relations), RandomNames(rng, 200, relations),
                                        RandomNames(rng, 100, relations)};
    TestDatabase database;
    database.folder().Write("kg/train.txt", Text(parts[0]));
    database.folder().Write("kg/valid.txt", Text(parts[1]));
    database.folder().Write("kg/test.txt", Text(parts[2]));
    Store& store = database.Import(database.folder() / "kg");
    std::map<std::string, uint32_t> node_ids, relation_ids;  // in the order of first appearance
    const auto id_of = [](auto& ids, const std::string& name) {
      return ids.emplace(name, static_cast<uint32_t>(ids.size())).first->second;
    };
    const auto keys = [](const std::vector<Triple>& triples) {
      std::vector<std::tuple<NodeId, uint32_t, NodeId>> sorted;
      for (const Triple& t : triples) sorted.emplace_back(t.head, t.relation, t.tail);
      std::sort(sorted.begin(), sorted.end());
      return sorted;
    };
    const auto data = LoadLinkData(store, Plenty());
    ASSERT_OK(data);
    EXPECT_EQ(data->reserved.bytes(), 3300 * sizeof(Triple));
    for (const auto& [names, triples] :
         {std::pair(&parts[0], &data->train), std::pair(&parts[1], &data->valid),
          std::pair(&parts[2], &data->test)}) {
      std::vector<Triple> expected;
      for (const auto& [head, relation, tail] : *names) {
        const NodeId head_id = id_of(node_ids, head);
        const uint32_t relation_id = id_of(relation_ids, relation);
        expected.push_back({head_id, relation_id, id_of(node_ids, tail)});
      }
      EXPECT_EQ(keys(*triples), keys(expected));
    }
    EXPECT_EQ(data->node_count, node_ids.size());
    EXPECT_EQ(data->relation_count, relation_ids.size());
    EXPECT_THAT(std::string(LoadLinkData(store, Plenty(), {.test = 0.1}).status().message()),
                HasSubstr("leave out --test-share"));
  }
}

bool SameEdges(std::span<const Triple> a, std::span<const Triple> b) {
  return std::ranges::equal(a, b, [](const Triple& x, const Triple& y) {
    return x.head == y.head && x.relation == y.relation && x.tail == y.tail;
  });
}

// As a server gives them: by range, in the order of the file.
TEST(LoadLinkData, IsTheSameFromASourceThatHasTheEdgesInPieces) {
  Rng rng(kLearnerSeed);
  TestDatabase database;
  for (const char* part : {"train", "valid", "test"}) {
    database.folder().Write(fmt::format("kg/{}.txt", part), Text(RandomNames(rng, 1000, 300)));
  }
  Store& store = database.Import(database.folder() / "kg");
  const auto expected = LoadLinkData(store, Plenty());
  ASSERT_OK(expected);
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  LinkSource source{.path = "elsewhere", .manifest = *manifest};
  source.read = [&](const TopologyRecord& record) -> Result<std::vector<Triple>> {
    QUARRY_TRY(const std::unique_ptr<EdgeList> edges, EdgeList::Open(store, Plenty(), record.name));
    std::vector<Triple> triples(edges->size());
    for (size_t first = 0; first < triples.size();) {
      const size_t count = std::min<size_t>(1 + rng.Below(7), triples.size() - first);
      edges->Read(first, std::span(triples).subspan(first, count));
      first += count;
    }
    return triples;
  };
  const auto data = LoadLinkData(source, Plenty(), {});
  ASSERT_OK(data);
  EXPECT_TRUE(SameEdges(data->train, expected->train)) << "seed " << kLearnerSeed;
  EXPECT_TRUE(SameEdges(data->valid, expected->valid));
  EXPECT_TRUE(SameEdges(data->test, expected->test));
  EXPECT_EQ(data->relation_count, expected->relation_count);
}

TEST(LoadLinkData, BelievesNoSource) {
  LinkSource source{.path = "elsewhere"};
  source.manifest.node_count = 3;
  for (const char* name : {"graph", "valid", "test"}) {
    TopologyRecord record;
    record.name = name;
    record.node_count = 3;
    record.edge_count = 2;
    record.relation_count = 2;
    source.manifest.topologies.push_back(record);
  }
  const auto loaded = [&](const std::vector<Triple>& edges) {
    source.read = [&](const TopologyRecord&) { return Result<std::vector<Triple>>(edges); };
    return LoadLinkData(source, Plenty(), {}).status();
  };
  EXPECT_OK(loaded({{0, 1, 2}, {2, 0, 1}}));
  for (const std::vector<Triple>& edges : {std::vector<Triple>{{0, 1, 2}},
                                           {{0, 1, 2}, {3, 0, 1}},
                                           {{0, 1, 2}, {1, 0, 3}},
                                           {{0, 2, 2}, {1, 0, 1}}}) {
    const Status status = loaded(edges);
    EXPECT_EQ(status.code(), Code::kCorruption);
    EXPECT_THAT(status.ToString(), HasSubstr("elsewhere: topology \"graph\""));
  }
}

TEST(LoadLinkData, HoldsEdgesOutWhereThereAreNoOthers) {
  Rng rng(kLearnerSeed);
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int i = 0; i < 2000; i++) {
    pairs.emplace_back(rng.Below(300), rng.Below(300));
    pairs.emplace_back(pairs.back().second, pairs.back().first);
  }
  TestDatabase database;
  database.folder().Write("graph/edges.npy", NpyEdges(pairs));
  Store& store = database.Import(database.folder() / "graph");
  const Status missing = LoadLinkData(store, Plenty()).status();
  EXPECT_EQ(missing.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()), AllOf(HasSubstr("\"valid\""), HasSubstr("--valid-share")));

  const HeldOutShares shares{.valid = 0.05, .test = 0.2, .seed = kLearnerSeed};
  const auto data = LoadLinkData(store, Plenty(), shares);
  ASSERT_OK(data);
  EXPECT_EQ(data->relation_count, 1u);
  EXPECT_EQ(data->train.size() + data->valid.size() + data->test.size(), 4000u);
  EXPECT_NEAR(static_cast<double>(data->test.size()), 800, 120);
  EXPECT_NEAR(static_cast<double>(data->valid.size()), 200, 60);
  std::map<std::pair<NodeId, NodeId>, int> part_of;
  for (const auto& [edges, part] :
       {std::pair(&data->train, 0), std::pair(&data->valid, 1), std::pair(&data->test, 2)}) {
    for (const Triple& edge : *edges) {
      EXPECT_EQ(part_of.emplace(std::minmax(edge.head, edge.tail), part).first->second, part)
          << "an edge and its reverse stay together";
    }
  }
  const auto again = LoadLinkData(store, Plenty(), shares);
  EXPECT_EQ(again->test.size(), data->test.size());
  EXPECT_EQ(again->test.front().head, data->test.front().head);
  EXPECT_EQ(LoadLinkData(store, Plenty(), {.valid = 0.5, .test = 0.5}).status().code(), Code::kUsage);
  EXPECT_EQ(LoadLinkData(store, Plenty(), {.valid = -1, .test = 0.5}).status().code(), Code::kUsage);
}

TEST(LinkMemory, WhatIsStatedIsEnoughAndLessIsRefused) {
  Rng rng(kLearnerSeed);
  TestDatabase database;
  for (const char* part : {"train", "valid", "test"}) {
    database.folder().Write(fmt::format("kg/{}.txt", part), Text(RandomNames(rng, 2000, 4)));
  }
  Store& store = database.Import(database.folder() / "kg");
  LinkTrainOptions options = SmallOptions();
  options.epochs = 1;
  const uint64_t stated = LinkMemoryBytes(*store.manifest(), options);
  EXPECT_LT(stated, 32 * kMiB);
  MemoryBudget budget(stated);
  {
    const auto data = LoadLinkData(store, budget);
    ASSERT_OK(data);
    EXPECT_GT(budget.used_bytes(), 0u);
    const auto summary = TrainLinks(*data, options, budget);
    EXPECT_OK(summary);
    MemoryBudget small(kMiB);
    EXPECT_EQ(TrainLinks(*data, options, small).status().code(), Code::kOutOfBudget);
    EXPECT_EQ(LoadLinkData(store, small).status().code(), Code::kOutOfBudget);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
  const uint64_t at_dim_16 = stated;
  options.spec.dim = 4096;
  EXPECT_GT(LinkMemoryBytes(*store.manifest(), options), 2 * at_dim_16);
}

TEST(LinkTrainSharedTest, ThreeEpochsOnRealTriples) {
  if (testing_util::IsInstrumented()) {
    GTEST_SKIP() << "a sanitizer makes it slow, and finds nothing that the small graphs do not show";
  }
  QUARRY_SHARED_SET(set, "fb15k-237");
  TestDatabase database;
  Store& store = database.Import(set.path());
  const auto data = LoadLinkData(store, Plenty());
  ASSERT_OK(data);
  LinkTrainOptions options;
  options.epochs = 3;
  options.valid_every = 0;
  options.ordered = true;
  options.compute_threads = std::max(2U, ProcessorCount());
  EXPECT_GE(Follow(*data, options).summary.test->filtered.mrr, 0.22);
}

}  // namespace
}  // namespace quarry
