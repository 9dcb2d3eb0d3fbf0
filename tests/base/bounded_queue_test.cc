#include "quarry/base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "support/sleeping_threads.h"

namespace quarry {
namespace {

TEST(BoundedQueueTest, ItemsComeOutInOrderAndEndAfterClose) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  queue.Close();
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, PushBlocksWhileFull) {
  BoundedQueue<int> queue(1);
  ASSERT_TRUE(queue.Push(1));
  std::atomic<bool> pushed{false};
  std::thread producer([&] {
    EXPECT_TRUE(queue.Push(2));
    pushed = true;
  });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(pushed);
  EXPECT_EQ(queue.Pop(), 1);
  producer.join();
  EXPECT_TRUE(pushed);
  EXPECT_GT(queue.push_wait_seconds(), 0.0);
}

TEST(BoundedQueueTest, CancelWakesBothSidesAndDestroysTheContents) {
  BoundedQueue<std::shared_ptr<int>> full(1), empty(1);
  auto item = std::make_shared<int>(1);
  ASSERT_TRUE(full.Push(item));
  std::thread producer([&] { EXPECT_FALSE(full.Push(item)); });
  std::thread consumer([&] { EXPECT_EQ(empty.Pop(), std::nullopt); });
  testing_util::WaitUntilAllSleep();
  full.Cancel();
  empty.Cancel();
  producer.join();
  consumer.join();
  EXPECT_EQ(item.use_count(), 1);
}

TEST(BoundedQueueTest, NothingIsLostOrDoubledBetweenManyThreads) {
  BoundedQueue<int> queue(3);
  constexpr int kPerProducer = 2000;
  std::vector<std::atomic<int>> seen(3 * kPerProducer);
  std::vector<std::thread> producers, consumers;
  for (int p = 0; p < 3; p++) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kPerProducer; i++) ASSERT_TRUE(queue.Push(p * kPerProducer + i));
    });
  }
  for (int c = 0; c < 3; c++) {
    consumers.emplace_back([&] {
      while (auto item = queue.Pop()) seen[static_cast<size_t>(*item)]++;
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();
  for (const std::atomic<int>& count : seen) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace quarry
