// What a graph that grows costs: every figure against a count of edges that come and go one by one.
#include "quarry/storage/growth_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"
#include "storage/any_device.h"
#include "storage/small_store.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

namespace fs = std::filesystem;
using testing_util::kAnyDevice;
using testing_util::ScratchFolder;
using testing_util::TinyGraph;

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

// One copy of an edge, and the commits that it came and went by; 0: the import.
struct Copy {
  float weight = 0;
  uint64_t born = 0;
  uint64_t died = kNever;
};

struct CountedShape {
  bool csr = false, weighted = false, deduplicate = false;
};

class CountedGraph {
 public:
  CountedGraph(const CountedShape& shape, uint64_t seed) : shape_(shape), rng_(seed) {
    const TinyGraph graph{.nodes = 40, .dim = 2, .degree = 3, .weighted = shape.weighted};
    nodes_ = nodes_of_file_ = graph.nodes;
    for (const Edge& edge : graph.Edges()) {
      copies_[{edge.source, edge.destination}].push_back(
          {.weight = shape.weighted ? TinyGraph::Weight(edge) : 0});
    }
    EXPECT_OK(ImportDatabase(*backend_, path(), testing_util::TinyDataset(graph),
                             {.both_directions = shape.csr, .deduplicate = shape.deduplicate}));
    Open();
  }

  void Open() {
    store_.reset();
    store_ = Store::Open(*backend_, path()).value();
    written_ = {};
  }

  void Commit() {
    const uint64_t more = rng_.Below(4) == 0 ? 1 + rng_.Below(5) : 0;
    auto change =
        GraphChange::Create(*store_, budget_, {.nodes = more, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    const size_t files = Graph().runs.size();
    const std::vector<Edge> gone = SomeEdges(nodes_);
    std::set<NodeId> cleared;
    if (rng_.Below(4) == 0) cleared.insert(static_cast<NodeId>(rng_.Below(nodes_)));
    nodes_ += more;
    std::map<Ends, std::vector<float>> added;
    for (const Edge& edge : SomeEdges(nodes_)) {
      const auto is_cleared = [&](uint64_t node) { return cleared.contains(static_cast<NodeId>(node)); };
      if (is_cleared(edge.source) || is_cleared(edge.destination)) continue;
      std::vector<float>& weights = added[{edge.source, edge.destination}];
      if (shape_.deduplicate && !weights.empty()) continue;
      weights.push_back(shape_.weighted ? static_cast<float>(rng_.Below(5)) / 4 : 0);
    }
    ASSERT_OK((*change)->RemoveNodes(std::vector<NodeId>(cleared.begin(), cleared.end())));
    ASSERT_OK((*change)->Remove(gone));
    for (const auto& [ends, weights] : added) {
      const std::vector<Edge> edges(weights.size(), Edge{ends.first, ends.second});
      ASSERT_OK((*change)->Add(edges, shape_.weighted ? weights : std::vector<float>()));
    }
    ASSERT_OK_AND_ASSIGN(const GraphChangeReport done, (*change)->Commit());
    Count(gone, cleared, added, done.added + done.removed > 0);
    written_.nodes_removed += cleared.size();
    written_.changed_edges += done.added + done.removed;
    if (done.added + done.removed > 0 || more > 0 || !cleared.empty()) ++written_.commits;
    const TopologyRecord graph = Graph();
    const uint64_t commit_bytes = written_.commit_bytes;
    written_.commit_bytes = store_->growth().Of("graph").commit_bytes;
    if (done.added + done.removed == 0) {
      EXPECT_EQ(written_.commit_bytes, commit_bytes);
    } else if (graph.runs.size() > files) {
      EXPECT_EQ(written_.commit_bytes, commit_bytes + graph.runs.back().file_bytes);
    } else {  // merged with others: its file is gone
      ++merges_;
      EXPECT_GT(written_.commit_bytes, commit_bytes);
      written_.merge_bytes += graph.runs.back().file_bytes;
    }
  }
  void Fold() {
    const bool folds = !IsFolded(Graph());
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", /*dry_run=*/false, {}));
    if (folds) written_.compaction_bytes += Graph().file_bytes;
    folded_ = commits_;
    nodes_of_file_ = nodes_;
    EXPECT_EQ(CostOf(Graph(), kAnyDevice).price.slowdown(), 1);
  }

  void Check() {
    const TopologyRecord graph = Graph();
    uint64_t commit = folded_ + 1, added = 0, removed = 0, bytes = 0, nodes_before = nodes_of_file_;
    ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> nodes,
                         NodesOfRuns(*backend_, path(), graph, store_->manifest()->database_id));
    ASSERT_EQ(nodes.size(), graph.runs.size());
    for (size_t i = 0; i < graph.runs.size(); ++i) {
      const TopologyRun& run = graph.runs[i];
      const uint64_t last = commit + run.commits - 1;
      uint64_t came = 0, went = 0;
      for (const auto& [ends, copies] : copies_) {
        for (const Copy& copy : copies) {
          came += copy.born >= commit && copy.born <= last && copy.died > last ? 1 : 0;
          went += copy.born < commit && copy.died >= commit && copy.died <= last ? 1 : 0;
        }
      }
      EXPECT_EQ(run.added, came) << run.file;
      EXPECT_EQ(run.removed, went) << run.file;
      EXPECT_EQ(run.file_bytes, fs::file_size(path() + "/" + run.file));
      EXPECT_EQ(nodes[i], nodes_at_.at(last) - nodes_before) << run.file;
      nodes_before = nodes_at_.at(last);
      added += came;
      removed += went;
      bytes += run.file_bytes;
      commit = last + 1;
    }
    EXPECT_EQ(commit, commits_ + 1) << "each commit is in one run";
    const GrowthCost cost = CostOf(graph, kAnyDevice);
    EXPECT_EQ(cost.topology, "graph");
    EXPECT_EQ(cost.runs, graph.runs.size());
    EXPECT_EQ(cost.run_commits, commits_ - folded_);
    EXPECT_EQ(cost.run_edges_added, added);
    EXPECT_EQ(cost.run_edges_removed, removed);
    EXPECT_EQ(cost.run_bytes, bytes);
    EXPECT_EQ(cost.added_nodes, nodes_ - nodes_of_file_);
    const double given = static_cast<double>(8 * (added + removed));
    EXPECT_EQ(cost.run_amplification, given == 0 ? 0 : static_cast<double>(bytes) / given);
    EXPECT_EQ(cost.price.disk_slowdown, PriceRuns(graph, kAnyDevice).disk_slowdown);
    EXPECT_EQ(cost.price.edited_share,
              static_cast<double>(added + removed) / static_cast<double>(graph.edge_count));

    const GrowthWritten written = store_->growth().Of("graph");
    EXPECT_EQ(written.commits, written_.commits);
    EXPECT_EQ(written.changed_edges, written_.changed_edges);
    EXPECT_EQ(written.nodes_removed, written_.nodes_removed);
    EXPECT_EQ(written.given_bytes, 8 * written_.changed_edges);
    EXPECT_EQ(written.commit_bytes, written_.commit_bytes);
    EXPECT_EQ(written.merge_bytes, written_.merge_bytes);
    EXPECT_EQ(written.compaction_bytes, written_.compaction_bytes);
    const auto all =
        static_cast<double>(written.commit_bytes + written.merge_bytes + written.compaction_bytes);
    EXPECT_EQ(written.write_amplification,
              written.given_bytes == 0 ? 0 : all / static_cast<double>(written.given_bytes));
  }
  uint64_t merges() const { return merges_; }

 private:
  using Ends = std::pair<uint64_t, uint64_t>;

  std::string path() const { return folder_.path() + "/db"; }
  TopologyRecord Graph() const { return *store_->manifest()->FindTopology("graph"); }

  // Some of them are there.
  std::vector<Edge> SomeEdges(uint64_t nodes) {
    std::vector<Edge> edges;
    for (uint64_t i = rng_.Below(6); i > 0; --i) {
      auto known = copies_.begin();
      std::advance(known, rng_.Below(copies_.size()));
      const auto [source, destination] = known->first;
      rng_.Below(2) == 0 ? edges.push_back({source, destination})
                         : edges.push_back({rng_.Below(nodes), rng_.Below(nodes)});
    }
    return edges;
  }

  void Count(const std::vector<Edge>& gone, const std::set<NodeId>& cleared,
             const std::map<Ends, std::vector<float>>& added, bool changed) {
    if (changed) nodes_at_[++commits_] = nodes_;
    std::set<Ends> removed;
    for (const Edge& edge : gone) removed.insert({edge.source, edge.destination});
    for (const auto& [ends, copies] : copies_) {
      if (cleared.contains(static_cast<NodeId>(ends.first)) ||
          cleared.contains(static_cast<NodeId>(ends.second))) {
        removed.insert(ends);
      }
    }
    const auto alive = [](const Copy& copy) { return copy.died == kNever; };
    const auto weight_of = [&](const Ends& ends) {  // of the one that there is, where equal edges are one
      const auto found = std::ranges::find_if(copies_[ends], alive);
      return found == copies_[ends].end() ? std::optional<float>() : found->weight;
    };
    for (const auto& [ends, weights] : added) {
      if (!shape_.deduplicate) continue;
      if (weight_of(ends) == weights[0]) {
        removed.erase(ends);  // it stays
      } else {
        removed.insert(ends);
      }
    }
    for (const Ends& ends : removed) {
      for (Copy& copy : copies_[ends]) copy.died = std::min(copy.died, commits_);
    }
    for (const auto& [ends, weights] : added) {
      if (shape_.deduplicate && weight_of(ends) == weights[0]) continue;
      for (const float weight : weights) copies_[ends].push_back({.weight = weight, .born = commits_});
    }
  }

  const ScratchFolder folder_{testing_util::Medium::kMemory};
  const std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{256 * kMiB};
  const CountedShape shape_;
  Rng rng_;
  std::unique_ptr<Store> store_;
  std::map<Ends, std::vector<Copy>> copies_;
  uint64_t nodes_ = 0, nodes_of_file_ = 0;
  uint64_t commits_ = 0, folded_ = 0;      // of edges
  std::map<uint64_t, uint64_t> nodes_at_;  // when a commit of edges was there
  uint64_t merges_ = 0;
  GrowthWritten written_;  // since the store was opened
};

TEST(GrowthCostTest, FiguresAreThoseOfEdgesThatComeAndGo) {
  const char* const given = std::getenv("QUARRY_TEST_SEED");
  const uint64_t base = given == nullptr ? 91 : std::strtoull(given, nullptr, 10);
  uint64_t merges = 0;
  for (const CountedShape& shape : {CountedShape{}, CountedShape{.csr = true, .weighted = true},
                                    CountedShape{.weighted = true, .deduplicate = true},
                                    CountedShape{.csr = true, .deduplicate = true}}) {
    SCOPED_TRACE(testing::Message() << "QUARRY_TEST_SEED=" << base << ", " << shape.csr << shape.weighted
                                    << shape.deduplicate);
    CountedGraph graph(shape, base);
    Rng rng(base);
    ASSERT_NO_FATAL_FAILURE(graph.Check());
    for (int step = 0; step < 40; ++step) {
      const uint64_t what = rng.Below(20);
      const auto change = [&] { what == 0 ? graph.Fold() : what == 1 ? graph.Open() : graph.Commit(); };
      ASSERT_NO_FATAL_FAILURE(change());
      ASSERT_NO_FATAL_FAILURE(graph.Check()) << "step " << step;
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step;
    }
    merges += graph.merges();
  }
  EXPECT_GT(merges, 0u);
}

TEST(GrowthCostTest, EachFigureSaysWhatItIs) {
  std::set<std::string> names;
  const auto look = [&](std::string_view name, auto) {
    EXPECT_TRUE(names.emplace(name).second) << name << " comes twice";
    EXPECT_THAT(MeaningOfFigure(name), testing::EndsWith(".")) << name;
  };
  ForEachFigure(GrowthCost(), look);
  ForEachFigure(GrowthWritten(), look);
  ForEachFigure(GrowthMeasured(), look);
  EXPECT_TRUE(names.contains("run_edges_removed"));
  EXPECT_TRUE(names.contains("disk_slowdown")) << "figures of the price stand among the others";
}

}  // namespace
}  // namespace quarry
