// Invariants 2 and 5 against power cuts: everything that makes something durable is done on a disk that tells
// what was synced (support/power_cut_disk.h), and what a cut may leave is held against what was acknowledged,
// without a step of repair between (power_cut_world.h).
//
//   power_cut_test --cuts=50000          more of them (or QUARRY_TEST_CUTS=50000)
//   QUARRY_TEST_SEED=7 power_cut_test    others
//
// That the test would notice a sync that is missing is tested too: with the syncs of any one class of files
// or folders left out, some cut shows it.
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "powercut/power_cut_world.h"
#include "quarry/base/process.h"
#include "support/status_matchers.h"

namespace quarry::powercut {
namespace {

using testing_util::Medium;
using testing_util::ScratchFolder;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

class PowerCutTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("QUARRY_LOG", "error", 0);  // leftovers are removed all the time
    seed_ = FromEnvironment("QUARRY_TEST_SEED", 1);
    scratch_ = std::make_unique<ScratchFolder>(Medium::kMemory);
    const Status prepared = PrepareWorld(Prepared(), seed_);
    ASSERT_OK(prepared);
  }
  static void TearDownTestSuite() { scratch_.reset(); }
  static std::string Prepared() { return scratch_->path() + "/prepared"; }
  static std::string Place() { return scratch_->path() + "/world"; }

  static inline uint64_t seed_ = 1;
  static inline std::unique_ptr<ScratchFolder> scratch_;
};

TEST_F(PowerCutTest, WhatWasAcknowledgedIsThereAndNothingIsHalfThere) {
  const uint64_t cuts = FromEnvironment("QUARRY_TEST_CUTS", 500);
  const std::vector<Work> works = AllWorks();
  fmt::print("{} cuts, seed {}\n", cuts, seed_);
  for (size_t i = 0; i < works.size(); ++i) {
    SCOPED_TRACE(testing::Message() << works[i].name << ", QUARRY_TEST_SEED=" << seed_);
    const double start = MonotonicSeconds();
    World world(works[i], Prepared(), Place(), seed_);
    ASSERT_NO_FATAL_FAILURE(world.Run());
    const uint64_t share = cuts * (i + 1) / works.size() - cuts * i / works.size();
    for (uint64_t cut = 0; cut < share && !HasFailure(); ++cut) world.CutAndCheck(MixSeed(seed_, i, cut));
    if (HasFailure()) return;
    fmt::print("{}: {} operations, {} cuts, {:.1f} s\n", works[i].name, world.operations(), share,
               MonotonicSeconds() - start);
  }
}

// What a cut left is gone on with, without a look at it before, and cut again.
TEST_F(PowerCutTest, WhatIsLeftIsGoneOnWithAndCutAgain) {
  const uint64_t rounds = std::max<uint64_t>(1, FromEnvironment("QUARRY_TEST_CUTS", 500) / 20);
  std::vector<Work> works = AllWorks();
  std::erase_if(works, [](const Work& work) { return !work.databases.contains(kDatabase); });
  Rng rng(MixSeed(seed_, 5));
  const std::string left = scratch_->path() + "/left";
  for (uint64_t round = 0; round < rounds; ++round) {
    const Work first = works[rng.Below(works.size())], second = works[rng.Below(works.size())];
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << second.name << " after " << first.name
                                    << ", QUARRY_TEST_SEED=" << seed_);
    std::filesystem::remove_all(left);
    {
      World world(first, Prepared(), Place(), seed_);
      ASSERT_NO_FATAL_FAILURE(world.Run());
      world.Leave(rng(), left);
    }
    World world(second, left, Place(), seed_);
    ASSERT_NO_FATAL_FAILURE(world.Run());
    for (int cut = 0; cut < 4 && !HasFailure(); ++cut) world.CutAndCheck(rng());
    if (HasFailure()) return;
  }
}

// Syncs that are left out, and the work that needs them.
struct Mutation {
  const char* name;
  const char* work;
  bool (*file)(std::string_view path);
  bool (*folder)(std::string_view path);
};

void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

template <size_t n>
struct Text {
  constexpr Text(const char (&from)[n]) { std::copy_n(from, n, text); }  // NOLINT: of literals
  char text[n];
};
bool None(std::string_view /*path*/) { return false; }
template <Text part>
bool Has(std::string_view path) {
  return path.find(part.text) != std::string_view::npos;
}
template <Text end>
bool Ends(std::string_view path) {
  return path.ends_with(end.text);
}

constexpr Mutation kMutations[] = {
    {"DataFiles", "compactions", Ends<".qft">, None},
    {"DataFilesThatAreGoneOnWith", "a compaction that goes on", Ends<".qft">, None},
    {"DataFilesOfAnImport", "an import", Ends<".qft">, None},
    {"Topologies", "an import", Has<"/topology/">, None},
    {"Versions", "an import", Ends<"/VERSION">, None},
    {"RunsOfEdges", "a graph that grows", Ends<".qtr">, None},
    {"TopologiesOfCompactions", "a graph that grows", Ends<".qtp">, None},
    {"FoldersOfTopologies", "a graph that grows", None, Ends<"/topology">},
    {"LogsOfCatalogsOfGraphs", "a graph that grows", Ends<".log">, None},
    {"RunsOfEdgesOfTypes", "a graph with types that grows", Ends<".qtr">, None},
    {"LogsOfCatalogsOfTypes", "a graph with types that grows", Ends<".log">, None},
    {"PageFiles", "training", Ends<".qet">, None},
    {"PageMaps", "training", Ends<".qem">, None},
    {"TrainingStates", "training", Ends<".qts">, None},
    {"TrainingStatesOfAServer", "a server", Ends<".qts">, None},
    {"LayoutFiles", "layouts", Ends<".qlc">, None},
    {"Traces", "layouts", Ends<".qlt">, None},
    {"LayoutFilesOfRebuilds", "rebuilds", Ends<".qlc">, None},
    {"PartsOfPartitionings", "partitions", Ends<".qpp">, None},
    {"FoldersOfTables", "compactions", None, Ends<"/features">},
    {"FoldersOfEmbeddings", "training", None, Ends<"/embeddings">},
    {"FoldersOfTrainings", "training", None, Ends<"/training">},
    {"FoldersOfLayouts", "layouts", None, Ends<"/layouts">},
    {"FoldersOfPartitionings", "partitions", None, Ends<"/partitions">},
    {"FoldersThatBecomePartitionings", "partitions", None, Ends<".building">},
    {"FoldersThatBecomeLayouts", "layouts", None, Ends<".building">},
    {"Databases", "training in a folder that nobody synced", None, Ends<"/db">},
    {"DatabasesOfAnImport", "an import", None, Ends<"/imported.importing/db">},
    {"FoldersOfDatabases", "an import", None, Ends<"/live">},
    {"FoldersOfCheckpoints", "a checkpoint and a restore", None, Has<"/copy.copying/db">},
    {"FilesOfRestoredCatalogs", "a checkpoint and a restore", Has<"/restored.copying/db/catalog/">, None},
    {"PagesOfCheckpoints", "a checkpoint and a restore", Has<"/copy.copying/db/embeddings/">, None},
    {"FoldersOfWhatIsRepaired", "repairs", None, Has<"/damaged">},
    {"FoldersOfRepairedCatalogs", "repairs", None, Ends<"/broken">},
    {"FilesOfRepairedCatalogs", "repairs", Has<"/catalog.repairing/">, None},
    {"LogsOfCatalogs", "puts", Ends<".log">, None},
    {"LogsOfCatalogsUnderSql", "SQL", Ends<".log">, None},
    {"LogsOfCatalogsOfAServer", "a server", Ends<".log">, None},
    {"LogsOfCatalogsThatDropATable", "a dropped table", Ends<".log">, None},
    {"ManifestsOfCatalogs", "puts", Has<"/MANIFEST-">, None},
    {"CurrentManifests", "puts", Ends<".dbtmp">, None},
    {"TablesOfCatalogs", "puts", Ends<".sst">, None},
    {"FoldersOfCatalogs", "puts", None, Ends<"/catalog">},
    {"Anchors", "puts", Ends<"/ANCHOR">, None},
};

class PowerCutMutationTest : public PowerCutTest, public testing::WithParamInterface<Mutation> {};
INSTANTIATE_TEST_SUITE_P(Without, PowerCutMutationTest, testing::ValuesIn(kMutations),
                         [](const auto& mutation) { return std::string(mutation.param.name); });

TEST_P(PowerCutMutationTest, ASyncThatIsMissingIsNoticed) {
  constexpr uint64_t kCutsMax = 400;
  const Mutation mutation = GetParam();
  const std::vector<Work> works = AllWorks();
  const auto work =
      std::ranges::find_if(works, [&](const Work& w) { return std::string_view(w.name) == mutation.work; });
  ASSERT_NE(work, works.end());
  World world(*work, Prepared(), Place(), seed_);
  world.IgnoreSyncs([&](std::string_view path, bool folder) {
    return folder ? mutation.folder(path) : mutation.file(path);
  });
  ASSERT_NO_FATAL_FAILURE(world.Run());
  for (uint64_t cut = 0; cut < kCutsMax; ++cut) {
    testing::TestPartResultArray found;
    {
      const testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &found);
      world.CutAndCheck(MixSeed(seed_, cut));
    }
    if (found.size() == 0) continue;
    const std::string why = found.GetTestPartResult(0).message();
    fmt::print("cut {}: {}\n", cut + 1, why.substr(0, why.find("\nGoogle Test trace")));
    return;
  }
  FAIL() << "none of " << kCutsMax << " cuts shows it";
}

}  // namespace
}  // namespace quarry::powercut

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  constexpr std::string_view kCuts = "--cuts=";
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]).starts_with(kCuts)) {
      setenv("QUARRY_TEST_CUTS", arguments[i] + kCuts.size(), 1);
    }
  }
  return RUN_ALL_TESTS();
}
