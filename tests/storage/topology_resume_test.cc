// Compactions of the graph that stop, or are killed, go on where they were, with the edges of the instant at which they began:
// the file is that of a compaction that nothing stopped, and what came meanwhile stays behind it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "compaction_pace.h"
#include "pipeline/tiny_database.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/compaction_progress.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/topology_run.h"
#include "quarry/verify/verify.h"
#include "storage/compaction_child.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/file_text.h"
#include "support/flip_byte.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing_util::FaultsIn;
using testing_util::FlipByte;
using testing_util::ScratchFolder;
using testing_util::TinyGraph;

// Four pages of a column at a time, synced after each of these.
constexpr CompactionPace kGraphPace{
    .piece_bytes = 16 << 10, .sync_bytes_min = 15 << 10, .sync_bytes_max = 15 << 10};
constexpr uint64_t kGraphNodes = 900;
const TinyGraph kGraph{.nodes = kGraphNodes, .dim = 4, .degree = 20};

struct GraphShape {
  bool csr = false, weighted = false;
  friend std::ostream& operator<<(std::ostream& out, const GraphShape& shape) {
    return out << (shape.csr ? "csr" : "csc") << (shape.weighted ? ", weighted" : "");
  }
};

// A graph in a file, and the edges that it must have.
class GrowingGraph {
 public:
  explicit GrowingGraph(const GraphShape& shape) : rng_(7), weighted_(shape.weighted) {
    Dataset dataset = testing_util::TinyDataset(kGraph);
    dataset.edges.clear();
    const std::vector<Edge> edges = kGraph.Edges();
    edges_ = {edges.begin(), edges.end()};
    std::vector<float> weights(weighted_ ? edges.size() : 0, 1.5f);
    dataset.edges.push_back({.name = "",
                             .path = "memory",
                             .reader = std::make_unique<testing_util::VectorEdgeReader>(edges, weights)});
    ImportOptions options;
    options.both_directions = shape.csr;
    EXPECT_OK(ImportDatabase(*backend_, path(), std::move(dataset), options));
    Reopen();
  }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(*backend_, path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  void Close() { store_.reset(); }
  // A commit of edges, some of which go, and of nodes.
  void Change(uint64_t count, uint64_t nodes = 0) {
    ASSERT_OK_AND_ASSIGN(
        const auto change,
        GraphChange::Create(*store_, budget_, {.nodes = nodes, .memory_bytes = kGraphChangeBytesMin}));
    std::vector<Edge> removed, added;
    const uint64_t all = change->manifest().node_count;
    for (uint64_t i = 0; i < count; ++i) added.push_back({rng_.Below(all), rng_.Below(all)});
    for (uint64_t i = 0; i < count / 4; ++i) {
      const auto edge = edges_.lower_bound({rng_.Below(all), rng_.Below(all)});
      if (edge == edges_.end()) continue;
      removed.push_back(*edge);
      edges_.erase(removed.back());  // with its parallel copies
    }
    edges_.insert(added.begin(), added.end());
    ASSERT_OK(change->Remove(removed));
    ASSERT_OK(change->Add(added));
    ASSERT_OK(change->Commit());
  }
  // Stops once so many values were written; ~0: never.
  Result<TopologyCompactionReport> Compact(uint64_t values = ~uint64_t{0}, bool dry_run = false) {
    const auto stop = [values](std::string_view, uint64_t done, uint64_t) {
      return done >= values ? Status(Code::kCancelled, "enough") : Status::Ok();
    };
    return CompactTopology(*store_, budget_, "graph", dry_run, stop, kGraphPace);
  }
  void Interrupt(uint64_t values) {
    const auto stopped = Compact(values);
    ASSERT_EQ(stopped.status().code(), Code::kCancelled) << stopped.status().ToString();
  }
  void Check() {
    ASSERT_EQ(FaultsIn(*store_), "");
    const auto topology = store_->OpenTopology("graph");
    ASSERT_OK(topology);
    for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
      if (!(*topology)->has(side)) continue;
      ASSERT_OK((*topology)->LoadIndices(*backend_, side));
      std::multiset<Edge, Before> found;
      const auto indptr = (*topology)->indptr(side);
      const auto indices = (*topology)->indices(side);
      for (uint64_t v = 0; v + 1 < indptr.size(); ++v) {
        for (uint64_t e = indptr[v]; e < indptr[v + 1]; ++e) {
          found.insert(side == Adjacency::kCsc ? Edge{indices[e], v} : Edge{v, indices[e]});
        }
      }
      ASSERT_TRUE(std::ranges::equal(found, edges_,
                                     [](const Edge& a, const Edge& b) {
                                       return a.source == b.source && a.destination == b.destination;
                                     }))
          << found.size() << " edges instead of " << edges_.size();
    }
  }
  std::string path() const { return folder_.path() + "/db"; }
  std::string File(const std::string& name) const { return path() + "/topology/" + name; }
  TopologyRecord record() const { return *store_->manifest()->FindTopology("graph"); }
  uint64_t values() const { return record().edge_count * (record().has_csr ? 2 : 1) * (weighted_ ? 2 : 1); }
  Store& store() { return *store_; }
  MemoryBudget& budget() { return budget_; }

 private:
  struct Before {
    bool operator()(const Edge& a, const Edge& b) const {
      return std::pair(a.source, a.destination) < std::pair(b.source, b.destination);
    }
  };
  const ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  std::unique_ptr<Store> store_;
  Rng rng_;
  const bool weighted_;
  std::multiset<Edge, Before> edges_;
};

class TopologyResumeTest : public testing::TestWithParam<GraphShape> {};

// However often, in whichever of the columns; commits of edges and nodes come between.
TEST_P(TopologyResumeTest, TheFileIsAsIfNothingHadStoppedIt) {
  GrowingGraph graph(GetParam());
  graph.Change(3000);
  graph.Change(2000, 30);
  graph.Close();
  const std::string copy = graph.path() + "-copy";
  fs::copy(graph.path(), copy, fs::copy_options::recursive);
  graph.Reopen();
  const uint64_t values = graph.values(), timestamp = graph.record().timestamp();
  uint64_t resumed = 0, before = 0;
  for (uint64_t stop = values * 3 / 8; stop < values; stop += values / 8) {
    graph.Interrupt(stop);
    graph.Change(40, stop % 3);
    graph.Reopen();
    ASSERT_NO_FATAL_FAILURE(graph.Check());
    const auto dry = graph.Compact(~uint64_t{0}, /*dry_run=*/true);
    ASSERT_OK(dry);
    EXPECT_LE(dry->resumed_edges, stop);
    EXPECT_GE(dry->resumed_edges, before);
    EXPECT_EQ(dry->timestamp, timestamp);
    before = dry->resumed_edges;
    resumed += before > 0 ? 1 : 0;
  }
  EXPECT_GT(resumed, 4u);
  EXPECT_GT(before, values / 2);
  const auto done = graph.Compact();
  ASSERT_OK(done);
  EXPECT_EQ(done->resumed_edges, before);
  EXPECT_EQ(graph.record().folded, timestamp);
  EXPECT_GT(graph.record().runs.size(), 0u) << "what came meanwhile";
  EXPECT_FALSE(fs::exists(graph.File("graph-2.progress")));
  ASSERT_NO_FATAL_FAILURE(graph.Check());

  const std::unique_ptr<IoBackend> backend = MakeDefaultBackend();
  const auto whole = Store::Open(*backend, copy);
  ASSERT_OK(whole);
  ASSERT_OK(CompactTopology(**whole, graph.budget(), "graph", false, {}));
  EXPECT_TRUE(testing_util::FileText(graph.File("graph-2.qtp")) ==
              testing_util::FileText(copy + "/topology/graph-2.qtp"));
  ASSERT_OK(graph.Compact());
  EXPECT_TRUE(IsFolded(graph.record()));
  ASSERT_NO_FATAL_FAILURE(graph.Check());
}

INSTANTIATE_TEST_SUITE_P(Shapes, TopologyResumeTest,
                         testing::Values(GraphShape{}, GraphShape{.weighted = true},
                                         GraphShape{.csr = true, .weighted = true}));

TEST(TopologyResumeDamageTest, WhatDoesNotHoldIsBegunAnew) {
  GrowingGraph graph({.csr = true});
  graph.Change(4000);
  const std::string progress = graph.File("graph-2.progress"), partial = graph.File("graph-2.qtp");
  const std::vector<std::pair<std::string, std::function<void()>>> damages = {
      {"record, magic", [&] { FlipByte(progress, 0, 0x40); }},
      {"record, values", [&] { FlipByte(progress, 48, 0x40); }},
      {"record, nodes", [&] { FlipByte(progress, 88, 0x40); }},
      {"record, sections", [&] { FlipByte(progress, 104, 0x40); }},
      {"record cut", [&] { fs::resize_file(progress, 88); }},
      {"no record", [&] { fs::remove(progress); }},
      {"no file", [&] { fs::remove(partial); }},
      {"file cut", [&] { fs::resize_file(partial, 4096); }},
      {"half a record beside", [&] { fs::rename(progress, progress + ".new"); }},
  };
  graph.Interrupt(graph.values() * 3 / 4);
  EXPECT_THAT(VerifyStore(graph.store(), {}).value().notes,
              testing::Contains(HasSubstr("an interrupted compaction of topology \"graph\"")));
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    graph.Interrupt(graph.values() * 3 / 4);
    ASSERT_TRUE(fs::exists(progress) && fs::exists(partial));
    damage();
    testing::internal::CaptureStderr();
    graph.Reopen();
    EXPECT_OK(graph.store().PrepareToWrite());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("removed, left over"));
    EXPECT_FALSE(fs::exists(progress) || fs::exists(partial));
    ASSERT_NO_FATAL_FAILURE(graph.Check());
  }
  // Checksums that the record covers and that are not those of the file are seen when it is gone on with.
  graph.Interrupt(graph.values() * 3 / 4);
  FlipByte(partial, 4096 + RoundUp(graph.record().edge_count * 4, 4096) + 5, 0x40);  // of the first column
  graph.Interrupt(graph.values() * 7 / 8);
  EXPECT_NE(graph.Compact(~uint64_t{0}, true)->resumed_edges, 0u);
}

// Runs of before and after the beginning are one by then: what the graph was is not known any more.
TEST(TopologyResumeMergeTest, AMergeOverItsBeginningIsBegunAnew) {
  GrowingGraph graph({});
  graph.Change(4000);
  graph.Interrupt(graph.values() * 3 / 4);
  EXPECT_GT(graph.Compact(~uint64_t{0}, true)->resumed_edges, 0u);
  for (size_t i = 0; i < kTopologyRunsMax; ++i) graph.Change(1200);
  ASSERT_EQ(graph.record().runs.size(), 1u) << "all were merged";
  EXPECT_EQ(graph.Compact(~uint64_t{0}, true)->resumed_edges, 0u);
  const auto done = graph.Compact();
  ASSERT_OK(done);
  EXPECT_EQ(done->resumed_edges, 0u);
  EXPECT_TRUE(IsFolded(graph.record()));
  ASSERT_NO_FATAL_FAILURE(graph.Check());
}

TEST(TopologyCompactionChild, Work) {
  testing_util::CompactAndDie([](Store& store, MemoryBudget& budget) {
    return CompactTopology(store, budget, "graph", false, {}, kGraphPace).ok();
  });
}

TEST(TopologyKillTest, KilledAtAnyOperationItGoesOn) {
  constexpr uint64_t kSeed = 3;
  SCOPED_TRACE(kSeed);
  Rng rng(kSeed);
  GrowingGraph graph({.csr = true});
  uint64_t kills = 0, finished = 0, resumed = 0;
  while (finished < 3 && kills < 60) {
    ASSERT_NO_FATAL_FAILURE(graph.Check()) << "after kill " << kills;
    graph.Change(30, rng.Below(2));
    resumed += graph.Compact(~uint64_t{0}, true)->resumed_edges > 0 ? 1 : 0;
    graph.Close();
    if (testing_util::RunCompactionChild("TopologyCompactionChild.Work", 1 + rng.Below(30 + kills),
                                         graph.path())) {
      ++kills;
    } else {
      ASSERT_FALSE(testing::Test::HasFailure());
      ++finished;
    }
    graph.Reopen();
  }
  ASSERT_NO_FATAL_FAILURE(graph.Check());
  EXPECT_EQ(finished, 3u);
  EXPECT_GT(kills, 5u);
  EXPECT_GT(resumed, 3u);
}

}  // namespace
}  // namespace quarry
