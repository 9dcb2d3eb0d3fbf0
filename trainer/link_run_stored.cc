// LinkRun stored: vectors in embedding tables of an open database.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "link_memory.h"
#include "link_state.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/trainer/link_run.h"
#include "run_settings.h"

namespace quarry {
namespace {

constexpr size_t kTables = 2;  // nodes, then relations

class StoredRun final : public LinkRun {
 public:
  StoredRun(Store& store, const LinkRunOptions& options, std::string settings)
      : LinkRun(options, std::move(settings)),
        store_(store),
        name_(options.keep ? options.name : options.name + "-scratch") {}
  ~StoredRun() override;

  Status Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkCounts& counts);

  LinkTables where() const override { return LinkTables::kStored; }
  EmbeddingTable& nodes() override { return tables_.front()->table(); }
  EmbeddingTable* relations() override { return tables_.size() > 1 ? &tables_[1]->table() : nullptr; }
  LinkRunStats stats() const override;

 private:
  std::string TableName(size_t i) const { return name_ + (i == 0 ? "-nodes" : "-relations"); }
  Status CheckStart();
  Status DropTables(bool checkpointed);
  Status MakeTables(std::span<const EmbeddingSpec> specs);
  Status OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
                    unsigned workers);
  Status ReadCheckpoint(const TrainingRecord& record, std::span<const EmbeddingSpec> specs,
                        uint64_t epoch_batches);
  Status CheckTables(std::span<const EmbeddingSpec> specs);
  Status Save(const LinkState& state) override;

  Store& store_;
  const std::string name_;                                 // the state's, and the prefix of the tables'
  std::vector<std::unique_ptr<StoredEmbeddings>> tables_;  // one for decoders without relations
};

StoredRun::~StoredRun() {
  tables_.clear();
  if (const Status status = DropTables(/*checkpointed=*/false); !status.ok()) {
    LogWarn("{}: tables of run \"{}\" are left behind: {}", store_.path(), name_, status.message());
  }
}

Status StoredRun::Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkCounts& counts) {
  QUARRY_RETURN_IF_ERROR(CheckStart());
  const std::vector<EmbeddingSpec> specs = LinkTableSpecs(train, counts);
  const bool resumes = options_.start == LinkRunOptions::Start::kResume;
  const TrainingRecord record = resumes ? *store_.manifest()->FindTraining(name_) : TrainingRecord();
  MemoryBudget::Reservation state_bytes;
  if (record.timestamp == kNeverWritten) {
    if (resumes) {  // its vectors are in its state
      QUARRY_RETURN_IF_ERROR(DropTables(/*checkpointed=*/false));
      QUARRY_TRY(state_bytes, budget.Reserve(record.file_bytes, "the vectors in the state of the run"));
    }
    QUARRY_RETURN_IF_ERROR(MakeTables(specs));
  }
  QUARRY_RETURN_IF_ERROR(OpenTables(budget, LinkWorkBytes(train, counts), specs, train.workers));
  return resumes ? ReadCheckpoint(record, specs, CeilDiv(counts.train_edges, train.batch_edges))
                 : Status::Ok();
}

// A checkpoint is removed only when the user says so.
Status StoredRun::CheckStart() {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TrainingRecord* const record = manifest->FindTraining(name_);
  switch (options_.start) {
    case LinkRunOptions::Start::kResume:
      return record == nullptr ? ReadTrainingState(store_, name_).status()  // says what there is
                               : CheckSettings(name_, record->settings, settings_);
    case LinkRunOptions::Start::kOverwrite:
      if (record != nullptr) QUARRY_RETURN_IF_ERROR(DropTraining(store_, name_));
      return DropTables(/*checkpointed=*/true);
    case LinkRunOptions::Start::kNew:
      break;
  }
  const EmbeddingRecord* table = nullptr;
  for (size_t i = 0; i < kTables && table == nullptr; i++) {
    table = manifest->FindEmbedding(TableName(i));
    if (table != nullptr && table->timestamp == kNeverWritten) table = nullptr;
  }
  if (record == nullptr && table == nullptr) return DropTables(/*checkpointed=*/false);
  return MakeStatus(Code::kAlreadyExists,
                    "{}: {} \"{}\" has a checkpoint: --resume goes on from that of a run, --overwrite begins "
                    "anew, --run gives this training another name",
                    store_.path(), record != nullptr ? "run" : "embedding table",
                    record != nullptr ? record->name : table->name);
}

// Those without a checkpoint, which crashes leave; or, `checkpointed`, all.
Status StoredRun::DropTables(bool checkpointed) {
  for (size_t i = 0; i < kTables; i++) {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const EmbeddingRecord* const table = manifest->FindEmbedding(TableName(i));
    if (table == nullptr || (table->timestamp != kNeverWritten && !checkpointed)) continue;
    QUARRY_RETURN_IF_ERROR(DropEmbeddings(store_, table->name));
  }
  return Status::Ok();
}

Status StoredRun::MakeTables(std::span<const EmbeddingSpec> specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store_, TableName(i), specs[i], SmallestPageBytes(specs[i])));
  }
  return Status::Ok();
}

Status StoredRun::OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
                             unsigned workers) {
  uint64_t least_bytes = 0;
  for (const EmbeddingSpec& spec : specs) least_bytes += StoredPoolBytes(spec, workers).least;
  // For a moment, so that a budget that is too small says what would do.
  QUARRY_RETURN_IF_ERROR(budget.Reserve(work_bytes + least_bytes, "batches and buffer pools").status());
  tables_.resize(specs.size());
  const uint64_t used_bytes = budget.used_bytes();
  // Few relations are used by every batch: their pool comes first.
  for (size_t i = specs.size(); i-- > 0;) {
    const PoolBytes bytes = StoredPoolBytes(specs[i], workers);
    least_bytes -= bytes.least;
    const uint64_t room = budget.available_bytes() - work_bytes - least_bytes;
    QUARRY_TRY(tables_[i], StoredEmbeddings::Open(store_, budget, TableName(i),
                                                  {.memory_bytes = std::min(bytes.most, room)}));
  }
  stats_.pool_bytes = budget.used_bytes() - used_bytes;
  return Status::Ok();
}

// The place of the last checkpoint, after the tables are open as it left them; or with its vectors, which
// then become those of tables.
Status StoredRun::ReadCheckpoint(const TrainingRecord& record, std::span<const EmbeddingSpec> specs,
                                 uint64_t epoch_batches) {
  const bool in_state = record.timestamp == kNeverWritten;
  std::vector<EmbeddingTable*> tables;
  for (const auto& table : tables_) {
    if (in_state) tables.push_back(&table->table());
  }
  last_.timestamp = record.timestamp;
  QUARRY_TRY(const std::vector<std::byte> state, ReadTrainingState(store_, name_));
  Status status = DecodeLinkState(state, last_, tables);
  if (status.ok()) status = CheckPlace(last_, epoch_batches);
  if (status.ok() && !in_state) status = CheckTables(specs);
  if (!status.ok()) {
    return MakeStatus(status.code(), "{}/{}: {}; --overwrite begins the run anew", store_.path(), record.file,
                      status.message());
  }
  LogResumed(record, epoch_batches);
  return in_state ? Checkpoint(last_) : Status::Ok();
}

Status StoredRun::CheckTables(std::span<const EmbeddingSpec> specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    const EmbeddingSpec& spec = tables_[i]->table().spec();
    if (tables_[i]->timestamp() == last_.timestamp && spec.row_count == specs[i].row_count &&
        spec.dim == specs[i].dim && spec.optimizer == specs[i].optimizer) {
      continue;
    }
    return MakeStatus(Code::kInvalidArgument, "timestamp {} is not the checkpoint of table \"{}\"",
                      last_.timestamp, TableName(i));
  }
  return Status::Ok();
}

Status StoredRun::Save(const LinkState& state) {
  QUARRY_TRY(const std::vector<std::byte> bytes, EncodeLinkState(state, {}));
  std::vector<StoredEmbeddings*> tables;
  for (const auto& table : tables_) tables.push_back(table.get());
  return CheckpointTraining(
      store_,
      {.name = name_,
       .settings = settings_,
       .config = options_.config,
       .timestamp = state.timestamp,
       .state = bytes},
      [&](const ManifestChange& change) { return CheckpointAll(store_, tables, state.timestamp, change); });
}

LinkRunStats StoredRun::stats() const {
  LinkRunStats stats = stats_;
  for (const auto& table : tables_) {
    const BufferPoolStats pool = table->stats();
    stats.pools.hits += pool.hits;
    stats.pools.misses += pool.misses;
    stats.pools.evictions += pool.evictions;
    stats.pools.pages_read += pool.pages_read;
    stats.pools.pages_written += pool.pages_written;
    stats.pools.dirty_pages += pool.dirty_pages;
    stats.pools.read_wait_seconds += pool.read_wait_seconds;
    stats.pools.frame_wait_seconds += pool.frame_wait_seconds;
  }
  return stats;
}

}  // namespace

Result<std::unique_ptr<LinkRun>> LinkRun::Open(Store& store, MemoryBudget& budget, const LinkData& data,
                                               const LinkTrainOptions& train, const LinkRunOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(train));
  QUARRY_RETURN_IF_ERROR(CheckTrainingName(options.name));
  auto run = std::make_unique<StoredRun>(store, options, LinkSettings(data, train));
  QUARRY_RETURN_IF_ERROR(run->Start(budget, train, CountsOf(data)));
  return std::unique_ptr<LinkRun>(std::move(run));
}

}  // namespace quarry
