// LinkRun stored: vectors in embedding tables of an open database.
#include <algorithm>
#include <charconv>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "link_memory.h"
#include "link_state.h"
#include "quarry/base/log.h"
#include "quarry/base/units.h"
#include "quarry/embedding/embedding_store.h"
#include "quarry/storage/run_tables.h"
#include "quarry/trainer/link_run.h"
#include "run_settings.h"

namespace quarry {
namespace {

// What a page file knows of a page, with its slots; and a piece of its map.
constexpr uint64_t kPageMapBytes = 80, kMapBytes = kMiB;
// What the tables of a run may be called.

// The parts are those of one build: another has other ids.
std::string RoadSettings(const StoredPartitioning& partitioning, const PartitionedRoadOptions& road) {
  return fmt::format(" --road partitioned --partitioning {} --partition-order {} --buffer {} --logical {}",
                     partitioning.record().directory, PartitionOrderName(road.order), road.buffer,
                     road.logical);
}

// What is left to tuning, a run that goes on has from its checkpoint, whatever memory there is now.
void TakeTuned(std::string_view settings, std::string_view option, uint32_t& value) {
  const std::string_view stored = SettingIn(settings, option);
  if (value == 0) std::from_chars(stored.data(), stored.data() + stored.size(), value);
}

class StoredRun final : public LinkRun {
 public:
  StoredRun(Store& store, const LinkRunOptions& options, std::string settings)
      : LinkRun(options, std::move(settings)),
        store_(store),
        plain_settings_(settings_),
        road_options_(options.road),
        name_(options.keep ? options.name : options.name + "-scratch") {}
  ~StoredRun() override;

  Status Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkData& data);

  LinkTables where() const override { return LinkTables::kStored; }
  EmbeddingTable& nodes() override { return tables_.front()->table(); }
  EmbeddingTable* relations() override { return tables_.size() > 1 ? &tables_[1]->table() : nullptr; }
  PartitionedRoad* road() override { return road_.get(); }
  // Whoever opens a table removes what a crash leaves there.
  std::string scratch_folder() const override { return store_.path() + "/embeddings"; }
  IoBackend* backend() const override { return &store_.backend(); }
  Status ReturnToBest(MemoryBudget& budget, const LinkData& data, const LinkTrainOptions& train,
                      uint32_t validations) override;
  LinkRunStats stats() const override;

 private:
  bool partitioned() const { return options_.partitioning != nullptr; }
  std::string TableName(size_t i) const {
    return fmt::format("{}{}", name_, kRunTableEnds[i == 1 ? 2 : partitioned() ? 1 : 0]);
  }
  Status CheckStart();
  enum class Drop : uint8_t { kWithoutCheckpoint, kHalfMade, kAll };
  Status DropTables(Drop which);
  Status MakeTables(std::span<const EmbeddingSpec> specs);
  // Data of one run with its parts, if it has any.
  LinkCounts Counts(const LinkData& data) const {
    LinkCounts counts = CountsOf(data);
    if (partitioned()) counts.parts = &options_.partitioning->directory();
    return counts;
  }
  Status OpenAll(MemoryBudget& budget, const LinkTrainOptions& train, const LinkCounts& counts);
  Status OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
                    unsigned workers);
  Status OpenParts(MemoryBudget& budget, uint64_t work_bytes, const LinkTrainOptions& train);
  Status CheckPlaceOnRoad(const LinkState& state, uint64_t& epoch_batches) const;
  Status CheckPlaces(uint64_t& epoch_batches) const;
  Status ReadCheckpoint(const TrainingRecord& record, std::span<const EmbeddingSpec> specs,
                        uint64_t epoch_batches, bool keeps_best);
  Status TakeBest(const LinkRunParts& parts, std::span<EmbeddingTable* const> tables);
  Status CheckTables(std::span<const EmbeddingSpec> specs);
  Status CheckpointTables(int64_t timestamp, const ManifestChange& change, KeptMap kept);
  Status Save(const LinkState& state, const LinkBest* best) override;

  Store& store_;
  const std::string plain_settings_;                       // without the road's
  PartitionedRoadOptions road_options_;                    // tuned once the road is open
  const std::string name_;                                 // the state's, and the prefix of the tables'
  std::vector<std::unique_ptr<StoredEmbeddings>> tables_;  // one for decoders without relations
  PartLayout layout_;                                      // of a partitioned run's nodes
  std::unique_ptr<PartitionedRoad> road_;
};

StoredRun::~StoredRun() {
  road_.reset();
  tables_.clear();
  if (const Status status = DropTables(Drop::kWithoutCheckpoint); !status.ok()) {
    LogWarn("{}: tables of run \"{}\" are left behind: {}", store_.path(), name_, status.message());
  }
}

Status StoredRun::Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkData& data) {
  QUARRY_RETURN_IF_ERROR(CheckStart());
  const LinkCounts counts = Counts(data);
  const std::vector<EmbeddingSpec> specs = LinkTableSpecs(train, counts);
  if (partitioned()) {
    QUARRY_TRY(layout_, LayOutParts(specs[0], options_.partitioning->directory().part_starts));
  }
  const bool resumes = options_.start == LinkRunOptions::Start::kResume;
  const TrainingRecord record = resumes ? *store_.manifest()->FindTraining(name_) : TrainingRecord();
  MemoryBudget::Reservation state_bytes;
  if (record.timestamp == kNeverWritten) {
    if (resumes) {  // its vectors are in its state
      QUARRY_RETURN_IF_ERROR(DropTables(Drop::kHalfMade));
      QUARRY_TRY(state_bytes, budget.Reserve(record.file_bytes, "the vectors in the state of the run"));
    }
    QUARRY_RETURN_IF_ERROR(MakeTables(specs));
  }
  QUARRY_RETURN_IF_ERROR(OpenAll(budget, train, counts));
  if (!resumes) return Status::Ok();
  return ReadCheckpoint(record, specs, CeilDiv(counts.train_edges, train.batch_edges), train.patience > 0);
}

// A checkpoint is removed only when the user says so.
Status StoredRun::CheckStart() {
  const std::shared_ptr<const Manifest> manifest = store_.manifest();
  const TrainingRecord* const record = manifest->FindTraining(name_);
  if (partitioned()) {
    if (options_.start == LinkRunOptions::Start::kResume && record != nullptr) {
      TakeTuned(record->settings, "--buffer", road_options_.buffer);
      TakeTuned(record->settings, "--logical", road_options_.logical);
    }
    settings_ = plain_settings_ + RoadSettings(*options_.partitioning, road_options_);
  }
  switch (options_.start) {
    case LinkRunOptions::Start::kResume:
      return record == nullptr ? ReadTrainingState(store_, name_).status()  // says what there is
                               : CheckSettings(name_, record->settings, settings_);
    case LinkRunOptions::Start::kOverwrite:
      if (record != nullptr) QUARRY_RETURN_IF_ERROR(DropTraining(store_, name_));
      return DropTables(Drop::kAll);
    case LinkRunOptions::Start::kNew:
      break;
  }
  const EmbeddingRecord* table = nullptr;
  for (const std::string_view end : kRunTableEnds) {
    if (table != nullptr) break;
    table = manifest->FindEmbedding(fmt::format("{}{}", name_, end));
    if (table != nullptr && table->timestamp == kNeverWritten) table = nullptr;
  }
  if (record == nullptr && table == nullptr) return DropTables(Drop::kWithoutCheckpoint);
  return MakeStatus(Code::kAlreadyExists,
                    "{}: {} \"{}\" has a checkpoint: --resume goes on from that of a run, --overwrite begins "
                    "anew, --run gives this training another name",
                    store_.path(), record != nullptr ? "run" : "embedding table",
                    record != nullptr ? record->name : table->name);
}

// Those without a checkpoint, which crashes leave; beside a state with vectors also those that were being made of it, which
// have the best's alone; or all.
Status StoredRun::DropTables(Drop which) {
  for (const std::string_view end : kRunTableEnds) {
    const std::shared_ptr<const Manifest> manifest = store_.manifest();
    const EmbeddingRecord* const table = manifest->FindEmbedding(fmt::format("{}{}", name_, end));
    if (table == nullptr) continue;
    const bool half_made = which == Drop::kHalfMade && !table->kept_map_file.empty();
    if (which != Drop::kAll && !half_made && table->timestamp != kNeverWritten) continue;
    QUARRY_RETURN_IF_ERROR(DropEmbeddings(store_, table->name));
  }
  return Status::Ok();
}

Status StoredRun::MakeTables(std::span<const EmbeddingSpec> specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    const bool parts = partitioned() && i == 0;
    QUARRY_RETURN_IF_ERROR(CreateEmbeddings(store_, TableName(i), parts ? layout_.file_spec() : specs[i],
                                            parts ? layout_.page_bytes : SmallestPageBytes(specs[i])));
  }
  return Status::Ok();
}

Status StoredRun::OpenAll(MemoryBudget& budget, const LinkTrainOptions& train, const LinkCounts& counts) {
  const uint64_t work_bytes = LinkWorkBytes(train, counts);
  QUARRY_RETURN_IF_ERROR(OpenTables(budget, work_bytes, LinkTableSpecs(train, counts), train.workers));
  return partitioned() ? OpenParts(budget, work_bytes, train) : Status::Ok();
}

Status StoredRun::ReturnToBest(MemoryBudget& budget, const LinkData& data, const LinkTrainOptions& train,
                               uint32_t validations) {
  std::vector<std::string> names;
  for (size_t i = 0; i < tables_.size(); i++) names.push_back(TableName(i));
  stats_ = stats();  // those of the tables end with them
  road_.reset();
  tables_.clear();
  last_ = std::move(best_->state);
  best_.reset();
  last_.place.validations_behind = validations;
  QUARRY_TRY(const std::vector<std::byte> bytes, EncodeLinkState(last_, {}, /*in_state=*/false));
  QUARRY_RETURN_IF_ERROR(
      CheckpointTraining(store_,
                         {.name = name_,
                          .settings = settings_,
                          .config = options_.config,
                          .timestamp = last_.timestamp,
                          .state = bytes},
                         [&](const ManifestChange& change) { return ReturnToKept(store_, names, change); }));
  return OpenAll(budget, train, Counts(data));
}

// All but those that lie in parts.
Status StoredRun::OpenTables(MemoryBudget& budget, uint64_t work_bytes, std::span<const EmbeddingSpec> specs,
                             unsigned workers) {
  const size_t first = partitioned() ? 1 : 0;
  uint64_t least_bytes = 0;
  for (const EmbeddingSpec& spec : specs.subspan(first)) least_bytes += StoredPoolBytes(spec, workers).least;
  // For a moment, so that a budget that is too small says what would do.
  QUARRY_RETURN_IF_ERROR(budget.Reserve(work_bytes + least_bytes, "batches and buffer pools").status());
  tables_.resize(specs.size());
  const uint64_t used_bytes = budget.used_bytes();
  // Few relations are used by every batch: their pool comes first.
  for (size_t i = specs.size(); i-- > first;) {
    const PoolBytes bytes = StoredPoolBytes(specs[i], workers);
    least_bytes -= bytes.least;
    const uint64_t room = budget.available_bytes() - work_bytes - least_bytes;
    QUARRY_TRY(tables_[i], StoredEmbeddings::Open(store_, budget, TableName(i),
                                                  {.memory_bytes = std::min(bytes.most, room)}));
  }
  stats_.pool_bytes = budget.used_bytes() - used_bytes;
  return Status::Ok();
}

// The nodes' vectors, and the road that brings them.
Status StoredRun::OpenParts(MemoryBudget& budget, uint64_t work_bytes, const LinkTrainOptions& train) {
  const PartitionDirectory& directory = options_.partitioning->directory();
  const uint64_t used_bytes = budget.used_bytes();
  const uint64_t frame_bytes = PartedTable::Bytes(layout_, 2) - PartedTable::Bytes(layout_, 1);
  const uint64_t pages = uint64_t{layout_.parts()} * layout_.pages_per_part();
  work_bytes += PartedTable::Bytes(layout_, 0) + kPageMapBytes * pages + kMapBytes;
  const uint64_t room = budget.available_bytes() - std::min(budget.available_bytes(), work_bytes);
  QUARRY_TRY(road_options_, TuneRoad(directory, road_options_, frame_bytes, room));
  const PartitionedRoadOptions& road = road_options_;
  settings_ = plain_settings_ + RoadSettings(*options_.partitioning, road);
  QUARRY_TRY(tables_[0],
             StoredEmbeddings::OpenParts(store_, budget, TableName(0), layout_, RoadFrames(directory, road)));
  QUARRY_TRY(road_, PartitionedRoad::Make(*options_.partitioning, store_.backend(), budget,
                                          tables_[0]->parts(), road, train.seed, train.batch_edges));
  stats_.pool_bytes += budget.used_bytes() - used_bytes;
  LogInfo("partitioned road: {} of {} parts are held, {} logical ones, order {}", road.buffer,
          directory.parts(), road.logical, PartitionOrderName(road.order));
  return Status::Ok();
}

// The place of the last checkpoint, after the tables are open as it left them; or with its vectors, which
// then become those of tables.
Status StoredRun::ReadCheckpoint(const TrainingRecord& record, std::span<const EmbeddingSpec> specs,
                                 uint64_t epoch_batches, bool keeps_best) {
  const bool in_state = record.timestamp == kNeverWritten;
  std::vector<EmbeddingTable*> tables;
  for (const auto& table : tables_) {
    if (in_state) tables.push_back(&table->table());
  }
  last_.timestamp = record.timestamp;
  QUARRY_TRY(const std::vector<std::byte> state, ReadTrainingState(store_, name_));
  const Result<LinkRunParts> parts = SplitLinkRun(state);
  Status status = parts.status();
  if (status.ok() && parts->valid && keeps_best) status = TakeBest(*parts, tables);
  // The best's rows, in these tables already, are older.
  if (status.ok()) status = DecodeLinkState(parts->last, last_, tables, in_state);
  if (status.ok() && best_ && parts->best.empty()) best_->state = last_;
  if (status.ok()) status = CheckPlaces(epoch_batches);
  if (status.ok() && !in_state) status = CheckTables(specs);
  if (!status.ok()) {
    return MakeStatus(status.code(), "{}/{}: {}; --overwrite begins the run anew", store_.path(), record.file,
                      status.message());
  }
  LogResumed(record, epoch_batches);
  return in_state ? Checkpoint(last_) : Status::Ok();
}

// The best's part of a state. Vectors that it has become the kept checkpoint of the tables, before there is one of the run:
// until then its record is that of the state.
Status StoredRun::TakeBest(const LinkRunParts& parts, std::span<EmbeddingTable* const> tables) {
  best_ = LinkBest{.valid = *parts.valid};
  if (tables.empty()) best_->state.timestamp = tables_.front()->record().kept_timestamp;
  if (parts.best.empty()) return Status::Ok();
  QUARRY_RETURN_IF_ERROR(DecodeLinkState(parts.best, best_->state, tables, !tables.empty()));
  return tables.empty() ? Status::Ok() : CheckpointTables(best_->state.timestamp, {}, KeptMap::kThis);
}

Status StoredRun::CheckPlaces(uint64_t& epoch_batches) const {
  if (best_) {
    uint64_t batches = epoch_batches;
    QUARRY_RETURN_IF_ERROR(road_ ? CheckPlaceOnRoad(best_->state, batches)
                                 : CheckPlace(best_->state, batches));
  }
  return road_ ? CheckPlaceOnRoad(last_, epoch_batches) : CheckPlace(last_, epoch_batches);
}

// Sets the batches of the place's epoch. An epoch has at least one, so no state can name an epoch that it takes
// long to count up to.
Status StoredRun::CheckPlaceOnRoad(const LinkState& state, uint64_t& epoch_batches) const {
  const uint32_t epoch = state.place.epoch;
  if (epoch == 0 || int64_t{epoch} > state.timestamp + 2) return CheckPlace(state, 0, 0);
  QUARRY_TRY(const uint64_t before, road_->BatchesBefore(epoch));
  QUARRY_TRY(epoch_batches, road_->BatchesOf(epoch));
  return CheckPlace(state, before, epoch_batches);
}

Status StoredRun::CheckTables(std::span<const EmbeddingSpec> specs) {
  for (size_t i = 0; i < specs.size(); i++) {
    const EmbeddingSpec& spec = tables_[i]->table().spec();
    const EmbeddingRecord& record = tables_[i]->record();
    const bool keeps_best =
        !best_ || (!record.kept_map_file.empty() && record.kept_timestamp == best_->state.timestamp);
    if (keeps_best && tables_[i]->timestamp() == last_.timestamp && spec.row_count == specs[i].row_count &&
        spec.dim == specs[i].dim && spec.optimizer == specs[i].optimizer) {
      continue;
    }
    return MakeStatus(Code::kInvalidArgument, "timestamp {} is not the checkpoint of table \"{}\"",
                      last_.timestamp, TableName(i));
  }
  return Status::Ok();
}

Status StoredRun::CheckpointTables(int64_t timestamp, const ManifestChange& change, KeptMap kept) {
  std::vector<StoredEmbeddings*> tables;
  for (const auto& table : tables_) tables.push_back(table.get());
  return CheckpointAll(store_, tables, timestamp, change, kept);
}

Status StoredRun::Save(const LinkState& state, const LinkBest* best) {
  const bool is_best = best != nullptr && best->state.timestamp == state.timestamp;
  std::vector<std::byte> best_bytes;
  if (best != nullptr && !is_best) {
    QUARRY_TRY(best_bytes, EncodeLinkState(best->state, {}, /*in_state=*/false));
  }
  QUARRY_TRY(const std::vector<std::byte> bytes,
             best == nullptr ? EncodeLinkState(state, {}, /*in_state=*/false)
                             : EncodeLinkRun(state, {}, /*in_state=*/false, best->valid, best_bytes));
  const KeptMap kept = best == nullptr ? KeptMap::kNone : is_best ? KeptMap::kThis : KeptMap::kAsBefore;
  return CheckpointTraining(
      store_,
      {.name = name_,
       .settings = settings_,
       .config = options_.config,
       .timestamp = state.timestamp,
       .state = bytes},
      [&](const ManifestChange& change) { return CheckpointTables(state.timestamp, change, kept); });
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
  if (train.feature_dim > 0) {
    return Status(Code::kUsage, "features are in no table of vectors: their run is kept in its state alone");
  }
  QUARRY_RETURN_IF_ERROR(CheckTrainingName(options.name));
  auto run = std::make_unique<StoredRun>(store, options, LinkSettings(data, train));
  QUARRY_RETURN_IF_ERROR(run->Start(budget, train, data));
  return std::unique_ptr<LinkRun>(std::move(run));
}

}  // namespace quarry
