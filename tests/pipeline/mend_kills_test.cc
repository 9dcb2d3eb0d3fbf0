// Mending of a layout that is killed at every operation that changes files: the database is whole afterwards, and the layout is
// the one that was there or the mended one, which serves what a layout of the newer graph serves. And the same of building one
// of a graph with types, which goes on afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "pipeline/batch_meaning.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/dataset.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/import.h"
#include "quarry/layout/rebuild.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/verify/verify.h"
#include "support/killing_backend.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"
#include "support/temporary_folder.h"
#include "support/typed_set.h"
#include "support/zygote.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::kBytesAlone;
using testing_util::KillingBackend;
using testing_util::Meaning;
using testing_util::RunEpoch;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;
using testing_util::Zygote;

constexpr int kNotMended = 5;  // how a child ends

// In the child, which ends by itself only where something failed.
bool MendAndDie(const std::string& path, uint64_t operation) {
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, operation);
  const auto store = Store::Open(backend, path);
  if (!store.ok()) _exit(3);
  MemoryBudget budget(kGiB);
  RebuildReport report;
  if (!RebuildLayout(**store, budget, "default", {}, {}, &report).ok()) _exit(4);
  if (report.path != RebuildPath::kMend) _exit(kNotMended);
  return true;
}

// The nodes of each batch of a cycle, and its rows.
std::vector<std::pair<std::vector<NodeId>, std::vector<std::byte>>> BatchesOf(Store& store,
                                                                              const std::string& layout) {
  std::vector<std::pair<std::vector<NodeId>, std::vector<std::byte>>> batches;
  MemoryBudget budget(kGiB);
  const auto road = PlannedRoad::Open(store, budget, {.layout = layout});
  EXPECT_OK(road);
  if (!road.ok()) return batches;
  const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .ordered = true});
  EXPECT_OK(stream);
  for (;;) {
    const auto batch = (*stream)->Next();
    EXPECT_OK(batch);
    if (!batch.ok() || *batch == nullptr) return batches;
    const BatchView& view = (*batch)->view();
    batches.emplace_back();
    batches.back().first.assign(view.nodes.begin(), view.nodes.end());
    for (size_t v = 0; v < view.nodes.size(); ++v) {
      const std::byte* const row = view.features.Row(v);
      batches.back().second.insert(batches.back().second.end(), row,
                                   row + RowBytes(ElementType::kFloat32, 128));
    }
  }
}

TEST(MendKillsTest, AMendMayDieAtAnyOperation) {
  const TinyGraph graph = {.nodes = 4000};
  const TinyDatabase database(graph, access("/dev/shm", W_OK) == 0 ? "/dev/shm/" : testing::TempDir());
  const std::string path = database.path();
  const LayoutSpec spec = {.road = {.fanouts = {3, 2}, .batch_size = 96, .cache_bytes = 500 * 512, .seed = 5},
                           .threads = 1};
  const auto backend = MakeDefaultBackend();
  MemoryBudget budget(kGiB);
  {
    const auto store = Store::Open(*backend, path);
    ASSERT_OK(store);
    ASSERT_OK((*store)->UpdateManifest([](Manifest& manifest) {
      manifest.device = kBytesAlone;
      return Status::Ok();
    }));
    ASSERT_OK(BuildLayout(**store, budget, spec, false, {}));
  }
  const uint64_t rounds = testing_util::Repetitions(2);
  uint64_t kills = 0;
  for (uint64_t round = 1; round <= rounds; ++round) {
    uint64_t before = 0;
    {
      const auto store = Store::Open(*backend, path);
      ASSERT_OK(store);
      before = (*store)->manifest()->FindLayout("default")->generation;
      auto change = GraphChange::Create(**store, budget, {.memory_bytes = kGraphChangeBytesMin});
      ASSERT_OK(change);
      std::vector<Edge> edges;  // into a list that few others draw from
      for (uint64_t source = 1000 * round; source < 1000 * round + 40; ++source)
        edges.push_back({source, 3990});
      ASSERT_OK((*change)->Add(edges));
      ASSERT_OK((*change)->Commit());
    }
    for (uint64_t operation = 1;; ++operation) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", operation " << operation);
      const Zygote::Child child = Zygote::Instance().Fork(MendAndDie, path, operation);
      if (child.done) kill(child.pid, SIGKILL);
      const int status = Zygote::Instance().Wait(child.pid);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
      const auto store = Store::Open(*backend, path);
      ASSERT_OK(store);
      const auto verified = VerifyStore(**store, {});
      ASSERT_OK(verified);
      for (const Status& fault : verified->faults) ADD_FAILURE() << fault.ToString();
      const LayoutRecord* const record = (*store)->manifest()->FindLayout("default");
      ASSERT_NE(record, nullptr) << "the layout of before is lost";
      const bool mended = record->generation != before;
      if (!child.done) {
        ++kills;
        ASSERT_LT(operation, 2000U) << "it goes on and on";
      }
      if (!mended) {
        ASSERT_FALSE(child.done) << "an acknowledged mend is lost";
        continue;
      }
      ASSERT_TRUE(IsFresh(*(*store)->manifest(), *record));
      LayoutSpec whole = spec;
      whole.name = "whole";
      ASSERT_OK(BuildLayout(**store, budget, whole, false, {}));
      EXPECT_TRUE(BatchesOf(**store, "default") == BatchesOf(**store, "whole"));
      ASSERT_OK(DropLayout(**store, "whole"));
      for (const auto& entry : fs::directory_iterator(path + "/layouts")) {
        EXPECT_EQ("layouts/" + entry.path().filename().string(),
                  (*store)->manifest()->FindLayout("default")->directory)
            << "what was left is gone";
      }
      break;
    }
  }
  EXPECT_GT(kills, 10 * rounds);
  fmt::print("{} kills\n", kills);
}

LayoutSpec TypedSpec() {
  return {.road = {.fanouts = {6, 3},
                   .batch_size = 32,
                   .cache_bytes = 8000,
                   .seed = 5,
                   .relation_fanouts = {2, 3, 1, 2, 4, 0, 2, 0, 3, 1}},
          .threads = 1};
}

// In the child.
bool BuildAndDie(const std::string& path, uint64_t operation) {
  const auto disk = MakeDefaultBackend();
  KillingBackend backend(*disk, operation);
  const auto store = Store::Open(backend, path);
  if (!store.ok()) _exit(3);
  MemoryBudget budget(kGiB);
  if (!BuildLayout(**store, budget, TypedSpec(), /*resume=*/true, {}).ok()) _exit(4);
  return true;
}

TEST(MendKillsTest, ABuildOfATypedGraphMayDieAtAnyOperationAndGoesOn) {
  const TemporaryFolder source("typed-kills-set");
  const TemporaryFolder folder("typed-kills");
  const std::string path = folder / "typed.db";
  RandomTypedSet(3, 120).WriteTo(source);
  auto dataset = OpenDataset(source.path(), {});
  ASSERT_OK(dataset);
  const auto backend = MakeDefaultBackend();
  ASSERT_OK(ImportDatabase(*backend, path, std::move(*dataset), {}));
  MemoryBudget budget(kGiB);
  const auto meanings = [&](Store& store) {
    const auto road = PlannedRoad::Open(store, budget, {});
    EXPECT_OK(road);
    const auto epoch =
        RunEpoch(**road, (*road)->TrainNodes(), 1, nullptr, NodeTypes(store.manifest()->node_types));
    EXPECT_OK(epoch);
    return *epoch;
  };
  std::vector<Meaning> expected;
  {
    const auto store = Store::Open(*backend, path);
    ASSERT_OK(store);
    ASSERT_OK(BuildLayout(**store, budget, TypedSpec(), false, {}));
    expected = meanings(**store);
    ASSERT_FALSE(expected.empty());
    ASSERT_OK(DropLayout(**store, "default"));
  }
  uint64_t kills = 0, resumed = 0;
  for (uint64_t operation = 1;; operation += 1 + operation / 16) {
    SCOPED_TRACE(testing::Message() << "operation " << operation);
    ASSERT_LT(operation, 5000U) << "it goes on and on";
    const Zygote::Child child = Zygote::Instance().Fork(BuildAndDie, path, operation);
    if (child.done) kill(child.pid, SIGKILL);
    const int status = Zygote::Instance().Wait(child.pid);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    const auto store = Store::Open(*backend, path);
    ASSERT_OK(store);
    const auto verified = VerifyStore(**store, {});
    ASSERT_OK(verified);
    for (const Status& fault : verified->faults) ADD_FAILURE() << fault.ToString();
    const bool built = (*store)->manifest()->FindLayout("default") != nullptr;
    ASSERT_TRUE(built || !child.done) << "an acknowledged layout is lost";
    if (!built) {
      BuildReport report;
      ASSERT_OK(BuildLayout(**store, budget, TypedSpec(), /*resume=*/true, {}, &report));
      resumed += report.resumed;
    }
    ASSERT_TRUE(meanings(**store) == expected);
    if (child.done) break;
    ++kills;
    ASSERT_OK(DropLayout(**store, "default"));
  }
  EXPECT_GT(kills, 10U);
  EXPECT_GT(resumed, 2U);
  fmt::print("{} kills, {} traces taken over\n", kills, resumed);
}

}  // namespace
}  // namespace quarry
