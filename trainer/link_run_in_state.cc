// LinkRun in state: vectors in memory, and checkpoints that have them.
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fixed_rows.h"
#include "link_memory.h"
#include "link_state.h"
#include "quarry/base/units.h"
#include "quarry/trainer/link_run.h"
#include "quarry/trainer/train.h"

namespace quarry {
namespace {

class RunInState final : public LinkRun {
 public:
  RunInState(TrainingStates& states, const LinkRunOptions& options, std::string settings)
      : LinkRun(options, std::move(settings)), states_(states) {}

  // Refuses what cannot be before it takes memory, and then what there is no memory for.
  Status Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkData& data) {
    const LinkCounts counts = CountsOf(data);
    QUARRY_RETURN_IF_ERROR(CheckStart());
    const uint64_t bytes = LinkTableBytes(train, counts) + LinkCheckpointBytes(train, counts);
    // For a moment, so that a budget that is too small says what would do for all.
    QUARRY_RETURN_IF_ERROR(
        budget.Reserve(LinkWorkBytes(train, counts) + bytes, "batches, vectors and their checkpoints")
            .status());
    QUARRY_TRY(reserved_, budget.Reserve(bytes, "vectors and their checkpoints"));
    QUARRY_RETURN_IF_ERROR(MakeTables(train, data));
    if (options_.start != LinkRunOptions::Start::kResume) return Status::Ok();
    const uint64_t epoch_batches = CeilDiv(counts.train_edges, train.batch_edges);
    return ReadCheckpoint(epoch_batches, train.patience > 0);
  }

  LinkTables where() const override { return LinkTables::kInState; }
  EmbeddingTable& nodes() override { return *tables_.front(); }
  EmbeddingTable* relations() override { return tables_.size() > 1 ? tables_[1].get() : nullptr; }

  Status ReturnToBest(MemoryBudget&, const LinkData& data, const LinkTrainOptions& train,
                      uint32_t validations) override {
    tables_.clear();
    QUARRY_RETURN_IF_ERROR(MakeTables(train, data));
    QUARRY_RETURN_IF_ERROR(DecodeLinkState(best_bytes_, last_, Tables(), /*in_state=*/true));
    last_.place.validations_behind = validations;
    best_.reset();
    return Save(last_, nullptr);
  }

 private:
  Status MakeTables(const LinkTrainOptions& train, const LinkData& data) {
    has_features_ = train.feature_dim > 0;
    for (const EmbeddingSpec& spec : LinkTableSpecs(train, CountsOf(data))) {
      if (has_features_ && tables_.empty()) {
        tables_.push_back(std::make_unique<FixedRows>(spec, data.features));
        continue;
      }
      QUARRY_TRY(std::unique_ptr<EmbeddingTable> table, MakeMemoryTable(spec));
      tables_.push_back(std::move(table));
    }
    return Status::Ok();
  }
  // Those that a state has.
  std::vector<EmbeddingTable*> Tables() const {
    std::vector<EmbeddingTable*> tables;
    for (size_t i = has_features_ ? 1 : 0; i < tables_.size(); i++) tables.push_back(tables_[i].get());
    return tables;
  }

  // A run that is stored has tables which a state beside them would make meaningless.
  Status CheckStart() {
    QUARRY_RETURN_IF_ERROR(CheckTrainingName(options_.name));
    const Result<TrainingRecord> record = states_.Find(options_.name);
    if (record.ok() && record->timestamp != kNeverWritten) {
      return MakeStatus(Code::kInvalidArgument,
                        "{}: the vectors of run \"{}\" are tables of the database: train it on the database "
                        "itself; --run gives this training another name",
                        states_.path(), options_.name);
    }
    return CheckTrainRun({.states = &states_,
                          .name = options_.name,
                          .settings = settings_,
                          .resume = options_.start == LinkRunOptions::Start::kResume,
                          .overwrite = options_.start == LinkRunOptions::Start::kOverwrite});
  }

  Status ReadCheckpoint(uint64_t epoch_batches, bool keeps_best) {
    QUARRY_TRY(const TrainingRecord record, states_.Find(options_.name));
    QUARRY_TRY(const std::vector<std::byte> state, states_.Read(options_.name));
    if (const Status status = TakeState(state, epoch_batches, keeps_best); !status.ok()) {
      return MakeStatus(status.code(), "{}: run \"{}\": {}; --overwrite begins the run anew", states_.path(),
                        options_.name, status.message());
    }
    LogResumed(record, epoch_batches);
    return Status::Ok();
  }

  Status TakeState(std::span<const std::byte> state, uint64_t epoch_batches, bool keeps_best) {
    QUARRY_TRY(const LinkRunParts parts, SplitLinkRun(state));
    QUARRY_RETURN_IF_ERROR(DecodeLinkState(parts.last, last_, Tables(), /*in_state=*/true));
    QUARRY_RETURN_IF_ERROR(CheckPlace(last_, epoch_batches));
    if (!parts.valid || !keeps_best) return Status::Ok();
    const std::span<const std::byte> best = parts.best.empty() ? parts.last : parts.best;
    best_ = LinkBest{.valid = *parts.valid};
    QUARRY_RETURN_IF_ERROR(DecodeBesideVectors(best, best_->state));
    best_bytes_.assign(best.begin(), best.end());
    return CheckPlace(best_->state, epoch_batches);
  }

  Status Save(const LinkState& state, const LinkBest* best) override {
    if (best == nullptr) {
      best_bytes_.clear();
      QUARRY_TRY(const std::vector<std::byte> bytes, EncodeLinkState(state, Tables(), /*in_state=*/true));
      return SaveBytes(bytes);
    }
    if (best->state.timestamp != state.timestamp) {
      QUARRY_TRY(const std::vector<std::byte> bytes,
                 EncodeLinkRun(state, Tables(), /*in_state=*/true, best->valid, best_bytes_));
      return SaveBytes(bytes);
    }
    QUARRY_TRY(const std::vector<std::byte> bytes,
               EncodeLinkRun(state, Tables(), /*in_state=*/true, best->valid, {}));
    QUARRY_RETURN_IF_ERROR(SaveBytes(bytes));
    QUARRY_TRY(const LinkRunParts parts, SplitLinkRun(bytes));
    best_bytes_.assign(parts.last.begin(), parts.last.end());
    return Status::Ok();
  }

  Status SaveBytes(std::span<const std::byte> bytes) {
    return states_.Save(
        {.name = options_.name, .settings = settings_, .config = options_.config, .state = bytes});
  }

  TrainingStates& states_;
  MemoryBudget::Reservation reserved_;  // for the tables, and the bytes of a checkpoint while it is made
  std::vector<std::unique_ptr<EmbeddingTable>> tables_;  // nodes, then relations
  bool has_features_ = false;                            // those of the nodes are features
  std::vector<std::byte> best_bytes_;                    // of the best's checkpoint, where there is one
};

}  // namespace

Result<std::unique_ptr<LinkRun>> LinkRun::OpenInState(TrainingStates& states, MemoryBudget& budget,
                                                      const LinkData& data, const LinkTrainOptions& train,
                                                      const LinkRunOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(train));
  QUARRY_RETURN_IF_ERROR(CheckFeatures(data, train));
  auto run = std::make_unique<RunInState>(states, options, LinkSettings(data, train));
  QUARRY_RETURN_IF_ERROR(run->Start(budget, train, data));
  return std::unique_ptr<LinkRun>(std::move(run));
}

}  // namespace quarry
