#include "deficit_round_robin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "quarry/base/random.h"
#include "support/sleeping_threads.h"

namespace quarry {
namespace {

using Producer = DeficitRoundRobin::Producer;
using std::chrono::milliseconds;

constexpr uint64_t kBatchBytes = 4 << 20;

// Producers that do nothing else, in threads that take their turns from the real thing; but time is virtual:
// a batch takes as long as it has bytes, and the next turn ends when everybody else waits or copies.
class Copying {
 public:
  struct Session {
    unsigned streams = 1;
    uint64_t batch_bytes = kBatchBytes;
    uint64_t copied = 0;
  };

  Copying(unsigned turns_max, std::vector<Session> sessions)
      : turns_max_(turns_max), turns_(turns_max), sessions_(std::move(sessions)) {
    for (size_t session = 0; session < sessions_.size(); ++session) {
      for (unsigned i = 0; i < sessions_[session].streams; ++i) {
        threads_.emplace_back([this, session] { Produce(session); });
      }
    }
  }
  ~Copying() {
    {
      const std::lock_guard lock(mutex_);
      stop_.request_stop();
      for (const auto& [ends, turn] : running_) turn.end->set_value();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  // Bytes that each session copies in so many turns.
  std::vector<uint64_t> Run(int turns) {
    while (turns-- > 0) {
      while (!EndOne()) std::this_thread::yield();
    }
    std::vector<uint64_t> copied;
    for (const Session& session : sessions_) copied.push_back(session.copied);
    return copied;
  }

 private:
  struct Turn {
    size_t session = 0;
    std::shared_ptr<std::promise<void>> end;
  };

  void Produce(size_t session) {
    Producer producer(turns_, session);
    while (producer.WaitTurn(sessions_[session].batch_bytes, stop_.get_token())) {
      const auto end = std::make_shared<std::promise<void>>();
      {
        const std::lock_guard lock(mutex_);
        if (stop_.stop_requested()) return;
        running_.emplace(now_ + sessions_[session].batch_bytes, Turn{session, end});
      }
      end->get_future().wait();
      producer.EndTurn();
    }
  }
  bool EndOne() {
    const std::lock_guard lock(mutex_);
    if (running_.size() + turns_.waiting() < threads_.size()) return false;
    EXPECT_LE(running_.size(), turns_max_);
    const auto first = running_.begin();
    now_ = first->first;
    sessions_[first->second.session].copied += sessions_[first->second.session].batch_bytes;
    first->second.end->set_value();
    running_.erase(first);
    return true;
  }

  const unsigned turns_max_;
  DeficitRoundRobin turns_;
  std::mutex mutex_;
  std::stop_source stop_;
  std::vector<Session> sessions_;
  std::multimap<uint64_t, Turn> running_;  // by the time at which it ends
  uint64_t now_ = 0;
  std::vector<std::thread> threads_;
};

double Ratio(const std::vector<uint64_t>& copied) {
  return static_cast<double>(copied[0]) / static_cast<double>(copied[1]);
}

TEST(DeficitRoundRobinTest, EightStreamsOfASessionGetAsMuchAsTheOneOfAnother) {
  for (const unsigned turns_max : {1U, 2U}) {
    SCOPED_TRACE(testing::Message() << turns_max << " turns");
    EXPECT_NEAR(Ratio(Copying(turns_max, {{.streams = 8}, {.streams = 1}}).Run(300)), 1, 0.1);
  }
}

TEST(DeficitRoundRobinTest, SharesAreOfBytesNotOfBatches) {
  Copying copying(1, {{.streams = 2}, {.streams = 2, .batch_bytes = kBatchBytes / 4}});
  EXPECT_NEAR(Ratio(copying.Run(500)), 1, 0.1);
}

TEST(DeficitRoundRobinTest, NobodyStarves) {
  Copying copying(2, {{.streams = 6, .batch_bytes = kBatchBytes / 8},
                      {.streams = 1, .batch_bytes = 16 * kBatchBytes},
                      {.streams = 1},
                      {.streams = 3, .batch_bytes = kBatchBytes / 64}});
  const std::vector<uint64_t> copied = copying.Run(4000);
  const auto [least, most] = std::ranges::minmax(copied);
  EXPECT_GT(least, 0u);
  EXPECT_LE(most, 2 * least + 2 * 16 * kBatchBytes);
}

TEST(DeficitRoundRobinTest, TheOnlySessionHasAllTurns) {
  DeficitRoundRobin turns(2);
  Producer a(turns, 1), b(turns, 1);
  EXPECT_TRUE(a.WaitTurn(kBatchBytes, {}));
  EXPECT_TRUE(b.WaitTurn(kBatchBytes, {}));
}

TEST(DeficitRoundRobinTest, WhoIsStoppedLeavesWithoutATurnAndTheOthersGoOn) {
  DeficitRoundRobin turns(1);
  auto first = std::make_unique<Producer>(turns, 1);
  ASSERT_TRUE(first->WaitTurn(kBatchBytes, {}));
  std::stop_source stop;
  std::atomic<bool> stopped{false}, served{false};
  std::thread waits([&] {
    Producer producer(turns, 2);
    stopped = !producer.WaitTurn(kBatchBytes, stop.get_token());
  });
  std::thread goes_on([&] {
    Producer producer(turns, 3);
    served = producer.WaitTurn(kBatchBytes, {});
  });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(stopped);
  stop.request_stop();
  waits.join();
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(served);
  first.reset();
  goes_on.join();
  EXPECT_TRUE(served);
}

TEST(DeficitRoundRobinTest, StoppingAtAnyMomentLosesNoTurn) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DeficitRoundRobin turns(2);
    std::vector<std::thread> threads;
    std::array<std::stop_source, 6> stops;
    for (size_t i = 0; i < stops.size(); ++i) {
      threads.emplace_back([&turns, &stops, i, seed] {
        Rng rng(MixSeed(seed, i));
        while (!stops[i].stop_requested()) {
          Producer producer(turns, i % 3);
          if (!producer.WaitTurn(rng.Below(kBatchBytes), stops[i].get_token())) break;
          std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(200)));
        }
      });
    }
    Rng rng(seed);
    for (std::stop_source& stop : stops) {
      std::this_thread::sleep_for(std::chrono::microseconds(rng.Below(3000)));
      stop.request_stop();
    }
    for (std::thread& thread : threads) thread.join();
    Producer a(turns, 1), b(turns, 1);  // both turns are there again
    EXPECT_TRUE(a.WaitTurn(1, {}));
    EXPECT_TRUE(b.WaitTurn(1, {}));
  }
}

TEST(DeficitRoundRobinTest, ProducersOfOneFlowHaveItsFloorOneAfterTheOtherWhileOthersProduce) {
  DeficitRoundRobin turns(2);
  DeficitRoundRobin::Producer first(turns, 1), second(turns, 1);
  EXPECT_TRUE(first.WaitFloor({}) && second.WaitFloor({})) << "there is nobody else";
  std::optional<DeficitRoundRobin::Producer> other(std::in_place, turns, 2);
  EXPECT_TRUE(other->WaitFloor({}));
  for (unsigned batch = 0; batch < DeficitRoundRobin::kSliceBatches; ++batch)
    EXPECT_TRUE(first.WaitFloor({}));
  std::atomic<bool> second_has_it{false}, first_goes_on{false};
  std::thread waits([&] { second_has_it = second.WaitFloor({}); });
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(second_has_it) << "the first has not come for its next batch";
  std::thread comes([&] { first_goes_on = first.WaitFloor({}); });
  waits.join();
  EXPECT_TRUE(second_has_it) << "its slice is over";
  testing_util::WaitUntilAllSleep();
  EXPECT_FALSE(first_goes_on);
  std::stop_source stop;
  stop.request_stop();
  DeficitRoundRobin::Producer third(turns, 1);
  EXPECT_FALSE(third.WaitFloor(stop.get_token()));
  other.reset();
  comes.join();
  EXPECT_TRUE(first_goes_on) << "nobody else is there any more";
}

}  // namespace
}  // namespace quarry
