#include "quarry/io/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <thread>

#include "io_util.h"
#include "quarry/base/units.h"
#include "quarry/io/buffer.h"
#include "support/fault_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::MakeBackend;
using testing_util::RandomBytes;
using testing_util::ScratchFolder;
using testing_util::WriteFile;

constexpr uint32_t kBlockBytes = 4096;  // on any device
constexpr uint64_t kFileBytes = 4 * kMiB;

class RingTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    inner_ = MakeBackend(GetParam());
    if (!inner_) GTEST_SKIP() << "the kernel refuses io_uring";
    backend_ = std::make_unique<FaultBackend>(*inner_);
    WriteFile(folder_.Path("f"), content_);
    direct_ = backend_->Open(folder_.Path("f"), OpenMode::kReadDirect).value();
    buffered_ = backend_->Open(folder_.Path("f"), OpenMode::kReadBuffered).value();
  }

  ReadRequest Request(uint64_t offset, uint32_t bytes, std::byte* buffer) {
    return {.file = &direct_, .offset = offset, .bytes = bytes, .buffer = buffer};
  }

  ScratchFolder folder_;
  const std::vector<std::byte> content_ = RandomBytes(kFileBytes, 7);
  std::unique_ptr<IoBackend> inner_;
  std::unique_ptr<FaultBackend> backend_;
  File direct_, buffered_;
};
INSTANTIATE_TEST_SUITE_P(Backends, RingTest, testing::Values("io_uring", "threads"),
                         testing_util::NameOfParameter);

// Random requests, direct and buffered, handed over in portions of any size: each completes once, with the
// bytes that the file has there.
void CheckRandomReads(IoRing& ring, const File& direct, const File& buffered,
                      const std::vector<std::byte>& content, Rng& rng) {
  constexpr uint32_t kPieceBytes = 64 * kKiB;
  const size_t count = 1 + rng.Below(60);
  const IoBuffer buffer = IoBuffer::Allocate(count * kPieceBytes).value();
  std::vector<ReadRequest> requests(count);
  for (size_t i = 0; i < count; i++) {
    ReadRequest& r = requests[i];
    const bool is_direct = rng.Below(3) > 0;
    r.file = is_direct ? &direct : &buffered;
    const uint64_t step_bytes = is_direct ? kBlockBytes : 1;
    r.bytes = static_cast<uint32_t>((1 + rng.Below(kPieceBytes / step_bytes)) * step_bytes);
    r.offset = rng.Below((content.size() - r.bytes) / step_bytes + 1) * step_bytes;
    r.buffer = buffer.data() + i * kPieceBytes;
    r.user_data = i;
  }
  std::vector<uint64_t> done;
  for (size_t next = 0; next < count || ring.pending() > 0;) {
    if (next < count && rng.Below(2) == 0) {
      const size_t portion = std::min<size_t>(count - next, 1 + rng.Below(20));
      ASSERT_OK(ring.Submit(std::span(requests).subspan(next, portion)));
      next += portion;
    } else {
      const Status status = ring.Wait(done);
      ASSERT_OK(status);
    }
  }
  std::ranges::sort(done);
  ASSERT_EQ(done.size(), count);
  for (size_t i = 0; i < count; i++) {
    ASSERT_EQ(done[i], i);
    const ReadRequest& r = requests[i];
    ASSERT_TRUE(std::equal(r.buffer, r.buffer + r.bytes, content.begin() + static_cast<ptrdiff_t>(r.offset)))
        << r.bytes << " bytes at " << r.offset;
  }
}

TEST_P(RingTest, RandomReadsGiveTheFilesBytesWhateverIsShortInterruptedOrRefusedForNow) {
  for (uint64_t seed = 1; seed <= 40; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<FaultPlan> plans(rng.Below(30));
    for (FaultPlan& plan : plans) {
      constexpr int kErrors[] = {0, EINTR, EAGAIN};
      plan = {.kind = FaultKind::kRead, .at = 1 + rng.Below(100), .error = kErrors[rng.Below(3)]};
    }
    backend_->SetPlans(plans);
    const std::unique_ptr<IoRing> ring =
        IoRing::Make(*backend_, static_cast<unsigned>(1 + rng.Below(32))).value();
    CheckRandomReads(*ring, direct_, buffered_, content_, rng);
    if (HasFatalFailure()) return;
    EXPECT_EQ(ring->stats().retries, backend_->strikes());
    EXPECT_EQ(backend_->count(FaultKind::kRead), ring->stats().requests + ring->stats().retries);
  }
}

// As io_uring does with what would block when it has no worker for it.
TEST_P(RingTest, ReadsThatTheKernelGivesUpAreDoneByTheCaller) {
  Rng rng(1);
  backend_->SetPlans({{.kind = FaultKind::kRead, .at = 3, .sticky = true, .error = ECANCELED}});
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 16).value();
  CheckRandomReads(*ring, direct_, buffered_, content_, rng);
  EXPECT_GT(backend_->strikes(), 5U);
}

// Random pieces of a new file, written in any order while transfers are short, interrupted or refused for
// now.
TEST_P(RingTest, RandomWritesLeaveTheirBytesWhateverIsShortInterruptedOrRefusedForNow) {
  constexpr uint32_t kPieceBytes = 4 * kBlockBytes;
  for (uint64_t seed = 1; seed <= 20; seed++) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::vector<FaultPlan> plans(rng.Below(20));
    for (FaultPlan& plan : plans) {
      constexpr int kErrors[] = {0, EINTR, EAGAIN};
      plan = {.kind = FaultKind::kWrite, .at = 1 + rng.Below(60), .error = kErrors[rng.Below(3)]};
    }
    backend_->SetPlans(plans);
    const size_t count = 1 + rng.Below(40);
    const std::string path = folder_.Path("w" + std::to_string(seed));
    const File file = inner_->Open(path, OpenMode::kCreateDirect).value();
    const IoBuffer buffer = IoBuffer::Allocate(count * kPieceBytes).value();
    const auto bytes = RandomBytes(count * kPieceBytes, seed);
    std::ranges::copy(bytes, buffer.data());
    std::vector<IoRequest> requests;
    for (size_t i = 0; i < count; i++) {
      requests.push_back({.file = &file,
                          .offset = i * kPieceBytes,
                          .bytes = kPieceBytes,
                          .buffer = buffer.data() + i * kPieceBytes,
                          .user_data = i,
                          .kind = RawRequest::Kind::kWrite});
    }
    std::shuffle(requests.begin(), requests.end(), rng);
    const std::unique_ptr<IoRing> ring =
        IoRing::Make(*backend_, static_cast<unsigned>(1 + rng.Below(16))).value();
    ASSERT_OK(ring->Submit(requests));
    std::vector<uint64_t> done;
    while (ring->pending() > 0) ASSERT_OK(ring->Wait(done));
    EXPECT_EQ(done.size(), count);
    EXPECT_EQ(ring->stats().retries, backend_->strikes());
    std::vector<std::byte> found(bytes.size());
    ASSERT_OK(inner_->ReadAt(inner_->Open(path, OpenMode::kReadBuffered).value(), 0, found));
    EXPECT_EQ(found, bytes);
  }
}

TEST_P(RingTest, AnErrorOfAWriteNamesThePlaceAndLeavesHalfOfIt) {
  const File file = inner_->Open(folder_.Path("w"), OpenMode::kCreateDirect).value();
  const IoBuffer buffer = IoBuffer::Allocate(4 * kBlockBytes).value();
  std::ranges::fill(buffer.span(), std::byte{5});
  backend_->SetPlans({{.kind = FaultKind::kWrite, .at = 1, .error = ENOSPC}});
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 4).value();
  const IoRequest request = {.file = &file,
                             .offset = kBlockBytes,
                             .bytes = 4 * kBlockBytes,
                             .buffer = buffer.data(),
                             .kind = RawRequest::Kind::kWrite};
  ASSERT_OK(ring->Submit({&request, 1}));
  std::vector<uint64_t> done;
  const Status status = ring->Wait(done);
  EXPECT_THAT(status,
              IsStatus(Code::kNoSpace, HasSubstr("write 16384 bytes at offset 4096 of " + file.path())));
  EXPECT_THAT(ring->Submit({&request, 1}), IsStatus(Code::kNoSpace)) << "poisoned";
  EXPECT_EQ(inner_->FileBytes(file).value(), 3 * kBlockBytes);
}

TEST_P(RingTest, ATransferThatShrinksToNothingIsGivenUp) {
  backend_->SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = 0}});
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 4).value();
  const IoBuffer buffer = IoBuffer::Allocate(256 * kKiB).value();
  ReadRequest request = Request(0, 256 * kKiB, buffer.data());
  request.file = &buffered_;
  ASSERT_OK(ring->Submit({&request, 1}));
  std::vector<uint64_t> done;
  const Status status = ring->Wait(done);
  // Halves of halves: what is left falls below two blocks, where a short transfer is none at all.
  EXPECT_THAT(status, IsStatus(Code::kIoError));
  EXPECT_GT(ring->stats().retries, IoRing::kRetriesMax);
}

TEST_P(RingTest, AnErrorAtAnyReadReachesTheCallerAndNamesThePlace) {
  for (uint64_t at = 1; at <= 20; at++) {
    SCOPED_TRACE(at);
    backend_->SetPlans({{.kind = FaultKind::kRead, .at = at, .error = EIO}});
    const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 4).value();
    const IoBuffer buffer = IoBuffer::Allocate(20 * kBlockBytes).value();
    std::vector<ReadRequest> requests;
    for (uint32_t i = 0; i < 20; i++) {
      requests.push_back(Request(i * kBlockBytes, kBlockBytes, buffer.data() + i * kBlockBytes));
    }
    ASSERT_OK(ring->Submit(requests));
    std::vector<uint64_t> done;
    Status status;
    while (status.ok() && ring->pending() > 0) status = ring->Wait(done);
    EXPECT_THAT(status, IsStatus(Code::kIoError, HasSubstr("4096 bytes at offset")));
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.Path("f")));
    EXPECT_LT(done.size(), 20u);
    EXPECT_THAT(ring->Submit(requests), IsStatus(Code::kIoError)) << "poisoned";
    EXPECT_THAT(ring->Wait(done), IsStatus(Code::kIoError)) << "poisoned";
    ring->Drain();
    EXPECT_EQ(ring->pending(), 0u);
  }
}

TEST_P(RingTest, ATransferThatNeverGetsAnywhereIsGivenUp) {
  for (const int error : {EAGAIN, EINTR}) {
    backend_->SetPlans({{.kind = FaultKind::kRead, .at = 1, .sticky = true, .error = error}});
    const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 1).value();
    const IoBuffer buffer = IoBuffer::Allocate(kBlockBytes).value();
    const ReadRequest request = Request(0, kBlockBytes, buffer.data());
    ASSERT_OK(ring->Submit({&request, 1}));
    std::vector<uint64_t> done;
    EXPECT_THAT(ring->Wait(done), IsStatus(Code::kIoError));
    EXPECT_EQ(backend_->count(FaultKind::kRead), IoRing::kRetriesMax + 1);
  }
}

TEST_P(RingTest, ReadingPastTheEndIsCorruption) {
  for (const File* file : {&direct_, &buffered_}) {
    for (const uint64_t offset : {kFileBytes, kFileBytes - kBlockBytes, 4 * kFileBytes}) {
      SCOPED_TRACE(offset);
      const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 1).value();
      const IoBuffer buffer = IoBuffer::Allocate(2 * kBlockBytes).value();
      ReadRequest request = Request(offset, 2 * kBlockBytes, buffer.data());
      request.file = file;
      ASSERT_OK(ring->Submit({&request, 1}));
      std::vector<uint64_t> done;
      const Status status = ring->Wait(done);
      EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("ends at offset")));
    }
  }
}

TEST_P(RingTest, AFileThatEndsInTheMiddleOfABlockIsFound) {
  WriteFile(folder_.Path("g"), RandomBytes(kBlockBytes + 100, 1));
  const File file = backend_->Open(folder_.Path("g"), OpenMode::kReadDirect).value();
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 1).value();
  const IoBuffer buffer = IoBuffer::Allocate(2 * kBlockBytes).value();
  const ReadRequest request = {.file = &file, .bytes = 2 * kBlockBytes, .buffer = buffer.data()};
  ASSERT_OK(ring->Submit({&request, 1}));
  std::vector<uint64_t> done;
  const Status status = ring->Wait(done);
  EXPECT_THAT(status, IsStatus(Code::kCorruption, HasSubstr("ends at offset 4196, but 8192 bytes")));
}

TEST_P(RingTest, WaitingForNothingReturnsAtOnce) {
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 4).value();
  std::vector<uint64_t> done;
  EXPECT_OK(ring->Wait(done));
  EXPECT_OK(ring->Submit({}));
  EXPECT_OK(ring->Wait(done));
  EXPECT_TRUE(done.empty());
}

TEST_P(RingTest, ADrainedRingForgetsWhatWasQueuedAndGoesOn) {
  const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 2).value();
  const IoBuffer buffer = IoBuffer::Allocate(kBlockBytes * 32).value();
  std::vector<ReadRequest> requests;
  for (uint32_t i = 0; i < 32; i++)
    requests.push_back(Request(0, kBlockBytes, buffer.data() + i * kBlockBytes));
  ASSERT_OK(ring->Submit(requests));
  EXPECT_EQ(ring->pending(), 32u);
  ring->Drain();
  EXPECT_EQ(ring->pending(), 0u);
  EXPECT_EQ(backend_->count(FaultKind::kRead), 2u) << "no more than the depth was ever submitted";
  Rng rng(3);
  CheckRandomReads(*ring, direct_, buffered_, content_, rng);
}

TEST_P(RingTest, RingsOfSeveralThreadsShareABackend) {
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= 4; seed++) {
    threads.emplace_back([this, seed] {
      SCOPED_TRACE(seed);
      Rng rng(seed);
      const std::unique_ptr<IoRing> ring = IoRing::Make(*backend_, 8).value();
      for (int round = 0; round < 5; round++) CheckRandomReads(*ring, direct_, buffered_, content_, rng);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A backend whose port completes every read at once with zeros, watches the depth and can fail.
class WatchedPort final : public IoPort {
 public:
  struct Watch {
    size_t in_flight_max = 0;
    size_t submit_failure_at = SIZE_MAX;  // requests until Submit fails, having taken those before
    bool wait_fails = false;
    uint32_t first_bytes_max = UINT32_MAX;  // the first request gets no more than this
    size_t taken = 0;
    std::vector<uint64_t> offsets;
  };
  explicit WatchedPort(Watch& watch) : watch_(watch) {}
  Status Submit(std::span<const RawRequest> requests) override {
    for (const RawRequest& request : requests) {
      if (watch_.taken == watch_.submit_failure_at) return Status(Code::kIoError, "submission refused");
      const uint32_t bytes_max = watch_.taken++ == 0 ? watch_.first_bytes_max : UINT32_MAX;
      watch_.offsets.push_back(request.offset);
      completions_.push_back({request.user_data, static_cast<int32_t>(std::min(request.bytes, bytes_max))});
    }
    watch_.in_flight_max = std::max(watch_.in_flight_max, completions_.size());
    return Status::Ok();
  }
  Result<size_t> Wait(size_t, std::span<RawCompletion> out) override {
    if (watch_.wait_fails) return Status(Code::kIoError, "waiting refused");
    const size_t count = std::min<size_t>(completions_.size(), std::min<size_t>(out.size(), 2));
    std::copy_n(completions_.begin(), count, out.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

 private:
  Watch& watch_;
  std::vector<RawCompletion> completions_;
};

class WatchedBackend final : public IoBackend {
 public:
  WatchedPort::Watch watch;
  std::string_view name() const override { return "watched"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned) override {
    return std::unique_ptr<IoPort>(std::make_unique<WatchedPort>(watch));
  }
  Result<File> Open(const std::string&, OpenMode) override { return Unused(); }
  Result<uint64_t> FileBytes(const File&) override { return Unused(); }
  Status ReadAt(const File&, uint64_t, std::span<std::byte>) override { return Unused(); }
  Status WriteAt(const File&, uint64_t, std::span<const std::byte>) override { return Unused(); }
  Status Truncate(const File&, uint64_t) override { return Unused(); }
  Result<bool> Clone(const File&, const File&) override { return Unused(); }
  Status SyncFile(const File&) override { return Unused(); }
  Status SyncDirectory(const std::string&) override { return Unused(); }
  Status CreateDirectory(const std::string&) override { return Unused(); }
  Status Link(const std::string&, const std::string&) override { return Unused(); }
  Status Remove(const std::string&) override { return Unused(); }
  Status Rename(const std::string&, const std::string&) override { return Unused(); }

 private:
  static Status Unused() { return Status(Code::kInternal, "not used here"); }
};

TEST(RingDepthTest, NoMoreThanTheDepthIsEverInFlight) {
  const File file;
  std::byte buffer[512];
  const std::vector<ReadRequest> requests(100, {.file = &file, .bytes = 512, .buffer = buffer});
  for (const unsigned depth : {1U, 5U, 64U, 200U}) {
    WatchedBackend backend;
    const std::unique_ptr<IoRing> ring = IoRing::Make(backend, depth).value();
    ASSERT_OK(ring->Submit(requests));
    std::vector<uint64_t> done;
    while (ring->pending() > 0) ASSERT_OK(ring->Wait(done));
    EXPECT_EQ(done.size(), 100u);
    EXPECT_EQ(backend.watch.in_flight_max, std::min(depth, 100U));
  }
}

TEST(RingDepthTest, AShortDirectReadGoesOnAtABlockAndABufferedOneWhereItStopped) {
  for (const bool direct : {true, false}) {
    WatchedBackend backend;
    backend.watch.first_bytes_max = 5000;
    const File file(-1, "f", direct);
    std::vector<std::byte> buffer(4 * kBlockBytes);
    const std::unique_ptr<IoRing> ring = IoRing::Make(backend, 1).value();
    const ReadRequest request = {
        .file = &file, .offset = 512, .bytes = 4 * kBlockBytes, .buffer = buffer.data()};
    ASSERT_OK(ring->Submit({&request, 1}));
    std::vector<uint64_t> done;
    ASSERT_OK(ring->Wait(done));
    EXPECT_THAT(backend.watch.offsets, testing::ElementsAre(512, 512 + (direct ? 4096 : 5000)));
  }
}

TEST(RingDepthTest, APortThatFailsIsReportedAndTheRingDrains) {
  const File file;
  std::byte buffer[512];
  const std::vector<ReadRequest> requests(20, {.file = &file, .bytes = 512, .buffer = buffer});
  for (size_t at = 0; at < 20; at++) {
    SCOPED_TRACE(at);
    WatchedBackend backend;
    backend.watch.submit_failure_at = at;
    const std::unique_ptr<IoRing> ring = IoRing::Make(backend, 8).value();
    Status status = ring->Submit(requests);
    EXPECT_EQ(status.ok(), at >= 8);
    std::vector<uint64_t> done;
    while (status.ok()) status = ring->Wait(done);
    EXPECT_EQ(status.message(), "submission refused");
    ring->Drain();
    EXPECT_EQ(ring->pending(), 0u);
    EXPECT_EQ(ring->Submit(requests).message(), "submission refused");
  }
  WatchedBackend backend;
  backend.watch.wait_fails = true;
  const std::unique_ptr<IoRing> ring = IoRing::Make(backend, 8).value();
  ASSERT_OK(ring->Submit(requests));
  std::vector<uint64_t> done;
  EXPECT_EQ(ring->Wait(done).message(), "waiting refused");
  ring->Drain();
  EXPECT_EQ(ring->pending(), 0u);
}

}  // namespace
}  // namespace quarry
