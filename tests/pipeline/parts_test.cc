// The parts of the live road that stand by themselves: staging, queue in sequence, sorting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "quarry/base/radix_sort.h"
#include "quarry/base/random.h"
#include "sequenced_queue.h"
#include "staging_ring.h"
#include "support/sleeping_threads.h"

namespace quarry {
namespace {

using testing::ElementsAre;

TEST(StagingRingTest, PlacesInUseNeverOverlapWhateverTheOrderOfFreeing) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    const size_t bytes = 1000;
    StagingRing ring(bytes);
    struct Use {
      uint64_t id;
      size_t begin, end;
    };
    std::vector<Use> uses;
    size_t given = 0;
    for (int step = 0; step < 5000; ++step) {
      const size_t wanted = 1 + rng.Below(rng.Below(10) == 0 ? bytes : 100);
      const auto piece = ring.Allocate(wanted);
      if (piece) {
        ++given;
        ASSERT_LE(piece->offset + wanted, bytes);
        for (const Use& use : uses) {
          ASSERT_TRUE(piece->offset >= use.end || piece->offset + wanted <= use.begin) << "step " << step;
        }
        uses.push_back({piece->id, piece->offset, piece->offset + wanted});
      } else {
        ASSERT_FALSE(uses.empty()) << "an empty ring has room for anything, step " << step;
      }
      while (!uses.empty() && (!piece || rng.Below(3) == 0)) {
        const size_t victim = rng.Below(uses.size());
        ring.Free(uses[victim].id);
        uses.erase(uses.begin() + static_cast<ptrdiff_t>(victim));
        if (rng.Below(2) == 0) break;
      }
    }
    EXPECT_GT(given, 1000u);
  }
}

TEST(StagingRingTest, GivesAllItsBytesAndNoMore) {
  StagingRing ring(100);
  const auto first = ring.Allocate(60);
  const auto second = ring.Allocate(40);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(ring.Allocate(1));
  ring.Free(second->id);
  EXPECT_FALSE(ring.Allocate(1)) << "reclaimed in order: the first is still in use";
  ring.Free(first->id);
  EXPECT_TRUE(ring.Allocate(100));
  ring.Clear();
  EXPECT_TRUE(ring.Allocate(100));
}

TEST(SequencedQueueTest, PopsInTheOrderOfNumbersWhenOrdered) {
  SequencedQueue<int> queue(3, true);
  std::vector<int> popped;
  std::thread consumer([&] {
    while (const auto item = queue.Pop()) popped.push_back(*item);
  });
  EXPECT_TRUE(queue.Push(2, 102));
  EXPECT_TRUE(queue.Push(1, 101));
  testing_util::WaitUntilAllSleep();  // the consumer has come, and waits
  EXPECT_TRUE(queue.Push(0, 100));
  consumer.join();
  EXPECT_THAT(popped, ElementsAre(100, 101, 102));
  EXPECT_GT(queue.wait_seconds(), 0);
}

TEST(SequencedQueueTest, PopsInTheOrderOfArrivalOtherwise) {
  SequencedQueue<int> queue(3, false);
  EXPECT_TRUE(queue.Push(2, 102));
  EXPECT_TRUE(queue.Push(0, 100));
  EXPECT_EQ(queue.Pop(), 102);
  EXPECT_TRUE(queue.Push(1, 101));
  EXPECT_EQ(queue.Pop(), 100);
  EXPECT_EQ(queue.Pop(), 101);
  EXPECT_EQ(queue.Pop(), std::nullopt) << "three came";
}

TEST(SequencedQueueTest, EveryConsumerLearnsOfTheEnd) {
  SequencedQueue<int> queue(50, true);
  std::atomic<int> sum{0};
  std::vector<std::thread> consumers;
  for (int i = 0; i < 3; ++i) {
    consumers.emplace_back([&] {
      while (const auto item = queue.Pop()) sum += *item;
    });
  }
  for (int i = 49; i >= 0; --i) queue.Push(static_cast<uint64_t>(i), i);
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(sum.load(), 49 * 50 / 2);
}

TEST(SequencedQueueTest, CancelDestroysWhatItHoldsAndEndsPopsAndPushes) {
  SequencedQueue<std::shared_ptr<int>> queue(10, true);
  auto kept = std::make_shared<int>(1);
  queue.Push(1, kept);
  std::thread consumer([&] { EXPECT_EQ(queue.Pop(), std::nullopt); });
  testing_util::WaitUntilAllSleep();
  queue.Cancel();
  consumer.join();
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_FALSE(queue.Push(0, kept));
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(RadixSortTest, SortsLikeStableSortByKeyForAnyKeyRange) {
  std::vector<uint64_t> scratch;
  for (const uint64_t key_max : {0ul, 1ul, 2047ul, 2048ul, 4'000'000ul, 0xfffffffeul}) {
    SCOPED_TRACE(testing::Message() << "key_max " << key_max);
    Rng rng(key_max + 1);
    for (const size_t count : {0, 1, 2, 1000, 30000}) {
      std::vector<uint64_t> pairs(count);
      for (uint64_t& pair : pairs) pair = rng.Below(key_max + 1) << 32 | static_cast<uint32_t>(rng());
      std::vector<uint64_t> expected = pairs;
      std::stable_sort(expected.begin(), expected.end(),
                       [](uint64_t a, uint64_t b) { return a >> 32 < b >> 32; });
      RadixSortByKey(pairs, key_max, scratch);
      ASSERT_EQ(pairs, expected);
    }
  }
}

}  // namespace
}  // namespace quarry
