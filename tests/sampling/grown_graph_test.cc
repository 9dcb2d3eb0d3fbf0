// A graph that edges are added to and removed from is, to whoever reads or samples it, the graph of the edges that it has
// then, and after compaction the file that an import of them writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <fstream>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "pipeline/tiny_database.h"
#include "quarry/base/thread.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/sampling/sampler.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/growth_cost.h"
#include "quarry/storage/run_merger.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"
#include "sampling/chi_square.h"
#include "sampling/graphs.h"
#include "storage/small_store.h"
#include "support/file_text.h"
#include "support/flip_byte.h"
#include "support/gate_backend.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing_util::GateBackend;
using testing_util::ScratchFolder;
using testing_util::TinyGraph;

struct Shape {
  bool csr = false;
  bool deduplicate = false;
  bool undirected = false;
  bool weighted = false;
  bool single() const { return deduplicate || undirected; }
};

struct Given {
  std::vector<Edge> edges;
  std::vector<float> weights;  // of the edges, or none
};

// The edges that there are, by destination and source, each with its weights, or zeros.
class EdgeMap {
 public:
  explicit EdgeMap(const Shape& shape) : shape_(shape) {}

  void Add(const Given& given) {
    std::map<std::pair<NodeId, NodeId>, std::array<std::vector<float>, 2>> added;  // given, and reverse
    for (size_t i = 0; i < given.edges.size(); ++i) {
      const float weight = !shape_.weighted ? 0.0f : given.weights.empty() ? 1.0f : given.weights[i];
      const auto from = static_cast<NodeId>(given.edges[i].source),
                 to = static_cast<NodeId>(given.edges[i].destination);
      added[{to, from}][0].push_back(weight);
      if (shape_.undirected) added[{from, to}][1].push_back(weight);
    }
    for (auto& [ends, both] : added) {
      std::vector<float>& weights = both[both[0].empty() ? 1 : 0];
      Sort(weights);
      std::vector<float>& now = edges_[ends];
      if (shape_.single()) {
        double sum = 0;
        for (const float weight : weights) sum += weight;
        now = {static_cast<float>(sum)};
      } else {
        now.insert(now.end(), weights.begin(), weights.end());
        Sort(now);
      }
    }
  }
  void Remove(const Given& given) {
    for (const Edge& edge : given.edges) {
      const auto from = static_cast<NodeId>(edge.source), to = static_cast<NodeId>(edge.destination);
      edges_.erase({to, from});
      if (shape_.undirected) edges_.erase({from, to});
    }
  }
  void RemoveNodes(std::span<const NodeId> nodes) {
    std::erase_if(edges_, [&](const auto& edge) {
      return std::ranges::any_of(
          nodes, [&](NodeId node) { return edge.first.first == node || edge.first.second == node; });
    });
  }
  NeighborLists Lists(Adjacency side, uint64_t nodes) const {
    std::map<std::pair<NodeId, NodeId>, std::vector<float>> sorted;
    for (const auto& [ends, weights] : edges_) {
      sorted[side == Adjacency::kCsc ? ends : std::pair(ends.second, ends.first)] = weights;
    }
    NeighborLists lists;
    lists.indptr.assign(nodes + 1, 0);
    for (const auto& [ends, weights] : sorted) {
      for (const float weight : weights) {
        ++lists.indptr[ends.first + 1];
        lists.indices.push_back(ends.second);
        if (shape_.weighted) lists.weights.push_back(weight);
      }
    }
    for (uint64_t v = 0; v < nodes; ++v) lists.indptr[v + 1] += lists.indptr[v];
    return lists;
  }
  Given All() const {
    Given all;
    for (const auto& [ends, weights] : edges_) {
      for (const float weight : weights) {
        all.edges.push_back({ends.second, ends.first});
        if (shape_.weighted) all.weights.push_back(weight);
      }
    }
    return all;
  }

 private:
  static void Sort(std::vector<float>& weights) {
    std::ranges::sort(weights, {}, [](float weight) { return std::bit_cast<uint32_t>(weight); });
  }
  const Shape shape_;
  std::map<std::pair<NodeId, NodeId>, std::vector<float>> edges_;
};

const TinyGraph kRows{.nodes = 150, .dim = 4};

Status ImportGraph(IoBackend& backend, const std::string& path, const Shape& shape, const Given& given) {
  Dataset dataset = testing_util::TinyDataset(kRows);
  dataset.edges.clear();
  dataset.edges.push_back(
      {.name = "",
       .path = "memory",
       .reader = std::make_unique<testing_util::VectorEdgeReader>(given.edges, given.weights)});
  ImportOptions options;
  options.both_directions = shape.csr;
  options.undirected = shape.undirected;
  options.deduplicate = shape.deduplicate;
  return ImportDatabase(backend, path, std::move(dataset), options);
}

class GrownGraph : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/db"; }
  void Make(const Shape& shape, uint64_t seed, size_t edges = 700) {
    shape_ = shape;
    rng_ = Rng(seed);
    edges_.emplace(shape);
    const Given first = SomeEdges(edges);
    edges_->Add(first);
    ASSERT_OK(ImportGraph(*backend_, path(), shape, first));
    Open();
  }
  void Open() {
    store_.reset();
    auto store = Store::Open(*backend_, path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  // A few nodes have most of them, and some edges come twice.
  Given SomeEdges(size_t count) {
    Given given;
    for (size_t i = 0; i < count; ++i) {
      const auto node = [&] { return rng_.Below(3) == 0 ? rng_.Below(6) : rng_.Below(kRows.nodes); };
      given.edges.push_back({node(), node()});
      if (rng_.Below(8) == 0) given.edges.push_back(given.edges.back());
    }
    for (size_t i = 0; shape_.weighted && i < given.edges.size(); ++i) {
      given.weights.push_back(static_cast<float>(rng_.Below(9)) / 4);
    }
    return given;
  }
  // Those with many edges among them.
  std::vector<NodeId> SomeNodes() {
    std::vector<NodeId> nodes;
    for (uint64_t i = 1 + rng_.Below(4); i > 0; --i) {
      nodes.push_back(static_cast<NodeId>(rng_.Below(3) == 0 ? rng_.Below(6) : rng_.Below(kRows.nodes)));
    }
    return nodes;
  }
  // Half of them are there.
  Given SomeToRemove(size_t count) {
    Given given = SomeEdges(count / 2);
    given.weights.clear();
    const Given all = edges_->All();
    for (size_t i = 0; !all.edges.empty() && i < count / 2; ++i) {
      given.edges.push_back(all.edges[rng_.Below(all.edges.size())]);
    }
    return given;
  }
  GraphChangeReport Change(const Given& removed, const Given& added, const std::vector<NodeId>& nodes = {}) {
    auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
    EXPECT_OK(change);
    EXPECT_OK((*change)->RemoveNodes(nodes));
    EXPECT_OK((*change)->Add(added.edges, added.weights));
    EXPECT_OK((*change)->Remove(removed.edges));
    const auto done = (*change)->Commit();
    EXPECT_OK(done);
    edges_->Remove(removed);
    edges_->RemoveNodes(nodes);
    edges_->Add(added);
    return *done;
  }
  std::vector<Adjacency> Sides() const {
    if (shape_.csr) return {Adjacency::kCsc, Adjacency::kCsr};
    return {Adjacency::kCsc};
  }
  void Check() {
    ASSERT_NO_FATAL_FAILURE(CheckLists());
    ASSERT_NO_FATAL_FAILURE(CheckDraws());
  }
  void CheckLists();
  void CheckDraws();
  void CheckEqualsImport();

  ScratchFolder folder_{testing_util::Medium::kMemory};
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  Shape shape_;
  Rng rng_{0};
  std::unique_ptr<Store> store_;
  std::optional<EdgeMap> edges_;
};

void GrownGraph::CheckLists() {
  const auto topology = store_->OpenTopology("graph");
  ASSERT_OK(topology);
  Topology& graph = **topology;
  for (const Adjacency side : Sides()) {
    const NeighborLists lists = edges_->Lists(side, kRows.nodes);
    ASSERT_THAT(graph.indptr(side), testing::ElementsAreArray(lists.indptr));
    const auto reader = EdgeColumnReader::Make(*backend_, graph, side, EdgeColumn::kNeighbors);
    ASSERT_OK(reader);
    for (NodeId node = 0; node < kRows.nodes; node += 1 + static_cast<NodeId>(rng_.Below(3))) {
      const auto list = (*reader)->Read(lists.indptr[node], lists.indptr[node + 1]);
      ASSERT_OK(list);
      ASSERT_THAT(*list, testing::ElementsAreArray(lists.Of(node))) << "list of node " << node;
    }
    ASSERT_OK(graph.LoadIndices(*backend_, side));
    ASSERT_THAT(graph.indices(side), testing::ElementsAreArray(lists.indices));
    if (!shape_.weighted) continue;
    ASSERT_OK(graph.LoadWeights(*backend_, side));
    ASSERT_THAT(graph.weights(side), testing::ElementsAreArray(lists.weights));
  }
}

// Blocks drawn from file and runs on disk, with and without a neighbor cache, and loaded, are those of the union.
void GrownGraph::CheckDraws() {
  const NeighborLists csc = edges_->Lists(Adjacency::kCsc, kRows.nodes);
  const NeighborLists csr = edges_->Lists(Adjacency::kCsr, kRows.nodes);
  if (csc.indices.empty()) return;
  const auto whole = shape_.csr ? Topology::FromMemory(csc.indptr, csc.indices, csr.indptr, csr.indices)
                                : Topology::FromMemory(csc.indptr, csc.indices);
  const auto stored = store_->OpenTopology("graph");
  ASSERT_OK(whole);
  ASSERT_OK(stored);
  for (const Adjacency side : Sides()) {
    if (!shape_.weighted) break;
    ASSERT_OK((*whole)->SetWeights(side, side == Adjacency::kCsc ? csc.weights : csr.weights));
    ASSERT_OK((*stored)->LoadWeights(*backend_, side));
  }
  std::vector<RoadSpec> specs = {
      {.fanouts = {4, 3}}, {.fanouts = {40, 2}}, {.fanouts = {5, 2}, .replace = true}};
  specs.push_back({.fanouts = {4, 3}, .sampler = SamplerKind::kLabor});
  if (shape_.weighted) specs.push_back({.fanouts = {4, 3}, .weighted = true});
  if (shape_.weighted) specs.push_back({.fanouts = {4, 3}, .sampler = SamplerKind::kLabor, .weighted = true});
  for (RoadSpec& spec : specs) {
    for (const Direction direction : {Direction::kIn, Direction::kOut, Direction::kBoth}) {
      if (direction != Direction::kIn && !shape_.csr) continue;
      spec.direction = direction;
      std::unique_ptr<NeighborCache> caches[2];
      NeighborSource sources[3];
      for (NeighborSource& source : sources) {
        source = {.topology = stored->get(), .direction = direction, .backend = backend_.get()};
      }
      sources[0].topology = whole->get();
      for (const Adjacency side : SidesOf(direction)) {
        auto cache = NeighborCache::Build(*backend_, **stored, side, 16 * kKiB);
        ASSERT_OK(cache);
        caches[static_cast<int>(side)] = std::move(cache).value();
        sources[2].caches[static_cast<int>(side)] = caches[static_cast<int>(side)].get();
      }
      std::set<NodeId> distinct;
      while (distinct.size() < 20) distinct.insert(static_cast<NodeId>(rng_.Below(kRows.nodes)));
      const std::vector<NodeId> seeds(distinct.begin(), distinct.end());
      const uint64_t seed = rng_();
      Block blocks[3];
      for (size_t i = 0; i < 3; ++i) {
        const auto sampler = NeighborSampler::Make(sources[i], spec);
        ASSERT_OK(sampler);
        ASSERT_OK((*sampler)->Sample(seeds, seed, blocks[i]));
        ASSERT_EQ(blocks[i].nodes, blocks[0].nodes) << i;
        ASSERT_EQ(blocks[i].indptr, blocks[0].indptr) << i;
        ASSERT_EQ(blocks[i].indices, blocks[0].indices) << i;
      }
    }
  }
}

// Byte for byte, but for the superblock, which has the database and the generation.
void GrownGraph::CheckEqualsImport() {
  const std::string other = folder_.path() + "/whole";
  std::filesystem::remove_all(other);
  ASSERT_OK(ImportGraph(*backend_, other, shape_, edges_->All()));
  const TopologyRecord record = *store_->manifest()->FindTopology("graph");
  ASSERT_TRUE(record.runs.empty());
  const std::string compacted = testing_util::FileText(path() + "/" + record.file),
                    whole = testing_util::FileText(other + "/topology/graph-1.qtp");
  ASSERT_EQ(compacted.size(), whole.size());
  EXPECT_TRUE(compacted.substr(kSuperblockBytes) == whole.substr(kSuperblockBytes));
}

// Files of topologies that lie in the folder.
std::set<std::string> TopologyFiles(const std::string& path) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path + "/topology")) {
    files.insert("topology/" + entry.path().filename().string());
  }
  return files;
}

const Shape kShapes[] = {{},
                         {.csr = true},
                         {.csr = true, .deduplicate = true},
                         {.deduplicate = true, .weighted = true},
                         {.csr = true, .weighted = true},
                         {.csr = true, .undirected = true},
                         {.csr = true, .undirected = true, .weighted = true}};

TEST_F(GrownGraph, IsTheGraphOfItsEdgesWhateverCameAndWent) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 20 : std::strtoull(given, nullptr, 10);
  for (size_t i = 0; i < std::size(kShapes); ++i) {
    const uint64_t seed = base + i;
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", shape " << i);
    store_.reset();
    std::filesystem::remove_all(path());
    ASSERT_NO_FATAL_FAILURE(Make(kShapes[i], seed));
    uint64_t last = 0;
    std::map<uint64_t, float> rows;  // first elements of those that were written
    for (int step = 0; step < 30; ++step) {
      const uint64_t kind = rng_.Below(8);
      if (kind < 5) {
        const Given added = kind == 1 ? Given() : SomeEdges(1 + rng_.Below(60));
        const Given removed = kind == 0 ? Given() : SomeToRemove(1 + rng_.Below(60));
        const std::vector<NodeId> nodes = kind == 1 ? SomeNodes() : std::vector<NodeId>();
        const GraphChangeReport done = Change(removed, added, nodes);
        EXPECT_EQ(done.nodes_removed, std::set(nodes.begin(), nodes.end()).size());
        if (done.added + done.removed + done.nodes_removed > 0) {
          EXPECT_GT(done.timestamp, last);
          last = done.timestamp;
        }
        for (const NodeId node : nodes) rows[node] = 0;
        EXPECT_LE(done.runs, kTopologyRunsMax);
      } else if (kind == 5) {
        const uint64_t row = rng_.Below(kRows.nodes);
        std::vector<float> values(kRows.dim, static_cast<float>(step));
        WriteBatch batch;
        batch.Put("feature", row, std::as_bytes(std::span(values)));
        const auto written = store_->Write(batch);
        ASSERT_OK(written);
        EXPECT_GT(*written, last) << "one order with edges";
        last = *written;
        rows[row] = values[0];
      } else if (kind == 6) {
        ASSERT_NO_FATAL_FAILURE(Open());
      } else {
        const auto done = CompactTopology(*store_, budget_, "graph", false, {});
        ASSERT_OK(done);
        ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
      }
      ASSERT_NO_FATAL_FAILURE(Check()) << "step " << step;
    }
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    EXPECT_EQ((*snapshot)->timestamp, last);
    const auto overlay = store_->OpenOverlay("feature", *snapshot);
    ASSERT_OK(overlay);
    ASSERT_OK((*overlay)->Read((*overlay)->TouchedRows(), [&](size_t k, std::span<const std::byte> value) {
      float first = 0;
      std::memcpy(&first, value.data(), sizeof(first));
      EXPECT_EQ(first, rows[(*overlay)->TouchedRows()[k]]);
    }));
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
  }
}

TEST_F(GrownGraph, ASnapshotKeepsItsEdgesAndTheirFiles) {
  ASSERT_NO_FATAL_FAILURE(Make({.csr = true, .deduplicate = true}, 3));
  Change({}, SomeEdges(20));
  const NeighborLists then = edges_->Lists(Adjacency::kCsc, kRows.nodes);
  auto snapshot = store_->TakeSnapshot();
  ASSERT_OK(snapshot);
  const std::set<std::string> files = TopologyFiles(path());
  for (int i = 0; i < 20; ++i) Change(SomeToRemove(10), SomeEdges(10));
  ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  Change({}, SomeEdges(5));
  const auto old = store_->OpenTopology(**snapshot, "graph");
  ASSERT_OK(old);
  ASSERT_OK((*old)->LoadIndices(*backend_, Adjacency::kCsc));
  EXPECT_THAT((*old)->indptr(Adjacency::kCsc), testing::ElementsAreArray(then.indptr));
  EXPECT_THAT((*old)->indices(Adjacency::kCsc), testing::ElementsAreArray(then.indices));
  EXPECT_THAT(TopologyFiles(path()), testing::IsSupersetOf(files));
  (*snapshot).reset();
  const std::vector<std::string> named = FilesOf(*store_->manifest()->FindTopology("graph"));
  EXPECT_THAT(TopologyFiles(path()), testing::UnorderedElementsAreArray(named));
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(GrownGraph, DrawsEverySubsetOfFileAndRunsEquallyOften) {
  ASSERT_NO_FATAL_FAILURE(Make({}, 1, 0));
  // The list of node 0: 1 to 6 from the file, of which 2 and 5 go; 7 and 8 from one run, 9 from another.
  Given first, second, gone, third;
  for (uint64_t source = 1; source <= 6; ++source) first.edges.push_back({source, 0});
  second.edges = {{7, 0}, {8, 0}};
  gone.edges = {{2, 0}, {5, 0}};
  third.edges = {{9, 0}};
  Change({}, first);
  ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  Change({}, second);
  Change(gone, third);
  const auto topology = store_->OpenTopology("graph");
  ASSERT_OK(topology);
  const NodeId list[] = {1, 3, 4, 6, 7, 8, 9};
  std::map<std::set<NodeId>, double> probabilities;
  for (const NodeId a : list) {
    for (const NodeId b : list) {
      for (const NodeId c : list) {
        if (a < b && b < c) probabilities[{a, b, c}] = 1.0 / 35;
      }
    }
  }
  const auto sampler =
      NeighborSampler::Make({.topology = topology->get(), .backend = backend_.get()}, {.fanouts = {3}});
  ASSERT_OK(sampler);
  std::map<std::set<NodeId>, int> counts;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    Block block;
    const NodeId seed[] = {0};
    ASSERT_OK((*sampler)->Sample(seed, MixSeed(7, static_cast<uint64_t>(round)), block));
    ++counts[std::set<NodeId>(block.nodes.begin() + 1, block.nodes.end())];
  }
  EXPECT_LT(ChiSquareDeviations(probabilities, counts, kRounds), 5);
}

TEST_F(GrownGraph, RefusesWhatCannotBe) {
  ASSERT_NO_FATAL_FAILURE(Make({.csr = true}, 5));
  auto first = GraphChange::Create(*store_, budget_, {});
  ASSERT_OK(first);
  EXPECT_EQ(GraphChange::Create(*store_, budget_, {}).status().code(), Code::kBusy);
  testing_util::VectorEdgeReader beyond(std::vector<Edge>{{1, 2}, {3, kRows.nodes}});
  const Status refused = (*first)->AddAll(beyond);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), testing::HasSubstr("edge 1: node id 150"));
  testing_util::VectorEdgeReader weighted(std::vector<Edge>{{1, 2}}, std::vector<float>{1});
  EXPECT_EQ((*first)->AddAll(weighted).code(), Code::kInvalidArgument);
  (*first).reset();
  EXPECT_EQ(GraphChange::Create(*store_, budget_, {.topology = "nope"}).status().code(), Code::kNotFound);
  MemoryBudget small(16 * kMiB);
  EXPECT_EQ(GraphChange::Create(*store_, small, {}).status().code(), Code::kOutOfBudget);
  const std::set<std::string> files = TopologyFiles(path());
  EXPECT_EQ(Change({}, {}).added, 0u);
  EXPECT_EQ(Change({.edges = {}, .weights = {}}, {}).timestamp, 0u);
  EXPECT_EQ(TopologyFiles(path()), files) << "nothing changed";
}

TEST_F(GrownGraph, ADamagedRunIsCorruptionThatNamesIt) {
  ASSERT_NO_FATAL_FAILURE(Make({.csr = true, .weighted = true}, 6));
  Change(SomeToRemove(20), SomeEdges(40));
  const std::string file = path() + "/" + store_->manifest()->FindTopology("graph")->runs[0].file;
  const uint64_t bytes = std::filesystem::file_size(file);
  // The first byte of each page is part of something.
  for (uint64_t at = 0; at < bytes; at += kPageBytes) {
    testing_util::FlipByte(file, at);
    const auto topology = store_->OpenTopology("graph");
    EXPECT_EQ(topology.status().code(), Code::kCorruption) << at;
    EXPECT_THAT(topology.status().message(), testing::HasSubstr(file)) << at;
    testing_util::FlipByte(file, at);
  }
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(GrownGraph, RunsComposeToTheSameLists) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    // Lists of distinct numbers: those that are added are new.
    std::vector<std::vector<NodeId>> lists(8);
    NodeId fresh = 1;
    for (auto& list : lists) {
      for (uint64_t n = rng.Below(6); n > 0; --n) list.push_back(fresh++);
    }
    const std::vector<std::vector<NodeId>> before = lists;
    ListEdits all;
    for (int commit = 0; commit < 4; ++commit) {
      ListEdits edits;
      for (NodeId v = 0; v < lists.size(); ++v) {
        if (rng.Below(3) == 0) continue;
        std::vector<NodeId> after;
        const size_t added = edits.places.size(), removed = edits.removed.size();
        for (uint32_t i = 0; i <= lists[v].size(); ++i) {
          while (rng.Below(4) == 0) {
            edits.places.push_back(static_cast<uint32_t>(after.size()));
            edits.neighbors.push_back(fresh);
            after.push_back(fresh++);
          }
          if (i == lists[v].size()) break;
          if (rng.Below(3) == 0) {
            edits.removed.push_back(i);
          } else {
            after.push_back(lists[v][i]);
          }
        }
        if (edits.places.size() == added && edits.removed.size() == removed) continue;
        edits.lists.push_back(v);
        edits.added_ends.push_back(edits.places.size());
        edits.removed_ends.push_back(edits.removed.size());
        lists[v] = after;
      }
      all = Compose(all, edits);
    }
    std::vector<uint64_t> indptr = {0};
    std::vector<uint32_t> base, wanted;
    for (const auto& list : before) {
      base.insert(base.end(), list.begin(), list.end());
      indptr.push_back(base.size());
    }
    for (const auto& list : lists) wanted.insert(wanted.end(), list.begin(), list.end());
    ASSERT_TRUE(EdgeEdits::Fit(all, indptr));
    const EdgeEdits edits(all, indptr);
    ASSERT_EQ(indptr.back(), wanted.size());
    for (uint64_t first = 0; first <= wanted.size(); ++first) {
      const uint64_t end = first + rng.Below(wanted.size() - first + 1);
      std::vector<uint32_t> merged;
      EdgeEdits::Merge merge(edits, edits.neighbors(), first, end);
      for (uint64_t at = edits.BaseAt(first); at < edits.BaseAt(end); ++at)
        merge.Take({&base[at], 1}, merged);
      merge.Finish(merged);
      ASSERT_THAT(merged, testing::ElementsAreArray(std::span(wanted).subspan(first, end - first)));
      if (first == wanted.size()) break;
      const EdgeEdits::Place place = edits.Find(first);
      ASSERT_EQ(place.added ? edits.neighbors()[place.index] : base[place.index], wanted[first]);
    }
  }
}

// Merges on the merger's thread, which stop at a gate: where they make their file, and where they have written it.
class MergedGraph : public GrownGraph {
 protected:
  enum class Place : uint8_t { kMaking, kWritten };
  MergedGraph() {
    auto gate = std::make_unique<GateBackend>([this](const std::string& path, std::optional<OpenMode> mode) {
      return IsMerged(path) && (place_ == Place::kWritten ? !mode : mode == OpenMode::kCreateDirect);
    });
    gate_ = gate.get();
    backend_ = std::move(gate);
  }
  ~MergedGraph() override {
    gate_->OpenGate();
    store_.reset();
  }
  // "graph-1-3-9.qtr".
  static bool IsMerged(const std::string& path) {
    return path.ends_with(".qtr") &&
           std::count(path.rbegin(), std::find(path.rbegin(), path.rend(), '/'), '-') == 3;
  }
  void Start(const Shape& shape, uint64_t seed) {
    ASSERT_NO_FATAL_FAILURE(Make(shape, seed));
    store_->merger().Start(merging_);
  }
  void Hold(Place place) {
    place_ = place;
    gate_->CloseGate();
  }
  // Until no merge is under way.
  void LetGo() {
    gate_->OpenGate();
    store_->merger().Finish();
    store_->merger().Start(merging_);
  }
  GraphChangeReport Grow() { return Change(SomeToRemove(6), SomeEdges(6)); }
  TopologyRecord Graph() const { return *store_->manifest()->FindTopology("graph"); }
  // The file and the runs that the manifest names, and nothing else.
  void CheckFiles() {
    EXPECT_THAT(TopologyFiles(path()), testing::UnorderedElementsAreArray(FilesOf(Graph())));
  }

  // A snapshot, and the lists that there were then.
  struct Then {
    std::shared_ptr<const Snapshot> snapshot;
    NeighborLists lists[2];
  };
  Then Now() {
    auto snapshot = store_->TakeSnapshot();
    EXPECT_OK(snapshot);
    return {
        .snapshot = *snapshot,
        .lists = {edges_->Lists(Adjacency::kCsc, kRows.nodes), edges_->Lists(Adjacency::kCsr, kRows.nodes)}};
  }
  void CheckThen(const Then& then) {
    const auto graph = store_->OpenTopology(*then.snapshot, "graph");
    ASSERT_OK(graph);
    for (const Adjacency side : Sides()) {
      const NeighborLists& lists = then.lists[static_cast<int>(side)];
      ASSERT_THAT((*graph)->indptr(side), testing::ElementsAreArray(lists.indptr));
      ASSERT_OK((*graph)->LoadIndices(*backend_, side));
      ASSERT_THAT((*graph)->indices(side), testing::ElementsAreArray(lists.indices));
      if (!shape_.weighted) continue;
      ASSERT_OK((*graph)->LoadWeights(*backend_, side));
      ASSERT_THAT((*graph)->weights(side), testing::ElementsAreArray(lists.weights));
    }
  }

  MemoryBudget merging_{kGiB};
  MemoryBudget none_{kMiB};  // less than a merge takes
  std::atomic<Place> place_ = Place::kMaking;
  GateBackend* gate_ = nullptr;
};

TEST_F(MergedGraph, IsTheGraphOfItsEdgesWhateverAMergeIsAt) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 40 : std::strtoull(given, nullptr, 10);
  uint64_t merges = 0, folds_beside = 0, limits = 0;
  for (const size_t i :
       {2, 4, 5}) {  // one without and one with weights, both with CSR, and an undirected one
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", shape " << i);
    store_.reset();
    std::filesystem::remove_all(path());
    ASSERT_NO_FATAL_FAILURE(Start(kShapes[i], base + i));
    std::vector<Then> held;
    bool closed = false;
    const auto let_go = [&] {
      closed = false;
      LetGo();
      if (Graph().runs.size() > kTopologyRunsMax) {  // of before the store was opened: a commit asks for it
        Grow();
        LetGo();
      }
      EXPECT_LE(Graph().runs.size(), kTopologyRunsMax);
    };
    for (int step = 0; step < 60; ++step) {
      // A fold beside a merge that is held, in any case.
      const uint64_t kind = step == 36 ? 9 : step == 37 ? 14 : rng_.Below(16);
      if (kind < 9) {
        // The next one would wait for the merge that waits at the gate.
        if (closed && Graph().runs.size() == kTopologyRunsLimit) {
          ++limits;
          let_go();
        }
        EXPECT_LE(Grow().runs, kTopologyRunsLimit);
      } else if (kind == 9 && !closed) {
        Hold(rng_.Below(2) == 0 ? Place::kMaking : Place::kWritten);
        closed = true;
      } else if (kind == 10) {
        let_go();
      } else if (kind == 11 || kind == 12) {
        held.push_back(Now());
      } else if (kind == 13 && !held.empty()) {
        const auto then = held.begin() + static_cast<ptrdiff_t>(rng_.Below(held.size()));
        ASSERT_NO_FATAL_FAILURE(CheckThen(*then)) << "step " << step;
        held.erase(then);
      } else if (kind == 14 && (step == 37 || rng_.Below(3) == 0)) {
        folds_beside += closed ? 1 : 0;
        ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
        ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
      } else if (kind == 15 && rng_.Below(3) == 0) {
        held.clear();
        merges += store_->growth().Of("graph").merge_bytes > 0 ? 1 : 0;
        gate_->OpenGate();  // a merge that is under way is given up, or has just been named
        closed = false;
        ASSERT_NO_FATAL_FAILURE(Open());
        ASSERT_OK(store_->PrepareToWrite());
        ASSERT_NO_FATAL_FAILURE(CheckFiles());
        store_->merger().Start(merging_);
      }
      // One of those that are held, and what is newest, in turns: all of them before they go.
      if (step % 4 == 0) {
        ASSERT_NO_FATAL_FAILURE(CheckThen(Now())) << "step " << step;
      }
      if (step % 4 == 2 && !held.empty()) {
        ASSERT_NO_FATAL_FAILURE(CheckThen(held[rng_.Below(held.size())])) << "step " << step;
      }
      ASSERT_FALSE(testing::Test::HasFailure()) << "step " << step;
    }
    let_go();
    ASSERT_NO_FATAL_FAILURE(Check());
    merges += store_->growth().Of("graph").merge_bytes > 0 ? 1 : 0;
    held.clear();
    ASSERT_NO_FATAL_FAILURE(CheckFiles());
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
    EXPECT_EQ(merging_.used_bytes(), 0u);
  }
  EXPECT_GT(merges, 0u);
  EXPECT_GT(folds_beside + limits, 0u);
}

TEST_F(MergedGraph, CommitsGoOnBesideAMergeAndTheOneBeyondTheLimitWaits) {
  ASSERT_NO_FATAL_FAILURE(Start({.csr = true, .weighted = true}, 7));
  Hold(Place::kWritten);
  for (size_t runs = 1; runs <= kTopologyRunsLimit; ++runs) {
    EXPECT_EQ(Grow().runs, runs) << "the merge of the first nine is held";
    if (runs == kTopologyRunsMax + 1) gate_->WaitForOne();
  }
  const Then before = Now();
  GraphChangeReport last;
  std::thread commit([&] { last = Grow(); });
  // It is named, and the merge is not; whether it waits by now is seen by what it reports.
  while (Graph().runs.size() <= kTopologyRunsLimit) std::this_thread::yield();
  gate_->OpenGate();
  commit.join();
  EXPECT_LE(last.runs, kTopologyRunsLimit - kTopologyRunsMax + 1) << "nine became one";
  ASSERT_NO_FATAL_FAILURE(Check());
  LetGo();
  EXPECT_LE(Graph().runs.size(), kTopologyRunsMax);
  ASSERT_NO_FATAL_FAILURE(CheckThen(before));
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(MergedGraph, WithoutRoomForAMergeCommitsGoOnAndTheOneBeyondTheLimitMergesByItself) {
  ASSERT_NO_FATAL_FAILURE(Make({.csr = true}, 8));
  store_->merger().Start(none_);
  for (size_t runs = 1; runs <= kTopologyRunsLimit; ++runs) EXPECT_EQ(Grow().runs, runs);
  EXPECT_EQ(store_->growth().Of("graph").merge_bytes, 0u);
  EXPECT_LE(Grow().runs, kTopologyRunsMax);
  EXPECT_GT(store_->growth().Of("graph").merge_bytes, 0u);
  ASSERT_NO_FATAL_FAILURE(Check());
  store_->merger().Stop();
}

TEST_F(MergedGraph, WhereTheSystemHasNoThreadACommitMergesByItself) {
  ASSERT_NO_FATAL_FAILURE(Make({.csr = true}, 9));
  {
    const auto others = store_->HoldRuns(Store::RunsRight::kMerge);
    for (size_t runs = 1; runs <= kTopologyRunsMax + 1; ++runs) EXPECT_EQ(Grow().runs, runs);
  }
  store_->merger().Start(merging_);
  FailThreadStarts(1, 1);  // the merge's; the catalog has threads, too
  store_->merger().Committed("graph", budget_);
  EXPECT_EQ(FailedThreadStarts(), 1u);
  FailThreadStarts(0);
  EXPECT_LE(Graph().runs.size(), kTopologyRunsMax);
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(MergedGraph, OthersGetTheMemoryOfAMerge) {
  ASSERT_NO_FATAL_FAILURE(Start({}, 10));
  Hold(Place::kMaking);
  for (size_t runs = 0; runs <= kTopologyRunsMax; ++runs) Grow();
  gate_->WaitForOne();
  EXPECT_EQ(merging_.used_bytes(), 0u) << "what is lent does not count";
  std::thread other([&] { EXPECT_OK(merging_.Reserve(kGiB, "all of it")); });
  while (merging_.used_bytes() < kGiB) std::this_thread::yield();
  gate_->OpenGate();
  other.join();
  store_->merger().Finish();
  ASSERT_NO_FATAL_FAILURE(CheckFiles());
  store_->merger().Start(merging_);
  Grow();  // the next commit tries again
  LetGo();
  EXPECT_LE(Graph().runs.size(), kTopologyRunsMax);
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(MergedGraph, AFoldTakesTheRunsOfAMergeAndTheMergeIsGivenUp) {
  for (const Place place : {Place::kMaking, Place::kWritten}) {
    store_.reset();
    std::filesystem::remove_all(path());
    ASSERT_NO_FATAL_FAILURE(Start({.csr = true}, 11));
    Hold(place);
    for (size_t runs = 0; runs <= kTopologyRunsMax; ++runs) Grow();
    gate_->WaitForOne();
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    EXPECT_TRUE(Graph().runs.empty());
    ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
    Grow();
    LetGo();
    EXPECT_EQ(Graph().runs.size(), 1u);
    EXPECT_EQ(store_->growth().Of("graph").merge_bytes, 0u);
    ASSERT_NO_FATAL_FAILURE(CheckFiles());
    ASSERT_NO_FATAL_FAILURE(Check());
  }
}

TEST_F(MergedGraph, WhatComesWhileOthersAreFoldedIsMergedBesideIt) {
  ASSERT_NO_FATAL_FAILURE(Start({.csr = true, .weighted = true}, 12));
  for (size_t runs = 1; runs <= kTopologyRunsMax; ++runs) Grow();
  const size_t folded = Graph().runs.size();
  std::promise<void> begun, go_on;
  std::thread fold([&, first = true]() mutable {
    const auto progress = [&](std::string_view, uint64_t, uint64_t) {
      if (std::exchange(first, false)) {
        begun.set_value();
        go_on.get_future().wait();
      }
      return Status::Ok();
    };
    EXPECT_OK(CompactTopology(*store_, budget_, "graph", false, progress));
  });
  begun.get_future().wait();
  for (size_t commits = 0; commits <= kTopologyRunsMax; ++commits) Grow();
  LetGo();
  EXPECT_GT(store_->growth().Of("graph").merge_bytes, 0u);
  EXPECT_LE(Graph().runs.size(), folded + kTopologyRunsMax);
  EXPECT_GE(Graph().runs.size(), folded + 1) << "what is being folded is as it was";
  EXPECT_EQ(CompactTopology(*store_, budget_, "graph", false, {}).status().code(), Code::kBusy);
  ASSERT_NO_FATAL_FAILURE(Check());
  go_on.set_value();
  fold.join();
  EXPECT_EQ(Graph().generation, 2u);
  EXPECT_THAT(Graph().runs.size(), testing::AllOf(testing::Ge(1u), testing::Le(kTopologyRunsMax)));
  ASSERT_NO_FATAL_FAILURE(CheckFiles());
  ASSERT_NO_FATAL_FAILURE(Check());
  ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
}

// What is measured where neighbors are drawn: each search among edits is counted, of lists on the disk alone.
TEST_F(GrownGraph, DrawsAreMeasured) {
  ASSERT_NO_FATAL_FAILURE(Make({}, 13));
  const auto draw = [&](bool loaded) {
    const GrowthMeasured before = store_->growth().Measured(*store_->manifest()->FindTopology("graph"));
    const auto topology = store_->OpenTopology("graph");
    EXPECT_OK(topology);
    if (loaded) {
      EXPECT_OK((*topology)->LoadIndices(*backend_, Adjacency::kCsc));
    }
    const auto sampler =
        NeighborSampler::Make({.topology = topology->get(), .backend = backend_.get()}, {.fanouts = {5, 5}});
    EXPECT_OK(sampler);
    Block block;
    uint64_t draws = 0;
    for (NodeId seed = 0; seed < 40; ++seed) {
      EXPECT_OK((*sampler)->Sample({&seed, 1}, seed, block));
      draws += block.indices.size();
    }
    EXPECT_EQ((*sampler)->stats().edges, draws);
    GrowthMeasured after = store_->growth().Measured(*store_->manifest()->FindTopology("graph"));
    EXPECT_EQ(after.measured_draws - before.measured_draws, draws);
    EXPECT_GE(after.measured_seconds, before.measured_seconds + (*sampler)->stats().seconds);
    EXPECT_EQ(after.measured_searches - before.measured_searches, (*sampler)->stats().searches);
    return std::pair((*sampler)->stats().searches, draws);
  };
  EXPECT_EQ(draw(false).first, 0u) << "there are no runs";
  Change({}, SomeEdges(50));
  const auto [searches, draws] = draw(false);
  EXPECT_EQ(searches, draws);
  EXPECT_EQ(draw(true).first, 0u);
  const GrowthMeasured measured = store_->growth().Measured(*store_->manifest()->FindTopology("graph"));
  EXPECT_EQ(measured.measured_edits, store_->manifest()->FindTopology("graph")->runs[0].added);
  EXPECT_GT(measured.measured_run_seconds, 0);
  EXPECT_EQ(measured.measured_slowdown, 0) << "too few to tell";
}

}  // namespace
}  // namespace quarry
