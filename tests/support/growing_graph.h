// A graph that grows by commits, each a function of (seed, number): nodes of a type come with rows, labels, splits and
// names, rows change, nodes go, and edges of all relations come and go. So whoever knows how many commits a database has
// knows all that it must hold; the graph itself tells how many (CommitsIn).
//
// With types of nodes or without, with weights or without; a value, which is copied freely.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/grown_model.h"
#include "pipeline/tiny_database.h"
#include "quarry/base/random.h"
#include "quarry/format/node_types.h"
#include "quarry/import/graph_change.h"
#include "quarry/import/import.h"
#include "quarry/storage/compaction.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/node_properties.h"
#include "quarry/storage/topology_compaction.h"
#include "storage/store_rows.h"
#include "support/status_matchers.h"

namespace quarry::testing_util {

class GrowingGraph {
 public:
  struct Shape {
    bool typed = true;  // else all nodes are alike, and edges of each relation run between any of them
    bool weighted = false;
    bool deduplicated = false;  // then the graph does not tell how many commits there were
    bool named = false;
    bool csr = false;
    uint64_t papers = 40;
  };
  struct Node {
    uint32_t type = 0;
    std::vector<float> row;
    int64_t label = -1;
    Split split = Split::kNone;
  };
  struct Ends {
    uint64_t to = 0;
    uint32_t relation = 0;
    uint64_t from = 0;
    auto operator<=>(const Ends&) const = default;
  };
  // The weights of all edges between two nodes, ascending; 0 each where there are none.
  using Edges = std::map<Ends, std::vector<float>>;

  // What is removed goes first.
  struct Commit {
    uint32_t type = 0;  // of the nodes that come
    std::vector<Node> nodes;
    std::map<uint64_t, Node> written;  // nodes that were there, with new rows, labels and splits
    std::set<NodeId> gone;
    struct OfRelation {
      std::vector<Edge> removed, added;
      std::vector<float> weights;  // of the added ones, or none
    };
    std::vector<OfRelation> relations;
  };

  GrowingGraph(uint64_t seed, const Shape& shape) : seed_(seed), shape_(shape) {
    Rng rng(MixSeed(seed, 0));
    const uint64_t counts[] = {shape.papers, shape.papers / 2, shape.papers / 10 + 1};
    for (uint32_t type = 0; type < std::size(counts); ++type) {
      for (uint64_t i = 0; i < counts[type]; ++i) Append(RandomNode(rng, shape.typed ? type : 0));
    }
    const uint64_t edges[] = {2 * shape.papers, 2 * shape.papers, shape.papers, shape.papers / 2};
    std::vector<Commit::OfRelation> relations(kRelationCount);
    for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
      const Edge first = FirstOf(relation);
      relations[relation].added.push_back(first);
      for (uint64_t i = 0; i < edges[relation]; ++i) {
        const Edge edge{AnySource(rng, relation), AnyDestination(rng, relation)};
        if (!IsSame(edge, first)) relations[relation].added.push_back(edge);
      }
      Weigh(rng, relations[relation]);
    }
    AddEdges(relations);
  }

  const Shape& shape() const { return shape_; }
  uint64_t commits() const { return commits_; }
  uint64_t node_count() const { return nodes_.size(); }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Edges& edges() const { return edges_; }
  uint32_t type_count() const { return shape_.typed ? std::size(kTypes) : 1; }
  std::string TypeName(uint32_t type) const { return shape_.typed ? kTypes[type].name : ""; }
  static uint64_t DimOf(uint32_t type) { return kTypes[type].dim; }
  std::string TableOf(uint32_t type) const {
    return shape_.typed ? FeatureTableOf(kTypes[type].name) : std::string("feature");
  }
  std::string NameOf(uint64_t node) const { return fmt::format("node {}", node); }
  const std::vector<uint64_t>& NodesOf(uint32_t type) const { return of_type_[type]; }
  // Which of its type's nodes it is.
  uint64_t NumberOf(uint64_t node) const { return numbers_[node]; }
  static constexpr uint32_t kRelationCount = 4;

  Commit Next() const;
  void Take(const Commit& commit);

  // Makes a database of it, in which the nodes of a type follow each other whenever they came.
  Status Import(IoBackend& backend, const std::string& path) const;
  // The next commit, to a database that has all before it. kBusy where nodes are to come that it has already.
  Status CommitTo(Store& store, MemoryBudget& budget, const Commit& next) const;
  // Rows of a commit, as a batch.
  WriteBatch RowsOf(const Commit& next) const;

  // How many commits a database has.
  static Result<uint64_t> CommitsIn(Store& store);
  static Result<Edges> EdgesIn(Store& store);
  // Fails the test where the newest state of the database is another.
  void ExpectIn(Store& store) const;

 private:
  static constexpr struct {
    const char* name;
    uint64_t dim;
  } kTypes[] = {{"paper", 130}, {"author", 5}, {"field", 0}};
  static constexpr struct {
    uint32_t source;
    const char* name;
    uint32_t destination;
  } kRelations[kRelationCount] = {{1, "writes", 0}, {0, "cites", 0}, {0, "has_topic", 2}, {1, "knows", 1}};
  static constexpr uint32_t kCounting = 1;  // the relation whose first edge counts commits

  uint32_t SourceType(uint32_t relation) const { return shape_.typed ? kRelations[relation].source : 0; }
  uint32_t DestinationType(uint32_t relation) const {
    return shape_.typed ? kRelations[relation].destination : 0;
  }
  // From the first node of a type to that of the other: it stays, so that an import numbers relations alike.
  Edge FirstOf(uint32_t relation) const {
    return {of_type_[SourceType(relation)][0], of_type_[DestinationType(relation)][0]};
  }
  static bool IsSame(const Edge& edge, const Edge& other) {
    return edge.source == other.source && edge.destination == other.destination;
  }
  bool IsFirst(uint64_t node) const { return numbers_[node] == 0; }

  Node RandomNode(Rng& rng, uint32_t type) const {
    Node node{.type = type, .row = std::vector<float>(DimOf(type)), .label = -1, .split = Split::kNone};
    for (float& value : node.row) value = static_cast<float>(rng.Below(1000));
    if (type < 2) node.label = static_cast<int64_t>(rng.Below(6)) - 1;
    if (type < 2) node.split = static_cast<Split>(rng.Below(4));
    return node;
  }
  void Append(Node node) {
    of_type_.resize(type_count());
    numbers_.push_back(of_type_[node.type].size());
    of_type_[node.type].push_back(nodes_.size());
    nodes_.push_back(std::move(node));
  }
  // Half of them among the newest ones.
  static uint64_t Any(Rng& rng, const std::vector<uint64_t>& nodes) {
    const uint64_t newest = std::min<uint64_t>(nodes.size(), 4);
    return rng.Below(2) == 0 ? nodes[nodes.size() - 1 - rng.Below(newest)] : nodes[rng.Below(nodes.size())];
  }
  uint64_t AnySource(Rng& rng, uint32_t relation) const {
    return of_type_[SourceType(relation)][rng.Below(of_type_[SourceType(relation)].size())];
  }
  uint64_t AnyDestination(Rng& rng, uint32_t relation) const {
    return of_type_[DestinationType(relation)][rng.Below(of_type_[DestinationType(relation)].size())];
  }
  void Weigh(Rng& rng, Commit::OfRelation& change) const {
    for (size_t i = 0; shape_.weighted && i < change.added.size(); ++i) {
      change.weights.push_back(static_cast<float>(rng.Below(8)) / 4);
    }
  }
  void AddEdges(const std::vector<Commit::OfRelation>& relations);

  uint64_t seed_;
  Shape shape_;
  uint64_t commits_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::vector<uint64_t>> of_type_;
  std::vector<uint64_t> numbers_;  // by node
  Edges edges_;
};

inline void GrowingGraph::AddEdges(const std::vector<Commit::OfRelation>& relations) {
  for (uint32_t relation = 0; relation < relations.size(); ++relation) {
    const Commit::OfRelation& change = relations[relation];
    Edges added;
    for (size_t i = 0; i < change.added.size(); ++i) {
      const Edge& edge = change.added[i];
      added[{edge.destination, relation, edge.source}].push_back(shape_.weighted ? change.weights[i] : 0.0F);
    }
    for (auto& [ends, weights] : added) {
      std::vector<float>& now = edges_[ends];
      if (shape_.deduplicated) {
        float sum = 0;
        for (const float weight : weights) sum += weight;
        now = {sum};
      } else {
        now.insert(now.end(), weights.begin(), weights.end());
        std::ranges::sort(now);
      }
    }
  }
}

inline GrowingGraph::Commit GrowingGraph::Next() const {
  const uint64_t number = commits_ + 1;
  Rng rng(MixSeed(seed_, number));
  Commit next{.type = static_cast<uint32_t>(rng.Below(type_count())),
              .nodes = {},
              .written = {},
              .gone = {},
              .relations = std::vector<Commit::OfRelation>(kRelationCount)};
  for (uint64_t count = number % 4 == 0 ? 0 : 1 + rng.Below(3); count > 0; --count) {
    next.nodes.push_back(RandomNode(rng, next.type));
  }
  for (uint64_t count = number % 3 == 2 ? 1 + rng.Below(2) : 0; count > 0; --count) {
    const uint64_t node = rng.Below(nodes_.size());
    if (!IsFirst(node)) next.gone.insert(static_cast<NodeId>(node));
  }
  for (uint64_t count = rng.Below(4); count > 0; --count) {
    const uint64_t node = rng.Below(nodes_.size());
    if (!next.gone.contains(static_cast<NodeId>(node)))
      next.written[node] = RandomNode(rng, nodes_[node].type);
  }
  std::vector<std::vector<uint64_t>> of_type = of_type_;  // with the nodes that come
  for (size_t i = 0; i < next.nodes.size(); ++i) of_type[next.type].push_back(nodes_.size() + i);
  for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
    Commit::OfRelation& change = next.relations[relation];
    const Edge first = FirstOf(relation);
    const auto remove = [&](const Edge& edge) {
      if (!IsSame(edge, first)) change.removed.push_back(edge);
    };
    if (rng.Below(2) == 0) remove({AnySource(rng, relation), AnyDestination(rng, relation)});
    for (uint64_t count = rng.Below(7); count > 0; --count) {  // that are there
      const auto edge = edges_.lower_bound({AnyDestination(rng, relation), relation, 0});
      if (edge != edges_.end() && edge->first.relation == relation)
        remove({edge->first.from, edge->first.to});
    }
    for (uint64_t count = rng.Below(8); count > 0; --count) {
      const Edge edge{Any(rng, of_type[SourceType(relation)]), Any(rng, of_type[DestinationType(relation)])};
      if (next.gone.contains(static_cast<NodeId>(edge.source))) continue;
      if (next.gone.contains(static_cast<NodeId>(edge.destination))) continue;
      if (IsSame(edge, first)) continue;
      change.added.push_back(edge);
      if (rng.Below(6) == 0) change.added.push_back(edge);
    }
    if (relation == kCounting) change.added.push_back(first);
    Weigh(rng, change);
  }
  return next;
}

inline void GrowingGraph::Take(const Commit& commit) {
  ++commits_;
  for (const Node& node : commit.nodes) Append(node);
  for (const auto& [node, written] : commit.written) nodes_[node] = written;
  for (const NodeId node : commit.gone) {
    std::ranges::fill(nodes_[node].row, 0.0F);
    nodes_[node].label = -1;
    nodes_[node].split = Split::kNone;
  }
  if (!commit.gone.empty()) {
    std::erase_if(edges_, [&](const auto& edge) {
      return commit.gone.contains(static_cast<NodeId>(edge.first.from)) ||
             commit.gone.contains(static_cast<NodeId>(edge.first.to));
    });
  }
  for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
    for (const Edge& edge : commit.relations[relation].removed) {
      edges_.erase({edge.destination, relation, edge.source});
    }
  }
  AddEdges(commit.relations);
}

inline Status GrowingGraph::Import(IoBackend& backend, const std::string& path) const {
  Dataset dataset;
  dataset.source = "memory";
  dataset.node_count = nodes_.size();
  for (uint32_t type = 0; type < type_count(); ++type) {
    NodeTypeInput input{.name = TypeName(type), .count = of_type_[type].size()};
    std::vector<std::vector<float>> rows;
    std::vector<int64_t> labels, splits[4];
    for (const uint64_t node : of_type_[type]) {
      rows.push_back(nodes_[node].row);
      labels.push_back(nodes_[node].label);
      splits[static_cast<size_t>(nodes_[node].split)].push_back(static_cast<int64_t>(numbers_[node]));
      if (shape_.named) dataset.entity_names.push_back(NameOf(node));
    }
    if (DimOf(type) > 0) input.features = std::make_unique<ModelRows>(std::move(rows), DimOf(type));
    if (type < 2) {
      input.labels = std::make_unique<VectorIntReader>(std::move(labels));
      input.train = std::make_unique<VectorIntReader>(splits[static_cast<size_t>(Split::kTrain)]);
      input.valid = std::make_unique<VectorIntReader>(splits[static_cast<size_t>(Split::kValid)]);
      input.test = std::make_unique<VectorIntReader>(splits[static_cast<size_t>(Split::kTest)]);
    }
    if (shape_.typed) {
      dataset.node_types.push_back(std::move(input));
      continue;
    }
    dataset.features = std::move(input.features);
    dataset.labels = std::move(input.labels);
    dataset.train = std::move(input.train);
    dataset.valid = std::move(input.valid);
    dataset.test = std::move(input.test);
  }
  std::vector<Commit::OfRelation> relations(kRelationCount);
  for (const auto& [ends, weights] : edges_) {
    Commit::OfRelation& of = relations[ends.relation];
    of.added.insert(of.added.end(), weights.size(), {numbers_[ends.from], numbers_[ends.to]});
    if (shape_.weighted) of.weights.insert(of.weights.end(), weights.begin(), weights.end());
  }
  for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
    dataset.edges.push_back(
        {.name = kRelations[relation].name,
         .path = "memory",
         .reader = std::make_unique<VectorEdgeReader>(std::move(relations[relation].added),
                                                      std::move(relations[relation].weights)),
         .source = SourceType(relation),
         .destination = DestinationType(relation)});
  }
  ImportOptions options;
  options.both_directions = shape_.csr;
  options.deduplicate = shape_.deduplicated;
  return ImportDatabase(backend, path, std::move(dataset), options);
}

inline WriteBatch GrowingGraph::RowsOf(const Commit& next) const {
  WriteBatch batch;
  const auto put = [&](uint64_t node, uint64_t number, const Node& of) {
    if (!of.row.empty()) batch.Put(TableOf(of.type), number, std::as_bytes(std::span(of.row)));
    batch.SetLabel(static_cast<NodeId>(node), of.label);
    batch.SetSplit(static_cast<NodeId>(node), of.split);
  };
  for (size_t i = 0; i < next.nodes.size(); ++i) {
    put(nodes_.size() + i, of_type_[next.type].size() + i, next.nodes[i]);
  }
  for (const auto& [node, written] : next.written) put(node, numbers_[node], written);
  return batch;
}

inline Status GrowingGraph::CommitTo(Store& store, MemoryBudget& budget, const Commit& next) const {
  GraphChangeOptions options{.memory_bytes = kGraphChangeBytesMin};
  if (!next.nodes.empty()) {
    options.nodes = next.nodes.size();
    options.node_type = TypeName(next.type);
    options.first_node = nodes_.size();
  }
  QUARRY_TRY(const auto change, GraphChange::Create(store, budget, options));
  QUARRY_RETURN_IF_ERROR(change->RemoveNodes(std::vector<NodeId>(next.gone.begin(), next.gone.end())));
  std::vector<std::string> names;
  for (size_t i = 0; i < next.nodes.size(); ++i) names.push_back(NameOf(nodes_.size() + i));
  if (shape_.named && !names.empty()) QUARRY_RETURN_IF_ERROR(change->Name(names));
  const WriteBatch rows = RowsOf(next);
  if (!rows.empty()) QUARRY_RETURN_IF_ERROR(change->Put(rows));
  for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
    const Commit::OfRelation& of = next.relations[relation];
    QUARRY_RETURN_IF_ERROR(change->Remove(of.removed, relation));
    QUARRY_RETURN_IF_ERROR(change->Add(of.added, of.weights, relation));
  }
  return change->Commit().status();
}

inline Result<uint64_t> GrowingGraph::CommitsIn(Store& store) {
  QUARRY_TRY(const auto topology, store.OpenTopology("graph"));
  QUARRY_TRY(const auto neighbors,
             EdgeColumnReader::Make(store.backend(), *topology, Adjacency::kCsc, EdgeColumn::kNeighbors));
  QUARRY_TRY(const auto relations,
             EdgeColumnReader::Make(store.backend(), *topology, Adjacency::kCsc, EdgeColumn::kRelations));
  const uint64_t end = topology->indptr(Adjacency::kCsc)[1];
  QUARRY_TRY(const std::span<const uint32_t> from, neighbors->Read(0, end));
  QUARRY_TRY(const std::span<const uint32_t> of, relations->Read(0, end));
  uint64_t counted = 0;
  for (size_t i = 0; i < from.size(); ++i) counted += from[i] == 0 && of[i] == kCounting ? 1 : 0;
  return counted - 1;  // it was there at first
}

inline Result<GrowingGraph::Edges> GrowingGraph::EdgesIn(Store& store) {
  QUARRY_TRY(const auto topology, store.OpenTopology("graph"));
  const bool weighted = store.manifest()->FindTopology("graph")->weighted;
  if (weighted) QUARRY_RETURN_IF_ERROR(topology->LoadWeights(store.backend(), Adjacency::kCsc));
  QUARRY_TRY(const auto neighbors,
             EdgeColumnReader::Make(store.backend(), *topology, Adjacency::kCsc, EdgeColumn::kNeighbors));
  QUARRY_TRY(const auto relations,
             EdgeColumnReader::Make(store.backend(), *topology, Adjacency::kCsc, EdgeColumn::kRelations));
  const std::span<const uint64_t> indptr = topology->indptr(Adjacency::kCsc);
  Edges edges;
  for (uint64_t node = 0; node + 1 < indptr.size(); ++node) {
    if (indptr[node] == indptr[node + 1]) continue;
    QUARRY_TRY(const std::span<const uint32_t> from, neighbors->Read(indptr[node], indptr[node + 1]));
    QUARRY_TRY(const std::span<const uint32_t> of, relations->Read(indptr[node], indptr[node + 1]));
    for (size_t i = 0; i < from.size(); ++i) {
      edges[{node, of[i], from[i]}].push_back(weighted ? topology->weights(Adjacency::kCsc)[indptr[node] + i]
                                                       : 0.0F);
    }
  }
  for (auto& [ends, weights] : edges) std::ranges::sort(weights);
  return edges;
}

inline void GrowingGraph::ExpectIn(Store& store) const {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  ASSERT_EQ(manifest->node_count, nodes_.size());
  ASSERT_EQ(manifest->node_types.size(), shape_.typed ? type_count() : 0);
  if (shape_.typed) {
    const NodeTypes types(manifest->node_types);
    for (uint64_t node = 0; node < nodes_.size(); ++node) {
      ASSERT_EQ(types.TypeOf(node), nodes_[node].type) << "node " << node;
      ASSERT_EQ(types.RowOf(node), numbers_[node]) << "node " << node;
    }
    std::vector<uint64_t> counts(kRelationCount);
    for (const auto& [ends, weights] : edges_) counts[ends.relation] += weights.size();
    for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
      ASSERT_EQ(manifest->edge_types[relation].edge_count, counts[relation]) << kRelations[relation].name;
    }
  }
  for (uint32_t type = 0; type < type_count(); ++type) {
    if (DimOf(type) == 0) continue;
    const TableRows rows = RowsNow(store, TableOf(type));
    ASSERT_EQ(rows.size(), of_type_[type].size());
    for (uint64_t number = 0; number < rows.size(); ++number) {
      const std::vector<float>& row = nodes_[of_type_[type][number]].row;
      ASSERT_EQ(std::memcmp(rows[number].data(), row.data(), row.size() * sizeof(float)), 0)
          << "row " << number << " of " << TableOf(type);
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto snapshot, store.TakeSnapshot());
  ASSERT_OK_AND_ASSIGN(const auto properties, LoadNodeProperties(store, nodes_.size(), snapshot));
  for (uint64_t node = 0; node < nodes_.size(); ++node) {
    ASSERT_EQ(properties.labels[node], nodes_[node].label) << "node " << node;
    ASSERT_EQ(properties.splits[node], static_cast<uint8_t>(nodes_[node].split)) << "node " << node;
    if (!shape_.named) continue;
    ASSERT_OK_AND_ASSIGN(const auto found, store.catalog()->IdOfName(NameKind::kEntity, NameOf(node)));
    ASSERT_EQ(found, node);
  }
  ASSERT_OK_AND_ASSIGN(const Edges found, EdgesIn(store));
  ASSERT_EQ(found, edges_);
}

// Folds all of it into files.
inline Status CompactAll(Store& store, MemoryBudget& budget) {
  for (const TableRecord& table : std::vector<TableRecord>(store.manifest()->tables)) {
    QUARRY_RETURN_IF_ERROR(CompactTable(store, budget, table.name, /*dry_run=*/false, {}).status());
  }
  return CompactTopology(store, budget, "graph", /*dry_run=*/false, {}).status();
}

}  // namespace quarry::testing_util
