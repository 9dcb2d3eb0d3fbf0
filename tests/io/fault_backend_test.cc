#include "support/fault_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <thread>

#include "io_util.h"
#include "quarry/io/buffer.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::RandomBytes;
using testing_util::ScratchFolder;
using testing_util::WriteFile;

class FaultBackendTest : public testing::Test {
 protected:
  void SetUp() override { WriteFile(folder_.Path("f"), content_); }
  File Open(OpenMode mode = OpenMode::kReadBuffered) { return inner_->Open(folder_.Path("f"), mode).value(); }

  ScratchFolder folder_;
  const std::vector<std::byte> content_ = RandomBytes(64 << 10, 1);
  const std::unique_ptr<IoBackend> inner_ = MakeThreadBackend(2);
  FaultBackend faulty_{*inner_};
};

TEST_F(FaultBackendTest, WithoutPlansItOnlyCounts) {
  const File read = faulty_.Open(folder_.Path("f"), OpenMode::kReadBuffered).value();
  const File written = faulty_.Open(folder_.Path("g"), OpenMode::kCreate).value();
  std::vector<std::byte> out(content_.size());
  ASSERT_OK(faulty_.ReadAt(read, 0, out));
  EXPECT_EQ(out, content_);
  ASSERT_OK(faulty_.WriteAt(written, 0, content_));
  ASSERT_OK(faulty_.SyncFile(written));
  ASSERT_OK(faulty_.SyncDirectory(folder_.Path("")));
  ASSERT_OK(faulty_.Rename(folder_.Path("g"), folder_.Path("h")));
  EXPECT_EQ(faulty_.count(FaultKind::kOpen), 1u);
  EXPECT_EQ(faulty_.count(FaultKind::kCreate), 1u);
  EXPECT_EQ(faulty_.count(FaultKind::kRead), 1u);
  EXPECT_EQ(faulty_.count(FaultKind::kWrite), 1u);
  EXPECT_EQ(faulty_.count(FaultKind::kSync), 2u);
  EXPECT_EQ(faulty_.count(FaultKind::kRename), 1u);
  EXPECT_EQ(faulty_.strikes(), 0u);
}

TEST_F(FaultBackendTest, APlanStrikesItsOperationOnceOrFromThenOn) {
  const File file = Open();
  std::byte out[16];
  for (const bool sticky : {false, true}) {
    faulty_.SetPlans({{.kind = FaultKind::kRead, .at = 3, .sticky = sticky, .error = EIO}});
    std::string failed;
    for (int i = 0; i < 5; i++) failed += faulty_.ReadAt(file, 0, out).ok() ? '.' : 'x';
    EXPECT_EQ(failed, sticky ? "..xxx" : "..x..");
    EXPECT_EQ(faulty_.strikes(), sticky ? 3u : 1u);
  }
}

TEST_F(FaultBackendTest, EveryKindOfOperationCanFailWithEveryError) {
  const std::function<Status()> operations[] = {
      [&] { return faulty_.Open(folder_.Path("f"), OpenMode::kReadBuffered).status(); },
      [&] {
        const Status status = faulty_.Open(folder_.Path("c"), OpenMode::kCreate).status();
        EXPECT_EQ(std::filesystem::exists(folder_.Path("c")), status.ok());
        return status;
      },
      [&] {
        std::byte out[16];
        return faulty_.ReadAt(Open(), 0, out);
      },
      [&] {
        const File file = inner_->Open(folder_.Path("w"), OpenMode::kCreate).value();
        const Status status = faulty_.WriteAt(file, 0, content_);
        std::filesystem::remove(folder_.Path("w"));
        return status;
      },
      [&] { return faulty_.SyncFile(Open()); },
      [&] { return faulty_.Rename(folder_.Path("f"), folder_.Path("f")); },
      [&] { return faulty_.CreateDirectory(folder_.Path("d")); },
      [&] { return faulty_.Link(folder_.Path("f"), folder_.Path("l")); },
      [&] { return faulty_.Remove(folder_.Path("l")); },  // which the one before has made
  };
  static_assert(std::size(operations) == kFaultKindCount);
  for (size_t kind = 0; kind < kFaultKindCount; kind++) {
    SCOPED_TRACE(kind);
    faulty_.SetPlans({{.kind = static_cast<FaultKind>(kind), .at = 1, .error = EIO},
                      {.kind = static_cast<FaultKind>(kind), .at = 2, .error = ENOSPC}});
    EXPECT_THAT(operations[kind](), IsStatus(Code::kIoError));
    EXPECT_THAT(operations[kind](), IsStatus(Code::kNoSpace));
    EXPECT_OK(operations[kind]());
    EXPECT_EQ(faulty_.strikes(), 2u);
  }
}

TEST_F(FaultBackendTest, TruncatingAndCloningCountAsWrites) {
  const File file = faulty_.Open(folder_.Path("g"), OpenMode::kCreate).value();
  for (uint64_t at : {1, 2}) {
    faulty_.SetPlans({{.kind = FaultKind::kWrite, .at = at, .error = ENOSPC}});
    EXPECT_EQ(faulty_.Truncate(file, 10).ok(), at != 1);
    EXPECT_EQ(faulty_.Clone(Open(), file).ok(), at != 2);
    EXPECT_EQ(faulty_.strikes(), 1u);
  }
}

TEST_F(FaultBackendTest, AStruckWriteLeavesHalfOfItself) {
  const File file = inner_->Open(folder_.Path("w"), OpenMode::kCreate).value();
  faulty_.SetPlans({{.kind = FaultKind::kWrite, .at = 1, .error = ENOSPC}});
  EXPECT_THAT(faulty_.WriteAt(file, 0, content_), IsStatus(Code::kNoSpace));
  EXPECT_EQ(inner_->FileBytes(file).value(), content_.size() / 2);
}

TEST_F(FaultBackendTest, SynchronousTransfersStayWholeWhenInterrupted) {
  const File file = Open();
  for (const int error : {EINTR, EAGAIN, 0}) {
    faulty_.SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = error}});
    std::vector<std::byte> out(content_.size());
    ASSERT_OK(faulty_.ReadAt(file, 0, out));
    EXPECT_EQ(out, content_);
  }
}

TEST_F(FaultBackendTest, APortsTransfersFailOrComeBackShort) {
  const File file = Open();
  faulty_.SetPlans({{.kind = FaultKind::kRead, .at = 1, .error = EIO},
                    {.kind = FaultKind::kRead, .at = 2, .error = 0},
                    {.kind = FaultKind::kRead, .at = 3, .error = EAGAIN}});
  const std::unique_ptr<IoPort> port = faulty_.NewPort(4).value();
  std::vector<std::byte> out(4 * 4096);
  std::vector<RawRequest> requests;
  for (uint32_t i = 0; i < 4; i++) {
    requests.push_back(
        {.descriptor = file.descriptor(), .buffer = &out[i * 4096], .bytes = 4096, .user_data = i});
  }
  ASSERT_OK(port->Submit(requests));
  std::vector<RawCompletion> completions(4);
  size_t count = 0;
  while (count < 4) count += port->Wait(1, std::span(completions).subspan(count)).value();
  std::ranges::sort(completions, {}, &RawCompletion::user_data);
  EXPECT_EQ(completions[0].result, -EIO);
  EXPECT_EQ(completions[1].result, 2048);
  EXPECT_EQ(completions[2].result, -EAGAIN);
  EXPECT_EQ(completions[3].result, 4096);
}

TEST_F(FaultBackendTest, CountsHoldWithManyThreads) {
  const File file = Open();
  faulty_.SetPlans({{.kind = FaultKind::kRead, .at = 101, .sticky = true, .error = EIO}});
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      std::byte out[16];
      for (int i = 0; i < 50; i++) failures += faulty_.ReadAt(file, 0, out).ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 100);
  EXPECT_EQ(faulty_.strikes(), 100u);
}

}  // namespace
}  // namespace quarry
