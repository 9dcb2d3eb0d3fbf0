// A server beside which clients do wrong: one client that does right and checks every byte, and what is held
// against a server whose other clients have gone.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "quarry/base/process.h"
#include "quarry/base/random.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/format/wire_batch.h"
#include "served_database.h"
#include "support/instrumented.h"
#include "support/status_matchers.h"
#include "support/zygote.h"

namespace quarry::testing_util {

inline constexpr uint64_t kFaultSeed = 20266;
inline constexpr NodeId kUntouched = 300;  // rows from here on are written by nobody
inline wire::LiveSpec FaultRoad() { return {.fanouts = {3, 2}, .batch_size = 40, .seed = 3}; }

// What /proc/self/fd has, by what it is: "socket:[]", "memfd:quarry (deleted)", "feature-.qft". Numbers are
// left out: a log that went on in another file is one descriptor as before. So are files that RocksDB merges
// when it likes, and rings, of which a thread makes one for its first read.
inline constexpr const char* kRing = "anon_inode:[io_uring]";
inline std::map<std::string, size_t> Descriptors() {
  std::map<std::string, size_t> kinds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one that lists them
    std::string kind = std::filesystem::read_symlink(entry, gone).filename();
    std::erase_if(kind, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (!gone && kind != ".sst" && kind != kRing) ++kinds[kind];
  }
  return kinds;
}
inline size_t Rings() {
  size_t rings = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry, gone).filename() == kRing) ++rings;
  }
  return rings;
}

// A client that does what it is there for, and checks every byte.
class GoodClient {
 public:
  explicit GoodClient(const ServedDatabase& served) : graph_(served.tiny.graph()), peer_(served.socket()) {
    EXPECT_OK(peer_.Open(32 * kMiB, wire::kSharedMemory, 200));
    const auto opened = peer_.OpenStream({.road = FaultRoad()});
    EXPECT_OK(opened);
    stream_ = opened->stream;
  }
  void Start() {
    thread_ = std::thread([this] {
      while (!stop_) Once();
    });
  }
  void Stop() {
    stop_ = true;
    thread_.join();
  }
  void Close() { peer_.Close(); }
  uint64_t rounds() const { return rounds_; }

  void Once() {
    std::vector<NodeId> ids(16);
    for (NodeId& id : ids) id = kUntouched + static_cast<NodeId>(rng_.Below(graph_.nodes - kUntouched));
    const auto rows = peer_.CallFor<wire::Rows>(wire::Lookup{"feature", ids});
    ASSERT_OK(rows);
    const auto bytes = peer_.Take(rows->payload);
    ASSERT_OK(bytes);
    for (size_t i = 0; i < ids.size(); ++i) ExpectRow(ids[i], &(*bytes)[i * graph_.dim * 4]);
    CheckBatch();
    ++rounds_;
  }

 private:
  void ExpectRow(NodeId id, const std::byte* row) {
    ASSERT_EQ(std::memcmp(row, graph_.Row(id).data(), graph_.dim * 4), 0) << "row " << id;
  }
  void CheckBatch() {
    if (!in_pass_) {
      ASSERT_OK(peer_.CallFor<wire::PassStarted>(wire::StartPass{.stream = stream_, .pass = pass_++}));
      in_pass_ = true;
    }
    const auto next = peer_.Call(wire::NextBatch{stream_});
    ASSERT_OK(next);
    const auto* const batch = std::get_if<wire::Batch>(&*next);
    in_pass_ = batch != nullptr;
    if (!in_pass_) return;
    const wire::Lease& lease = std::get<wire::Lease>(batch->payload);
    const auto view =
        wire::OpenBatch(peer_.region(lease.range.region).subspan(lease.range.offset, lease.range.bytes));
    ASSERT_OK(view);
    ASSERT_OK(wire::CheckBatch(*view));
    for (size_t i = 0; i < view->nodes.size(); ++i) {
      if (view->nodes[i] >= kUntouched) ExpectRow(view->nodes[i], view->features.Row(i));
    }
    ASSERT_OK(peer_.CallFor<wire::Done>(wire::ReleaseLeases{{lease.id}}));
  }

  const TinyGraph graph_;
  WirePeer peer_;
  Rng rng_{kFaultSeed};
  uint64_t stream_ = 0, pass_ = 0;
  bool in_pass_ = false;
  std::atomic<uint64_t> rounds_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class FaultTest : public testing::Test {
 protected:
  explicit FaultTest(uint64_t budget_bytes = ServedDatabase::kBudgetBytes)
      : served_(TinyGraph{}, MakeDefaultBackend(), budget_bytes) {}
  void SetUp() override {
    const EmbeddingSpec spec = {.row_count = 50, .dim = 16};
    ASSERT_OK(CreateEmbeddings(*served_.store, "nodes", spec));
    served_.Start(Options());
  }
  virtual ServerOptions Options() { return {}; }

  // Memory that is granted to sessions, and sessions.
  std::pair<double, double> Held() {
    WirePeer peer(served_.socket());
    EXPECT_OK(peer.Hello());
    const auto stats = peer.CallFor<wire::Counters>(wire::Stats{});
    EXPECT_OK(stats);
    std::pair<double, double> held;
    for (const wire::Counter& counter : stats->counters) {
      if (counter.name == "quarry_budget_granted_bytes") held.first = counter.value;
      if (counter.name == "quarry_sessions") held.second = counter.value - 1;  // without this one
    }
    return held;
  }
  bool NobodyIsHeld() {
    return Eventually([this] { return Held() == std::pair<double, double>(); });
  }

  // A child does its deed, and is killed: some milliseconds later, when the server may be at anything.
  void Kill(Zygote::Deed deed, uint64_t round) {
    const Zygote::Child child = Zygote::Instance().Fork(deed, served_.socket(), round);
    EXPECT_TRUE(child.done) << "the deed failed";
    std::this_thread::sleep_for(std::chrono::microseconds(MixSeed(kFaultSeed, round) % 2000));
    EndChild(child);
  }
  static void EndChild(const Zygote::Child& child) {
    ASSERT_EQ(kill(child.pid, SIGKILL), 0);
    EXPECT_EQ(WTERMSIG(Zygote::Instance().Wait(child.pid)), SIGKILL);
  }

  ServedDatabase served_;
};

}  // namespace quarry::testing_util
