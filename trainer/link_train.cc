#include "quarry/trainer/link_train.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "fixed_rows.h"
#include "link_evaluate.h"
#include "link_memory.h"
#include "link_task.h"
#include "link_vectors.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/trainer/link_run.h"
#include "quarry/trainer/newest_links.h"

namespace quarry {
namespace {

EmbeddingPipelineOptions PipelineOptions(const LinkTrainOptions& options, int64_t last_timestamp) {
  return {.mode = options.mode,
          .ordered = options.ordered,
          .batches_in_flight = options.batches_in_flight,
          .staleness = options.staleness,
          .prepare_workers = options.workers,
          .update_workers = options.workers,
          .last_timestamp = last_timestamp};
}

// The figures of what came after `before`.
EmbeddingPipelineStats Since(const EmbeddingPipelineStats& before, EmbeddingPipelineStats stats) {
  for (size_t i = 0; i < kEmbeddingStageCount; i++) {
    stats.stages[i].batches -= before.stages[i].batches;
    stats.stages[i].busy_seconds -= before.stages[i].busy_seconds;
    stats.stages[i].wait_seconds -= before.stages[i].wait_seconds;
    stats.stages[i].device_seconds -= before.stages[i].device_seconds;
  }
  stats.rows_computed -= before.rows_computed;
  stats.rows_replaced -= before.rows_replaced;
  return stats;
}

// The figures of both, one after the other.
EmbeddingPipelineStats Sum(const EmbeddingPipelineStats& before, EmbeddingPipelineStats stats) {
  for (size_t i = 0; i < kEmbeddingStageCount; i++) {
    stats.stages[i].batches += before.stages[i].batches;
    stats.stages[i].busy_seconds += before.stages[i].busy_seconds;
    stats.stages[i].wait_seconds += before.stages[i].wait_seconds;
    stats.stages[i].device_seconds += before.stages[i].device_seconds;
  }
  stats.rows_computed += before.rows_computed;
  stats.rows_replaced += before.rows_replaced;
  stats.cache_rows_peak = std::max(stats.cache_rows_peak, before.cache_rows_peak);
  stats.cache_bytes_peak = std::max(stats.cache_bytes_peak, before.cache_bytes_peak);
  return stats;
}

std::vector<Triple> AllEdges(const LinkData& data) {
  std::vector<Triple> edges;
  edges.reserve(data.train.size() + data.known.size() + data.valid.size() + data.test.size());
  for (const auto* part : {&data.train, &data.known, &data.valid, &data.test}) {
    edges.insert(edges.end(), part->begin(), part->end());
  }
  return edges;
}

// Beside tables in memory a copy is there too, beside stored ones in a file.
VectorCopy CopyBeside(const LinkRun* run) {
  return run == nullptr || run->backend() == nullptr ? VectorCopy()
                                                     : VectorCopy(*run->backend(), run->scratch_folder());
}

class LinkTrainer {
 public:
  // `relations` is null for decoders without, `run` where tables are in memory. `start`: where a training without a run
  // goes on; null: from its beginning.
  LinkTrainer(const LinkData& data, const LinkTrainOptions& options, MemoryBudget& budget,
              const LinkTrainCallbacks& callbacks, EmbeddingTable& nodes, EmbeddingTable* relations,
              LinkRun* run, const LinkState* start = nullptr)
      : data_(data),
        options_(options),
        budget_(budget),
        callbacks_(callbacks),
        known_(AllEdges(data)),
        nodes_(nodes),
        relations_(relations),
        run_(run),
        start_(start),
        road_(run == nullptr ? nullptr : run->road()),
        copy_(CopyBeside(run)),
        task_(data, options, road_) {
    std::vector<EmbeddingTable*> tables{&nodes};
    if (relations != nullptr) tables.push_back(relations);
    int64_t last_timestamp = run == nullptr ? kNeverWritten : run->timestamp();
    if (start != nullptr) last_timestamp = start->timestamp;
    pipeline_ = EmbeddingPipeline::Make(tables, task_, PipelineOptions(options, last_timestamp));
    if (run != nullptr) place_ = run->place();
    if (start != nullptr) place_ = start->place;
    const uint32_t behind = std::exchange(place_.validations_behind, 0);
    has_best_ = options.patience > 0 && run != nullptr && run->best().has_value();
    // A run that goes on without a best has no vectors of the epochs before but the last one's, which it validates again.
    if (options.patience > 0 && !has_best_) {
      known_worse_ = behind;
      place_ = {.epoch = place_.epoch, .batches = place_.batches, .loss = place_.loss};
    }
  }

  // Before all else.
  Status Begin() {
    QUARRY_RETURN_IF_ERROR(task_.MakeEncoder());
    if (start_ != nullptr) return task_.TakeState(start_->task_state);
    return run_ == nullptr ? Status::Ok() : task_.TakeState(run_->task_state());
  }

  // Ends before an epoch, too, where there is newer data for it.
  Status Train(LinkTrainSummary& summary, const std::function<Result<bool>()>& is_newer = {}) {
    const double start = MonotonicSeconds();
    QUARRY_RETURN_IF_ERROR(RunEpochs(summary, is_newer));
    summary.stats = Sum(summary.stats, pipeline_->stats());
    summary.seconds += MonotonicSeconds() - start;
    return Status::Ok();
  }

  // Those that were no better than the best, at the end of training.
  uint32_t validations_behind() const { return validations_behind_; }
  bool has_newer_data() const { return has_newer_data_; }
  // Where another trainer goes on. Between epochs.
  LinkState State() const {
    return {.place = place_, .timestamp = pipeline_->last_timestamp(), .task_state = task_.State()};
  }

  // Ranks the test edges by the vectors of the best epoch, or those that the tables have.
  Status Test(LinkTrainSummary& summary) {
    const double start = MonotonicSeconds();
    ranks_copy_ = !copy_.empty();
    if (ranks_copy_) QUARRY_RETURN_IF_ERROR(task_.TakeState(copy_.task_state()));
    QUARRY_TRY(summary.test, Evaluate(data_.test, "test"));
    summary.test_seconds = MonotonicSeconds() - start;
    summary.seconds += summary.test_seconds;
    return Status::Ok();
  }

 private:
  bool takes_checkpoints() const { return run_ != nullptr && run_->options().keep; }

  Status Progress(std::string_view phase, uint64_t done, uint64_t total) const {
    return callbacks_.progress ? callbacks_.progress(phase, done, total) : Status::Ok();
  }

  Status RunEpochs(LinkTrainSummary& summary, const std::function<Result<bool>()>& is_newer) {
    if (has_best_) {
      summary.valid = run_->best()->valid;
      summary.kept_epoch = run_->best()->state.place.epoch;
    }
    for (;;) {
      QUARRY_TRY(const LinkEpochReport report, RunEpoch());
      LinkPlace next{.epoch = place_.epoch + 1,
                     .best_mrr = place_.best_mrr,
                     .validations_since_best = place_.validations_since_best};
      if (report.best && options_.patience > 0) QUARRY_RETURN_IF_ERROR(KeepBest(*report.valid));
      if (report.valid) {
        if (report.best || !has_best_) summary.valid = report.valid;
        next.validations_since_best = report.best ? 0 : next.validations_since_best + 1;
        if (report.best) next.best_mrr = report.valid->filtered.mrr;
      } else if (const LinkBest* const best = BestOf(report.epoch)) {
        next.best_mrr = best->valid.filtered.mrr;
        next.validations_since_best = 0;
      }
      summary.epochs = report.epoch;
      if (report.best || !has_best_) summary.kept_epoch = report.epoch;
      summary.loss = report.loss;
      summary.edges += report.edges;
      summary.train_seconds += report.seconds;
      if (callbacks_.epoch) QUARRY_RETURN_IF_ERROR(callbacks_.epoch(report));
      validations_behind_ = std::max(next.validations_since_best, std::exchange(known_worse_, 0));
      summary.stopped_early = options_.patience > 0 && validations_behind_ >= options_.patience;
      // Epochs that a training before this one found to be no better are not trained again, unless it is to go beyond.
      const uint64_t known = report.epoch + uint64_t{validations_behind_ - next.validations_since_best} *
                                                std::max(1U, options_.valid_every);
      if (summary.stopped_early || known >= options_.epochs) {
        summary.epochs = static_cast<uint32_t>(known);
        break;
      }
      place_ = next;
      if (is_newer) {
        QUARRY_TRY(has_newer_data_, is_newer());
      }
      if (has_newer_data_) return Status::Ok();
    }
    if (summary.edges > 0) {
      summary.seconds_per_epoch = summary.train_seconds * static_cast<double>(data_.train_count()) /
                                  static_cast<double>(summary.edges);
    }
    return has_best_ ? Status::Ok() : Checkpoint();
  }

  // The run's best, where it is this epoch's: one that stopped behind its best epoch, and goes on with another valid_every,
  // does not validate it again. Null: it is not.
  const LinkBest* BestOf(uint32_t epoch) const {
    const bool is_it = run_ != nullptr && run_->best() && run_->best()->state.place.epoch == epoch;
    return is_it ? &*run_->best() : nullptr;
  }

  // What the epoch left is what is kept unless a later one is better.
  Status KeepBest(const LinkEvaluation& valid) {
    has_best_ = true;
    if (!takes_checkpoints()) return copy_.Take(nodes_, relations_, task_.State());
    const int64_t timestamp = pipeline_->last_timestamp();
    // An epoch that is validated again, since the run was stopped behind it.
    if (run_->best() && run_->best()->state.timestamp == timestamp) return Status::Ok();
    return run_->CheckpointBest({.place = place_, .timestamp = timestamp, .task_state = task_.State()},
                                valid);
  }

  Result<LinkEpochReport> RunEpoch() {
    LinkEpochReport report{.epoch = place_.epoch};
    QUARRY_RETURN_IF_ERROR(TrainPass(report));
    if (options_.valid_every == 0 || report.epoch % options_.valid_every != 0) return report;
    const double start = MonotonicSeconds();
    QUARRY_TRY(report.valid, Evaluate(data_.valid, "validation"));
    report.valid_seconds = MonotonicSeconds() - start;
    report.best = report.valid && report.valid->filtered.mrr > place_.best_mrr;
    return report;
  }

  // What is left of the epoch's batches, with a checkpoint where one is due.
  // Checkpoints come between batches, not only between epochs, since an epoch takes hours where vectors
  // exceed memory. The pipeline has drained by then, so the tables hold exactly the batches up to the place.
  Status TrainPass(LinkEpochReport& report) {
    const double start = MonotonicSeconds();
    const EmbeddingPipelineStats before = pipeline_->stats();
    const std::string phase = fmt::format("epoch {}", report.epoch);
    const uint64_t total = data_.train_count();
    uint64_t edges_before = 0;
    std::optional<uint64_t> batches_before;
    if (start_ != nullptr) {
      batches_before = static_cast<uint64_t>(pipeline_->last_timestamp() - kNeverWritten) - place_.batches;
    }
    QUARRY_RETURN_IF_ERROR(task_.StartEpoch(
        report.epoch, [&](uint64_t edges) { return Progress(phase, edges_before + edges, total); },
        place_.loss, batches_before));
    edges_before = task_.EdgesBefore(place_.batches);
    while (place_.batches < task_.batch_count()) QUARRY_RETURN_IF_ERROR(TrainToCheckpoint());
    report.learning_rate = task_.learning_rate();
    report.loss = place_.loss / static_cast<double>(total) / 2;
    report.edges = total - edges_before;
    report.stats = Since(before, pipeline_->stats());
    report.seconds = MonotonicSeconds() - start;
    return Status::Ok();
  }

  Status TrainToCheckpoint() {
    const uint64_t done = task_.first_batch() + place_.batches;
    const uint64_t left = task_.batch_count() - place_.batches;
    const uint64_t due = run_ == nullptr ? UINT64_MAX : run_->BatchesToCheckpoint(done);
    QUARRY_TRY(const uint64_t in_step, task_.Enter(place_.batches));
    const uint64_t count = std::min({left, due, in_step});
    QUARRY_RETURN_IF_ERROR(pipeline_->Run(done, count));
    place_.batches += count;
    place_.loss = task_.loss();
    if (!std::isfinite(place_.loss)) {
      return MakeStatus(Code::kInvalidArgument, "the loss of epoch {} is {}: lower the learning rate ({})",
                        place_.epoch, place_.loss, options_.optimizer_options.learning_rate);
    }
    // The last epoch's comes before its validation, which may take long. Parts have to be written back in any
    // case, so the road's epochs each end with one.
    const bool at_end = (road_ != nullptr || place_.epoch == options_.epochs) && count == left;
    return count == due || at_end ? Checkpoint() : Status::Ok();
  }

  // Unless there is one of this place.
  Status Checkpoint() {
    const int64_t timestamp = pipeline_->last_timestamp();
    if (!takes_checkpoints() || run_->timestamp() == timestamp) return Status::Ok();
    return run_->Checkpoint({.place = place_, .timestamp = timestamp, .task_state = task_.State()});
  }

  // Nothing without edges.
  Result<std::optional<LinkEvaluation>> Evaluate(const std::vector<Triple>& edges, std::string_view phase) {
    if (edges.empty()) return std::optional<LinkEvaluation>();
    if (ranks_copy_) {
      relation_values_ = copy_.relations();
    } else if (relations_ != nullptr) {
      QUARRY_RETURN_IF_ERROR(ReadAll(*relations_, relation_values_));
    }
    std::unique_ptr<ScratchRows> encoded_parts;  // gives its place on the disk back with the ranking's end
    if (task_.has_encoder() && road_ != nullptr) {
      QUARRY_TRY(encoded_parts, EncodeParts(fmt::format("encoding for {}", phase)));
    } else if (task_.has_encoder()) {
      QUARRY_RETURN_IF_ERROR(ranks_copy_ ? copy_.ReadAllNodes(encoded_) : ReadAll(nodes_, encoded_));
      QUARRY_RETURN_IF_ERROR(task_.EncodeAll(encoded_));
    }
    const auto read_nodes = [&](std::span<const RowId> ids, std::span<float> values) {
      if (encoded_parts != nullptr) return encoded_parts->Read(ids, values);
      return task_.has_encoder() ? CopyRows(encoded_, ids, values) : ReadNodes(ids, values);
    };
    QUARRY_TRY(const LinkEvaluation evaluation,
               EvaluateLinks(options_.spec, {data_.node_count, read_nodes, relation_values_}, edges, known_,
                             options_.compute_threads,
                             [&](uint64_t done) { return Progress(phase, done, edges.size()); }));
    return std::optional<LinkEvaluation>(evaluation);
  }

  Status ReadNodes(std::span<const RowId> ids, std::span<float> values) {
    return ranks_copy_ ? copy_.ReadNodes(ids, values) : ReadRows(nodes_, ids, values);
  }

  Result<std::unique_ptr<ScratchRows>> EncodeParts(std::string_view phase) {
    return task_.EncodeParts(
        run_->scratch_folder(), budget_,
        [this](std::span<const RowId> ids, std::span<float> values) { return ReadNodes(ids, values); },
        [&](uint64_t done, uint64_t total) { return Progress(phase, done, total); });
  }

  const LinkData& data_;
  const LinkTrainOptions& options_;
  MemoryBudget& budget_;
  const LinkTrainCallbacks& callbacks_;
  const KnownEdges known_;
  EmbeddingTable& nodes_;
  EmbeddingTable* const relations_;
  LinkRun* const run_;
  const LinkState* const start_;
  PartitionedRoad* const road_;  // null: epochs take the edges of data_
  // Its counts of validations are those before its epoch until the next one begins: a run that goes on behind
  // an epoch's last batch validates that epoch again, and counts it once.
  LinkPlace place_;
  uint32_t known_worse_ = 0;         // validations behind the place, of a training that has ended there
  uint32_t validations_behind_ = 0;  // so far
  // With patience: an epoch was the best, and its vectors are kept, by a checkpoint of the run or as a copy.
  bool has_best_ = false;
  bool has_newer_data_ = false;
  VectorCopy copy_;
  bool ranks_copy_ = false;
  std::vector<float> relation_values_;  // all rows, for ranking
  std::vector<float> encoded_;          // with an encoder in memory, what it makes of all nodes, for ranking

  LinkTask task_;
  std::unique_ptr<EmbeddingPipeline> pipeline_;  // uses what is above
};

Status CheckEdgeCount(const LinkData& data) {
  if (data.train_count() == 0) return Status(Code::kInvalidArgument, "there are no edges to train on");
  if (data.train.size() <= UINT32_MAX) return Status::Ok();
  return MakeStatus(Code::kUnsupported, "{} training edges; at most {} can be put in order",
                    data.train.size(), UINT32_MAX);
}

}  // namespace

Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks,
                                    const EmbeddingTableFactory& make_table) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(options));
  QUARRY_RETURN_IF_ERROR(CheckEdgeCount(data));
  QUARRY_RETURN_IF_ERROR(CheckFeatures(data, options));
  const LinkCounts counts = CountsOf(data);
  const uint64_t table_bytes =
      (make_table ? 0 : LinkTableBytes(options, counts)) + LinkCopyBytes(options, counts);
  QUARRY_TRY(const MemoryBudget::Reservation reserved,
             budget.Reserve(LinkWorkBytes(options, counts) + table_bytes, "training on edges"));
  const EmbeddingTableFactory& make = make_table ? make_table : MakeMemoryTable;
  const EmbeddingSpec node_spec = NodeTableSpec(options, counts.nodes);
  std::unique_ptr<EmbeddingTable> nodes, relations;
  if (options.feature_dim > 0) {
    nodes = std::make_unique<FixedRows>(node_spec, data.features);
  } else {
    QUARRY_TRY(nodes, make(node_spec));
  }
  if (options.spec.relation_dim() > 0) {
    QUARRY_TRY(relations, make(RelationTableSpec(options, counts.relations)));
  }
  LinkTrainer trainer(data, options, budget, callbacks, *nodes, relations.get(), nullptr);
  LinkTrainSummary summary;
  QUARRY_RETURN_IF_ERROR(trainer.Begin());
  QUARRY_RETURN_IF_ERROR(trainer.Train(summary));
  QUARRY_RETURN_IF_ERROR(trainer.Test(summary));
  return summary;
}

namespace {

// Tables in memory, as large as the data that comes.
class GrowingTables {
 public:
  Status Fit(const LinkTrainOptions& options, const LinkCounts& counts, MemoryBudget& budget) {
    QUARRY_RETURN_IF_ERROR(FitTable(NodeTableSpec(options, counts.nodes), budget, nodes_));
    if (options.spec.relation_dim() == 0) return Status::Ok();
    return FitTable(RelationTableSpec(options, counts.relations), budget, relations_);
  }
  EmbeddingTable& nodes() { return *nodes_.table; }
  EmbeddingTable* relations() { return relations_.table.get(); }

 private:
  struct Held {
    MemoryBudget::Reservation reserved;
    std::unique_ptr<EmbeddingTable> table;
  };
  static Status FitTable(const EmbeddingSpec& spec, MemoryBudget& budget, Held& held) {
    if (held.table != nullptr && held.table->spec().row_count >= spec.row_count) return Status::Ok();
    Held larger;
    QUARRY_TRY(larger.reserved, budget.Reserve(TableBytes(spec), "vectors"));
    QUARRY_TRY(larger.table, MakeMemoryTable(spec));
    if (held.table != nullptr) QUARRY_RETURN_IF_ERROR(CopyTable(*held.table, *larger.table));
    held.table = std::move(larger.table);
    held.reserved = std::move(larger.reserved);
    return Status::Ok();
  }

  Held nodes_, relations_;
};

}  // namespace

Result<LinkTrainSummary> TrainNewestLinks(const NewestLinks& source, const LinkTrainOptions& options,
                                          MemoryBudget& budget, const LinkTrainCallbacks& callbacks) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(options));
  if (options.patience > 0) {
    return Status(
        Code::kUsage,
        "patience takes the best epoch by validation edges, which change where edges come: leave it out");
  }
  if (options.feature_dim > 0) {
    return Status(
        Code::kUsage,
        "features are those of the nodes that there were at the beginning, and the newest edges may "
        "have others: train on vectors, or on the edges of one time");
  }
  LinkTrainSummary summary;
  GrowingTables tables;
  LinkState state;
  for (;;) {
    QUARRY_TRY(const LinkData data, source.load());
    QUARRY_RETURN_IF_ERROR(CheckEdgeCount(data));
    const LinkCounts counts = CountsOf(data);
    QUARRY_RETURN_IF_ERROR(tables.Fit(options, counts, budget));
    QUARRY_TRY(const MemoryBudget::Reservation reserved,
               budget.Reserve(LinkWorkBytes(options, counts), "training on edges"));
    LinkTrainer trainer(data, options, budget, callbacks, tables.nodes(), tables.relations(), nullptr,
                        &state);
    QUARRY_RETURN_IF_ERROR(trainer.Begin());
    QUARRY_RETURN_IF_ERROR(trainer.Train(summary, source.is_newer));
    if (!trainer.has_newer_data()) {
      QUARRY_RETURN_IF_ERROR(trainer.Test(summary));
      return summary;
    }
    state = trainer.State();
  }
}

namespace {

Status TrainInRun(const LinkData& data, const LinkTrainOptions& options, MemoryBudget& budget,
                  const LinkTrainCallbacks& callbacks, LinkRun& run, LinkTrainSummary& summary) {
  LinkCounts counts = CountsOf(data);
  if (run.road() != nullptr) counts.parts = &run.road()->partitioning().directory();
  const uint64_t bytes = LinkWorkBytes(options, counts);
  uint32_t validations_behind = 0;
  {
    QUARRY_TRY(const MemoryBudget::Reservation reserved, budget.Reserve(bytes, "training on edges"));
    LinkTrainer trainer(data, options, budget, callbacks, run.nodes(), run.relations(), &run);
    QUARRY_RETURN_IF_ERROR(trainer.Begin());
    QUARRY_RETURN_IF_ERROR(trainer.Train(summary));
    if (!run.best()) return trainer.Test(summary);
    validations_behind = trainer.validations_behind();
  }
  // All that this training held is given back before the tables are opened anew.
  QUARRY_RETURN_IF_ERROR(run.ReturnToBest(budget, data, options, validations_behind));
  QUARRY_TRY(const MemoryBudget::Reservation reserved, budget.Reserve(bytes, "ranking edges"));
  LinkTrainer trainer(data, options, budget, callbacks, run.nodes(), run.relations(), &run);
  QUARRY_RETURN_IF_ERROR(trainer.Begin());
  return trainer.Test(summary);
}

}  // namespace

Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks, LinkRun& run) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(options));
  QUARRY_RETURN_IF_ERROR(CheckEdgeCount(data));
  if (run.place().epoch > options.epochs) {
    return MakeStatus(Code::kUsage, "epochs is {}, but run \"{}\" is in epoch {}", options.epochs,
                      run.options().name, run.place().epoch);
  }
  LinkTrainSummary summary;
  const Status status = TrainInRun(data, options, budget, callbacks, run, summary);
  if (status.code() == Code::kCancelled) return run.Explain(status);
  QUARRY_RETURN_IF_ERROR(status);
  return summary;
}

}  // namespace quarry
