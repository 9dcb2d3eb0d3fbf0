#include "quarry/trainer/link_train.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "link_memory.h"
#include "link_task.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry {
namespace {

// Edges that are ranked between two looks at the callback: a second or two where nodes are 150 thousand.
constexpr size_t kRankedEdges = 4096;
constexpr uint64_t kReadRows = 4096;

EmbeddingPipelineOptions PipelineOptions(const LinkTrainOptions& options) {
  return {.mode = options.mode,
          .ordered = options.ordered,
          .batches_in_flight = options.batches_in_flight,
          .staleness = options.staleness,
          .prepare_workers = options.workers,
          .update_workers = options.workers};
}

// Of what came after `before`.
EmbeddingPipelineStats Since(const EmbeddingPipelineStats& before, EmbeddingPipelineStats stats) {
  for (size_t i = 0; i < kEmbeddingStageCount; i++) {
    stats.stages[i].batches -= before.stages[i].batches;
    stats.stages[i].busy_seconds -= before.stages[i].busy_seconds;
    stats.stages[i].wait_seconds -= before.stages[i].wait_seconds;
  }
  stats.rows_computed -= before.rows_computed;
  stats.rows_replaced -= before.rows_replaced;
  return stats;
}

void AddPart(const LinkMetrics& part, double share, LinkMetrics& whole) {
  whole.rankings += part.rankings;
  whole.mrr += share * part.mrr;
  whole.hits_1 += share * part.hits_1;
  whole.hits_3 += share * part.hits_3;
  whole.hits_10 += share * part.hits_10;
}

// Fills `values` with the vectors of all rows.
Status ReadAll(EmbeddingTable& table, std::vector<float>& values) {
  const EmbeddingSpec& spec = table.spec();
  values.resize(spec.row_count * spec.dim);
  RowBlock block;
  for (RowId first = 0; first < spec.row_count; first += kReadRows) {
    block.ids.resize(std::min(kReadRows, spec.row_count - first));
    std::iota(block.ids.begin(), block.ids.end(), first);
    QUARRY_RETURN_IF_ERROR(table.Read(block));
    std::copy(block.values.begin(), block.values.end(),
              values.begin() + static_cast<ptrdiff_t>(first * spec.dim));
  }
  return Status::Ok();
}

std::vector<Triple> AllEdges(const LinkData& data) {
  std::vector<Triple> edges;
  edges.reserve(data.train.size() + data.valid.size() + data.test.size());
  for (const auto* part : {&data.train, &data.valid, &data.test}) {
    edges.insert(edges.end(), part->begin(), part->end());
  }
  return edges;
}

class Trainer {
 public:
  Trainer(const LinkData& data, const LinkTrainOptions& options, const LinkTrainCallbacks& callbacks)
      : data_(data), options_(options), callbacks_(callbacks), known_(AllEdges(data)), task_(data, options) {}

  Status MakeTables(const EmbeddingTableFactory& make_table) {
    QUARRY_TRY(nodes_, make_table(NodeTableSpec(options_, data_.node_count)));
    std::vector<EmbeddingTable*> tables{nodes_.get()};
    if (options_.spec.relation_dim() > 0) {
      QUARRY_TRY(relations_, make_table(RelationTableSpec(options_, data_.relation_count)));
      tables.push_back(relations_.get());
    }
    pipeline_ = EmbeddingPipeline::Make(tables, task_, PipelineOptions(options_));
    return Status::Ok();
  }

  Result<LinkTrainSummary> Run() {
    const double start = MonotonicSeconds();
    LinkTrainSummary summary;
    uint32_t validations_since_best = 0;
    for (uint32_t epoch = 1; epoch <= options_.epochs && !summary.stopped_early; epoch++) {
      QUARRY_TRY(const LinkEpochReport report, RunEpoch(epoch));
      summary.epochs = epoch;
      summary.loss = report.loss;
      summary.edges += report.edges;
      summary.train_seconds += report.seconds;
      if (report.valid) {
        summary.valid = report.valid;
        validations_since_best = report.best ? 0 : validations_since_best + 1;
      }
      if (callbacks_.epoch) QUARRY_RETURN_IF_ERROR(callbacks_.epoch(report));
      summary.stopped_early = options_.patience > 0 && validations_since_best >= options_.patience;
    }
    const double test_start = MonotonicSeconds();
    QUARRY_TRY(summary.test, Evaluate(data_.test, "test"));
    summary.test_seconds = MonotonicSeconds() - test_start;
    summary.stats = pipeline_->stats();
    summary.seconds = MonotonicSeconds() - start;
    return summary;
  }

 private:
  Status Progress(std::string_view phase, uint64_t done, uint64_t total) const {
    return callbacks_.progress ? callbacks_.progress(phase, done, total) : Status::Ok();
  }

  Result<LinkEpochReport> RunEpoch(uint32_t epoch) {
    LinkEpochReport report{.epoch = epoch, .edges = data_.train.size()};
    QUARRY_RETURN_IF_ERROR(TrainPass(report));
    if (options_.valid_every == 0 || epoch % options_.valid_every != 0) return report;
    const double start = MonotonicSeconds();
    QUARRY_TRY(report.valid, Evaluate(data_.valid, "validation"));
    report.valid_seconds = MonotonicSeconds() - start;
    report.best = report.valid && report.valid->filtered.mrr > best_mrr_;
    if (report.best) best_mrr_ = report.valid->filtered.mrr;
    return report;
  }

  Status TrainPass(LinkEpochReport& report) {
    const double start = MonotonicSeconds();
    const EmbeddingPipelineStats before = pipeline_->stats();
    const std::string phase = fmt::format("epoch {}", report.epoch);
    task_.StartEpoch(report.epoch, [&](uint64_t edges) { return Progress(phase, edges, report.edges); });
    QUARRY_RETURN_IF_ERROR(pipeline_->Run(task_.first_batch(), task_.batch_count()));
    report.loss = task_.loss() / static_cast<double>(report.edges) / 2;
    report.stats = Since(before, pipeline_->stats());
    report.seconds = MonotonicSeconds() - start;
    if (std::isfinite(report.loss)) return Status::Ok();
    return MakeStatus(Code::kInvalidArgument, "the loss of epoch {} is {}: lower the learning rate ({})",
                      report.epoch, report.loss, options_.optimizer_options.learning_rate);
  }

  // Nothing without edges.
  Result<std::optional<LinkEvaluation>> Evaluate(const std::vector<Triple>& edges, std::string_view phase) {
    if (edges.empty()) return std::optional<LinkEvaluation>();
    QUARRY_RETURN_IF_ERROR(ReadAll(*nodes_, node_values_));
    if (relations_) QUARRY_RETURN_IF_ERROR(ReadAll(*relations_, relation_values_));
    LinkEvaluation whole;
    for (size_t first = 0; first < edges.size(); first += kRankedEdges) {
      QUARRY_RETURN_IF_ERROR(Progress(phase, first, edges.size()));
      const auto piece = std::span(edges).subspan(first, std::min(kRankedEdges, edges.size() - first));
      const LinkEvaluation part = EvaluateLinks(options_.spec, node_values_, relation_values_, piece, known_,
                                                options_.compute_threads);
      const double share = static_cast<double>(piece.size()) / static_cast<double>(edges.size());
      AddPart(part.raw, share, whole.raw);
      AddPart(part.filtered, share, whole.filtered);
    }
    return std::optional<LinkEvaluation>(whole);
  }

  const LinkData& data_;
  const LinkTrainOptions& options_;
  const LinkTrainCallbacks& callbacks_;
  const KnownEdges known_;
  double best_mrr_ = -1;
  std::vector<float> node_values_, relation_values_;  // of all rows, for ranking

  std::unique_ptr<EmbeddingTable> nodes_, relations_;
  LinkTask task_;
  std::unique_ptr<EmbeddingPipeline> pipeline_;  // uses what is above
};

// Those that lie in memory alone.
Result<std::unique_ptr<EmbeddingTable>> MakeMemoryTable(const EmbeddingSpec& spec) {
  std::unique_ptr<EmbeddingTable> table = MakeMemoryEmbeddingTable(spec);
  if (table) return table;
  return MakeStatus(Code::kOutOfBudget, "the system refuses the memory for a table of {} rows of {} floats",
                    spec.row_count, spec.dim + spec.state_dim());
}

}  // namespace

Status CheckLinkTrainOptions(const LinkTrainOptions& options) {
  const auto check = [](bool good, std::string_view name, double value, std::string_view range) {
    if (good) return Status::Ok();
    return MakeStatus(Code::kUsage, "{} is {}, but must be {}", name, value, range);
  };
  const auto between = [&](std::string_view name, uint32_t value, uint32_t low, uint32_t high) {
    return check(value >= low && value <= high, name, value, fmt::format("{} to {}", low, high));
  };
  if (const Status spec = CheckLinkSpec(options.spec); !spec.ok()) {
    return Status(Code::kUsage, std::string(spec.message()));
  }
  const float rate = options.optimizer_options.learning_rate;
  QUARRY_RETURN_IF_ERROR(between("dim", options.spec.dim, 1, 1 << 16));
  QUARRY_RETURN_IF_ERROR(between("batch size", options.batch_edges, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(between("chunk", options.chunk_edges, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(between("negatives", options.negatives, 1, 1 << 24));
  QUARRY_RETURN_IF_ERROR(check(options.degree_share >= 0 && options.degree_share <= 1, "degree share",
                               options.degree_share, "from 0 to 1"));
  QUARRY_RETURN_IF_ERROR(check(std::isfinite(rate) && rate > 0, "learning rate", rate, "above 0"));
  QUARRY_RETURN_IF_ERROR(check(std::isfinite(options.init_scale) && options.init_scale >= 0, "init scale",
                               options.init_scale, "0 or more"));
  QUARRY_RETURN_IF_ERROR(between("epochs", options.epochs, 1, UINT32_MAX));
  QUARRY_RETURN_IF_ERROR(between("batches in flight", options.batches_in_flight, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("staleness", options.staleness, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("workers", options.workers, 1, 1024));
  QUARRY_RETURN_IF_ERROR(between("threads", options.compute_threads, 1, 1024));
  // Places in a batch are 32-bit, and so are its scores' in the decoder.
  const uint64_t chunks = CeilDiv(options.batch_edges, options.chunk_edges);
  return check(options.batch_edges + chunks * options.negatives < uint64_t{1} << 28, "batch size",
               options.batch_edges, "less for so many negatives: the two make 2^28 rows or more");
}

Result<LinkTrainSummary> TrainLinks(const LinkData& data, const LinkTrainOptions& options,
                                    MemoryBudget& budget, const LinkTrainCallbacks& callbacks,
                                    const EmbeddingTableFactory& make_table) {
  QUARRY_RETURN_IF_ERROR(CheckLinkTrainOptions(options));
  if (data.train.size() > UINT32_MAX) {
    return MakeStatus(Code::kUnsupported, "{} training edges; at most {} can be put in order",
                      data.train.size(), UINT32_MAX);
  }
  const LinkCounts counts{.nodes = data.node_count,
                          .relations = data.relation_count,
                          .train_edges = data.train.size(),
                          .edges = data.train.size() + data.valid.size() + data.test.size()};
  const uint64_t table_bytes = make_table ? 0 : LinkTableBytes(options, counts);
  QUARRY_TRY(const MemoryBudget::Reservation reserved,
             budget.Reserve(LinkWorkBytes(options, counts) + table_bytes, "training on edges"));
  Trainer trainer(data, options, callbacks);
  QUARRY_RETURN_IF_ERROR(trainer.MakeTables(make_table ? make_table : MakeMemoryTable));
  return trainer.Run();
}

}  // namespace quarry
