// Streams whose epochs take long to prepare, and clients and servers that do not wait for them.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "served_database.h"
#include "support/slow_backend.h"

namespace quarry {
namespace {

using std::chrono::milliseconds;
using testing_util::Eventually;
using testing_util::ServedDatabase;
using testing_util::SlowBackend;
using testing_util::WirePeer;

class PreparationTest : public testing::Test {
 protected:
  PreparationTest() {
    auto backend = std::make_unique<SlowBackend>();
    backend_ = backend.get();
    served_ = std::make_unique<ServedDatabase>(testing_util::TinyGraph{}, std::move(backend));
    served_->Start();
  }
  // A client that waits for an epoch, which is being built.
  std::unique_ptr<WirePeer> ClientThatWaits() {
    auto peer = std::make_unique<WirePeer>(served_->socket());
    EXPECT_TRUE(peer->Open().ok());
    const wire::SuperbatchSpec epochs = {.live = {.fanouts = {4, 3}, .batch_size = 4}};
    const auto opened = peer->OpenStream({.road = epochs});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    backend_->SetDelay(milliseconds(80));
    const uint64_t start = peer->Send(wire::StartPass{.stream = opened->stream});
    EXPECT_FALSE(peer->Await(start, 0.5).ok()) << "it is there already: this tests nothing";
    EXPECT_TRUE(IsBuilding());
    return peer;
  }
  bool IsBuilding() const {
    std::error_code error;
    const std::filesystem::directory_iterator layouts(served_->tiny.path() + "/layouts", error);
    return begin(layouts) != end(layouts);
  }
  // The figure of a second client, which is connected and has no session.
  double GrantedBytes() {
    WirePeer peer(served_->socket());
    EXPECT_TRUE(peer.Hello().ok());
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_TRUE(stats.ok());
    for (const wire::Counter& counter : stats->counters) {
      if (counter.name == "quarry_budget_granted_bytes") return counter.value;
    }
    return -1;
  }

  SlowBackend* backend_ = nullptr;
  std::unique_ptr<ServedDatabase> served_;
};

TEST_F(PreparationTest, WhatAClientThatVanishesHadPreparedForItIsFreeSoon) {
  auto peer = ClientThatWaits();
  EXPECT_GT(GrantedBytes(), 0);
  peer.reset();
  EXPECT_TRUE(Eventually([&] { return GrantedBytes() == 0 && !IsBuilding(); }, 2));
  backend_->SetDelay(milliseconds(0));
}

TEST_F(PreparationTest, AServerThatStopsDoesNotWaitForIt) {
  const auto peer = ClientThatWaits();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(served_->server->Stop().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_FALSE(IsBuilding());
  backend_->SetDelay(milliseconds(0));
}

}  // namespace
}  // namespace quarry
