#include "targets.h"

#include <algorithm>
#include <cmath>

namespace quarry {
namespace {

constexpr size_t kMeasuredNodes = 4096;  // targets of so many are read at a time

// The loss of one output, and its derivative.
struct ElementLoss {
  double value = 0, slope = 0;
};

ElementLoss SquaredError(double output, double target) {
  const double error = output - target;
  return {error * error, 2 * error};
}

ElementLoss HuberError(double output, double target) {
  const double error = output - target;
  const double size = std::abs(error);
  return size <= 1 ? ElementLoss{error * error / 2, error}
                   : ElementLoss{size - 0.5, std::copysign(1.0, error)};
}

ElementLoss AbsoluteError(double output, double target) {
  const double error = output - target;
  return {std::abs(error), error == 0 ? 0 : std::copysign(1.0, error)};
}

// Takes a logit, so that no exponential overflows.
ElementLoss BinaryCrossEntropy(double logit, double target) {
  const double small = std::exp(-std::abs(logit));
  const double probability = logit >= 0 ? 1 / (1 + small) : small / (1 + small);
  return {std::max(logit, 0.0) - logit * target + std::log1p(small), probability - target};
}

using LossOfElement = ElementLoss (*)(double output, double target);

LossOfElement LossOf(NodeTask task, RegressionLoss regression_loss) {
  if (task != NodeTask::kRegression) return BinaryCrossEntropy;
  switch (regression_loss) {
    case RegressionLoss::kMse:
      return SquaredError;
    case RegressionLoss::kHuber:
      return HuberError;
    case RegressionLoss::kMae:
      return AbsoluteError;
  }
  return SquaredError;
}

uint32_t CountPresent(std::span<const float> row) {
  return static_cast<uint32_t>(std::ranges::count_if(row, [](float value) { return !std::isnan(value); }));
}

}  // namespace

Status ReadTargets(TargetRows& targets, NodeTask task, std::span<const NodeId> nodes,
                   std::vector<float>& rows) {
  const uint32_t width = targets.dim();
  rows.resize(nodes.size() * width);
  QUARRY_RETURN_IF_ERROR(targets.Read(nodes, rows));
  for (size_t i = 0; i < rows.size(); i++) {
    const float value = rows[i];
    if (std::isnan(value)) continue;
    const bool fits = task == NodeTask::kMultiLabel ? value == 0 || value == 1 : std::isfinite(value);
    if (fits) continue;
    return MakeStatus(Code::kInvalidArgument, "{}: column {} is {}, but must be {}",
                      targets.Place(nodes[i / width]), i % width, value,
                      task == NodeTask::kMultiLabel ? "0, 1 or NaN for none" : "a number, or NaN for none");
  }
  return Status::Ok();
}

uint32_t CountTargeted(std::span<const float> rows, uint32_t width) {
  uint32_t count = 0;
  for (size_t at = 0; at < rows.size(); at += width) count += CountPresent(rows.subspan(at, width)) > 0;
  return count;
}

float TargetLoss(NodeTask task, RegressionLoss regression_loss, std::span<const float> outputs,
                 std::span<const float> targets, uint32_t width, std::span<float> gradients) {
  const LossOfElement loss_of = LossOf(task, regression_loss);
  const double share_of_row = 1.0 / CountTargeted(targets, width);
  double loss = 0;
  for (size_t at = 0; at < targets.size(); at += width) {
    const uint32_t present = CountPresent(targets.subspan(at, width));
    const double share = present == 0 ? 0 : share_of_row / present;
    for (size_t i = at; i < at + width; i++) {
      gradients[i] = 0;
      if (std::isnan(targets[i])) continue;
      const ElementLoss element = loss_of(outputs[i], targets[i]);
      loss += share * element.value;
      gradients[i] = static_cast<float>(share * element.slope);
    }
  }
  return static_cast<float>(loss);
}

// Means and sums of squares as they come (Welford 1962): one pass, and no large numbers to subtract.
Result<TargetScale> TargetScale::Measure(TargetRows& targets, std::span<const NodeId> nodes,
                                         const std::function<Status(uint64_t done)>& progress) {
  const uint32_t width = targets.dim();
  std::vector<double> mean(width, 0.0), squares(width, 0.0);
  std::vector<uint64_t> counts(width, 0);
  std::vector<float> rows;
  for (size_t first = 0; first < nodes.size(); first += kMeasuredNodes) {
    QUARRY_RETURN_IF_ERROR(progress(first));
    const auto some = nodes.subspan(first, std::min(kMeasuredNodes, nodes.size() - first));
    QUARRY_RETURN_IF_ERROR(ReadTargets(targets, NodeTask::kRegression, some, rows));
    for (size_t i = 0; i < rows.size(); i++) {
      if (std::isnan(rows[i])) continue;
      const size_t column = i % width;
      const double before = rows[i] - mean[column];
      mean[column] += before / static_cast<double>(++counts[column]);
      squares[column] += before * (rows[i] - mean[column]);
    }
  }
  TargetScale scale;
  for (uint32_t c = 0; c < width; c++) {
    const double deviation = counts[c] == 0 ? 0 : std::sqrt(squares[c] / static_cast<double>(counts[c]));
    const bool varies = deviation > 0 && std::isnormal(static_cast<float>(deviation));
    scale.mean.push_back(static_cast<float>(mean[c]));
    scale.deviation.push_back(varies ? static_cast<float>(deviation) : 1.0F);
  }
  return scale;
}

void TargetScale::Scale(std::span<float> rows) const {
  if (mean.empty()) return;
  for (size_t i = 0; i < rows.size(); i++) {
    const size_t column = i % mean.size();
    rows[i] = (rows[i] - mean[column]) / deviation[column];
  }
}

void TargetScale::Unscale(std::span<float> rows) const {
  if (mean.empty()) return;
  for (size_t i = 0; i < rows.size(); i++) {
    const size_t column = i % mean.size();
    rows[i] = rows[i] * deviation[column] + mean[column];
  }
}

}  // namespace quarry
