// Streams whose epochs take long to prepare, and clients and servers that do not wait for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "served_database.h"
#include "support/gate_backend.h"
#include "support/sleeping_threads.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::Eventually;
using testing_util::GateBackend;
using testing_util::ServedDatabase;
using testing_util::WirePeer;

// Epochs are built in files that can be held up: what is done for one is counted in files that are opened.
class PreparationTest : public testing::Test {
 protected:
  PreparationTest() {
    auto backend = std::make_unique<GateBackend>("superbatch");
    gate_ = backend.get();
    served_ = std::make_unique<ServedDatabase>(testing_util::TinyGraph{}, std::move(backend));
    served_->Start();
  }
  // Half of a session's memory builds epochs, which takes 42 MiB for the smallest graph.
  static constexpr uint64_t kSessionBytes = 128 << 20;
  static inline const wire::SuperbatchSpec kEpochs = {.live = {.fanouts = {4, 3}, .batch_size = 4}};
  // A client whose first epoch is being asked for.
  struct Asking {
    std::unique_ptr<WirePeer> peer;
    uint64_t start = 0;
  };
  Asking Ask() {
    Asking asking{.peer = std::make_unique<WirePeer>(served_->socket())};
    EXPECT_OK(asking.peer->Open(kSessionBytes));
    const auto opened = asking.peer->OpenStream({.road = kEpochs});
    EXPECT_OK(opened);
    asking.start = asking.peer->Send(wire::StartPass{.stream = opened->stream});
    return asking;
  }
  // How many files are opened until an epoch can be read.
  uint64_t FilesOfAnEpoch() {
    const uint64_t before = gate_->passed();
    Asking asking = Ask();
    EXPECT_OK(asking.peer->Await(asking.start));
    const uint64_t files = gate_->passed() - before;
    asking.peer.reset();
    EXPECT_TRUE(Eventually([this] { return GrantedBytes() == 0 && !IsBuilding(); }));
    return files;
  }
  // A client that waits for an epoch, whose build is held up at a file.
  std::unique_ptr<WirePeer> ClientThatWaits() {
    gate_->CloseGate();
    Asking asking = Ask();
    gate_->WaitForOne();
    EXPECT_TRUE(IsBuilding());
    return std::move(asking.peer);
  }
  bool IsBuilding() const {
    std::error_code error;
    const std::filesystem::directory_iterator layouts(served_->tiny.path() + "/layouts", error);
    return begin(layouts) != end(layouts);
  }
  // The figure of a second client, which is connected and has no session.
  double GrantedBytes() {
    WirePeer peer(served_->socket());
    EXPECT_OK(peer.Hello());
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    for (const wire::Counter& counter : stats->counters) {
      if (counter.name == "quarry_budget_granted_bytes") return counter.value;
    }
    return -1;
  }

  GateBackend* gate_ = nullptr;
  std::unique_ptr<ServedDatabase> served_;
};

TEST_F(PreparationTest, WhatAClientThatVanishesHadPreparedForItIsFreeSoon) {
  const uint64_t files = FilesOfAnEpoch();
  auto peer = ClientThatWaits();
  EXPECT_GT(GrantedBytes(), 0);
  peer.reset();
  testing_util::WaitUntilAllSleep();  // the server knows, and the build is still held up
  const uint64_t before = gate_->passed();
  gate_->OpenGate();
  EXPECT_TRUE(Eventually([this] { return GrantedBytes() == 0 && !IsBuilding(); }));
  EXPECT_LT(gate_->passed() - before, files) << "the epoch was built to its end";
}

TEST_F(PreparationTest, ARefusalSaysThatHalfOfTheMemoryBuilds) {
  WirePeer peer(served_->socket());
  ASSERT_OK(peer.Open(32 << 20));
  EXPECT_THAT(peer.OpenStream({.road = kEpochs}),
              IsStatus(Code::kOutOfBudget, testing::HasSubstr("built in half of a road's memory")));
}

TEST_F(PreparationTest, AServerThatStopsDoesNotWaitForIt) {
  const uint64_t files = FilesOfAnEpoch();
  const auto peer = ClientThatWaits();
  std::thread stopper([this] { EXPECT_OK(served_->server->Stop()); });
  testing_util::WaitUntilAllSleep();
  const uint64_t before = gate_->passed();
  gate_->OpenGate();
  stopper.join();
  EXPECT_FALSE(IsBuilding());
  EXPECT_LT(gate_->passed() - before, files) << "the epoch was built to its end";
}

}  // namespace
}  // namespace quarry
