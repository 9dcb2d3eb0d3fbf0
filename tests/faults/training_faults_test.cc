// Embeddings and states of training runs, on a disk that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "faults/small_world.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::SmallWorld;

TEST(TrainingFaultsTest, ANewTable) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        const std::shared_ptr<const Manifest> manifest = w.store().manifest();
        const bool there = manifest->FindEmbedding("x") != nullptr;
        return there ? Status::Ok() : CreateEmbeddings(w.store(), "x", {.row_count = 10, .dim = 4});
      },
      .check =
          [](SmallWorld& w, bool done) {
            if (w.store().manifest()->FindEmbedding("x") == nullptr) {
              EXPECT_FALSE(done);
              return;
            }
            const auto opened = StoredEmbeddings::Open(w.store(), w.budget(), "x", {.memory_bytes = kMiB});
            EXPECT_OK(opened);
          },
  });
  world.Run();
}

// With write-behind under way, and states of the run in the same commits.
TEST(TrainingFaultsTest, TrainingAndItsCheckpoints) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(w.Train(8));
        return w.Train(11);
      },
      .trained = true,
  });
  world.Run();
}

// Without embeddings: the first of a run, and the one that takes its place.
TEST(TrainingFaultsTest, StatesOfARun) {
  const std::vector<std::byte> first(5000, std::byte{1}), second(9000, std::byte{2});
  const auto save = [](SmallWorld& w, const std::vector<std::byte>& state) {
    return CheckpointTraining(w.store(), {.name = "other", .timestamp = 1, .state = state},
                              [&](const ManifestChange& change) { return w.store().UpdateManifest(change); });
  };
  SmallWorld world({
      .work = [&](SmallWorld& w) -> Status {
        QUARRY_RETURN_IF_ERROR(save(w, first));
        return save(w, second);
      },
      .check =
          [&](SmallWorld& w, bool done) {
            if (w.store().manifest()->FindTraining("other") == nullptr) {
              EXPECT_FALSE(done);
              return;
            }
            ASSERT_OK_AND_ASSIGN(const auto state, ReadTrainingState(w.store(), "other"));
            EXPECT_TRUE(state == second || (state == first && !done));
          },
  });
  world.Run();
}

TEST(TrainingFaultsTest, AFailedSyncOfPagesIsNotTriedAgainAndStopsWritesUntilTheTableIsOpenedAnew) {
  SmallWorld world({.work = [](SmallWorld& w) { return w.Train(9); }, .trained = true});
  world.Fresh();
  ASSERT_OK(world.Open());
  ASSERT_OK(world.OpenTables());
  ASSERT_OK(world.tables().Train(6));
  FaultBackend& disk = world.backend();
  disk.SetPlans({{.kind = FaultKind::kSync, .at = 1, .error = EIO}});
  const Status failed = world.tables().Checkpoint(world.store(), 6);
  EXPECT_THAT(failed, IsStatus(Code::kIoError));
  EXPECT_THAT(std::string(failed.message()),
              testing::AllOf(HasSubstr("nodes-1.qet: Input/output error"),
                             HasSubstr("nothing is written any more until it is opened anew")));
  static_cast<void>(world.tables().Train(7).ok());  // of pages that are in memory
  EXPECT_EQ(world.tables().Checkpoint(world.store(), 7).message(), failed.message());
  EXPECT_EQ(disk.count(FaultKind::kSync), 1u);
  disk.SetPlans({});
  world.Close();
  ASSERT_OK(world.Open());
  world.Check(/*done=*/false);
  EXPECT_OK(world.Work());
  world.Check(/*done=*/true);
}

TEST(TrainingFaultsTest, TablesAndRunsAreDropped) {
  SmallWorld world({
      .work = [](SmallWorld& w) -> Status {
        w.tables().Close();
        const std::shared_ptr<const Manifest> manifest = w.store().manifest();
        if (manifest->FindTraining("run") != nullptr) {
          QUARRY_RETURN_IF_ERROR(DropTraining(w.store(), "run"));
        }
        if (manifest->FindEmbedding("nodes") == nullptr) return Status::Ok();
        return DropEmbeddings(w.store(), "nodes");
      },
      .check =
          [](SmallWorld& w, bool done) {
            const std::shared_ptr<const Manifest> manifest = w.store().manifest();
            EXPECT_FALSE(done && manifest->FindTraining("run") != nullptr);
            EXPECT_FALSE(done && manifest->FindEmbedding("nodes") != nullptr);
            // Removes what is left over.
            const auto other =
                StoredEmbeddings::Open(w.store(), w.budget(), "relations", {.memory_bytes = kMiB});
            EXPECT_OK(other);
          },
      .trained = true,
  });
  world.Run();
}

}  // namespace
}  // namespace quarry
