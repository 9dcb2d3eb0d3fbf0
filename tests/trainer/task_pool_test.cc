#include "task_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace quarry {
namespace {

TEST(TaskPoolTest, RunsEachTaskOnce) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    TaskPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (uint32_t round = 0; round < 500; round++) {
      const uint32_t task_count = round % 23;
      std::vector<int> runs(task_count);  // plain: a task's writes are seen once Run has returned
      pool.Run(task_count, [&](uint32_t task, unsigned) { runs[task]++; });
      ASSERT_EQ(runs, std::vector<int>(task_count, 1)) << threads << " threads, round " << round;
    }
  }
}

TEST(TaskPoolTest, NoTwoTasksHaveTheSameThreadAtOnce) {
  constexpr unsigned kThreads = 3;
  TaskPool pool(kThreads);
  std::vector<std::atomic<bool>> busy(kThreads);
  std::atomic<bool> clash = false;
  for (int round = 0; round < 200; round++) {
    pool.Run(50, [&](uint32_t, unsigned thread) {
      if (busy.at(thread).exchange(true)) clash = true;
      busy.at(thread) = false;
    });
  }
  EXPECT_FALSE(clash);
}

}  // namespace
}  // namespace quarry
