// Invariant 5: whichever road serves a row, it is the newest version that the road's snapshot has. Random
// writes, layout builds, restarts and reads over every road, held against a map of versions.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/storage/compaction.h"
#include "support/repetitions.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::SmallOptions;
using testing_util::TinyDatabase;
using testing_util::TinyGraph;

using Bytes = std::vector<std::byte>;

// Every version of every row that was ever committed.
class Versions {
 public:
  explicit Versions(const TinyGraph& graph) : graph_(graph) {}
  void Put(const std::string& table, uint64_t row, uint64_t timestamp, Bytes value) {
    rows_[{table, row}][timestamp] = std::move(value);
  }
  Bytes FeatureAt(NodeId node, uint64_t timestamp) const {
    const Bytes* const version = Find("feature", node, timestamp);
    if (version == nullptr) return graph_.Row(node);
    return version->empty() ? Bytes(RowBytes(graph_.type, graph_.dim)) : *version;
  }
  int64_t LabelAt(NodeId node, uint64_t timestamp) const {
    const Bytes* const version = Find("label", node, timestamp);
    if (version == nullptr) return graph_.Label(node);
    int64_t label = 0;
    std::memcpy(&label, version->data(), sizeof(label));
    return label;
  }
  Split SplitAt(NodeId node, uint64_t timestamp) const {
    const Bytes* const version = Find("split", node, timestamp);
    if (version != nullptr) return static_cast<Split>((*version)[0]);
    const uint64_t part = node % 10;
    return part < 6 ? Split::kTrain : part < 8 ? Split::kValid : Split::kTest;
  }
  std::vector<NodeId> TrainNodesAt(uint64_t timestamp) const {
    std::vector<NodeId> nodes;
    for (NodeId node = 0; node < graph_.nodes; ++node) {
      if (SplitAt(node, timestamp) == Split::kTrain && LabelAt(node, timestamp) >= 0) nodes.push_back(node);
    }
    return nodes;
  }

 private:
  const Bytes* Find(const std::string& table, uint64_t row, uint64_t timestamp) const {
    const auto versions = rows_.find({table, row});
    if (versions == rows_.end()) return nullptr;
    auto after = versions->second.upper_bound(timestamp);
    return after == versions->second.begin() ? nullptr : &std::prev(after)->second;
  }
  const TinyGraph graph_;
  std::map<std::pair<std::string, uint64_t>, std::map<uint64_t, Bytes>> rows_;
};

enum class RoadKind { kLive, kPlanned, kUnpacked, kSuperbatches };

// A road, the snapshot that it must show, and what it stands on.
struct HeldRoad {
  std::unique_ptr<MemoryBudget> budget = std::make_unique<MemoryBudget>(kGiB);
  std::string folder;  // of a layout that the catalog does not name
  std::unique_ptr<Road> road;
  uint64_t timestamp = 0;
  RoadKind kind = RoadKind::kLive;
};

class World {
 public:
  World(const TinyDatabase& database, uint64_t seed)
      : database_(database), rng_(seed), versions_(database.graph()) {
    Reopen();
  }

  void Step() {
    switch (rng_.Below(9)) {
      case 0:
        Reopen();
        break;
      case 8:
        Compact();
        break;
      case 1:
        Build();
        break;
      case 2:
      case 3:
        Hold(static_cast<RoadKind>(rng_.Below(4)));
        break;
      default:
        Write();
    }
    for (const auto& held : held_) {
      if (!testing::Test::HasFatalFailure()) Check(*held);
    }
  }

 private:
  void Reopen() {
    held_.clear();
    store_.reset();
    ASSERT_OK_AND_ASSIGN(auto store, Store::Open(*backend_, database_.path()));
    store_ = std::move(store);
    ASSERT_OK_AND_ASSIGN(const auto snapshot, store_->TakeSnapshot());
    ASSERT_EQ(snapshot->timestamp, newest_);
  }

  void Compact() {
    MemoryBudget budget(kGiB);
    constexpr const char* kTables[] = {"feature", "feature", "label", "split"};
    const auto report = CompactTable(*store_, budget, kTables[rng_.Below(4)], false, {});
    ASSERT_OK(report);
  }

  LayoutSpec RandomSpec() {
    const LiveRoadOptions live = SmallOptions();
    LayoutSpec spec{.road = live.spec};
    spec.policy = kAllPolicies[rng_.Below(std::size(kAllPolicies))];
    spec.road.cache_bytes = rng_.Below(database_.graph().nodes) * 512;
    return spec;
  }

  void Build() {
    MemoryBudget budget(kGiB);
    LayoutSpec spec = RandomSpec();
    if (rng_.Below(2) == 0) spec.disk_bytes = database_.graph().nodes * 512 * 3;
    const auto record = BuildLayout(*store_, budget, spec, false, {});
    if (record.status().code() == Code::kNoSpace) return;
    ASSERT_OK(record);
    built_ = true;
  }

  void Hold(RoadKind kind) {
    auto held = std::make_unique<HeldRoad>();
    held->kind = kind;
    held->timestamp = newest_;
    if (kind == RoadKind::kLive) {
      ASSERT_OK_AND_ASSIGN(auto road, LiveRoad::Open(*store_, *held->budget, SmallOptions()));
      held->road = std::move(road);
    } else if (kind == RoadKind::kSuperbatches) {
      LayoutSpec spec = RandomSpec();
      spec.name = "road-" + std::to_string(serial_++);
      spec.packing = rng_.Below(2) == 0 ? Packing::kAlways : Packing::kNever;
      ASSERT_OK_AND_ASSIGN(
          auto road, SuperbatchRoad::Open(*store_, *held->budget, {.layout = spec, .live = SmallOptions()}));
      held->road = std::move(road);
    } else {
      PlannedRoadOptions options{.live = SmallOptions()};
      if (kind == RoadKind::kUnpacked) {
        LayoutSpec spec = RandomSpec();
        spec.name = "road-" + std::to_string(serial_++);
        spec.packing = Packing::kNever;
        ASSERT_OK_AND_ASSIGN(const auto record, BuildPassingLayout(*store_, *held->budget, spec, {}));
        options.record = record;
        held->folder = database_.path() + "/" + record.directory;
      } else if (!built_) {
        return;
      }
      ASSERT_OK_AND_ASSIGN(auto road, PlannedRoad::Open(*store_, *held->budget, options));
      held->road = std::move(road);
    }
    if (held_.size() == 3) held_.erase(held_.begin() + static_cast<ptrdiff_t>(rng_.Below(3)));
    held_.push_back(std::move(held));
  }

  void Write() {
    WriteBatch batch;
    std::map<std::pair<std::string, uint64_t>, Bytes> written;
    const uint64_t count = 1 + rng_.Below(40);
    for (uint64_t i = 0; i < count; ++i) {
      // Some rows are written again and again: those that caches hold.
      const auto node = static_cast<NodeId>(rng_.Below(rng_.Below(2) == 0 ? 20 : database_.graph().nodes));
      const uint64_t kind = rng_.Below(10);
      if (kind == 0) {
        const auto label = static_cast<int64_t>(rng_.Below(6)) - 1;
        batch.SetLabel(node, label);
        const auto bytes = std::as_bytes(std::span(&label, 1));
        written[{"label", node}] = Bytes(bytes.begin(), bytes.end());
      } else if (kind == 1) {
        const auto split = static_cast<Split>(rng_.Below(4));
        batch.SetSplit(node, split);
        written[{"split", node}] = {static_cast<std::byte>(split)};
      } else if (kind == 2) {
        batch.Delete("feature", node);
        written[{"feature", node}] = {};
      } else {
        Bytes row(RowBytes(database_.graph().type, database_.graph().dim));
        for (std::byte& byte : row) byte = static_cast<std::byte>(rng_.Below(256));
        batch.Put("feature", node, row);
        written[{"feature", node}] = row;
      }
    }
    ASSERT_OK_AND_ASSIGN(const auto timestamp, store_->Write(batch));
    ASSERT_EQ(timestamp, newest_ + 1);
    newest_ = timestamp;
    for (auto& [key, value] : written) versions_.Put(key.first, key.second, newest_, std::move(value));
  }

  void Check(HeldRoad& held) {
    SCOPED_TRACE(testing::Message() << "road of kind " << static_cast<int>(held.kind) << ", opened at "
                                    << held.timestamp << ", now " << newest_);
    const std::vector<NodeId> seeds = versions_.TrainNodesAt(held.timestamp);
    ASSERT_EQ(held.road->TrainNodes(), seeds);
    ASSERT_OK_AND_ASSIGN(const auto stream,
                         held.road->StartPass({.seeds = seeds, .pass = 1 + rng_.Below(2), .ordered = true}));
    for (;;) {
      ASSERT_OK_AND_ASSIGN(const auto batch, stream->Next());
      if (!batch) return;
      const BatchView& block = batch->view();
      for (size_t v = 0; v < block.nodes.size(); ++v) {
        const Bytes expected = versions_.FeatureAt(block.nodes[v], held.timestamp);
        ASSERT_EQ(std::memcmp(block.features.Row(v), expected.data(), expected.size()), 0)
            << "node " << block.nodes[v];
      }
      for (size_t s = 0; s < block.seed_count; ++s) {
        ASSERT_EQ(block.labels[s], versions_.LabelAt(block.nodes[s], held.timestamp));
      }
    }
  }

  const TinyDatabase& database_;
  Rng rng_;
  Versions versions_;
  uint64_t newest_ = 0;
  int serial_ = 0;
  bool built_ = false;
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<HeldRoad>> held_;
};

TEST(FreshnessTest, EveryRoadServesTheNewestVersionsOfItsSnapshot) {
  const uint64_t count = testing_util::Repetitions(6);
  for (uint64_t seed = 1; seed <= count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    // Rows with a checksum of their own, and small ones that share a page.
    const TinyDatabase database(TinyGraph{.nodes = 300, .dim = seed % 2 == 0 ? 128U : 5U});
    World world(database, seed);
    for (int step = 0; step < 25; ++step) {
      world.Step();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace quarry
