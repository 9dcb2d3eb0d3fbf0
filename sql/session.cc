#include "session.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "edge_reader.h"
#include "quarry/base/units.h"
#include "quarry/layout/layout.h"
#include "quarry/storage/edge_columns.h"

namespace quarry::sql {
namespace {

constexpr std::string_view kGraph = "graph";
constexpr uint64_t kStagingBytes = 4 * kMiB;
// One part in so many of the budget is for what lookups find in memory: a transaction needs room beside it.
constexpr uint64_t kCacheShare = 8;
constexpr uint64_t kCacheBytesMin = 4 * PageCache::kPieceBytes;  // of one cache
constexpr uint64_t kNamesMax = 16 << 10, kNameBytesMax = 64;     // kept; longer names are not

// Finds the copies of edges in the lists of in-neighbors. Edges that ascend by destination are found in one pass.
class EqualEdges {
 public:
  static Result<EqualEdges> Of(IoBackend& backend, const Topology& topology) {
    EqualEdges lists(topology);
    QUARRY_TRY(lists.neighbors_,
               EdgeColumnReader::Make(backend, topology, Adjacency::kCsc, EdgeColumn::kNeighbors));
    if (topology.relation_count() > 1) {
      QUARRY_TRY(lists.relations_,
                 EdgeColumnReader::Make(backend, topology, Adjacency::kCsc, EdgeColumn::kRelations));
    }
    return lists;
  }

  // Positions among all edges, ascending; valid until the next call.
  Result<std::span<const uint64_t>> Find(const PendingWrites::EdgeKey& edge) {
    const std::span<const uint64_t> indptr = topology_.indptr(Adjacency::kCsc);
    const uint64_t first = indptr[edge.destination], end = indptr[edge.destination + 1];
    if (edge.destination != owner_) {
      QUARRY_TRY(list_, neighbors_->Read(first, end));
      if (relations_ != nullptr) {
        QUARRY_TRY(kinds_, relations_->Read(first, end));
      }
      owner_ = edge.destination;
    }
    found_.clear();
    for (size_t i = 0; i < list_.size(); ++i) {
      if (list_[i] == edge.source && (kinds_.empty() || kinds_[i] == edge.relation)) {
        found_.push_back(first + i);
      }
    }
    return std::span<const uint64_t>(found_);
  }

 private:
  explicit EqualEdges(const Topology& topology) : topology_(topology) {}
  const Topology& topology_;
  std::unique_ptr<EdgeColumnReader> neighbors_, relations_;
  std::span<const uint32_t> list_, kinds_;  // the owner's
  uint64_t owner_ = UINT64_MAX;
  std::vector<uint64_t> found_;
};

}  // namespace

Session::Session(Store& store, MemoryBudget& budget, bool writable, std::function<Status()> look)
    : store_(store),
      budget_(budget),
      cache_bytes_max_(budget.limit_bytes() / kCacheShare),
      writable_(writable),
      look_(std::move(look)),
      pending_(budget),
      files_(store, budget),
      reader_(store.backend(), budget, profile(), kStagingBytes) {}

DeviceProfile Session::profile() const { return ProfileOf(*manifest()); }

Result<std::shared_ptr<const Snapshot>> Session::snapshot() {
  if (snapshot_ == nullptr) {
    QUARRY_TRY(snapshot_, store_.TakeSnapshot());
  }
  return snapshot_;
}

void Session::EndSnapshot() {
  for (const auto& [name, column] : columns_) column->Detach();
  open_columns_.clear();
  tables_.clear();
  snapshot_.reset();
  snapshot_is_old_ = false;
}

// SQLite tells an extension of no COMMIT that wrote nothing, and it need not: the connection alone can write
// to its database, so a snapshot gets old by its own commits only, and the next statement behind one takes
// another.
Status Session::Commit() {
  if (!pending_.removed().empty()) QUARRY_RETURN_IF_ERROR(CheckRemoved());
  if (!pending_.weighed().empty()) QUARRY_RETURN_IF_ERROR(KeepWeights());
  snapshot_is_old_ = true;
  return pending_.Commit(store_, topology_timestamp_);
}

// A removed edge goes with all its parallel copies, so whoever deletes one of them has to delete all.
Status Session::CheckRemoved() {
  QUARRY_TRY(const Topology* const topology, OpenTopology());
  QUARRY_TRY(EqualEdges lists, EqualEdges::Of(store_.backend(), *topology));
  for (const auto& [edge, copies] : pending_.removed()) {
    QUARRY_TRY(const std::span<const uint64_t> equal, lists.Find(edge));
    if (copies >= equal.size()) continue;
    return MakeStatus(
        Code::kUnsupported,
        "edges: {} of the {} parallel edges from {} to {} would be deleted, and they go together: "
        "delete all of them, and insert those that shall stay",
        copies, equal.size(), edge.source, edge.destination);
  }
  return Status::Ok();
}

// Parallel copies go together, so those that get no weight come again with the one that they have.
Status Session::KeepWeights() {
  QUARRY_TRY(const Topology* const topology, OpenTopology());
  QUARRY_TRY(EqualEdges lists, EqualEdges::Of(store_.backend(), *topology));
  QUARRY_TRY(const auto weights,
             EdgeColumnReader::Make(store_.backend(), *topology, Adjacency::kCsc, EdgeColumn::kWeights));
  for (const auto& [edge, copies] : pending_.weighed()) {
    QUARRY_TRY(const std::span<const uint64_t> equal, lists.Find(edge));
    for (uint64_t copy = 0; copy < equal.size(); ++copy) {
      if (copies.contains(copy)) continue;
      QUARRY_TRY(const std::span<const uint32_t> weight, weights->Read(equal[copy], equal[copy] + 1));
      QUARRY_RETURN_IF_ERROR(pending_.SetWeight(edge, copy, std::bit_cast<float>(weight[0])));
    }
  }
  return Status::Ok();
}

void Session::LeaveOldSnapshot() {
  if (cursors_ == 0 && snapshot_is_old_) EndSnapshot();
}

void Session::BeginCursor() {
  LeaveOldSnapshot();
  ++cursors_;
}

Result<std::shared_ptr<const TableView>> Session::OpenTable(std::string_view name) {
  if (const auto found = tables_.find(name); found != tables_.end()) return found->second;
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, this->snapshot());
  const TableRecord* const record = snapshot->FindTable(name);
  if (record == nullptr) {
    return MakeStatus(Code::kNotFound, "{}: there is no table \"{}\"", store_.path(), name);
  }
  QUARRY_TRY(TableView view, TableView::Open(store_, files_, snapshot, *record));
  return tables_.emplace(name, std::make_shared<const TableView>(std::move(view))).first->second;
}

// Opened anew for a snapshot that has other nodes or edges: no cursor is open on the one before.
Result<const Topology*> Session::OpenTopology() {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, this->snapshot());
  const TopologyRecord* const record = snapshot->FindTopology(kGraph);
  if (topology_ != nullptr && record != nullptr &&
      (topology_timestamp_ != record->timestamp() || topology_->node_count() != record->node_count)) {
    CloseTopology();
  }
  if (topology_ == nullptr) {
    if (record != nullptr) {
      QUARRY_TRY(topology_reservation_,
                 budget_.Reserve(Topology::ResidentBytes(*record), "the topology's indptr"));
      topology_timestamp_ = record->timestamp();
    }
    QUARRY_TRY(topology_, store_.OpenTopology(*snapshot, kGraph));
  }
  return topology_.get();
}

void Session::CloseTopology() {
  pages_.clear();  // which read its file
  cached_bytes_ -= std::exchange(pages_bytes_, 0);
  for (const Adjacency side : {Adjacency::kCsc, Adjacency::kCsr}) {
    relations_[static_cast<int>(side)].reset();
    weights_[static_cast<int>(side)].reset();
  }
  out_degrees_ = {};
  out_degrees_reservation_.Release();
  topology_.reset();
  topology_reservation_.Release();
}

Result<std::span<const uint32_t>> Session::OutDegrees() {
  if (out_degrees_.empty()) {
    QUARRY_TRY(const Topology* const topology, OpenTopology());
    const uint64_t nodes = topology->node_count();
    QUARRY_TRY(out_degrees_reservation_, budget_.Reserve(nodes * sizeof(uint32_t), "out-degrees"));
    QUARRY_TRY(const auto edges, EdgeReader::Make(*this, Adjacency::kCsc, IdSet::Range(0, nodes), {}));
    std::vector<uint32_t> degrees(nodes);
    while (true) {
      QUARRY_TRY(const bool more, edges->Next());
      if (!more) break;
      ++degrees[edges->neighbor()];
    }
    out_degrees_ = std::move(degrees);
  }
  return std::span<const uint32_t>(out_degrees_);
}

Result<const EdgeValues*> Session::OpenRelations(Adjacency side) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, this->snapshot());
  const TopologyRecord* const record = snapshot->FindTopology(kGraph);
  std::unique_ptr<EdgeValues>& open = relations_[static_cast<int>(side)];
  if (open == nullptr && record != nullptr) {
    QUARRY_TRY(open, EdgeValues::OpenRelations(store_, budget_, *record, side));
  }
  return static_cast<const EdgeValues*>(open.get());
}

Result<bool> Session::TellsRelationsApart() {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, this->snapshot());
  const TopologyRecord* const graph = snapshot->FindTopology(kGraph);
  return graph != nullptr && (graph->by_relation || (writable_ && graph->relation_count > 1));
}

Result<const EdgeValues*> Session::OpenWeights(Adjacency side) {
  QUARRY_TRY(const std::shared_ptr<const Snapshot> snapshot, this->snapshot());
  const TopologyRecord* const record = snapshot->FindTopology(kGraph);
  std::unique_ptr<EdgeValues>& open = weights_[static_cast<int>(side)];
  if (open == nullptr && record != nullptr) {
    QUARRY_TRY(open, EdgeValues::OpenWeights(store_, budget_, *record, side));
  }
  return static_cast<const EdgeValues*>(open.get());
}

Result<ColumnCache*> Session::OpenColumn(std::string_view name) {
  QUARRY_TRY(std::shared_ptr<const TableView> table, OpenTable(name));
  if (!ColumnCache::Serves(table->geometry()) || table->record.added_rows > 0) return nullptr;
  auto found = columns_.find(name);
  if (found == columns_.end() || found->second->row_count() != table->geometry().row_count) {
    const uint64_t bytes = CacheBytes(table->geometry().data_bytes());
    Result<std::unique_ptr<ColumnCache>> made = ColumnCache::Make(budget_, table->geometry(), bytes);
    if (made.status().code() == Code::kOutOfBudget) return nullptr;
    QUARRY_TRY(std::unique_ptr<ColumnCache> column, std::move(made));
    cached_bytes_ += bytes;
    found = columns_.insert_or_assign(std::string(name), std::move(column)).first;
  }
  ColumnCache* const column = found->second.get();
  column->Attach(std::move(table));
  if (std::ranges::find(open_columns_, column) == open_columns_.end()) open_columns_.push_back(column);
  return column;
}

Result<PageCache*> Session::OpenPages(int id, const PageSection& section) {
  std::unique_ptr<PageCache>& pages = pages_[id];
  if (pages == nullptr) {
    const uint64_t bytes = CacheBytes(section.bytes);
    Result<std::unique_ptr<PageCache>> made = PageCache::Make(budget_, section.bytes, bytes);
    if (made.status().code() == Code::kOutOfBudget) return nullptr;
    QUARRY_TRY(pages, std::move(made));
    cached_bytes_ += bytes;
    pages_bytes_ += bytes;
    pages->Attach(section);
  }
  return pages.get();
}

uint64_t Session::CacheBytes(uint64_t wanted) const {
  const uint64_t left = cache_bytes_max_ - std::min(cache_bytes_max_, cached_bytes_);
  return std::min(wanted, std::max(left, kCacheBytesMin));
}

Result<const std::string*> Session::NameOf(uint64_t node) {
  if (names_.empty()) {
    auto room = budget_.Reserve(kNamesMax * (sizeof(NamedNode) + kNameBytesMax), "names of nodes");
    names_.resize(room.ok() ? kNamesMax : 1);
    if (room.ok()) names_reservation_ = std::move(*room);
  }
  NamedNode& named = names_[node % names_.size()];
  if (named.node != node) {
    named.node = UINT64_MAX;
    QUARRY_TRY(named.name, store_.catalog()->NameOfId(NameKind::kEntity, node));
    if (!named.name || named.name->size() <= kNameBytesMax) named.node = node;
  }
  return named.name ? &*named.name : nullptr;
}

Result<uint64_t> Session::TimestampOf(const TableView& table, uint64_t row) {
  uint64_t timestamp = 0;
  if (!table.overlay->Touched(row)) return timestamp;
  QUARRY_RETURN_IF_ERROR(store_.catalog()->ReadVersions(
      table.record.name, {&row, 1}, table.snapshot->timestamp, [&](size_t, const RowVersion& version) {
        timestamp = version.timestamp;
        return Status::Ok();
      }));
  return timestamp > table.record.folded ? timestamp : 0;
}

}  // namespace quarry::sql
