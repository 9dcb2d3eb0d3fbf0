// Invariants 2 and 5 against SIGKILL: a child puts, compacts, trains embeddings, builds and rebuilds layouts,
// builds partitionings and makes a checkpoint of the database, all at once, or imports, and is killed at random instants, at
// chosen operations on files, and at every kill point (quarry/base/kill_point.h). The parent opens what is
// left, with no step of repair between, and holds it against what had been acknowledged to the child:
//
//   rows, labels    of each writer all that it was told, perhaps the batch after that, and nothing in part
//   embeddings      both tables and the training state exactly as at one checkpoint, the last that was told
//                   or a later one
//   layouts         serve the newest rows
//   partitionings   have the graph's edges, and the rows as of their timestamp
//   a checkpoint    is not there, or a whole database as of one instant
//   all of it       verifies
//
// After some kills nothing is checked but by the next child, which begins with what it finds and goes on.
//
//   crash_test --iterations=3000     more of them (or QUARRY_TEST_KILLS=3000)
//   QUARRY_TEST_SEED=7 crash_test    another sequence
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "crash/child_process.h"
#include "crash/crash_oracle.h"
#include "crash/crash_work.h"
#include "embedding/trained_tables.h"
#include "quarry/base/kill_point.h"
#include "quarry/base/process.h"
#include "quarry/storage/topology_run.h"
#include "support/status_matchers.h"

namespace quarry::crash {
namespace {

namespace fs = std::filesystem;
using testing_util::ScratchFolder;
using testing_util::TrainedTables;

// How a child is to die.
struct Round {
  uint32_t work = 0;
  std::optional<size_t> point;  // of kKillPoints
  uint64_t passages = 1;
  uint64_t operation = 0;  // on a file; 0 = neither: at an instant
  bool checked = true;
};

// What a child must do to come by the point.
uint32_t WorkOf(std::string_view point) {
  const std::pair<std::string_view, uint32_t> kinds[] = {
      {"import", kImport},
      {"open", kPut},
      {"put", kPut},
      {"manifest", kTrain},
      {"pages", kTrain},
      {"embeddings", kTrain},
      {"training", kTrain},
      {"layout: mended", kBuild | kEdges | kPut},
      {"layout", kBuild | kPut},
      {"partition", kBuild | kPut},
      {"compaction", kCompact | kPut},
      {"edges", kEdges},
      {"graph", kEdges},
      {"topology: runs", kEdges},
      {"topology", kEdges | kCompact},
      {"checkpoint", kCopy},
  };
  for (const auto& [kind, work] : kinds) {
    if (point.starts_with(kind)) return work;
  }
  ADD_FAILURE() << "what comes by \"" << point << "\"?";
  return kPut;
}

size_t PointOf(std::string_view name) {
  return static_cast<size_t>(std::ranges::find(kKillPoints, name) - std::begin(kKillPoints));
}

// Where a child must have died before one comes by a point of what was left over.
std::optional<size_t> PointBefore(size_t point) {
  if (kKillPoints[point] == "open: staged rows there") return PointOf("put: part of the rows staged");
  if (kKillPoints[point] == "embeddings: leftovers settled, not removed") {
    return PointOf("embeddings: maps written, not named");
  }
  return {};
}

using Deaths = std::array<uint64_t, kKillPointCount>;  // at each kill point

class Planner {
 public:
  explicit Planner(uint64_t seed) : rng_(MixSeed(seed, 1)) {}

  // Half of the children die at a kill point, the others at operations on files and at instants. The next point is one
  // of those with the fewest `deaths`: how often a child comes by some of them is up to the machine.
  Round Next(const Deaths& deaths) {
    if (!planned_) {
      const auto point = static_cast<size_t>(std::ranges::min_element(deaths) - deaths.begin());
      planned_ = AtPoint(point);
      const std::optional<size_t> before = PointBefore(point);
      if (!before) return Anywhere();
      planned_->passages = 1;
      Round leaves = AtPoint(*before);
      leaves.passages = 1;
      leaves.checked = false;
      return leaves;
    }
    const Round round = *planned_;
    planned_.reset();
    return round;
  }

 private:
  uint32_t Some() { return static_cast<uint32_t>(rng_.Below(kImport)); }
  Round AtPoint(size_t point) {
    const uint32_t work = WorkOf(kKillPoints[point]);
    if (work == kImport) return {.work = work, .point = point};
    // A child opens the database once, and makes one checkpoint of it, and many of all else.
    const bool once = work == kCopy || kKillPoints[point].starts_with("open");
    return {.work = work | Some(), .point = point, .passages = once ? 1 : 1 + rng_.Below(3)};
  }
  Round Anywhere() {
    const uint64_t kind = rng_.Below(12);
    Round round{.work = kind == 0 ? uint32_t{kImport} : kPut | Some(), .checked = rng_.Below(4) != 0};
    if (kind % 2 == 1) round.operation = 1 + rng_.Below(80);
    return round;
  }

  Rng rng_;
  std::optional<Round> planned_;
};

class Parent {
 public:
  Parent(const std::string& folder, uint64_t seed)
      : folder_(folder), seed_(seed), rng_(MixSeed(seed, 2)), oracle_(seed), copy_oracle_(seed) {}

  void Create() {
    ASSERT_OK(ImportTinyGraph(*backend_, Graph(), folder_ + "/db"));
    const auto store = Store::Open(*backend_, folder_ + "/db");
    ASSERT_OK(store);
    ASSERT_OK(TrainedTables(seed_).Create(**store));
    // Reading and writing take no time, so that layouts of which some batches are as they were are mended.
    ASSERT_OK((*store)->UpdateManifest([](Manifest& manifest) {
      manifest.device = testing_util::kDrawsAlone;
      return Status::Ok();
    }));
  }

  void Run(uint64_t number, const Round& round) {
    if (round.point == PointOf("open: leftovers there")) PlantLeftover();
    const ChildProcess child({.seed = seed_,
                              .round = number,
                              .work = round.work,
                              .kill_point = round.point ? static_cast<int64_t>(*round.point) : -1,
                              .passages = round.passages,
                              .operation = round.operation,
                              .folder = folder_});
    const bool suicide = child.ListenAndKill(round.point.has_value(), round.operation != 0, rng_,
                                             [&](const Message& message) { Take(message); });
    if (round.point && suicide) ++deaths_[*round.point];
    if (testing::Test::HasFailure()) return;
    if (round.work == kImport) {
      CheckImported();
    } else if (round.checked) {
      CheckDatabase();
    }
  }

  const Deaths& deaths() const { return deaths_; }

  void ExpectThatAllWasDone(uint64_t kills) const {
    fmt::print(
        "{} batches, {} compactions, {} trainings, {} layouts, {} partitionings, {} copies, {} commits "
        "of edges, {} imports\n",
        acknowledged_[0] + acknowledged_[1] + acknowledged_[2], done_[Message::kCompacted],
        done_[Message::kTrained], done_[Message::kBuilt], done_[Message::kPartitioned],
        done_[Message::kCopied], edged_, done_[Message::kImported]);
    if (kills < 4 * kKillPointCount) return;
    for (const uint64_t batches : acknowledged_) EXPECT_GT(batches, kills / 2);
    for (const uint64_t done : done_) EXPECT_GT(done, 0u);
    for (size_t point = 0; point < kKillPointCount; ++point) {
      EXPECT_GT(deaths_[point], 0u) << "no child came by \"" << kKillPoints[point] << "\"";
    }
  }

 private:
  // The state of a training that no record names. What a killed child leaves is often gone on with instead of
  // removed, so that without this no child might come by the point.
  void PlantLeftover() const {
    fs::create_directories(folder_ + "/db/training");
    std::ofstream(folder_ + "/db/training/999999999.qts") << "never named";
  }

  void Take(const Message& message) {
    if (message.kind == Message::kBatch) {
      ASSERT_GE(message.number, acknowledged_[message.writer]) << "a child found less than was acknowledged";
      acknowledged_[message.writer] = message.number;
    } else if (message.kind == Message::kEdged) {
      ASSERT_GE(message.number, edged_) << "a child found fewer commits of edges than were acknowledged";
      edged_ = message.number;
    } else if (message.kind == Message::kTrained) {
      ASSERT_GE(static_cast<int64_t>(message.number), trained_) << "a child found an older checkpoint";
      trained_ = static_cast<int64_t>(message.number);
    }
    partitioned_ |= message.kind == Message::kPartitioned;
    imported_ |= message.kind == Message::kImported;
    if (message.kind == Message::kCopied) copied_ = message.number;
    ++done_[message.kind];
  }

  void CheckDatabase() {
    const auto store = Store::Open(*backend_, folder_ + "/db");
    ASSERT_OK(store);
    oracle_.Check(**store);
    if (testing::Test::HasFailure()) return;
    for (uint64_t writer = 0; writer < kWriters; ++writer) {
      ASSERT_GE(oracle_.batches(writer), acknowledged_[writer])
          << "an acknowledged batch of writer " << writer << " is lost";
      ASSERT_LE(oracle_.batches(writer), acknowledged_[writer] + 1)
          << "a batch that writer " << writer << " never made";
      acknowledged_[writer] = oracle_.batches(writer);  // it was seen
    }
    ASSERT_GE(oracle_.edge_commits(), edged_) << "an acknowledged commit of edges is lost";
    ASSERT_LE(oracle_.edge_commits(), edged_ + 1) << "edges that were never committed";
    edged_ = oracle_.edge_commits();
    ASSERT_GE(oracle_.trained(), trained_) << "an acknowledged checkpoint is lost";
    trained_ = oracle_.trained();
    if ((*store)->manifest()->FindLayout("default") != nullptr && rng_.Below(4) == 0) {
      oracle_.CheckLayout(**store);
    }
    const bool partitioned = (*store)->manifest()->FindPartitioning("default") != nullptr;
    ASSERT_TRUE(partitioned || !partitioned_) << "an acknowledged partitioning is lost";
    if (partitioned && rng_.Below(2) == 0) oracle_.CheckPartitioning(**store);
    ASSERT_OK((*store)->PrepareToWrite());  // removes what the killed one left
    CheckFiles(*(*store)->manifest());
    CheckCopy();
  }

  // What a killed one left, the next one removes.
  void CheckCopy() {
    const std::string path = Orders{.folder = folder_}.copy();
    ASSERT_TRUE(fs::exists(path) || !copied_) << "an acknowledged copy is lost";
    if (!fs::exists(path)) return;
    {
      const auto store = Store::Open(*backend_, path);
      ASSERT_OK(store);
      copy_oracle_.Check(**store);
      if (testing::Test::HasFailure()) return;
      EXPECT_EQ(copied_.value_or(copy_oracle_.timestamp()), copy_oracle_.timestamp());
      EXPECT_LE(copy_oracle_.trained(), oracle_.trained());
      if ((*store)->manifest()->FindLayout("default") != nullptr) copy_oracle_.CheckLayout(**store);
    }
    copied_.reset();
    fs::remove_all(path);
  }

  // Named, or of a compaction that the next one goes on with.
  static bool IsOfTables(const Manifest& manifest, const std::string& file) {
    return std::ranges::any_of(manifest.tables, [&](const TableRecord& table) {
      const std::string next = fmt::format("{}-{}.", table.name, table.generation + 1);
      return table.file == "features/" + file || file == next + "qft" || file == next + "progress";
    });
  }

  // Nothing that a crash left is there any more, but for what is gone on with: compactions, and traces of
  // layouts.
  void CheckFiles(const Manifest& manifest) {
    using testing_util::FilesIn;
    const std::string path = folder_ + "/db/";
    for (const std::string& file : FilesIn(path + "features")) {
      EXPECT_TRUE(IsOfTables(manifest, file)) << file;
    }
    std::vector<std::string> topologies;
    for (const std::string& file : FilesOf(manifest.topologies[0]))
      topologies.push_back(fs::path(file).filename());
    EXPECT_THAT(FilesIn(path + "topology"), testing::UnorderedElementsAreArray(topologies));
    EXPECT_THAT(FilesIn(path + "embeddings"), testing::SizeIs(trained_ == kNeverWritten ? 2 : 4));
    if (fs::exists(path + "training")) {
      EXPECT_THAT(FilesIn(path + "training"), testing::SizeIs(manifest.trainings.size()));
    }
    if (fs::exists(path + "partitions")) {
      for (const std::string& folder : FilesIn(path + "partitions")) {
        const PartitioningRecord* const record = manifest.FindPartitioning("default");
        EXPECT_TRUE(folder == "default.building" ||
                    (record != nullptr && record->directory == "partitions/" + folder))
            << folder;
      }
    }
    if (!fs::exists(path + "layouts")) return;
    for (const std::string& folder : FilesIn(path + "layouts")) {
      const LayoutRecord* const layout = manifest.FindLayout("default");
      EXPECT_TRUE(folder == "default.building" ||
                  (layout != nullptr && layout->directory == "layouts/" + folder))
          << folder;
    }
  }

  // There is no database, or a whole one. What the import left, the next one removes.
  void CheckImported() {
    const std::string path = folder_ + "/imported";
    ASSERT_TRUE(fs::exists(path) || !imported_) << "an acknowledged import is lost";
    imported_ = false;
    if (!fs::exists(path)) return;
    {
      const auto store = Store::Open(*backend_, path);
      ASSERT_OK(store);
      for (const Status& fault : testing_util::FaultsOf(**store)) ADD_FAILURE() << fault.ToString();
      const auto rows = ReadFeatures(**store, (*store)->TakeSnapshot().value());
      ASSERT_OK(rows);
      for (NodeId node = 0; node < Graph().nodes; ++node) ASSERT_TRUE((*rows)[node] == Graph().Row(node));
    }
    fs::remove_all(path);
  }

  const std::string folder_;
  const uint64_t seed_;
  Rng rng_;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  Oracle oracle_, copy_oracle_;
  // To the children.
  std::array<uint64_t, kWriters> acknowledged_{};
  int64_t trained_ = kNeverWritten;
  uint64_t edged_ = 0;
  std::optional<uint64_t> copied_;
  bool partitioned_ = false;  // acknowledged
  bool imported_ = false;
  std::array<uint64_t, 8> done_{};  // messages by kind
  Deaths deaths_{};
};

TEST(CrashTest, WhatWasAcknowledgedSurvivesAndNothingIsHalfThere) {
  const uint64_t kills = FromEnvironment("QUARRY_TEST_KILLS", 300);
  const uint64_t seed = FromEnvironment("QUARRY_TEST_SEED", 1);
  fmt::print("{} kills, seed {}\n", kills, seed);
  const ScratchFolder folder;
  Parent parent(folder.path(), seed);
  ASSERT_NO_FATAL_FAILURE(parent.Create());
  Planner planner(seed);
  for (uint64_t number = 0; number < kills; ++number) {
    Round round = planner.Next(parent.deaths());
    round.checked |= number + 1 == kills;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", kill " << number << " at "
                                    << (round.point ? kKillPoints[*round.point] : "any place") << ", passage "
                                    << round.passages << ", operation " << round.operation);
    parent.Run(number, round);
    if (testing::Test::HasFailure()) return;
  }
  parent.ExpectThatAllWasDone(kills);
}

}  // namespace
}  // namespace quarry::crash

// The child is this program too.
int main(int count, char** arguments) {
  using quarry::crash::kOrdersVariable;
  using quarry::crash::Orders;
  if (const char* const orders = std::getenv(kOrdersVariable)) {
    quarry::crash::RunChild(Orders::FromText(orders));
  }
  setenv("QUARRY_LOG", "warn", 0);  // leftovers are removed all the time
  testing::InitGoogleTest(&count, arguments);
  constexpr std::string_view kIterations = "--iterations=";
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    if (argument.starts_with(kIterations)) {
      setenv("QUARRY_TEST_KILLS", arguments[i] + kIterations.size(), 1);
    }
  }
  return RUN_ALL_TESTS();
}
