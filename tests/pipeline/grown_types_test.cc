// A graph with types that nodes are added to and removed from is, by every snapshot, the graph of a model: the types of its
// nodes, their rows in their types' tables, labels, splits, and each node's neighbors by each type of edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "pipeline/pass_util.h"
#include "pipeline/tiny_database.h"
#include "quarry/format/fanouts.h"
#include "quarry/format/node_types.h"
#include "quarry/import/dataset.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/import.h"
#include "quarry/import/put.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/growth.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/topology_compaction.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/status_matchers.h"
#include "support/typed_set.h"

namespace quarry {
namespace {

using testing::HasSubstr;

struct TypedNode {
  uint32_t type = 0;
  std::vector<float> row;  // as long as the type's are
  int64_t label = -1;
  Split split = Split::kNone;
};

// What the database should have.
struct TypedModel {
  std::vector<TypedNode> nodes;
  std::multiset<std::tuple<uint64_t, uint32_t, uint64_t>> edges;  // destination, relation, source

  std::vector<uint64_t> NodesOf(uint32_t type) const {
    std::vector<uint64_t> of_type;
    for (uint64_t node = 0; node < nodes.size(); ++node) {
      if (nodes[node].type == type) of_type.push_back(node);
    }
    return of_type;
  }
  // {relation, source} of a node's in-edges.
  std::multiset<std::pair<uint32_t, uint64_t>> Into(uint64_t node) const {
    std::multiset<std::pair<uint32_t, uint64_t>> found;
    const auto end = edges.lower_bound({node + 1, 0, 0});
    for (auto edge = edges.lower_bound({node, 0, 0}); edge != end; ++edge) {
      found.emplace(std::get<1>(*edge), std::get<2>(*edge));
    }
    return found;
  }
};

// Rows of nodes, one behind the other.
class TypedNodeRows final : public RowReader {
 public:
  TypedNodeRows(std::vector<TypedNode> nodes, uint64_t dim) : nodes_(std::move(nodes)), dim_(dim) {}
  ElementType element_type() const override { return ElementType::kFloat32; }
  uint64_t dim() const override { return dim_; }
  uint64_t row_count() const override { return nodes_.size(); }
  Result<size_t> Read(std::span<std::byte> out) override {
    const size_t row_bytes = dim_ * sizeof(float);
    size_t count = 0;
    for (; next_ < nodes_.size() && out.size() >= row_bytes; ++count, out = out.subspan(row_bytes)) {
      std::memcpy(out.data(), nodes_[next_++].row.data(), row_bytes);
    }
    return count;
  }
  std::string Position(uint64_t row) const override { return "row " + std::to_string(row); }

 private:
  const std::vector<TypedNode> nodes_;
  const uint64_t dim_;
  size_t next_ = 0;
};

class GrownTypes : public testing::Test {
 protected:
  void Make(uint64_t seed) {
    rng_ = Rng(seed);
    held_.clear();
    store_.reset();
    model_ = {};
    std::filesystem::remove_all(path_);
    const TemporaryFolder source("grown-types-set");
    set_ = RandomTypedSet(seed, 60);
    set_.nodes[0].dim = 3 + rng_.Below(200);  // rows that share a checksum, and rows with one of their own
    set_.WriteTo(source);
    auto dataset = OpenDataset(source.path(), {});
    ASSERT_OK(dataset);
    ASSERT_OK(ImportDatabase(*backend_, path_, std::move(*dataset), {.both_directions = rng_.Below(2) == 0}));
    for (uint32_t type = 0; type < set_.nodes.size(); ++type) {
      const TypedSet::Nodes& of_type = set_.nodes[type];
      for (uint64_t i = 0; i < of_type.count; ++i) {
        TypedNode node{.type = type};
        for (uint64_t j = 0; j < of_type.dim; ++j) node.row.push_back(set_.Feature(type, i, j));
        if (of_type.labels) node.label = set_.Label(type, i);
        model_.nodes.push_back(std::move(node));
      }
      for (size_t split = 0; split < 3; ++split) {
        for (const int64_t i : of_type.splits[split]) {
          model_.nodes[of_type.first + static_cast<uint64_t>(i)].split = static_cast<Split>(split + 1);
        }
      }
    }
    for (uint32_t relation = 0; relation < set_.edges.size(); ++relation) {
      const TypedSet::Edges& edges = set_.edges[relation];
      for (const auto& [from, to] : edges.pairs) {
        model_.edges.emplace(set_.nodes[edges.destination].first + static_cast<uint64_t>(to), relation,
                             set_.nodes[edges.source].first + static_cast<uint64_t>(from));
      }
    }
    Open();
  }
  void Open() {
    held_.clear();
    store_.reset();
    auto store = Store::Open(*backend_, path_);
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }

  uint64_t Any(const std::vector<uint64_t>& nodes) { return nodes[rng_.Below(nodes.size())]; }

  // The files of a change, in which the nodes of each type count from 0; or its calls, which have ids of the database.
  Status AddEdges(GraphChange& change, uint32_t relation, const std::vector<Edge>& edges) {
    if (rng_.Below(2) == 0) return change.Add(edges, {}, relation);
    const TypedSet::Edges& type = set_.edges[relation];
    std::vector<Edge> numbered;
    for (const Edge& edge : edges) {
      const auto number = [&](uint64_t node, size_t of) {
        const std::vector<uint64_t> nodes = model_.NodesOf(static_cast<uint32_t>(of));
        return static_cast<uint64_t>(std::ranges::lower_bound(nodes, node) - nodes.begin());
      };
      numbered.push_back({number(edge.source, type.source), number(edge.destination, type.destination)});
    }
    testing_util::VectorEdgeReader reader(numbered);
    return change.AddAll(reader, relation);
  }

  // Nodes of one type with some of what they can have, edges of all relations among all nodes; others go: one commit.
  void Grow(uint32_t type, uint64_t count) {
    const uint64_t first = model_.nodes.size(), dim = set_.nodes[type].dim;
    auto change = GraphChange::Create(
        *store_, budget_,
        {.nodes = count, .node_type = set_.nodes[type].name, .memory_bytes = kGraphChangeBytesMin});
    ASSERT_OK(change);
    std::set<uint64_t> gone;
    for (uint64_t i = rng_.Below(3) == 0 ? 1 + rng_.Below(4) : 0; i > 0; --i) gone.insert(rng_.Below(first));
    ASSERT_OK((*change)->RemoveNodes(std::vector<NodeId>(gone.begin(), gone.end())));
    const bool with_rows = dim > 0 && rng_.Below(3) > 0, with_labels = rng_.Below(3) > 0;
    const auto split = static_cast<Split>(rng_.Below(4));
    for (uint64_t i = 0; i < count; ++i) {
      TypedNode node{.type = type, .row = std::vector<float>(dim, 0.0f), .split = split};
      for (float& value : node.row) value = with_rows ? static_cast<float>(rng_.Below(1000)) : 0.0f;
      if (with_labels) node.label = static_cast<int64_t>(rng_.Below(9)) - 1;
      model_.nodes.push_back(std::move(node));
    }
    if (count > 0) {
      const std::vector<TypedNode> added(model_.nodes.begin() + static_cast<ptrdiff_t>(first),
                                         model_.nodes.end());
      TypedNodeRows rows(added, dim);
      std::vector<int64_t> values;
      for (const TypedNode& node : added) values.push_back(node.label);
      testing_util::VectorIntReader labels(values);
      ASSERT_OK(PutAdded(**change,
                         {.features = with_rows ? &rows : nullptr,
                          .labels = with_labels ? &labels : nullptr,
                          .split = split},
                         {.memory_bytes = rng_.Below(2) == 0 ? 8 << 10 : kMiB}));
    }
    for (uint32_t relation = 0; relation < set_.edges.size(); ++relation) {
      const TypedSet::Edges& edges = set_.edges[relation];
      const auto sources = model_.NodesOf(static_cast<uint32_t>(edges.source)),
                 destinations = model_.NodesOf(static_cast<uint32_t>(edges.destination));
      std::vector<Edge> removed, added;
      for (uint64_t i = rng_.Below(3); i > 0 && !model_.edges.empty(); --i) {
        auto edge = model_.edges.begin();
        std::advance(edge, rng_.Below(model_.edges.size()));
        const auto [to, of, from] = *edge;
        if (of != relation) continue;
        removed.push_back({from, to});
        model_.edges.erase(std::tuple(to, of, from));
      }
      for (uint64_t i = rng_.Below(20); i > 0; --i) {
        // The new ones have half of them.
        const auto end = [&](const std::vector<uint64_t>& nodes) {
          const uint64_t node = rng_.Below(2) == 0 ? nodes.back() : Any(nodes);
          return rng_.Below(2) == 0 ? node : Any(nodes);
        };
        const Edge edge{end(sources), end(destinations)};
        if (gone.contains(edge.source) || gone.contains(edge.destination)) continue;
        added.push_back(edge);
      }
      ASSERT_OK((*change)->Remove(removed, relation));
      ASSERT_OK(AddEdges(**change, relation, added));
      for (const Edge& edge : added) model_.edges.emplace(edge.destination, relation, edge.source);
    }
    const auto done = (*change)->Commit();
    ASSERT_OK(done);
    for (const uint64_t node : gone) {
      TypedNode& was = model_.nodes[node];
      std::ranges::fill(was.row, 0.0f);
      was.label = -1;
      was.split = Split::kNone;
    }
    std::erase_if(model_.edges, [&](const auto& edge) {
      return gone.contains(std::get<0>(edge)) || gone.contains(std::get<2>(edge));
    });
    EXPECT_EQ(done->nodes_added, count);
    EXPECT_EQ(done->nodes_removed, gone.size());
    EXPECT_EQ(done->node_count, model_.nodes.size());
    EXPECT_EQ(done->edge_count, model_.edges.size());
  }

  // Rows of nodes of all types, old and new, by the numbers that they have in theirs.
  void Put() {
    const NodeTypes types(store_->manifest()->node_types);
    WriteBatch batch;
    for (uint64_t i = 1 + rng_.Below(8); i > 0; --i) {
      const uint64_t node = rng_.Below(model_.nodes.size());
      TypedNode& changed = model_.nodes[node];
      std::ranges::fill(changed.row, static_cast<float>(rng_.Below(1000)));
      changed.label = static_cast<int64_t>(rng_.Below(5));
      batch.SetLabel(static_cast<NodeId>(node), changed.label);
      if (changed.row.empty()) continue;
      batch.Put(FeatureTableOf(set_.nodes[changed.type].name), types.RowOf(node),
                std::as_bytes(std::span(changed.row)));
    }
    ASSERT_OK(store_->Write(batch));
  }

  void Compact(bool all) {
    for (const char* const table : {"paper.feature", "author.feature", "label", "split"}) {
      if (!all && rng_.Below(2) == 0) continue;
      ASSERT_OK(CompactTable(*store_, budget_, table, false, {}));
    }
    if (!all && rng_.Below(2) == 0) return;
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
  }

  struct Held {
    std::shared_ptr<const Snapshot> snapshot;
    TypedModel model;
  };
  void Hold() {
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    held_.push_back({*snapshot, model_});
  }
  void CheckAll() {
    const auto snapshot = store_->TakeSnapshot();
    ASSERT_OK(snapshot);
    ASSERT_NO_FATAL_FAILURE(CheckManifest());
    ASSERT_NO_FATAL_FAILURE(Check({*snapshot, model_}));
    for (const Held& held : held_) ASSERT_NO_FATAL_FAILURE(Check(held));
    if (held_.empty()) {
      EXPECT_EQ(testing_util::FaultsIn(*store_), "");
    }
  }
  void CheckManifest();
  void Check(const Held& held);
  void CheckRows(const Held& held, const NodeTypes& types);
  void CheckBatches(const Held& held);

  const TemporaryFolder folder_{"grown-types"};
  const std::string path_ = folder_ / "typed.db";
  const std::unique_ptr<IoBackend> backend_ = MakeThreadBackend(2);
  MemoryBudget budget_{kGiB};
  Rng rng_{0};
  TypedSet set_;
  std::unique_ptr<Store> store_;
  TypedModel model_;
  std::vector<Held> held_;
};

// Counts by type, and ranges that do not touch others of theirs.
void GrownTypes::CheckManifest() {
  const auto manifest = store_->manifest();
  ASSERT_EQ(manifest->node_types.size(), set_.nodes.size());
  for (uint32_t type = 0; type < set_.nodes.size(); ++type) {
    const NodeTypeRecord& record = manifest->node_types[type];
    EXPECT_EQ(NodeCount(record), model_.NodesOf(type).size()) << record.name;
    uint64_t end = record.first + record.count;
    for (const TypeRange& range : record.later) {
      EXPECT_LT(end, range.first) << "these could be one";
      end = range.first + range.count;
    }
  }
  std::vector<uint64_t> counts(set_.edges.size());
  for (const auto& [to, relation, from] : model_.edges) ++counts[relation];
  for (size_t relation = 0; relation < counts.size(); ++relation) {
    EXPECT_EQ(manifest->edge_types[relation].edge_count, counts[relation]);
  }
}

void GrownTypes::Check(const Held& held) {
  ASSERT_EQ(held.snapshot->node_count, held.model.nodes.size());
  const NodeTypes types(store_->manifest()->node_types, held.snapshot->node_count);
  std::vector<uint64_t> numbers(set_.nodes.size());
  for (uint64_t node = 0; node < held.model.nodes.size(); ++node) {
    const uint32_t type = held.model.nodes[node].type;
    ASSERT_EQ(types.TypeOf(node), type) << "node " << node;
    ASSERT_EQ(types.RowOf(node), numbers[type]) << "node " << node;
    ASSERT_EQ(types.NodeOf(type, numbers[type]++), node);
  }
  for (uint32_t type = 0; type < numbers.size(); ++type) ASSERT_EQ(types.Count(type), numbers[type]);
  ASSERT_NO_FATAL_FAILURE(CheckRows(held, types));
  const auto properties = LoadNodeProperties(*store_, held.model.nodes.size(), held.snapshot);
  ASSERT_OK(properties);
  for (uint64_t node = 0; node < held.model.nodes.size(); ++node) {
    ASSERT_EQ(properties->labels[node], held.model.nodes[node].label) << "node " << node;
    ASSERT_EQ(properties->splits[node], static_cast<uint8_t>(held.model.nodes[node].split))
        << "node " << node;
  }
  ASSERT_NO_FATAL_FAILURE(CheckBatches(held));
}

void GrownTypes::CheckRows(const Held& held, const NodeTypes& types) {
  for (uint32_t type = 0; type < set_.nodes.size(); ++type) {
    if (set_.nodes[type].dim == 0) continue;
    const testing_util::TableRows rows =
        testing_util::RowsAt(*store_, held.snapshot, FeatureTableOf(set_.nodes[type].name));
    ASSERT_EQ(rows.size(), types.Count(type));
    uint64_t number = 0;
    for (const uint64_t node : held.model.NodesOf(type)) {
      const std::vector<float>& row = held.model.nodes[node].row;
      ASSERT_EQ(std::memcmp(rows[number++].data(), row.data(), row.size() * sizeof(float)), 0)
          << "node " << node << " of type " << set_.nodes[type].name;
    }
  }
}

// Each node's neighbors by edges of each type, all of them, and the rows of all nodes that come along; seeds of each type.
void GrownTypes::CheckBatches(const Held& held) {
  LiveRoadOptions options = testing_util::SmallOptions();
  options.spec.fanouts = {kAllNeighbors};
  options.spec.relation_fanouts.assign(set_.edges.size(), kAllNeighbors);
  options.spec.cache_bytes = rng_.Below(2) == 0 ? 0 : 20'000;
  options.snapshot = held.snapshot;
  if (rng_.Below(2) == 0) options.topology_placement = LiveRoadOptions::TopologyPlacement::kDisk;
  const auto road = LiveRoad::Open(*store_, budget_, options);
  ASSERT_OK(road);
  std::vector<NodeId> seeds;
  for (NodeId node = 0; node < held.model.nodes.size(); ++node) {
    if (rng_.Below(3) == 0 || node + 5 > held.model.nodes.size()) seeds.push_back(node);
  }
  std::set<NodeId> left(seeds.begin(), seeds.end());
  const auto stream = (*road)->StartPass({.seeds = seeds});
  ASSERT_OK(stream);
  for (;;) {
    const auto batch = (*stream)->Next();
    ASSERT_OK(batch);
    if (!*batch) break;
    const BatchView& view = (*batch)->view();
    for (size_t i = 0; i < view.nodes.size(); ++i) {
      const TypedNode& node = held.model.nodes.at(view.nodes[i]);
      if (node.row.empty()) continue;
      ASSERT_EQ(view.type_rows[node.type].dim, node.row.size());
      ASSERT_EQ(std::memcmp(view.features.Row(i), node.row.data(), node.row.size() * sizeof(float)), 0)
          << "node " << view.nodes[i] << " of type " << node.type;
    }
    for (uint32_t i = 0; i < view.seed_count; ++i) {
      ASSERT_EQ(view.labels[i], held.model.nodes[view.nodes[i]].label);
      std::multiset<std::pair<uint32_t, uint64_t>> drawn;
      for (uint32_t e = view.indptr[i]; e < view.indptr[i + 1]; ++e) {
        drawn.emplace(view.relations[e], view.nodes[view.indices[e]]);
      }
      ASSERT_EQ(drawn, held.model.Into(view.nodes[i])) << "node " << view.nodes[i];
      left.erase(view.nodes[i]);
    }
  }
  EXPECT_TRUE(left.empty()) << "not in any batch";
}

TEST_F(GrownTypes, AreThoseOfTheModelByEverySnapshot) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 90 : std::strtoull(given, nullptr, 10);
  for (uint64_t seed = base; seed < base + 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << seed);
    ASSERT_NO_FATAL_FAILURE(Make(seed));
    ASSERT_NO_FATAL_FAILURE(CheckAll());
    for (int step = 0; step < 24; ++step) {
      SCOPED_TRACE(testing::Message() << "step " << step);
      const uint64_t kind = rng_.Below(12);
      if (kind < 6) {
        const auto type = static_cast<uint32_t>(rng_.Below(set_.nodes.size()));
        ASSERT_NO_FATAL_FAILURE(Grow(type, rng_.Below(8) == 0 ? 150 : 1 + rng_.Below(7)));
      } else if (kind == 6) {
        ASSERT_NO_FATAL_FAILURE(Grow(0, 0));
      } else if (kind < 9) {
        ASSERT_NO_FATAL_FAILURE(Put());
      } else if (kind == 9 && held_.size() < 3) {
        ASSERT_NO_FATAL_FAILURE(Hold());
      } else if (kind == 10) {
        ASSERT_NO_FATAL_FAILURE(Compact(false));
      } else {
        ASSERT_NO_FATAL_FAILURE(Open());
      }
      ASSERT_NO_FATAL_FAILURE(CheckAll());
    }
    held_.clear();
    ASSERT_NO_FATAL_FAILURE(Compact(true));
    ASSERT_NO_FATAL_FAILURE(CheckAll());
    for (const TableRecord& table : store_->manifest()->tables) EXPECT_EQ(table.added_rows, 0u) << table.name;
    ASSERT_NO_FATAL_FAILURE(Open());
    ASSERT_NO_FATAL_FAILURE(CheckAll());
  }
}

TEST_F(GrownTypes, NodesBehindTheLastOnesOfTheirTypeAreOneRange) {
  ASSERT_NO_FATAL_FAILURE(Make(7));
  const auto record = [&](uint32_t type) { return store_->manifest()->node_types[type]; };
  const uint64_t fields = record(2).count, papers = record(0).count;
  ASSERT_NO_FATAL_FAILURE(Grow(2, 3));
  EXPECT_EQ(record(2).count, fields + 3);
  EXPECT_TRUE(record(2).later.empty());
  const uint64_t first = model_.nodes.size();
  ASSERT_NO_FATAL_FAILURE(Grow(0, 4));
  ASSERT_NO_FATAL_FAILURE(Grow(0, 5));
  EXPECT_EQ(record(0).count, papers);
  ASSERT_EQ(record(0).later.size(), 1u);
  EXPECT_EQ(std::pair(record(0).later[0].first, record(0).later[0].count), std::pair(first, uint64_t{9}));
  ASSERT_NO_FATAL_FAILURE(CheckAll());
}

TEST_F(GrownTypes, ATypeHasTheClassesOfNodesThatCameToIt) {
  ASSERT_NO_FATAL_FAILURE(Make(6));
  const auto classes = [&](uint32_t type) { return store_->manifest()->node_types[type].class_count; };
  const uint64_t papers = classes(0), authors = classes(1);
  EXPECT_EQ(classes(2), 0u);
  const auto change = GraphChange::Create(*store_, budget_, {.nodes = 2, .node_type = "field-of_study"});
  ASSERT_OK(change);
  WriteBatch batch;
  batch.SetLabel(static_cast<NodeId>(model_.nodes.size()), 4);
  batch.SetLabel(0, 99);  // a paper's
  ASSERT_OK((*change)->Put(batch));
  ASSERT_OK((*change)->Commit());
  EXPECT_EQ(std::tuple(classes(0), classes(1), classes(2)), std::tuple(papers, authors, uint64_t{5}));
  EXPECT_EQ(store_->manifest()->class_count, 100u);
}

// A commit of nodes may be named a moment before its timestamp can be seen.
TEST_F(GrownTypes, ASnapshotBeforeTheyAreVisibleLeavesThemOut) {
  ASSERT_NO_FATAL_FAILURE(Make(5));
  for (const uint32_t type : {2u, 0u, 1u}) {
    const Manifest before = *store_->manifest();
    Manifest after = before;
    AddNodes(7, type, after);
    after.grown = 10;
    Snapshot snapshot = {.timestamp = 9,
                         .node_count = after.node_count,
                         .tables = after.tables,
                         .topologies = after.topologies,
                         .files = {}};
    DropNewer(after, snapshot);
    EXPECT_EQ(snapshot.node_count, before.node_count);
    for (const TableRecord& table : before.tables) {
      EXPECT_EQ(snapshot.FindTable(table.name)->row_count, table.row_count) << table.name;
      EXPECT_EQ(snapshot.FindTable(table.name)->added_rows, table.added_rows) << table.name;
      const bool grew = table.name == "label" || table.name == "split" ||
                        table.name == FeatureTableOf(set_.nodes[type].name);
      EXPECT_EQ(after.FindTable(table.name)->row_count, table.row_count + (grew ? 7 : 0)) << table.name;
    }
    EXPECT_EQ(snapshot.FindTopology("graph")->node_count, before.FindTopology("graph")->node_count);
    ASSERT_NO_FATAL_FAILURE(Grow(type, 3));
  }
}

TEST_F(GrownTypes, RefuseWhatIsOfAnotherType) {
  ASSERT_NO_FATAL_FAILURE(Make(8));
  const auto begin = [&](uint64_t nodes, const std::string& type) {
    return GraphChange::Create(*store_, budget_,
                               {.nodes = nodes, .node_type = type, .memory_bytes = kGraphChangeBytesMin});
  };
  EXPECT_THAT(begin(1, "").status(),
              IsStatus(Code::kInvalidArgument, HasSubstr("none is given: say of which")));
  EXPECT_THAT(
      begin(1, "venue").status(),
      IsStatus(Code::kInvalidArgument,
               HasSubstr("there is no type of nodes \"venue\"; types: paper, author, field-of_study")));
  const NodeId added = static_cast<NodeId>(model_.nodes.size());
  {
    const auto change = begin(1, "author");
    ASSERT_OK(change);
    EXPECT_THAT((*change)->Add(std::vector<Edge>{{0, added}}, {}, 0),
                IsStatus(Code::kInvalidArgument, HasSubstr("its source 0 is of type \"paper\"")));
    EXPECT_THAT((*change)->Add(std::vector<Edge>{{added, added}}, {}, 0),
                IsStatus(Code::kInvalidArgument, HasSubstr("its destination " + std::to_string(added) +
                                                           " is of type \"author\"; "
                                                           "author:writes:paper leads to \"paper\"")));
    EXPECT_THAT((*change)->Add(std::vector<Edge>{{added + 1, 0}}, {}, 0),
                IsStatus(Code::kInvalidArgument, HasSubstr("is out of range")));
    const uint64_t authors = model_.NodesOf(1).size();
    testing_util::VectorEdgeReader beyond(std::vector<Edge>{{authors + 1, 0}});
    EXPECT_THAT((*change)->AddAll(beyond, 0),
                IsStatus(Code::kInvalidArgument, HasSubstr(fmt::format("there are {} nodes", authors + 1))));
  }
  {
    const auto change = begin(2, "author");
    ASSERT_OK(change);
    TypedNodeRows wide({2, TypedNode{.row = std::vector<float>(set_.nodes[0].dim)}}, set_.nodes[0].dim);
    EXPECT_THAT(PutAdded(**change, {.features = &wide}, {}),
                IsStatus(Code::kInvalidArgument, HasSubstr("table \"author.feature\" has 5")));
    WriteBatch batch;  // a row for each author and each of the two, and no more
    const std::vector<float> row(5);
    batch.Put("author.feature", model_.NodesOf(1).size() + 2, std::as_bytes(std::span(row)));
    EXPECT_EQ((*change)->Put(batch).code(), Code::kInvalidArgument);
  }
  {
    const auto change = begin(2, "field-of_study");
    ASSERT_OK(change);
    TypedNodeRows rows({2, TypedNode{.row = std::vector<float>(5)}}, 5);
    EXPECT_THAT(PutAdded(**change, {.features = &rows}, {}),
                IsStatus(Code::kInvalidArgument,
                         HasSubstr("nodes of type \"field-of_study\" have no features: give the number")));
    // Nor do they bring rows of others.
    WriteBatch batch;
    const std::vector<float> row(5);
    batch.Put("author.feature", model_.NodesOf(1).size(), std::as_bytes(std::span(row)));
    EXPECT_EQ((*change)->Put(batch).code(), Code::kInvalidArgument);
  }
  ASSERT_NO_FATAL_FAILURE(CheckAll()) << "nothing was committed";
}

}  // namespace
}  // namespace quarry
