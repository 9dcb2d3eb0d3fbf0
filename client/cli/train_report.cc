#include "train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "layout_options.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/processor_time.h"
#include "quarry/base/units.h"
#include "record_json.h"

namespace quarry::cli {
namespace {

// Bytes read for features per byte that was missing; 1 where nothing was read.
double ReadAmplification(const StreamStats& stats) {
  if (stats.bytes_useful == 0) return 1;
  return static_cast<double>(stats.feature_bytes_read) / static_cast<double>(stats.bytes_useful);
}

double CacheHitRatio(const StreamStats& stats) {
  if (stats.cache_lookups == 0) return 0;
  return static_cast<double>(stats.cache_hits) / static_cast<double>(stats.cache_lookups);
}

// What an evaluation of a task tells, in the order in which it is told.
struct NamedMetric {
  std::string_view key, name;  // in JSON, and in a sentence
  std::optional<double> value;
};
std::vector<NamedMetric> MetricsOf(NodeTask task, const std::optional<Evaluation>& evaluation) {
  const Evaluation told = evaluation.value_or(Evaluation());
  switch (task) {
    case NodeTask::kRegression:
      return {{"rmse", "RMSE", told.rmse}, {"mae", "MAE", told.mae}};
    case NodeTask::kMultiLabel:
      return {{"micro_f1", "micro-F1", told.micro_f1}, {"auc", "AUC", told.auc}};
    case NodeTask::kClasses:
      break;
  }
  return {{"accuracy", "accuracy", evaluation ? std::optional(told.accuracy) : std::nullopt},
          {"auc", "AUC", told.auc}};
}

void AddMetrics(std::string_view what, NodeTask task, const std::optional<Evaluation>& evaluation,
                Json& json) {
  for (const NamedMetric& metric : MetricsOf(task, evaluation)) {
    json[fmt::format("{}_{}", what, metric.key)] = metric.value ? Json(*metric.value) : Json(nullptr);
  }
}

// What else is told of regression, once.
void AddColumns(const std::optional<Evaluation>& test, Json& json) {
  const Evaluation told = test.value_or(Evaluation());
  json["test_rmse_by_column"] = told.column_rmse;
  if (!told.persistence_rmse) return;
  json["test_persistence_rmse"] = *told.persistence_rmse;
  json["test_skill"] = told.skill() ? Json(*told.skill()) : Json(nullptr);
}

void AddBudgets(const TrainSetup& setup, Json& json) {
  json["peak_rss_bytes"] = PeakRssBytes();
  json["processor_seconds"] = ProcessProcessorSeconds();
  json["memory_budget_bytes"] = setup.memory_budget_bytes;
  json["cache_budget_bytes"] = setup.cache_budget_bytes;
  json["memory_overhead_bytes"] = setup.overhead_bytes;
}

void AddStats(const StreamStats& stats, Json& json) {
  json.update(FieldsOf(stats));
  Rename(json, "feature_bytes_read", "bytes_read");
  Rename(json, "consumer_wait_seconds", "train_wait_seconds");
  json["read_amplification"] = ReadAmplification(stats);
  json["cache_hit_ratio"] = CacheHitRatio(stats);
}

void AddPlan(const TrainSetup& setup, Json& json) {
  if (const SuperbatchRoad* const road = setup.superbatches) {
    json["packed_superbatches"] = road->packed_superbatches();
    json["merged_superbatches"] = road->merged_superbatches();
    json["plan_wait_seconds"] = road->plan_wait_seconds();
  }
  if (setup.decision) {
    json["road"] = quarry::NameOf(setup.decision->plan.road);
    json["road_seconds_predicted"] = setup.decision->seconds;
    json["epoch_seconds_predicted"] = setup.decision->epoch_seconds;
    json["build_seconds_predicted"] = setup.decision->build_seconds;
    json["other_seconds_predicted"] = setup.decision->other_seconds;
    json["build_processor_seconds_predicted"] = setup.decision->build_processor_seconds;
    json["train_processor_seconds_predicted"] = setup.decision->train_processor_seconds;
    json["other_processor_seconds_predicted"] = setup.decision->other_processor_seconds;
  }
  if (!setup.predicted_seconds) return;
  json["plan_seconds"] = setup.plan_seconds;
  json["plan_bytes_written"] = setup.plan_bytes_written;
  json["plan_bytes_read"] = setup.plan_bytes_read;
  json["predicted_seconds"] = *setup.predicted_seconds;
}

// How the memory is divided, as far as it is before a layout is built.
void AddDivision(const TrainSetup& setup, const LiveRoadPlan* plan, Json& json) {
  json["memory_budget_bytes"] = setup.memory_budget_bytes;
  json["memory_overhead_bytes"] = setup.overhead_bytes;
  json["cache_budget_bytes"] = setup.cache_budget_bytes;
  if (plan != nullptr) json.update(FieldsOf(*plan));
}

Json EpochJson(const EpochReport& epoch, const TrainSetup& setup) {
  Json json;
  json["epoch"] = epoch.epoch;
  json["learning_rate"] = epoch.learning_rate;
  json["loss"] = epoch.loss;
  AddMetrics("valid", setup.train.task, epoch.valid, json);
  // The test nodes are looked at once, at the end.
  if (setup.train.task == NodeTask::kClasses) json["test_accuracy"] = nullptr;
  json["seconds"] = epoch.seconds;
  AddStats(epoch.stats, json);
  AddBudgets(setup, json);
  AddPlan(setup, json);
  json["train_seconds"] = epoch.compute_seconds;
  json["valid_seconds"] = epoch.valid_seconds;
  json["best"] = epoch.best;
  json["checkpoint_seconds"] = epoch.checkpoint_seconds ? Json(*epoch.checkpoint_seconds) : Json(nullptr);
  return json;
}

void AddCheckpoints(const TrainSummary& summary, const TrainRun& run, Json& json) {
  if (run.states == nullptr) return;
  const std::optional<uint32_t>& resumed = summary.resumed_from_epoch;
  json["run"] = run.name;
  json["checkpoints"] = summary.checkpoints;
  json["checkpoint_seconds"] = summary.checkpoint_seconds;
  json["resumed_from_epoch"] = resumed ? Json(*resumed) : Json(nullptr);
}

Json SummaryJson(const TrainSummary& summary, const TrainSetup& setup, double began_processor_seconds) {
  Json json;
  json["epochs"] = summary.epochs;
  json["best_epoch"] = summary.best_epoch;
  json["stopped_early"] = summary.stopped_early;
  json["loss"] = summary.best_loss;
  AddMetrics("valid", setup.train.task, summary.valid, json);
  AddMetrics("test", setup.train.task, summary.test, json);
  if (setup.train.task == NodeTask::kRegression) AddColumns(summary.test, json);
  json["seconds"] = summary.seconds;
  json["seconds_per_epoch"] = summary.train_seconds / summary.epochs;
  json["processor_seconds_before"] = began_processor_seconds;
  AddStats(summary.stats, json);
  AddBudgets(setup, json);
  AddPlan(setup, json);
  AddCheckpoints(summary, setup.run, json);
  json["fanouts"] = GivenFanouts(setup.road.spec);
  json["batch_size"] = setup.road.spec.batch_size;
  for (const ModelField& field : ModelFields()) {
    if (!field.IsOf(setup.train.spec.model)) continue;
    std::string key(field.name);
    std::ranges::replace(key, '-', '_');
    json[key] =
        !field.names.empty() ? Json(field.text(setup.train.spec)) : Json::parse(field.text(setup.train.spec));
  }
  if (setup.train.task != NodeTask::kClasses) json["task"] = quarry::NameOf(setup.train.task);
  if (setup.train.task == NodeTask::kRegression) {
    json["loss_function"] = quarry::NameOf(setup.train.regression_loss);
  }
  json["layers"] = setup.train.layers;
  json["hidden"] = setup.train.hidden;
  json["schedule"] = quarry::NameOf(setup.train.schedule);
  json["seed"] = setup.train.seed;
  json["sampler_threads"] = setup.road.sampler_threads;
  json["extractor_threads"] = setup.road.extractor_threads;
  json["torch_threads"] = setup.train.torch_threads;
  json["ordered"] = setup.train.ordered;
  json["trainers"] = setup.trainers;
  json["config"] = setup.config;
  return Json{{"summary", json}};
}

// A metric to four digits, or, of regression, whose units are the table's, to four that count.
std::string MetricText(NodeTask task, double value) {
  return task == NodeTask::kRegression ? fmt::format("{:.4g}", value) : fmt::format("{:.4f}", value);
}

// The metric that models are selected by, as a cell.
std::string Metric(NodeTask task, const std::optional<Evaluation>& evaluation) {
  return evaluation ? MetricText(task, std::abs(evaluation->selection_metric())) : "-";
}
std::string_view MetricHead(NodeTask task, const std::optional<Evaluation>& evaluation) {
  if (task == NodeTask::kRegression) return "RMSE ";
  if (evaluation && evaluation->auc) return "AUC ";
  return task == NodeTask::kMultiLabel ? "F1 " : "valid ";
}

std::string Sentence(std::string_view what, NodeTask task, const std::optional<Evaluation>& evaluation) {
  if (!evaluation) return fmt::format("no {} nodes", what);
  const std::vector<NamedMetric> metrics = MetricsOf(task, evaluation);
  std::string text = fmt::format("{} {} {}", what, metrics[0].name, MetricText(task, *metrics[0].value));
  if (metrics[1].value) text += fmt::format(" ({} {})", metrics[1].name, MetricText(task, *metrics[1].value));
  return text;
}

// For a terminal of 80 columns; JSON has the rest.
constexpr std::string_view kNodeRow = "{:>5} {:>7} {:>7} {:>8} {:>8} {:>6} {:>9} {:>5} {:>6} {:>9}\n";

Json PartsOf(const RoadWork& work) {
  return {{"disk_seconds", work.disk_seconds},
          {"sample_seconds", work.sample_seconds},
          {"extract_seconds", work.extract_seconds},
          {"model_seconds", work.model.wall},
          {"model_processor_seconds", work.model.processor}};
}

}  // namespace

void PrintRoads(const RoadChoice& choice, uint64_t epochs, uint32_t patience, bool json_asked) {
  if (!json_asked) {
    for (const std::string& line : {choice.Table(), choice.ToString() + "\n"}) Print("{}", line);
    if (patience > 0) {
      Print("all {} epochs are priced: the most that --patience {} leaves\n", epochs, patience);
    }
    return;
  }
  Json json = {
      {"roads", Json::array()},
      {"not_on_offer", choice.left_out},
      {"runs", {{"open_seconds", choice.runs.open_seconds}, {"draw_seconds", choice.runs.draw_seconds}}},
      {"epochs_priced", epochs},
      {"epochs_are_at_most", patience > 0}};
  for (const RoadCost& cost : choice.roads) {
    json["roads"].push_back({{"road", quarry::NameOf(cost.plan.road)},
                             {"packed", cost.plan.packed},
                             {"policy", quarry::NameOf(cost.plan.policy)},
                             {"cache_rows", cost.plan.cache_rows},
                             {"superbatch", cost.plan.superbatch},
                             {"lists_in_memory", cost.lists.in_memory},
                             {"neighbor_cache_bytes", cost.lists.cache_bytes},
                             {"build_seconds", cost.build_seconds},
                             {"epoch_seconds", cost.epoch_seconds},
                             {"other_seconds", cost.other_seconds},
                             {"seconds", cost.seconds},
                             {"epoch_bytes_read", cost.read_bytes},
                             {"disk_bytes", cost.disk_bytes},
                             {"processor_bound", cost.processor_bound},
                             {"build_processor_seconds", cost.build_processor_seconds},
                             {"train_processor_seconds", cost.train_processor_seconds},
                             {"other_processor_seconds", cost.other_processor_seconds},
                             {"epoch", PartsOf(cost.epoch)},
                             {"build",
                              {{"sample_seconds", cost.build.sample},
                               {"plan_seconds", cost.build.plan},
                               {"pack_seconds", cost.build.pack}}}});
  }
  PrintJson(json);
}

std::string TrainSetup::ToString() const {
  if (remote) {
    return fmt::format("{} trainer{}, {} threads each in LibTorch; memory: {} each for LibTorch and code",
                       trainers, trainers == 1 ? "" : "s", train.torch_threads, FormatBytes(overhead_bytes));
  }
  return fmt::format(
      "threads: {} sampling, {} extracting, {} in LibTorch; memory: {} for the engine + {} for LibTorch and "
      "code",
      road.sampler_threads, road.extractor_threads, train.torch_threads, FormatBytes(memory_budget_bytes),
      FormatBytes(overhead_bytes));
}

TrainReport::TrainReport(const TrainSetup& setup, bool json)
    : setup_(setup), json_(json), began_processor_seconds_(ProcessProcessorSeconds()) {}

void TrainReport::Decision(const std::string& said, const LiveRoad* live) {
  const RoadPlan& plan = setup_.decision->plan;
  if (!json_) {
    PrintLine(said);
    PrintLine(fmt::format("least memory: --memory {}MiB", CeilDiv(setup_.least_budget_bytes, kMiB)));
    if (live != nullptr) PrintLine(live->plan().ToString());
    return PrintPeak();
  }
  Json json;
  AddPlan(setup_, json);
  json["packed"] = plan.packed;
  json["policy"] = quarry::NameOf(plan.policy);
  json["cache_rows"] = plan.cache_rows;
  json["least_memory_bytes"] = RoundUp(setup_.least_budget_bytes, kMiB);
  AddDivision(setup_, live != nullptr ? &live->plan() : nullptr, json);
  PrintJson(json);
  std::fflush(stdout);
}

void TrainReport::PrintPeak() const {
  PrintLine(fmt::format("peak RSS: at most {} budget + {} overhead for code and LibTorch",
                        FormatBytes(setup_.memory_budget_bytes), FormatBytes(setup_.overhead_bytes)));
}

void TrainReport::Plan(const LiveRoadPlan& plan) {
  if (!json_) {
    PrintLine(plan.ToString());
    return PrintPeak();
  }
  Json json;
  AddDivision(setup_, &plan, json);
  PrintJson(json);
  std::fflush(stdout);
}

void TrainReport::Epoch(const EpochReport& epoch) {
  if (json_) {
    PrintJson(EpochJson(epoch, setup_));
    return static_cast<void>(std::fflush(stdout));
  }
  if (!header_printed_) {
    std::fputs(
        fmt::format(fmt::runtime(kNodeRow), "epoch", "loss", MetricHead(setup_.train.task, epoch.valid),
                    "seconds", "compute", "waited", "read", "ampl", "hits", "peak RSS")
            .c_str(),
        stdout);
    header_printed_ = true;
  }
  const StreamStats& stats = epoch.stats;
  const auto seconds = [](double value) { return fmt::format("{:.2f}", value); };
  std::fputs(
      fmt::format(fmt::runtime(kNodeRow), epoch.epoch, fmt::format("{:.4f}", epoch.loss),
                  Metric(setup_.train.task, epoch.valid) + (epoch.best ? "*" : " "), seconds(epoch.seconds),
                  seconds(epoch.compute_seconds), seconds(stats.consumer_wait_seconds),
                  FormatBytes(stats.feature_bytes_read), fmt::format("{:.2f}", ReadAmplification(stats)),
                  fmt::format("{:.1f}%", 100 * CacheHitRatio(stats)), FormatBytes(PeakRssBytes()))
          .c_str(),
      stdout);
  std::fflush(stdout);
}

void TrainReport::Summary(const TrainSummary& summary) {
  if (json_) return PrintJson(SummaryJson(summary, setup_, began_processor_seconds_));
  PrintLine(fmt::format("{}, {}; weights of epoch {} of {}{}, {:.2f} s an epoch, {:.1f} s in all",
                        Sentence("test", setup_.train.task, summary.test),
                        Sentence("validation", setup_.train.task, summary.valid), summary.best_epoch,
                        summary.epochs, summary.stopped_early ? " (stopped early)" : "",
                        summary.train_seconds / summary.epochs, summary.seconds));
  if (summary.test && summary.test->persistence_rmse) {
    PrintLine(fmt::format("persistence, which takes what is for what will be: test RMSE {:.4g}; skill {:.4f}",
                          *summary.test->persistence_rmse, summary.test->skill().value_or(0)));
  }
  if (setup_.run.states != nullptr) {
    PrintLine(
        fmt::format("run \"{}\": {} checkpoint{} in {:.2f} s; --resume --epochs N trains on from epoch {}",
                    setup_.run.name, summary.checkpoints, summary.checkpoints == 1 ? "" : "s",
                    summary.checkpoint_seconds, summary.epochs));
  }
  if (setup_.remote) {
    return PrintLine(
        fmt::format("peak RSS {}, batches of the server's included", FormatBytes(PeakRssBytes())));
  }
  PrintLine(fmt::format("peak RSS {} of {} budget + {} overhead", FormatBytes(PeakRssBytes()),
                        FormatBytes(setup_.memory_budget_bytes), FormatBytes(setup_.overhead_bytes)));
}

}  // namespace quarry::cli
