// Puts, compactions and opening, on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "compaction_pace.h"
#include "faults/small_world.h"
#include "quarry/base/progress.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"
#include "support/growing_graph.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::GrowingGraph;
using testing_util::SmallWorld;

// A third of the rows at a time, synced after each of these.
constexpr CompactionPace kPace{.piece_bytes = 20 * 512, .sync_bytes_min = 1, .sync_bytes_max = 1};

Status Compact(SmallWorld& world, const ProgressFunction& progress = {}) {
  return CompactTable(world.store(), world.budget(), "feature", false, progress, kPace).status();
}

// Stops a compaction when some of its rows are written for good.
Status InterruptCompaction(SmallWorld& world) {
  const Status stopped = Compact(world, [](std::string_view, uint64_t done, uint64_t) {
    return done > 20 ? Status(Code::kCancelled, "enough") : Status::Ok();
  });
  EXPECT_EQ(stopped.code(), Code::kCancelled) << stopped.ToString();
  return Status::Ok();
}

// What an interrupted compaction has left is worth no more than the time to do it again.
bool MayBeginAnew(const FaultPlan& fault) {
  return fault.kind == FaultKind::kOpen || fault.kind == FaultKind::kRead;
}

void ExpectCompacted(SmallWorld& world, bool done) {
  const std::shared_ptr<const Manifest> manifest = world.store().manifest();
  const uint64_t generation = manifest->FindTable("feature")->generation;
  EXPECT_TRUE(generation > 1 || !done) << generation;
}

TEST(WriteFaultsTest, Puts) {
  SmallWorld world({.work = [](SmallWorld& w) -> Status {
    QUARRY_RETURN_IF_ERROR(w.Put(10));
    return w.Put(11);
  }});
  world.Run();
}

TEST(WriteFaultsTest, PutsInPieces) {
  SmallWorld world({.work = [](SmallWorld& w) -> Status {
    QUARRY_RETURN_IF_ERROR(w.PutInPieces(10));
    QUARRY_RETURN_IF_ERROR(w.Put(11));
    return w.PutInPieces(12);
  }});
  world.Run();
}

// One process after the other, with the catalog open for writing.
TEST(WriteFaultsTest, ADay) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(w.Put(10));
        QUARRY_RETURN_IF_ERROR(Compact(w));
        QUARRY_RETURN_IF_ERROR(w.Put(11));
        QUARRY_RETURN_IF_ERROR(w.Train(7));
        return w.Put(12);
      },
      .check = ExpectCompacted,
      .may_end_well = MayBeginAnew,
      .reads_catalog = true,
      .trained = true,
  });
  world.Run();
}

TEST(WriteFaultsTest, ACompaction) {
  SmallWorld world({
      .work = [](SmallWorld& w) { return Compact(w); },
      .check = ExpectCompacted,
      .may_end_well = MayBeginAnew,
  });
  world.Run();
}

TEST(WriteFaultsTest, ACompactionThatGoesOn) {
  SmallWorld world({
      .prepare = [](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(InterruptCompaction(w));
        return w.Put(3);
      },
      .work = [](SmallWorld& w) { return Compact(w); },
      .check = ExpectCompacted,
      .may_end_well = MayBeginAnew,
  });
  world.Run();
}

// Edges among the world's nodes: more than a few pages of them, so that a fold of them has marks.
Status AddManyEdges(SmallWorld& world, uint64_t count) {
  QUARRY_TRY(const auto change,
             GraphChange::Create(world.store(), world.budget(), {.memory_bytes = kGraphChangeBytesMin}));
  std::vector<Edge> edges;
  for (uint64_t i = 0; i < count; ++i) edges.push_back({i * 7 % 60, i * 11 % 59});
  QUARRY_RETURN_IF_ERROR(change->Add(edges));
  return change->Commit().status();
}

// Nodes with names and rows, edges, and what goes, in one commit; the second one finds a run, and names, that are there.
TEST(WriteFaultsTest, AGraphCommit) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(w.Grow(1));
        QUARRY_RETURN_IF_ERROR(w.Put(10));
        return w.Grow(2);
      },
      .named = true,
  });
  world.Run();
}

// A graph with types, and two commits to it.
class GrowingWorld final : public testing_util::FaultScenario {
 public:
  GrowingWorld() {
    setenv("QUARRY_LOG", "error", 0);  // what is removed is not worth a line each time
    EXPECT_OK(graph_.Import(backend_, prepared_));
  }
  void Run() {
    Fresh();
    EXPECT_OK(Open());
    EXPECT_OK(Work());
    Close();
    names_ = testing_util::NamesIn(path_);
    testing_util::FaultMatrix(backend_, "/quarry-storage-").Run(*this);  // as ScratchFolders are called
  }

  void Fresh() override {
    fs::remove_all(path_);
    fs::copy(prepared_, path_, fs::copy_options::recursive);
    graph_ = first_;
  }
  Status Open() override {
    QUARRY_TRY(store_, Store::Open(backend_, path_));
    return Status::Ok();
  }
  void Close() override { store_.reset(); }
  Status Work() override {
    while (graph_.commits() < 2) {
      const GrowingGraph::Commit next = graph_.Next();
      EXPECT_FALSE(next.nodes.empty()) << "they tell whether a commit that failed is there";
      Status status = graph_.CommitTo(*store_, budget_, next);
      if (status.code() == Code::kBusy && store_->manifest()->node_count > graph_.node_count()) {
        status = Status::Ok();  // by a commit that failed, and happened
      }
      tried_ = !status.ok();
      QUARRY_RETURN_IF_ERROR(status);
      graph_.Take(next);
    }
    return Status::Ok();
  }
  void Check(bool done) override {
    if (store_ == nullptr) {
      ASSERT_OK(Open());
    }
    EXPECT_EQ(testing_util::FaultsIn(*store_), "");
    ASSERT_OK_AND_ASSIGN(const uint64_t found, GrowingGraph::CommitsIn(*store_));
    if (std::exchange(tried_, false) && found > graph_.commits()) graph_.Take(graph_.Next());
    EXPECT_EQ(found, graph_.commits());
    graph_.ExpectIn(*store_);
    EXPECT_EQ(budget_.used_bytes(), 0u);
    if (!done) return;
    EXPECT_OK(store_->PrepareToWrite());  // removes what interrupted commits left
    EXPECT_EQ(testing_util::NamesIn(path_), names_) << "something is left over, or missing";
  }
  // Most reads of the catalog are of opening, the same for all works.
  bool Skips(const CatalogFaultPlan& fault) override { return fault.kind == CatalogFault::kRead; }

 private:
  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::string prepared_ = folder_.path() + "/prepared", path_ = folder_.path() + "/db";
  testing_util::UnsyncedBackend unsynced_;
  FaultBackend backend_{unsynced_};
  MemoryBudget budget_{48 * kMiB};
  const GrowingGraph first_{3, {.weighted = true, .named = true, .papers = 20}};
  GrowingGraph graph_ = first_;
  bool tried_ = false;  // the commit after those of the graph: may be there
  std::unique_ptr<Store> store_;
  std::multiset<std::string> names_;
};

// Nodes of a type with names, rows and labels, edges of relations with weights, and what goes; the second one finds a run.
TEST(WriteFaultsTest, CommitsToAGraphWithTypes) {
  GrowingWorld world;
  world.Run();
}

// A merge on the thread that fails says so to the log alone: the edges of all commits are there, and whoever merges next does it.
TEST(WriteFaultsTest, AMergeBesideCommits) {
  SmallWorld world({
      .prepare = [](SmallWorld& w) -> Status {
        const auto held = w.store().HoldRuns(Store::RunsRight::kMerge);
        for (uint64_t commit = 0; commit <= kTopologyRunsMax; ++commit) {
          QUARRY_RETURN_IF_ERROR(AddManyEdges(w, 50 + commit));
        }
        return Status::Ok();
      },
      .work = [](SmallWorld& w) -> Status {
        w.store().merger().Start(w.budget());
        w.store().merger().Committed("graph", w.budget());
        w.store().merger().Finish();
        return MergeRuns(w.store(), w.budget(), "graph").status();  // which does nothing where it went well
      },
      .check =
          [](SmallWorld& w, bool done) {
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            const TopologyRecord& graph = *manifest->FindTopology("graph");
            EXPECT_TRUE(graph.runs.size() <= kTopologyRunsMax || !done) << graph.runs.size();
            uint64_t added = 0, commits = 0;
            for (const TopologyRun& run : graph.runs) {
              added += run.added;
              commits += run.commits;
            }
            EXPECT_EQ(added, 9 * 50 + 36) << "of the nine commits";
            EXPECT_EQ(commits, kTopologyRunsMax + 1);
          },
      .may_end_well = [](const FaultPlan&) { return true; },
      .only_tidies = true,
      // The second try syncs a file of its own.
      .skips = [](const FaultPlan& plan) { return plan.kind == FaultKind::kSync && plan.sticky; },
  });
  world.Run();
}

// A merge that fails leaves the runs as they are: a commit goes on without it, and the next one does it.
TEST(WriteFaultsTest, AMergeOfRuns) {
  uint64_t edges = 0;
  SmallWorld world({
      .prepare = [&](SmallWorld& w) -> Status {
        // As beside another merge, so that the ninth commit does not merge.
        const auto held = w.store().HoldRuns(Store::RunsRight::kMerge);
        for (uint64_t commit = 0; commit <= kTopologyRunsMax; ++commit) {
          QUARRY_RETURN_IF_ERROR(AddManyEdges(w, 50 + commit));
        }
        edges = w.store().manifest()->FindTopology("graph")->edge_count;
        EXPECT_GT(w.store().manifest()->FindTopology("graph")->runs.size(), kTopologyRunsMax);
        return Status::Ok();
      },
      .work = [](SmallWorld& w) { return MergeRuns(w.store(), w.budget(), "graph").status(); },
      .check =
          [&](SmallWorld& w, bool done) {
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            const TopologyRecord& graph = *manifest->FindTopology("graph");
            EXPECT_EQ(graph.edge_count, edges);
            EXPECT_TRUE(graph.runs.size() <= kTopologyRunsMax || !done) << graph.runs.size();
            uint64_t added = 0;
            for (const TopologyRun& run : graph.runs) added += run.added;
            EXPECT_EQ(added, 9 * 50 + 36) << "of the nine commits";
          },
  });
  world.Run();
}

Status CompactEdges(SmallWorld& world, const ProgressFunction& progress = {}) {
  return CompactTopology(world.store(), world.budget(), "graph", false, progress, kPace).status();
}

TEST(WriteFaultsTest, ACompactionOfEdgesThatGoesOn) {
  uint64_t edges = 0;
  SmallWorld world({
      .prepare = [&](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(AddManyEdges(w, 9000));
        // Whole pages are marked behind the first call.
        const Status stopped = CompactEdges(w, [calls = 0](std::string_view, uint64_t, uint64_t) mutable {
          return ++calls > 1 ? Status(Code::kCancelled, "enough") : Status::Ok();
        });
        EXPECT_THAT(stopped, IsStatus(Code::kCancelled, testing::HasSubstr("stay compacted")));
        edges = w.store().manifest()->FindTopology("graph")->edge_count;
        return Status::Ok();
      },
      .work = [](SmallWorld& w) { return CompactEdges(w); },
      .check =
          [&](SmallWorld& w, bool done) {
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            const TopologyRecord& graph = *manifest->FindTopology("graph");
            EXPECT_EQ(graph.edge_count, edges);
            EXPECT_TRUE(graph.generation == 2 || !done);
            EXPECT_EQ(graph.runs.size(), graph.generation == 2 ? 0u : 1u);
          },
      .may_end_well = MayBeginAnew,
  });
  world.Run();
}

// What the kernel has done with the pages of a file whose sync failed is not known: the file goes.
TEST(WriteFaultsTest, ADataFileWhoseSyncFailedIsWrittenAnewAndNotSyncedAgain) {
  SmallWorld world({.work = [](SmallWorld& w) {
    return CompactTable(w.store(), w.budget(), "feature", false, {}).status();
  }});
  world.Fresh();
  ASSERT_OK(world.Open());
  const std::string file = world.path() + "/features/feature-2.qft";
  world.backend().SetPlans({{.kind = FaultKind::kSync, .at = 1, .error = EIO}});
  const Status failed = world.Work();
  EXPECT_EQ(failed.code(), Code::kIoError);
  EXPECT_EQ(failed.message(), "cannot sync " + file + ": Input/output error");
  EXPECT_EQ(world.backend().count(FaultKind::kSync), 1u);
  EXPECT_FALSE(fs::exists(file));
  world.Check(/*done=*/false);
  const Status again = world.Work();
  EXPECT_OK(again);
  EXPECT_TRUE(fs::exists(file));
  world.Check(/*done=*/true);
  world.Close();
}

// Everything that a reader opens, and what an interrupted compaction and training left is removed by the
// first writer.
TEST(WriteFaultsTest, Opening) {
  SmallWorld world({
      .prepare = [](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(InterruptCompaction(w));
        fs::copy(w.path() + "/features/label-1.qft", w.path() + "/features/label-7.qft");
        fs::copy(w.path() + "/training/1.qts", w.path() + "/training/8.qts");
        fs::create_directory(w.path() + "/layouts/default-9");
        return Status::Ok();
      },
      .work = [](SmallWorld& w) -> Status {
        w.Close();
        QUARRY_RETURN_IF_ERROR(w.OpenStore());
        QUARRY_RETURN_IF_ERROR(w.store().PrepareToWrite());
        QUARRY_TRY(auto snapshot, w.store().TakeSnapshot());
        QUARRY_RETURN_IF_ERROR(w.store().OpenTable(*snapshot, "feature").status());
        QUARRY_RETURN_IF_ERROR(w.store().OpenOverlay("feature", std::move(snapshot)).status());
        QUARRY_RETURN_IF_ERROR(w.store().OpenTopology("graph").status());
        QUARRY_RETURN_IF_ERROR(ReadTrainingState(w.store(), "run").status());
        QUARRY_RETURN_IF_ERROR(Layout::Open(w.store(), "default").status());
        return w.OpenTables();
      },
      .may_end_well = MayBeginAnew,
      .only_tidies = true,
      .reads_catalog = true,
      .opens_store = false,
      .trained = true,
      .layout = true,
  });
  world.Run();
}

}  // namespace
}  // namespace quarry
