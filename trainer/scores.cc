#include "scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "metrics.h"
#include "targets.h"

namespace quarry {

void Scores::Add(std::span<const float> logits, std::span<const int64_t> labels) {
  for (size_t i = 0; i < labels.size(); i++) {
    if (labels[i] < 0) continue;
    const std::span<const float> row = logits.subspan(i * width_, width_);
    nodes_++;
    correct_ += ArgMax(row) == static_cast<uint64_t>(labels[i]);
    if (width_ != 2) continue;
    preference_.push_back(row[1] - row[0]);
    positive_.push_back(labels[i] == 1);
  }
}

void Scores::AddTargets(std::span<const float> outputs, std::span<const float> targets) {
  nodes_ += CountTargeted(targets, width_);
  for (size_t i = 0; i < targets.size(); i++) {
    if (task_ == NodeTask::kMultiLabel) {
      preference_.push_back(outputs[i]);
      positive_.push_back(std::isnan(targets[i]) ? kNoLabel : uint8_t{targets[i] == 1});
    } else if (!std::isnan(targets[i])) {
      const double error = double{outputs[i]} - double{targets[i]};
      targets_++;
      squared_ += error * error;
      absolute_ += std::abs(error);
      columns_[i % width_].sum += error * error;
      columns_[i % width_].count++;
    }
  }
}

void Scores::AddPresent(std::span<const float> present, std::span<const float> targets) {
  for (size_t i = 0; i < targets.size(); i++) {
    const double error = double{present[i]} - double{targets[i]};
    if (std::isnan(error)) continue;
    present_.sum += error * error;
    present_.count++;
  }
}

// A rank's part of a list is its place in a longer one of zeros, which sums put together.
Status Scores::Gather(Communicator& trainers) {
  enum Count : size_t { kNodes, kCorrect, kTargets, kSquared, kAbsolute, kPresent, kPresents, kListed };
  std::vector<double> counts(kListed + trainers.size(), 0);
  counts[kNodes] = static_cast<double>(nodes_);
  counts[kCorrect] = static_cast<double>(correct_);
  counts[kTargets] = static_cast<double>(targets_);
  counts[kSquared] = squared_;
  counts[kAbsolute] = absolute_;
  counts[kPresent] = present_.sum;
  counts[kPresents] = present_.count;
  counts[kListed + trainers.rank()] = static_cast<double>(preference_.size());
  QUARRY_RETURN_IF_ERROR(trainers.AllReduceSum(counts));
  std::vector<double> columns;
  for (const Squares& column : columns_) columns.insert(columns.end(), {column.sum, column.count});
  if (!columns.empty()) QUARRY_RETURN_IF_ERROR(trainers.AllReduceSum(columns));
  for (size_t c = 0; c < columns_.size(); c++) columns_[c] = {columns[2 * c], columns[2 * c + 1]};
  present_ = {counts[kPresent], counts[kPresents]};
  nodes_ = static_cast<uint64_t>(counts[kNodes]);
  correct_ = static_cast<uint64_t>(counts[kCorrect]);
  targets_ = static_cast<uint64_t>(counts[kTargets]);
  squared_ = counts[kSquared];
  absolute_ = counts[kAbsolute];
  const auto listed = counts.cbegin() + kListed;
  const auto before = static_cast<ptrdiff_t>(std::accumulate(listed, listed + trainers.rank(), 0.0));
  const auto total = static_cast<ptrdiff_t>(std::accumulate(listed, counts.cend(), 0.0));
  if (total == 0) return Status::Ok();
  std::vector<float> all(2 * static_cast<size_t>(total), 0);
  std::ranges::copy(preference_, all.begin() + before);
  std::ranges::copy(positive_, all.begin() + total + before);
  QUARRY_RETURN_IF_ERROR(trainers.AllReduceSum(all));
  preference_.assign(all.begin(), all.begin() + total);
  positive_.assign(all.begin() + total, all.end());
  return Status::Ok();
}

std::optional<Evaluation> Scores::Evaluate() const {
  if (nodes_ == 0) return std::nullopt;
  Evaluation evaluation;
  evaluation.nodes = nodes_;
  switch (task_) {
    case NodeTask::kClasses:
      evaluation.accuracy = static_cast<double>(correct_) / static_cast<double>(nodes_);
      if (width_ == 2) evaluation.auc = RocAuc(preference_, positive_);
      break;
    case NodeTask::kRegression:
      evaluation.rmse = std::sqrt(squared_ / static_cast<double>(targets_));
      evaluation.mae = absolute_ / static_cast<double>(targets_);
      for (const Squares& column : columns_) {
        evaluation.column_rmse.push_back(std::sqrt(column.sum / column.count));
      }
      if (present_.count > 0) evaluation.persistence_rmse = std::sqrt(present_.sum / present_.count);
      break;
    case NodeTask::kMultiLabel:
      EvaluateLabels(evaluation);
      break;
  }
  return evaluation;
}

void Scores::EvaluateLabels(Evaluation& evaluation) const {
  uint64_t right = 0, wrong = 0;  // labels told rightly; told wrongly, or not told
  double areas = 0;
  uint32_t curves = 0;
  std::vector<float> scores;
  std::vector<uint8_t> truths;
  for (uint32_t label = 0; label < width_; label++) {
    scores.clear();
    truths.clear();
    for (size_t i = label; i < positive_.size(); i += width_) {
      if (positive_[i] == kNoLabel) continue;
      const bool told = preference_[i] >= 0;
      right += told && positive_[i] == 1;
      wrong += told != (positive_[i] == 1);
      scores.push_back(preference_[i]);
      truths.push_back(positive_[i]);
    }
    if (const std::optional<double> area = RocAuc(scores, truths)) {
      areas += *area;
      curves++;
    }
  }
  // 2 TP / (2 TP + FP + FN), all labels together; 0 where there is nothing to tell and nothing is told.
  const auto counted = static_cast<double>(2 * right + wrong);
  evaluation.micro_f1 = counted == 0 ? 0 : 2 * static_cast<double>(right) / counted;
  if (curves > 0) evaluation.auc = areas / curves;
}

}  // namespace quarry
