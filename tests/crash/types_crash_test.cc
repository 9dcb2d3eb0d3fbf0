// Invariant 2 against SIGKILL, of a graph with types: a child adds nodes of types with rows, labels and names, and edges of
// relations, and removes some, by commits, beside compactions and a checkpoint, and is killed at every kill point that
// these come by, at operations on files and at random instants. What is left is the graph of the commits that were
// acknowledged, perhaps with the one after these, in all that it has; so is a checkpoint, of some commit; all of it verifies.
//
//   crash_test --iterations=3000     a fifth of so many kills
//   QUARRY_TEST_SEED=7 crash_test    another sequence
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "crash/child_process.h"
#include "embedding/trained_tables.h"
#include "quarry/base/kill_point.h"
#include "quarry/storage/topology_run.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry::crash {
namespace {

namespace fs = std::filesystem;
using testing_util::FaultsIn;
using testing_util::GrowingGraph;

// What a child must do to come by the point; 0 where commits of a graph, compactions and checkpoints do not.
uint32_t TypedWorkOf(std::string_view point) {
  if (point.starts_with("edges") || point.starts_with("graph") || point.starts_with("topology: runs"))
    return kTypes;
  if (point == "put: part of the rows staged" || point == "put: rows staged, not published") return kTypes;
  if (point.starts_with("topology") || point.starts_with("compaction")) return kTypes | kCompact;
  return point.starts_with("checkpoint") ? kTypes | kCopy : 0;
}

class TypedParent {
 public:
  TypedParent(const std::string& folder, uint64_t seed)
      : folder_(folder), seed_(seed), rng_(MixSeed(seed, 3)), graph_(TypesOf(seed)) {}

  void Create() { ASSERT_OK(graph_.Import(*backend_, orders().database())); }

  void Run(uint64_t number) {
    Orders told = orders();
    told.round = number;
    const bool at_point = number % 2 == 0;
    const bool copies = rng_.Below(3) == 0;
    if (at_point) {
      // One of those at which the fewest died: how often a child comes by some of them is up to the machine.
      size_t point = kKillPointCount;
      for (size_t i = 0; i < kKillPointCount; ++i) {
        if (TypedWorkOf(kKillPoints[i]) == 0) continue;
        if (point == kKillPointCount || deaths_[i] < deaths_[point]) point = i;
      }
      told.work = TypedWorkOf(kKillPoints[point]);
      told.kill_point = static_cast<int64_t>(point);
      told.passages = (told.work & kCopy) != 0 ? 1 : 1 + rng_.Below(3);
      if (copies) told.work |= kCopy;
    } else {
      told.work = kTypes | (rng_.Below(2) == 0 ? kCompact : kTypes) | (copies ? kCopy : kTypes);
      told.operation = rng_.Below(2) == 0 ? 1 + rng_.Below(80) : 0;
    }
    SCOPED_TRACE(
        testing::Message() << (at_point ? kKillPoints[static_cast<size_t>(told.kill_point)] : "any place")
                           << ", passage " << told.passages << ", operation " << told.operation);
    const ChildProcess child(told);
    const bool suicide = child.ListenAndKill(at_point, told.operation != 0, rng_,
                                             [&](const Message& message) { Take(message); });
    if (at_point && suicide) ++deaths_[static_cast<size_t>(told.kill_point)];
    if (rng_.Below(4) != 0) Check();
  }

  void Check() {
    ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend_, orders().database()));
    ASSERT_NO_FATAL_FAILURE(Follow(graph_, *store));
    ASSERT_GE(graph_.commits(), acknowledged_) << "an acknowledged commit is lost";
    ASSERT_LE(graph_.commits(), acknowledged_ + 1) << "a commit that was never made";
    acknowledged_ = graph_.commits();    // it was seen
    ASSERT_OK(store->PrepareToWrite());  // removes what the killed one left
    std::vector<std::string> named;
    for (const std::string& file : FilesOf(store->manifest()->topologies[0])) {
      named.push_back(fs::path(file).filename());
    }
    EXPECT_THAT(testing_util::FilesIn(orders().database() + "/topology"),
                testing::UnorderedElementsAreArray(named));
    CheckCopy();
  }

  void ExpectThatAllWasDone(uint64_t kills) const {
    fmt::print("{} commits to a graph with types, {} compactions, {} copies\n", acknowledged_, compactions_,
               copies_);
    if (kills < 4 * kKillPointCount) return;
    EXPECT_GT(acknowledged_, kills / 2);
    EXPECT_GT(compactions_, 0u);
    EXPECT_GT(copies_, 0u);
    for (size_t point = 0; point < kKillPointCount; ++point) {
      EXPECT_TRUE(deaths_[point] > 0 || TypedWorkOf(kKillPoints[point]) == 0)
          << "no child came by \"" << kKillPoints[point] << "\"";
    }
  }

 private:
  Orders orders() const { return {.seed = seed_, .folder = folder_}; }

  // The database has the commits that the graph knows of, and those that may have come since.
  static void Follow(GrowingGraph& graph, Store& store) {
    ASSERT_EQ(FaultsIn(store), "");
    ASSERT_OK_AND_ASSIGN(const uint64_t found, GrowingGraph::CommitsIn(store));
    ASSERT_GE(found, graph.commits()) << "commits were there before";
    while (graph.commits() < found) graph.Take(graph.Next());
    graph.ExpectIn(store);
  }

  void Take(const Message& message) {
    if (message.kind == Message::kEdged) {
      ASSERT_GE(message.number, acknowledged_) << "a child found fewer commits than were acknowledged";
      acknowledged_ = message.number;
    }
    compactions_ += message.kind == Message::kCompacted ? 1 : 0;
    if (message.kind == Message::kCopied) copied_ = true;
  }

  void CheckCopy() {
    const std::string path = orders().copy();
    ASSERT_TRUE(fs::exists(path) || !copied_) << "an acknowledged copy is lost";
    copied_ = false;
    if (!fs::exists(path)) return;
    {
      ASSERT_OK_AND_ASSIGN(const auto store, Store::Open(*backend_, path));
      GrowingGraph graph = TypesOf(seed_);
      ASSERT_NO_FATAL_FAILURE(Follow(graph, *store));
      EXPECT_LE(graph.commits(), acknowledged_);
    }
    ++copies_;
    fs::remove_all(path);
  }

  const std::string folder_;
  const uint64_t seed_;
  Rng rng_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  GrowingGraph graph_;
  uint64_t acknowledged_ = 0, compactions_ = 0, copies_ = 0;
  bool copied_ = false;  // acknowledged
  std::array<uint64_t, kKillPointCount> deaths_{};
};

TEST(CrashTest, AGraphWithTypesIsThatOfItsCommits) {
  const uint64_t kills = std::max<uint64_t>(1, FromEnvironment("QUARRY_TEST_KILLS", 300) / 5);
  const uint64_t seed = FromEnvironment("QUARRY_TEST_SEED", 1);
  fmt::print("{} kills, seed {}\n", kills, seed);
  const testing_util::ScratchFolder folder;
  TypedParent parent(folder.path(), seed);
  ASSERT_NO_FATAL_FAILURE(parent.Create());
  for (uint64_t number = 0; number < kills; ++number) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", kill " << number);
    parent.Run(number);
    if (testing::Test::HasFailure()) return;
  }
  parent.Check();
  parent.ExpectThatAllWasDone(kills);
}

}  // namespace
}  // namespace quarry::crash
