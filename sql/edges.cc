// edges: the lists of the topology "graph", by destination, or by source where that is cheaper and there are
// such lists (`quarry import --both-directions`).
#include <algorithm>
#include <cmath>
#include <limits>

#include "edge_reader.h"
#include "id_set.h"
#include "quarry/import/graph_change.h"
#include "tables.h"

namespace quarry::sql {
namespace {

enum EdgeColumn : int { kSource, kDestination, kRelation, kWeight, kType };

constexpr Column kColumns[] = {
    {"src", ColumnType::kInteger, Pushdown::kRange},
    {"dst", ColumnType::kInteger, Pushdown::kRange},
    {"relation", ColumnType::kInteger, Pushdown::kRange},
    {"weight", ColumnType::kReal},                                // NULL where edges have none
    {.name = "type", .type = ColumnType::kText, .costly = true},  // "author:writes:paper"; NULL without types
};

constexpr double kListSeconds = 0.3e-6;  // to a list in pages that are kept
constexpr double kEdgeSeconds = 10e-9;

// Whose lists a query reads, and what it asks of the nodes in them.
struct Access {
  Adjacency side = Adjacency::kCsc;
  int owner = kDestination;
  int neighbor = kSource;
};

Access AccessOf(const Query& query, const TopologyRecord* graph) {
  const auto count = graph == nullptr ? 0 : static_cast<double>(graph->node_count);
  const bool by_source = graph != nullptr && graph->has_csr &&
                         ShareOf(query, kSource).Of(count) < ShareOf(query, kDestination).Of(count);
  return by_source ? Access{Adjacency::kCsr, kSource, kDestination} : Access{};
}

// How many equal edges the numbers have room for.
uint64_t EqualEdgesMax(uint64_t node_count) {
  return std::numeric_limits<uint64_t>::max() / (node_count * node_count);
}

// Numbers an edge by its ends, and its place among those that have the same: the number is then the same
// whichever way it is found.
// SQLite tells rows that two conditions find (`src = 1 OR dst = 1`) apart by it.
Result<int64_t> NumberEdge(uint64_t node_count, uint64_t source, uint64_t destination, uint64_t ordinal) {
  const uint64_t equal_max = EqualEdgesMax(node_count);
  if (ordinal >= equal_max) {
    return MakeStatus(Code::kUnsupported,
                      "edges: {} equal ones from {} to {}; with {} nodes at most {} can be told apart",
                      ordinal + 1, source, destination, node_count, equal_max);
  }
  return static_cast<int64_t>((source * node_count + destination) * equal_max + ordinal);
}

// The edge with this number. REQUIRES: relations are told apart, where there are several.
PendingWrites::EdgeKey EdgeOfNumber(const TopologyRecord& graph, int64_t number) {
  const uint64_t equal_max = EqualEdgesMax(graph.node_count);
  const uint64_t ends = static_cast<uint64_t>(number) / equal_max;
  return {
      .destination = ends % graph.node_count,
      .source = ends / graph.node_count,
      .relation = static_cast<uint32_t>(static_cast<uint64_t>(number) % equal_max % graph.relation_count)};
}

// Its place among those that are equal to it.
uint64_t CopyOfNumber(const TopologyRecord& graph, int64_t number) {
  return static_cast<uint64_t>(number) % EqualEdgesMax(graph.node_count) / graph.relation_count;
}

// Reads one list: a join asks for one for each of its rows.
bool IsLookup(const Query& query, const Access& access) {
  const auto on_owner = [&](const Constraint& constraint) { return constraint.column == access.owner; };
  return std::ranges::count_if(query.constraints, on_owner) == 1 && query.Has(access.owner, Op::kEqual);
}

class EdgesCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
    const TopologyRecord* const graph = snapshot->FindTopology("graph");
    std::unique_ptr<EdgesCursor> cursor(new EdgesCursor(AccessOf(query, graph)));
    if (graph == nullptr) return std::unique_ptr<Cursor>(std::move(cursor));
    cursor->node_count_ = graph->node_count;
    cursor->relation_count_ = graph->relation_count;
    QUARRY_TRY(cursor->by_relation_, session.TellsRelationsApart());
    const std::shared_ptr<const Manifest> manifest = session.manifest();
    for (const EdgeTypeRecord& type : manifest->edge_types) {
      if (query.Wants(kType)) cursor->types_.push_back(EdgeTypeName(manifest->node_types, type));
    }
    // Where relations are told apart, numbers of edges have the relation in them.
    const EdgeParts parts{.relations = query.Wants(kRelation) || query.Has(kRelation) || query.Wants(kType) ||
                                       cursor->by_relation_,
                          .weights = query.Wants(kWeight)};
    if (IsLookup(query, cursor->access_)) {
      QUARRY_TRY(cursor->edges_, EdgeReader::MakeLookup(session, cursor->access_.side, parts));
      cursor->is_lookup_ = cursor->edges_ != nullptr;
      if (cursor->is_lookup_) QUARRY_RETURN_IF_ERROR(cursor->Restart(query).status());
    }
    if (!cursor->is_lookup_) {
      cursor->TakeSets(query);
      QUARRY_TRY(cursor->edges_,
                 EdgeReader::Make(session, cursor->access_.side,
                                  IdSet::Make(query, cursor->access_.owner, graph->node_count), parts));
    }
    return std::unique_ptr<Cursor>(std::move(cursor));
  }

  Result<bool> Restart(const Query& query) override {
    if (!is_lookup_) return false;
    TakeSets(query);
    const auto on_owner = std::ranges::find(query.constraints, access_.owner, &Constraint::column);
    const auto owner = static_cast<uint64_t>(IntegerOf(on_owner->values.front()).value_or(-1));
    owner < node_count_ ? edges_->Seek(owner) : edges_->SeekNone();
    return true;
  }

  Result<bool> Next() override {
    if (edges_ == nullptr) return false;
    do {
      QUARRY_TRY(const bool more, edges_->Next());
      if (!more) return false;
    } while (!neighbors_.Contains(edges_->neighbor()) || !relations_.Contains(edges_->relation()));
    return true;
  }

  Status Get(int column, Output& out) override {
    if (column == kWeight) {
      const std::optional<float> weight = edges_->weight();
      weight.has_value() ? out.Real(double{*weight}) : out.Null();
    } else if (column == kType) {
      types_.empty() ? out.Null() : out.Text(types_[edges_->relation()]);
    } else if (column == kRelation) {
      out.Integer(int64_t{edges_->relation()});
    } else {
      out.Integer(int64_t{column == access_.owner ? edges_->owner() : edges_->neighbor()});
    }
    return Status::Ok();
  }

  Result<int64_t> RowId() override {
    const bool by_source = access_.owner == kSource;
    const NodeId source = by_source ? edges_->owner() : edges_->neighbor();
    const NodeId destination = by_source ? edges_->neighbor() : edges_->owner();
    const uint64_t ordinal = edges_->ordinal();
    return NumberEdge(node_count_, source, destination,
                      by_relation_ ? ordinal * relation_count_ + edges_->relation() : ordinal);
  }

 private:
  explicit EdgesCursor(const Access& access) : access_(access) {}
  void TakeSets(const Query& query) {
    neighbors_ = IdSet::Make(query, access_.neighbor, node_count_);
    relations_ = IdSet::Make(query, kRelation, relation_count_);
  }

  const Access access_;
  bool is_lookup_ = false;
  bool by_relation_ = false;
  std::vector<std::string> types_;  // names, where somebody asks for them
  uint64_t node_count_ = 0, relation_count_ = 0;
  IdSet neighbors_, relations_;
  std::unique_ptr<EdgeReader> edges_;  // null: there are none
};

class EdgesTable final : public Table {
 public:
  explicit EdgesTable(Session& session) : session_(session) {}
  std::string_view name() const override { return "edges"; }
  std::span<const Column> columns() const override { return kColumns; }

  std::optional<Estimate> Price(const Query& query) const override {
    const std::shared_ptr<const Manifest> manifest = session_.manifest();
    const TopologyRecord* const graph = manifest->FindTopology("graph");
    if (graph == nullptr) return Estimate{};
    const auto nodes = static_cast<double>(graph->node_count);
    const Access access = AccessOf(query, graph);
    const IdShare owners = ShareOf(query, access.owner);
    const double lists = owners.Of(nodes);
    const double read = lists * static_cast<double>(graph->edge_count) / nodes;
    const double kept = read * ShareOf(query, access.neighbor).Of(nodes) / nodes;
    const auto bytes = static_cast<uint64_t>(read * sizeof(NodeId));
    const auto requests = static_cast<uint64_t>(owners.ids ? lists : 1);
    const bool in_memory = owners.ids == 1 && session_.Keeps(graph->edge_count * sizeof(NodeId));
    const double seconds = in_memory ? kListSeconds : session_.profile().ReadSeconds(bytes, requests);
    // What is read and not kept costs time as well.
    return Estimate{kept, seconds + read * kEdgeSeconds};
  }
  std::vector<int> Order(const Query& query) const override {
    const Access access = AccessOf(query, session_.manifest()->FindTopology("graph"));
    return {access.owner, access.neighbor};
  }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override {
    return EdgesCursor::Open(session_, query);
  }

  // A transaction's statements see the edges that there were before it: what they insert is there, and what they delete is
  // gone, once it is committed.
  bool IsWritable() const override { return true; }
  bool Grows() const override { return true; }
  Status Update(int64_t row_id, int column, const Value& value) override {
    if (column != kWeight) {
      return MakeStatus(
          Code::kUnsupported,
          "edges: {} of an edge cannot be set, its weight alone can: DELETE the edge and INSERT it",
          kColumns[column].name);
    }
    QUARRY_TRY(const TopologyRecord* const graph, Changeable());
    if (!graph->weighted) {
      return Status(Code::kUnsupported,
                    "edges: those of this graph have no weights to be set: import it with weights");
    }
    QUARRY_TRY(const std::optional<float> weight, WeightOf(value, *graph));
    if (!weight) {
      return Status(Code::kInvalidArgument,
                    "edges: an edge of this graph has a weight: set a number, not NULL");
    }
    return session_.pending().SetWeight(EdgeOfNumber(*graph, row_id), CopyOfNumber(*graph, row_id), *weight);
  }
  Result<int64_t> Insert(std::span<const Value> values) override {
    QUARRY_TRY(const TopologyRecord* const graph, Changeable());
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    const uint64_t nodes = snapshot->node_count + session_.pending().nodes_added();
    uint64_t ends[2] = {};
    for (const int column : {kSource, kDestination}) {
      const std::optional<int64_t> id = IntegerOf(values[column]);
      if (!id || *id < 0 || static_cast<uint64_t>(*id) >= nodes) {
        return MakeStatus(Code::kInvalidArgument, "edges: {} is {}; ids of nodes are 0 to {}",
                          kColumns[column].name, id ? fmt::format("{}", *id) : "no integer", nodes - 1);
      }
      ends[column] = static_cast<uint64_t>(*id);
    }
    QUARRY_TRY(const uint32_t relation, RelationOf(values, *graph));
    QUARRY_TRY(const std::optional<float> weight, WeightOf(values[kWeight], *graph));
    QUARRY_RETURN_IF_ERROR(session_.pending().AddEdge({ends[kSource], ends[kDestination]}, relation, weight));
    return int64_t{0};
  }
  Status Delete(int64_t row_id) override {
    QUARRY_TRY(const TopologyRecord* const graph, Changeable());
    return session_.pending().RemoveEdge(EdgeOfNumber(*graph, row_id));
  }

 private:
  // The snapshot's, when its edges can come and go.
  Result<const TopologyRecord*> Changeable() {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    const TopologyRecord* const graph = snapshot->FindTopology("graph");
    if (graph == nullptr) return session_.OpenTopology().status();
    return graph;
  }
  // By its number, or by the name of a type of edges; where there are several, one of the two is needed.
  Result<uint32_t> RelationOf(std::span<const Value> values, const TopologyRecord& graph) const {
    const auto given = [&](int column) { return !std::holds_alternative<std::monostate>(values[column]); };
    const std::optional<int64_t> number = IntegerOf(values[kRelation]);
    if (given(kRelation) &&
        (!number || *number < 0 || static_cast<uint64_t>(*number) >= graph.relation_count)) {
      return MakeStatus(Code::kInvalidArgument, "edges: relation is {}; relations are 0 to {}",
                        number ? fmt::format("{}", *number) : "no integer", graph.relation_count - 1);
    }
    if (!given(kType)) {
      if (number || graph.relation_count == 1) return static_cast<uint32_t>(number.value_or(0));
      return MakeStatus(Code::kInvalidArgument,
                        "edges: the graph has {} relations: give relation, or type where edges have types",
                        graph.relation_count);
    }
    const std::shared_ptr<const Manifest> manifest = session_.manifest();
    const auto* const name = std::get_if<std::string>(&values[kType]);
    const std::optional<uint32_t> named =
        name == nullptr ? std::nullopt : FindEdgeType(manifest->node_types, manifest->edge_types, *name);
    if (!named) {
      return MakeStatus(Code::kInvalidArgument,
                        "edges: there is no type {} of edges; the table edge_types lists those that exist",
                        name == nullptr ? "(type is no text)" : "'" + *name + "'");
    }
    if (number && *number != int64_t{*named}) {
      return MakeStatus(Code::kInvalidArgument, "edges: relation is {}, and edges of type '{}' have {}",
                        *number, *name, *named);
    }
    return *named;
  }
  static Result<std::optional<float>> WeightOf(const Value& value, const TopologyRecord& graph) {
    if (std::holds_alternative<std::monostate>(value)) return std::optional<float>();
    if (!graph.weighted) {
      return Status(Code::kInvalidArgument, "edges: those of this graph have no weights: leave weight out");
    }
    const auto* const real = std::get_if<double>(&value);
    const auto* const integer = std::get_if<int64_t>(&value);
    if (real != nullptr || integer != nullptr) {
      const auto weight = real != nullptr ? static_cast<float>(*real) : static_cast<float>(*integer);
      if (std::isfinite(weight)) return std::optional(weight);
    }
    return Status(Code::kInvalidArgument, "edges: a weight is a number that float32 can hold");
  }

  Session& session_;
};

}  // namespace

std::unique_ptr<Table> MakeEdgesTable(Session& session) { return std::make_unique<EdgesTable>(session); }

}  // namespace quarry::sql
