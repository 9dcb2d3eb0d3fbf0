// A graph that nodes and edges are added to is, for whoever reads it by whatever snapshot, the graph of the nodes, rows and
// edges that were committed then, and after compaction the files that an import of them writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "pipeline/grown_model.h"
#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/format/superblock.h"
#include "quarry/import/graph_change.h"
#include "quarry/layout/changed_seeds.h"
#include "quarry/layout/rebuild.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/table_view.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/verify/verify.h"
#include "storage/small_store.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::GrownGraph;
using testing_util::GrownModel;
using testing_util::ImportModel;
using testing_util::SmallOptions;
using testing_util::TinyGraph;
using testing_util::VectorIntReader;

class GrownNodes : public GrownGraph {
 protected:
  void CheckAll() {
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    ASSERT_NO_FATAL_FAILURE(Check({*snapshot, *model_}));
    for (const Held& held : held_) ASSERT_NO_FATAL_FAILURE(Check(held));
    const auto verified = VerifyStore(*store_, {});
    ASSERT_OK(verified);
    // Files that snapshots keep are strays to whoever looks at the folder.
    if (std::ranges::all_of(verified->damages, [&](const Damage& damage) {
          return !held_.empty() && damage.kind == Damage::Kind::kStray;
        })) {
      return;
    }
    for (const Status& fault : verified->faults) ADD_FAILURE() << fault.ToString();
  }
  void Check(const Held& held);
  void CheckRows(const Held& held);
  void CheckLists(const Held& held);
  void CheckBatches(const Held& held);
  void CheckEqualsImport();
};

void GrownNodes::Check(const Held& held) {
  ASSERT_EQ(held.snapshot->node_count, held.model.nodes());
  ASSERT_NO_FATAL_FAILURE(CheckRows(held));
  ASSERT_NO_FATAL_FAILURE(CheckLists(held));
  const auto properties = LoadNodeProperties(*store_, held.model.nodes(), held.snapshot);
  ASSERT_OK(properties);
  ASSERT_EQ(properties->labels, held.model.labels);
  ASSERT_EQ(properties->splits, held.model.splits);
}

// By a scan with the overlay over it, and by rows gathered in any order.
void GrownNodes::CheckRows(const Held& held) {
  const auto table = store_->OpenTable(*held.snapshot, "feature");
  const auto overlay = store_->OpenOverlay("feature", held.snapshot);
  ASSERT_OK(table);
  ASSERT_OK(overlay);
  ASSERT_EQ((*table)->geometry().row_count, held.model.nodes());
  const uint64_t row_bytes = held.model.dim * sizeof(float);
  std::vector<std::byte> rows(held.model.nodes() * row_bytes);
  ASSERT_OK((*table)->ReadRows(*backend_, 0, held.model.nodes(), rows));
  const std::vector<uint64_t> touched = (*overlay)->TouchedRows();
  for (const uint64_t row : touched) ASSERT_LT(row, held.model.nodes());
  ASSERT_OK(FoldRows(**overlay, touched, 0, row_bytes, rows));
  for (uint64_t node = 0; node < held.model.nodes(); ++node) {
    ASSERT_EQ(std::memcmp(&rows[node * row_bytes], held.model.rows[node].data(), row_bytes), 0) << node;
  }
  TableFiles files(*store_, budget_);
  const auto view = TableView::Open(*store_, files, held.snapshot, *held.snapshot->FindTable("feature"));
  ASSERT_OK(view);
  std::vector<uint64_t> wanted;
  for (uint64_t node = rng_.Below(4); node < held.model.nodes(); node += 1 + rng_.Below(7)) {
    wanted.push_back(node);
  }
  MergedReader reader(*backend_, budget_, {}, 64 << 10);
  size_t found = 0;
  ASSERT_OK(view->Gather(reader, wanted, [&](size_t i, std::span<const std::byte> row) {
    ++found;
    EXPECT_EQ(std::memcmp(row.data(), held.model.rows[wanted[i]].data(), row_bytes), 0) << wanted[i];
  }));
  ASSERT_EQ(found, wanted.size());
}

void GrownNodes::CheckLists(const Held& held) {
  const auto topology = store_->OpenTopology(*held.snapshot, "graph");
  ASSERT_OK(topology);
  ASSERT_EQ((*topology)->node_count(), held.model.nodes());
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    if (!(*topology)->has(side)) continue;
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> sorted;
    for (const auto& [ends, count] : held.model.edges) {
      sorted[side == Adjacency::kCsc ? ends : std::pair(ends.second, ends.first)] = count;
    }
    std::vector<uint64_t> indptr(held.model.nodes() + 1, 0);
    std::vector<NodeId> indices;
    for (const auto& [ends, count] : sorted) {
      indptr[ends.first + 1] += count;
      indices.insert(indices.end(), count, static_cast<NodeId>(ends.second));
    }
    for (size_t v = 1; v < indptr.size(); ++v) indptr[v] += indptr[v - 1];
    ASSERT_THAT((*topology)->indptr(side), testing::ElementsAreArray(indptr));
    ASSERT_OK((*topology)->LoadIndices(*backend_, side));
    ASSERT_THAT((*topology)->indices(side), testing::ElementsAreArray(indices));
  }
}

// An epoch over all training nodes of the snapshot, added ones among them.
void GrownNodes::CheckBatches(const Held& held) {
  LiveRoadOptions options = SmallOptions();
  options.snapshot = held.snapshot;
  const auto road = LiveRoad::Open(*store_, budget_, options);
  ASSERT_OK(road);
  std::set<int64_t> seeds;
  for (const int64_t node : held.model.NodesOf(Split::kTrain)) {
    if (held.model.labels[static_cast<size_t>(node)] >= 0) seeds.insert(node);
  }
  const std::vector<NodeId> train = (*road)->TrainNodes();
  ASSERT_THAT(train, testing::ElementsAreArray(seeds));
  const auto stream = (*road)->StartPass({.seeds = train});
  ASSERT_OK(stream);
  for (;;) {
    const auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    if (!*batch) break;
    const BatchView& block = (*batch)->view();
    for (size_t v = 0; v < block.nodes.size(); ++v) {
      const std::vector<float>& row = held.model.rows[block.nodes[v]];
      ASSERT_EQ(std::memcmp(block.features.Row(v), row.data(), row.size() * sizeof(float)), 0)
          << "row " << block.nodes[v];
    }
    for (size_t i = 0; i < block.seed_count; ++i) {
      ASSERT_EQ(block.labels[i], held.model.labels[block.nodes[i]]);
      seeds.erase(block.nodes[i]);
    }
  }
  EXPECT_TRUE(seeds.empty()) << "not in any batch";
}

// Byte for byte, but for the superblock, which has the database and the generation.
void GrownNodes::CheckEqualsImport() {
  const std::string other = folder_.path() + "/whole";
  std::filesystem::remove_all(other);
  ASSERT_OK(ImportModel(*backend_, other, *model_, csr_));
  const auto whole = Store::Open(*backend_, other);
  ASSERT_OK(whole);
  const auto manifest = store_->manifest(), expected = (*whole)->manifest();
  EXPECT_EQ(manifest->node_count, expected->node_count);
  std::map<std::string, std::string> files, expected_files;
  const auto collect = [](const Manifest& from, std::map<std::string, std::string>& into) {
    for (const TableRecord& table : from.tables) {
      EXPECT_EQ(table.added_rows, 0u) << table.name;
      into[table.name] = table.file;
    }
    for (const TopologyRecord& topology : from.topologies) {
      EXPECT_EQ(topology.added_nodes, 0u);
      EXPECT_TRUE(topology.runs.empty());
      into[topology.name] = topology.file;
    }
  };
  collect(*manifest, files);
  collect(*expected, expected_files);
  ASSERT_EQ(files.size(), expected_files.size());
  for (const auto& [name, file] : files) {
    const std::string found = testing_util::FileText(path() + "/" + file),
                      wanted = testing_util::FileText(other + "/" + expected_files[name]);
    ASSERT_EQ(found.size(), wanted.size()) << name;
    EXPECT_TRUE(found.substr(kSuperblockBytes) == wanted.substr(kSuperblockBytes)) << name;
  }
}

TEST_F(GrownNodes, AreWhatWasCommittedToEverySnapshot) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 40 : std::strtoull(given, nullptr, 10);
  // Rows that share a page's checksum, and rows with one of their own.
  for (const uint64_t dim : {6, 130}) {
    for (const bool csr : {false, true}) {
      const uint64_t seed = base + dim + (csr ? 1 : 0);
      SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", dim " << dim << ", csr " << csr);
      ASSERT_NO_FATAL_FAILURE(Make(dim, csr, seed));
      for (int step = 0; step < 25; ++step) {
        SCOPED_TRACE(step);
        switch (rng_.Below(8)) {
          case 0:
            ASSERT_NO_FATAL_FAILURE(Open());
            break;
          case 1:
            ASSERT_NO_FATAL_FAILURE(Compact(/*all=*/false));
            break;
          case 2:
            ASSERT_NO_FATAL_FAILURE(Put());
            break;
          case 3:
            ASSERT_NO_FATAL_FAILURE(Hold());
            break;
          default:
            ASSERT_NO_FATAL_FAILURE(Grow(rng_.Below(3) == 0 ? 0 : 1 + rng_.Below(20)));
        }
        if (held_.size() > 2) held_.erase(held_.begin());
        ASSERT_NO_FATAL_FAILURE(CheckAll());
        if (step % 6 == 0) {
          for (const Held& held : held_) ASSERT_NO_FATAL_FAILURE(CheckBatches(held));
          const auto snapshot = store_->TakeSnapshot();
          ASSERT_OK(snapshot);
          ASSERT_NO_FATAL_FAILURE(CheckBatches({*snapshot, *model_}));
        }
      }
      ASSERT_NO_FATAL_FAILURE(Compact(/*all=*/true));
      ASSERT_NO_FATAL_FAILURE(CheckAll());
      ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
    }
  }
}

// Its rows are the newest; its nodes and edges those that it was planned for.
TEST_F(GrownNodes, ALayoutOfTheGraphBeforeServesItsBatches) {
  ASSERT_NO_FATAL_FAILURE(Make(130, false, 7));
  const LayoutSpec spec = {.road = {.fanouts = {3, 2}, .batch_size = 32, .cache_bytes = 20 << 10, .seed = 5}};
  ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
  const GrownModel before = *model_;
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Grow(6));
  for (const bool compacted : {false, true}) {
    SCOPED_TRACE(compacted);
    if (compacted) {
      ASSERT_NO_FATAL_FAILURE(Compact(/*all=*/true));
    }
    const std::shared_ptr<const Manifest> manifest = store_->manifest();
    EXPECT_FALSE(IsFresh(*manifest, manifest->layouts[0]));
    EXPECT_TRUE(IsServable(*manifest, manifest->layouts[0]));
    const auto road = PlannedRoad::Open(*store_, budget_, {});
    ASSERT_OK(road);
    const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .ordered = true});
    ASSERT_OK(stream);
    size_t seeds = 0;
    for (;;) {
      const auto batch = (*stream)->Next();
      ASSERT_OK(batch);
      if (!*batch) break;
      const BatchView& block = (*batch)->view();
      seeds += block.seed_count;
      for (size_t v = 0; v < block.nodes.size(); ++v) {
        ASSERT_LT(block.nodes[v], before.nodes());
        const std::vector<float>& row = model_->rows[block.nodes[v]];
        ASSERT_EQ(std::memcmp(block.features.Row(v), row.data(), row.size() * sizeof(float)), 0)
            << "row " << block.nodes[v];
      }
    }
    EXPECT_GT(seeds, 0u);
  }
  ASSERT_OK(RebuildLayout(*store_, budget_, "default", {}, {}));
  EXPECT_TRUE(IsFresh(*store_->manifest(), store_->manifest()->layouts[0]));
}

// A batch of a layout by the ids of its nodes.
struct PlannedNodes {
  std::vector<NodeId> nodes;
  uint32_t seeds = 0;
  std::vector<std::vector<uint32_t>> drawn;  // by local id, of those that have a list: local ids
  std::set<std::pair<NodeId, NodeId>> edges;
};

std::vector<PlannedNodes> BatchesOf(Store& store, MemoryBudget& budget, const std::string& layout) {
  std::vector<PlannedNodes> batches;
  const auto road = PlannedRoad::Open(store, budget, {.layout = layout});
  EXPECT_OK(road);
  for (uint64_t epoch = 0; epoch < store.manifest()->FindLayout(layout)->epochs; ++epoch) {
    const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .pass = epoch, .ordered = true});
    EXPECT_OK(stream);
    for (;;) {
      const auto batch = (*stream)->Next();
      EXPECT_OK(batch);
      if (!*batch) break;
      const BatchView& view = (*batch)->view();
      PlannedNodes& planned = batches.emplace_back();
      planned.nodes.assign(view.nodes.begin(), view.nodes.end());
      planned.seeds = static_cast<uint32_t>(view.seed_count);
      for (size_t v = 0; v + 1 < view.indptr.size(); ++v) {
        planned.drawn.emplace_back();
        for (uint32_t e = view.indptr[v]; e < view.indptr[v + 1]; ++e) {
          planned.drawn.back().push_back(view.indices[e]);
          planned.edges.emplace(view.nodes[v], view.nodes[view.indices[e]]);
        }
      }
    }
  }
  return batches;
}

// Whether what is drawn for a node, so many hops deep, takes a list that changed.
bool DrawsFrom(const PlannedNodes& batch, const std::set<NodeId>& changed, uint32_t node, size_t hops) {
  if (hops == 0) return false;
  if (changed.contains(batch.nodes[node])) return true;
  return std::ranges::any_of(batch.drawn[node],
                             [&](uint32_t next) { return DrawsFrom(batch, changed, next, hops - 1); });
}

// Against every path from every seed; and batches of which none has changed are those that a layout of the newer graph has.
TEST_F(GrownNodes, ALayoutSaysWhoseNeighborhoodsHaveChanged) {
  for (const Direction direction : {Direction::kIn, Direction::kBoth}) {
    ASSERT_NO_FATAL_FAILURE(Make(6, direction == Direction::kBoth, 21));
    const RoadSpec road = {
        .direction = direction, .fanouts = {2, 2, 1}, .batch_size = 3, .cache_bytes = 20 * 24, .seed = 5};
    ASSERT_OK(BuildLayout(*store_, budget_, {.name = "old", .road = road, .epochs = 2}, false, {}));
    const std::vector<PlannedNodes> old = BatchesOf(*store_, budget_, "old");
    std::set<NodeId> changed;
    uint64_t some = 0;
    for (int step = 0; step < 6; ++step) {
      const Edge edge = {rng_.Below(model_->nodes()), rng_.Below(model_->nodes())};
      auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
      ASSERT_OK(change);
      ASSERT_OK((*change)->Add(std::span(&edge, 1)));
      ASSERT_OK((*change)->Commit());
      changed.insert(static_cast<NodeId>(edge.destination));
      if (direction == Direction::kBoth) changed.insert(static_cast<NodeId>(edge.source));
      ASSERT_OK(BuildLayout(*store_, budget_, {.name = "new", .road = road, .epochs = 2}, false, {}));
      const std::vector<PlannedNodes> anew = BatchesOf(*store_, budget_, "new");
      ASSERT_EQ(anew.size(), old.size());
      ChangedSeeds expected = {.lists = changed.size()};
      for (size_t b = 0; b < old.size(); ++b) {
        uint64_t seeds = 0;
        for (uint32_t s = 0; s < old[b].seeds; ++s) seeds += DrawsFrom(old[b], changed, s, 3) ? 1 : 0;
        expected.seeds += old[b].seeds;
        expected.seeds_changed += seeds;
        if (seeds > 0) expected.batches.push_back(b);
        if (seeds > 0) continue;
        EXPECT_EQ(old[b].edges, anew[b].edges) << "batch " << b;
      }
      const auto layout = Layout::Open(*store_, "old");
      ASSERT_OK(layout);
      const auto snapshot = store_->TakeSnapshot();
      ASSERT_OK(snapshot);
      const auto counted = CountChangedSeeds(*store_, budget_, **layout, **snapshot, {});
      ASSERT_OK(counted);
      EXPECT_TRUE(counted->known);
      EXPECT_EQ(counted->lists, expected.lists);
      EXPECT_EQ(counted->seeds, expected.seeds);
      EXPECT_EQ(counted->seeds_changed, expected.seeds_changed);
      EXPECT_EQ(counted->batches, expected.batches);
      some += expected.seeds_changed > 0 && expected.batches.size() < old.size() ? 1 : 0;
    }
    EXPECT_GT(some, 2u) << "neither none nor all";
    const auto count = [&] {
      const auto layout = Layout::Open(*store_, "old");
      EXPECT_OK(layout);
      const auto snapshot = store_->TakeSnapshot();
      EXPECT_OK(snapshot);
      return CountChangedSeeds(*store_, budget_, **layout, **snapshot, {}).value();
    };
    const ChangedSeeds before = count();
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    const ChangedSeeds after = count();
    EXPECT_TRUE(after.known) << "folded lists are remembered";
    EXPECT_EQ(after.lists, before.lists);
    EXPECT_EQ(after.seeds_changed, before.seeds_changed);
    EXPECT_EQ(after.batches, before.batches);
  }
}

// Edges of lists that no batch draws from change no batch: a rebuild writes the catalog and no plan.
TEST_F(GrownNodes, ALayoutWhoseBatchesAreTheSameIsNotBuiltAnew) {
  ASSERT_NO_FATAL_FAILURE(Make(6, false, 23));
  const RoadSpec road = {.fanouts = {2}, .batch_size = 40, .cache_bytes = 20 * 24, .seed = 5};
  ASSERT_OK(BuildLayout(*store_, budget_, {.road = road}, false, {}));
  std::vector<bool> seeds(model_->nodes());
  for (const PlannedNodes& batch : BatchesOf(*store_, budget_, "default")) {
    for (uint32_t s = 0; s < batch.seeds; ++s) seeds[batch.nodes[s]] = true;
  }
  const auto add = [&](uint64_t destination) {
    auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    const Edge edge = {5, destination};
    ASSERT_OK((*change)->Add(std::span(&edge, 1)));
    ASSERT_OK((*change)->Commit());
  };
  add(static_cast<uint64_t>(std::ranges::find(seeds, false) - seeds.begin()));
  EXPECT_FALSE(IsFresh(*store_->manifest(), store_->manifest()->layouts[0]));
  RebuildReport report;
  ASSERT_OK(RebuildLayout(*store_, budget_, "default", {}, {}, &report));
  EXPECT_EQ(report.path, RebuildPath::kRecord) << report.why;
  EXPECT_EQ(report.batches_changed, 0u);
  EXPECT_TRUE(IsFresh(*store_->manifest(), store_->manifest()->layouts[0]));
  add(static_cast<uint64_t>(std::ranges::find(seeds, true) - seeds.begin()));
  ASSERT_OK(RebuildLayout(*store_, budget_, "default", {.dry_run = true}, {}, &report));
  EXPECT_EQ(report.path, RebuildPath::kMend) << report.why;
  EXPECT_EQ(report.seeds_changed, 1u);
  EXPECT_EQ(report.batches_changed, 1u);
  EXPECT_THAT(report.why, testing::HasSubstr("1 of"));
}

// Which rows a cache by degree keeps, and what it finds, is the same before and after the runs are folded.
TEST_F(GrownNodes, DegreesAreThoseOfFileAndRuns) {
  ASSERT_NO_FATAL_FAILURE(Make(6, true, 25));
  const LayoutSpec spec = {.name = "runs",
                           .road = {.direction = Direction::kBoth,
                                    .fanouts = {3, 2},
                                    .batch_size = 16,
                                    .cache_bytes = 20 * 24,
                                    .seed = 5},
                           .policy = PolicyKind::kStaticDegree};
  ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
  const std::vector<NodeId> before = Layout::Open(*store_, "runs").value()->directory().start_nodes;
  for (int i = 0; i < 4; ++i) ASSERT_NO_FATAL_FAILURE(Grow(0));
  ASSERT_FALSE(store_->manifest()->FindTopology("graph")->runs.empty());
  LayoutSpec folded = spec;
  folded.name = "folded";
  ASSERT_OK(BuildLayout(*store_, budget_, spec, false, {}));
  ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  ASSERT_OK(BuildLayout(*store_, budget_, folded, false, {}));
  const auto a = Layout::Open(*store_, "runs"), b = Layout::Open(*store_, "folded");
  ASSERT_OK(a);
  ASSERT_OK(b);
  EXPECT_EQ((*a)->directory().start_nodes, (*b)->directory().start_nodes);
  EXPECT_NE((*a)->directory().start_nodes, before) << "some degrees have changed";
  EXPECT_EQ((*a)->record().hits, (*b)->record().hits);
  EXPECT_EQ((*a)->record().accesses, (*b)->record().accesses);
}

// It has no deltas: what it serves are the nodes and edges of its build, as long as the table has the rows of then.
TEST_F(GrownNodes, APartitioningServesTheGraphOfItsBuildAndSaysSo) {
  ASSERT_NO_FATAL_FAILURE(Make(6, false, 24));
  const auto built = MakePartitioning(*store_, budget_, {.table = "feature"},
                                      {.method = PartitionMethod::kRandom, .parts = 4}, {});
  ASSERT_OK(built);
  const uint64_t nodes = model_->nodes(), edges = built->edge_count;
  const auto open = [&](std::string& told) {
    testing::internal::CaptureStderr();
    auto opened = StoredPartitioning::Open(*store_, budget_, "default");
    told = testing::internal::GetCapturedStderr();
    return opened;
  };
  std::string told;
  ASSERT_OK(open(told));
  EXPECT_EQ(told, "");
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Grow(4));
  for (const bool compacted : {false, true}) {
    SCOPED_TRACE(compacted);
    if (compacted) {
      ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    }
    EXPECT_FALSE(IsFresh(*store_->manifest(), store_->manifest()->partitionings[0]));
    const auto opened = open(told);
    ASSERT_OK(opened);
    EXPECT_EQ((*opened)->directory().node_count(), nodes);
    EXPECT_THAT(told, testing::HasSubstr(fmt::format("{} nodes and {} edges", nodes, edges)));
    EXPECT_THAT(told, testing::HasSubstr(fmt::format("to {} and {}", model_->nodes(),
                                                     store_->manifest()->FindTopology("graph")->edge_count)));
  }
  ASSERT_OK(CompactTable(*store_, budget_, "feature", false, {}));
  EXPECT_EQ(open(told).status().code(), Code::kUnsupported);
  // Made anew with the parts that nodes had, it is of the graph as it is now; new nodes have parts, too.
  const auto before = ReadAssignment(*store_, budget_, "default");
  ASSERT_OK(before);
  EXPECT_EQ(before->part_of.size(), nodes);
  const auto make = [&](const PartitioningSpec& spec, uint32_t parts) {
    return MakePartitioning(*store_, budget_, spec, {.method = PartitionMethod::kKept, .parts = parts}, {});
  };
  EXPECT_EQ(make({.table = "feature"}, 3).status().code(), Code::kUsage) << "it has 4";
  EXPECT_EQ(make({.name = "other"}, 0).status().code(), Code::kNotFound);
  EXPECT_EQ(make({.table = "feature", .training_first = true}, 0).status().code(), Code::kUsage);
  const auto kept = make({.table = "feature"}, 0);
  ASSERT_OK(kept);
  EXPECT_EQ(kept->method, "kept");
  EXPECT_EQ(kept->node_count, model_->nodes());
  EXPECT_EQ(kept->edge_count, store_->manifest()->FindTopology("graph")->edge_count);
  EXPECT_TRUE(IsFresh(*store_->manifest(), *kept));
  ASSERT_OK(open(told));
  EXPECT_EQ(told, "");
  const auto after = ReadAssignment(*store_, budget_, "default");
  ASSERT_OK(after);
  ASSERT_EQ(after->part_of.size(), model_->nodes());
  EXPECT_TRUE(std::equal(before->part_of.begin(), before->part_of.end(), after->part_of.begin()));
  for (const uint64_t size : after->Sizes()) EXPECT_LE(size, (model_->nodes() + 3) / 4);
}

TEST_F(GrownNodes, WhatIsNotCommittedIsForgotten) {
  ASSERT_NO_FATAL_FAILURE(Make(6, true, 8));
  const auto begin = [&](uint64_t nodes) {
    auto change =
        GraphChange::Create(*store_, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin});
    EXPECT_OK(change);
    return std::move(change).value();
  };
  const std::vector<float> row(6, 3.0f);
  {
    const std::unique_ptr<GraphChange> change = begin(2);
    WriteBatch batch;
    batch.Put("feature", model_->nodes(), std::as_bytes(std::span(row)));
    ASSERT_OK(change->Put(batch));
    ASSERT_OK(change->Add(std::vector<Edge>{{model_->nodes(), 1}}));
    WriteBatch beyond;
    beyond.Put("feature", model_->nodes() + 2, std::as_bytes(std::span(row)));
    EXPECT_EQ(change->Put(beyond).code(), Code::kInvalidArgument);
    EXPECT_EQ(GraphChange::Create(*store_, budget_, {}).status().code(), Code::kBusy);
    ASSERT_NO_FATAL_FAILURE(CheckAll());
  }
  ASSERT_NO_FATAL_FAILURE(CheckAll());
  EXPECT_EQ(
      GraphChange::Create(*store_, budget_, {.nodes = 1, .first_node = model_->nodes() + 1}).status().code(),
      Code::kBusy);
  EXPECT_EQ(GraphChange::Create(*store_, budget_, {.nodes = kNodeCountMax}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(begin(1)->Name(std::vector<std::string>{"x"}).code(), Code::kUnsupported);
  ASSERT_NO_FATAL_FAILURE(Grow(3));
  ASSERT_NO_FATAL_FAILURE(CheckAll());
}

TEST_F(GrownNodes, RemovedOnesKeepTheirIdsAndNobodyGetsThem) {
  ASSERT_NO_FATAL_FAILURE(Make(6, false, 9));
  const auto begin = [&](uint64_t nodes) {
    return GraphChange::Create(*store_, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin})
        .value();
  };
  const uint64_t last = model_->nodes() - 1;
  ASSERT_NO_FATAL_FAILURE(Hold());
  {
    const auto change = begin(1);
    const NodeId beyond[] = {3, static_cast<NodeId>(last + 1)};
    EXPECT_EQ(change->RemoveNodes(beyond).code(), Code::kInvalidArgument) << "it comes with the change";
  }
  {
    const auto change = begin(0);
    VectorIntReader ids({3, -1});
    const Status refused = change->RemoveAllNodes(ids);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), testing::HasSubstr("value 1: node id -1"));
  }
  {
    const auto change = begin(0);
    const NodeId twice[] = {static_cast<NodeId>(last), static_cast<NodeId>(last)};
    ASSERT_OK(change->RemoveNodes(twice));
    EXPECT_EQ(change->Add(std::vector<Edge>{{0, last}}).code(), Code::kInvalidArgument);
  }
  {
    const auto change = begin(0);
    ASSERT_OK(change->Add(std::vector<Edge>{{0, last}}));
    const NodeId late[] = {static_cast<NodeId>(last)};
    EXPECT_EQ(change->RemoveNodes(late).code(), Code::kUsage);
  }
  ASSERT_NO_FATAL_FAILURE(CheckAll());
  {
    const auto change = begin(0);
    VectorIntReader ids({static_cast<int64_t>(last), static_cast<int64_t>(last)});
    ASSERT_OK(change->RemoveAllNodes(ids));
    const auto done = change->Commit();
    ASSERT_OK(done);
    EXPECT_EQ(done->nodes_removed, 1u);
    EXPECT_EQ(done->node_count, last + 1);
  }
  Clear({last});
  ASSERT_NO_FATAL_FAILURE(CheckAll());
  const auto added = begin(1)->Commit();
  ASSERT_OK(added);
  EXPECT_EQ(added->first_node, last + 1) << "not the id that was given back";
  model_->Append(std::vector<float>(6, 0.0f), -1, Split::kNone);
  ASSERT_NO_FATAL_FAILURE(CheckAll());
  ASSERT_NO_FATAL_FAILURE(Open());
  ASSERT_NO_FATAL_FAILURE(Compact(/*all=*/true));
  ASSERT_NO_FATAL_FAILURE(CheckAll());
  ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
}

TEST_F(GrownNodes, HaveNamesWhereNodesHaveSome) {
  const std::string named = folder_.path() + "/named";
  const TinyGraph graph{.nodes = 20, .dim = 4, .degree = 2};
  Dataset dataset = testing_util::TinyDataset(graph);
  for (uint64_t node = 0; node < graph.nodes; ++node)
    dataset.entity_names.push_back(fmt::format("n{}", node));
  ASSERT_OK(ImportDatabase(*backend_, named, std::move(dataset), {}));
  const auto open = [&] { return Store::Open(*backend_, named).value(); };
  auto store = open();
  const auto begin = [&](uint64_t nodes) {
    return GraphChange::Create(*store, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin})
        .value();
  };
  const auto id_of = [&](const std::string& name) {
    return store->catalog()->IdOfName(NameKind::kEntity, name).value();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(begin(1)->Commit().status().code(), Code::kInvalidArgument) << "a node without a name";
  EXPECT_EQ(begin(1)->Name(Names{"n3"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(begin(2)->Name(Names{"a", "a"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(begin(1)->Name(Names{"a", "b"}).code(), Code::kInvalidArgument);
  {
    const auto change = begin(3);
    ASSERT_OK(change->Name(Names{"a", "b"}));
    EXPECT_EQ(change->Name(Names{"b"}).code(), Code::kInvalidArgument) << "in another piece";
  }
  EXPECT_EQ(id_of("a"), std::nullopt) << "given up";
  // As a process leaves them that dies before it commits.
  ASSERT_OK(store->PutNames(20, Names{"c", "d"}));
  store.reset();
  store = open();
  for (const Status& fault : VerifyStore(*store, {}).value().faults) ADD_FAILURE() << fault.ToString();
  {
    const auto change = begin(2);
    ASSERT_OK(change->Name(Names{"d"}));
    ASSERT_OK(change->Name(Names{"e"}));
    ASSERT_OK(change->Commit());
  }
  store.reset();
  store = open();
  EXPECT_EQ(id_of("c"), std::nullopt);
  EXPECT_EQ(id_of("d"), 20u);
  EXPECT_EQ(id_of("e"), 21u);
  EXPECT_EQ(store->catalog()->NameOfId(NameKind::kEntity, 21).value(), "e");
  for (const Status& fault : VerifyStore(*store, {}).value().faults) ADD_FAILURE() << fault.ToString();
}

}  // namespace
}  // namespace quarry
