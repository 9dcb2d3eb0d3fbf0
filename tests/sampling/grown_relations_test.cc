// Edges of several relations come and go: whoever reads them finds those of a model, relation by relation, and after
// compaction the file that an import of them writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "pipeline/tiny_database.h"
#include "quarry/base/units.h"
#include "quarry/import/graph_change.h"
#include "quarry/sampling/typed_lists.h"
#include "quarry/storage/edge_columns.h"
#include "quarry/storage/edges.h"
#include "quarry/storage/relation_scan.h"
#include "quarry/storage/topology_compaction.h"
#include "quarry/storage/topology_run.h"
#include "storage/small_store.h"
#include "storage/store_rows.h"
#include "support/file_text.h"
#include "support/status_matchers.h"

namespace quarry {
namespace {

using testing::HasSubstr;
using testing_util::ScratchFolder;
using testing_util::VectorEdgeReader;

struct TypeShape {
  const char* name;
  uint64_t first, count;
};
constexpr TypeShape kTypes[] = {{"author", 0, 40}, {"paper", 40, 70}, {"venue", 110, 5}};
constexpr uint64_t kNodes = 115;
struct RelationShape {
  uint32_t source;
  const char* name;
  uint32_t destination;
};
constexpr RelationShape kRelations[] = {
    {0, "writes", 1}, {1, "cites", 1}, {1, "appears", 2}, {0, "knows", 0}};
constexpr uint32_t kRelationCount = std::size(kRelations);

// Which nodes edges of a relation lead from and to.
struct EdgeEnds {
  uint64_t source_first = 0, source_count = 0;
  uint64_t destination_first = 0, destination_count = 0;
};

struct Kind {
  bool typed = false;
  bool csr = false;
  bool deduplicate = false;
  bool weighted = false;
  uint32_t relations_in_all = kRelationCount;  // more than those that have edges, for wider ids
};

// One edge in the order of the lists of in-neighbors.
struct Stored {
  NodeId tail = 0;
  uint32_t relation = 0;
  NodeId head = 0;
  float weight = 0;
};

class GrownRelations : public testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/db"; }

  // The node ids of a relation's ends.
  EdgeEnds Ends(uint32_t relation) const {
    if (!kind_.typed) return {.source_count = kNodes, .destination_count = kNodes};
    const TypeShape &from = kTypes[kRelations[relation].source],
                    &to = kTypes[kRelations[relation].destination];
    return {.source_first = from.first,
            .source_count = from.count,
            .destination_first = to.first,
            .destination_count = to.count};
  }
  std::vector<Stored> SomeEdges(size_t count) {
    std::vector<Stored> edges;
    for (size_t i = 0; i < count; ++i) {
      const auto relation = static_cast<uint32_t>(rng_.Below(kRelationCount));
      const EdgeEnds ends = Ends(relation);
      // A few nodes have most of them.
      const auto node = [&](uint64_t first, uint64_t nodes) {
        return static_cast<NodeId>(first +
                                   rng_.Below(rng_.Below(2) == 0 ? std::min<uint64_t>(nodes, 4) : nodes));
      };
      Stored edge{.tail = node(ends.destination_first, ends.destination_count),
                  .relation = relation,
                  .head = node(ends.source_first, ends.source_count)};
      if (kind_.weighted) edge.weight = static_cast<float>(1 + rng_.Below(7)) / 4;
      edges.push_back(edge);
      if (rng_.Below(8) == 0) edges.push_back(edge);
    }
    return edges;
  }
  auto Place(const Stored& edge) const {
    const uint32_t weight = std::bit_cast<uint32_t>(edge.weight);
    return kind_.typed ? std::tuple(edge.tail, uint64_t{edge.relation}, uint64_t{edge.head}, weight)
                       : std::tuple(edge.tail, uint64_t{edge.head}, uint64_t{edge.relation}, weight);
  }
  static bool Equal(const Stored& a, const Stored& b) {
    return a.tail == b.tail && a.relation == b.relation && a.head == b.head;
  }
  bool single() const { return kind_.deduplicate; }

  void AddToModel(const std::vector<Stored>& added) {
    std::vector<Stored> fresh;
    for (const Stored& edge : added) {
      const auto same = std::ranges::find_if(fresh, [&](const Stored& other) { return Equal(edge, other); });
      if (single() && same != fresh.end()) {
        same->weight += edge.weight;
      } else {
        fresh.push_back(edge);
      }
    }
    for (const Stored& edge : fresh) {
      if (single()) RemoveFromModel({edge});
      model_.push_back(edge);
    }
    std::ranges::sort(model_, {}, [&](const Stored& edge) { return Place(edge); });
  }
  void RemoveFromModel(const std::vector<Stored>& removed) {
    for (const Stored& edge : removed) {
      std::erase_if(model_, [&](const Stored& other) { return Equal(edge, other); });
    }
  }

  Status ImportEdges(const std::string& to, const std::vector<Stored>& edges) {
    Dataset dataset;
    dataset.source = "memory";
    dataset.node_count = kNodes;
    if (kind_.typed) {
      for (const TypeShape& type : kTypes) {
        NodeTypeInput input{.name = type.name, .count = type.count};
        if (type.first == 40) {
          input.features = std::make_unique<testing_util::TinyRows>(
              testing_util::TinyGraph{.nodes = static_cast<NodeId>(type.count), .dim = 3});
        }
        dataset.node_types.push_back(std::move(input));
      }
    }
    for (uint32_t relation = 0; relation < kind_.relations_in_all; ++relation) {
      std::vector<Edge> pairs;
      std::vector<float> weights;
      const bool known = relation < kRelationCount;
      const EdgeEnds ends = Ends(known ? relation : 0);
      for (const Stored& edge : edges) {
        if (edge.relation != relation) continue;
        pairs.push_back({edge.head - ends.source_first, edge.tail - ends.destination_first});
        if (kind_.weighted) weights.push_back(edge.weight);
      }
      dataset.edges.push_back(
          {.name = known ? kRelations[relation].name : "r" + std::to_string(relation),
           .path = "memory",
           .reader = std::make_unique<VectorEdgeReader>(std::move(pairs), std::move(weights)),
           .source = known && kind_.typed ? kRelations[relation].source : 0,
           .destination = known && kind_.typed ? kRelations[relation].destination : 0});
    }
    ImportOptions options;
    options.both_directions = kind_.csr;
    options.deduplicate = kind_.deduplicate;
    return ImportDatabase(*backend_, to, std::move(dataset), options);
  }
  void Make(const Kind& kind, uint64_t seed) {
    kind_ = kind;
    rng_ = Rng(seed);
    model_.clear();
    store_.reset();
    std::filesystem::remove_all(path());
    // Each relation has an edge, so that an import of what is left numbers them alike.
    std::vector<Stored> first = SomeEdges(400);
    for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
      const EdgeEnds ends = Ends(relation);
      first.push_back({.tail = static_cast<NodeId>(ends.destination_first + ends.destination_count - 1),
                       .relation = relation,
                       .head = static_cast<NodeId>(ends.source_first + ends.source_count - 1),
                       .weight = kind_.weighted ? 1.0F : 0.0F});
    }
    AddToModel(first);
    ASSERT_OK(ImportEdges(path(), first));
    Open();
  }
  void Open() {
    store_.reset();
    auto store = Store::Open(*backend_, path());
    ASSERT_OK(store);
    store_ = std::move(store).value();
  }
  // Relation by relation, as calls have it.
  template <typename Call>
  void ByRelation(const std::vector<Stored>& edges, const Call& call) {
    for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
      std::vector<Edge> pairs;
      std::vector<float> weights;
      for (const Stored& edge : edges) {
        if (edge.relation != relation) continue;
        pairs.push_back({edge.head, edge.tail});
        if (kind_.weighted) weights.push_back(edge.weight);
      }
      if (!pairs.empty()) call(relation, pairs, weights);
    }
  }
  GraphChangeReport Change(const std::vector<Stored>& removed, const std::vector<Stored>& added,
                           const std::vector<NodeId>& nodes = {}) {
    auto change = GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin});
    EXPECT_OK(change);
    EXPECT_OK((*change)->RemoveNodes(nodes));
    ByRelation(added, [&](uint32_t relation, const auto& pairs, const auto& weights) {
      EXPECT_OK((*change)->Add(pairs, weights, relation));
    });
    ByRelation(removed, [&](uint32_t relation, const auto& pairs, const auto&) {
      EXPECT_OK((*change)->Remove(pairs, relation));
    });
    const auto done = (*change)->Commit();
    EXPECT_OK(done);
    RemoveFromModel(removed);
    std::erase_if(model_, [&](const Stored& edge) {
      return std::ranges::find(nodes, edge.head) != nodes.end() ||
             std::ranges::find(nodes, edge.tail) != nodes.end();
    });
    AddToModel(added);
    return *done;
  }
  std::vector<Stored> SomeToRemove(size_t count) {
    std::vector<Stored> gone = SomeEdges(count / 2);
    for (size_t i = 0; i < count / 2 && !model_.empty(); ++i) {
      // The last edge of each relation stays (Make).
      const Stored& edge = model_[rng_.Below(model_.size())];
      const EdgeEnds ends = Ends(edge.relation);
      if (edge.tail + 1 != ends.destination_first + ends.destination_count) gone.push_back(edge);
    }
    std::erase_if(gone, [&](const Stored& edge) {
      const EdgeEnds ends = Ends(edge.relation);
      return edge.tail + 1 == ends.destination_first + ends.destination_count;
    });
    return gone;
  }
  void Check();
  void CheckTypes(const Topology& topology);
  void CheckEqualsImport();

  ScratchFolder folder_{testing_util::Medium::kMemory};
  std::unique_ptr<IoBackend> backend_ = MakeDefaultBackend();
  MemoryBudget budget_{kGiB};
  Kind kind_;
  Rng rng_{0};
  std::unique_ptr<Store> store_;
  std::vector<Stored> model_;  // in the order of the lists
};

void GrownRelations::Check() {
  const auto list = EdgeList::Open(*store_, budget_, "graph");
  ASSERT_OK(list);
  ASSERT_EQ((*list)->size(), model_.size());
  std::vector<Triple> read(model_.size());
  (*list)->Read(0, read);
  for (size_t i = 0; i < read.size(); ++i) {
    ASSERT_EQ(std::tuple(read[i].tail, read[i].relation, read[i].head),
              std::tuple(model_[i].tail, model_[i].relation, model_[i].head))
        << "edge " << i;
  }
  const auto opened = store_->OpenTopology("graph");
  ASSERT_OK(opened);
  const Topology& topology = **opened;
  auto scan = RelationScan::Open(*backend_, budget_, topology);
  ASSERT_OK(scan);
  std::vector<uint32_t> relations(model_.size());
  for (size_t first = 0; first < relations.size();) {
    const size_t count = std::min<size_t>(1 + rng_.Below(100), relations.size() - first);
    ASSERT_OK(scan->Read(std::span(relations).subspan(first, count)));
    first += count;
  }
  for (size_t i = 0; i < relations.size(); ++i) ASSERT_EQ(relations[i], model_[i].relation) << i;
  if (kind_.weighted) {
    ASSERT_OK((*opened)->LoadWeights(*backend_, Adjacency::kCsc));
    for (size_t i = 0; i < model_.size(); ++i) {
      ASSERT_EQ(topology.weights(Adjacency::kCsc)[i], model_[i].weight) << i;
    }
  }
  if (kind_.csr) {  // lists of out-neighbors have the same edges
    std::vector<Stored> swapped = model_;
    for (Stored& edge : swapped) std::swap(edge.head, edge.tail);
    std::ranges::sort(swapped, {}, [&](const Stored& edge) { return Place(edge); });
    const auto neighbors =
        EdgeColumnReader::Make(*backend_, topology, Adjacency::kCsr, EdgeColumn::kNeighbors);
    const auto kinds = EdgeColumnReader::Make(*backend_, topology, Adjacency::kCsr, EdgeColumn::kRelations);
    ASSERT_OK(neighbors);
    ASSERT_OK(kinds);
    const std::span<const uint64_t> indptr = topology.indptr(Adjacency::kCsr);
    for (size_t node = 0, edge = 0; node < kNodes; ++node) {
      const auto ids = (*neighbors)->Read(indptr[node], indptr[node + 1]);
      const auto of = (*kinds)->Read(indptr[node], indptr[node + 1]);
      ASSERT_OK(ids);
      ASSERT_OK(of);
      for (size_t i = 0; i < ids->size(); ++i, ++edge) {
        ASSERT_EQ(std::tuple(node, (*of)[i], (*ids)[i]),
                  std::tuple(size_t{swapped[edge].tail}, swapped[edge].relation, swapped[edge].head));
      }
    }
  }
  if (kind_.typed) {
    ASSERT_NO_FATAL_FAILURE(CheckTypes(topology));
  }
}

// What draws by type go by, and what the manifest counts.
void GrownRelations::CheckTypes(const Topology& topology) {
  const std::shared_ptr<const Manifest> manifest = store_->manifest();
  std::map<std::pair<NodeId, uint32_t>, uint64_t> degrees;
  std::vector<uint64_t> counts(kRelationCount);
  for (const Stored& edge : model_) {
    ++degrees[{edge.tail, edge.relation}];
    ++counts[edge.relation];
  }
  for (uint32_t relation = 0; relation < kRelationCount; ++relation) {
    EXPECT_EQ(manifest->edge_types[relation].edge_count, counts[relation]) << kRelations[relation].name;
  }
  const auto lists = TypedLists::Load(*store_, budget_, *manifest, topology);
  ASSERT_OK(lists);
  for (NodeId node = 0; node < kNodes; ++node) {
    const NodeTypes::Range& in = (*lists)->nodes().RangeOf(node);
    const std::span<const uint64_t> indptr = topology.indptr(Adjacency::kCsc);
    uint64_t end = 0;
    for (size_t k = 0; k < (*lists)->RelationsInto(in.type).size(); ++k) {
      end += degrees[{node, (*lists)->RelationsInto(in.type)[k]}];
      ASSERT_EQ((*lists)->EndOf(in, node, k, indptr[node + 1] - indptr[node]), end) << "node " << node;
    }
  }
}

void GrownRelations::CheckEqualsImport() {
  const std::string other = folder_.path() + "/whole";
  std::filesystem::remove_all(other);
  ASSERT_OK(ImportEdges(other, model_));
  const TopologyRecord record = *store_->manifest()->FindTopology("graph");
  ASSERT_TRUE(record.runs.empty());
  const std::string compacted = testing_util::FileText(path() + "/" + record.file),
                    whole = testing_util::FileText(other + "/topology/graph-1.qtp");
  ASSERT_EQ(compacted.size(), whole.size());
  EXPECT_TRUE(compacted.substr(kSuperblockBytes) == whole.substr(kSuperblockBytes));
}

const Kind kKinds[] = {{.typed = true},
                       {.typed = true, .csr = true},
                       {.typed = true, .csr = true, .deduplicate = true},
                       {.typed = true, .deduplicate = true, .weighted = true},
                       {.csr = true, .deduplicate = true},
                       {.deduplicate = true, .weighted = true},
                       {.csr = true},
                       {.csr = true, .relations_in_all = 300},  // ids of two bytes
                       {.csr = true, .weighted = true},
                       {.weighted = true}};

TEST_F(GrownRelations, AreThoseOfTheModelWhateverCameAndWent) {
  const char* const given = std::getenv("QUARRY_GROWN_SEED");
  const uint64_t base = given == nullptr ? 70 : std::strtoull(given, nullptr, 10);
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    SCOPED_TRACE(testing::Message() << "QUARRY_GROWN_SEED=" << base << ", kind " << i);
    ASSERT_NO_FATAL_FAILURE(Make(kKinds[i], base + i));
    ASSERT_NO_FATAL_FAILURE(Check());
    for (int step = 0; step < 16; ++step) {
      const uint64_t kind = rng_.Below(8);
      if (kind < 6) {
        std::vector<NodeId> nodes;
        if (kind == 0) nodes.push_back(static_cast<NodeId>(rng_.Below(4)));
        const std::vector<Stored> added = kind < 2 ? std::vector<Stored>() : SomeEdges(1 + rng_.Below(60));
        const std::vector<Stored> removed = kind == 2 ? std::vector<Stored>() : SomeToRemove(40);
        const uint64_t before = model_.size();
        const GraphChangeReport done = Change(removed, added, nodes);
        EXPECT_EQ(before + done.added - done.removed, model_.size());
        EXPECT_EQ(done.edge_count, model_.size());
      } else if (kind == 6) {
        ASSERT_NO_FATAL_FAILURE(Open());
      } else {
        ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
        ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
      }
      ASSERT_NO_FATAL_FAILURE(Check()) << "step " << step;
    }
    EXPECT_EQ(testing_util::FaultsIn(*store_), "");
    ASSERT_OK(CompactTopology(*store_, budget_, "graph", false, {}));
    ASSERT_NO_FATAL_FAILURE(CheckEqualsImport());
    ASSERT_NO_FATAL_FAILURE(Check());
    EXPECT_EQ(testing_util::FaultsIn(*store_), "");
  }
}

TEST_F(GrownRelations, OneAfterTheOtherCountsWhatWasThere) {
  for (const bool typed : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(Make({.typed = typed, .deduplicate = true}, 5));
    const Stored edge{.tail = 41, .relation = 1, .head = 60};
    RemoveFromModel({edge});
    Change({edge}, {});
    EXPECT_EQ(Change({}, {edge}).added, 1U);
    const GraphChangeReport again = Change({}, {edge});
    EXPECT_EQ(std::pair(again.added, again.present), std::pair(uint64_t{0}, uint64_t{1}));
    const GraphChangeReport gone = Change({edge, edge}, {});
    EXPECT_EQ(std::pair(gone.removed, gone.absent), std::pair(uint64_t{1}, uint64_t{0}));
    EXPECT_EQ(Change({edge}, {}).absent, 1U);
  }
}

TEST_F(GrownRelations, ANodeOfATypeThatIsRemovedLosesItsRow) {
  ASSERT_NO_FATAL_FAILURE(Make({.typed = true}, 6));
  const auto row = [&](size_t paper) { return testing_util::RowsNow(*store_, "paper.feature")[paper]; };
  const auto before = row(3), other = row(4);
  ASSERT_NE(before, std::vector<std::byte>(before.size()));
  Change({}, {}, {43});
  EXPECT_EQ(row(3), std::vector<std::byte>(before.size()));
  EXPECT_EQ(row(4), other);
  ASSERT_NO_FATAL_FAILURE(Check());
}

TEST_F(GrownRelations, RefusesEdgesThatTheRelationDoesNotHave) {
  ASSERT_NO_FATAL_FAILURE(Make({.typed = true}, 7));
  const auto begin = [&] {
    return GraphChange::Create(*store_, budget_, {.memory_bytes = kGraphChangeBytesMin}).value();
  };
  const auto refused = [&](Edge edge, uint32_t relation) {
    const Status status = begin()->Add(std::vector<Edge>{edge}, {}, relation);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused({0, 1}, 0),
              HasSubstr("its destination 1 is of type \"author\"; author:writes:paper leads "
                        "to \"paper\""));
  EXPECT_THAT(refused({50, 60}, 0), HasSubstr("its source 50 is of type \"paper\""));
  EXPECT_THAT(refused({0, 115}, 0), HasSubstr("115 is out of range; there are 115 nodes"));
  EXPECT_THAT(refused({0, 60}, 4), HasSubstr("relation 4: topology \"graph\" has 4"));
  // A file counts the nodes of each type from 0.
  VectorEdgeReader beyond(std::vector<Edge>{{0, 5}}), venue(std::vector<Edge>{{69, 4}});
  EXPECT_THAT(begin()->AddAll(beyond, 2).message(),
              HasSubstr("node id 5 is out of range; there are 5 nodes"));
  {
    const std::unique_ptr<GraphChange> change = begin();
    ASSERT_OK(change->AddAll(venue, 2));
    ASSERT_OK(change->Commit());
  }
  model_.push_back({.tail = 114, .relation = 2, .head = 109});
  std::ranges::sort(model_, {}, [&](const Stored& edge) { return Place(edge); });
  ASSERT_NO_FATAL_FAILURE(Check());
  EXPECT_THAT(GraphChange::Create(*store_, budget_, {.nodes = 1}).status().message(),
              HasSubstr("its nodes have types, and none is given"));
}

}  // namespace
}  // namespace quarry
