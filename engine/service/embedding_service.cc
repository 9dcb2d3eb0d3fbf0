#include "quarry/service/embedding_service.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

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

}  // namespace

// An update, checked, with its table.
struct EmbeddingService::Change {
  std::shared_ptr<EmbeddingTable> table;
  wire::RowBlockArrays<false> rows;
};

EmbeddingService::EmbeddingService(Store& store, MemoryBudget& budget, uint64_t pool_bytes)
    : store_(store), budget_(budget), pool_bytes_(pool_bytes) {
  const std::shared_ptr<const Manifest> manifest = store.manifest();
  for (const EmbeddingRecord& record : manifest->embeddings) {
    last_timestamp_ = std::max(last_timestamp_, record.timestamp);
  }
  checkpointed_ = last_timestamp_;
}

EmbeddingService::~EmbeddingService() = default;

Status EmbeddingService::Create(std::string_view table, const EmbeddingSpec& spec) {
  MutexLock lock(tables_mutex_);
  return CreateEmbeddings(store_, table, spec, SmallestPageBytes(spec));
}

Status EmbeddingService::Drop(std::string_view table) {
  MutexLock commits(commits_);  // no checkpoint is under way
  MutexLock lock(tables_mutex_);
  const auto open = tables_.find(table);
  if (open != tables_.end()) {
    // Whoever reads or commits has a share, and nobody takes another one meanwhile.
    if (open->second.use_count() > 1) {
      return MakeStatus(Code::kBusy, "embedding table \"{}\" is read or written just now: drop it afterwards",
                        table);
    }
    tables_.erase(open);
  }
  return DropEmbeddings(store_, table);
}

Result<EmbeddingSpec> EmbeddingService::Spec(std::string_view table) {
  QUARRY_TRY(const std::shared_ptr<EmbeddingTable> opened, Find(table));
  return opened->spec();
}

Result<std::shared_ptr<EmbeddingTable>> EmbeddingService::Find(std::string_view name) {
  MutexLock lock(tables_mutex_);
  auto open = tables_.find(name);
  if (open == tables_.end()) {
    const uint64_t memory_bytes = std::min(pool_bytes_, budget_.available_bytes());
    QUARRY_TRY(std::shared_ptr<StoredEmbeddings> opened,
               StoredEmbeddings::Open(store_, budget_, name, {.memory_bytes = memory_bytes}));
    open = tables_.emplace(name, std::move(opened)).first;
  }
  return std::shared_ptr<EmbeddingTable>(open->second, &open->second->table());
}

Status EmbeddingService::Read(std::string_view table, std::span<const uint64_t> ids,
                              const wire::RowBlockArrays<true>& block) {
  QUARRY_TRY(const std::shared_ptr<EmbeddingTable> opened, Find(table));
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

Result<EmbeddingService::Change> EmbeddingService::Check(const Update& update) {
  QUARRY_TRY(std::shared_ptr<EmbeddingTable> table, Find(update.table));
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
  return Change{std::move(table), rows};
}

Result<uint64_t> EmbeddingService::StaleRows(const Change& change) {
  uint64_t stale = 0;
  for (Pieces pieces(change.table->spec(), change.rows.ids.size()); pieces.Next(change.rows.ids);) {
    QUARRY_RETURN_IF_ERROR(change.table->Read(pieces.block));
    const std::span<const int64_t> read = pieces.Of(change.rows.timestamps, 1);
    for (size_t i = 0; i < read.size(); ++i) stale += read[i] != pieces.block.timestamps[i] ? 1 : 0;
  }
  return stale;
}

Status EmbeddingService::Write(const Change& change, int64_t timestamp) {
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

Result<wire::EmbeddingsCommitted> EmbeddingService::Commit(std::span<const Update> updates) {
  const ScopedSpan span("commit embeddings");
  std::vector<Change> changes;
  for (const Update& update : updates) {
    QUARRY_TRY(Change change, Check(update));
    const auto named = [&](const Change& other) { return other.table == change.table; };
    if (std::ranges::any_of(changes, named)) {
      return MakeStatus(Code::kInvalidArgument, "embedding table \"{}\" is updated twice in one commit",
                        update.table);
    }
    changes.push_back(std::move(change));
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

Status EmbeddingService::Checkpoint(const std::function<Status(Manifest&, int64_t)>& also) {
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

Status EmbeddingService::HoldStill(const std::function<Status()>& work) {
  MutexLock lock(commits_);
  return work();
}

}  // namespace quarry
