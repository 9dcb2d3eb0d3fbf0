// What a pool does when the disk fails: never wrong data, the error stays, and the checkpoint before holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "quarry/io/buffer.h"
#include "small_pages.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;

constexpr uint32_t kPages = 40;

// What every page should hold: its number in the first bytes, and then what was written to it.
using Values = std::vector<uint8_t>;

Result<uint8_t> Value(BufferPool& pool, PageNumber page) {
  QUARRY_TRY(const PageGuard guard, pool.Pin(page, LatchMode::kShared));
  return std::to_integer<uint8_t>(guard.body()[100]);
}

Status Set(BufferPool& pool, PageNumber page, uint8_t value) {
  QUARRY_TRY(PageGuard guard, pool.Pin(page, LatchMode::kExclusive));
  std::ranges::fill(guard.mutable_body(), std::byte{value});
  return Status::Ok();
}

// Changes and reads random pages with a few checkpoints. `now` and `committed` are kept as it goes; a map
// whose commit was not reached was not committed. Wrong data is a failure of the test, not a Status.
Status Work(SmallPages& pages, Values& now, Values& committed) {
  Rng rng(3);
  for (int i = 0; i < 90; ++i) {
    const auto page = static_cast<PageNumber>(rng.Below(kPages));
    if (i % 10 == 0) {
      const PageNumber wanted[] = {page, (page + 7) % kPages, (page + 9) % kPages};
      QUARRY_RETURN_IF_ERROR(pages.pool->Prefetch(wanted));
    }
    QUARRY_TRY(const uint8_t value, Value(*pages.pool, page));
    EXPECT_EQ(value, now[page]) << "page " << page << " after " << i;
    const auto next = static_cast<uint8_t>(1 + rng.Below(200));
    QUARRY_RETURN_IF_ERROR(Set(*pages.pool, page, next));
    now[page] = next;
    if (i % 30 == 29) {
      QUARRY_RETURN_IF_ERROR(pages.Checkpoint());
      committed = now;
    }
  }
  return Status::Ok();
}

void ExpectCommitted(SmallPages& pages, const Values& committed) {
  ASSERT_OK(pages.Restart());
  ASSERT_OK(pages.OpenPool());
  for (PageNumber page = 0; page < kPages; ++page) {
    ASSERT_OK_AND_ASSIGN(const uint8_t value, Value(*pages.pool, page));
    ASSERT_EQ(value, committed[page]) << "page " << page;
  }
}

class BufferFaultsTest : public testing::Test {
 protected:
  // Runs the work with the plan and looks at what is left; true when the plan struck.
  bool RunWith(const FaultPlan& plan) {
    FaultBackend backend(MemoryBackend());
    SmallPages pages(backend, kPages);
    EXPECT_OK(pages.Create());
    EXPECT_OK(pages.OpenPool());
    Values now(kPages);
    for (PageNumber page = 0; page < kPages; ++page) now[page] = static_cast<uint8_t>(page + 1);
    Values committed = now;
    backend.SetPlans({plan});
    const Status status = Work(pages, now, committed);
    const bool struck = backend.strikes() > 0;
    const bool transient = plan.error == 0 || plan.error == EAGAIN || plan.error == EINTR;
    if (!struck || (transient && !plan.sticky)) {
      EXPECT_OK(status);
    }
    if (!status.ok()) CheckSticky(pages, now, plan);
    backend.SetPlans({});
    ExpectCommitted(pages, committed);
    return struck;
  }

  // What is in memory is still right; after an error of a write nothing is written any more.
  void CheckSticky(SmallPages& pages, const Values& now, const FaultPlan& plan) {
    const Status error = pages.file->write_error();
    if (plan.kind == FaultKind::kRead || plan.kind == FaultKind::kCreate) {
      EXPECT_OK(error);
    }
    if (!error.ok()) {
      EXPECT_THAT(std::string(error.message()), HasSubstr("pages.qpf"));
      EXPECT_EQ(pages.pool->Flush().message(), error.message());
      EXPECT_EQ(pages.file->WriteMap(pages.MapName(77).path, 77).message(), error.message());
      EXPECT_FALSE(std::filesystem::exists(pages.MapName(77).path));
    }
    for (PageNumber page = 0; page < kPages; ++page) {
      const Result<uint8_t> value = Value(*pages.pool, page);
      if (value.ok()) {
        EXPECT_EQ(*value, now[page]) << "page " << page;
      }
    }
  }

  void RunForEachK(FaultPlan plan) {
    for (plan.at = 1;; ++plan.at) {
      SCOPED_TRACE(testing::Message()
                   << "operation " << plan.at << " errno " << plan.error << (plan.sticky ? " sticky" : ""));
      if (!RunWith(plan) || HasFailure()) break;
      ASSERT_LT(plan.at, 1000u);
    }
    EXPECT_GT(plan.at, 1u) << "nothing struck";
  }
};

TEST_F(BufferFaultsTest, AnyWriteMayFail) {
  for (const int error : {EIO, ENOSPC}) {
    for (const bool sticky : {false, true}) {
      RunForEachK({.kind = FaultKind::kWrite, .sticky = sticky, .error = error});
    }
  }
}
TEST_F(BufferFaultsTest, AnyReadMayFail) {
  for (const bool sticky : {false, true})
    RunForEachK({.kind = FaultKind::kRead, .sticky = sticky, .error = EIO});
}
TEST_F(BufferFaultsTest, AnySyncMayFail) {
  for (const bool sticky : {false, true})
    RunForEachK({.kind = FaultKind::kSync, .sticky = sticky, .error = EIO});
}
TEST_F(BufferFaultsTest, AnyCreationMayFail) {
  for (const bool sticky : {false, true}) {
    RunForEachK({.kind = FaultKind::kCreate, .sticky = sticky, .error = ENOSPC});
  }
}
TEST_F(BufferFaultsTest, ShortAndInterruptedTransfersAreContinued) {
  for (const FaultKind kind : {FaultKind::kWrite, FaultKind::kRead}) {
    for (const int error : {0, EAGAIN, EINTR}) RunForEachK({.kind = kind, .error = error});
  }
}

TEST_F(BufferFaultsTest, AFailedSyncIsNotTriedAgainAndStopsWrites) {
  FaultBackend backend(MemoryBackend());
  SmallPages pages(backend, kPages);
  ASSERT_OK(pages.Create());
  ASSERT_OK(pages.OpenPool());
  ASSERT_OK(Set(*pages.pool, 1, 1));
  backend.SetPlans({{.kind = FaultKind::kSync, .at = 1, .error = EIO}});
  const Status error = pages.pool->Flush();
  EXPECT_THAT(error, IsStatus(Code::kIoError, HasSubstr("Input/output error")));
  const uint64_t writes = backend.count(FaultKind::kWrite);
  ASSERT_OK(Set(*pages.pool, 2, 2));
  EXPECT_EQ(pages.pool->Flush().message(), error.message());
  EXPECT_EQ(pages.file->Sync().message(), error.message());
  EXPECT_EQ(backend.count(FaultKind::kSync), 1u);
  EXPECT_EQ(backend.count(FaultKind::kWrite), writes);
}

TEST_F(BufferFaultsTest, APinThatCanHaveNoFrameAnyMoreGetsTheErrorOfTheWrite) {
  FaultBackend backend(MemoryBackend());
  SmallPages pages(backend, kPages);
  ASSERT_OK(pages.Create());
  ASSERT_OK(pages.OpenPool());
  backend.SetPlans({{.kind = FaultKind::kWrite, .at = 1, .sticky = true, .error = ENOSPC}});
  Status status;
  PageNumber page = 0;
  while (status.ok()) status = Set(*pages.pool, page++ % kPages, 9);
  EXPECT_THAT(status, IsStatus(Code::kNoSpace, HasSubstr("pages.qpf")));
  EXPECT_GE(page, pages.pool->frame_count());
  EXPECT_EQ(Value(*pages.pool, 0).value(), 9) << "what is in memory stays";
}

TEST_F(BufferFaultsTest, DamageIsReportedByPinAndNotByPrefetch) {
  SmallPages pages(MemoryBackend(), kPages);
  ASSERT_OK(pages.Create());
  ASSERT_OK(pages.OpenPool());
  for (PageNumber page = 0; page < kPages; ++page) ASSERT_OK(Set(*pages.pool, page, 5));
  ASSERT_OK(pages.Checkpoint());
  const uint32_t slot = pages.file->entry(3).slot;
  const uint64_t offset = pages.file->SlotOffset(slot);
  ASSERT_OK(pages.Restart());
  const std::vector<std::byte> damage(4096, std::byte{1});
  {
    const File file = MemoryBackend().Open(pages.spec.path, OpenMode::kReadWriteDirect).value();
    const IoBuffer buffer = IoBuffer::Allocate(4096).value();
    std::ranges::copy(damage, buffer.data());
    ASSERT_OK(MemoryBackend().WriteAt(file, offset, buffer.span()));
  }
  ASSERT_OK(pages.OpenPool());
  const PageNumber wanted[] = {2, 3, 4};
  ASSERT_OK(pages.pool->Prefetch(wanted));
  const Status status = pages.pool->Pin(3, LatchMode::kShared).status();
  EXPECT_THAT(status, IsStatus(Code::kCorruption));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("page 3, slot " + std::to_string(slot) + " (offset " + std::to_string(offset) + ")"));
  EXPECT_EQ(Value(*pages.pool, 2).value(), 5);
  EXPECT_EQ(Value(*pages.pool, 4).value(), 5);
  EXPECT_THAT(pages.pool->Pin(3, LatchMode::kExclusive), IsStatus(Code::kCorruption));
}

}  // namespace
}  // namespace quarry
