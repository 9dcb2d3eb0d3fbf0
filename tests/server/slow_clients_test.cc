// Clients that never read, that send a byte now and then, or that ask for everything: the server does for them what they
// can take, the others are served in between, and what is held is free in the end. Counted, not timed: what such clients
// cost others in speed is a benchmark (tests/bench/bench_slow_clients.cc).
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fault_util.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using namespace testing_util;  // NOLINT: a test of what it has

class SlowClientsTest : public FaultTest {
 protected:
  // Lookups that the server has answered so far.
  uint64_t LookupsServed() {
    WirePeer peer(served_.socket());
    EXPECT_OK(peer.Hello());
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    for (const wire::Counter& counter : stats->counters) {
      if (counter.name == "quarry_requests_total_lookup") return static_cast<uint64_t>(counter.value);
    }
    ADD_FAILURE() << "lookups are not counted";
    return 0;
  }
};

TEST_F(SlowClientsTest, AClientThatNeverReadsHoldsWhatItHasAskedForAndNoMore) {
  constexpr uint64_t kRounds = 50;
  const uint64_t rss_before = CurrentRssBytes();
  const auto lookup = wire::EncodeRequest(1, wire::Lookup{"feature", std::vector<NodeId>(500, 9)});
  std::vector<std::unique_ptr<WirePeer>> peers;
  for (uint8_t i = 0; i < 4; ++i) {
    peers.push_back(std::make_unique<WirePeer>(served_.socket()));
    ASSERT_OK(peers.back()->Open(16 * kMiB, wire::kInline, i));
  }
  // Until the server hears them no more, although it has done all that it can.
  for (bool heard = true; std::exchange(heard, false);) {
    for (const auto& peer : peers) {
      for (uint64_t id = 1000;; ++id) {
        std::vector<std::byte> frame = *lookup;
        std::memcpy(&frame[8], &id, 8);
        if (send(peer->fd(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
        heard = true;
      }
    }
    WaitUntilAllSleep();
  }
  const uint64_t served = LookupsServed();
  GoodClient good(served_);
  for (uint64_t round = 0; round < kRounds; ++round) good.Once();
  EXPECT_EQ(good.rounds(), kRounds);
  EXPECT_EQ(LookupsServed(), served + kRounds) << "each of them the good client's";
  // Four grants of 16 MiB, and as much again for the allocator's.
  EXPECT_TRUE(IsInstrumented() || CurrentRssBytes() < rss_before + 128 * kMiB) << CurrentRssBytes();
  peers.clear();
  good.Close();
  EXPECT_TRUE(NobodyIsHeld()) << "what they held is free";
}

// Clients that send a byte each turn: half of them of their hello, the others, in a session, of a lookup.
class Dripper {
 public:
  static constexpr int kClients = 40;

  explicit Dripper(const std::string& socket) {
    for (int i = 0; i < kClients; ++i) {
      peers_.push_back(std::make_unique<WirePeer>(socket));
      wire::Request request = wire::Hello{};
      if (IsInSession(i)) {
        EXPECT_OK(peers_.back()->Open(kMiB, wire::kInline, static_cast<uint8_t>(i)));
        request = wire::Lookup{"feature", std::vector<NodeId>(100, kUntouched)};
      }
      frames_.push_back(wire::EncodeRequest(kId, request).value());
    }
  }
  static bool IsInSession(int client) { return client % 2 == 0; }
  // The next byte of the client's frame, but never the last one.
  void Drip(int client) {
    const std::span<const std::byte> frame = frames_[client];
    if (sent_[client] + 1 < frame.size() && peers_[client]->SendBytes(frame.subspan(sent_[client], 1))) {
      ++sent_[client];
    }
  }
  // The rest of its frame, at once, and the answer to it.
  Status Finish(int client) {
    peers_[client]->SendBytes(std::span<const std::byte>(frames_[client]).subspan(sent_[client]));
    return peers_[client]->Await(kId).status();
  }
  WirePeer& peer(int client) { return *peers_[client]; }

 private:
  static constexpr uint64_t kId = 99;
  std::vector<std::unique_ptr<WirePeer>> peers_;
  std::vector<std::vector<std::byte>> frames_;
  std::array<size_t, kClients> sent_{};
};

TEST_F(SlowClientsTest, APartOfAFrameIsNoRequestAndItsSenderIsInNobodysWay) {
  constexpr uint64_t kRounds = 50;
  Dripper dripper(served_.socket());
  const uint64_t served = LookupsServed();
  {
    GoodClient good(served_);
    for (uint64_t round = 0; round < kRounds; ++round) {
      for (int client = 0; client < Dripper::kClients; ++client) dripper.Drip(client);
      good.Once();
    }
    EXPECT_EQ(good.rounds(), kRounds);
  }
  EXPECT_EQ(LookupsServed(), served + kRounds) << "each of them the good client's";
  for (int client = 0; client < Dripper::kClients; ++client) {
    if (Dripper::IsInSession(client)) {
      EXPECT_OK(dripper.Finish(client)) << "in a session a frame may take its time";
    }
  }
  EXPECT_TRUE(dripper.peer(1).IsClosed(60)) << "who says no hello is not kept";
}

// A trainer, in one session and over one connection, of one stream or of many: each takes its next batch when it is told.
class Trainer {
 public:
  Trainer(const std::string& socket, uint64_t budget_bytes, int streams, uint8_t client) : peer_(socket) {
    EXPECT_OK(peer_.Hello());
    wire::OpenSession request = {.budget_bytes = budget_bytes};
    request.client_id.fill(std::byte{client});
    EXPECT_OK(peer_.OpenSession(request));
    for (int i = 0; i < streams; ++i) {
      const auto opened = peer_.OpenStream({.road = wire::LiveSpec{.fanouts = {10, 10}, .batch_size = 2}});
      EXPECT_OK(opened);
      if (opened.ok()) streams_.push_back(*opened);
    }
  }
  size_t streams() const { return streams_.size(); }

  // All that each stream may hold, and one batch more, none of which it reads: what is made for it waits.
  void AskForEverything() {
    for (const wire::StreamOpened& stream : streams_) {
      peer_.Send(wire::StartPass{.stream = stream.stream, .seeds = Seeds()});
      for (uint32_t slot = 0; slot <= stream.slots; ++slot) peer_.Send(wire::NextBatch{stream.stream});
    }
  }
  // Batches of a pass over all nodes.
  uint64_t Train() {
    const wire::StreamOpened& stream = streams_.at(0);
    EXPECT_OK(peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = stream.stream, .seeds = Seeds()}));
    for (uint64_t batches = 0;; ++batches) {
      const auto next = peer_.Call(wire::NextBatch{stream.stream});
      EXPECT_OK(next);
      const auto* const batch = next.ok() ? std::get_if<wire::Batch>(&*next) : nullptr;
      if (batch == nullptr) return batches;
      EXPECT_OK(peer_.CallFor<wire::Done>(wire::ReleaseLeases{{std::get<wire::Lease>(batch->payload).id}}));
    }
  }
  static wire::NodeIds Seeds() {
    std::vector<NodeId> seeds(TinyGraph().nodes);
    std::iota(seeds.begin(), seeds.end(), NodeId{0});
    return seeds;
  }

 private:
  WirePeer peer_;
  std::vector<wire::StreamOpened> streams_;
};

TEST_F(SlowClientsTest, AClientThatAsksForEverythingAndReadsNothingStopsNoOtherTrainer) {
  Trainer own(served_.socket(), 32 * kMiB, 1, 1);
  Trainer greedy(served_.socket(), uint64_t{1} << 40, 4, 2);
  ASSERT_EQ(greedy.streams(), 4u);
  greedy.AskForEverything();
  WaitUntilAllSleep();
  EXPECT_EQ(own.Train(), (TinyGraph().nodes + 1) / 2);
}

}  // namespace
}  // namespace quarry
