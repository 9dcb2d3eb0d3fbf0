#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>

#include "small_pages.h"
#include "support/backend_wrapper.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

constexpr size_t kCounters = 8;  // in a page, from its first byte on

uint64_t Load(std::span<const std::byte> body, size_t counter) {
  uint64_t value = 0;
  std::memcpy(&value, &body[counter * sizeof(value)], sizeof(value));
  return value;
}
void Store(std::span<std::byte> body, size_t counter, uint64_t value) {
  std::memcpy(&body[counter * sizeof(value)], &value, sizeof(value));
}

// Several threads add to all counters of random pages, or see that the counters of a page are equal, while
// pages come and go, are written behind and flushed.
void Hammer(BufferPool& pool, uint32_t page_count, uint64_t seed, int operations,
            std::atomic<uint64_t>& added) {
  Rng rng(seed);
  for (int i = 0; i < operations; ++i) {
    const auto page = static_cast<PageNumber>(rng.Below(page_count));
    if (rng.Below(8) == 0) {
      const PageNumber wanted[] = {page, (page + 1) % page_count, (page + 2) % page_count};
      ASSERT_OK(pool.Prefetch(wanted));
    }
    if (rng.Below(2) == 0) {
      PageGuard guard = pool.Pin(page, LatchMode::kExclusive).value();
      const std::span<std::byte> body = guard.mutable_body();
      for (size_t c = 0; c < kCounters; ++c) Store(body, c, Load(body, c) + 1);
      ++added;
    } else {
      const PageGuard guard = pool.Pin(page, LatchMode::kShared).value();
      for (size_t c = 1; c < kCounters; ++c) ASSERT_EQ(Load(guard.body(), c), Load(guard.body(), 0));
    }
  }
}

uint64_t Sum(BufferPool& pool, uint32_t page_count) {
  uint64_t sum = 0;
  for (PageNumber page = 0; page < page_count; ++page) {
    sum += Load(pool.Pin(page, LatchMode::kShared).value().body(), 0);
  }
  return sum;
}

TEST(BufferConcurrencyTest, NoAdditionIsLostAndNoHalfOfOneIsSeen) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    SmallPages pages(DiskBackend(), 60);
    ASSERT_OK(pages.Create());
    BufferPoolOptions options{.dirty_high = 0.2, .dirty_low = 0.1};
    options.memory_bytes = BufferPool::BytesMin(*pages.file);
    pages.pool = BufferPool::Make(DiskBackend(), *pages.file, pages.budget, options, nullptr).value();
    std::atomic<uint64_t> added{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] { Hammer(*pages.pool, 60, MixSeed(seed, t), 2000, added); });
    }
    for (int i = 0; i < 3; ++i) ASSERT_OK(pages.pool->Flush());
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(Sum(*pages.pool, 60), added);
    EXPECT_GT(pages.pool->stats().pages_written, 0u);
    ASSERT_OK(pages.Checkpoint());
    ASSERT_OK(pages.Restart());
    ASSERT_OK(pages.OpenPool());
    EXPECT_EQ(Sum(*pages.pool, 60), added);
  }
}

// Those who share a page and guard its parts by latches of their own lose nothing either.
TEST(BufferConcurrencyTest, SharedWritersOfPartsLoseNothing) {
  SmallPages pages(DiskBackend(), 40);
  ASSERT_OK(pages.Create());
  BufferPoolOptions options{.dirty_high = 0.1, .dirty_low = 0};
  options.memory_bytes = BufferPool::BytesMin(*pages.file);
  pages.pool = BufferPool::Make(DiskBackend(), *pages.file, pages.budget, options, nullptr).value();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) {
        PageGuard guard = pages.pool->Pin(static_cast<PageNumber>(i % 40), LatchMode::kShared).value();
        const std::span<std::byte> body = guard.shared_mutable_body();
        Store(body, t, Load(body, t) + 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(pages.Checkpoint());
  ASSERT_OK(pages.Restart());
  ASSERT_OK(pages.OpenPool());
  for (PageNumber page = 0; page < 40; ++page) {
    const PageGuard guard = pages.pool->Pin(page, LatchMode::kShared).value();
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(Load(guard.body(), t), 25u) << page;
  }
}

// A backend that counts reads, and keeps them back while they are blocked; so its ports do with writes.
class GatedBackend final : public BackendWrapper {
 public:
  explicit GatedBackend(IoBackend& inner) : BackendWrapper(inner) {}
  void BlockReads() { Block(reads_blocked_, true); }
  void ReleaseReads() { Block(reads_blocked_, false); }
  void BlockWrites() { Block(writes_blocked_, true); }
  void ReleaseWrites() { Block(writes_blocked_, false); }
  uint64_t reads() const { return reads_; }

  std::string_view name() const override { return "gated"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override {
    QUARRY_TRY(std::unique_ptr<IoPort> port, inner().NewPort(depth));
    return std::unique_ptr<IoPort>(std::make_unique<Port>(*this, std::move(port)));
  }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    ++reads_;
    Await(reads_blocked_);
    return inner().ReadAt(file, offset, out);
  }

 private:
  class Port final : public IoPort {
   public:
    Port(GatedBackend& backend, std::unique_ptr<IoPort> inner)
        : backend_(backend), inner_(std::move(inner)) {}
    Status Submit(std::span<const RawRequest> requests) override {
      for (const RawRequest& request : requests) {
        if (request.kind == RawRequest::Kind::kWrite) has_writes_ = true;
      }
      return inner_->Submit(requests);
    }
    Result<size_t> Wait(size_t count_min, std::span<RawCompletion> out) override {
      if (has_writes_) backend_.Await(backend_.writes_blocked_);
      return inner_->Wait(count_min, out);
    }

   private:
    GatedBackend& backend_;
    const std::unique_ptr<IoPort> inner_;
    bool has_writes_ = false;
  };

  void Block(bool& blocked, bool value) {
    const std::lock_guard lock(mutex_);
    blocked = value;
    released_.notify_all();
  }
  void Await(const bool& blocked) {
    std::unique_lock lock(mutex_);
    released_.wait(lock, [&] { return !blocked; });
  }

  std::atomic<uint64_t> reads_{0};
  std::mutex mutex_;
  std::condition_variable released_;
  bool reads_blocked_ = false;
  bool writes_blocked_ = false;
};

class GatedPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(pages_.Create());
    ASSERT_OK(pages_.OpenPool());
    for (PageNumber page = 0; page < 64; ++page) Write(page, 1);
    ASSERT_OK(pages_.Checkpoint());
  }
  void TearDown() override { backend_.ReleaseWrites(); }
  void Write(PageNumber page, uint8_t value) {
    pages_.pool->Pin(page, LatchMode::kExclusive).value().mutable_body()[0] = std::byte{value};
  }
  bool Holds(PageNumber page, uint8_t value) {
    return pages_.pool->Pin(page, LatchMode::kShared).value().body()[0] == std::byte{value};
  }

  GatedBackend backend_{DiskBackend()};
  SmallPages pages_{backend_};
};

bool HasEnded(const std::future<Status>& work) {
  return work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST_F(GatedPoolTest, NoReaderWaitsForAWriteThatItDoesNotNeed) {
  backend_.BlockWrites();
  const uint32_t frames = pages_.pool->frame_count();
  for (PageNumber page = 0; page < frames - 2; ++page) Write(page, 2);  // far above the high-water mark
  auto done = std::async(std::launch::async, [&] {
    for (PageNumber page = 0; page < frames - 2; ++page) EXPECT_TRUE(Holds(page, 2)) << "resident";
    for (PageNumber page = frames; page < 64; ++page)
      EXPECT_TRUE(Holds(page, 1)) << "read into a clean frame";
    for (PageNumber page = 0; page < frames - 2; ++page)
      Write(page, 3);  // also those whose write is on the way
    const PageNumber wanted[] = {20, 21, 22, 23, 24};
    EXPECT_OK(pages_.pool->Prefetch(wanted));
  });
  done.get();
  Write(60, 3);
  Write(61, 3);
  std::atomic<bool> pinned{false};
  std::thread reader([&] {
    EXPECT_TRUE(Holds(62, 1));
    pinned = true;
  });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(pinned) << "all frames are dirty";
  backend_.ReleaseWrites();
  reader.join();
  for (PageNumber page = 0; page < frames - 2; ++page) EXPECT_TRUE(Holds(page, 3));
  EXPECT_GT(pages_.pool->stats().frame_wait_seconds, 0);
}

TEST_F(GatedPoolTest, AFlushWaitsForWhatIsOnTheWayAndForThePageAsItIsNow) {
  backend_.BlockWrites();
  const uint32_t frames = pages_.pool->frame_count();
  for (PageNumber page = 0; page < frames - 2; ++page) Write(page, 2);
  testing_util::WaitUntilAllSleep();  // copies are on the way
  for (PageNumber page = 0; page < frames - 2; ++page) Write(page, 3);
  auto flushed = std::async(std::launch::async, [&] { return pages_.pool->Flush(); });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(HasEnded(flushed));
  backend_.ReleaseWrites();
  ASSERT_OK(flushed.get());
  EXPECT_EQ(pages_.pool->stats().dirty_pages, 0u);
  ASSERT_OK(pages_.Checkpoint());
  ASSERT_OK(pages_.Restart());
  ASSERT_OK(pages_.OpenPool());
  for (PageNumber page = 0; page < frames - 2; ++page) EXPECT_TRUE(Holds(page, 3));
}

TEST_F(GatedPoolTest, AFlushWaitsUntilALatchedPageCanBeCopied) {
  for (const LatchMode mode : {LatchMode::kShared, LatchMode::kExclusive}) {
    Write(3, 2);
    Write(4, 2);
    PageGuard guard = pages_.pool->Pin(4, mode).value();
    auto flushed = std::async(std::launch::async, [&] { return pages_.pool->Flush(); });
    while (pages_.pool->stats().dirty_pages > 1) std::this_thread::yield();  // the other page is written
    testing_util::WaitUntilAllSleep();
    EXPECT_FALSE(HasEnded(flushed));
    EXPECT_EQ(pages_.pool->stats().dirty_pages, 1u);
    guard.Release();
    EXPECT_OK(flushed.get());
  }
}

TEST_F(GatedPoolTest, AnExclusiveLatchKeepsOthersOutAndASharedOneWritersAlone) {
  PageGuard guard = pages_.pool->Pin(1, LatchMode::kShared).value();
  EXPECT_TRUE(Holds(1, 1));
  std::atomic<bool> written{false};
  std::thread writer([&] {
    Write(1, 2);
    written = true;
  });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(written);
  EXPECT_TRUE(Holds(1, 1)) << "readers go before writers";
  guard.Release();
  writer.join();
  EXPECT_TRUE(Holds(1, 2));
}

TEST_F(GatedPoolTest, APageThatSeveralWantIsReadOnce) {
  ASSERT_OK(pages_.Restart());
  ASSERT_OK(pages_.OpenPool());
  backend_.BlockReads();
  const uint64_t before = backend_.reads();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (PageNumber page = 0; page < 5; ++page) EXPECT_TRUE(Holds(page, 1));
    });
  }
  testing_util::WaitUntilAllSleep();
  EXPECT_EQ(backend_.reads() - before, 1u) << "one reads the first page, three wait for it";
  backend_.ReleaseReads();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(backend_.reads() - before, 5u);
  EXPECT_GT(pages_.pool->stats().read_wait_seconds, 0);
}

// The writer may not wait for the latch of a thread that itself waits for the writer.
TEST_F(GatedPoolTest, AThreadThatHoldsDirtyPagesGetsAFrame) {
  std::vector<PageGuard> guards;
  for (PageNumber page = 0; page < 4; ++page) {
    guards.push_back(pages_.pool->Pin(page, LatchMode::kExclusive).value());
    guards.back().mutable_body()[0] = std::byte{5};
  }
  for (PageNumber page = 4; page < 64; ++page) Write(page, 5);
  for (PageNumber page = 4; page < 64; ++page) EXPECT_TRUE(Holds(page, 5));
}

}  // namespace
}  // namespace quarry
