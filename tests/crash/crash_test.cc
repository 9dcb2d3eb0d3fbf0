// Invariants 2 and 5 against SIGKILL: a child puts rows, compacts and builds layouts, and is killed at random
// instants and at chosen operations on files; the parent opens what is left and holds it against what the
// child had acknowledged. No step of repair between.
//
// The rows of commit t are a function of (seed, t), so the parent needs no word from the child but the last
// t.
//
//   QUARRY_TEST_KILLS=3000   more of them          QUARRY_TEST_SEED=7   another sequence
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/storage/compaction.h"

namespace quarry {
namespace {

using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Passes everything on, and dies at the k-th operation that changes files.
class KillingBackend final : public IoBackend {
 public:
  KillingBackend(IoBackend& inner, uint64_t kill_at) : inner_(inner), kill_at_(kill_at) {}
  std::string_view name() const override { return "killing"; }
  Result<std::unique_ptr<IoPort>> NewPort(unsigned depth) override { return inner_.NewPort(depth); }
  Result<File> Open(const std::string& path, OpenMode mode) override {
    if (mode == OpenMode::kCreate || mode == OpenMode::kCreateDirect) Count();
    return inner_.Open(path, mode);
  }
  Result<uint64_t> FileBytes(const File& file) override { return inner_.FileBytes(file); }
  Status ReadAt(const File& file, uint64_t offset, std::span<std::byte> out) override {
    return inner_.ReadAt(file, offset, out);
  }
  Status WriteAt(const File& file, uint64_t offset, std::span<const std::byte> bytes) override {
    Count();
    return inner_.WriteAt(file, offset, bytes);
  }
  Status SyncFile(const File& file) override {
    Count();
    return inner_.SyncFile(file);
  }
  Status SyncDirectory(const std::string& path) override {
    Count();
    return inner_.SyncDirectory(path);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    Count();
    return inner_.Rename(from, to);
  }

 private:
  void Count() {
    if (++count_ == kill_at_) raise(SIGKILL);
  }
  IoBackend& inner_;
  const uint64_t kill_at_;  // 0: never
  std::atomic<uint64_t> count_{0};
};

// What commit `timestamp` writes, by row; empty: deleted.
std::map<uint64_t, Bytes> CommitOf(uint64_t seed, uint64_t timestamp, const TinyGraph& graph) {
  Rng rng(MixSeed(seed, timestamp));
  std::map<uint64_t, Bytes> rows;
  const uint64_t count = 1 + rng.Below(30);
  for (uint64_t i = 0; i < count; ++i) {
    Bytes row;
    if (rng.Below(8) != 0) {
      row.resize(RowBytes(graph.type, graph.dim));
      for (std::byte& byte : row) byte = static_cast<std::byte>(rng.Below(256));
    }
    rows[rng.Below(graph.nodes)] = std::move(row);
  }
  return rows;
}

LayoutSpec SpecOf(const TinyGraph& graph) {
  return {.fanouts = {3, 2}, .batch_size = 32, .seed = 5, .cache_bytes = graph.nodes * 128};
}

// What the child is told, in its environment: it is a process of its own, because RocksDB's threads do not
// come along in a fork.
struct Orders {
  std::string database;
  uint64_t nodes = 0, seed = 0, round = 0, kill_at = 0;
  int acknowledged = -1;  // where each commit is told

  std::string ToText() const {
    return fmt::format("{} {} {} {} {} {}", nodes, seed, round, kill_at, acknowledged, database);
  }
  static Orders FromText(const std::string& text) {
    Orders orders;
    std::istringstream stream(text);
    stream >> orders.nodes >> orders.seed >> orders.round >> orders.kill_at >> orders.acknowledged;
    stream >> std::ws;
    std::getline(stream, orders.database);
    return orders;
  }
};
constexpr const char* kOrders = "QUARRY_CRASH_ORDERS";

// The child: never returns.
[[noreturn]] void Work(const Orders& orders) {
  const TinyGraph graph{.nodes = orders.nodes};
  const std::unique_ptr<IoBackend> real = MakeThreadBackend(2);
  KillingBackend backend(*real, orders.kill_at);
  const auto check = [](const Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "the child failed: %s\n", status.ToString().c_str());
    _exit(3);
  };
  auto opened = Store::Open(backend, orders.database);
  check(opened.status());
  Store& store = **opened;
  MemoryBudget budget(kGiB);
  Rng rng(MixSeed(orders.seed, orders.round, 99));
  const auto snapshot = store.TakeSnapshot();
  check(snapshot.status());
  for (uint64_t timestamp = (*snapshot)->timestamp + 1;;) {
    const uint64_t what = rng.Below(10);
    if (what == 0) {
      check(CompactTable(store, budget, "feature", false, {}).status());
    } else if (what == 1) {
      check(BuildLayout(store, budget, SpecOf(graph), rng.Below(2) == 0, {}).status());
    } else {
      WriteBatch batch;
      for (const auto& [row, value] : CommitOf(orders.seed, timestamp, graph))
        batch.Put("feature", row, value);
      const auto written = store.Write(batch);
      check(written.status());
      if (*written != timestamp) _exit(4);
      if (write(orders.acknowledged, &timestamp, sizeof(timestamp)) != sizeof(timestamp)) _exit(5);
      ++timestamp;
    }
  }
}

class Harness {
 public:
  Harness(const TinyDatabase& database, uint64_t seed) : database_(database), seed_(seed), rng_(seed) {
    for (NodeId node = 0; node < database.graph().nodes; ++node) rows_.push_back(database.graph().Row(node));
  }

  void Kill(uint64_t round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    // Half of them die at an operation on a file, the others at an instant.
    const uint64_t kill_at = rng_.Below(2) == 0 ? 1 + rng_.Below(80) : 0;
    // Most die soon after their first commit, however slow the machine is; some earlier, some a good deal
    // later.
    const uint64_t kind = rng_.Below(8);
    const auto wait_us = static_cast<useconds_t>(rng_.Below(kind == 0 ? 400'000 : 40'000));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(ends[0]);
      const Orders orders{database_.path(), database_.graph().nodes, seed_, round, kill_at, ends[1]};
      setenv(kOrders, orders.ToText().c_str(), 1);
      execl("/proc/self/exe", "crash_test", "--gtest_filter=CrashChild.*", "--gtest_brief=1", nullptr);
      _exit(127);
    }
    close(ends[1]);
    if (kind != 1) {
      pollfd first{.fd = ends[0], .events = POLLIN, .revents = 0};
      poll(&first, 1, 10'000);
    }
    usleep(kill_at == 0 ? wait_us : 100'000);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended with " << WEXITSTATUS(status);
    uint64_t acknowledged = committed_;
    for (uint64_t timestamp = 0; read(ends[0], &timestamp, sizeof(timestamp)) == sizeof(timestamp);) {
      acknowledged = timestamp;
    }
    close(ends[0]);
    Check(acknowledged);
  }

  uint64_t committed() const { return committed_; }
  uint64_t generation() const { return generation_; }
  uint64_t layouts() const { return layouts_; }

 private:
  void Check(uint64_t acknowledged) {
    const std::unique_ptr<IoBackend> backend = MakeThreadBackend(2);
    const auto opened = Store::Open(*backend, database_.path());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    Store& store = **opened;
    const std::shared_ptr<const Snapshot> snapshot = store.TakeSnapshot().value();
    ASSERT_GE(snapshot->timestamp, acknowledged) << "an acknowledged commit is lost";
    ASSERT_LE(snapshot->timestamp, acknowledged + 1) << "a commit that nobody made";
    for (uint64_t t = committed_ + 1; t <= snapshot->timestamp; ++t) {
      for (auto& [row, value] : CommitOf(seed_, t, database_.graph())) {
        rows_[row] = value.empty() ? Bytes(rows_[row].size()) : value;
      }
    }
    committed_ = snapshot->timestamp;
    ExpectRows(store, snapshot);
    const auto report = VerifyStore(store, {});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    for (const Status& fault : report->faults) ADD_FAILURE() << fault.ToString();
    generation_ = store.manifest().FindTable("feature")->generation;
    if (const LayoutRecord* const layout = store.manifest().FindLayout("default")) {
      layouts_ = layout->generation;
      if (rng_.Below(4) == 0) ExpectLayout(store);
    }
  }

  void ExpectRows(Store& store, const std::shared_ptr<const Snapshot>& snapshot) {
    const auto table = store.OpenTable(*snapshot, "feature");
    ASSERT_TRUE(table.ok()) << table.status().ToString();
    const uint64_t row_bytes = (*table)->geometry().row_bytes;
    Bytes all(rows_.size() * row_bytes);
    ASSERT_TRUE((*table)->ReadRows(store.backend(), 0, rows_.size(), all).ok());
    const auto overlay = store.OpenOverlay("feature", snapshot);
    ASSERT_TRUE(overlay.ok()) << overlay.status().ToString();
    const std::vector<uint64_t> touched = (*overlay)->TouchedRows();
    ASSERT_TRUE((*overlay)
                    ->Read(touched,
                           [&](size_t i, std::span<const std::byte> value) {
                             std::memcpy(all.data() + touched[i] * row_bytes, value.data(), row_bytes);
                           })
                    .ok());
    for (uint64_t row = 0; row < rows_.size(); ++row) {
      ASSERT_EQ(std::memcmp(all.data() + row * row_bytes, rows_[row].data(), row_bytes), 0)
          << "row " << row << " after commit " << committed_;
    }
  }

  // The layout that is there serves the newest rows.
  void ExpectLayout(Store& store) {
    MemoryBudget budget(kGiB);
    const auto road = PlannedRoad::Open(store, budget, {});
    ASSERT_TRUE(road.ok()) << road.status().ToString();
    const auto stream = (*road)->StartPass({.seeds = (*road)->TrainNodes(), .ordered = true});
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    for (;;) {
      const auto batch = (*stream)->Next();
      ASSERT_TRUE(batch.ok()) << batch.status().ToString();
      if (!*batch) return;
      const FeatureView& view = (*batch)->features();
      for (size_t v = 0; v < view.slots.size(); ++v) {
        const Bytes& expected = rows_[(*batch)->block().nodes[v]];
        ASSERT_EQ(
            std::memcmp(view.base + view.slots[v] * view.stride_bytes, expected.data(), expected.size()), 0);
      }
    }
  }

  const TinyDatabase& database_;
  const uint64_t seed_;
  Rng rng_;
  std::vector<Bytes> rows_;  // after commit committed_
  uint64_t committed_ = 0;
  uint64_t generation_ = 1;
  uint64_t layouts_ = 0;
};

TEST(CrashChild, Work) {
  const char* const orders = std::getenv(kOrders);
  if (orders == nullptr) GTEST_SKIP() << "the child's part of CrashTest";
  std::fclose(stdout);
  Work(Orders::FromText(orders));
}

TEST(CrashTest, WhatWasAcknowledgedSurvivesAndNothingIsHalfThere) {
  const uint64_t kills = FromEnvironment("QUARRY_TEST_KILLS", 300);
  const uint64_t seed = FromEnvironment("QUARRY_TEST_SEED", 1);
  std::printf("%llu kills, seed %llu\n", static_cast<unsigned long long>(kills),
              static_cast<unsigned long long>(seed));
  const TinyDatabase database(TinyGraph{.nodes = 250});
  Harness harness(database, seed);
  for (uint64_t round = 0; round < kills; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", kill " << round);
    harness.Kill(round);
    if (testing::Test::HasFailure()) return;
  }
  // The child came to all that it does.
  EXPECT_GT(harness.committed(), kills / 2);
  EXPECT_GT(harness.generation(), 1u);
  if (kills >= 100) {
    EXPECT_GT(harness.layouts(), 0u);
  }
  std::printf("%llu commits, %llu compactions, %llu layouts\n",
              static_cast<unsigned long long>(harness.committed()),
              static_cast<unsigned long long>(harness.generation()),
              static_cast<unsigned long long>(harness.layouts()));
}

}  // namespace
}  // namespace quarry
