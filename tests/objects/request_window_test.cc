// The window over a simulated store: a pipe with a bandwidth and a delay, in simulated time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <queue>

#include "quarry/base/random.h"
#include "request_window.h"

namespace quarry {
namespace {

struct Pipe {
  double bytes_per_second;
  double delay_seconds;
  double request_bytes;
};

// Keeps the window full for so many answers, and returns it as it is then. Answers leave one after the other at the
// bandwidth, after their delay; with a seed, delays are longer by up to as much again, and the link rests now and then.
RequestWindow Simulate(const Pipe& pipe, int answers, double* rate, uint64_t seed = 0) {
  RequestWindow window({.requests_max = 256});
  Rng rng(seed);
  struct Sent {
    double at, done;
  };
  std::queue<Sent> out;
  double now = 0, link_free = 0;
  const auto send = [&] {
    const double delay = pipe.delay_seconds * (seed == 0 ? 1 : 1 + rng.Unit());
    const double stops = seed != 0 && rng.Below(20) == 0 ? pipe.delay_seconds / 4 : 0;
    const double begun = std::max(now + delay, link_free) + stops;
    link_free = begun + pipe.request_bytes / pipe.bytes_per_second;
    out.push({now, link_free});
  };
  double start = 0;
  for (int i = 0; i < answers; i++) {
    while (out.size() < window.size()) send();
    const Sent sent = out.front();
    out.pop();
    now = sent.done;
    if (i == answers / 2) start = now;
    window.Answered(now, pipe.delay_seconds, now - sent.at, static_cast<uint64_t>(pipe.request_bytes), true);
  }
  *rate = (answers - 1 - answers / 2) * pipe.request_bytes / (now - start);
  return window;
}

TEST(RequestWindowTest, FillsThePipeAndNoMore) {
  for (const double bandwidth : {20e6, 200e6, 1e9}) {
    for (const double delay : {0.001, 0.02, 0.15}) {
      for (const double bytes : {1.0 * (1 << 20), 4.0 * (1 << 20)}) {
        SCOPED_TRACE(testing::Message() << bandwidth << " B/s, " << delay << " s, " << bytes << " B");
        double rate = 0;
        const RequestWindow window = Simulate({bandwidth, delay, bytes}, 4000, &rate);
        EXPECT_GT(rate, 0.9 * bandwidth);
        // Bandwidth × delay, half as much again, and never below four.
        EXPECT_LE(window.size(), std::max(8.0, 4 * (1 + bandwidth * delay / bytes)));
      }
    }
  }
}

TEST(RequestWindowTest, IsNotHeldSmallByRoundsThatWereSlowByChance) {
  const Pipe pipe{500e6, 0.15, 4.0 * (1 << 20)};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    double rate = 0;
    const RequestWindow window = Simulate(pipe, 400, &rate, seed);
    EXPECT_GE(window.size(), pipe.bytes_per_second * pipe.delay_seconds / pipe.request_bytes);
  }
}

TEST(RequestWindowTest, HalvesWhereTheStoreAsksForIt) {
  RequestWindow window({.requests_max = 64});
  EXPECT_EQ(window.size(), 32U);
  for (int i = 0; i < 5; i++) window.SlowDown();
  EXPECT_EQ(window.size(), 1U);
}

TEST(RequestWindowTest, DeadlinesFollowAnswersAndDouble) {
  RequestWindow window({.first_seconds = 10, .deadline_min_seconds = 2, .deadline_max_seconds = 60});
  EXPECT_DOUBLE_EQ(window.DeadlineSeconds(0, 0), 10);
  for (int i = 0; i < 100; i++) window.Answered(i, 0.15, 0.2, 1 << 20, false);
  EXPECT_DOUBLE_EQ(window.DeadlineSeconds(0, 0), 2);
  EXPECT_DOUBLE_EQ(window.DeadlineSeconds(0, 2), 8);
  const double large = window.DeadlineSeconds(100 << 20, 0);
  EXPECT_GT(large, 4 * 0.1 * 101);
  EXPECT_LT(large, 60);
  EXPECT_DOUBLE_EQ(window.DeadlineSeconds(0, 20), 60);
}

}  // namespace
}  // namespace quarry
