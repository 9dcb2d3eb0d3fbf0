// What the live road does when the disk fails under it, at any operation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::OpenRoad;
using testing_util::PassOutcome;
using testing_util::RunPass;
using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TryPass;

// Samples from disk, so that a pass reads the topology as well as features.
LiveRoadOptions DiskOptions() {
  LiveRoadOptions options = SmallOptions();
  options.topology_placement = LiveRoadOptions::TopologyPlacement::kDisk;
  options.sampler_threads = 2;
  options.extractor_threads = 2;
  options.spec.cache_bytes = 50 * 512;
  options.io_depth = 8;
  options.device = DeviceProfile{.sequential_bytes_per_second = 1};  // merge nothing: more operations to fail
  return options;
}

TEST(LiveFaultsTest, AnyFailingReadOfAPassReachesTheCallerAndTheNextPassIsWhole) {
  const TinyDatabase database({.nodes = 250});
  OpenRoad open(database.path(), DiskOptions());
  ASSERT_OK(open.status);
  const PassOptions pass{.seeds = database.graph().SplitNodes(Split::kValid), .ordered = true};
  const auto expected = RunPass(*open.road, pass);
  open.backend.SetPlans({});
  EXPECT_EQ(RunPass(*open.road, pass), expected);
  const uint64_t reads = open.backend.count(FaultKind::kRead);
  ASSERT_GT(reads, 50u);
  uint64_t failed = 0;
  for (uint64_t at = 1; at <= reads; ++at) {
    for (const bool sticky : {false, true}) {
      SCOPED_TRACE(testing::Message() << "read " << at << (sticky ? " and every later one" : ""));
      open.backend.SetPlans({{.kind = FaultKind::kRead, .at = at, .sticky = sticky, .error = EIO}});
      const PassOutcome outcome = TryPass(*open.road, pass);
      if (open.backend.strikes() > 0) {
        ++failed;
        ASSERT_THAT(outcome.status, IsStatus(Code::kIoError, HasSubstr(database.path())))
            << "the first error, not what followed from it";
      } else {
        EXPECT_OK(outcome.status);
      }
      for (size_t i = 0; i < outcome.hashes.size(); ++i) EXPECT_EQ(outcome.hashes[i], expected[i]);
    }
  }
  EXPECT_GT(failed, 20u);
  open.backend.SetPlans({});
  EXPECT_EQ(RunPass(*open.road, pass), expected);
}

TEST(LiveFaultsTest, ShortAndInterruptedReadsChangeNothing) {
  const TinyDatabase database({.nodes = 1500});
  OpenRoad open(database.path(), DiskOptions());
  ASSERT_OK(open.status);
  const PassOptions pass{.seeds = database.graph().SplitNodes(Split::kValid), .ordered = true};
  const auto expected = RunPass(*open.road, pass);
  for (const int error : {0, EINTR, EAGAIN}) {
    for (const uint64_t at : {1, 2, 17, 60}) {
      open.backend.SetPlans({{.kind = FaultKind::kRead, .at = at, .error = error}});
      EXPECT_EQ(RunPass(*open.road, pass), expected) << "errno " << error << " at read " << at;
      EXPECT_GT(open.backend.strikes(), 0u);
    }
  }
}

TEST(LiveFaultsTest, AnyFailingOperationWhileOpeningLeavesNothingReserved) {
  const TinyDatabase database({.nodes = 300});
  OpenRoad open(database.path(), DiskOptions());
  ASSERT_OK(open.status);
  for (const FaultKind kind : {FaultKind::kOpen, FaultKind::kRead}) {
    uint64_t at = 1;
    for (;; ++at) {
      ASSERT_LT(at, 10000u);
      SCOPED_TRACE(testing::Message() << (kind == FaultKind::kOpen ? "open " : "read ") << at);
      open.road.reset();
      ASSERT_EQ(open.budget->used_bytes(), 0u);
      open.backend.SetPlans({{.kind = kind, .at = at, .error = EIO}});
      open.Reopen(DiskOptions());
      if (open.backend.strikes() == 0) break;
      EXPECT_FALSE(open.status.ok());
      EXPECT_EQ(open.road, nullptr);
    }
    EXPECT_OK(open.status);
    EXPECT_GT(at, 3u);
  }
}

}  // namespace
}  // namespace quarry
