#include "quarry/trainer/link_run.h"

#include <algorithm>
#include <utility>

#include "link_memory.h"
#include "quarry/base/log.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/storage/training_state.h"
#include "run_settings.h"
#include "state_bytes.h"

namespace quarry {
namespace {

constexpr uint32_t kLinkTask = 2;
constexpr uint32_t kVersion = 1;

std::string_view OptimizerName(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return "sgd";
    case OptimizerKind::kAdagrad:
      return "adagrad";
    case OptimizerKind::kAdam:
      return "adam";
  }
  return "";
}

std::string EncoderSettings(const LinkTrainOptions& train) {
  if (train.encoder_fanouts.empty()) return "--encoder none";
  return fmt::format("--encoder sage --fanout {} --encoder-lr {}", fmt::join(train.encoder_fanouts, ","),
                     train.encoder_learning_rate);
}

// All that decides what is learned. How it is learned (mode, threads, memory), how long and how often it is
// validated may change from checkpoint to checkpoint.
std::string SettingsOf(const LinkData& data, const LinkTrainOptions& train) {
  return fmt::format(
      "--task link --decoder {} {} --dim {} --loss {} --margin {} --negatives {} --chunk {} --degree-share "
      "{} --batch-size {} --optimizer {} --lr {} --valid-share {} --test-share {} --seed {}",
      DecoderName(train.spec.decoder), EncoderSettings(train), train.spec.dim, LinkLossName(train.spec.loss),
      train.spec.margin, train.negatives, train.chunk_edges, train.degree_share, train.batch_edges,
      OptimizerName(train.optimizer), train.optimizer_options.learning_rate, data.held_out.valid,
      data.held_out.test, train.seed);
}

std::vector<std::byte> EncodeState(const LinkPlace& place, std::span<const std::byte> task_state) {
  StateWriter writer;
  writer.Put(kLinkTask);
  writer.Put(kVersion);
  writer.Put(place.epoch);
  writer.Put(place.batches);
  writer.Put(place.loss);
  writer.Put(place.best_mrr);
  writer.Put(place.validations_since_best);
  writer.PutBytes(task_state);
  return writer.Take();
}

Status DecodeState(std::span<const std::byte> bytes, LinkPlace& place, std::vector<std::byte>& task_state) {
  StateReader reader(bytes);
  const auto task = reader.Get<uint32_t>();
  const auto version = reader.Get<uint32_t>();
  QUARRY_RETURN_IF_ERROR(reader.status());
  if (task != kLinkTask) {
    return MakeStatus(Code::kInvalidArgument, "the state is of task {}, not of link prediction ({})", task,
                      kLinkTask);
  }
  if (version != kVersion) {
    return MakeStatus(Code::kUnsupported, "the state has version {}; this Quarry reads version {}", version,
                      kVersion);
  }
  place.epoch = reader.Get<uint32_t>();
  place.batches = reader.Get<uint64_t>();
  place.loss = reader.Get<double>();
  place.best_mrr = reader.Get<double>();
  place.validations_since_best = reader.Get<uint32_t>();
  task_state.assign(reader.rest().begin(), reader.rest().end());
  return reader.status();
}

std::vector<EmbeddingSpec> TableSpecs(const LinkData& data, const LinkTrainOptions& train) {
  std::vector<EmbeddingSpec> specs{NodeTableSpec(train, data.node_count)};
  if (train.spec.relation_dim() > 0) specs.push_back(RelationTableSpec(train, data.relation_count));
  return specs;
}

// Of the batches up to this place.
int64_t TimestampOf(const LinkPlace& place, uint64_t epoch_batches) {
  return static_cast<int64_t>((place.epoch - 1) * epoch_batches + place.batches) - 1;
}

}  // namespace

LinkRun::LinkRun(Store& store, const LinkRunOptions& options, std::string settings)
    : store_(store),
      options_(options),
      name_(options.keep ? options.name : options.name + "-scratch"),
      settings_(std::move(settings)) {}

LinkRun::~LinkRun() {
  tables_.clear();
  if (const Status status = DropTables(/*checkpointed=*/false); !status.ok()) {
    LogWarn("{}: tables of run \"{}\" are left behind: {}", store_.path(), name_, status.message());
  }
}

Result<std::unique_ptr<LinkRun>> LinkRun::Open(Store& store, MemoryBudget& budget, const LinkData& data,
                                               const LinkTrainOptions& train, const LinkRunOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(train));
  QUARRY_RETURN_IF_ERROR(CheckTrainingName(options.name));
  std::unique_ptr<LinkRun> run(new LinkRun(store, options, SettingsOf(data, train)));
  const std::vector<EmbeddingSpec> specs = TableSpecs(data, train);
  QUARRY_RETURN_IF_ERROR(run->CheckStart());
  if (options.start != LinkRunOptions::Start::kResume) QUARRY_RETURN_IF_ERROR(run->MakeTables(specs));
  QUARRY_RETURN_IF_ERROR(run->OpenTables(budget, LinkWorkBytes(train, CountsOf(data)), specs, train.workers));
  if (options.start == LinkRunOptions::Start::kResume) {
    QUARRY_RETURN_IF_ERROR(run->ReadCheckpoint(specs, CeilDiv(data.train.size(), train.batch_edges)));
  }
  return run;
}

std::string LinkRun::TableName(size_t i) const { return name_ + (i == 0 ? "-nodes" : "-relations"); }

// A checkpoint is removed only when the user says so.
Status LinkRun::CheckStart() {
  const TrainingRecord* const record = store_.manifest().FindTraining(name_);
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
    table = store_.manifest().FindEmbedding(TableName(i));
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
Status LinkRun::DropTables(bool checkpointed) {
  for (size_t i = 0; i < kTables; i++) {
    const EmbeddingRecord* const table = store_.manifest().FindEmbedding(TableName(i));
    if (table == nullptr || (table->timestamp != kNeverWritten && !checkpointed)) continue;
    QUARRY_RETURN_IF_ERROR(DropEmbeddings(store_, table->name));
  }
  return Status::Ok();
}

Status LinkRun::MakeTables(std::span<const EmbeddingSpec> specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store_, TableName(i), specs[i], StoredPageBytes(specs[i])));
  }
  return Status::Ok();
}

Status LinkRun::OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
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
  pool_bytes_ = budget.used_bytes() - used_bytes;
  return Status::Ok();
}

// The place of the last checkpoint, after the tables are open as it left them.
Status LinkRun::ReadCheckpoint(std::span<const EmbeddingSpec> specs, uint64_t epoch_batches) {
  const TrainingRecord& record = *store_.manifest().FindTraining(name_);
  QUARRY_TRY(const std::vector<std::byte> state, ReadTrainingState(store_, name_));
  if (const Status status = DecodeState(state, place_, task_state_); !status.ok()) {
    return MakeStatus(status.code(), "{}/{}: {}; --overwrite begins the run anew", store_.path(), record.file,
                      status.message());
  }
  bool fits = place_.epoch > 0 && place_.batches <= epoch_batches &&
              record.timestamp == TimestampOf(place_, epoch_batches);
  for (size_t i = 0; i < specs.size(); i++) {
    const EmbeddingSpec& spec = tables_[i]->table().spec();
    fits = fits && tables_[i]->timestamp() == record.timestamp && spec.row_count == specs[i].row_count &&
           spec.dim == specs[i].dim && spec.optimizer == specs[i].optimizer;
  }
  if (!fits) {
    return MakeStatus(Code::kInvalidArgument,
                      "{}/{}: batch {} of epoch {} at timestamp {} is no place in this training, or not the "
                      "checkpoint of its tables: --overwrite begins the run anew",
                      store_.path(), record.file, place_.batches, place_.epoch, record.timestamp);
  }
  LogInfo("run \"{}\" goes on from batch {} of {} of epoch {} (checkpoint of {})", name_, place_.batches,
          epoch_batches, place_.epoch, record.created_utc);
  return Status::Ok();
}

uint64_t LinkRun::BatchesToCheckpoint(uint64_t batches) const {
  if (!options_.keep || options_.checkpoint_every == 0) return UINT64_MAX;
  return options_.checkpoint_every - batches % options_.checkpoint_every;
}

Status LinkRun::Checkpoint(const LinkPlace& place, std::vector<std::byte> task_state, int64_t timestamp) {
  const double start = MonotonicSeconds();
  const std::vector<std::byte> state = EncodeState(place, task_state);
  std::vector<StoredEmbeddings*> tables;
  for (const auto& table : tables_) tables.push_back(table.get());
  QUARRY_RETURN_IF_ERROR(CheckpointTraining(
      store_, {.name = name_, .settings = settings_, .timestamp = timestamp, .state = state},
      [&](const ManifestChange& change) { return CheckpointAll(store_, tables, timestamp, change); }));
  place_ = place;
  task_state_ = std::move(task_state);
  checkpoints_++;
  checkpoint_seconds_ += MonotonicSeconds() - start;
  return Status::Ok();
}

Status LinkRun::Explain(const Status& cancelled) const {
  if (!options_.keep) return cancelled;
  const std::string what =
      timestamp() == kNeverWritten
          ? std::string("there is no checkpoint of this training yet")
          : fmt::format("--resume goes on behind batch {} of epoch {}", place_.batches, place_.epoch);
  return MakeStatus(cancelled.code(), "{}; {}", cancelled.message(), what);
}

LinkRunStats LinkRun::stats() const {
  LinkRunStats stats{
      .pool_bytes = pool_bytes_, .checkpoints = checkpoints_, .checkpoint_seconds = checkpoint_seconds_};
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

}  // namespace quarry
