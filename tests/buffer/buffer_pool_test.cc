#include "quarry/buffer/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "small_pages.h"
#include "support/repetitions.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using Body = std::vector<std::byte>;

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) { return std::ranges::equal(a, b); }

// Random operations on a pool and on a plain map; what was checkpointed last is what a crash leaves.
class Model {
 public:
  Model(SmallPages& pages, uint64_t seed) : pages_(pages), rng_(seed) {}

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) Step();
  }
  void CheckAll() {
    for (PageNumber page = 0; page < pages_.spec.page_count; ++page) Read(page);
  }

 private:
  void Step() {
    const auto page = static_cast<PageNumber>(rng_.Below(pages_.spec.page_count));
    const uint64_t what = rng_.Below(100);
    if (what < 45) {
      Modify(page);
    } else if (what < 80) {
      Read(page);
    } else if (what < 90) {
      Prefetch();
    } else if (what < 94) {
      ASSERT_OK(pages_.pool->Flush());
    } else if (what < 97) {
      ASSERT_OK(pages_.Checkpoint());
      committed_ = now_;
    } else {
      Crash();
    }
  }

  Body& Now(PageNumber page) {
    const auto [place, fresh] = now_.try_emplace(page);
    if (fresh) place->second = pages_.InitialBody(page);
    return place->second;
  }

  void Modify(PageNumber page) {
    const uint64_t seed = rng_();
    const bool shared = rng_.Below(4) == 0;
    PageGuard guard = pages_.pool->Pin(page, shared ? LatchMode::kShared : LatchMode::kExclusive).value();
    ASSERT_TRUE(Same(guard.body(), Now(page))) << "page " << page;
    Change(shared ? guard.shared_mutable_body() : guard.mutable_body(), seed);
    Change(Now(page), seed);
  }

  void Read(PageNumber page) {
    const PageGuard guard = pages_.pool->Pin(page, LatchMode::kShared).value();
    ASSERT_TRUE(Same(guard.body(), Now(page))) << "page " << page;
  }

  void Prefetch() {
    std::vector<PageNumber> wanted(1 + rng_.Below(20));
    for (PageNumber& page : wanted) page = static_cast<PageNumber>(rng_.Below(pages_.spec.page_count));
    ASSERT_OK(pages_.pool->Prefetch(wanted));
  }

  void Crash() {
    ASSERT_OK(pages_.Restart());
    ASSERT_OK(pages_.OpenPool());
    now_ = committed_;
    CheckAll();
  }

  SmallPages& pages_;
  Rng rng_;
  std::map<PageNumber, Body> now_, committed_;
};

TEST(BufferPoolTest, BehavesAsAMapAndACrashLeavesTheLastCheckpoint) {
  for (uint64_t seed = 1; seed <= testing_util::Repetitions(30); ++seed) {
    SCOPED_TRACE(seed);
    SmallPages pages(MemoryBackend(), 50 + static_cast<uint32_t>(seed), seed % 5 == 0 ? 16384 : 4096);
    ASSERT_OK(pages.Create());
    ASSERT_OK(pages.OpenPool());
    ASSERT_LE(pages.pool->frame_count(), 20u);
    Model model(pages, seed);
    model.Run(400);
    model.CheckAll();
    if (HasFatalFailure()) return;
  }
}

class SmallPoolTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(pages_.Create());
    ASSERT_OK(pages_.OpenPool());
  }
  void Write(PageNumber page, uint8_t value) {
    PageGuard guard = pages_.pool->Pin(page, LatchMode::kExclusive).value();
    std::ranges::fill(guard.mutable_body(), std::byte{value});
  }
  uint8_t First(PageNumber page) {
    return std::to_integer<uint8_t>(pages_.pool->Pin(page, LatchMode::kShared).value().body()[0]);
  }
  SmallPages pages_{MemoryBackend()};
};

TEST_F(SmallPoolTest, APageThatWasNeverWrittenIsInitialized) {
  EXPECT_EQ(First(7), 8);
  EXPECT_EQ(pages_.pool->stats().pages_read, 0u);
  EXPECT_EQ(pages_.pool->stats().dirty_pages, 0u);
}

TEST_F(SmallPoolTest, CountsWhatHappens) {
  for (PageNumber page = 0; page < 64; ++page) Write(page, 1);
  ASSERT_OK(pages_.pool->Flush());
  BufferPoolStats stats = pages_.pool->stats();
  EXPECT_EQ(stats.misses, 64u);
  EXPECT_EQ(stats.hits, 0u);
  EXPECT_GE(stats.evictions, 64u - pages_.pool->frame_count());
  EXPECT_LE(stats.evictions, 64u);
  EXPECT_EQ(stats.pages_written, 64u) << "each once: nothing was dirtied again";
  EXPECT_EQ(stats.dirty_pages, 0u);
  EXPECT_EQ(First(63), 1);
  for (PageNumber page = 0; page < 30; ++page) EXPECT_EQ(First(page), 1);
  stats = pages_.pool->stats();
  EXPECT_GE(stats.hits, 1u);
  EXPECT_GE(stats.pages_read, 14u);
  EXPECT_EQ(stats.pages_read, stats.misses - 64);
}

TEST_F(SmallPoolTest, WriteBehindStartsAboveTheHighMarkAndEndsAtTheLowOne) {
  const uint32_t frames = pages_.pool->frame_count();
  for (PageNumber page = 0; page < frames / 2; ++page) Write(page, 1);
  testing_util::WaitUntilAllSleep();
  EXPECT_EQ(pages_.pool->stats().pages_written, 0u);
  Write(frames / 2, 1);
  testing_util::WaitUntilAllSleep();
  EXPECT_EQ(pages_.pool->stats().dirty_pages, frames / 4);
}

TEST_F(SmallPoolTest, TheRateLimitsWritingBehindAndNotAFlush) {
  pages_.pool.reset();
  ASSERT_OK(pages_.OpenPool(0, {.dirty_high = 0, .dirty_low = 0, .write_bytes_per_second = 1}));
  for (PageNumber page = 0; page < 12; ++page) Write(page, 1);
  testing_util::WaitUntilAllSleep();
  EXPECT_EQ(pages_.pool->stats().pages_written, 1u) << "the next may be written in an hour";
  ASSERT_OK(pages_.pool->Flush());
  EXPECT_EQ(pages_.pool->stats().dirty_pages, 0u);
}

TEST_F(SmallPoolTest, APrefetchedPageIsAHitAndReadOnce) {
  for (PageNumber page = 0; page < 40; ++page) Write(page, 1);
  ASSERT_OK(pages_.Checkpoint());
  ASSERT_OK(pages_.Restart());
  ASSERT_OK(pages_.OpenPool());
  const PageNumber wanted[] = {3, 4, 5, 3, 60};
  ASSERT_OK(pages_.pool->Prefetch(wanted));
  for (const PageNumber page : {3, 4, 5}) EXPECT_EQ(First(page), 1);
  EXPECT_EQ(pages_.pool->stats().hits, 3u);
  EXPECT_EQ(pages_.pool->stats().pages_read, 3u);
}

TEST_F(SmallPoolTest, PrefetchTakesNoMoreThanThereAreCleanFrames) {
  for (PageNumber page = 0; page < 64; ++page) Write(page, 1);
  ASSERT_OK(pages_.pool->Flush());
  std::vector<PageGuard> guards;
  for (PageNumber page = 0; page < pages_.pool->frame_count() - 2; ++page) {
    guards.push_back(pages_.pool->Pin(page, LatchMode::kShared).value());
  }
  std::vector<PageNumber> wanted(64);
  for (PageNumber page = 0; page < 64; ++page) wanted[page] = 63 - page;
  ASSERT_OK(pages_.pool->Prefetch(wanted));
  EXPECT_EQ(First(40), 1) << "loads end, and their frames can be taken";
}

TEST_F(SmallPoolTest, WhatAPoolHoldsIsReserved) {
  const uint64_t least = BufferPool::BytesMin(*pages_.file);
  EXPECT_EQ(pages_.budget.used_bytes(), least);
  pages_.pool.reset();
  EXPECT_EQ(pages_.budget.used_bytes(), 0u);
  BufferPoolOptions options{.memory_bytes = least - 1};
  Result<std::unique_ptr<BufferPool>> pool =
      BufferPool::Make(MemoryBackend(), *pages_.file, pages_.budget, options, nullptr);
  EXPECT_THAT(pool, IsStatus(Code::kOutOfBudget, HasSubstr("pages.qpf")));
  MemoryBudget small(least - 1);
  options.memory_bytes = least;
  EXPECT_THAT(BufferPool::Make(MemoryBackend(), *pages_.file, small, options, nullptr),
              IsStatus(Code::kOutOfBudget));
  options.memory_bytes = uint64_t{1} << 29;
  pool = BufferPool::Make(MemoryBackend(), *pages_.file, pages_.budget, options, nullptr);
  ASSERT_OK(pool);
  EXPECT_EQ((*pool)->frame_count(), 64u) << "no more than there are pages";
  EXPECT_EQ((*pool)->Pin(5, LatchMode::kShared).value().body()[0], std::byte{0}) << "without PageInit: zeros";
}

TEST_F(SmallPoolTest, MoreMemoryIsMoreFrames) {
  pages_.pool.reset();
  ASSERT_OK(pages_.OpenPool(20));
  EXPECT_GE(pages_.pool->frame_count(), 30u);
  EXPECT_LE(pages_.pool->frame_count(), 40u);
}

TEST_F(SmallPoolTest, AGuardMovesAndReleasesOnce) {
  PageGuard first = pages_.pool->Pin(1, LatchMode::kExclusive).value();
  PageGuard second = std::move(first);
  first.Release();  // NOLINT: a moved-from guard holds nothing
  second.mutable_body()[0] = std::byte{9};
  second = pages_.pool->Pin(2, LatchMode::kExclusive).value();
  EXPECT_EQ(First(1), 9);
  second.Release();
  second.Release();
  EXPECT_EQ(First(2), 3);
}

TEST_F(SmallPoolTest, TheFileHasAboutTwoVersionsOfWhatChanges) {
  for (int round = 0; round < 20; ++round) {
    for (int times = 0; times < 3; ++times) {
      for (PageNumber page = 0; page < 64; ++page) Write(page, static_cast<uint8_t>(round));
    }
    ASSERT_OK(pages_.Checkpoint());
  }
  const uint64_t on_the_way_max = pages_.pool->frame_count() / 4;
  EXPECT_GE(pages_.file->slot_count(), 128u);
  EXPECT_LE(pages_.file->slot_count(), 128u + on_the_way_max);
  EXPECT_LE(std::filesystem::file_size(pages_.spec.path), pages_.file->SlotOffset(128 + on_the_way_max));
}

}  // namespace
}  // namespace quarry
