// features: the rows of all tables of floats, decoded to float32.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "id_set.h"
#include "quarry/format/node_types.h"
#include "row_stream.h"
#include "tables.h"

namespace quarry::sql {
namespace {

enum FeatureColumn : int { kId, kTable, kFeature, kDim, kTimestamp };

constexpr Column kColumns[] = {
    {"id", ColumnType::kInteger, Pushdown::kRange},
    {"table", ColumnType::kText, Pushdown::kEquality},
    {"feature", ColumnType::kBlob},
    {"dim", ColumnType::kInteger},
    {"timestamp", ColumnType::kInteger},
};

// The nodes whose rows a table has: those of a type, or all.
class RowNodes {
 public:
  RowNodes() = default;
  RowNodes(const Manifest& manifest, const Snapshot& snapshot, std::string_view table)
      : type_(FindTypeOfTable(manifest.node_types, table)) {
    if (type_) types_ = NodeTypes(manifest.node_types, snapshot.node_count);
  }
  std::optional<uint32_t> type() const { return type_; }
  uint64_t NodeOf(uint64_t row) const { return type_ ? types_.NodeOf(*type_, row) : row; }
  // The row of a node; nothing of one of another type. REQUIRES: the snapshot has it.
  std::optional<uint64_t> RowOf(uint64_t node) const {
    if (!type_) return node;
    const NodeTypes::Range& range = types_.RangeOf(node);
    return range.type == *type_ ? std::optional(range.RowOf(node)) : std::nullopt;
  }
  IdSet RowsOf(const IdSet& nodes) const {
    if (!type_) return nodes;
    if (!nodes.is_list()) {
      const uint64_t first = nodes.size() == 0 ? 0 : nodes[0];
      return IdSet::Range(CountBefore(first), CountBefore(first + nodes.size()));
    }
    std::vector<uint64_t> rows;
    for (uint64_t i = 0; i < nodes.size(); ++i) {
      if (const std::optional<uint64_t> row = RowOf(nodes[i])) rows.push_back(*row);
    }
    return IdSet::List(std::move(rows));
  }

 private:
  uint64_t CountBefore(uint64_t node) const {
    uint64_t count = 0;
    for (const NodeTypes::Range& range : types_.RangesOf(*type_)) {
      if (range.first < node) count += std::min(range.end, node) - range.first;
    }
    return count;
  }

  std::optional<uint32_t> type_;
  NodeTypes types_;
};

class FeaturesCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    QUARRY_TRY(std::shared_ptr<const Snapshot> snapshot, session.snapshot());
    std::unique_ptr<FeaturesCursor> cursor(new FeaturesCursor(session, query, std::move(snapshot)));
    for (size_t i = 0; i < cursor->snapshot_->tables.size(); ++i) {
      const TableRecord& record = cursor->snapshot_->tables[i];
      if (IsFloatType(record.element_type) && query.Allows(kTable, record.name)) cursor->tables_.push_back(i);
    }
    return std::unique_ptr<Cursor>(std::move(cursor));
  }

  Result<bool> Next() override {
    while (next_ == ids_.size()) {
      if (next_table_ == tables_.size()) return false;
      QUARRY_RETURN_IF_ERROR(OpenTable());
    }
    id_ = ids_[next_++];
    return true;
  }

  Status Get(int column, Output& out) override {
    switch (column) {
      case kId:
        out.Integer(static_cast<int64_t>(nodes_.NodeOf(id_)));
        return Status::Ok();
      case kTable:
        out.Text(table_->record.name);
        return Status::Ok();
      case kFeature:
        if (stream_ == nullptr) return Status::Ok();
        // Only now: rows that an OFFSET or a condition skips are not read.
        QUARRY_RETURN_IF_ERROR(stream_->Read(next_ - 1));
        out.Blob(Decoded());
        return Status::Ok();
      case kDim:
        out.Integer(static_cast<int64_t>(table_->record.dim));
        return Status::Ok();
      default: {
        QUARRY_TRY(const uint64_t timestamp, session_.TimestampOf(*table_, id_));
        out.Integer(static_cast<int64_t>(timestamp));
        return Status::Ok();
      }
    }
  }

  // Node ids have 32 bits.
  Result<int64_t> RowId() override { return static_cast<int64_t>(tables_[next_table_ - 1] << 32 | id_); }

 private:
  FeaturesCursor(Session& session, const Query& query, std::shared_ptr<const Snapshot> snapshot)
      : session_(session), query_(query), snapshot_(std::move(snapshot)) {}

  Status OpenTable() {
    stream_.reset();  // gives back its memory before the next one takes it
    const TableRecord& record = snapshot_->tables[tables_[next_table_++]];
    QUARRY_TRY(table_, session_.OpenTable(record.name));
    nodes_ = RowNodes(*session_.manifest(), *snapshot_, record.name);
    ids_ = nodes_.RowsOf(
        IdSet::Make(query_, kId, nodes_.type() ? snapshot_->node_count : uint64_t{record.row_count}));
    next_ = 0;
    if (query_.Wants(kFeature)) {
      QUARRY_TRY(stream_, RowStream::Make(session_, table_, ids_));
    }
    return Status::Ok();
  }

  std::span<const std::byte> Decoded() {
    const TableRecord& record = table_->record;
    if (record.element_type == ElementType::kFloat32) return stream_->bytes();
    values_.resize(record.dim);
    DecodeRow(record.element_type, stream_->bytes(), values_);
    return std::as_bytes(std::span(values_));
  }

  Session& session_;
  const Query query_;
  const std::shared_ptr<const Snapshot> snapshot_;
  std::vector<size_t> tables_;  // indices into the snapshot's tables
  size_t next_table_ = 0;
  std::shared_ptr<const TableView> table_;
  RowNodes nodes_;
  IdSet ids_;  // rows
  uint64_t next_ = 0;
  uint64_t id_ = 0;                    // row
  std::unique_ptr<RowStream> stream_;  // null: nobody asks for rows
  std::vector<float> values_;
};

class FeaturesTable final : public Table {
 public:
  explicit FeaturesTable(Session& session) : session_(session) {}
  std::string_view name() const override { return "features"; }
  std::span<const Column> columns() const override { return kColumns; }

  std::optional<Estimate> Price(const Query& query) const override {
    Estimate estimate;
    const IdShare share = ShareOf(query, kId);
    const std::shared_ptr<const Manifest> manifest = session_.manifest();
    for (const TableRecord& record : manifest->tables) {
      if (!IsFloatType(record.element_type)) continue;
      const double rows = share.Of(static_cast<double>(record.row_count));
      estimate.rows += rows;
      if (!query.Wants(kFeature)) continue;
      estimate.seconds += ReadRowsSeconds(session_.profile(), record, rows, !share.ids);
    }
    return estimate;
  }
  std::vector<int> Order(const Query&) const override {
    return IsOneTable() ? std::vector<int>{kId} : std::vector<int>();
  }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override {
    return FeaturesCursor::Open(session_, query);
  }

  bool IsWritable() const override { return true; }
  Status Update(int64_t row_id, int column, const Value& value) override {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    const auto number = static_cast<uint64_t>(row_id);
    if (column == kFeature) return Put(snapshot->tables[number >> 32], number & 0xffffffff, value);
    return MakeStatus(Code::kInvalidArgument, "features: {} of node {} cannot be set; feature can",
                      kColumns[column].name, number & 0xffffffff);
  }
  // Without a table, the row is of "feature". Nodes that the transaction has added have rows, too.
  Result<int64_t> Insert(std::span<const Value> values) override {
    QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, session_.snapshot());
    const auto* const name = std::get_if<std::string>(&values[kTable]);
    const TableRecord* const record = snapshot->FindTable(name == nullptr ? "feature" : *name);
    if (record == nullptr || !IsFloatType(record->element_type)) {
      return MakeStatus(Code::kNotFound, "features: there is no table of floats \"{}\"",
                        name == nullptr ? "feature" : *name);
    }
    const std::optional<int64_t> id = IntegerOf(values[kId]);
    const RowNodes nodes(*session_.manifest(), *snapshot, record->name);
    const std::optional<uint64_t> row =
        id && *id >= 0 ? RowOf(*snapshot, *record, nodes, static_cast<uint64_t>(*id)) : std::nullopt;
    if (!row && !nodes.type()) {
      return MakeStatus(Code::kInvalidArgument, "features: ids of table \"{}\" are 0 to {}", record->name,
                        record->row_count + session_.pending().nodes_added() - 1);
    }
    if (!row) {
      return MakeStatus(Code::kInvalidArgument,
                        "features: table \"{}\" has rows of nodes of type \"{}\", and {}", record->name,
                        session_.manifest()->node_types[*nodes.type()].name,
                        id ? fmt::format("node {} is none", *id) : std::string("id is no integer"));
    }
    QUARRY_RETURN_IF_ERROR(Put(*record, *row, values[kFeature]));
    return *id;
  }

 private:
  // The table's row of a node that there is, or that the transaction has added; nothing where it has none.
  std::optional<uint64_t> RowOf(const Snapshot& snapshot, const TableRecord& record, const RowNodes& nodes,
                                uint64_t node) const {
    const PendingWrites& pending = session_.pending();
    const uint64_t before = nodes.type() ? snapshot.node_count : uint64_t{record.row_count};
    if (node < before) return nodes.RowOf(node);
    const bool has_added =
        !nodes.type() || session_.manifest()->node_types[*nodes.type()].name == pending.node_type();
    if (!has_added || node - before >= pending.nodes_added()) return std::nullopt;
    return record.row_count + (node - before);
  }
  // A blob of float32, encoded as the table has it.
  Status Put(const TableRecord& record, uint64_t row, const Value& value) {
    const auto refuse = [&](const std::string& why) {
      return MakeStatus(Code::kInvalidArgument, "features: table \"{}\", node {}: {}", record.name, row, why);
    };
    const auto* const blob = std::get_if<std::vector<std::byte>>(&value);
    if (blob == nullptr || blob->size() != record.dim * sizeof(float)) {
      return refuse(fmt::format("a row is a blob of {} bytes, float32 each 4", record.dim * sizeof(float)));
    }
    std::vector<float> values(record.dim);
    std::memcpy(values.data(), blob->data(), blob->size());
    std::vector<std::byte> bytes(RowBytes(record.element_type, record.dim));
    const auto finite = [](float element) { return std::isfinite(element); };
    if (!std::ranges::all_of(values, finite)) return refuse("an element is NaN or infinite");
    EncodeRow(record.element_type, values, bytes);
    DecodeRow(record.element_type, bytes, values);
    if (!std::ranges::all_of(values, finite)) {
      return refuse(fmt::format("an element is too large for {}", ElementTypeName(record.element_type)));
    }
    return session_.pending().Put(record.name, row, std::move(bytes));
  }

  bool IsOneTable() const {
    const auto is_float = [](const TableRecord& record) { return IsFloatType(record.element_type); };
    return std::ranges::count_if(session_.manifest()->tables, is_float) == 1;
  }

  Session& session_;
};

}  // namespace

std::unique_ptr<Table> MakeFeaturesTable(Session& session) {
  return std::make_unique<FeaturesTable>(session);
}

}  // namespace quarry::sql
