// Maintenance at a server: whose turn it is, who may ask, and what ends it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "quarry/import/graph_change.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/run_merger.h"
#include "served_database.h"
#include "support/gate_backend.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has
using testing::HasSubstr;

// Whoever verifies or folds the features waits at the gate, once it is closed.
class MaintenanceTest : public testing::Test {
 protected:
  MaintenanceTest() {
    auto gate = std::make_unique<GateBackend>("features/feature");
    gate_ = gate.get();
    served_ = std::make_unique<ServedDatabase>(TinyGraph{.nodes = 200, .dim = 8}, std::move(gate));
  }
  ~MaintenanceTest() override { gate_->OpenGate(); }
  static wire::Put PutOne(uint64_t number) {
    std::vector<std::byte> block(8 + 32);
    block[0] = std::byte{7};
    return {.number = number, .tables = {{.table = "feature", .rows = 1, .row_bytes = 32, .block = block}}};
  }
  static Status Ask(WirePeer& peer, const wire::MaintenanceTask& task) {
    return peer.CallFor<wire::MaintenanceReport>(wire::Maintain{task}).status();
  }
  // Commits so many edges that are not there yet.
  void AddEdges(uint64_t count) {
    MemoryBudget budget(256 * kMiB);
    ASSERT_OK_AND_ASSIGN(const auto change, GraphChange::Create(*served_->store, budget,
                                                                {.memory_bytes = kGraphChangeBytesMin}));
    std::vector<Edge> edges;
    for (uint64_t i = 0; i < count; ++i) edges.push_back({i % 200, (i * 7 + added_) % 200});
    ++added_;
    ASSERT_OK(change->Add(edges));
    ASSERT_OK_AND_ASSIGN(const GraphChangeReport done, change->Commit());
    ASSERT_GT(done.added, 0u);
  }
  const TopologyRecord Graph() const { return *served_->store->manifest()->FindTopology("graph"); }
  static double Figure(WirePeer& peer, const std::string& name) {
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    const auto found = std::ranges::find(stats->counters, name, &wire::Counter::name);
    EXPECT_NE(found, stats->counters.end()) << name;
    return found == stats->counters.end() ? -1 : found->value;
  }
  uint64_t Generation() const { return served_->store->manifest()->FindTable("feature")->generation; }

  uint64_t added_ = 0;
  GateBackend* gate_ = nullptr;
  std::unique_ptr<ServedDatabase> served_;
};

TEST_F(MaintenanceTest, OneTaskIsDoneAtATimeAndTheOtherSaysWhichItIs) {
  served_->Start();
  WirePeer first(served_->socket()), second(served_->socket());
  ASSERT_OK(first.Open(64 * kMiB));
  ASSERT_OK(second.Open(64 * kMiB));
  gate_->CloseGate();
  const uint64_t verify = first.Send(wire::Maintain{wire::VerifyDatabase{}});
  gate_->WaitForOne();
  EXPECT_THAT(Ask(second, wire::CompactTable{"label"}),
              IsStatus(Code::kBusy, HasSubstr("a verification is under way")));
  EXPECT_THAT(Ask(first, wire::DropLayout{"x"}), IsStatus(Code::kBusy, HasSubstr("a verification")));
  EXPECT_OK(Ask(second, wire::CreateEmbeddings{"x", {.row_count = 4, .dim = 2}})) << "takes a moment";
  EXPECT_OK(Ask(second, wire::InspectDatabase{})) << "takes a moment, too";
  EXPECT_OK(second.CallFor<wire::Done>(wire::Ping{})) << "nobody else waits";
  EXPECT_OK(first.CallFor<wire::Written>(PutOne(1)));
  gate_->OpenGate();
  EXPECT_OK(first.Await(verify));
  EXPECT_OK(Ask(second, wire::CompactTable{"label"})) << "the turn ends before the answer comes";
}

TEST_F(MaintenanceTest, ACancelledCompactionLeavesTheDatabaseAsItWas) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  ASSERT_OK(peer.CallFor<wire::Written>(PutOne(1)));
  gate_->CloseGate();
  const uint64_t compact = peer.Send(wire::Maintain{wire::CompactTable{"feature"}});
  gate_->WaitForOne();
  EXPECT_OK(peer.CallFor<wire::Done>(wire::Cancel{compact}));
  gate_->OpenGate();
  EXPECT_EQ(peer.Await(compact).status().code(), Code::kCancelled);
  EXPECT_EQ(Generation(), 1u);
  ASSERT_OK_AND_ASSIGN(const auto report,
                       peer.CallFor<wire::MaintenanceReport>(wire::Maintain{wire::VerifyDatabase{}}));
  EXPECT_THAT(report.faults, testing::IsEmpty());
  EXPECT_OK(Ask(peer, wire::CompactTable{"feature"}));
  EXPECT_EQ(Generation(), 2u);
}

TEST_F(MaintenanceTest, AClientThatVanishesTakesItsTaskWithIt) {
  served_->Start();
  WirePeer other(served_->socket());
  ASSERT_OK(other.Open(64 * kMiB));
  ASSERT_OK(other.CallFor<wire::Written>(PutOne(1)));
  gate_->CloseGate();
  {
    WirePeer dying(served_->socket());
    ASSERT_OK(dying.Open(64 * kMiB));
    dying.Send(wire::Maintain{wire::CompactTable{"feature"}});
    gate_->WaitForOne();
  }
  const auto sessions = [&] {
    const auto status = other.CallFor<wire::ServerStatus>(wire::GetStatus{});
    return status.ok() ? status->sessions.size() : 0;
  };
  ASSERT_TRUE(Eventually([&] { return sessions() == 1; }));
  gate_->OpenGate();
  Status asked;
  ASSERT_TRUE(Eventually([&] {
    asked = Ask(other, wire::VerifyDatabase{});
    return asked.code() != Code::kBusy;
  }));
  EXPECT_OK(asked);
  EXPECT_EQ(Generation(), 1u) << "nobody wants it any more";
}

TEST_F(MaintenanceTest, WhoMayOnlyReadVerifiesAndChangesNothing) {
  served_->Start({.read_only = true});
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  for (const wire::MaintenanceTask& task : std::initializer_list<wire::MaintenanceTask>{
           wire::CompactTable{"feature"}, wire::CheckpointDatabase{"/nowhere"}, wire::BuildLayout{},
           wire::RebuildLayout{}, wire::DropLayout{}, wire::CalibrateDevice{},
           wire::CreateEmbeddings{"x", {.row_count = 1, .dim = 1}}, wire::DropEmbeddings{"x"},
           wire::DropTraining{"x"}, wire::DropTable{"label"}, wire::BuildPartitioning{},
           wire::DropPartitioning{}, wire::ExportDatabase{.path = "/nowhere"}}) {
    EXPECT_THAT(Ask(peer, task), IsStatus(Code::kUsage, HasSubstr("read-only"))) << task.index();
  }
  EXPECT_OK(Ask(peer, wire::VerifyDatabase{}));
  EXPECT_OK(Ask(peer, wire::InspectDatabase{}));
  EXPECT_EQ(Ask(peer, wire::ExplainLayout{}).code(), Code::kNotFound) << "it may ask";
  EXPECT_OK(Ask(peer, wire::CompactTable{"feature", true}));
  EXPECT_OK(peer.CallFor<wire::ManifestBytes>(wire::ReadManifest{}));
}

TEST_F(MaintenanceTest, WhatASessionCannotHoldOrTheServerCannotPlaceIsRefused) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(2 * kMiB));
  ASSERT_OK(peer.CallFor<wire::Written>(PutOne(1)));
  EXPECT_EQ(Ask(peer, wire::VerifyDatabase{}).code(), Code::kOutOfBudget);
  EXPECT_EQ(Ask(peer, wire::CompactTable{"feature"}).code(), Code::kOutOfBudget);
  EXPECT_THAT(Ask(peer, wire::CheckpointDatabase{"copy.db"}),
              IsStatus(Code::kInvalidArgument, HasSubstr("\"copy.db\"")));
  EXPECT_THAT(Ask(peer, wire::ExportDatabase{.path = "out"}),
              IsStatus(Code::kInvalidArgument, HasSubstr("an export")));
  EXPECT_EQ(Generation(), 1u);
}

// A bound so low that any run passes it.
TEST_F(MaintenanceTest, RunsThatSlowSamplingDownAreFoldedInATurnOfTheirOwn) {
  served_->Start({.auto_compact = 1.0000001});
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  gate_->CloseGate();
  const uint64_t verify = peer.Send(wire::Maintain{wire::VerifyDatabase{}});
  gate_->WaitForOne();
  AddEdges(40);
  EXPECT_EQ(Graph().runs.size(), 1u) << "the turn is the verification's";
  const auto open = served_->store->TakeSnapshot();
  ASSERT_OK(open);
  gate_->OpenGate();
  EXPECT_OK(peer.Await(verify));
  ASSERT_TRUE(Eventually([&] { return Graph().runs.empty(); }));
  EXPECT_EQ(Graph().generation, 2u);
  const uint64_t edges = Graph().edge_count;
  const auto read = served_->store->OpenTopology(**open, "graph");
  ASSERT_OK(read);
  EXPECT_EQ((*read)->edge_count(), edges) << "a snapshot of before has its file and runs still";
  AddEdges(30);
  ASSERT_TRUE(Eventually([&] { return Graph().generation == 3 && Graph().runs.empty(); }))
      << "again and again";
  ASSERT_TRUE(Eventually([&] { return Figure(peer, "quarry_graph_folds_total") == 2; }));
  EXPECT_EQ(Figure(peer, "quarry_graph_folds_failed_total"), 0);
  EXPECT_EQ(Figure(peer, "quarry_graph_runs"), 0);
  EXPECT_EQ(Figure(peer, "quarry_graph_loaded_slowdown"), 1);
  EXPECT_EQ(Figure(peer, "quarry_graph_run_amplification"), 0);
  EXPECT_EQ(Figure(peer, "quarry_graph_commits"), 2);
  EXPECT_EQ(Figure(peer, "quarry_graph_compaction_bytes"), Figure(peer, "quarry_graph_fold_bytes_total"));
  EXPECT_EQ(Figure(peer, "quarry_graph_merge_bytes"), 0);
  EXPECT_EQ(Figure(peer, "quarry_graph_write_amplification"),
            (Figure(peer, "quarry_graph_commit_bytes") + Figure(peer, "quarry_graph_compaction_bytes")) /
                Figure(peer, "quarry_graph_given_bytes"));
  EXPECT_GT(Figure(peer, "quarry_graph_fold_bytes_total"), static_cast<double>(Graph().file_bytes));
  EXPECT_OK(Ask(peer, wire::VerifyDatabase{}));
}

// A bound that no prediction comes near.
TEST_F(MaintenanceTest, RunsAreFoldedWhenDrawsAreMeasuredToBeSlow) {
  served_->Start({.auto_compact = 1000});
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  AddEdges(40);
  const TopologyRecord before = Graph();
  EXPECT_EQ(Figure(peer, "quarry_graph_measured_slowdown"), 0);
  served_->store->growth().MeterOf(before, {})->Add(kDrawsMeasuredMin, 2000, kDrawsMeasuredMin, 1999);
  ASSERT_TRUE(Eventually([&] { return Graph().runs.empty(); })) << "2000 times as measured";
  EXPECT_EQ(Graph().generation, before.generation + 1);
  EXPECT_EQ(Figure(peer, "quarry_graph_measured_draws"), 0) << "of the new file";
}

// Runs are merged beside the writers, within what all sessions share.
TEST_F(MaintenanceTest, CommitsLeaveTheMergingOfRunsToTheServer) {
  served_->Start();
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(64 * kMiB));
  for (size_t commit = 0; commit <= kTopologyRunsMax; ++commit) AddEdges(10 + commit);
  ASSERT_TRUE(Eventually([&] { return Graph().runs.size() <= kTopologyRunsMax; }));
  EXPECT_TRUE(Eventually([&] { return Figure(peer, "quarry_graph_merge_bytes") > 0; }))
      << "it is counted once it is named";
  EXPECT_OK(Ask(peer, wire::VerifyDatabase{}));
}

// A quarter of its memory is less than a fold takes: that is said once, and everything else goes on.
TEST(GraphUpkeepTest, WhatCannotBeFoldedIsLeftUntilTheGraphChanges) {
  ServedDatabase served(TinyGraph{.nodes = 200, .dim = 8}, MakeDefaultBackend(), 32 * kMiB);
  served.Start({.auto_compact = 1.0000001});
  const auto add = [&](uint64_t source) {
    MemoryBudget budget(256 * kMiB);
    ASSERT_OK_AND_ASSIGN(const auto change,
                         GraphChange::Create(*served.store, budget, {.memory_bytes = kGraphChangeBytesMin}));
    ASSERT_OK(change->Add(std::vector<Edge>{{source, source}}));
    ASSERT_OK(change->Commit());
  };
  WirePeer peer(served.socket());
  ASSERT_OK(peer.Open(4 * kMiB));
  const auto figure = [&](std::string_view name) {
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    const auto found = std::ranges::find(stats->counters, name, &wire::Counter::name);
    return found == stats->counters.end() ? -1 : found->value;
  };
  const auto failed = [&] { return figure("quarry_graph_folds_failed_total"); };
  add(3);
  ASSERT_TRUE(Eventually([&] { return failed() == 1; }));
  add(4);
  ASSERT_TRUE(Eventually([&] { return failed() == 2; })) << "another commit, another try";
  EXPECT_EQ(served.store->manifest()->FindTopology("graph")->runs.size(), 2u);
  EXPECT_EQ(figure("quarry_graph_runs"), 2);
  EXPECT_EQ(figure("quarry_graph_run_edges_added"), 2);
  EXPECT_EQ(figure("quarry_graph_run_edges_removed"), 0);
  EXPECT_GT(figure("quarry_graph_run_bytes"), 0);
  EXPECT_EQ(figure("quarry_graph_run_amplification"), figure("quarry_graph_run_bytes") / 16);
  EXPECT_EQ(figure("quarry_graph_write_amplification"), figure("quarry_graph_run_amplification"))
      << "nothing else was written";
  EXPECT_GT(figure("quarry_graph_loaded_slowdown"), 1);
  EXPECT_GT(figure("quarry_graph_disk_slowdown"), 1);
  EXPECT_GT(figure("quarry_graph_read_amplification"), 1);
  ASSERT_OK(served.server->Stop());
}

}  // namespace
}  // namespace quarry
