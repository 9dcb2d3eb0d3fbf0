// Layouts of graphs with types: batches of the planned road and of superbatches have the rows, labels, edges and relations of
// the live road's, whatever tables rows are of, how long they are, and what stays in memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "pipeline/batch_meaning.h"
#include "pipeline/pass_util.h"
#include "quarry/import/dataset.h"
#include "quarry/import/import.h"
#include "quarry/layout/rebuild.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/storage/compaction.h"
#include "quarry/verify/verify.h"
#include "support/fake_device.h"
#include "support/flip_byte.h"
#include "support/repetitions.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FlipByte;
using testing_util::Meaning;
using testing_util::OpenRoad;
using testing_util::RunEpoch;

uint64_t FirstSeed() {
  const char* const text = std::getenv("QUARRY_TYPED_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

// A random graph with types, its live road, and what passes of that are.
class TypedGraph {
 public:
  explicit TypedGraph(uint64_t seed) : rng_(seed) {
    set_ = RandomTypedSet(seed, 300);
    set_.nodes[0].dim = 1 + rng_.Below(300);
    set_.nodes[1].dim = 1 + rng_.Below(300);
    if (rng_.Below(3) == 0) set_.nodes[2].dim = 1 + rng_.Below(40);  // else there is a type without rows
    const TemporaryFolder source("typed-layout-set");
    set_.WriteTo(source);
    auto dataset = OpenDataset(source.path(), {});
    EXPECT_OK(dataset);
    constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kFloat16};
    EXPECT_OK(
        ImportDatabase(*backend_, path(), std::move(*dataset), {.feature_type = kTypes[rng_.Below(2)]}));
    live_ = testing_util::SmallOptions();
    live_.spec.relation_fanouts = {2, 3, 1, 2, 4, 0, 2, 0, 3, 1};
    live_.spec.fanouts = {6, 3};
    live_.spec.replace = rng_.Below(4) == 0;
    open_ = std::make_unique<OpenRoad>(path(), live_);
    EXPECT_OK(open_->status);
    train_ = open_->road->TrainNodes();
    types_ = NodeTypes(store().manifest()->node_types);
  }

  std::string path() const { return folder_ / "typed.db"; }
  Store& store() { return *open_->store; }
  MemoryBudget& budget() { return *open_->budget; }
  Rng& rng() { return rng_; }
  const LiveRoadOptions& live() const { return live_; }
  const NodeTypes& types() const { return types_; }
  const TypedSet& set() const { return set_; }
  LayoutSpec Spec() const { return {.road = live_.spec.ForOtherPasses(), .threads = 2}; }
  uint64_t FeatureBytes() {
    uint64_t bytes = 0;
    for (const TableRecord& table : store().manifest()->tables) {
      if (table.name.ends_with(".feature")) bytes += table.row_count * table.row_stride();
    }
    return bytes;
  }
  // As the live road has them, opened now.
  std::vector<std::vector<Meaning>> Live(uint32_t epochs) {
    open_->Reopen(live_);
    EXPECT_OK(open_->status);
    std::vector<std::vector<Meaning>> passes;
    for (uint32_t pass = 1; pass <= epochs; ++pass) passes.push_back(Pass(*open_->road, pass));
    open_->road.reset();
    return passes;
  }
  std::vector<Meaning> Pass(Road& road, uint64_t pass, StreamStats* stats = nullptr) {
    auto meanings = RunEpoch(road, train_, pass, stats, types_);
    EXPECT_OK(meanings);
    return meanings.ok() ? *meanings : std::vector<Meaning>();
  }
  Status TryPass(Road& road) { return RunEpoch(road, train_, 1, nullptr, types_).status(); }

  // New rows for about a third of two types' nodes.
  void Put() {
    WriteBatch batch;
    for (const size_t type : {0, 1}) {
      const TableRecord* const table = store().manifest()->FindTable(set_.nodes[type].name + ".feature");
      std::vector<std::byte> row(RowBytes(table->element_type, table->dim));
      for (uint64_t node = 0; node < set_.nodes[type].count; ++node) {
        if (rng_.Below(3) > 0) continue;
        for (std::byte& each : row) each = static_cast<std::byte>(rng_.Below(60));
        batch.Put(table->name, node, row);
      }
    }
    EXPECT_OK(store().Write(batch));
  }

 private:
  Rng rng_;
  TypedSet set_;
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
  const TemporaryFolder folder_{"typed-layout"};
  LiveRoadOptions live_;
  std::unique_ptr<OpenRoad> open_;
  std::vector<NodeId> train_;
  NodeTypes types_;
};

TEST(TypedLayoutTest, RepeatsTheLiveEpochsWhateverStaysInMemory) {
  for (uint64_t seed = FirstSeed(); seed < FirstSeed() + testing_util::Repetitions(6); ++seed) {
    fmt::print("seed {}\n", seed);
    TypedGraph graph(seed);
    const std::vector<std::vector<Meaning>> expected = graph.Live(2);
    for (const Meaning& batch : expected[0]) ASSERT_EQ(batch.relations.size(), batch.edges.size());
    const uint64_t features = graph.FeatureBytes();
    for (const uint64_t cache_bytes :
         {uint64_t{0}, uint64_t{1}, graph.rng().Below(features), features * 9 / 10, features, 2 * features}) {
      LayoutSpec spec = graph.Spec();
      spec.policy = kAllPolicies[graph.rng().Below(std::size(kAllPolicies))];
      if (graph.rng().Below(2) == 0) spec.policy = PolicyKind::kBelady;
      spec.epochs = 1 + static_cast<uint32_t>(graph.rng().Below(2));
      spec.road.cache_bytes = cache_bytes;
      spec.packing = graph.rng().Below(4) == 0 ? Packing::kNever : Packing::kAlways;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << NameOf(spec.policy) << ", " << spec.epochs
                                      << " epochs, a cache of " << cache_bytes << " of " << features << ", "
                                      << NameOf(spec.packing));
      ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(graph.store(), graph.budget(), spec, false, {}));
      EXPECT_TRUE(IsLayoutOf(*graph.store().manifest(), record, spec));
      EXPECT_TRUE(IsFresh(*graph.store().manifest(), record));
      ASSERT_OK_AND_ASSIGN(auto road,
                           PlannedRoad::Open(graph.store(), graph.budget(), {.live = graph.live()}));
      const LayoutDirectory& directory = road->layout().directory();
      EXPECT_LE(directory.places().cache_places() * directory.row_stride, cache_bytes);
      uint64_t bytes = 0, useful = 0;
      for (uint32_t pass = 0; pass < 2 * spec.epochs + 1; ++pass) {  // the cycle, again, and its beginning
        StreamStats stats;
        const auto got = graph.Pass(*road, 77, &stats);
        ASSERT_TRUE(got == expected[pass % spec.epochs]) << "pass " << pass;
        if (pass < spec.epochs || pass >= 2 * spec.epochs) continue;
        bytes += stats.feature_bytes_read + stats.topology_bytes_read;
        useful += stats.bytes_useful;
      }
      EXPECT_EQ(useful, record.useful_bytes);
      if (spec.packing == Packing::kAlways) {
        EXPECT_EQ(bytes, record.row_bytes_read) << "a cycle reads what the plan says";
      }
      if (spec.policy == PolicyKind::kBelady && cache_bytes >= features && spec.packing == Packing::kAlways) {
        EXPECT_EQ(useful, 0) << "every row stays";
      }
      // Other passes are the live road's.
      auto valid = RunEpoch(*road, road->SplitNodes(Split::kValid), 3, nullptr, graph.types());
      ASSERT_OK(valid);
      EXPECT_FALSE(valid->empty());
    }
  }
}

TEST(TypedLayoutTest, SuperbatchesAreTheLivePasses) {
  for (uint64_t seed = FirstSeed() + 100; seed < FirstSeed() + 100 + testing_util::Repetitions(4); ++seed) {
    fmt::print("seed {}\n", seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TypedGraph graph(seed);
    const std::vector<std::vector<Meaning>> expected = graph.Live(2);
    for (const Packing packing : {Packing::kAlways, Packing::kNever, Packing::kCheaper}) {
      SuperbatchRoadOptions options{.layout = graph.Spec(), .live = graph.live()};
      options.layout.packing = packing;
      options.layout.road.cache_bytes = graph.rng().Below(graph.FeatureBytes());
      options.layout.batches = graph.rng().Below(4);
      ASSERT_OK_AND_ASSIGN(const auto road, SuperbatchRoad::Open(graph.store(), graph.budget(), options));
      for (uint32_t pass = 1; pass <= 2; ++pass) {
        ASSERT_TRUE(graph.Pass(*road, pass) == expected[pass - 1])
            << NameOf(packing) << ", pass " << pass << ", superbatches of " << options.layout.batches;
      }
    }
  }
}

// Put rows are laid over packed ones, and a layout that is rebuilt has them; so does one behind a compaction of one table.
TEST(TypedLayoutTest, HasTheNewestRowsAndIsBuiltAnewWithThem) {
  for (uint64_t seed = FirstSeed() + 200; seed < FirstSeed() + 200 + testing_util::Repetitions(4); ++seed) {
    fmt::print("seed {}\n", seed);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TypedGraph graph(seed);
    const std::vector<std::vector<Meaning>> before = graph.Live(1);
    LayoutSpec spec = graph.Spec();
    spec.road.cache_bytes = graph.FeatureBytes() / 3;
    spec.packing = seed % 2 == 0 ? Packing::kAlways : Packing::kNever;
    ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(graph.store(), graph.budget(), spec, false, {}));
    ASSERT_OK_AND_ASSIGN(const auto old, PlannedRoad::Open(graph.store(), graph.budget(), {}));
    graph.Put();
    const std::vector<std::vector<Meaning>> after = graph.Live(1);
    ASSERT_FALSE(after == before);
    for (int pass = 0; pass < 2; ++pass)
      ASSERT_TRUE(graph.Pass(*old, 77) == before[0]) << "keeps its snapshot";
    {
      ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
      for (int pass = 0; pass < 3; ++pass) ASSERT_TRUE(graph.Pass(*road, 77) == after[0]) << "pass " << pass;
    }
    ASSERT_OK(CompactTable(graph.store(), graph.budget(), "author.feature", false, {}));
    EXPECT_FALSE(IsFresh(*graph.store().manifest(), record));
    EXPECT_FALSE(IsLayoutOf(*graph.store().manifest(), record, spec));
    {
      ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
      for (int pass = 0; pass < 2; ++pass) ASSERT_TRUE(graph.Pass(*road, 77) == after[0]) << "pass " << pass;
    }
    RebuildReport report;
    ASSERT_OK_AND_ASSIGN(const auto rebuilt,
                         RebuildLayout(graph.store(), graph.budget(), "default", {}, {}, &report));
    EXPECT_EQ(report.path, RebuildPath::kBuild);
    EXPECT_THAT(report.why, HasSubstr("of several types"));
    EXPECT_TRUE(IsFresh(*graph.store().manifest(), rebuilt));
    EXPECT_EQ(rebuilt.spec, record.spec);
    ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
    for (int pass = 0; pass < 2; ++pass) ASSERT_TRUE(graph.Pass(*road, 77) == after[0]) << "pass " << pass;
  }
}

// A flipped byte anywhere in the file is found; where a pass reads it, the pass says so and gives no wrong row.
TEST(TypedLayoutTest, AFlippedByteIsFoundByVerifyAndByThePass) {
  TypedGraph graph(FirstSeed() + 300);
  const std::vector<std::vector<Meaning>> expected = graph.Live(1);
  LayoutSpec spec = graph.Spec();
  spec.road.cache_bytes = graph.FeatureBytes() / 4;
  ASSERT_OK_AND_ASSIGN(const auto record, BuildLayout(graph.store(), graph.budget(), spec, false, {}));
  const std::string file = graph.path() + "/" + record.directory + "/layout.qlc";
  uint64_t regions_bytes = 0;
  {
    ASSERT_OK_AND_ASSIGN(const auto layout, Layout::Open(graph.store(), "default"));
    regions_bytes = layout->directory().regions_bytes;
  }
  for (uint64_t flip = 0; flip < testing_util::Repetitions(12); ++flip) {
    const uint64_t at = kPageBytes + graph.rng().Below(regions_bytes);
    SCOPED_TRACE(testing::Message() << "byte " << at << " of " << record.file_bytes);
    FlipByte(file, at);
    ASSERT_OK_AND_ASSIGN(const auto report, VerifyStore(graph.store(), {}));
    ASSERT_EQ(report.faults.size(), 1U);
    EXPECT_THAT(report.faults[0].message(), HasSubstr("quarry layout rebuild"));
    {
      ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
      EXPECT_THAT(graph.TryPass(*road), IsStatus(Code::kCorruption, HasSubstr("layout.qlc")));
    }
    FlipByte(file, at);
  }
  ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
  EXPECT_TRUE(graph.Pass(*road, 77) == expected[0]);
}

// Whatever a build was at when it was stopped, the next one takes over what is whole and makes the same layout.
TEST(TypedLayoutTest, AnInterruptedBuildGoesOn) {
  TypedGraph graph(FirstSeed() + 400);
  const std::vector<std::vector<Meaning>> expected = graph.Live(1);
  LayoutSpec spec = graph.Spec();
  spec.road.cache_bytes = graph.FeatureBytes() / 4;
  for (const std::string_view stop_at : {"sampling", "planning", "encoding", "packing"}) {
    SCOPED_TRACE(stop_at);
    const auto stop = [&](std::string_view phase, uint64_t, uint64_t) {
      return phase == stop_at ? Status(Code::kCancelled, "stop") : Status::Ok();
    };
    ASSERT_THAT(BuildLayout(graph.store(), graph.budget(), spec, false, stop), IsStatus(Code::kCancelled));
    ASSERT_TRUE(fs::exists(graph.path() + "/layouts/default.building"));
    EXPECT_EQ(graph.store().manifest()->FindLayout("default"), nullptr);
    BuildReport report;
    ASSERT_OK(BuildLayout(graph.store(), graph.budget(), spec, true, {}, &report));
    EXPECT_EQ(report.resumed, stop_at != "sampling");
    EXPECT_FALSE(fs::exists(graph.path() + "/layouts/default.building"));
    {
      ASSERT_OK_AND_ASSIGN(const auto road, PlannedRoad::Open(graph.store(), graph.budget(), {}));
      EXPECT_TRUE(graph.Pass(*road, 77) == expected[0]);
    }
    ASSERT_OK(DropLayout(graph.store(), "default"));
  }
  EXPECT_EQ(graph.budget().used_bytes(), 0);
}

TEST(TypedLayoutTest, EachOfSeveralTrainersHasItsPartOfTheBatches) {
  TypedGraph graph(FirstSeed() + 500);
  const std::vector<std::vector<Meaning>> expected = graph.Live(1);
  LayoutSpec spec = graph.Spec();
  spec.road.cache_bytes = graph.FeatureBytes() / 4;
  constexpr uint32_t kRanks = 2;
  ASSERT_OK(BuildRankLayouts(graph.store(), graph.budget(), spec, kRanks, {}));
  std::vector<Meaning> all(expected[0].size());
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_OK_AND_ASSIGN(
        const auto road,
        PlannedRoad::Open(graph.store(), graph.budget(),
                          {.layout = RankLayoutName("default", rank, kRanks), .live = graph.live()}));
    const std::vector<Meaning> part = graph.Pass(*road, 77);
    for (size_t b = 0; b < part.size(); ++b) all.at(b * kRanks + rank) = part[b];
  }
  EXPECT_TRUE(all == expected[0]);
}

TEST(TypedLayoutTest, RefusesInASentence) {
  TypedGraph graph(FirstSeed() + 600);
  graph.Live(0);
  LayoutSpec spec = graph.Spec();
  spec.disk_bytes = 64 * kKiB;
  EXPECT_THAT(BuildLayout(graph.store(), graph.budget(), spec, false, {}),
              IsStatus(Code::kNoSpace, HasSubstr("packed for each batch by itself")));
  spec = graph.Spec();
  spec.road.relation_fanouts.pop_back();
  EXPECT_THAT(BuildLayout(graph.store(), graph.budget(), spec, false, {}),
              IsStatus(Code::kUsage, HasSubstr("2 hops of 5 types take 10")));
  spec = graph.Spec();
  spec.road.relation_fanouts.clear();
  EXPECT_THAT(BuildLayout(graph.store(), graph.budget(), spec, false, {}),
              IsStatus(Code::kNotFound, HasSubstr("paper.feature, author.feature")));
  ASSERT_OK(BuildLayout(graph.store(), graph.budget(), graph.Spec(), false, {}));
  EXPECT_THAT(graph.store().DropTable("paper.feature"),
              IsStatus(Code::kInvalidArgument, HasSubstr("needs table \"paper.feature\"")));
  LiveRoadOptions other = graph.live();
  other.spec.relation_fanouts[0] = 1;
  EXPECT_THAT(PlannedRoad::Open(graph.store(), graph.budget(), {.live = other}),
              IsStatus(Code::kUsage, HasSubstr("with relation fanouts 2,3,1,2,4,0,2,0,3,1, not 1,3")));
  testing_util::FakeDevice device;
  EXPECT_THAT(PlannedRoad::Open(graph.store(), graph.budget(),
                                {.device = {.device = &device, .bytes = kMiB, .cache_bytes = kMiB}}),
              IsStatus(Code::kUnsupported, HasSubstr("of several types are made in memory")));
}

}  // namespace
}  // namespace quarry
