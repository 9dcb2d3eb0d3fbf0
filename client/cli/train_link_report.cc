#include "train_link_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"
#include "quarry/format/fanouts.h"
#include "train_link.h"

namespace quarry::cli {
namespace {

// Keeps the fields in the order in which they are added.
using Json = nlohmann::ordered_json;

// Those of computation on the CPU.
constexpr EmbeddingStage kStages[] = {EmbeddingStage::kPrepare, EmbeddingStage::kCompute,
                                      EmbeddingStage::kUpdate};

void AddMetrics(const std::string& prefix, const std::optional<LinkEvaluation>& evaluation, Json& json) {
  const auto add = [&](const std::string& suffix, double LinkMetrics::*metric) {
    json[prefix + suffix] = evaluation ? Json(evaluation->filtered.*metric) : Json(nullptr);
    json[prefix + suffix + "_raw"] = evaluation ? Json(evaluation->raw.*metric) : Json(nullptr);
  };
  add("_mrr", &LinkMetrics::mrr);
  add("_hits_1", &LinkMetrics::hits_1);
  add("_hits_3", &LinkMetrics::hits_3);
  add("_hits_10", &LinkMetrics::hits_10);
}

void AddWork(const EmbeddingPipelineStats& stats, Json& json) {
  json["batches"] = stats.stage(EmbeddingStage::kCompute).batches;
  json["rows_computed"] = stats.rows_computed;
  json["rows_replaced"] = stats.rows_replaced;
  json["cache_rows_peak"] = stats.cache_rows_peak;
  json["cache_bytes_peak"] = stats.cache_bytes_peak;
  for (const EmbeddingStage stage : kStages) {
    const char* const name = kEmbeddingStageNames[static_cast<size_t>(stage)];
    json[fmt::format("{}_seconds", name)] = stats.stage(stage).busy_seconds;
    json[fmt::format("{}_wait_seconds", name)] = stats.stage(stage).wait_seconds;
  }
}

void AddMemory(uint64_t reserved_bytes, const MemoryBudget& budget, Json& json) {
  json["peak_rss_bytes"] = PeakRssBytes();
  json["memory_budget_bytes"] = budget.limit_bytes();
  json["memory_reserved_bytes"] = reserved_bytes;
}

double HitRatio(const BufferPoolStats& pools) {
  const uint64_t pins = pools.hits + pools.misses;
  return pins == 0 ? 0 : static_cast<double>(pools.hits) / static_cast<double>(pins);
}

void AddPools(const LinkRunStats& stats, Json& json) {
  json["pool_bytes"] = stats.pool_bytes;
  json["pool_hit_ratio"] = HitRatio(stats.pools);
  json["pages_read"] = stats.pools.pages_read;
  json["pages_written"] = stats.pools.pages_written;
  json["read_wait_seconds"] = stats.pools.read_wait_seconds;
  json["frame_wait_seconds"] = stats.pools.frame_wait_seconds;
}

// Where the vectors are, and what it took to have them there. `run` may be null.
void AddTables(const LinkRun* run, const std::optional<LinkPlace>& start, Json& json) {
  const bool stored = run != nullptr && run->where() == LinkTables::kStored;
  json["tables"] = stored ? "stored" : "memory";
  if (run == nullptr) return;
  const LinkRunStats stats = run->stats();
  if (stored) AddPools(stats, json);
  json["run"] = run->options().keep ? Json(run->options().name) : Json(nullptr);
  json["checkpoints"] = stats.checkpoints;
  json["checkpoint_seconds"] = stats.checkpoint_seconds;
  json["resumed_from_epoch"] = start ? Json(start->epoch) : Json(nullptr);
  json["resumed_from_batch"] = start ? Json(start->batches) : Json(nullptr);
}

void AddSettings(const LinkTrainOptions& train, Json& json) {
  json["decoder"] = DecoderName(train.spec.decoder);
  json["dim"] = train.spec.dim;
  json["encoder"] = train.encoder_fanouts.empty() ? "none" : quarry::NameOf(train.encoder.model);
  json["fanout"] = Json::array();
  for (const uint32_t fanout : train.encoder_fanouts) {
    json["fanout"].push_back(fanout == kAllNeighbors ? Json(FanoutName(fanout)) : Json(fanout));
  }
  json["feature_dim"] = train.feature_dim;
  json["encoder_lr"] = train.encoder_learning_rate;
  json["loss_function"] = LinkLossName(train.spec.loss);
  json["regularization"] = RegularizationName(train.spec.regularization);
  json["regularization_weight"] = train.spec.regularization_weight;
  json["batch_size"] = train.batch_edges;
  json["chunk"] = train.chunk_edges;
  json["negatives"] = train.negatives;
  json["degree_share"] = train.degree_share;
  json["optimizer"] = NameOf(Optimizers(), train.optimizer);
  json["learning_rate"] = train.optimizer_options.learning_rate;
  json["schedule"] = quarry::NameOf(train.schedule);
  json["seed"] = train.seed;
  json["embedding_mode"] = NameOf(AsyncModes(), train.mode);
  json["batches_in_flight"] = train.batches_in_flight;
  json["staleness"] = train.staleness;
  json["ordered"] = train.ordered;
  json["threads"] = train.compute_threads;
}

double Rate(uint64_t edges, double seconds) { return static_cast<double>(edges) / seconds; }

std::string Sentence(std::string_view what, const std::optional<LinkEvaluation>& evaluation) {
  if (!evaluation) return fmt::format("no {} edges were ranked", what);
  const LinkMetrics& filtered = evaluation->filtered;
  return fmt::format("{} MRR {:.4f} (Hits@1 {:.4f}, @3 {:.4f}, @10 {:.4f}; raw MRR {:.4f})", what,
                     filtered.mrr, filtered.hits_1, filtered.hits_3, filtered.hits_10, evaluation->raw.mrr);
}

// For a terminal of 80 columns; JSON has the rest.
constexpr std::string_view kLinkRow = "{:>5} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>9}\n";

void PrintRun(const LinkRun& run) {
  const LinkRunStats stats = run.stats();
  if (run.options().keep) {
    PrintLine(fmt::format("run \"{}\": {} checkpoints in {:.2f} s; --resume --epochs N trains on",
                          run.options().name, stats.checkpoints, stats.checkpoint_seconds));
  }
  if (run.where() != LinkTables::kStored) return;
  PrintLine(fmt::format("stored vectors: {} of memory, {:.1f} % of pages found there, {} read, {} written",
                        FormatBytes(stats.pool_bytes), 100 * HitRatio(stats.pools),
                        FormatCount(static_cast<double>(stats.pools.pages_read)),
                        FormatCount(static_cast<double>(stats.pools.pages_written))));
}

void PrintHeader() {
  std::fputs(fmt::format(fmt::runtime(kLinkRow), "epoch", "loss", "MRR ", "Hits@10", "seconds", "edges/s",
                         "compute", "waited", "replaced", "peak RSS")
                 .c_str(),
             stdout);
}

}  // namespace

void LinkReport::Epoch(const LinkEpochReport& epoch) {
  reserved_bytes_ = budget_.used_bytes();
  if (json_) {
    Json json;
    json["epoch"] = epoch.epoch;
    json["learning_rate"] = epoch.learning_rate;
    json["loss"] = epoch.loss;
    AddMetrics("valid", epoch.valid, json);
    json["seconds"] = epoch.seconds;
    json["edges"] = epoch.edges;
    json["edges_per_second"] = Rate(epoch.edges, epoch.seconds);
    AddWork(epoch.stats, json);
    AddMemory(reserved_bytes_, budget_, json);
    json["valid_seconds"] = epoch.valid_seconds;
    json["best"] = epoch.best;
    PrintJson(json);
    return static_cast<void>(std::fflush(stdout));
  }
  if (!header_printed_) PrintHeader();
  header_printed_ = true;
  const EmbeddingPipelineStats& stats = epoch.stats;
  const auto busy = [&](EmbeddingStage stage) {
    return fmt::format("{:.2f}", stats.stage(stage).busy_seconds);
  };
  const auto metric = [&](double LinkMetrics::*value) {
    return epoch.valid ? fmt::format("{:.4f}", epoch.valid->filtered.*value) : std::string("-");
  };
  std::fputs(fmt::format(fmt::runtime(kLinkRow), epoch.epoch, fmt::format("{:.4f}", epoch.loss),
                         metric(&LinkMetrics::mrr) + (epoch.best ? "*" : " "), metric(&LinkMetrics::hits_10),
                         fmt::format("{:.2f}", epoch.seconds), FormatCount(Rate(epoch.edges, epoch.seconds)),
                         busy(EmbeddingStage::kCompute),
                         fmt::format("{:.2f}", stats.stage(EmbeddingStage::kCompute).wait_seconds),
                         FormatCount(static_cast<double>(stats.rows_replaced)), FormatBytes(PeakRssBytes()))
                 .c_str(),
             stdout);
  std::fflush(stdout);
}

void LinkReport::Summary(const LinkTrainSummary& summary) {
  const double edges_per_second = Rate(summary.edges, summary.train_seconds);
  if (!json_) {
    PrintLine(Sentence("test", summary.test));
    PrintLine(Sentence("validation", summary.valid));
    if (train_.patience > 0 && summary.kept_epoch < summary.epochs) {
      PrintLine(fmt::format("both by the vectors of epoch {}, the best by validation", summary.kept_epoch));
    }
    PrintLine(fmt::format("{} epochs{}, {:.2f} s each, {} edges/s, {:.1f} s in all", summary.epochs,
                          summary.stopped_early ? " (stopped early)" : "", summary.seconds_per_epoch,
                          FormatCount(edges_per_second), summary.seconds));
    if (run_ != nullptr) PrintRun(*run_);
    return PrintLine(fmt::format("peak RSS {}; {} reserved of {} budget", FormatBytes(PeakRssBytes()),
                                 FormatBytes(reserved_bytes_), FormatBytes(budget_.limit_bytes())));
  }
  Json json;
  json["epochs"] = summary.epochs;
  json["kept_epoch"] = summary.kept_epoch;
  json["stopped_early"] = summary.stopped_early;
  json["loss"] = summary.loss;
  AddMetrics("valid", summary.valid, json);
  AddMetrics("test", summary.test, json);
  json["seconds"] = summary.seconds;
  json["seconds_per_epoch"] = summary.seconds_per_epoch;
  json["test_seconds"] = summary.test_seconds;
  json["edges"] = summary.edges;
  json["edges_per_second"] = edges_per_second;
  AddWork(summary.stats, json);
  AddMemory(reserved_bytes_, budget_, json);
  AddTables(run_, start_, json);
  AddSettings(train_, json);
  json["config"] = config_;
  PrintJson(Json{{"summary", json}});
}

}  // namespace quarry::cli
