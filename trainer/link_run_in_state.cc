// LinkRun in state: vectors in memory, and checkpoints that have them.
#include <memory>
#include <utility>
#include <vector>

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
  Status Start(MemoryBudget& budget, const LinkTrainOptions& train, const LinkCounts& counts) {
    QUARRY_RETURN_IF_ERROR(CheckStart());
    const uint64_t bytes = LinkTableBytes(train, counts) + LinkCheckpointBytes(train, counts);
    // For a moment, so that a budget that is too small says what would do for all.
    QUARRY_RETURN_IF_ERROR(
        budget.Reserve(LinkWorkBytes(train, counts) + bytes, "batches, vectors and their checkpoints")
            .status());
    QUARRY_TRY(reserved_, budget.Reserve(bytes, "vectors and their checkpoints"));
    QUARRY_RETURN_IF_ERROR(MakeTables(train, counts));
    if (options_.start != LinkRunOptions::Start::kResume) return Status::Ok();
    const uint64_t epoch_batches = CeilDiv(counts.train_edges, train.batch_edges);
    QUARRY_TRY(const TrainingRecord record, ReadCheckpoint(epoch_batches));
    LogResumed(record, epoch_batches);
    return Status::Ok();
  }

  LinkTables where() const override { return LinkTables::kInState; }
  EmbeddingTable& nodes() override { return *tables_.front(); }
  EmbeddingTable* relations() override { return tables_.size() > 1 ? tables_[1].get() : nullptr; }

  Status ReturnToCheckpoint(MemoryBudget&, const LinkData& data, const LinkTrainOptions& train) override {
    const LinkCounts counts = CountsOf(data);
    tables_.clear();
    QUARRY_RETURN_IF_ERROR(MakeTables(train, counts));
    return ReadCheckpoint(CeilDiv(counts.train_edges, train.batch_edges)).status();
  }

 private:
  Status MakeTables(const LinkTrainOptions& train, const LinkCounts& counts) {
    for (const EmbeddingSpec& spec : LinkTableSpecs(train, counts)) {
      QUARRY_TRY(std::unique_ptr<EmbeddingTable> table, MakeMemoryTable(spec));
      tables_.push_back(std::move(table));
    }
    return Status::Ok();
  }
  std::vector<EmbeddingTable*> Tables() const {
    std::vector<EmbeddingTable*> tables;
    for (const auto& table : tables_) tables.push_back(table.get());
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

  Result<TrainingRecord> ReadCheckpoint(uint64_t epoch_batches) {
    QUARRY_TRY(const TrainingRecord record, states_.Find(options_.name));
    QUARRY_TRY(const std::vector<std::byte> state, states_.Read(options_.name));
    Status status = DecodeLinkState(state, last_, Tables());
    if (status.ok()) status = CheckPlace(last_, epoch_batches);
    if (!status.ok()) {
      return MakeStatus(status.code(), "{}: run \"{}\": {}; --overwrite begins the run anew", states_.path(),
                        options_.name, status.message());
    }
    return record;
  }

  Status Save(const LinkState& state) override {
    QUARRY_TRY(const std::vector<std::byte> bytes, EncodeLinkState(state, Tables()));
    return states_.Save(
        {.name = options_.name, .settings = settings_, .config = options_.config, .state = bytes});
  }

  TrainingStates& states_;
  MemoryBudget::Reservation reserved_;  // for the tables, and the bytes of a checkpoint while it is made
  std::vector<std::unique_ptr<EmbeddingTable>> tables_;  // nodes, then relations
};

}  // namespace

Result<std::unique_ptr<LinkRun>> LinkRun::OpenInState(TrainingStates& states, MemoryBudget& budget,
                                                      const LinkData& data, const LinkTrainOptions& train,
                                                      const LinkRunOptions& options) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(train));
  auto run = std::make_unique<RunInState>(states, options, LinkSettings(data, train));
  QUARRY_RETURN_IF_ERROR(run->Start(budget, train, CountsOf(data)));
  return std::unique_ptr<LinkRun>(std::move(run));
}

}  // namespace quarry
