// nodes: the properties of nodes, from the tables "label" and "split", the topology's indptr and the catalog.
#include <algorithm>
#include <cstring>

#include "id_set.h"
#include "quarry/format/node_types.h"
#include "quarry/format/types.h"
#include "quarry/import/graph_change.h"
#include "row_stream.h"
#include "tables.h"

namespace quarry::sql {
namespace {

enum NodeColumn : int { kId, kName, kSplit, kLabel, kInDegree, kOutDegree, kTimestamp, kType };

constexpr Column kColumns[] = {
    {"id", ColumnType::kInteger, Pushdown::kRange},
    {"name", ColumnType::kText, Pushdown::kEquality},
    {"split", ColumnType::kText, Pushdown::kEquality},
    {"label", ColumnType::kInteger, Pushdown::kEquality},
    {"in_degree", ColumnType::kInteger},
    {"out_degree", ColumnType::kInteger},
    {"timestamp", ColumnType::kInteger},
    {.name = "type", .type = ColumnType::kText, .costly = true},  // NULL where nodes have no types
};

constexpr std::string_view kSplitNames[] = {"none", "train", "valid", "test"};  // by enum Split
constexpr double kNameSeconds = 10e-6;                                          // a lookup in the catalog
constexpr double kColumnSeconds = 0.2e-6;                                       // and in pages that are kept
constexpr double kLabelShare = 0.05, kSplitShare = 0.25;

// One of the tables of a property, beside the ids; without a table the property is NULL.
struct Property {
  std::string_view name;
  std::shared_ptr<const TableView> table;
  // Its values, where somebody asks for them: one node's from pages that are kept, those of many from a
  // stream.
  ColumnCache* column = nullptr;
  std::unique_ptr<RowStream> stream;
  bool has_values() const { return column != nullptr || stream != nullptr; }
};

// The value of a query's one constraint on the id, where that is `id = value`.
const Value* OneId(const Query& query) {
  const Value* id = nullptr;
  for (const Constraint& constraint : query.constraints) {
    if (constraint.column == kName) return nullptr;
    if (constraint.column != kId) continue;
    if (id != nullptr || constraint.op != Op::kEqual) return nullptr;
    id = &constraint.values.front();
  }
  return id;
}

class NodesCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    std::unique_ptr<NodesCursor> cursor(new NodesCursor(session, query));
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session.snapshot());
    cursor->node_count_ = snapshot->node_count;
    if (query.Wants(kType)) {
      cursor->types_ = NodeTypes(cursor->manifest_->node_types, snapshot->node_count);
    }
    cursor->is_lookup_ = OneId(query) != nullptr;
    QUARRY_RETURN_IF_ERROR(cursor->ResolveNames());
    cursor->ids_ = IdSet::Make(*cursor->query_, kId, cursor->node_count_);
    QUARRY_RETURN_IF_ERROR(cursor->OpenProperty(kLabel, cursor->label_));
    QUARRY_RETURN_IF_ERROR(cursor->OpenProperty(kSplit, cursor->split_));
    QUARRY_RETURN_IF_ERROR(cursor->OpenDegrees());
    return std::unique_ptr<Cursor>(std::move(cursor));
  }

  Result<bool> Restart(const Query& query) override {
    if (!is_lookup_ || label_.stream != nullptr || split_.stream != nullptr) return false;
    query_ = &query;
    const std::optional<int64_t> id = IntegerOf(*OneId(query));
    const auto first = static_cast<uint64_t>(id.value_or(-1));
    ids_ = first < node_count_ ? IdSet::Range(first, first + 1) : IdSet::Range(0, 0);
    next_ = 0;
    return true;
  }

  Result<bool> Next() override {
    while (next_ < ids_.size()) {
      id_ = ids_[next_++];
      QUARRY_TRY(const bool matches, Matches());
      if (matches) return true;
    }
    return false;
  }

  Status Get(int column, Output& out) override {
    switch (column) {
      case kId:
        out.Integer(static_cast<int64_t>(id_));
        return Status::Ok();
      case kName:
        return GetName(out);
      case kSplit:
        return GetSplit(out);
      case kLabel:
        return GetLabel(out);
      case kInDegree:
        if (topology_ != nullptr) out.Integer(Degree(Adjacency::kCsc));
        return Status::Ok();
      case kOutDegree:
        if (!out_degrees_.empty()) {
          out.Integer(int64_t{out_degrees_[id_]});
        } else if (topology_ != nullptr) {
          out.Integer(Degree(Adjacency::kCsr));
        }
        return Status::Ok();
      case kType:
        return GetType(out);
      default:
        return GetTimestamp(out);
    }
  }

  Result<int64_t> RowId() override { return static_cast<int64_t>(id_); }

 private:
  NodesCursor(Session& session, const Query& query)
      : session_(session), manifest_(session.manifest()), query_(&query) {}

  // A name is a constraint on the id.
  Status ResolveNames() {
    if (!query_->Has(kName)) return Status::Ok();
    resolved_ = *query_;
    query_ = &resolved_;
    for (Constraint& constraint : resolved_.constraints) {
      if (constraint.column != kName) continue;
      std::vector<Value> ids;
      for (const Value& value : constraint.values) {
        const auto* name = std::get_if<std::string>(&value);
        if (name == nullptr || !session_.manifest()->has_entity_names) continue;
        QUARRY_TRY(const std::optional<uint64_t> id,
                   session_.store().catalog()->IdOfName(NameKind::kEntity, *name));
        if (id) ids.push_back(static_cast<int64_t>(*id));
      }
      constraint = {.column = kId, .op = Op::kIn, .values = std::move(ids)};
    }
    return Status::Ok();
  }

  Status OpenProperty(int column, Property& property) {
    const bool values = query_->Wants(column) || query_->Has(column);
    if (!values && !query_->Wants(kTimestamp)) return Status::Ok();
    const std::string_view name = property.name;
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    if (snapshot->FindTable(name) == nullptr) return Status::Ok();
    QUARRY_TRY(property.table, session_.OpenTable(name));
    const FeatureGeometry& geometry = property.table->geometry();
    const ElementType type = column == kLabel ? ElementType::kInt64 : ElementType::kUint8;
    if (geometry.element_type != type || geometry.dim != 1 || geometry.row_count != node_count_) {
      return MakeStatus(Code::kCorruption, "{}: {} x {} of {}, expected {} x 1 of {}",
                        property.table->file->file().path(), geometry.row_count, geometry.dim,
                        ElementTypeName(geometry.element_type), node_count_, ElementTypeName(type));
    }
    if (!values) return Status::Ok();
    if (is_lookup_) {
      QUARRY_TRY(property.column, session_.OpenColumn(name));
      if (property.column != nullptr) return Status::Ok();
    }
    QUARRY_TRY(property.stream, RowStream::Make(session_, property.table, ids_));
    return Status::Ok();
  }

  Status OpenDegrees() {
    if (!query_->Wants(kInDegree) && !query_->Wants(kOutDegree)) return Status::Ok();
    if (session_.manifest()->FindTopology("graph") == nullptr) return Status::Ok();
    QUARRY_TRY(topology_, session_.OpenTopology());
    if (query_->Wants(kOutDegree) && !topology_->has(Adjacency::kCsr)) {
      QUARRY_TRY(out_degrees_, session_.OutDegrees());
    }
    return Status::Ok();
  }

  Result<bool> Matches() {
    for (const Constraint& constraint : query_->constraints) {
      bool matches = true;  // the ids are those that the others allow
      if (constraint.column == kLabel) {
        QUARRY_TRY(matches, MatchesLabel(constraint.values));
      } else if (constraint.column == kSplit) {
        QUARRY_TRY(matches, MatchesSplit(constraint.values));
      }
      if (!matches) return false;
    }
    return true;
  }
  Result<bool> MatchesLabel(const std::vector<Value>& values) {
    QUARRY_TRY(const int64_t label, Label());
    if (label < 0) return false;
    return std::ranges::any_of(values, [&](const Value& value) { return IntegerOf(value) == label; });
  }
  Result<bool> MatchesSplit(const std::vector<Value>& values) {
    if (!split_.has_values()) return false;
    QUARRY_TRY(const std::string_view split, SplitName());
    return std::ranges::any_of(values, [&](const Value& value) {
      const auto* name = std::get_if<std::string>(&value);
      return name != nullptr && *name == split;
    });
  }

  // REQUIRES: property.column
  Result<int64_t> LookUp(const Property& property) {
    if (!session_.pending().empty()) {
      const std::span<const std::byte> written = session_.pending().Find(property.name, id_);
      if (!written.empty()) return property.column->Decode(written.data());
    }
    return property.column->Get(session_.reader(), id_);
  }

  // Properties are read when somebody asks for them: nodes that an OFFSET or a condition skips are not.
  Result<int64_t> Label() {  // -1: none
    int64_t label = -1;
    if (!label_.has_values()) return label;
    if (label_.column != nullptr) return LookUp(label_);
    QUARRY_RETURN_IF_ERROR(label_.stream->Read(next_ - 1));
    std::memcpy(&label, label_.stream->bytes().data(), sizeof(label));
    return label;
  }
  // REQUIRES: split_.has_values()
  Result<std::string_view> SplitName() {
    size_t split = 0;
    if (split_.column != nullptr) {
      QUARRY_TRY(split, LookUp(split_));
    } else {
      QUARRY_RETURN_IF_ERROR(split_.stream->Read(next_ - 1));
      split = std::to_integer<size_t>(split_.stream->bytes()[0]);
    }
    return split < std::size(kSplitNames) ? kSplitNames[split] : std::string_view("unknown");
  }
  Status GetLabel(Output& out) {
    QUARRY_TRY(const int64_t label, Label());
    if (label >= 0) out.Integer(label);
    return Status::Ok();
  }
  Status GetSplit(Output& out) {
    if (!split_.has_values()) return Status::Ok();
    QUARRY_TRY(const std::string_view split, SplitName());
    out.Constant(split);
    return Status::Ok();
  }
  int64_t Degree(Adjacency side) const {
    const std::span<const uint64_t> indptr = topology_->indptr(side);
    return static_cast<int64_t>(indptr[id_ + 1] - indptr[id_]);
  }

  Status GetName(Output& out) {
    if (!session_.manifest()->has_entity_names) return Status::Ok();
    QUARRY_TRY(const std::string* const name, session_.NameOf(id_));
    if (name != nullptr) out.Text(*name);
    return Status::Ok();
  }

  Status GetType(Output& out) {
    if (!types_.empty()) out.Text(manifest_->node_types[types_.TypeOf(id_)].name);
    return Status::Ok();
  }

  Status GetTimestamp(Output& out) {
    uint64_t newest = 0;
    for (const Property* property : {&label_, &split_}) {
      if (property->table == nullptr) continue;
      QUARRY_TRY(const uint64_t timestamp, session_.TimestampOf(*property->table, id_));
      newest = std::max(newest, timestamp);
    }
    out.Integer(static_cast<int64_t>(newest));
    return Status::Ok();
  }

  Session& session_;
  const std::shared_ptr<const Manifest> manifest_;
  const Query* query_;
  Query resolved_;   // where names are constraints: what they say of ids
  NodeTypes types_;  // where they are asked for
  uint64_t node_count_ = 0;
  bool is_lookup_ = false;  // of one id
  IdSet ids_;
  uint64_t next_ = 0;
  uint64_t id_ = 0;
  Property label_{.name = "label"}, split_{.name = "split"};
  const Topology* topology_ = nullptr;
  std::span<const uint32_t> out_degrees_;  // empty: the topology tells
};

class NodesTable final : public Table {
 public:
  explicit NodesTable(Session& session) : session_(session) {}
  std::string_view name() const override { return "nodes"; }
  std::span<const Column> columns() const override { return kColumns; }

  std::optional<Estimate> Price(const Query& query) const override {
    const std::shared_ptr<const Manifest> manifest = session_.manifest();
    const auto count = static_cast<double>(manifest->node_count);
    IdShare share = ShareOf(query, kId);
    const IdShare named = ShareOf(query, kName);
    if (named.ids) share.ids = std::min(share.ids.value_or(*named.ids), *named.ids);
    double rows = share.Of(count);
    double seconds = query.Wants(kName) ? rows * kNameSeconds : 0;
    for (const auto& [name, column] : {std::pair("label", int{kLabel}), std::pair("split", int{kSplit})}) {
      const TableRecord* const record = manifest->FindTable(name);
      if (record == nullptr || (!query.Wants(column) && !query.Has(column))) continue;
      const auto bytes = record->row_count * RowBytes(record->element_type, record->dim);
      const bool kept = share.ids == 1 && !named.ids && session_.Keeps(bytes);
      seconds += kept ? kColumnSeconds : ReadRowsSeconds(session_.profile(), *record, rows, !share.ids);
    }
    if (query.Has(kLabel)) rows *= kLabelShare;
    if (query.Has(kSplit)) rows *= kSplitShare;
    return Estimate{rows, seconds};
  }
  std::vector<int> Order(const Query&) const override { return {kId}; }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override {
    return NodesCursor::Open(session_, query);
  }

  bool IsWritable() const override { return true; }
  bool Grows() const override { return true; }
  // A node behind the last one. Its rows are zeros until the transaction sets them.
  Result<int64_t> Insert(std::span<const Value> values) override {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    QUARRY_TRY(const std::string type, TypeOf(values[kType]));
    const uint64_t next = snapshot->node_count + session_.pending().nodes_added();
    const auto given = [&](int column) { return !std::holds_alternative<std::monostate>(values[column]); };
    for (const int column : {kInDegree, kOutDegree, kTimestamp}) {
      if (!given(column)) continue;
      return MakeStatus(Code::kInvalidArgument, "nodes: {} of a new node cannot be set; leave it out",
                        kColumns[column].name);
    }
    if (given(kId) && IntegerOf(values[kId]) != static_cast<int64_t>(next)) {
      return MakeStatus(Code::kInvalidArgument,
                        "nodes: the next node is {}: leave out the id, or UPDATE a node that is there", next);
    }
    QUARRY_RETURN_IF_ERROR(AddNode(snapshot->node_count, values[kName], type));
    if (given(kLabel)) QUARRY_RETURN_IF_ERROR(SetLabel(next, values[kLabel]));
    if (given(kSplit)) QUARRY_RETURN_IF_ERROR(SetSplit(next, values[kSplit]));
    return static_cast<int64_t>(next);
  }
  // The id stays, of a node without edges, label, split and row.
  Status Delete(int64_t row_id) override {
    return session_.pending().RemoveNode(static_cast<NodeId>(row_id));
  }
  Status Update(int64_t row_id, int column, const Value& value) override {
    const auto node = static_cast<uint64_t>(row_id);
    if (column == kLabel) return SetLabel(node, value);
    if (column == kSplit) return SetSplit(node, value);
    return MakeStatus(Code::kInvalidArgument, "nodes: {} of node {} cannot be set; label and split can",
                      kColumns[column].name, node);
  }

 private:
  std::shared_ptr<const Manifest> manifest() const { return session_.manifest(); }
  // The type of a new node; empty where nodes have none.
  Result<std::string> TypeOf(const Value& value) const {
    const auto* const name = std::get_if<std::string>(&value);
    if (name == nullptr && !std::holds_alternative<std::monostate>(value)) {
      return Status(Code::kInvalidArgument, "nodes: the type of a new node would be no text");
    }
    const std::string type = name == nullptr ? "" : *name;
    QUARRY_RETURN_IF_ERROR(TypeOfAdded(*manifest(), type, session_.store().path()).status());
    return type;
  }
  Status AddNode(uint64_t node_count, const Value& name, const std::string& type) {
    const auto* const text = std::get_if<std::string>(&name);
    const bool none = std::holds_alternative<std::monostate>(name);
    if (none == manifest()->has_entity_names || (!none && text == nullptr)) {
      return MakeStatus(Code::kInvalidArgument, "nodes: {}",
                        manifest()->has_entity_names
                            ? "nodes have names: give a text as the name of each new one"
                            : "nodes have no names: leave it out");
    }
    return session_.pending().AddNode(node_count, none ? std::nullopt : std::optional(*text), type).status();
  }
  Status SetLabel(uint64_t node, const Value& value) {
    const int64_t label = std::holds_alternative<std::monostate>(value) ? -1 : IntegerOf(value).value_or(-2);
    if (label < -1 || label >= kLabelMax) {
      return MakeStatus(Code::kInvalidArgument,
                        "nodes: the label of node {} would be no integer from 0 to {}, and not NULL for none",
                        node, kLabelMax - 1);
    }
    const auto bytes = std::as_bytes(std::span(&label, 1));
    return session_.pending().Put("label", node, {bytes.begin(), bytes.end()});
  }
  Status SetSplit(uint64_t node, const Value& value) {
    const auto* name = std::get_if<std::string>(&value);
    const auto* const place = name == nullptr ? std::end(kSplitNames) : std::ranges::find(kSplitNames, *name);
    if (place == std::end(kSplitNames)) {
      return MakeStatus(Code::kInvalidArgument,
                        "nodes: the split of node {} would be {}: none, train, valid, test", node,
                        name == nullptr ? "no text" : "'" + *name + "'");
    }
    return session_.pending().Put("split", node, {static_cast<std::byte>(place - std::begin(kSplitNames))});
  }

  Session& session_;
};

}  // namespace

std::unique_ptr<Table> MakeNodesTable(Session& session) { return std::make_unique<NodesTable>(session); }

}  // namespace quarry::sql
