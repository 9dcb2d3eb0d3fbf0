#include "predict_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "print_json.h"
#include "quarry/base/process.h"
#include "quarry/base/units.h"

namespace quarry::cli {
namespace {

void PrintPass(const GraphPass& pass) {
  const LayerPass sum = pass.Sum();
  const uint64_t read = sum.read_bytes() + pass.sample_bytes;
  const auto times = [&](uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(1, sum.least_bytes));
  };
  Print(
      "layers: {} read, {:.2f} times the rows of each layer and its edges once ({}); predicted {:.2f}; {} "
      "written\n",
      FormatBytes(read), times(read), FormatBytes(sum.least_bytes), times(sum.predicted_bytes),
      FormatBytes(sum.written_bytes));
}

nlohmann::ordered_json StepJson(const RolloutStep& step) {
  nlohmann::ordered_json json = {{"time", step.time}};
  if (step.errors.count > 0) {
    json["rmse"] = step.errors.Rmse();
    json["persistence_rmse"] = step.persistence.Rmse();
  }
  return json;
}

void PrintPredictionsJson(const PredictReport& report, const PredictPlace& place, double seconds) {
  nlohmann::ordered_json json = {
      {"run", place.run},
      {place.path.empty() ? "table" : "path", place.path.empty() ? place.table : place.path},
      {"rows", report.nodes},
      {"columns", place.columns},
      {"labelled_nodes", report.labelled}};
  if (report.labelled > 0) {
    json["accuracy"] = static_cast<double>(report.correct) / static_cast<double>(report.labelled);
  }
  if (report.errors.count > 0) json["rmse"] = report.errors.Rmse();
  if (report.pass) {
    const LayerPass sum = report.pass->Sum();
    json["layers"] = {{"ranges", sum.ranges},
                      {"least_bytes", sum.least_bytes},
                      {"predicted_bytes", sum.predicted_bytes},
                      {"read_bytes", sum.read_bytes() + report.pass->sample_bytes},
                      {"written_bytes", sum.written_bytes}};
  }
  for (const RolloutStep& step : report.steps) json["steps"].push_back(StepJson(step));
  json["seconds"] = seconds;
  json["peak_rss_bytes"] = PeakRssBytes();
  PrintJson(json);
}

}  // namespace

void PrintPredictions(const PredictReport& report, const PredictPlace& place, double seconds, bool json) {
  if (json) return PrintPredictionsJson(report, place, seconds);
  std::string judged;
  if (report.labelled > 0) {
    judged = fmt::format("; accuracy {:.4f} on {} labelled nodes",
                         static_cast<double>(report.correct) / static_cast<double>(report.labelled),
                         report.labelled);
  } else if (report.errors.count > 0) {
    judged = fmt::format("; RMSE {:.4g} on {} targets", report.errors.Rmse(), report.errors.count);
  }
  Print("{}: {} rows of {} in {:.2f} s{}\n", place.path.empty() ? place.table : place.path, report.nodes,
        place.columns, seconds, judged);
  for (const RolloutStep& step : report.steps) {
    Print("time {}: {}\n", step.time,
          step.errors.count == 0
              ? std::string("not in the database")
              : fmt::format("RMSE {:.4g}, persistence {:.4g}", step.errors.Rmse(), step.persistence.Rmse()));
  }
  if (report.pass) PrintPass(*report.pass);
}

}  // namespace quarry::cli
