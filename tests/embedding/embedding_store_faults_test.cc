// Whatever the disk fails at, a restart finds a checkpoint: the last that succeeded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "embedding/trained_tables.h"
#include "quarry/io/fault_backend.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::SizeIs;
using testing_util::FaultsOf;
using testing_util::FilesIn;
using testing_util::TrainedTables;

class EmbeddingStoreFaultsTest : public testing::Test {
 protected:
  // The database that every run begins with: a checkpoint at 19.
  void SetUp() override {
    ASSERT_TRUE(testing_util::CreateEmptyDatabase(*real_, empty_).ok());
    fs::copy(empty_, trained_, fs::copy_options::recursive);
    const auto store = Store::Open(*real_, trained_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    TrainedTables tables(kSeed);
    ASSERT_TRUE(tables.Create(**store).ok());
    ASSERT_TRUE(tables.Open(**store).ok());
    for (int64_t now = 0; now < 20; ++now) ASSERT_TRUE(tables.Train(now).ok());
    ASSERT_TRUE(tables.Checkpoint(**store, 19).ok());
    for (size_t i = 0; i < options_.size(); ++i) {
      options_[i] = testing_util::FewFrames(**store, TrainedTables::kNames[i]);
    }
  }

  void Begin(const std::string& from) {
    fs::remove_all(path_);
    fs::copy(from, path_, fs::copy_options::recursive);
  }

  // Opens, trains and makes two checkpoints, the last of which has succeeded in the end.
  Status Work(Store& store, int64_t& checkpoint) {
    TrainedTables tables(kSeed);
    QUARRY_RETURN_IF_ERROR(tables.Open(store, options_));
    for (int64_t now = 20; now < 29; ++now) {
      QUARRY_RETURN_IF_ERROR(tables.Train(now));
      if (now % 4 != 3) continue;  // 23, 27
      Status status = tables.Checkpoint(store, now);
      // What was no error of a write, another try may bring about.
      if (!status.ok()) status = tables.Checkpoint(store, now);
      QUARRY_RETURN_IF_ERROR(status);
      checkpoint = now;
    }
    return Status::Ok();
  }

  // True when the plan struck. Half a transfer (no error) is no failure: the rest follows.
  bool RunWith(const FaultPlan& plan) {
    Begin(trained_);
    int64_t checkpoint = 19;
    bool struck = false;
    {
      FaultBackend backend(*real_);
      const auto store = Store::Open(backend, path_);
      EXPECT_TRUE(store.ok()) << store.status().ToString();
      backend.SetPlans({plan});
      const Status status = Work(**store, checkpoint);
      struck = backend.strikes() > 0;
      EXPECT_TRUE((struck && plan.error != 0) || status.ok()) << status.ToString();
    }
    ExpectCheckpoint(checkpoint);
    return struck;
  }

  void ExpectCheckpoint(int64_t checkpoint) {
    const auto store = Store::Open(*real_, path_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    EXPECT_THAT(FaultsOf(**store), IsEmpty()) << "before anything is repaired";
    TrainedTables tables(kSeed);
    const Status status = tables.Open(**store, options_);
    ASSERT_TRUE(status.ok()) << status.ToString();
    tables.ExpectState(**store, checkpoint, tables.WritesUpTo(checkpoint));
    EXPECT_THAT(FilesIn(path_ + "/embeddings"), SizeIs(4)) << "what was left over is gone";
  }

  template <typename Run>
  void ForEachK(FaultPlan plan, const Run& run, uint64_t step = 1) {
    for (plan.at = 1;; plan.at += step) {
      SCOPED_TRACE(testing::Message() << "operation " << plan.at << (plan.sticky ? " and later" : ""));
      if (!run(plan) || HasFailure()) break;
      ASSERT_LT(plan.at, 500u);
    }
    EXPECT_GT(plan.at, 1u) << "nothing struck";
  }
  void RunForEachK(const FaultPlan& plan, uint64_t step = 1) {
    ForEachK(
        plan, [&](const FaultPlan& at) { return RunWith(at); }, step);
  }

  static constexpr uint64_t kSeed = 4;
  const testing_util::ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::string empty_ = folder_.path() + "/empty", trained_ = folder_.path() + "/trained",
                    path_ = folder_.path() + "/db";
  const std::unique_ptr<IoBackend> real_ = MakeDefaultBackend();
  std::array<BufferPoolOptions, TrainedTables::kTables> options_;
};

TEST_F(EmbeddingStoreFaultsTest, AnyOpenMayFail) {
  RunForEachK({.kind = FaultKind::kOpen, .error = EIO});
  RunForEachK({.kind = FaultKind::kOpen, .sticky = true, .error = EIO});
}
TEST_F(EmbeddingStoreFaultsTest, AnyWriteMayFail) {
  for (const int error : {EIO, ENOSPC}) {
    RunForEachK({.kind = FaultKind::kWrite, .error = error});
    RunForEachK({.kind = FaultKind::kWrite, .sticky = true, .error = error}, 3);
  }
}
TEST_F(EmbeddingStoreFaultsTest, AnySyncMayFail) {
  RunForEachK({.kind = FaultKind::kSync, .error = EIO});
  RunForEachK({.kind = FaultKind::kSync, .sticky = true, .error = EIO});
}
TEST_F(EmbeddingStoreFaultsTest, AnyReadMayFail) {
  RunForEachK({.kind = FaultKind::kRead, .error = EIO});
  RunForEachK({.kind = FaultKind::kRead, .sticky = true, .error = EIO});
}
TEST_F(EmbeddingStoreFaultsTest, AnyTransferMayBeShort) {
  RunForEachK({.kind = FaultKind::kRead, .error = 0}, 5);
  RunForEachK({.kind = FaultKind::kWrite, .error = 0}, 5);
}

TEST_F(EmbeddingStoreFaultsTest, ACreationThatFailsLeavesNothingInTheWay) {
  for (const FaultKind kind : {FaultKind::kOpen, FaultKind::kWrite, FaultKind::kSync}) {
    ForEachK({.kind = kind, .error = EIO}, [&](const FaultPlan& plan) {
      Begin(empty_);
      FaultBackend backend(*real_);
      const auto store = Store::Open(backend, path_);
      EXPECT_TRUE(store.ok()) << store.status().ToString();
      backend.SetPlans({plan});
      const Status status = CreateEmbeddings(**store, "x", {.row_count = 10, .dim = 4});
      const bool struck = backend.strikes() > 0;
      backend.SetPlans({});
      EXPECT_EQ(status.ok(), !struck) << status.ToString();
      EXPECT_THAT(FaultsOf(**store), IsEmpty());
      if (!status.ok()) {
        EXPECT_EQ((*store)->manifest().FindEmbedding("x"), nullptr);
        EXPECT_TRUE(CreateEmbeddings(**store, "x", {.row_count = 10, .dim = 4}).ok());
      }
      return struck;
    });
  }
}

TEST_F(EmbeddingStoreFaultsTest, ADropThatFailsLeavesTheTable) {
  Begin(trained_);
  {
    FaultBackend backend(*real_);
    const auto store = Store::Open(backend, path_);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    backend.SetPlans({{.kind = FaultKind::kOpen, .at = 1, .error = EIO}});
    EXPECT_EQ(DropEmbeddings(**store, "nodes").code(), Code::kIoError);
  }
  ExpectCheckpoint(19);
}

}  // namespace
}  // namespace quarry
