// Table-valued functions:
//
//   neighbors(id, hops, direction)           the nodes within so many hops, each once, at its least hop
//   sample_block(seeds, fanouts, seed)       the edges of a block, as training would sample it
//   feature_json(id)                         the node's row in each table of floats, as JSON
#include <algorithm>
#include <limits>

#include "edge_reader.h"
#include "id_set.h"
#include "json_array.h"
#include "quarry/sampling/sampler.h"
#include "row_stream.h"
#include "tables.h"

namespace quarry::sql {
namespace {

constexpr double kHopRows = 100;  // nobody knows; a few lookups
constexpr double kHopSeconds = 1e-3;

// Null when the function was not given it.
const Value* ArgumentOf(const Query& query, int column) {
  const auto found = std::ranges::find(query.constraints, column, &Constraint::column);
  return found == query.constraints.end() ? nullptr : &found->values.front();
}

Result<int64_t> IntegerArgument(const Query& query, int column, std::string_view name, int64_t least,
                                int64_t most, std::optional<int64_t> missing) {
  const Value* const value = ArgumentOf(query, column);
  if (value == nullptr && missing) return *missing;
  const std::optional<int64_t> integer = value == nullptr ? std::nullopt : IntegerOf(*value);
  if (integer && *integer >= least && *integer <= most) return *integer;
  return MakeStatus(Code::kInvalidArgument, "{} is a whole number from {} to {}", name, least, most);
}

Result<Direction> DirectionArgument(const Query& query, int column) {
  const Value* const value = ArgumentOf(query, column);
  if (value == nullptr) return Direction::kIn;
  const auto* const name = std::get_if<std::string>(value);
  if (name != nullptr && *name == "in") return Direction::kIn;
  if (name != nullptr && *name == "out") return Direction::kOut;
  if (name != nullptr && *name == "both") return Direction::kBoth;
  return Status(Code::kInvalidArgument, "a direction is 'in', 'out' or 'both'");
}

// The arguments of a call stand in its hidden columns.
void PutArgument(const Query& query, int column, Output& out) {
  if (const Value* value = ArgumentOf(query, column)) out.Put(*value);
}

enum NeighborColumn : int { kNode, kHop, kId, kHops, kDirection };

constexpr Column kNeighborColumns[] = {
    {"node", ColumnType::kInteger},
    {"hop", ColumnType::kInteger},
    {"id", ColumnType::kInteger, Pushdown::kArgument},
    {"hops", ColumnType::kInteger, Pushdown::kArgument},
    {"direction", ColumnType::kText, Pushdown::kArgument},
};

// A search in breadth, a hop at a time: what nobody asks for any more is not read.
class NeighborsCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    std::unique_ptr<NeighborsCursor> cursor(new NeighborsCursor(session, query));
    QUARRY_TRY(const Topology* const topology, session.OpenTopology());
    const auto nodes = static_cast<int64_t>(topology->node_count());
    QUARRY_TRY(const int64_t id,
               IntegerArgument(query, kId, "neighbors: the id", 0, nodes - 1, std::nullopt));
    QUARRY_TRY(cursor->hops_,
               IntegerArgument(query, kHops, "neighbors: hops", 0, std::numeric_limits<int32_t>::max(), 1));
    QUARRY_TRY(const Direction direction, DirectionArgument(query, kDirection));
    for (const Adjacency side : SidesOf(direction)) {
      if (!topology->has(side)) {
        return Status(Code::kInvalidArgument,
                      "neighbors: the topology has no lists of out-neighbors; import with --both-directions");
      }
      cursor->sides_.push_back(side);
    }
    QUARRY_TRY(cursor->reservation_,
               session.budget().Reserve(topology->node_count() / 8 + 1, "the nodes that a search has seen"));
    cursor->seen_.resize(topology->node_count());
    cursor->seen_[static_cast<uint64_t>(id)] = true;
    cursor->level_ = {static_cast<uint64_t>(id)};
    cursor->next_ = 1;  // the node itself is none of its neighbors
    return std::unique_ptr<Cursor>(std::move(cursor));
  }

  Result<bool> Next() override {
    if (next_ == level_.size()) {
      if (hop_ == hops_ || level_.empty()) return false;
      QUARRY_RETURN_IF_ERROR(Expand());
      if (level_.empty()) return false;
    }
    node_ = level_[next_++];
    return true;
  }

  Status Get(int column, Output& out) override {
    if (column == kNode) {
      out.Integer(static_cast<int64_t>(node_));
    } else if (column == kHop) {
      out.Integer(hop_);
    } else {
      PutArgument(query_, column, out);
    }
    return Status::Ok();
  }
  Result<int64_t> RowId() override { return static_cast<int64_t>(node_); }

 private:
  NeighborsCursor(Session& session, const Query& query) : session_(session), query_(query) {}

  Status Expand() {
    QUARRY_RETURN_IF_ERROR(ReserveLevel());
    const IdSet owners = IdSet::List(std::move(level_));
    level_.clear();
    for (const Adjacency side : sides_) {
      QUARRY_TRY(const auto edges, EdgeReader::Make(session_, side, owners, {}));
      while (true) {
        QUARRY_TRY(const bool more, edges->Next());
        if (!more) break;
        if (seen_[edges->neighbor()]) continue;
        seen_[edges->neighbor()] = true;
        level_.push_back(edges->neighbor());
      }
    }
    std::ranges::sort(level_);
    next_ = 0;
    ++hop_;
    return Status::Ok();
  }

  // For all that the next hop may find, twice: vectors grow by doubling.
  Status ReserveLevel() {
    QUARRY_TRY(const Topology* const topology, session_.OpenTopology());
    uint64_t edges = 0;
    for (const Adjacency side : sides_) {
      const std::span<const uint64_t> indptr = topology->indptr(side);
      for (const uint64_t node : level_) edges += indptr[node + 1] - indptr[node];
    }
    level_reservation_.Release();
    QUARRY_TRY(level_reservation_,
               session_.budget().Reserve(2 * std::min(edges, topology->node_count()) * sizeof(uint64_t),
                                         "the nodes of a hop"));
    return Status::Ok();
  }

  Session& session_;
  const Query query_;
  std::vector<Adjacency> sides_;
  int64_t hops_ = 0;
  MemoryBudget::Reservation reservation_, level_reservation_;
  std::vector<bool> seen_;
  std::vector<uint64_t> level_;  // the nodes of hop_, ascending
  size_t next_ = 0;
  int64_t hop_ = 0;
  uint64_t node_ = 0;
};

enum BlockColumn : int { kBlockHop, kSource, kDestination, kSeeds, kFanouts, kSeed };

constexpr Column kBlockColumns[] = {
    {"hop", ColumnType::kInteger},
    {"src", ColumnType::kInteger},
    {"dst", ColumnType::kInteger},
    {"seeds", ColumnType::kText, Pushdown::kArgument},
    {"fanouts", ColumnType::kText, Pushdown::kArgument},
    {"seed", ColumnType::kInteger, Pushdown::kArgument},
};

template <typename T>
Result<std::vector<T>> ArrayArgument(const Query& query, int column, std::string_view name) {
  const Value* const value = ArgumentOf(query, column);
  const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) return MakeStatus(Code::kInvalidArgument, "sample_block: {} are missing", name);
  Result<std::vector<T>> array = JsonArray<T>::Parse(*text);
  if (array.ok()) return array;
  return MakeStatus(Code::kInvalidArgument, "sample_block: {}: {}", name, array.status().message());
}

class BlockCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    std::unique_ptr<BlockCursor> cursor(new BlockCursor(query));
    QUARRY_TRY(const Topology* const topology, session.OpenTopology());
    QUARRY_TRY(const std::vector<NodeId> seeds, ArrayArgument<NodeId>(query, kSeeds, "seeds"));
    QUARRY_TRY(const std::vector<uint32_t> fanouts, ArrayArgument<uint32_t>(query, kFanouts, "fanouts"));
    QUARRY_TRY(const int64_t seed, IntegerArgument(query, kSeed, "sample_block: the seed", 0,
                                                   std::numeric_limits<int64_t>::max(), 0));
    const NeighborSource source{.topology = topology,
                                .direction = Direction::kIn,
                                .backend = &session.store().backend(),
                                .device = session.profile()};
    QUARRY_TRY(const auto sampler, NeighborSampler::Make(source, {.fanouts = fanouts}));
    QUARRY_TRY(cursor->reservation_, Reserve(session, source, seeds.size(), fanouts));
    if (seeds.empty()) return std::unique_ptr<Cursor>(std::move(cursor));
    QUARRY_RETURN_IF_ERROR(sampler->Sample(seeds, static_cast<uint64_t>(seed), cursor->block_));
    return std::unique_ptr<Cursor>(std::move(cursor));
  }

  Result<bool> Next() override {
    const std::vector<uint32_t>& indptr = block_.indptr;
    if (next_ == block_.indices.size()) return false;
    edge_ = next_++;
    while (edge_ >= indptr[destination_ + 1]) ++destination_;
    while (destination_ >= block_.hop_offsets[hop_ - 1]) ++hop_;
    return true;
  }

  Status Get(int column, Output& out) override {
    if (column == kBlockHop) {
      out.Integer(int64_t{hop_});
    } else if (column == kSource) {
      out.Integer(int64_t{block_.nodes[block_.indices[edge_]]});
    } else if (column == kDestination) {
      out.Integer(int64_t{block_.nodes[destination_]});
    } else {
      PutArgument(query_, column, out);
    }
    return Status::Ok();
  }
  Result<int64_t> RowId() override { return static_cast<int64_t>(edge_); }

 private:
  explicit BlockCursor(const Query& query) : query_(query) {}

  // For the largest block that there can be.
  static Result<MemoryBudget::Reservation> Reserve(Session& session, const NeighborSource& source,
                                                   uint64_t seeds, const std::vector<uint32_t>& fanouts) {
    const uint64_t node_count = source.topology->node_count();
    const uint64_t edge_count = source.topology->edge_count();
    uint64_t nodes = std::min(seeds, node_count), edges = 0;
    for (const uint32_t fanout : fanouts) {
      edges = std::min(edge_count, edges + nodes * fanout);
      nodes = std::min(node_count, nodes + nodes * fanout);
    }
    const uint64_t block_bytes = 2 * (nodes * (sizeof(NodeId) + sizeof(uint32_t)) + edges * sizeof(uint32_t));
    return session.budget().Reserve(
        block_bytes + NeighborSampler::ScratchBytesMax(source, nodes, edges, /*in_memory=*/false),
        "sampling a block");
  }

  const Query query_;
  MemoryBudget::Reservation reservation_;
  Block block_;
  size_t next_ = 0;
  size_t edge_ = 0;
  uint32_t destination_ = 0;
  uint32_t hop_ = 1;  // at which the neighbors of the destination were drawn
};

enum FeatureJsonColumn : int { kTable, kFeature, kNodeId };

constexpr Column kFeatureJsonColumns[] = {
    {"table", ColumnType::kText},
    {"feature", ColumnType::kText},
    {"id", ColumnType::kInteger, Pushdown::kArgument},
};

class FeatureJsonCursor final : public Cursor {
 public:
  static Result<std::unique_ptr<Cursor>> Open(Session& session, const Query& query) {
    QUARRY_TRY(std::shared_ptr<const Snapshot> snapshot, session.snapshot());
    const auto nodes = static_cast<int64_t>(snapshot->node_count);
    QUARRY_TRY(const int64_t id,
               IntegerArgument(query, kNodeId, "feature_json: the id", 0, nodes - 1, std::nullopt));
    return std::unique_ptr<Cursor>(
        new FeatureJsonCursor(session, query, std::move(snapshot), static_cast<uint64_t>(id)));
  }

  Result<bool> Next() override {
    while (next_ < snapshot_->tables.size()) {
      record_ = &snapshot_->tables[next_++];
      if (!IsFloatType(record_->element_type) || id_ >= record_->row_count) continue;
      QUARRY_RETURN_IF_ERROR(ReadRow());
      return true;
    }
    return false;
  }

  Status Get(int column, Output& out) override {
    if (column == kTable) {
      out.Text(record_->name);
    } else if (column == kFeature) {
      out.Text(WriteJsonArray(values_.size(), [this](size_t i) { return values_[i]; }));
    } else {
      PutArgument(query_, column, out);
    }
    return Status::Ok();
  }
  Result<int64_t> RowId() override { return static_cast<int64_t>(next_ - 1); }

 private:
  FeatureJsonCursor(Session& session, const Query& query, std::shared_ptr<const Snapshot> snapshot,
                    uint64_t id)
      : session_(session), query_(query), snapshot_(std::move(snapshot)), id_(id) {}

  Status ReadRow() {
    QUARRY_TRY(const auto table, session_.OpenTable(record_->name));
    QUARRY_TRY(const auto stream, RowStream::Make(session_, table, IdSet::List({id_})));
    QUARRY_RETURN_IF_ERROR(stream->Read(0));
    values_.resize(record_->dim);
    DecodeRow(record_->element_type, stream->bytes(), values_);
    return Status::Ok();
  }

  Session& session_;
  const Query query_;
  const std::shared_ptr<const Snapshot> snapshot_;
  const uint64_t id_;
  size_t next_ = 0;
  const TableRecord* record_ = nullptr;
  std::vector<float> values_;
};

// A function by its name, its columns, and how a call of it begins.
class FunctionTable final : public Table {
 public:
  using OpenCall = Result<std::unique_ptr<Cursor>> (*)(Session&, const Query&);
  FunctionTable(Session& session, std::string_view name, std::span<const Column> columns, int required,
                OpenCall open)
      : session_(session), name_(name), columns_(columns), required_(required), open_(open) {}
  std::string_view name() const override { return name_; }
  std::span<const Column> columns() const override { return columns_; }
  std::optional<Estimate> Price(const Query& query) const override {
    if (!query.Has(required_)) return std::nullopt;
    return Estimate{kHopRows, kHopSeconds};
  }
  std::vector<int> Order(const Query&) const override { return {}; }
  Result<std::unique_ptr<Cursor>> Open(const Query& query) override { return open_(session_, query); }

 private:
  Session& session_;
  const std::string_view name_;
  const std::span<const Column> columns_;
  const int required_;  // the argument that a call cannot do without
  const OpenCall open_;
};

}  // namespace

std::vector<std::unique_ptr<Table>> MakeTableFunctions(Session& session) {
  std::vector<std::unique_ptr<Table>> tables;
  tables.push_back(
      std::make_unique<FunctionTable>(session, "neighbors", kNeighborColumns, kId, NeighborsCursor::Open));
  tables.push_back(
      std::make_unique<FunctionTable>(session, "sample_block", kBlockColumns, kSeeds, BlockCursor::Open));
  tables.push_back(std::make_unique<FunctionTable>(session, "feature_json", kFeatureJsonColumns, kNodeId,
                                                   FeatureJsonCursor::Open));
  return tables;
}

}  // namespace quarry::sql
