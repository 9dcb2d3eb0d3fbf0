// A graph that grows and shrinks, over every road to its batches: whatever came, went and was compacted between, a batch has
// the nodes, rows, labels and edges of its road's snapshot, none that was not there and none missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "pipeline/grown_model.h"
#include "quarry/client/store.h"
#include "quarry/format/fanouts.h"
#include "quarry/layout/rebuild.h"
#include "quarry/partition/stored_partitioning.h"
#include "quarry/pipeline/live_road.h"
#include "quarry/pipeline/partitioned_node_road.h"
#include "quarry/pipeline/planned_road.h"
#include "quarry/pipeline/superbatch_road.h"
#include "quarry/server/server.h"
#include "support/repetitions.h"

namespace quarry {
namespace {

using testing_util::GrownGraph;
using testing_util::GrownModel;
using testing_util::kDrawsAlone;

// More neighbors than any node has: the draw of a planned road takes all.
constexpr uint32_t kMoreThanAny = 1000;
constexpr uint32_t kParts = 4;

std::vector<NodeId> SeedsOf(const GrownModel& model, Split split) {
  std::vector<NodeId> seeds;
  for (const int64_t node : model.NodesOf(split)) {
    if (split == Split::kTrain && model.labels[static_cast<size_t>(node)] < 0) continue;
    seeds.push_back(static_cast<NodeId>(node));
  }
  return seeds;
}

// The neighbors of each node along a direction, and how often each.
using Lists = std::vector<std::map<NodeId, uint64_t>>;
Lists ListsOf(const GrownModel& model, Direction direction) {
  Lists lists(model.nodes());
  for (const auto& [ends, count] : model.edges) {
    const auto [destination, source] = ends;
    if (direction != Direction::kOut) lists[destination][static_cast<NodeId>(source)] += count;
    if (direction != Direction::kIn) lists[source][static_cast<NodeId>(destination)] += count;
  }
  return lists;
}

// What the batches of a road are held against.
struct Expected {
  Expected(const GrownModel& rows_of, const GrownModel& graph, Direction direction)
      : rows(rows_of), lists(ListsOf(graph, direction)), graph_of_seeds(graph) {}
  GrownModel rows;  // and labels
  Lists lists;
  GrownModel graph_of_seeds;
  std::vector<uint32_t>
      part_of;  // of the partitioned road: neighbors in parts that are not held may be missing
};

// The hops of a batch that has all neighbors are those of the lists.
void ExpectHops(const BatchView& view, const Lists& lists) {
  std::set<NodeId> known(view.seeds().begin(), view.seeds().end());
  ASSERT_EQ(known.size(), view.seed_count);
  for (uint32_t hop = 1; hop <= view.hops(); ++hop) {
    std::set<NodeId> next = known;
    for (const NodeId node : known) {
      for (const auto& [neighbor, count] : lists[node]) next.insert(neighbor);
    }
    known = std::move(next);
    ASSERT_EQ(std::set(view.nodes.begin(), view.nodes.begin() + view.hop_offsets[hop]), known)
        << "hop " << hop;
  }
}

void ExpectBatch(const BatchView& view, const Expected& expected) {
  ASSERT_EQ(std::set(view.nodes.begin(), view.nodes.end()).size(), view.nodes.size());
  ASSERT_EQ(view.labels.size(), view.seed_count);
  std::set<uint32_t> held;  // parts that are known to be
  for (size_t v = 0; v < view.nodes.size(); ++v) {
    const NodeId node = view.nodes[v];
    ASSERT_LT(node, expected.lists.size()) << "a node that was not there";
    const std::vector<float>& row = expected.rows.rows[node];
    ASSERT_EQ(std::memcmp(view.features.Row(v), row.data(), row.size() * sizeof(float)), 0) << "row " << node;
    if (v < view.seed_count) {
      ASSERT_EQ(view.labels[v], expected.rows.labels[node]) << "label of " << node;
    }
    if (!expected.part_of.empty()) held.insert(expected.part_of[node]);
  }
  for (uint32_t v = 0; v < view.target_count(); ++v) {
    const std::map<NodeId, uint64_t>& list = expected.lists[view.nodes[v]];
    std::map<NodeId, uint64_t> drawn;
    for (uint32_t e = view.indptr[v]; e < view.indptr[v + 1]; ++e) ++drawn[view.nodes[view.indices[e]]];
    for (const auto& [neighbor, count] : drawn) {
      ASSERT_TRUE(list.contains(neighbor)) << "no edge between " << neighbor << " and " << view.nodes[v];
    }
    for (const auto& [neighbor, count] : list) {
      const bool may_be_missing = !expected.part_of.empty() && !held.contains(expected.part_of[neighbor]) &&
                                  !drawn.contains(neighbor);
      if (may_be_missing) continue;
      ASSERT_EQ(drawn[neighbor], count) << "edges between " << neighbor << " and " << view.nodes[v];
    }
  }
  if (expected.part_of.empty()) {
    ASSERT_NO_FATAL_FAILURE(ExpectHops(view, expected.lists));
  }
}

// The rest of a pass: each seed is in one batch. `Stream` is a road's, or a client's.
template <typename Stream>
void ExpectPass(Stream& stream, Split split, const Expected& expected) {
  const std::vector<NodeId> list = SeedsOf(expected.graph_of_seeds, split);
  std::set<NodeId> seeds(list.begin(), list.end());
  for (;;) {
    const auto batch = stream.Next();
    ASSERT_OK(batch);
    if (*batch == nullptr) break;
    ASSERT_NO_FATAL_FAILURE(ExpectBatch((*batch)->view(), expected));
    for (const NodeId seed : (*batch)->view().seeds()) ASSERT_EQ(seeds.erase(seed), 1u) << "seed " << seed;
  }
  ASSERT_THAT(seeds, testing::IsEmpty()) << "in no batch";
}

void ExpectRoadPass(Road& road, Split split, uint64_t pass, const Expected& expected) {
  const auto stream = road.StartPass({.seeds = SeedsOf(expected.graph_of_seeds, split), .pass = pass});
  ASSERT_OK(stream);
  ASSERT_NO_FATAL_FAILURE(ExpectPass(**stream, split, expected));
}

class GrownRoads : public GrownGraph {
 protected:
  ~GrownRoads() override { CloseRoads(); }

  RoadSpec Spec(uint32_t fanout) const {
    return {.direction = direction_,
            .fanouts = {fanout, fanout},
            .batch_size = 8,
            .cache_bytes = 30 * model_->dim * sizeof(float),
            .seed = 5};
  }
  LayoutSpec Plan(const std::string& name) const {
    return {.name = name, .road = Spec(kMoreThanAny), .epochs = 2};
  }
  LiveRoadOptions Live(uint32_t fanout = kAllNeighbors) const {
    LiveRoadOptions options;
    options.spec = Spec(fanout);
    options.topology_placement = pass_ % 2 == 0 ? LiveRoadOptions::TopologyPlacement::kMemory
                                                : LiveRoadOptions::TopologyPlacement::kDisk;
    options.tells_plan = false;
    return options;
  }

  void MakeWithPlans(uint64_t seed) {
    CloseRoads();
    pass_ = 0;
    const bool csr = seed % 2 == 0;
    ASSERT_NO_FATAL_FAILURE(Make(seed % 3 == 0 ? 6 : 130, csr, seed));
    direction_ = csr ? (seed % 4 == 0 ? Direction::kBoth : Direction::kOut) : Direction::kIn;
    ASSERT_OK(store_->UpdateManifest([](Manifest& manifest) {
      manifest.device = kDrawsAlone;
      return Status::Ok();
    }));
    ASSERT_NO_FATAL_FAILURE(PlanOld());
    ASSERT_OK(BuildLayout(*store_, budget_, Plan("mended"), false, {}));
    ASSERT_OK(MakePartitioning(*store_, budget_, {.table = "feature"},
                               {.method = PartitionMethod::kRandom, .parts = kParts}, {}));
  }
  void PlanOld() {
    ASSERT_OK(BuildLayout(*store_, budget_, Plan("old"), false, {}));
    planned_for_.emplace(*model_);
  }

  void CloseRoads() {
    kept_.clear();
    stream_.reset();
    client_.reset();
    server_.reset();
  }

  void Step() {
    switch (rng_.Below(9)) {
      case 0:
        return Grow(1 + rng_.Below(12), {.edges_go = false, .nodes_go = false, .a_row_changes = false});
      case 1:
      case 2:
        return Grow(0, {.edges_go = false, .nodes_go = false, .a_row_changes = false});
      case 3:
        return Grow(0, {.edges_come = false, .nodes_go = false, .a_row_changes = false});
      case 4:
        return Grow(0, {.edges_come = false, .edges_go = false, .a_row_changes = false});
      case 5:
        return Put();
      case 6:
        return Compact(/*all=*/false);
      case 7:
        CloseRoads();
        return Open();
      default:
        return Grow(rng_.Below(6));
    }
  }

  // A road that stays open while the graph grows, and what it was opened on.
  struct KeptRoad {
    std::string name;
    std::unique_ptr<MemoryBudget> budget;  // a road with lists on disk takes all there is
    std::unique_ptr<Road> road;
    Expected expected;
  };
  void KeepRoads() {
    const Expected now(*model_, *model_, direction_);
    for (const auto placement :
         {LiveRoadOptions::TopologyPlacement::kMemory, LiveRoadOptions::TopologyPlacement::kDisk}) {
      LiveRoadOptions options = Live();
      options.topology_placement = placement;
      auto budget = std::make_unique<MemoryBudget>(64 * kMiB);
      auto road = LiveRoad::Open(*store_, *budget, options);
      ASSERT_OK(road);
      kept_.push_back({"live", std::move(budget), std::move(*road), now});
    }
    if (!IsFresh(*store_->manifest(), *store_->manifest()->FindLayout("mended"))) return;
    auto budget = std::make_unique<MemoryBudget>(64 * kMiB);
    auto planned = PlannedRoad::Open(*store_, *budget, {.layout = "mended", .tells_plan = false});
    ASSERT_OK(planned);
    if (SeedsOf(*model_, Split::kTrain) != (*planned)->TrainNodes() ||
        HashSeeds((*planned)->TrainNodes()) != (*planned)->layout().directory().seed_hash) {
      return;
    }
    kept_.push_back({"planned", std::move(budget), std::move(*planned), now});
  }

  // A client's stream that stays open as well.
  void OpenClient() {
    auto server = Server::Start(*store_, server_budget_, {.socket_path = folder_.path() + "/run/s"});
    ASSERT_OK(server);
    server_ = std::move(*server);
    auto client = client::OpenRemote("unix:" + folder_.path() + "/run/s", {.memory_bytes = 128 * kMiB});
    ASSERT_OK(client);
    client_ = std::move(*client);
    auto stream = client_->OpenStream({.road = Spec(kAllNeighbors)});
    ASSERT_OK(stream);
    stream_ = std::move(*stream);
    stream_expects_.emplace(*model_, *model_, direction_);
  }

  void CheckStream(client::Stream& stream, const Expected& expected) {
    for (const Split split : {Split::kTrain, Split::kValid}) {
      ASSERT_OK(stream.StartPass({.seeds = split, .pass = ++pass_}));
      ASSERT_NO_FATAL_FAILURE(ExpectPass(stream, split, expected));
    }
  }

  void CheckLive(const Expected& now) {
    const auto road = LiveRoad::Open(*store_, budget_, Live());
    ASSERT_OK(road);
    ASSERT_EQ((*road)->TrainNodes(), SeedsOf(*model_, Split::kTrain));
    for (const Split split : {Split::kTrain, Split::kValid}) {
      ASSERT_NO_FATAL_FAILURE(ExpectRoadPass(**road, split, ++pass_, now));
    }
  }

  // The edges of its build, and the rows and labels of now.
  void CheckOld() {
    const std::shared_ptr<const Manifest> manifest = store_->manifest();
    ASSERT_TRUE(IsServable(*manifest, *manifest->FindLayout("old")));
    const auto road = PlannedRoad::Open(*store_, budget_, {.layout = "old", .tells_plan = false});
    ASSERT_OK(road);
    const Expected expected(*model_, *planned_for_, direction_);
    for (int pass = 0; pass < 2; ++pass) {
      ASSERT_NO_FATAL_FAILURE(ExpectRoadPass(**road, Split::kTrain, ++pass_, expected));
    }
  }

  void Rebuild() {
    RebuildReport report;
    ASSERT_OK(RebuildLayout(*store_, budget_, "mended", {}, {}, &report));
    ++rebuilds_[report.path];
  }
  void CheckMended(const Expected& now) {
    ASSERT_NO_FATAL_FAILURE(Rebuild());
    ASSERT_TRUE(IsFresh(*store_->manifest(), *store_->manifest()->FindLayout("mended")));
    const auto road = PlannedRoad::Open(
        *store_, budget_, {.layout = "mended", .tells_plan = false, .live = Live(kMoreThanAny)});
    ASSERT_OK(road);
    EXPECT_TRUE(HashSeeds(SeedsOf(*model_, Split::kTrain)) == (*road)->layout().directory().seed_hash);
    for (const Split split : {Split::kTrain, Split::kValid, Split::kTrain}) {
      ASSERT_NO_FATAL_FAILURE(ExpectRoadPass(**road, split, ++pass_, now));
    }
  }

  void CheckSuperbatches(const Expected& now) {
    SuperbatchRoadOptions options = {.layout = Plan("superbatch"), .live = Live(kMoreThanAny)};
    options.layout.epochs = 1;
    options.layout.batches = rng_.Below(2) == 0 ? 0 : 2;
    const auto road = SuperbatchRoad::Open(*store_, budget_, options);
    ASSERT_OK(road);
    for (const Split split : {Split::kTrain, Split::kValid}) {
      ASSERT_NO_FATAL_FAILURE(ExpectRoadPass(**road, split, ++pass_, now));
    }
  }

  // With all parts held, every edge is there; with fewer, those among the parts that are.
  void CheckParts(const Expected& now) {
    ASSERT_OK(MakePartitioning(*store_, budget_, {.table = "feature"},
                               {.method = PartitionMethod::kKept, .parts = 0}, {}));
    for (const uint32_t buffer : {2U, kParts}) {
      SCOPED_TRACE(testing::Message() << buffer << " parts held");
      PartitionedNodeRoadOptions options;
      options.parts.buffer = buffer;
      options.spec = Spec(kMoreThanAny);
      const auto road = PartitionedNodeRoad::Open(*store_, budget_, options);
      ASSERT_OK(road);
      Expected expected = now;
      if (buffer < kParts) {
        const auto assignment = ReadAssignment(*store_, budget_, "default");
        ASSERT_OK(assignment);
        expected.part_of = assignment->part_of;
      }
      for (const Split split : {Split::kTrain, Split::kValid}) {
        const auto stream = (*road)->StartSplit(split, {.pass = ++pass_});
        ASSERT_OK(stream);
        ASSERT_NO_FATAL_FAILURE(ExpectPass(**stream, split, expected));
      }
    }
  }

  void CheckServed(const Expected& now) {
    if (server_ == nullptr) {
      ASSERT_NO_FATAL_FAILURE(OpenClient());
    }
    ASSERT_NO_FATAL_FAILURE(CheckStream(*stream_, *stream_expects_)) << "the stream that stays open";
    for (const bool planned : {false, true}) {
      SCOPED_TRACE(planned ? "planned" : "live");
      wire::OpenStream request = {.road = Spec(kAllNeighbors)};
      if (planned) request.road = wire::PlannedSpec{.layout = "mended", .live = Spec(kMoreThanAny)};
      const auto stream = client_->OpenStream(request);
      ASSERT_OK(stream);
      ASSERT_NO_FATAL_FAILURE(CheckStream(**stream, now));
    }
  }

  void CheckRoads() {
    const Expected now(*model_, *model_, direction_);
    const auto trace = [](const char* road) { return testing::ScopedTrace(__FILE__, __LINE__, road); };
    for (const KeptRoad& kept : kept_) {
      const auto at = trace(("a road that stays open: " + kept.name).c_str());
      ASSERT_NO_FATAL_FAILURE(ExpectRoadPass(*kept.road, Split::kTrain, ++pass_, kept.expected));
    }
    {
      const auto at = trace("a live road");
      ASSERT_NO_FATAL_FAILURE(CheckLive(now));
    }
    {
      const auto at = trace("a layout of the graph before");
      ASSERT_NO_FATAL_FAILURE(CheckOld());
    }
    {
      const auto at = trace("a rebuilt layout");
      ASSERT_NO_FATAL_FAILURE(CheckMended(now));
    }
    {
      const auto at = trace("superbatches");
      ASSERT_NO_FATAL_FAILURE(CheckSuperbatches(now));
    }
    {
      const auto at = trace("parts");
      ASSERT_NO_FATAL_FAILURE(CheckParts(now));
    }
    const auto at = trace("a server");
    ASSERT_NO_FATAL_FAILURE(CheckServed(now));
  }

  Direction direction_ = Direction::kIn;
  uint64_t pass_ = 0;
  std::optional<GrownModel> planned_for_;  // what the layout "old" was built of
  std::vector<KeptRoad> kept_;
  MemoryBudget server_budget_{kGiB};  // a stream of it takes all there is
  std::unique_ptr<Server> server_;
  std::unique_ptr<client::Store> client_;
  std::unique_ptr<client::Stream> stream_;
  std::optional<Expected> stream_expects_;
  std::map<RebuildPath, uint64_t> rebuilds_;
};

TEST_F(GrownRoads, AllOfThemHaveTheGraphOfTheirSnapshot) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 60 : std::strtoull(given, nullptr, 10);
  const uint64_t seeds = testing_util::Repetitions(6);
  for (uint64_t seed = base; seed < base + seeds; ++seed) {
    ASSERT_NO_FATAL_FAILURE(MakeWithPlans(seed));
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << seed << ", " << NameOf(direction_));
    ASSERT_NO_FATAL_FAILURE(CheckRoads());
    for (int step = 1; step <= 24; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      ASSERT_NO_FATAL_FAILURE(Step());
      ASSERT_NO_FATAL_FAILURE(Rebuild());
      if (step % 4 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(CheckRoads());
      if (rng_.Below(3) == 0) {
        ASSERT_NO_FATAL_FAILURE(PlanOld());
      }
      if (kept_.size() > 6) kept_.clear();
      ASSERT_NO_FATAL_FAILURE(KeepRoads());
    }
    CloseRoads();
    ASSERT_NO_FATAL_FAILURE(Compact(/*all=*/true));
    ASSERT_NO_FATAL_FAILURE(CheckRoads());
  }
  if (seeds < 4) return;
  EXPECT_GT(rebuilds_[RebuildPath::kMend], 0u);
  EXPECT_GT(rebuilds_[RebuildPath::kBuild], 0u);
}

}  // namespace
}  // namespace quarry
