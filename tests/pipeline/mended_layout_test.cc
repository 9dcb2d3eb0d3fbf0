// A layout that was mended serves, batch for batch and cycle after cycle, what a layout that is built whole of the newer graph
// serves: samples, rows, labels. Whether to mend is a function of counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/cost_model.h"
#include "quarry/layout/mend_price.h"
#include "quarry/layout/rebuild.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/folded_lists.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/verify/verify.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::kBytesAlone;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

// A node of a batch, whatever its number there.
struct ServedNode {
  size_t hop = 0;
  std::vector<NodeId> drawn;
  std::vector<uint64_t> edge_ids;  // of those, where the batch has them
  std::vector<std::byte> row;
  int64_t label = 0;  // of a seed
  friend bool operator==(const ServedNode&, const ServedNode&) = default;
};
using ServedBatch = std::map<NodeId, ServedNode>;

ServedBatch CopyBatch(const BatchView& view, uint64_t row_bytes) {
  ServedBatch batch;
  for (size_t v = 0; v < view.nodes.size(); ++v) {
    ServedNode& node = batch[view.nodes[v]];
    while (v >= view.hop_offsets[node.hop]) ++node.hop;
    for (size_t e = v < view.target_count() ? view.indptr[v] : 0;
         v < view.target_count() && e < view.indptr[v + 1]; ++e) {
      node.drawn.push_back(view.nodes[view.indices[e]]);
      if (!view.edge_ids.empty()) node.edge_ids.push_back(view.edge_ids[e]);
    }
    node.row.assign(view.features.Row(v), view.features.Row(v) + row_bytes);
    if (v < view.labels.size()) node.label = view.labels[v];
  }
  return batch;
}

struct MendShape {
  std::string name;
  LayoutSpec spec;
  bool segments = false;  // a disk budget that asks for them
  TinyGraph graph = {};
};

class MendWorld {
 public:
  MendWorld(const MendShape& shape, uint64_t seed)
      : shape_(shape), database_(shape.graph, MemoryFolder()), nodes_(shape.graph.nodes), rng_(seed) {
    auto store = Store::Open(*backend_, database_.path());
    EXPECT_OK(store);
    store_ = std::move(store).value();
    SetDevice(kBytesAlone);
  }
  Store& store() { return *store_; }
  MemoryBudget& budget() { return budget_; }
  Rng& rng() { return rng_; }
  LayoutRecord Record(std::string_view name = "default") const {
    return *store_->manifest()->FindLayout(name);
  }
  void SetDevice(const DeviceRecord& device) {
    ASSERT_OK(store_->UpdateManifest([&](Manifest& manifest) {
      manifest.device = device;
      return Status::Ok();
    }));
  }

  void Build() {
    LayoutSpec spec = shape_.spec;
    const auto record = BuildLayout(*store_, budget_, spec, false, {});
    ASSERT_OK(record);
    if (!shape_.segments) return;
    spec.disk_bytes = record->total_bytes() * 3 / 4;
    ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
    ASSERT_GT(Record().batches_per_segment, 0u);
    ASSERT_OK(store_->UpdateManifest([](Manifest& manifest) {
      manifest.layouts[0].disk_bytes_max *= 20;
      return Status::Ok();
    }));
  }

  // Edges come and go, rows change, nodes come that nobody trains on.
  void Change(uint64_t edges, uint64_t rows, uint64_t nodes) {
    auto change =
        GraphChange::Create(*store_, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    WriteBatch batch;
    std::vector<std::byte> row(RowBytes(shape_.graph.type, shape_.graph.dim));
    const auto put = [&](uint64_t node) {
      for (std::byte& byte : row) byte = static_cast<std::byte>(rng_.Below(256));
      batch.Put("feature", node, row);
    };
    for (uint64_t node = nodes_; node < nodes_ + nodes; ++node) put(node);
    for (uint64_t i = 0; i < rows; ++i) put(rng_.Below(nodes_));
    ASSERT_OK((*change)->Put(batch));
    nodes_ += nodes;
    std::vector<Edge> added;
    for (uint64_t i = 0; i < edges; ++i) added.push_back({rng_.Below(nodes_), rng_.Below(nodes_)});
    for (uint64_t i = 0; i < nodes; ++i) added.push_back({nodes_ - 1 - i, rng_.Below(nodes_)});
    const std::vector<Edge> all = shape_.graph.Edges();
    const Edge gone = all[rng_.Below(all.size())];
    if (edges > 1 && removed_.insert({gone.source, gone.destination}).second) {
      ASSERT_OK((*change)->Remove(std::span(&gone, 1)));
    }
    ASSERT_OK((*change)->Add(added));
    ASSERT_OK((*change)->Commit());
  }

  // One commit of these edges.
  void Commit(std::vector<Edge> added, std::vector<Edge> removed) {
    ASSERT_OK_AND_ASSIGN(const auto change,
                         GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin}));
    ASSERT_OK(change->Remove(removed));
    ASSERT_OK(change->Add(added));
    ASSERT_OK(change->Commit());
  }
  // One commit of a node without edges.
  void AddNode() {
    ASSERT_OK_AND_ASSIGN(
        const auto change,
        GraphChange::Create(*store_, budget_, {.nodes = 1, .memory_bytes = kGraphChangeBytesMin}));
    ASSERT_OK(change->Commit());
    ++nodes_;
  }
  ChangedSeeds Count() {
    const auto layout = Layout::Open(*store_, "default");
    EXPECT_OK(layout);
    const auto snapshot = store_->TakeSnapshot();
    EXPECT_OK(snapshot);
    return CountChangedSeeds(*store_, budget_, **layout, **snapshot, {}).value();
  }

  void Compact() { ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {})); }

  void Rebuild(const RebuildOptions& options = {}) {
    report_ = RebuildReport();
    ASSERT_OK(RebuildLayout(*store_, budget_, "default", options, {}, &report_));
    EXPECT_EQ(budget_.used_bytes(), 0u);
    if (!options.dry_run) {
      EXPECT_TRUE(IsFresh(*store_->manifest(), Record()));
    }
  }
  const RebuildReport& report() const { return report_; }

  // Two cycles of a layout.
  std::vector<ServedBatch> Serve(const std::string& layout) {
    std::vector<ServedBatch> batches;
    const uint64_t row_bytes = RowBytes(shape_.graph.type, shape_.graph.dim);
    const auto road = PlannedRoad::Open(*store_, budget_, {.layout = layout});
    EXPECT_OK(road);
    if (!road.ok()) return batches;
    for (uint64_t pass = 0; pass < 2 * shape_.spec.epochs; ++pass) {
      const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .pass = pass, .ordered = true});
      EXPECT_OK(stream);
      for (;;) {
        const auto batch = (*stream)->Next();
        EXPECT_OK(batch);
        if (!batch.ok() || *batch == nullptr) break;
        batches.push_back(CopyBatch((*batch)->view(), row_bytes));
      }
    }
    return batches;
  }

  void ExpectServedAsBuiltWhole() {
    LayoutSpec spec = shape_.spec;
    spec.name = "whole";
    ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
    const std::vector<ServedBatch> mended = Serve("default"), whole = Serve("whole");
    ASSERT_EQ(mended.size(), whole.size());
    for (size_t b = 0; b < whole.size(); ++b) ASSERT_TRUE(mended[b] == whole[b]) << "batch " << b;
    ASSERT_OK(DropLayout(*store_, "whole"));
    const auto verified = VerifyStore(*store_, {});
    ASSERT_OK(verified);
    for (const Status& fault : verified->faults) ADD_FAILURE() << fault.ToString();
  }

  // The regions of a batch, and how much of them lies in files of layouts before.
  std::pair<std::vector<std::byte>, uint64_t> RegionOf(const Layout& layout, uint64_t batch) {
    const BatchEntry& entry = layout.directory().batches[batch];
    const uint64_t bytes = RoundUp(entry.block_bytes, kPageBytes) + layout.directory().chunk_bytes(entry);
    auto pages = IoBuffer::Allocate(bytes);
    EXPECT_OK(pages);
    EXPECT_OK(layout.ReadPages(*backend_, entry.offset, pages->span().first(bytes)));
    uint64_t kept = 0;
    for (uint64_t at = 0; at < bytes;) {
      const Layout::Part part = layout.Locate(entry.offset + at, bytes - at);
      if (part.file != &layout.file()) kept += part.bytes;
      at += part.bytes;
    }
    return {
        std::vector<std::byte>(pages->span().begin(), pages->span().begin() + static_cast<ptrdiff_t>(bytes)),
        kept};
  }

 private:
  static std::string MemoryFolder() {
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir();
  }
  const MendShape shape_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  const TinyDatabase database_;
  MemoryBudget budget_{kGiB};
  uint64_t nodes_;
  Rng rng_;
  std::unique_ptr<Store> store_;
  std::set<std::pair<uint64_t, uint64_t>> removed_;
  RebuildReport report_;
};

LayoutSpec MendSpec(uint64_t batch_size, uint64_t cache_rows, uint32_t epochs = 1) {
  return {.road = {.fanouts = {3, 2},
                   .batch_size = static_cast<uint32_t>(batch_size),
                   .cache_bytes = cache_rows * 512,
                   .seed = 5},
          .epochs = epochs,
          .threads = 2};
}

std::vector<MendShape> MendShapes() {
  std::vector<MendShape> shapes;
  shapes.push_back({"belady", MendSpec(24, 60, 2)});
  shapes.push_back({"no cache", MendSpec(40, 0)});
  shapes.push_back({"lru", MendSpec(24, 60)});
  shapes.back().spec.policy = PolicyKind::kLru;
  shapes.push_back({"a cache that stays", MendSpec(24, 60)});
  shapes.back().spec.policy = PolicyKind::kStaticFrequency;
  shapes.push_back({"rows in the table", MendSpec(24, 60)});
  shapes.back().spec.packing = Packing::kNever;
  shapes.push_back({"segments", MendSpec(24, 60), true});
  shapes.push_back({"both directions, odd rows", MendSpec(24, 60)});
  shapes.back().spec.road.direction = Direction::kBoth;
  shapes.back().graph = {.dim = 75, .both_directions = true};
  shapes.push_back({"a cache of nearly all", MendSpec(24, 560, 2)});
  return shapes;
}

TEST(MendedLayoutTest, ItServesWhatALayoutOfTheNewerGraphServes) {
  uint64_t possible = 0, mended = 0, patched = 0;
  for (const MendShape& shape : MendShapes()) {
    for (uint64_t seed = 1; seed <= testing_util::Repetitions(1); ++seed) {
      SCOPED_TRACE(testing::Message() << shape.name << ", seed " << seed);
      MendWorld world(shape, seed);
      ASSERT_NO_FATAL_FAILURE(world.Build());
      for (int step = 0; step < 4; ++step) {
        SCOPED_TRACE(testing::Message() << "step " << step);
        // The last of these changes rows alone.
        const uint64_t edges = step == 3 ? 0 : 1 + world.rng().Below(3);
        ASSERT_NO_FATAL_FAILURE(
            world.Change(edges, world.rng().Below(4), step == 3 ? 0 : world.rng().Below(3)));
        if (world.rng().Below(3) == 0) {
          ASSERT_NO_FATAL_FAILURE(world.Compact());
        }
        ASSERT_NO_FATAL_FAILURE(world.Rebuild());
        possible += edges > 0 ? 1 : 0;
        mended += world.report().path == RebuildPath::kMend ? 1 : 0;
        patched += world.report().path == RebuildPath::kPatch ? 1 : 0;
        if (world.report().path == RebuildPath::kMend) {
          EXPECT_EQ(world.report().batches_sampled, world.report().batches_changed);
        }
        ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
      }
    }
  }
  EXPECT_GT(mended * 3, possible * 2) << "of " << possible << " that could be";
  EXPECT_GT(patched, 1u) << "behind a mend";
}

// An edge that comes or goes gives those behind it other numbers.
TEST(MendedLayoutTest, BatchesThatSayWhichEdgesTheyHaveAreBuiltAnewOnceOthersCame) {
  MendShape shape = {"edge ids", MendSpec(24, 60)};
  shape.spec.road.edge_ids = true;
  MendWorld world(shape, 6);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  const std::vector<ServedBatch> before = world.Serve("default");
  ASSERT_NO_FATAL_FAILURE(world.Change(2, 0, 0));
  EXPECT_THAT(PlannedRoad::Open(world.store(), world.budget(), {}),
              IsStatus(Code::kInvalidArgument, HasSubstr("edges came or went since")));
  ASSERT_NO_FATAL_FAILURE(world.Rebuild());
  EXPECT_EQ(world.report().path, RebuildPath::kBuild) << world.report().why;
  EXPECT_FALSE(world.Serve("default") == before);
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
  // Where rows alone change, the batches stand.
  ASSERT_NO_FATAL_FAILURE(world.Change(0, 3, 0));
  ASSERT_NO_FATAL_FAILURE(world.Rebuild());
  EXPECT_EQ(world.report().path, RebuildPath::kPatch) << world.report().why;
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
}

TEST(MendedLayoutTest, OtherBatchesKeepTheirBytesAndWhatIsSavedIsCounted) {
  const MendShape shape = {"large", MendSpec(96, 500), false, {.nodes = 4000}};
  MendWorld world(shape, 3);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  const auto open = [&] { return Layout::Open(world.store(), "default").value(); };
  std::vector<std::vector<std::byte>> before;
  {
    const auto layout = open();
    for (uint64_t b = 0; b < layout->directory().batches.size(); ++b) {
      before.push_back(world.RegionOf(*layout, b).first);
    }
  }
  const std::vector<ServedBatch> served = world.Serve("default");
  const LayoutRecord built = world.Record();
  // The list of one seed, which few others draw from.
  {
    auto change = GraphChange::Create(world.store(), world.budget(), {.memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    std::vector<Edge> edges;
    for (uint64_t source = 1000; source < 1040; ++source) edges.push_back({source, 3991});
    ASSERT_OK((*change)->Add(edges));
    ASSERT_OK((*change)->Commit());
  }
  ASSERT_NO_FATAL_FAILURE(world.Rebuild({.dry_run = true}));
  const RebuildReport dry = world.report();
  EXPECT_EQ(world.Record().generation, built.generation);
  ASSERT_NO_FATAL_FAILURE(world.Rebuild());
  ASSERT_EQ(world.report().path, RebuildPath::kMend) << world.report().why;
  EXPECT_EQ(dry.path, RebuildPath::kMend);
  EXPECT_EQ(dry.why, world.report().why);
  EXPECT_THAT(dry.why, HasSubstr("mending these batches takes less time than building"));
  EXPECT_LT(dry.mend_seconds, dry.anew_seconds);
  const uint64_t touched = world.report().batches_changed;
  ASSERT_GE(touched, 1u);
  EXPECT_EQ(world.report().batches_sampled, touched);
  EXPECT_LT(touched * 4, built.batch_count);
  EXPECT_LT(world.report().rows_read, 40u) << "of 4000 that a build reads";
  EXPECT_LT(world.report().bytes_written * 2, built.plan_bytes_written);
  uint64_t same = 0, kept = 0, all = 0;
  const auto layout = open();
  for (uint64_t b = 0; b < before.size(); ++b) {
    const auto [bytes, kept_bytes] = world.RegionOf(*layout, b);
    same += bytes == before[b] ? 1 : 0;
    kept += kept_bytes;
    all += bytes.size();
  }
  EXPECT_GE(same + touched, before.size()) << "a touched batch may be drawn as it was";
  EXPECT_LT(same, before.size());
  const std::vector<ServedBatch> now = world.Serve("default");
  ASSERT_EQ(now.size(), served.size());
  uint64_t others = 0;
  for (size_t b = 0; b < before.size(); ++b) others += now[b] == served[b] ? 0 : 1;
  EXPECT_GE(others, 1u) << touched << " touched";
  EXPECT_GT(kept * 2, all) << "in the file that was there";
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
}

// What the plan leaves behind grows, and a day comes when all of it is one file again.
TEST(MendedLayoutTest, MendedAgainAndAgainItStaysWithinItsBounds) {
  const MendShape shape = {"small", MendSpec(24, 60)};
  MendWorld world(shape, 9);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  const uint64_t bound = 2 * world.Record().total_bytes() + kMiB;
  for (int day = 0; day < 24; ++day) {
    ASSERT_NO_FATAL_FAILURE(world.Change(1, 0, 0));
    ASSERT_NO_FATAL_FAILURE(world.Rebuild());
    EXPECT_LE(world.Record().total_bytes(), bound);
    EXPECT_LE(world.Record().bases.size(), 16u);
  }
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
}

TEST(MendedLayoutTest, WhereItCannotBeMendedItIsBuilt) {
  const MendShape shape = {"small", MendSpec(24, 60)};
  MendWorld world(shape, 4);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  const auto why_after = [&](const std::function<void()>& change) {
    change();
    world.Rebuild();
    EXPECT_EQ(world.report().path, RebuildPath::kBuild) << world.report().why;
    EXPECT_EQ(world.report().batches_sampled, world.Record().batch_count);
    return world.report().why;
  };
  EXPECT_THAT(why_after([&] {
                world.Change(1, 0, 0);
                WriteBatch batch;
                batch.SetSplit(6, Split::kTrain);
                batch.SetLabel(6, 1);
                ASSERT_OK(world.store().Write(batch));
              }),
              HasSubstr("other nodes are trained on"));
  EXPECT_THAT(why_after([&] { world.Change(4000, 0, 0); }),
              HasSubstr("building takes less time than mending these batches"));
  EXPECT_GT(world.report().mend_seconds, 0.0);
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
}

// What a compaction has folded is remembered for the layouts that there were, each by its time.
TEST(MendedLayoutTest, CompactionsDoNotTakeAwayWhatItIsMendedBy) {
  const MendShape shape = {"small", MendSpec(24, 60, 2)};
  uint64_t touched = 0;  // batches, of all seeds: of one, it may be none
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(6); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    MendWorld world(shape, seed);
    ASSERT_NO_FATAL_FAILURE(world.Build());
    // The same graph as a model: what is counted by runs alone, of a layout that the other one's compactions never met.
    MendWorld unfolded(shape, seed);
    ASSERT_NO_FATAL_FAILURE(unfolded.Build());
    for (int step = 0; step < 4; ++step) {
      const uint64_t edges = 1 + world.rng().Below(2);
      ASSERT_EQ(unfolded.rng().Below(2), edges - 1);
      ASSERT_NO_FATAL_FAILURE(world.Change(edges, 1, 0));
      ASSERT_NO_FATAL_FAILURE(unfolded.Change(edges, 1, 0));
      if (step != 2) {
        ASSERT_NO_FATAL_FAILURE(world.Compact());
      }
      ASSERT_NO_FATAL_FAILURE(world.Rebuild({.dry_run = true}));
      ASSERT_NO_FATAL_FAILURE(unfolded.Rebuild({.dry_run = true}));
      EXPECT_EQ(world.report().seeds_changed, unfolded.report().seeds_changed);
      EXPECT_EQ(world.report().batches_changed, unfolded.report().batches_changed);
      touched += world.report().batches_changed;
      EXPECT_EQ(world.report().path, unfolded.report().path) << world.report().why;
      if (step != 1) continue;
      ASSERT_NO_FATAL_FAILURE(world.Rebuild());
      ASSERT_NO_FATAL_FAILURE(unfolded.Rebuild());
      ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
    }
    ASSERT_NO_FATAL_FAILURE(world.Rebuild());
    ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
  }
  EXPECT_GT(touched, 0u);
}

// A fold of nodes alone has no lists, and what was folded before it still counts.
TEST(MendedLayoutTest, AFoldOfNodesAloneHidesNoneBeforeIt) {
  MendWorld world({"small", MendSpec(24, 60, 2)}, 11);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  ASSERT_NO_FATAL_FAILURE(world.Commit({{1, 2}, {4, 5}}, {}));
  ASSERT_EQ(world.Count().lists, 2u);
  ASSERT_NO_FATAL_FAILURE(world.Compact());
  ASSERT_NO_FATAL_FAILURE(world.AddNode());
  ASSERT_NO_FATAL_FAILURE(world.Compact());
  EXPECT_TRUE(world.Count().known);
  EXPECT_EQ(world.Count().lists, 2u);
}

// An edge that came before the layout and went after it is in neither run's list once these are merged.
TEST(MendedLayoutTest, AMergeAcrossItsTimeHidesNoList) {
  MendWorld world({"small", MendSpec(24, 60, 2)}, 12);
  const Edge edge = {7, 2};
  ASSERT_NO_FATAL_FAILURE(world.Commit({edge}, {}));
  ASSERT_NO_FATAL_FAILURE(world.Build());
  ASSERT_NO_FATAL_FAILURE(world.Commit({}, {edge}));
  for (uint64_t commit = 0; commit < kTopologyRunsMax; ++commit) {
    ASSERT_NO_FATAL_FAILURE(world.Commit({{commit, 3}}, {}));
  }
  ASSERT_LT(world.store().manifest()->FindTopology("graph")->runs.size(), kTopologyRunsMax) << "merged";
  EXPECT_EQ(world.Count().lists, 2u) << "of nodes 2 and 3";
  ASSERT_NO_FATAL_FAILURE(world.Compact());
  EXPECT_TRUE(world.Count().known);
  EXPECT_EQ(world.Count().lists, 2u);
}

// A compaction of before it was remembered, as a generation of which the catalog says nothing.
TEST(MendedLayoutTest, WhatIsNotRememberedIsNotKnown) {
  MendWorld world({"small", MendSpec(24, 60)}, 8);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  ASSERT_NO_FATAL_FAILURE(world.Change(3, 0, 0));
  ASSERT_NO_FATAL_FAILURE(world.Compact());
  TopologyRecord graph = *world.store().manifest()->FindTopology("graph");
  const auto lists = [&](uint64_t timestamp) -> std::optional<std::set<NodeId>> {
    std::set<NodeId> found;
    constexpr Adjacency kSides[] = {Adjacency::kCsc};
    const auto known =
        ForEachFoldedList(world.store(), graph, kSides, timestamp, [&](NodeId list) { found.insert(list); });
    EXPECT_OK(known);
    return known.ok() && *known ? std::optional(found) : std::nullopt;
  };
  const uint64_t then = world.Record().timestamp;
  ASSERT_TRUE(lists(then));
  EXPECT_GE(lists(then)->size(), 1u);
  EXPECT_LE(lists(then)->size(), 4u);
  EXPECT_EQ(lists(graph.folded), std::set<NodeId>());
  ++graph.generation;
  EXPECT_FALSE(lists(then));
}

TEST(MendedLayoutTest, InterruptedItLeavesTheLayoutAsItWas) {
  const MendShape shape = {"small", MendSpec(24, 60)};
  MendWorld world(shape, 6);
  ASSERT_NO_FATAL_FAILURE(world.Build());
  ASSERT_NO_FATAL_FAILURE(world.Change(1, 1, 0));
  const LayoutRecord before = world.Record();
  std::set<std::string> phases;
  ASSERT_OK(RebuildLayout(world.store(), world.budget(), "default", {.dry_run = true}, {}));
  for (const std::string_view stop : {"sampling", "planning", "patching"}) {
    RebuildReport report;
    const auto stopped = RebuildLayout(
        world.store(), world.budget(), "default", {},
        [&](std::string_view phase, uint64_t, uint64_t) {
          phases.insert(std::string(phase));
          return phase == stop ? Status(Code::kCancelled, "enough") : Status::Ok();
        },
        &report);
    EXPECT_EQ(stopped.status().code(), Code::kCancelled) << stop;
    EXPECT_EQ(report.path, RebuildPath::kMend);
    EXPECT_EQ(world.budget().used_bytes(), 0u);
    EXPECT_EQ(world.Record().generation, before.generation);
    EXPECT_FALSE(std::filesystem::exists(world.store().path() + "/layouts/default.building"));
  }
  EXPECT_TRUE(phases.contains("counting changed seeds"));
  ASSERT_NO_FATAL_FAILURE(world.Rebuild());
  ASSERT_NO_FATAL_FAILURE(world.ExpectServedAsBuiltWhole());
}

// ogbn-products' shape and others, on a device of 3.2 GB/s and 78 thousand reads a second.
TEST(MendPriceTest, FewTouchedBatchesAreMendedAndMostAreBuilt) {
  const DeviceRecord device = {.random_reads_per_second = 78e3,
                               .sequential_bytes_per_second = 3.2e9,
                               .write_bytes_per_second = 1.6e9,
                               .gather_bytes_per_second = 1e10,
                               .core = {.checksum_bytes_per_second = 1e10,
                                        .copy_bytes_per_second = 5e9,
                                        .decode_bytes_per_second = 1e9,
                                        .request_seconds = 3e-6}};
  struct Case {
    const char* name;
    uint64_t nodes, batches, nodes_of_batch, edges_of_batch, row_bytes, lists_bytes;
  };
  const Case cases[] = {
      {"2.4 M nodes, 400 B, 192 batches", 2'400'000, 192, 300'000, 600'000, 400, 495'000'000},
      {"111 M nodes, 512 B, 1179 batches", 111'000'000, 1179, 400'000, 700'000, 512, 13'000'000'000},
      {"100 k nodes, 2 KiB, 20 batches", 100'000, 20, 40'000, 80'000, 2048, 8'000'000},
  };
  for (const Case& shape : cases) {
    SCOPED_TRACE(shape.name);
    const auto price = [&](uint64_t touched, uint64_t redrawn_of_batch) {
      const uint64_t block = shape.edges_of_batch * 3, chunk = shape.nodes_of_batch / 2 * shape.row_bytes;
      return PriceMend({.nodes = shape.nodes,
                        .batches_touched = touched,
                        .edges = shape.batches * shape.edges_of_batch,
                        .edges_touched = touched * shape.edges_of_batch,
                        .nodes_touched = touched * shape.nodes_of_batch,
                        .rows_redrawn = touched * redrawn_of_batch,
                        .row_bytes = shape.row_bytes,
                        .blocks_bytes = shape.batches * block,
                        .touched_bytes = touched * (block + chunk),
                        .regions_bytes = shape.batches * (block + chunk),
                        .trace_bytes = shape.batches * shape.nodes_of_batch,
                        .lists_bytes = shape.lists_bytes,
                        .table_bytes = shape.nodes * shape.row_bytes},
                       device);
    };
    EXPECT_TRUE(price(1, 100).mends());
    EXPECT_TRUE(price(shape.batches / 20, 100).mends());
    EXPECT_FALSE(price(shape.batches, shape.nodes_of_batch).mends());
    // The more is touched, or redrawn, the more mending takes; building takes what it takes.
    double before = 0;
    bool mends = true;
    for (uint64_t touched = 1; touched <= shape.batches; ++touched) {
      const MendPrice at = price(touched, shape.nodes_of_batch / 2);
      EXPECT_GT(at.mend_seconds, before);
      EXPECT_EQ(at.build_seconds, price(1, 0).build_seconds);
      EXPECT_TRUE(mends || !at.mends()) << "once building is cheaper, it stays so";
      before = at.mend_seconds;
      mends = at.mends();
    }
    EXPECT_FALSE(mends);
    EXPECT_GT(price(2, 1000).epoch_seconds, price(2, 100).epoch_seconds);
  }
  // One small batch takes pages of the lists, many take all of them.
  const MendCounts few = {.nodes = 1'000'000, .nodes_touched = 100, .lists_bytes = 1 << 30};
  const MendCounts many = {.nodes = 1'000'000, .nodes_touched = 10'000'000, .lists_bytes = 1 << 30};
  EXPECT_FALSE(PriceMend(few, device).lists_in_memory);
  EXPECT_TRUE(PriceMend(many, device).lists_in_memory);
}

}  // namespace
}  // namespace quarry
