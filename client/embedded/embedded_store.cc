// The Store of a database in this process (quarry/client/store.h).
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "embedded_put.h"
#include "embedded_sql.h"
#include "embedded_stream.h"
#include "embedding_rows.h"
#include "quarry/base/log.h"
#include "quarry/base/mutex.h"
#include "quarry/client/store.h"
#include "quarry/database.h"
#include "quarry/format/wire.h"
#include "quarry/service/block_sampler.h"
#include "quarry/service/embedding_service.h"
#include "quarry/service/maintenance.h"
#include "quarry/service/row_fetcher.h"
#include "quarry/service/stored_tables.h"
#include "quarry/service/stream_hub.h"
#include "quarry/service/training_service.h"
#include "quarry/service/wire_forms.h"
#include "quarry/storage/edges.h"
#include "request_errors.h"
#include "sql_values.h"

namespace quarry::client {
namespace {

class EmbeddedRows final : public Rows {
 public:
  EmbeddedRows(uint64_t count, const TableRecord& record, MemoryBudget::Reservation reservation)
      : count_(count),
        dim_(static_cast<uint32_t>(record.dim)),
        type_(record.element_type),
        reservation_(std::move(reservation)),
        bytes_(count * RowBytes(record.element_type, record.dim)) {}
  uint64_t count() const override { return count_; }
  uint32_t dim() const override { return dim_; }
  ElementType element_type() const override { return type_; }
  std::span<const std::byte> bytes() const override { return bytes_; }
  std::span<std::byte> writable() { return bytes_; }

 private:
  const uint64_t count_;
  const uint32_t dim_;
  const ElementType type_;
  const MemoryBudget::Reservation reservation_;
  std::vector<std::byte> bytes_;
};

// Views by id. Shared by the store and the snapshots that it gave out.
class NumberedSnapshots {
 public:
  using View = std::shared_ptr<StoredTables::View>;

  uint64_t Add(View view) {
    MutexLock lock(mutex_);
    views_.emplace(++last_id_, std::move(view));
    return last_id_;
  }
  void Remove(uint64_t id) {
    View view;  // dies outside the lock
    MutexLock lock(mutex_);
    view = std::move(views_.extract(id).mapped());
  }
  Result<View> Find(uint64_t id) {
    MutexLock lock(mutex_);
    const auto found = views_.find(id);
    if (found == views_.end()) return NoSnapshot(id);
    return found->second;
  }

 private:
  Mutex mutex_;
  uint64_t last_id_ QUARRY_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, View> views_ QUARRY_GUARDED_BY(mutex_);
};

class EmbeddedSnapshot final : public Snapshot {
 public:
  EmbeddedSnapshot(NumberedSnapshots& held, const NumberedSnapshots::View& view)
      : held_(held), id_(held.Add(view)), timestamp_(view->snapshot()->timestamp) {}
  ~EmbeddedSnapshot() override { held_.Remove(id_); }
  uint64_t id() const override { return id_; }
  uint64_t timestamp() const override { return timestamp_; }

 private:
  NumberedSnapshots& held_;
  const uint64_t id_;
  const uint64_t timestamp_;
};

// Readers of rows, as many as threads look up at a time: each has a ring of its own.
class RowFetchers {
 public:
  explicit RowFetchers(Database& database) : database_(database) {}

  Status Read(const TableView& table, std::span<const NodeId> ids, std::span<std::byte> out) {
    std::unique_ptr<RowFetcher> fetcher = Take();
    const std::atomic<bool> cancelled{false};
    const Status status = fetcher->Read(table, ids, out, cancelled);
    MutexLock lock(mutex_);
    idle_.push_back(std::move(fetcher));
    return status;
  }

 private:
  std::unique_ptr<RowFetcher> Take() {
    MutexLock lock(mutex_);
    if (idle_.empty()) {
      return std::make_unique<RowFetcher>(database_.backend(), database_.budget(),
                                          ProfileOf(*database_.manifest()));
    }
    std::unique_ptr<RowFetcher> fetcher = std::move(idle_.back());
    idle_.pop_back();
    return fetcher;
  }

  Database& database_;
  Mutex mutex_;
  std::vector<std::unique_ptr<RowFetcher>> idle_ QUARRY_GUARDED_BY(mutex_);
};

class EmbeddedStore final : public Store {
 public:
  explicit EmbeddedStore(std::unique_ptr<Database> database)
      : database_(std::move(database)),
        tables_(database_->store(), database_->budget()),
        blocks_(database_->store(), database_->budget()),
        embeddings_(database_->store(), database_->budget(), database_->budget().limit_bytes() / 4),
        trainings_(database_->store(), embeddings_),
        maintenance_(database_->store(), embeddings_, tables_),
        fetchers_(*database_) {}
  ~EmbeddedStore() override {
    const Status kept = embeddings_.Checkpoint();
    if (!kept.ok()) LogWarn("embedding tables stay as of their last checkpoint: {}", kept.ToString());
  }

  Result<wire::Description> Describe() override { return DescriptionOf(database_->store()); }
  Result<std::unique_ptr<Rows>> Lookup(const wire::Lookup& request) override;
  Result<std::unique_ptr<Batch>> Sample(const wire::Sample& request) override;
  Result<std::unique_ptr<Stream>> OpenStream(const wire::OpenStream& request,
                                             const StreamDevice& device) override;
  Result<std::unique_ptr<Snapshot>> TakeSnapshot() override {
    QUARRY_TRY(const NumberedSnapshots::View view, tables_.Newest());
    return std::make_unique<EmbeddedSnapshot>(snapshots_, view);
  }
  Result<uint64_t> Put(const wire::Put& request) override { return EmbeddedPut(*database_, request); }
  Result<std::unique_ptr<LargePut>> BeginPut(const std::optional<wire::PutGraph>& graph) override {
    return BeginEmbeddedPut(*database_, graph);
  }
  Result<wire::GraphChanged> ChangeGraph(const wire::Put& request) override {
    return EmbeddedChange(*database_, request);
  }
  Result<std::unique_ptr<EmbeddingRows>> ReadEmbeddings(std::string_view table,
                                                        std::span<const uint64_t> ids) override;
  Result<wire::EmbeddingsCommitted> CommitEmbeddings(std::span<const Update> updates) override;
  Result<wire::MaintenanceReport> Maintain(const wire::MaintenanceTask& task,
                                           const ProgressFunction& progress) override {
    QUARRY_RETURN_IF_ERROR(wire::CheckRequest(wire::Maintain{task}));
    return maintenance_.Run(task, database_->budget(), progress);
  }
  Result<std::vector<std::byte>> ReadManifest() override { return EncodeManifest(*database_->manifest()); }
  Result<Training> ReadTraining(std::string_view name, bool with_state) override;
  Result<Training> SaveTraining(const TrainingToSave& training) override;
  Result<std::vector<uint32_t>> ReadEdges(std::string_view topology, uint64_t first, uint64_t count,
                                          uint64_t* number) override;
  Result<wire::Counters> Stats() override {
    const MemoryBudget& budget = database_->budget();
    return wire::Counters{{{"budget_bytes", static_cast<double>(budget.limit_bytes())},
                           {"budget_used_bytes", static_cast<double>(budget.used_bytes())}}};
  }
  Result<wire::ServerStatus> ServerStatus() override {
    QUARRY_TRY(wire::Counters stats, Stats());
    return wire::ServerStatus{.counters = std::move(stats.counters)};
  }
  Status Ping() override { return Status(); }
  Database* database() override { return database_.get(); }
  Result<std::unique_ptr<SqlConnection>> Connect(const SqlOptions& options) override {
    QUARRY_TRY(std::unique_ptr<sql::Connection> connection,
               database_->Connect(
                   {.write = options.write,
                    .timeout_seconds = options.timeout_seconds,
                    .cancelled = options.cancelled,
                    .maintain = [this](const wire::MaintenanceTask& task, const ProgressFunction& progress) {
                      return Maintain(task, progress).status();
                    }}));
    return WrapSql(std::move(connection));
  }

 private:
  Result<NumberedSnapshots::View> ViewOf(uint64_t snapshot) {
    if (snapshot == 0) return tables_.Newest();
    return snapshots_.Find(snapshot);
  }

  // Destroyed last to first.
  const std::unique_ptr<Database> database_;
  StoredTables tables_;
  BlockSampler blocks_;
  EmbeddingService embeddings_;
  TrainingService trainings_;
  Maintenance maintenance_;
  RowFetchers fetchers_;
  NumberedSnapshots snapshots_;
  std::atomic<uint64_t> streams_{0};
  Mutex opening_;  // each road plans with what the budget has left
};

Result<std::unique_ptr<Rows>> EmbeddedStore::Lookup(const wire::Lookup& request) {
  const auto* ids = std::get_if<std::vector<NodeId>>(&request.ids);
  if (ids == nullptr) return NotInMemory("ids");
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(wire::Lookup{.table = request.table}));
  QUARRY_TRY(const NumberedSnapshots::View view, ViewOf(request.snapshot));
  QUARRY_TRY(const TableView* const table, view->Open(request.table));
  const uint64_t row_bytes = RowBytes(table->record.element_type, table->record.dim);
  QUARRY_TRY(MemoryBudget::Reservation reservation,
             database_->budget().Reserve(ids->size() * row_bytes, "looking rows up"));
  auto rows = std::make_unique<EmbeddedRows>(ids->size(), table->record, std::move(reservation));
  QUARRY_RETURN_IF_ERROR(fetchers_.Read(*table, *ids, rows->writable()));
  return std::unique_ptr<Rows>(std::move(rows));
}

Result<std::unique_ptr<Batch>> EmbeddedStore::Sample(const wire::Sample& request) {
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request, kAnyNumber));
  QUARRY_TRY(BlockSampler::Sampled sampled, blocks_.Sample(request, database_->budget()));
  auto held = std::make_shared<const BlockSampler::Sampled>(std::move(sampled));
  const BatchView view = held->block.view();
  return std::make_unique<Batch>(view, std::move(held));
}

Result<std::unique_ptr<Stream>> EmbeddedStore::OpenStream(const wire::OpenStream& request,
                                                          const StreamDevice& device) {
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request, kAnyNumber));
  if (request.mode != wire::StreamMode::kExclusive) {
    return Status(Code::kUnsupported,
                  "groups are for clients of a server (quarry serve); threads of one process share a stream");
  }
  std::shared_ptr<const quarry::Snapshot> snapshot;
  if (request.snapshot != 0) {
    QUARRY_TRY(const NumberedSnapshots::View view, snapshots_.Find(request.snapshot));
    snapshot = view->snapshot();
  }
  OpenedDevice on;
  if (device.ordinal >= 0) {
    QUARRY_TRY(on, OpenDeviceOf(device));
  }
  MutexLock lock(opening_);
  QUARRY_TRY(OpenedRoad opened,
             OpenRoad(database_->store(), database_->budget(), request, std::move(snapshot),
                      fmt::format("embedded-{}", ++streams_), {}, on.target));
  return MakeRoadStream(std::move(opened), std::move(on));
}

Result<std::unique_ptr<EmbeddingRows>> EmbeddedStore::ReadEmbeddings(std::string_view table,
                                                                     std::span<const uint64_t> ids) {
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(wire::ReadEmbeddings{.table = std::string(table)}));
  QUARRY_TRY(const EmbeddingSpec spec, embeddings_.Spec(table));
  const wire::RowBlockShape shape = {.rows = ids.size(), .dim = spec.dim, .state_dim = spec.state_dim()};
  auto rows = std::make_unique<OwnedEmbeddingRows>(shape, OwnedEmbeddingRows::Source());
  QUARRY_RETURN_IF_ERROR(embeddings_.Read(table, ids, rows->arrays()));
  return std::unique_ptr<EmbeddingRows>(std::move(rows));
}

Result<wire::EmbeddingsCommitted> EmbeddedStore::CommitEmbeddings(std::span<const Update> updates) {
  std::vector<EmbeddingService::Update> blocks;
  for (const Update& update : updates) {
    const auto* rows = dynamic_cast<const OwnedEmbeddingRows*>(update.rows);
    if (rows == nullptr) return ForeignRows(update.table);
    blocks.push_back({.table = update.table,
                      .shape = rows->shape(),
                      .block = {rows->block().begin(), rows->block().end()}});
  }
  return embeddings_.Commit(blocks);
}

Result<Training> EmbeddedStore::ReadTraining(std::string_view name, bool with_state) {
  const wire::ReadTraining request = {.name = std::string(name), .with_state = with_state};
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request));
  QUARRY_TRY(TrainingService::Read read, trainings_.ReadTraining(request, database_->budget()));
  return Training{.settings = std::move(read.training.settings),
                  .config = std::move(read.training.config),
                  .created_utc = std::move(read.training.created_utc),
                  .timestamp = read.training.timestamp,
                  .state = std::move(read.state)};
}

Result<Training> EmbeddedStore::SaveTraining(const TrainingToSave& training) {
  const wire::SaveTraining request = {.name = training.name,
                                      .settings = training.settings,
                                      .state_bytes = training.state.size(),
                                      .piece = wire::Range{.region = 1, .bytes = training.state.size()},
                                      .with_embeddings = training.with_embeddings,
                                      .config = training.config};
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(request));
  QUARRY_TRY(wire::Training saved, trainings_.Save(request, training.state));
  return Training{.settings = std::move(saved.settings),
                  .config = std::move(saved.config),
                  .created_utc = std::move(saved.created_utc),
                  .timestamp = saved.timestamp};
}

Result<std::vector<uint32_t>> EmbeddedStore::ReadEdges(std::string_view topology, uint64_t first,
                                                       uint64_t count, uint64_t* number) {
  QUARRY_RETURN_IF_ERROR(wire::CheckRequest(wire::ReadEdges{.topology = std::string(topology), .count = 1}));
  QUARRY_TRY(const std::unique_ptr<EdgeList> list,
             EdgeList::Open(database_->store(), database_->budget(), topology));
  if (number != nullptr) {
    QUARRY_RETURN_IF_ERROR(list->CheckIs(*number));
    *number = list->number();
  }
  std::vector<Triple> edges(std::min(count, list->size() - std::min(first, list->size())));
  if (!edges.empty()) list->Read(first, edges);
  std::vector<uint32_t> numbers;
  numbers.reserve(3 * edges.size());
  for (const Triple& edge : edges) numbers.insert(numbers.end(), {edge.head, edge.relation, edge.tail});
  return numbers;
}

}  // namespace

Result<std::unique_ptr<Store>> Open(std::string_view address, const OpenOptions& options) {
  if (address.starts_with(kServerScheme)) return OpenRemote(address, options);
  QUARRY_TRY(std::unique_ptr<Database> database,
             Database::Open(std::string(address), {.memory_bytes = options.memory_bytes,
                                                   .cache_folder = options.cache_folder,
                                                   .cache_bytes = options.cache_bytes}));
  return std::unique_ptr<Store>(std::make_unique<EmbeddedStore>(std::move(database)));
}

}  // namespace quarry::client
