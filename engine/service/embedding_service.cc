#include "quarry/service/embedding_service.h"

#include <algorithm>
#include <functional>
#include <map>

#include "quarry/base/mutex.h"
#include "quarry/base/trace.h"
#include "quarry/embedding/embedding_store.h"

namespace quarry {
namespace {

// Rows go between blocks of the wire and of tables in pieces of about this many bytes, which no budget pays.
constexpr uint64_t kPieceBytes = 256 << 10;

// The next piece of a block: as the table takes it.
class Pieces {
 public:
  Pieces(const EmbeddingSpec& spec, uint64_t rows)
      : spec_(spec),
        rows_(rows),
        rows_max_(std::max<uint64_t>(1, kPieceBytes / (16 + 4 * (uint64_t{spec.dim} + spec.state_dim())))) {}

  // False behind the last one.
  bool Next(std::span<const uint64_t> ids) {
    begin_ = end_;
    end_ = std::min(rows_, begin_ + rows_max_);
    block.ids.assign(ids.begin() + static_cast<ptrdiff_t>(begin_),
                     ids.begin() + static_cast<ptrdiff_t>(end_));
    return begin_ < end_;
  }
  uint64_t begin() const { return begin_; }
  // What of the whole block's array, with `width` elements a row, is of this piece.
  template <typename T>
  std::span<T> Of(std::span<T> array, uint64_t width) const {
    return array.subspan(begin_ * width, (end_ - begin_) * width);
  }
  template <typename T>
  std::span<T> Values(std::span<T> array) const {
    return Of(array, spec_.dim);
  }
  template <typename T>
  std::span<T> State(std::span<T> array) const {
    return Of(array, spec_.state_dim());
  }

  RowBlock block;

 private:
  const EmbeddingSpec& spec_;
  const uint64_t rows_;
  const uint64_t rows_max_;
  uint64_t begin_ = 0, end_ = 0;
};

Status CheckIds(const EmbeddingSpec& spec, std::string_view table, std::span<const uint64_t> ids) {
  const auto disorder = std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>());
  if (disorder != ids.end()) {
    return MakeStatus(Code::kInvalidArgument,
                      "embedding table \"{}\": row {} comes before row {}: ids are ascending and unique",
                      table, disorder[0], disorder[1]);
  }
  if (ids.empty() || ids.back() < spec.row_count) return Status::Ok();
  return MakeStatus(Code::kInvalidArgument, "embedding table \"{}\": row {} is beyond its {} rows", table,
                    ids.back(), spec.row_count);
}

class EmbeddingServiceImpl final : public EmbeddingService {
 public:
  EmbeddingServiceImpl(Store& store, MemoryBudget& budget, uint64_t pool_bytes)
      : store_(store), budget_(budget), pool_bytes_(pool_bytes) {
    const std::shared_ptr<const Manifest> manifest = store.manifest();
    for (const EmbeddingRecord& record : manifest->embeddings) {
      last_timestamp_ = std::max(last_timestamp_, record.timestamp);
    }
    checkpointed_ = last_timestamp_;
  }

  Result<EmbeddingSpec> Spec(std::string_view table) override {
    QUARRY_TRY(const EmbeddingTable* const opened, Find(table));
    return opened->spec();
  }
  Status Read(std::string_view table, std::span<const uint64_t> ids,
              const wire::RowBlockArrays<true>& block) override;
  Result<wire::EmbeddingsCommitted> Commit(std::span<const Update> updates) override;
  Status Checkpoint() override { return Checkpoint({}); }
  Status Checkpoint(const std::function<Status(Manifest&, int64_t)>& also) override;

 private:
  // An update, checked, with its table.
  struct Change {
    EmbeddingTable* table = nullptr;
    wire::RowBlockArrays<false> rows;
  };

  Result<EmbeddingTable*> Find(std::string_view name);
  Result<Change> Check(const Update& update);
  Result<uint64_t> StaleRows(const Change& change) QUARRY_REQUIRES(commits_);
  Status Write(const Change& change, int64_t timestamp) QUARRY_REQUIRES(commits_);

  Store& store_;
  MemoryBudget& budget_;
  const uint64_t pool_bytes_;

  Mutex commits_;  // held over a whole commit, and over a checkpoint
  int64_t last_timestamp_ QUARRY_GUARDED_BY(commits_) = kNeverWritten;
  int64_t checkpointed_ QUARRY_GUARDED_BY(commits_) = kNeverWritten;
  Status broken_ QUARRY_GUARDED_BY(commits_);  // a commit happened by half

  Mutex tables_mutex_;
  std::map<std::string, std::unique_ptr<StoredEmbeddings>, std::less<>> tables_
      QUARRY_GUARDED_BY(tables_mutex_);  // never closed
};

Result<EmbeddingTable*> EmbeddingServiceImpl::Find(std::string_view name) {
  MutexLock lock(tables_mutex_);
  if (const auto open = tables_.find(name); open != tables_.end()) return &open->second->table();
  const uint64_t memory_bytes = std::min(pool_bytes_, budget_.available_bytes());
  QUARRY_TRY(auto opened, StoredEmbeddings::Open(store_, budget_, name, {.memory_bytes = memory_bytes}));
  return &tables_.emplace(name, std::move(opened)).first->second->table();
}

Status EmbeddingServiceImpl::Read(std::string_view table, std::span<const uint64_t> ids,
                                  const wire::RowBlockArrays<true>& block) {
  QUARRY_TRY(EmbeddingTable* const opened, Find(table));
  const EmbeddingSpec& spec = opened->spec();
  QUARRY_RETURN_IF_ERROR(CheckIds(spec, table, ids));
  if (block.ids.size() != ids.size() || block.timestamps.size() != ids.size() ||
      block.values.size() != ids.size() * spec.dim || block.state.size() != ids.size() * spec.state_dim()) {
    return MakeStatus(
        Code::kInvalidArgument,
        "embedding table \"{}\": {} rows of {} and {} elements do not fit a block of {} ids, {} "
        "values and {} elements of state",
        table, ids.size(), spec.dim, spec.state_dim(), block.ids.size(), block.values.size(),
        block.state.size());
  }
  QUARRY_RETURN_IF_ERROR(opened->Prefetch(ids));
  for (Pieces pieces(spec, ids.size()); pieces.Next(ids);) {
    QUARRY_RETURN_IF_ERROR(opened->Read(pieces.block));
    std::ranges::copy(pieces.block.ids, pieces.Of(block.ids, 1).begin());
    std::ranges::copy(pieces.block.timestamps, pieces.Of(block.timestamps, 1).begin());
    std::ranges::copy(pieces.block.values, pieces.Values(block.values).begin());
    std::ranges::copy(pieces.block.state, pieces.State(block.state).begin());
  }
  return Status::Ok();
}

Result<EmbeddingServiceImpl::Change> EmbeddingServiceImpl::Check(const Update& update) {
  QUARRY_TRY(EmbeddingTable* const table, Find(update.table));
  const EmbeddingSpec& spec = table->spec();
  const wire::RowBlockShape& shape = update.shape;
  if (shape.dim != spec.dim || shape.state_dim != spec.state_dim() || shape.rows > spec.row_count) {
    return MakeStatus(
        Code::kInvalidArgument,
        "embedding table \"{}\" has {} rows of {} elements and {} of state: an update has {} of {} "
        "and {}",
        update.table, spec.row_count, spec.dim, spec.state_dim(), shape.rows, shape.dim, shape.state_dim);
  }
  QUARRY_TRY(const wire::RowBlockArrays<false> rows,
             wire::OpenRowBlock(std::span<const std::byte>(update.block), shape));
  QUARRY_RETURN_IF_ERROR(CheckIds(spec, update.table, rows.ids));
  return Change{table, rows};
}

Result<uint64_t> EmbeddingServiceImpl::StaleRows(const Change& change) {
  uint64_t stale = 0;
  for (Pieces pieces(change.table->spec(), change.rows.ids.size()); pieces.Next(change.rows.ids);) {
    QUARRY_RETURN_IF_ERROR(change.table->Read(pieces.block));
    const std::span<const int64_t> read = pieces.Of(change.rows.timestamps, 1);
    for (size_t i = 0; i < read.size(); ++i) stale += read[i] != pieces.block.timestamps[i] ? 1 : 0;
  }
  return stale;
}

Status EmbeddingServiceImpl::Write(const Change& change, int64_t timestamp) {
  for (Pieces pieces(change.table->spec(), change.rows.ids.size()); pieces.Next(change.rows.ids);) {
    RowBlock& block = pieces.block;
    const auto assign = [](auto& to, const auto& from) { to.assign(from.begin(), from.end()); };
    assign(block.values, pieces.Values(change.rows.values));
    assign(block.state, pieces.State(change.rows.state));
    block.timestamps.assign(block.ids.size(), timestamp);
    QUARRY_RETURN_IF_ERROR(change.table->Write(block));
  }
  return Status::Ok();
}

Result<wire::EmbeddingsCommitted> EmbeddingServiceImpl::Commit(std::span<const Update> updates) {
  const ScopedSpan span("commit embeddings");
  std::vector<Change> changes;
  for (const Update& update : updates) {
    QUARRY_TRY(const Change change, Check(update));
    const auto named = [&](const Change& other) { return other.table == change.table; };
    if (std::ranges::any_of(changes, named)) {
      return MakeStatus(Code::kInvalidArgument, "embedding table \"{}\" is updated twice in one commit",
                        update.table);
    }
    changes.push_back(change);
  }
  // What has to come from disk comes before others have to wait for it.
  for (const Change& change : changes) QUARRY_RETURN_IF_ERROR(change.table->Prefetch(change.rows.ids));
  MutexLock lock(commits_);
  QUARRY_RETURN_IF_ERROR(broken_);
  wire::EmbeddingsCommitted committed;
  for (const Change& change : changes) {
    QUARRY_TRY(const uint64_t stale, StaleRows(change));
    committed.stale_rows += stale;
  }
  if (committed.stale_rows > 0) return committed;
  committed.timestamp = ++last_timestamp_;
  for (const Change& change : changes) {
    broken_ = Write(change, last_timestamp_);
    QUARRY_RETURN_IF_ERROR(broken_);
  }
  return committed;
}

Status EmbeddingServiceImpl::Checkpoint(const std::function<Status(Manifest&, int64_t)>& also) {
  const ScopedSpan span("checkpoint embeddings");
  MutexLock lock(commits_);
  QUARRY_RETURN_IF_ERROR(broken_);
  const auto change = [&also, timestamp = last_timestamp_](Manifest& manifest) {
    return also ? also(manifest, timestamp) : Status::Ok();
  };
  if (last_timestamp_ == checkpointed_) return also ? store_.UpdateManifest(change) : Status::Ok();
  std::vector<StoredEmbeddings*> tables;  // whatever was committed to is open
  {
    MutexLock tables_lock(tables_mutex_);
    for (const auto& [name, table] : tables_) tables.push_back(table.get());
  }
  QUARRY_RETURN_IF_ERROR(CheckpointAll(store_, tables, last_timestamp_, change));
  checkpointed_ = last_timestamp_;
  return Status::Ok();
}

}  // namespace

std::unique_ptr<EmbeddingService> EmbeddingService::Make(Store& store, MemoryBudget& budget,
                                                         uint64_t pool_bytes) {
  return std::make_unique<EmbeddingServiceImpl>(store, budget, pool_bytes);
}

}  // namespace quarry
